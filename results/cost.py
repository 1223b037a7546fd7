"""What the work cost: GPU hours at a price, and the energy in them at a price of its own."""

from dataclasses import dataclass

from harness.protocol.spec import Device
from results.metrics import RunFigures
from results.prices import Prices
from results.stats import Estimate
from results.store import RunTables

JOULES_PER_KWH = 3.6e6
PER_TRAJECTORIES = 1_000
PER_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of the steady window per unit of what came out of it; None with `note` where something is unknown.

    GPU hours are those of ALL GPUs of the run, busy or not; `energy_*` is the part of the energy alone (a hired GPU's
    price contains it: the two are not added). Good: trained on within the staleness bound.
    What did not end well was not trained on, also where it kept its place in a batch.
    """

    per_step: Estimate
    per_trajectories: float | None  # per 1,000 trajectories trained on
    per_good_trajectories: float | None
    per_tokens: Estimate  # per million generated tokens
    per_trained_tokens: Estimate  # per million that the loss masks of the trajectories trained on have
    per_good_tokens: Estimate
    energy_per_step: float | None
    energy_per_trajectories: float | None
    energy_per_tokens: float | None
    energy_per_trained_tokens: float | None
    energy_per_good_tokens: float | None
    note: str | None


def cost(run: RunTables, figures: RunFigures, prices: Prices) -> Cost:
    """The run's cost at these prices: rates of the window turned over, their intervals with them."""
    window, rates = figures.window, figures.throughput
    none = Estimate(value=None, n=0)
    if run.spec.device is not Device.CUDA or window is None or rates is None:
        why = "no GPU: there is no GPU hour" if run.spec.device is not Device.CUDA else figures.no_window
        return Cost(
            per_step=none,
            per_trajectories=None,
            per_good_trajectories=None,
            per_tokens=none,
            per_trained_tokens=none,
            per_good_tokens=none,
            energy_per_step=None,
            energy_per_trajectories=None,
            energy_per_tokens=None,
            energy_per_trained_tokens=None,
            energy_per_good_tokens=None,
            note=why or "no steady window",
        )
    trained = int(rates.trajectory_ledger.trained)
    second = None if prices.gpu_hour is None else prices.gpu_hour / 3600  # of one GPU
    gpu_seconds = run.spec.total_gpus * window.seconds
    whole = None if second is None else second * gpu_seconds
    joules = figures.energy.joules if figures.energy is not None else None
    power = None if joules is None or prices.kwh is None else joules / JOULES_PER_KWH * prices.kwh
    step_time = figures.figures["step_time_s"]
    per_second = None if second is None else second * run.spec.total_gpus
    return Cost(
        per_step=none
        if per_second is None or step_time.value is None
        else Estimate(
            value=step_time.value * per_second,
            n=window.steps,
            ci_low=_times(step_time.ci_low, per_second),
            ci_high=_times(step_time.ci_high, per_second),
        ),
        per_trajectories=_per(whole, trained, PER_TRAJECTORIES),
        per_good_trajectories=_per(whole, rates.good_trajectories, PER_TRAJECTORIES),
        per_tokens=_turned(rates.tokens, second),
        per_trained_tokens=_turned(rates.trained, second),
        per_good_tokens=_turned(rates.goodput, second),
        energy_per_step=_per(power, window.steps, 1),
        energy_per_trajectories=_per(power, trained, PER_TRAJECTORIES),
        energy_per_tokens=_per(power, _tokens(rates.tokens, gpu_seconds), PER_TOKENS),
        energy_per_trained_tokens=_per(power, _tokens(rates.trained, gpu_seconds), PER_TOKENS),
        energy_per_good_tokens=_per(power, _tokens(rates.goodput, gpu_seconds), PER_TOKENS),
        note=None,
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _per(amount: float | None, count: float | None, unit: int) -> float | None:
    return None if amount is None or not count else amount / count * unit


def _tokens(rate: Estimate, gpu_seconds: float) -> float | None:
    """Tokens of the window, from tokens / s / GPU."""
    return None if rate.value is None else rate.value * gpu_seconds


def _turned(rate: Estimate, second: float | None) -> Estimate:
    """Cost of a million tokens from tokens / s / GPU: the ends of the interval change places."""
    if second is None or not rate.value:
        return Estimate(value=None, n=rate.n)

    def turn(value: float | None) -> float | None:
        return second * PER_TOKENS / value if value else None

    return Estimate(
        value=turn(rate.value),
        n=rate.n,
        ci_low=turn(rate.ci_high),
        ci_high=turn(rate.ci_low),
        low=turn(rate.high),
        high=turn(rate.low),
        effective_n=rate.effective_n,
    )
