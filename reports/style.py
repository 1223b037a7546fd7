"""How pictures look, and how they are written: one palette, one type scale, the same bytes for the same input.

matplotlib is imported by what draws, when it does: pictures may be drawn by another process than the one that asks.

Colours are Paul Tol's "bright" and "muted" schemes (Tol 2021, SRON/EPS/TN/09-002), which stay apart under the common
colour-vision deficiencies. Idle time is grey and hatched, so that it also reads without colour.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from harness.protocol.unfinished import made_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

INK = "#222222"
SOFT = "#6B6B6B"
RULE = "#D9D9D9"
ACCENT = "#AA3377"
WIDTH = 10.0  # inches: a blog column at 2x
DPI = 160

_IDLE = "#E4E4E4"
_UNKNOWN = "#FFFFFF"

# Colour of every phase and account class; what has no entry is drawn as `other`.
COLOURS: Mapping[str, str] = {
    "generation": "#4477AA",
    "generating": "#4477AA",
    "tool": "#DDCC77",
    "tool_wait": "#DDCC77",
    "agent": "#88CCEE",
    "queued": "#BBCCEE",
    "train": "#228833",
    "logprob": "#66C2A5",
    "advantage": "#999933",
    "reward": "#EE8866",
    "host": "#999933",
    "data": "#CFCF84",
    "overhead": "#777777",
    "weight_sync": "#AA3377",
    "offload": "#CC6677",
    "wake": "#CC6677",
    "checkpoint": "#882255",
    "eval": "#882255",
    "wait_rollout": _IDLE,
    "wait_train": _IDLE,
    "poll": _IDLE,
    "empty": "#F2F2F2",
    "down": "#444444",
    "other": _UNKNOWN,
}
HATCHES: Mapping[str, str] = {
    "wait_rollout": "////",
    "wait_train": "\\\\\\\\",
    "poll": "....",
    "empty": "....",
    "other": "xxxx",
}
LABELS: Mapping[str, str] = {
    "generation": "generation (inference + tools)",
    "tool_wait": "waiting for tools",
    "wait_rollout": "waiting for rollout",
    "wait_train": "waiting for training",
    "weight_sync": "weight sync",
    "logprob": "logprob forward",
    "other": "other (nothing recorded)",
}

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same letters on every machine
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "hatch.linewidth": 0.6,
    "hatch.color": "#8A8A8A",
    "text.parse_math": False,  # a `$` in a name is a `$`
    "svg.hashsalt": "agentic-rl-bench",
    "svg.fonttype": "path",
    "path.simplify": True,
}


@contextmanager
def styled() -> Iterator[None]:
    """The project's matplotlib settings, for drawing and for saving; the caller's are left as they were."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast(Any, _RC))
        yield


def colour(name: str) -> str:
    """Fill of a phase or account class."""
    return COLOURS.get(name, _UNKNOWN)


def hatch(name: str) -> str:
    """Hatch of a phase or account class: idle and unnamed time have one."""
    return HATCHES.get(name, "" if name in COLOURS else "xxxx")


def label(name: str) -> str:
    """What a legend calls a phase or account class."""
    return LABELS.get(name, name.replace("_", " "))


def duration(value: float) -> str:
    """Seconds as a picture shows them: two digits below 10 s, milliseconds below a tenth."""
    if abs(value) >= 10:
        return f"{value:.0f} s"
    if abs(value) >= 1:
        return f"{value:.1f} s"
    if abs(value) >= 0.1:
        return f"{value:.2f} s"
    return f"{1e3 * value:.2g} ms" if value else "0 s"


def bare(axes: "Axes", *, keep: tuple[str, ...] = ("bottom",)) -> None:
    """Removes the frame but for the named sides."""
    for side in ("left", "right", "top", "bottom"):
        axes.spines[side].set_visible(side in keep)


