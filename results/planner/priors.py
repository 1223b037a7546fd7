"""What no calibration of one run can tell: each assumption with its range and where the range comes from."""

from dataclasses import dataclass

from results.planner.calibration.constants import PRIOR, Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """One named assumption. `constant.at(share)` is its value at a place of its range."""

    name: str
    words: str
    constant: Constant
    reason: str


def _prior(name: str, words: str, value: float, low: float, high: float, reason: str) -> Prior:
    constant = Constant(value=value, low=low, high=high, unit="1", source=PRIOR)
    return Prior(name=name, words=words, constant=constant, reason=reason)


BEYOND = _prior(
    "generation_beyond_seen",
    "how generation slows with more sequences on an engine than were seen",
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
    "a weight sync between other GPUs than were measured, as a multiple of the measured one",
    1.0,
    1 / 6,
    6.0,
    "published syncs of one model differ by up to 6 times with the mechanism (verl's checkpoint engine, 7B)",
)
SHARED = _prior(
    "contention_on_shared_cores",
    "on CPU: how far training and generation slow each other while both run (1: each takes twice as long)",
    0.8,
    0.4,
    1.0,
    "both use every core; what waits for memory or locks leaves some room",
)
# Of the power limit, in each class. The study's colocated run drew 34.6 % on average; an idle H100 about 10 to 15 %.
POWER = {
    "generating": _prior("power_generating", "power while generating", 0.45, 0.3, 0.65, "decoding is bound by memory"),
    "train": _prior("power_train", "power while training", 0.75, 0.55, 0.95, "large matrix products"),
    "logprob": _prior("power_logprob", "power in the logprob forward", 0.65, 0.4, 0.9, "as training, shorter kernels"),
    "weight_sync": _prior("power_weight_sync", "power in a weight sync", 0.2, 0.13, 0.35, "copies"),
    "idle": _prior("power_idle", "power while waiting", 0.15, 0.1, 0.2, "an H100 with a context, nothing running"),
}
