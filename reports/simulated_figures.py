"""The pictures of what `bench simulate` found: a quantity against the first axis of numbers, a line per setting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from reports import style
from reports.simulated_rows import middle, together

Row = Mapping[str, Any]
COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#AA3377", "#66CCEE")
MARKERS = ("o", "s", "^", "D")  # each colour in turn has each
NAMED = len(COLOURS) * len(MARKERS)
FOOT = "Simulated in virtual time by bench: nothing was measured."


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One figure: its file's name, the rows' column, words, and how its values are scaled."""

    name: str
    column: str
    title: str
    axis: str
    theory: str = ""  # none
    scale: float = 1.0
    leaves_out_zeros: bool = False


QUANTITIES = (
    Quantity(
        name="updates_per_hour",
        column="updates_per_hour",
        title="Updates per hour",
        axis="updates per hour",
        theory="updates_per_hour_theory",
    ),
    Quantity(
        name="worker_busy",
        column="worker_busy_ratio",
        title="Share of the workers' time with a trajectory",
        axis="workers busy, %",
        scale=100.0,
    ),
    Quantity(
        name="staleness",
        column="staleness_at_start",
        title="Mean staleness of what is trained on",
        axis="versions behind, at start",
        leaves_out_zeros=True,
    ),
)


@dataclass(slots=True)
class Line:
    """Groups of rows of one setting, by x; `flat`: those that have none, as the axis means nothing to them."""

    at: list[tuple[float, list[Row]]] = field(default_factory=list)
    unset: list[Row] = field(default_factory=list)  # the axis is known to it, and not set: no bound, say
    flat: list[Row] = field(default_factory=list)

    def some(self, column: str) -> bool:
        """Whether a row has more than 0 in a column."""
        rows = [*self.unset, *self.flat, *(row for _, group in self.at for row in group)]
        return any(row.get(column) for row in rows)


def draw_all(rows: Sequence[Row], axes: Sequence[str], folder: Path) -> list[Path]:
    """Every figure, as SVG and PNG, into `folder`; none without an axis of numbers, or where nothing is known.

    Raises:
        OSError: it cannot be written.
    """
    across = across_of(rows, axes)
    if across is None:
        return []
    paths = []
    for quantity in QUANTITIES:
        if any(row.get(quantity.column) for row in rows):
            paths += _draw(rows, axes, across, quantity, folder / quantity.name)
    return paths


def across_of(rows: Sequence[Row], axes: Sequence[str]) -> str | None:
    """The first axis of numbers with more than one value (unset is one); None where there is none."""
    for name in axes:
        values = {row.get(name) for row in rows}
        known = values - {None}
        if len(values) > 1 and known and all(_is_number(value) for value in known):
            return name
    return None


def lines_of(rows: Sequence[Row], axes: Sequence[str], across: str) -> dict[str, Line]:
    """The lines by their labels, in the rows' order."""
    lines: dict[str, Line] = {}
    for group in together(rows, axes):
        line = lines.setdefault(label_of(group[0], axes, across), Line())
        value = group[0].get(across)
        if value is not None:
            line.at.append((value, group))
        else:
            line.unset += group
    for line in lines.values():
        line.at.sort(key=lambda one: one[0])
        if not line.at:
            line.flat, line.unset = line.unset, []
    return lines


def label_of(row: Row, axes: Sequence[str], across: str) -> str:
    """What a line is called: its policy, without what the axes say, and the values on the other axes."""
    names = {name.removeprefix("policy.") for name in axes}
    told = {
        "max_staleness ": {"max_staleness", "bound"},
        "unbounded": {"max_staleness"},
        "in flight": {"in_flight"},
        "over-sampling": {"over_sampling"},
        "colocated": {"colocated"},
    }
    parts = [
        part
        for part in str(row["policy"]).split(", ")
        if not any(part.startswith(begin) and own & names for begin, own in told.items())
    ]
    others = [name for name in axes if name not in (across, "mode", "policy.mode") and row.get(name) is not None]
    return ", ".join([*parts, *(f"{name} {row[name]}" for name in others)])


