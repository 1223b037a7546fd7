"""A sweep file: which runs are asked for, as one mapping of keys per cell, before any default is filled in."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.base import adapter_names
from harness.protocol.errors import SpecError
from harness.specs.request import KEYS, decode, read_toml, suggest

TABLES = ("common", "matrix", "include", "exclude", "repeats", "shuffle")
MOST_CELLS = 1000  # more is a slip of the pen: at a minute a run, it is most of a day


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepConfig:
    """What a sweep file asks for. `asked` has one mapping per cell, in the file's order.

    `overrides` is per framework: dotted key -> verbatim value. `axes` are the keys that have more than one value.
    `repeats` and `shuffle` are None where the file leaves them open; `shuffle` False: the file's own order.
    """

    source: str
    asked: tuple[Mapping[str, object], ...]
    axes: tuple[str, ...]
    overrides: Mapping[str, Mapping[str, str]]
    repeats: int | None = None
    shuffle: int | bool | None = None


def read_config(path: Path) -> SweepConfig:
    """Reads a sweep file and multiplies its matrix out.

    Raises:
        SpecError: unreadable; an unknown key or a value of the wrong type, wherever it stands; a cell without a
            framework or placement; an exclude that excludes nothing; no cell left, or more than MOST_CELLS.
    """
    raw, overrides = read_toml(path)
    for name in raw:
        if name not in TABLES:
            where = "; keys of a run stand in [common] or [matrix]" if name in KEYS else suggest(name, TABLES)
            raise SpecError(f"{name} in {path}: unknown in a sweep file{where}")
    common = _scalars(_table(raw, "common", path), f"[common] in {path}")
    matrix = _axes(_table(raw, "matrix", path), f"[matrix] in {path}")
    asked = [{**common, **cell} for cell in _product(matrix)] if matrix else []
    for number, entry in enumerate(_tables(raw, "include", path), start=1):
        where = f"[[include]] {number} in {path}"
        asked += [{**common, **cell} for cell in _product(_axes(entry, where))]
    for number, entry in enumerate(_tables(raw, "exclude", path), start=1):
        asked = _without(asked, _axes(entry, f"[[exclude]] {number} in {path}"), f"[[exclude]] {number} in {path}")
    if not asked:
        raise SpecError(f"{path}: asks for no run; give lists in [matrix], e.g. placement = ['colocated', 'async']")
    if len(asked) > MOST_CELLS:
        raise SpecError(f"{path}: asks for {len(asked):,} cells; allowed are at most {MOST_CELLS:,}")
    for cell in asked:
        _check_names(cell, path)
    return SweepConfig(
        source=str(path),
        asked=tuple(asked),
        axes=_varying(asked),
        overrides=overrides,
        repeats=_repeats(raw.get("repeats"), path),
        shuffle=_shuffle(raw.get("shuffle"), path),
    )


def _table(raw: Mapping[str, Any], name: str, path: Path) -> Mapping[str, object]:
    value = raw.get(name, {})
    if not isinstance(value, dict):
        raise SpecError(f"{name} = {value!r} in {path}: allowed is a table, [{name}]")
    return value


def _tables(raw: Mapping[str, Any], name: str, path: Path) -> Sequence[Mapping[str, object]]:
    value = raw.get(name, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) and entry for entry in value):
        raise SpecError(f"{name} = {value!r} in {path}: allowed are tables with keys of a run, [[{name}]]")
    return value


def _scalars(table: Mapping[str, object], where: str) -> dict[str, object]:
    for key, value in table.items():
        if isinstance(value, list) and key != "faults":
            raise SpecError(f"{key} = {value!r} in {where}: allowed is one value; a list of values stands in [matrix]")
    decode(table, where)
    return dict(table)


def _axes(table: Mapping[str, object], where: str) -> dict[str, list[object]]:
    """Every key with its values, a single value as a list of one; each value is checked for its type."""
    axes: dict[str, list[object]] = {}
    for key, value in table.items():
        # `faults` is a list itself: only a list of lists is several values of it.
        several = isinstance(value, list) and (key != "faults" or any(isinstance(each, list) for each in value))
        values: list[object] = list(value) if several and isinstance(value, list) else [value]
        if not values:
            raise SpecError(f"{key} = [] in {where}: allowed is a list with at least one value")
        for each in values:
            decode({key: each}, where)
        axes[key] = values
    return axes


def _product(axes: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _without(
    asked: Sequence[dict[str, object]], excluded: Mapping[str, Sequence[object]], where: str
) -> list[dict[str, object]]:
    """The cells that differ from the exclude in at least one of its keys; values are compared as typed ones."""
    wanted = {key: [_typed(key, value) for value in values] for key, values in excluded.items()}
    kept = [
        cell
        for cell in asked
        if not all(key in cell and _typed(key, cell[key]) in values for key, values in wanted.items())
    ]
    if len(kept) == len(asked):
        raise SpecError(f"{where}: excludes nothing; its values must be those of [matrix], [common] or [[include]]")
    return kept


def _typed(key: str, value: object) -> object:
    return getattr(decode({key: value}, "the sweep file"), key)


def _check_names(cell: Mapping[str, object], path: Path) -> None:
    """A cell without a name for its row, or with a name nobody has, is a slip of the whole file, not of the cell."""
    for key, example in (("framework", "['skyrl']"), ("placement", "['colocated', 'async']")):
        if key not in cell:
            raise SpecError(f"{key} is not given for every cell of {path}: e.g. [matrix] {key} = {example}")
    names = adapter_names()
    if cell["framework"] not in names:
        raise SpecError(f"framework = {cell['framework']!r} in {path}: unknown{suggest(str(cell['framework']), names)}")


def _varying(asked: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    keys = dict.fromkeys(key for cell in asked for key in cell)
    return tuple(key for key in keys if len({repr(cell.get(key)) for cell in asked}) > 1)


def _repeats(value: object, path: Path) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise SpecError(f"repeats = {value!r} in {path}: allowed is a whole number of at least 1")


def _shuffle(value: object, path: Path) -> int | bool | None:
    if value is None or value is False:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise SpecError(f"shuffle = {value!r} in {path}: allowed is a seed (a whole number), or false")