def boxes(lefts: Floats, rights: Floats, middles: Floats, height: float) -> list[Floats]:
    """The corners of bars at these heights, as a collection takes them: one artist, however many bars there are."""
    low, high = middles - height / 2, middles + height / 2
    corners = [np.stack(corner, axis=1) for corner in ((lefts, low), (lefts, high), (rights, high), (rights, low))]
    return list(np.stack(corners, axis=1))


def light_on(fill: str) -> bool:
    """Whether text on this fill should be white (relative luminance, ITU-R BT.709)."""
    red, green, blue = (int(fill[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.55


def shorten(text: str, limit: int) -> str:
    """Text of at most `limit` characters; what is cut out of the middle is marked."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2 + (limit - 1) % 2
    tail = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - tail :] if tail else ''}"


def figure(height: float, *, width: float = WIDTH) -> "Figure":
    """An empty figure of that size in inches; it belongs to no window system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height))
    FigureCanvasAgg(made)
    return made


def head(made: "Figure", title: str, subtitle: str, foot: str) -> tuple[float, float]:
    """Writes what is seen (title), how to read it (subtitle) and where it comes from (foot).

    Returns:
        Bottom and top of the room left for axes, as fractions of the figure's height.
    """
    height = float(made.get_size_inches()[1])
    points = 72 * 0.955 * float(made.get_size_inches()[0])
    titles = _wrap(title, 15, points, "bold")
    subs = _wrap(subtitle, 10.5, points)
    feet = _wrap(foot, 8.5, points)
    at = height - 0.18
    for line in titles:
        made.text(0.02, at / height, line, fontsize=15, fontweight="bold", va="top", ha="left")
        at -= 0.29
    at -= 0.02
    for line in subs:
        made.text(0.02, at / height, line, fontsize=10.5, color=SOFT, va="top", ha="left")
        at -= 0.21
    low = 0.12
    for line in reversed(feet):
        made.text(0.02, low / height, line, fontsize=8.5, color=SOFT, va="bottom", ha="left")
        low += 0.165
    return (low + 0.05) / height, (at - 0.08) / height


def save(made: "Figure", stem: Path) -> list[Path]:
    """Writes `<stem>.png` and `<stem>.svg`, each whole or not at all.

    They have no dates or program names in them, so that the bytes follow from the input.

    Raises:
        OSError: the folder cannot be written.
    """
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    with made_whole(png) as temporary:
        made.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})
    with made_whole(svg) as temporary:
        made.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
    return [png, svg]


def breadth(text: str, size: float, weight: str = "normal") -> float:
    """Width of a text in points, as it will be drawn (the sum of its letters' advances: kerning is ignored)."""
    return size * sum(_advance(letter, weight) for letter in text)


@lru_cache(maxsize=4096)
def _advance(letter: str, weight: str) -> float:
    """How far one letter moves the pen, in em."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties(family="DejaVu Sans", weight=weight)))
    font.set_size(100, 72)
    return float(font.load_char(ord(letter)).linearHoriAdvance) / 65_536 / 100


def fit(text: str, size: float, points: float) -> str:
    """The text, shortened in its middle until it is at most that many points wide."""
    limit = len(text)
    while limit > 1 and breadth(shorten(text, limit), size) > points:
        limit = min(limit - 1, int(limit * max(points / breadth(shorten(text, limit), size), 0.5)) + 1)
    return shorten(text, limit)


def _wrap(text: str, size: float, points: float, weight: str = "normal", most: int = 4) -> list[str]:
    """Lines at most that many points wide, and at most `most` of them; what does not fit is marked as cut."""
    lines: list[str] = []
    for word in text.split():
        short = fit(word, size * (1.08 if weight == "bold" else 1.0), points * 0.9)
        if lines and breadth(f"{lines[-1]} {short}", size, weight) <= points:
            lines[-1] += " " + short
        elif len(lines) == most:
            lines[-1] = lines[-1][:-1] + "…"
            break
        else:
            lines.append(short)
    return lines
