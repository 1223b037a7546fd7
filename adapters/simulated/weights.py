"""A policy of one number, with log-probabilities that follow it: enough to prove, or to disprove, a weight sync."""

import math
import random
from collections.abc import Sequence

VOCABULARY = 2_048

# Engine and trainer never agree to the last bit: this stands for their different kernels (fp32 on CPU: about 2e-7).
ENGINE_NOISE = 2e-7

PROBE_TOKENS = 32


def logprob(theta: float, token: int, position: int) -> float:
    """Natural log-probability of a token under weights `theta`: between -2.6 and -0.4, smooth in theta."""
    return -1.5 - 0.8 * math.cos(0.7 * position + token) - 0.3 * math.sin(theta + 0.37 * position)


def trainer_logprobs(theta: float, tokens: Sequence[int], first_position: int = 0) -> list[float]:
    """What the trainer computes for `tokens`, the first of which stands at `first_position`."""
    return [logprob(theta, token, first_position + index) for index, token in enumerate(tokens)]


def engine_logprobs(theta: float, tokens: Sequence[int], first_position: int, noise: random.Random) -> list[float]:
    """What an engine returns for `tokens`: the trainer's numbers, up to rounding."""
    return [
        value + noise.uniform(-ENGINE_NOISE, ENGINE_NOISE) for value in trainer_logprobs(theta, tokens, first_position)
    ]


def probe(seed: int) -> list[int]:
    """The fixed text on which trainer and engine are compared at each version of the proof."""
    return random.Random(f"{seed}:probe").choices(range(VOCABULARY), k=PROBE_TOKENS)


def update(theta: float, advantages: Sequence[float], noise: random.Random) -> tuple[float, float]:
    """New weights and gradient norm after one step: no advantage, no move."""
    gradient = sum(abs(advantage) for advantage in advantages) / max(len(advantages), 1)
    norm = 0.4 * gradient * noise.uniform(0.8, 1.2)
    return theta + norm / 2, norm


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """Rewards of one group, centred and divided by their standard deviation (GRPO, Shao et al. 2024, section 4.1)."""
    mean = sum(rewards) / len(rewards)
    spread = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / spread if spread else 0.0 for reward in rewards]
