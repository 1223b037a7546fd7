"""The names of the identities, and one of them with figures put in."""

from collections.abc import Mapping
from dataclasses import dataclass

from results.lint.quantity import MACHINE, Quantity

EQUAL, AT_MOST, LESS, AT_LEAST = "=", "<=", "<", ">="

IDENTITIES: Mapping[str, str] = {
    "tokens_rate": "tokens = tokens per second and GPU x all GPUs x seconds",
    "rate_per_gpu": "tokens per second = tokens per second and GPU x all GPUs",
    "leaves_within_wall": "the exposed leaves of a unit sum to no more than its wall time",
    "phases_within_step": "the phases of a step sum to no more than the step",
    "share_in_unit": "an idle, busy or other share lies between 0 and 1",
    "shares_within_one": "shares of one whole sum to no more than 1",
    "share_of_whole": "a share = its part / the whole",
    "mfu_below_one": "MFU is below 1",
    "flops_below_peak": "FLOP/s per GPU are below the dense peak of the GPU named",
    "mfu_of_flops": "MFU = FLOP/s per GPU / the dense peak of the GPU named",
    "power_within_limit": "mean power over a window is at most 1.02 x the power limit",
    "power_utilisation": "power utilisation = mean power / power limit",
    "energy_is_power": "joules = mean watts per GPU x GPUs x seconds",
    "energy_per_step": "joules a step change as power utilisation x time of a step x GPUs does",
    "speed_up": "a speed-up = time before / time after",
    "time_reduction": "a reduction = 1 - time after / time before",
    "difference": "a stated difference = after - before",
    "staleness_within_bound": "staleness is at most its bound",
    "start_before_end": "what starts ends no earlier",
    "ledger_closes": "open at start + added = trained + dropped + failed + in flight + queued",
    "ordered": "minimum, quantiles and maximum are in order, and a mean lies between the ends",
    "count_not_negative": "a count is not negative",
    "counts_agree": "one thing counted twice is one number",
    "gpu_hours": "GPU-hours = GPUs x hours",
    "steps_time": "a window of steps = steps x mean time of a step",
    "counter_grows": "a counter does not fall",
    "hidden_within_busy": "rollout time hidden behind training is at most the time that training was busy",
    "not_blank": "a reading is not the number by which a sensor says that it has none",
    "used_once": "a trajectory is trained on once",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One identity with the figures put in. `slack`: a relative difference that is let pass beside the rounding."""

    identity: str
    direction: str  # = | <= | < | >=
    left: Quantity
    right: Quantity
    left_words: str
    right_words: str
    unit: str = ""
    slack: float = 0.0
    hint: str = ""  # what often explains such a difference
    machine: float = MACHINE  # relative difference that arithmetic leaves; 0 where both sides are as they were read

    @property
    def tolerance(self) -> float:
        """By how much rounding and slack may have set the two sides apart, in the direction in which they are."""
        one, two = (self.left, self.right) if self.left.value > self.right.value else (self.right, self.left)
        return (one.value - one.low) + (two.high - two.value) + self._slack

    @property
    def _slack(self) -> float:
        size = max(abs(self.left.value), abs(self.right.value))
        return (self.machine + self.slack) * size if size < float("inf") else 0.0

    @property
    def holds(self) -> bool:
        """Whether values within the roundings keep the identity. True where a side could be anything."""
        left, right, slack = self.left, self.right, self._slack
        if self.direction == EQUAL:
            return left.low <= right.high + slack and right.low <= left.high + slack
        if self.direction == AT_LEAST:
            return left.high >= right.low - slack
        if self.direction == LESS:
            return left.low < right.high
        return left.low <= right.high + slack
