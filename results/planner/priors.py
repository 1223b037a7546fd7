"""What no calibration of one run can tell: each assumption with its range and where the range comes from."""

import math
from dataclasses import dataclass, replace

from results.planner.calibration.constants import PRIOR, Calibration, Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """One named assumption. `at(place)` is its value at a place of its range."""

    name: str
    words: str
    constant: Constant
    reason: str
    ratio: bool = False  # a factor: half of it is as far from 1 as twice it

    def at(self, share: float) -> float:
        """The value at a place: 0 `low`, 0.5 `value`, 1 `high`; straight lines between, of logarithms for a ratio."""
        if not self.ratio:
            return self.constant.at(share)
        ends = (self.constant.low, self.constant.value) if share <= 0.5 else (self.constant.value, self.constant.high)
        low, high = (math.log(end) for end in ends)
        return math.exp(low + (high - low) * (share * 2 if share <= 0.5 else share * 2 - 1))


def _prior(
    name: str, words: str, value: float, low: float, high: float, reason: str, *, unit: str = "1", ratio: bool = False
) -> Prior:
    constant = Constant(value=value, low=low, high=high, unit=unit, source=PRIOR)
    return Prior(name=name, words=words, constant=constant, reason=reason, ratio=ratio)


BEYOND = _prior(
    "generation_beyond_seen",
    "how generation slows with more sequences on an engine than the calibration has seen",
    0.5,
    0.0,
    1.0,
    "0: not at all (bound by reading weights); 1: in proportion (bound by arithmetic); between the two on a log scale",
)
TRAIN = _prior(
    "training_on_fewer_gpus",
    "how training and logprob grow with 1 / GPUs: time ~ (calibrated GPUs / GPUs) ^ exponent",
    1.0,
    0.8,
    1.15,
    "1: perfect scaling; below: fewer GPUs talk less; above: memory forces smaller micro-batches or offload",
)
SYNC = _prior(
    "another_sync_mechanism",
    "a weight sync by another mechanism than the calibrated system's, as a multiple of that",
    1.0,
    1 / 6,
    6.0,
    "published syncs of one model differ by up to 6 times with the mechanism (verl's checkpoint engine, 7B)",
    ratio=True,
)
SYNC_START = _prior(
    "sync_between_processes",
    "what a weight sync between processes takes before it moves anything, where the calibrated one stayed in one",
    0.1,
    0.02,
    0.5,
    "pause, connect, agree on what is sent, and resume: round trips between processes, whatever the model's size; "
    "of some milliseconds to a tenth of a second each",
    unit="s",
    ratio=True,
)
SYNC_SPLIT = _prior(
    "sync_of_another_split",
    "a weight sync between other numbers of GPUs than the calibrated system's, as a multiple of that",
    1.0,
    0.5,
    2.0,
    "fewer senders gather from fewer and send more each; more engines receive at once, or one after the other",
    ratio=True,
)
OFFLOAD = _prior(
    "offload_on_shared_gpus",
    "what moving states off shared GPUs and back takes, as a share of training, where the calibrated system did not",
    0.1,
    0.0,
    0.5,
    "0: nothing has to make room; above: weights and optimizer states cross a host link twice a step",
)
SHARED = _prior(
    "contention_on_shared_cores",
    "on CPU: how far training and generation slow each other while both run (1: each takes twice as long)",
    0.8,
    0.4,
    1.0,
    "both use every core; what waits for memory or locks leaves some room",
)
MEASURED_SHARED = (
    "from what both need beyond all cores, by the cores in use in the calibrated run less those in use while it only "
    "waited, up to taking turns; the middle, as nothing tells more"
)
# Of the power limit, in each class. The study's colocated run drew 34.6 % on average; an idle H100 about 10 to 15 %.
POWER = {
    "generating": _prior("power_generating", "power while generating", 0.45, 0.3, 0.65, "decoding is bound by memory"),
    "train": _prior("power_train", "power while training", 0.75, 0.55, 0.95, "large matrix products"),
    "logprob": _prior("power_logprob", "power in the logprob forward", 0.65, 0.4, 0.9, "as training, shorter kernels"),
    "weight_sync": _prior("power_weight_sync", "power in a weight sync", 0.2, 0.13, 0.35, "copies"),
    "host": _prior(
        "power_host", "power in reward, advantage, data and handing over", 0.15, 0.1, 0.3, "the GPUs mostly wait"
    ),
    "idle": _prior("power_idle", "power while waiting", 0.15, 0.1, 0.2, "an H100 with a context, nothing running"),
}
STEP = (BEYOND, TRAIN, SYNC, SYNC_START, SYNC_SPLIT, OFFLOAD, SHARED)  # those of a step's time


def priors_of(calibration: Calibration) -> dict[str, Prior]:
    """All by name, for one calibration: shared cores as far as its run showed them."""
    found = {one.name: one for one in (*STEP, *POWER.values())}
    if calibration.contention is not None:
        found[SHARED.name] = replace(SHARED, constant=calibration.contention, reason=MEASURED_SHARED)
    return found
