"""What published figures imply of energy without saying it."""

import math
from collections.abc import Mapping

from results.lint import energy_identities
from results.lint.findings import Linted
from results.lint.quantity import Quantity

ONE = Quantity.exact(1.0)


def time_ratio(q: Mapping[str, Quantity]) -> tuple[Quantity, str] | None:
    """Time after / before for the same work, and what says so; None where nothing does."""
    for time in ("step_s", "wall_s"):
        if time in q and f"{time}_baseline" in q:
            return q[time] / q[f"{time}_baseline"], time
    if "time_reduction" in q:
        stated = q["time_reduction"]
        return ONE - (stated.scaled(-1.0) if stated.value < 0 else stated), "time_reduction"
    if "time_change" in q:
        return ONE + q["time_change"], "time_change"
    if "speed_up" in q:
        return ONE / q["speed_up"], "speed_up"
    return None


def implied_energy(linted: Linted, row: str, line: int | None, q: Mapping[str, Quantity], slack: float) -> None:
    """Joules a step, after / before, from power utilisation and time: checked where stated, else said.

    Power utilisation is joules over (limit x GPUs x time): with one limit and as many GPUs, joules a step change as
    power utilisation x time of a step. Needs `power_utilisation`, `power_utilisation_baseline` and a ratio of times.
    """
    if "power_utilisation" not in q or "power_utilisation_baseline" not in q:
        return
    found = time_ratio(q)
    if found is None:
        why = "power utilisations are there, the times of both (or their ratio) are not"
        linted.unchecked("energy_per_step", row, why, line)
        return
    times, _ = found
    if min(times.value, q["power_utilisation"].value, q["power_utilisation_baseline"].value) <= 0:
        linted.unchecked("energy_per_step", row, "a time or a power utilisation is not above 0", line)
        return
    used = q["power_utilisation_baseline"], q["power_utilisation"]
    told = "gpus" in q and "gpus_baseline" in q
    ratio = energy_identities.energy_ratio(used, times, (q["gpus_baseline"], q["gpus"]) if told else None)
    if "joules_per_step" in q and "joules_per_step_baseline" in q:
        stated = q["joules_per_step"] / q["joules_per_step_baseline"]
        linted.check(energy_identities.energy_per_step(stated, ratio, slack=slack), row, line)
        return
    if ratio.low <= 1.0 <= ratio.high:
        return
    if not all(map(math.isfinite, (ratio.value, ratio.low, ratio.high))):
        linted.unchecked("energy_per_step", row, "the rounding leaves the ratio of joules a step open", line)
        return
    linted.implied("energy_per_step", row, _said(used, times, ratio, told), ratio - ONE, unit="ratio", line=line)


def _said(used: tuple[Quantity, Quantity], times: Quantity, ratio: Quantity, gpus_told: bool) -> str:
    more = "more" if ratio.value > 1 else "less"
    low, high = sorted(abs(end - 1.0) for end in (ratio.low, ratio.high))
    text = f"implies {ratio.value - 1:+.1%} joules a step ({low:.1%} to {high:.1%} {more} within the rounding): "
    text += f"power utilisation {used[0].value:.1%} to {used[1].value:.1%} at {times.value:.3f} x the time"
    return text + ("; same power limit assumed" if gpus_told else "; same power limit and number of GPUs assumed")
