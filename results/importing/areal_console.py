"""AReaL's console log: a line `Train step 3/10 done.` with its time, then the step's figures in a drawn table.

Read in AReaL 1.0.4 (`areal/utils/stats_logger.py`, `areal/utils/printing.py`): figures have five digits (`8.3745e-03`).
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from results.importing.log_steps import LogStep, without_colour

# Timers of PPOTrainer.train that follow each other on the controller (areal/trainer/rl_trainer.py); the others under
# timeperf/ (pause, offload, onload ...) lie inside these or beside them.
PHASES = (
    "rollout",
    "critic_values",
    "recompute_logp",
    "ref_logp",
    "teacher_logp",
    "compute_advantage",
    "train_step",
    "critic_train_step",
    "update_weights",
    "save",
    "checkpoint_for_recover",
    "eval",
    "clear_batches",
)
_DONE = re.compile(r"Train step (?P<step>\d+)/\d+ done\.")
_AT = re.compile(r"\b\d{8}-\d\d:\d\d:\d\d(?:\.\d+)?")


def read_steps(lines: Iterable[str]) -> list[LogStep]:
    """The steps of a log, in the order they were printed; an empty list says that this is no such log.

    `wall_s` is the time of the line (taken as UTC: only differences are used), to a millisecond.
    """
    found: list[LogStep] = []
    values: dict[str, str] = {}
    head: tuple[int, int, float | None] | None = None
    for number, raw in enumerate(lines, start=1):
        line = without_colour(raw)
        if match := _DONE.search(line):
            _close(found, head, values)
            head, values = (int(match["step"]), number, _seconds(_AT.search(line))), {}
        elif head is not None and line.startswith("│"):
            cells = [cell.strip() for cell in line.strip().strip("│").split("│")]
            values.update({key: value for key, value in zip(cells[::2], cells[1::2], strict=False) if key and value})
    _close(found, head, values)
    return found


def _close(found: list[LogStep], head: tuple[int, int, float | None] | None, values: dict[str, str]) -> None:
    if head is not None:
        found.append(LogStep(step=head[0], line=head[1], values=values, wall_s=head[2]))


def _seconds(match: "re.Match[str] | None") -> float | None:
    if match is None:
        return None
    try:
        form = "%Y%m%d-%H:%M:%S.%f" if "." in match[0] else "%Y%m%d-%H:%M:%S"
        return datetime.strptime(match[0], form).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
