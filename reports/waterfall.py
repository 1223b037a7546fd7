"""The step as a waterfall: where its seconds go, one after the other, and what each of them could win at most."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from reports import style
from reports.markdown import number, percent, seconds, table
from reports.picture import Picture, remove, write_picture
from reports.stairs import Stair, draw
from results.bounds import Bounds, Exposed

STEM = "waterfall"
_LEAST = 0.002  # of a step: smaller classes are gathered
_MOST_SPLITS = 15


_OVERLAPPED = (
    "Splits (train + rollout) of the same GPUs with everything but training overlapped: training scales at best with"
    " its GPUs, and on fewer it is at best as fast as it was. What generation needs on the others is not in it: one"
    " run can't tell."
)
_TURNS = (
    "Splits (train + rollout) of the same GPUs, synchronous as the run was, with nothing else left of the step:"
    " training and the wait for rollout take turns, each scales at best with its GPUs, and on fewer is at best as fast"
    " as it was."
)


def bounds_lines(found: Bounds, foot: str, folder: Path) -> list[str]:
    """Picture and tables of what would help, at most."""
    shown = _shown(found.exposed)
    if not shown:
        remove(STEM, folder)
        return ["No exposed account: the unit that trains has none."]
    picture = _picture(found, shown, foot, folder)
    rows = [
        [style.label(each.name), seconds(each.seconds), percent(each.share), _times(each.speed_up)] for each in shown
    ]
    lines = [
        f"![{picture.text}]({folder.name}/{STEM}.png)",
        "",
        f"*{picture.text}*",
        "",
        *table(["Exposed in a step", "seconds", "share", "speed-up without it, at most"], rows, "l"),
    ]
    lines += ["", *_in_words(found)]
    if found.splits:
        shown_splits = found.splits[:_MOST_SPLITS]
        head = ["Training on", *(f"{split.train}+{split.rollout}" for split in shown_splits)]
        rows = [
            ["speed-up, at most", *(_times(split.speed_up) for split in shown_splits)],
            [
                "no bound: both in proportion to their GPUs"
                if found.turns
                else "no bound: training in proportion to its GPUs",
                *(_times(split.in_proportion) for split in shown_splits),
            ],
        ]
        lines += ["", *table(head, rows)]
        lines += [
            "",
            _TURNS if found.turns else _OVERLAPPED,
        ]
    return [*lines, "", "Bounds, not predictions: what is taken away is assumed to cost nothing elsewhere."]


def _in_words(found: Bounds) -> list[str]:
    """The two questions that are asked most, each with the bound that answers it."""
    said = []
    tail = found.tail
    if tail is not None and tail.speed_up is not None:
        waste = percent(found.tail_waste_share or 0.0)
        said.append(
            f"Removing the tail's waste: at most {_faster(tail.speed_up)}. (The tail is {percent(tail.share)} of the "
            f"window; {waste} of the rollout GPU-seconds are waste inside it.)"
        )
    said += [f"A {each.train}+{each.rollout} split: at most {_faster(each.speed_up)}." for each in found.nearest]
    return [f"- Bound: {each}" for each in said]


def _faster(speed_up: float) -> str:
    """A bound is rounded up: what is said may not be beaten."""
    gain = math.ceil(1000 * (speed_up - 1) - 1e-6) / 10
    return f"{gain:.1f}% faster ({_times(speed_up)})"


def _shown(exposed: Sequence[Exposed]) -> list[Exposed]:
    large = [each for each in exposed if each.share >= _LEAST or each.name == "other"]
    small = [each for each in exposed if each not in large]
    if small:
        share = sum(each.share for each in small)
        large.append(
            Exposed(
                name=", ".join(each.name for each in small),
                seconds=sum(each.seconds for each in small),
                share=share,
                speed_up=1 / (1 - share),
            )
        )
    return large


def _times(value: float | None) -> str:
    return "–" if value is None else f"{number(value)}x"


def _picture(found: Bounds, shown: Sequence[Exposed], foot: str, folder: Path) -> Picture:
    text = f"A step of {style.duration(found.step_s)}, its exposed parts one after the other."
    stairs = [Stair(each.name, each.seconds, each.share, _times(each.speed_up)) for each in shown]
    return write_picture(STEM, text, partial(draw, found.step_s, stairs, foot), folder)
