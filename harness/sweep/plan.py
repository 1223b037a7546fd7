"""The plan of a sweep: its cells resolved, and the order in which they run; the same request gives the same plan."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.protocol.errors import SpecError
from harness.protocol.spec import WORK_FIELDS, RunSpec
from harness.specs import Machine, resolve
from harness.sweep.config import SweepConfig

FORMAT = 1
SHUFFLE_SEED = 1
# Varied on purpose: runs that differ in it are the replicates of one cell of the report.
POOLED = "seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One row of the plan. `spec` is None when the request itself is impossible, and `refused` says why."""

    number: int
    label: str  # framework, placement and what else varies
    asked: Mapping[str, object]
    spec: RunSpec | None
    refused: str | None = None

    @property
    def framework(self) -> str:
        """As asked."""
        return str(self.asked["framework"])

    @property
    def placement(self) -> str:
        """As asked."""
        return str(self.asked["placement"])

    @property
    def key(self) -> str:
        """Names the cell by everything it is, steps and limits included (12 hex digits)."""
        return _digest(self.spec.to_json() if self.spec else json.dumps(self.asked, sort_keys=True, default=str))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run to be made: the place in the order (from 1), the round it is in (from 1), and the cell."""

    number: int
    round: int
    cell: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Cells and order. `shuffle` is the seed of the order, None when it is the file's own."""

    cells: tuple[Cell, ...]
    entries: tuple[Entry, ...]
    repeats: int
    shuffle: int | None
    notes: tuple[str, ...] = field(default=())

    @property
    def digest(self) -> str:
        """Names the plan (12 hex digits): equal for the same cells, repeats and order."""
        cells = [cell.key for cell in self.cells]
        order = [[entry.round, entry.cell] for entry in self.entries]
        return _digest(json.dumps([FORMAT, cells, order]))

    def to_json(self, **more: object) -> str:
        """The plan as indented JSON; `more` stands beside it and is not part of the digest."""
        cells = [
            {
                "number": cell.number,
                "label": cell.label,
                "key": cell.key,
                "asked": cell.asked,
                "spec_digest": cell.spec and cell.spec.spec_digest,
                "work_digest": cell.spec and cell.spec.work_digest,
                "refused": cell.refused,
                "spec": cell.spec and json.loads(cell.spec.to_json()),
            }
            for cell in self.cells
        ]
        whole = {
            "format": FORMAT,
            "digest": self.digest,
            **more,
            "repeats": self.repeats,
            "shuffle": self.shuffle,
            "notes": list(self.notes),
            "cells": cells,
            "order": [asdict(entry) for entry in self.entries],
        }
        return json.dumps(whole, indent=2, default=str) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The plan that `to_json` wrote.

        Raises:
            SpecError: not JSON, of another format, or changed since: its digest is not the plan's.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            if raw["format"] != FORMAT:
                raise SpecError(f"format {raw['format']}: this version of bench reads format {FORMAT}")
            cells = tuple(
                Cell(
                    number=cell["number"],
                    label=cell["label"],
                    asked=cell["asked"],
                    spec=None if cell["spec"] is None else RunSpec.from_json(json.dumps(cell["spec"])),
                    refused=cell["refused"],
                )
                for cell in raw["cells"]
            )
            entries = tuple(Entry(**entry) for entry in raw["order"])
            plan = cls(
                cells=cells, entries=entries, repeats=raw["repeats"], shuffle=raw["shuffle"], notes=tuple(raw["notes"])
            )
            if any(entry.cell >= len(cells) for entry in entries) or plan.digest != raw["digest"]:
                raise SpecError("its digest is not that of its cells and order: it was changed since it was made")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SpecError(f"cannot be read: {error}") from None
        return plan


def make_plan(
    config: SweepConfig,
    *,
    repeats: int | None = None,
    shuffle: int | bool | None = None,
    machine: Machine | None = None,
) -> Plan:
    """Resolves every cell and lays out the rounds: each round runs every cell once, in an order of its own.

    Args:
        config: the file.
        repeats: rounds; wins over the file, 1 where neither says.
        shuffle: seed of the order, or False for the file's order; wins over the file, SHUFFLE_SEED where neither says.
        machine: for defaults that depend on it; probed where needed when None.

    Raises:
        SpecError: no cell can run (names the reasons), or cells would be offered different work (names the fields).
    """
    rounds = repeats if repeats is not None else config.repeats or 1
    if rounds < 1:
        raise SpecError(f"repeats = {rounds}: allowed is a whole number of at least 1")
    seed = shuffle if shuffle is not None else config.shuffle
    order_seed = None if seed is False else SHUFFLE_SEED if seed is None or seed is True else seed
    cells: list[Cell] = []
    notes: list[str] = []
    for asked in config.asked:
        cell, said = _cell(len(cells), asked, config, machine)
        notes += said
        twin = next((each for each in cells if each.key == cell.key), None)
        if twin is not None:
            notes.append(f"{cell.label}: asked for twice, runs once")
            continue
        cells.append(cell)
    _check(cells)
    return Plan(
        cells=tuple(cells),
        entries=_order(cells, rounds, order_seed),
        repeats=rounds,
        shuffle=order_seed,
        notes=tuple(dict.fromkeys(notes)),
    )


def _cell(
    number: int, asked: Mapping[str, object], config: SweepConfig, machine: Machine | None
) -> tuple[Cell, tuple[str, ...]]:
    overrides = [f"{key}={value}" for key, value in config.overrides.get(str(asked["framework"]), {}).items()]
    label = _label(asked, config.axes)
    try:
        resolved = resolve(asked, overrides=overrides, machine=machine)
    except SpecError as error:
        return Cell(number=number, label=label, asked=dict(asked), spec=None, refused=str(error)), ()
    return Cell(number=number, label=label, asked=dict(asked), spec=resolved.spec), resolved.notes


def _label(asked: Mapping[str, object], axes: Sequence[str]) -> str:
    named = [key for key in axes if key not in ("framework", "placement") and key in asked]
    return " ".join([f"{asked['framework']} {asked['placement']}", *(f"{key}={_text(asked[key])}" for key in named)])


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _check(cells: Sequence[Cell]) -> None:
    specs = [cell.spec for cell in cells if cell.spec is not None]
    if not specs:
        reasons = dict.fromkeys(f"{cell.label}: {cell.refused}" for cell in cells)
        raise SpecError("no cell of the sweep can run: " + "; ".join(list(reasons)[:5]))
    fields = [name for name in WORK_FIELDS if name != POOLED]
    for spec in specs[1:]:
        differing = [name for name in fields if spec.work.get(name) != specs[0].work.get(name)]
        if differing:
            name = differing[0]
            raise SpecError(
                f"{name} = {getattr(specs[0], name)} and {getattr(spec, name)}: the cells of a sweep must be offered "
                f"the same work, or its report compares nothing (only {POOLED} may vary); give {name} one value in "
                "[common], or make a sweep of each"
            )


def _order(cells: Sequence[Cell], rounds: int, seed: int | None) -> tuple[Entry, ...]:
    """Refused cells take no turn. Sorting by a hash of seed, round and cell is a shuffle that no version changes."""
    able = [cell for cell in cells if cell.spec is not None]
    entries: list[Entry] = []
    for number in range(1, rounds + 1):
        if seed is not None:
            able.sort(key=lambda cell: _digest(f"{seed}/{number}/{cell.key}"))
        entries += [Entry(number=len(entries) + place + 1, round=number, cell=c.number) for place, c in enumerate(able)]
    return tuple(entries)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
