"""How long the simulated work takes: seconds that stand for a turn's generation and for each part of an update.

Ours, not measured. Two paces, after the size of the preset's turns: with the small one a step takes about a second, its
shares about the study's (forward 5 %, train 7 %, sync and other 2 %); with the full one a colocated step of 24
trajectories takes about what the study's did (generation 385 s, forward 24 s, train 33 s, sync and other 9 s).
"""

from dataclasses import dataclass

from harness.protocol.spec import RunSpec
from workloads.deep_research.presets import preset_of

FULL_TURN_TOKENS = 100  # mean tokens of a turn from which a preset is full size


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds; those named `token` per token, `per_running` per token and running sequence of an engine."""

    turn_s: float
    token_s: float
    token_per_running_s: float
    data_s: float
    logprob_s: float
    logprob_token_s: float
    advantage_s: float
    train_s: float
    train_token_s: float
    offload_s: float
    pause_s: float
    transfer_s: float
    resume_s: float
    log_s: float


SMALL = Pace(
    turn_s=0.002,
    token_s=0.000_25,
    token_per_running_s=0.000_02,
    data_s=0.003,
    logprob_s=0.010,
    logprob_token_s=0.000_03,
    advantage_s=0.002,
    train_s=0.020,
    train_token_s=0.000_045,
    offload_s=0.005,
    pause_s=0.001,
    transfer_s=0.012,
    resume_s=0.001,
    log_s=0.002,
)
FULL = Pace(
    turn_s=0.25,
    token_s=0.014,
    token_per_running_s=0.001_2,
    data_s=0.4,
    logprob_s=1.0,
    logprob_token_s=0.000_09,
    advantage_s=0.25,
    train_s=2.0,
    train_token_s=0.000_13,
    offload_s=2.0,
    pause_s=0.1,
    transfer_s=4.0,
    resume_s=0.4,
    log_s=0.5,
)


def pace_of(spec: RunSpec) -> Pace:
    """The pace that fits a run's preset."""
    return FULL if preset_of(spec).generated.clipped_mean >= FULL_TURN_TOKENS else SMALL