def _draw(rows: Sequence[Row], axes: Sequence[str], across: str, quantity: Quantity, stem: Path) -> list[Path]:
    lines, zeros = lines_of(rows, axes, across), 0
    if quantity.leaves_out_zeros:
        known = {label: line for label, line in lines.items() if line.some(quantity.column)}
        lines, zeros = known, len(lines) - len(known)
    numbers = [value for line in lines.values() for value, _ in line.at]
    low_x, high_x = min(numbers), max(numbers)
    # What is not set has a tick of its own, beyond the last number.
    beyond = high_x + (max((high_x - low_x) * 0.12, 0.6) if high_x > low_x else 1.0)
    columns = 2 if max(map(len, lines)) < 60 else 1
    tall = -(-min(len(lines), NAMED) // columns) * 0.2 + 0.15
    hollow = any(row["unstable"] for row in rows)
    words = ["Bands: the middle 95 % of seeds, where there are several."]
    theories = [row.get(quantity.theory) for line in lines.values() for _, group in line.at for row in group]
    if any(value is not None for value in theories):
        words.insert(0, "Dashed: the long run, by closed form.")
    if hollow:
        words.append("Hollow: unstable, finished work piles up without end.")
    if any(line.flat for line in lines.values()):
        words.append(f"Level lines: {across} means nothing to them.")
    if zeros:
        words.append(f"Not drawn: {zeros} where it is always 0.")
    if len(lines) > NAMED:
        words.append(f"Grey: {len(lines) - NAMED} more lines; rows.parquet has them.")
    with style.styled():
        made = style.figure(4.9 + tall)
        low, high = style.head(made, f"{quantity.title} against {across}", " ".join(words), FOOT)
        below = (tall + 0.62) / (4.9 + tall)
        axis = made.add_axes((0.08, low + below, 0.9, high - low - below - 0.03))
        for place, (label, line) in enumerate(lines.items()):
            named = place < NAMED
            look = {
                "color": COLOURS[place % len(COLOURS)] if named else style.RULE,
                "marker": MARKERS[place // len(COLOURS)] if named else "",
                "label": label if named else "_",
            }
            _one(axis, line, quantity, look, beyond)
        if any(line.unset for line in lines.values()):
            ticks = sorted(set(numbers)) if len(set(numbers)) <= 12 else [low_x, high_x]
            axis.set_xticks([*ticks, beyond], [*(f"{tick:g}" for tick in ticks), "none"])
        style.bare(axis, keep=("bottom", "left"))
        axis.set_ylim(bottom=0)
        axis.set_xlabel(across)
        axis.set_ylabel(quantity.axis)
        axis.legend(
            frameon=False, fontsize=9, ncols=columns, loc="upper left", bbox_to_anchor=(0, -0.62 / (4.9 * 0.66)),
            borderaxespad=0,
        )  # fmt: skip
        return style.save(made, stem)


def _one(axis: Axes, line: Line, quantity: Quantity, look: dict[str, Any], beyond: float) -> None:
    colour = look["color"]
    if line.flat:
        found = _spread(line.flat, quantity)
        if found is not None:
            axis.axhline(found[0], color=colour, label=look["label"], lw=1.6, ls="-.")
            axis.axhspan(found[1], found[2], color=colour, alpha=0.1, lw=0)
        return
    groups = [(x, group, found) for x, group in line.at if (found := _spread(group, quantity)) is not None]
    means = [found[0] for _, _, found in groups]
    at = [x for x, _, _ in groups]
    fills = ["white" if any(row["unstable"] for row in group) else colour for _, group, _ in groups]
    axis.plot(at, means, color=colour, lw=1.6 if look["marker"] else 1.0, zorder=2)
    # The legend's entry is a point without a place, so that it is there whatever the first point is.
    axis.plot([], [], color=colour, marker=look["marker"], ms=4, label=look["label"])
    if look["marker"]:
        axis.scatter(at, means, c=fills, edgecolors=colour, marker=look["marker"], s=18, linewidths=1.1, zorder=3)
    if max((len(group) for _, group, _ in groups), default=0) > 1:
        lows, highs = [found[1] for _, _, found in groups], [found[2] for _, _, found in groups]
        axis.fill_between(at, lows, highs, color=colour, alpha=0.15, lw=0)
    if quantity.theory:
        theory = [(x, value) for x, group, _ in groups if (value := group[0].get(quantity.theory)) is not None]
        if len(theory) == len(groups):
            axis.plot(*zip(*theory, strict=True), color=colour, ls="--", lw=1, zorder=2)
    found = _spread(line.unset, quantity) if line.unset else None
    if found is not None:
        fill = "white" if any(row["unstable"] for row in line.unset) else colour
        axis.errorbar(
            [beyond], [found[0]], yerr=[[found[0] - found[1]], [found[2] - found[0]]], color=colour,
            marker=look["marker"] or "o", ms=5, mfc=fill, lw=1, capsize=2, zorder=3,
        )  # fmt: skip


def _spread(group: Sequence[Row], quantity: Quantity) -> tuple[float, float, float] | None:
    values = [quantity.scale * row[quantity.column] for row in group if row.get(quantity.column) is not None]
    if not values:
        return None
    mean, low, high = middle(values)
    return mean, min(low, mean), max(high, mean)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
