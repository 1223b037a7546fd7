"""verl's console log (`trainer.logger` has `console`) and its file log (`VERL_FILE_LOGGER_PATH`).

The console prints one line a step, `step:3 - actor/entropy:7.6 - timing_s/step:8.5 - ...`, behind whatever Ray or a
progress bar put before it; older versions round to three decimals, newer ones print all digits and NumPy's names
(`np.float64(5.75)`). The file log has one JSON object a line, `{"step": 3, "data": {...}}`, with the same names.
Read in verl 0.9.1 (`verl/utils/logger/aggregate_logger.py`, `verl/utils/tracking.py`).
"""

import json
import re
from collections.abc import Iterable, Sequence

from results.importing.log_steps import LogStep, without_colour

# Timers inside `timing_s/step` in every version, one after the other on the controller (verl/trainer/ppo/ray_trainer.py
# and v1/trainer_base.py). What else stands under timing_s/ lies inside these (agent_loop/, reshard ...), outside the
# step (testing, stop_profile), or inside or outside by version (save_checkpoint).
PHASES = (
    "gen",
    "reward",
    "old_log_prob",
    "ref",
    "values",
    "adv",
    "update_critic",
    "update_actor",
    "update_weights",
)
_STEP = re.compile(r"(?:^|[\s)\]])step:(?P<step>\d+) - (?P<rest>\S+:\S.*)$")
_PAIR = re.compile(r"^(?P<key>[^:\s][^\s]*?):(?P<value>[^\s].*)$")


def read_steps(lines: Iterable[str]) -> list[LogStep]:
    """The steps of a log, in the order they were printed; of a step printed twice, the figures of both, later first.

    Lines that are no step's are passed over: an empty list says that this is no such log.
    """
    found: dict[int, LogStep] = {}
    for number, raw in enumerate(lines, start=1):
        step = _json_step(raw, number) if raw.lstrip().startswith("{") else _console_step(raw, number)
        if step is None:
            continue
        before = found.get(step.step)
        if before is not None:
            step = LogStep(step=step.step, line=step.line, values={**before.values, **step.values})
        found[step.step] = step
    return [found[step] for step in sorted(found)]


def _console_step(raw: str, number: int) -> LogStep | None:
    match = _STEP.search(without_colour(raw))
    if match is None:
        return None
    pairs = (_PAIR.match(part.strip()) for part in match["rest"].split(" - "))
    values = {pair["key"]: pair["value"].strip() for pair in pairs if pair is not None}
    if not any("/" in key for key in values):
        return None
    return LogStep(step=int(match["step"]), line=number, values=values)


def _json_step(raw: str, number: int) -> LogStep | None:
    try:
        read = json.loads(raw, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict) or not isinstance(read.get("data"), dict):
        return None
    step = str(read.get("step"))
    values = {str(key): value for key, value in read["data"].items() if isinstance(value, str)}
    return LogStep(step=int(step), line=number, values=values) if step.isdecimal() and len(step) < 18 else None


def phases_of(step: LogStep) -> Sequence[tuple[str, float]]:
    """Name and seconds of the step's phases, in verl's order; only those that the log has."""
    named = ((phase, step.value(f"timing_s/{phase}")) for phase in PHASES)
    return [(phase, seconds) for phase, seconds in named if seconds is not None]
