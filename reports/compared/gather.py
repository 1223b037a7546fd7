"""What was given on the command line -> sides: run folders, sweeps, folders of runs, baselines, files of measures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.protocol.errors import SpecError
from harness.sweep.folder import FINISHED, SweepFolder, is_sweep
from results.comparing.comparison import Side
from results.comparing.kept import is_measures, load_baseline, measures_of, read_measures
from results.comparing.measures import RunMeasures
from results.store import is_run_folder

Key = tuple[tuple[str, str], ...]
_NOT_OF_A_CELL = ("steps",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One argument: its label, and the paths it means (several for a glob)."""

    label: str
    paths: tuple[Path, ...]


@dataclass(slots=True)
class _Found:
    runs: list[RunMeasures]
    left_out: list[tuple[str, str]]


def sections(given: Sequence[Given]) -> list[list[Side]]:
    """The comparisons to be made, each of two or more sides, the first of which is the base.

    One argument is compared cell by cell with its own first cell; several arguments of one cell each with the first of
    them; where the first has several cells, each of them with the same cell of the others.

    Raises:
        SpecError: nothing to compare with, no run in an argument, or what is there cannot be read.
    """
    cells = [_cells(one) for one in given]
    if len(cells) == 1:
        return [list(cells[0].values())]
    if len(cells[0]) == 1:
        return [[side for each in cells for side in each.values()]]
    made, alone = [], []
    for key, base in cells[0].items():
        partners = [each[key] for each in cells[1:] if key in each]
        if partners:
            made.append([base, *partners])
        else:
            alone.append(base.label)
    if not made:
        raise SpecError(
            f"{given[0].label} has the cells {', '.join(alone)}, and no other argument has any of them: "
            "name the runs of the cells that are to be compared"
        )
    return made


def one_side(given: Given) -> Side:
    """All runs of an argument as one side (the noise of a baseline).

    Raises:
        SpecError: as `sections`.
    """
    found = _collected(given)
    side = Side.of(given.label, found.runs)
    return Side(label=side.label, runs=side.runs, left_out=(*side.left_out, *found.left_out))


def _cells(given: Given) -> dict[Key, Side]:
    found = _collected(given)
    held: dict[Key, list[RunMeasures]] = {}
    for run in found.runs:
        key = tuple((name, value) for name, value in sorted(run.system.items()) if name not in _NOT_OF_A_CELL)
        held.setdefault(key, []).append(run)
    if not held:
        why = "; ".join(f"{name}: {reason}" for name, reason in found.left_out)
        raise SpecError(f"{given.label}: no run in it" + (f" ({why})" if why else ""))
    names = _names(given.label, list(held))
    sides = {key: Side.of(name, runs) for name, (key, runs) in zip(names, held.items(), strict=True)}
    first = next(iter(sides))
    # What could not be read belongs to no cell that is known: it is told with the first.
    sides[first] = Side(
        label=sides[first].label,
        runs=sides[first].runs,
        left_out=(*sides[first].left_out, *found.left_out),
    )
    return sides


def _names(label: str, keys: Sequence[Key]) -> list[str]:
    """The label, and where there are several cells the fields that tell them apart."""
    if len(keys) == 1:
        return [label]
    told = [dict(key) for key in keys]
    varied = [name for name in told[0] if len({each.get(name) for each in told}) > 1]
    order = sorted(varied, key=lambda name: (("framework", "placement", *varied).index(name), name))
    plain = [name for name in order if name in ("framework", "placement")]
    if plain and len({tuple(each[name] for name in plain) for each in told}) == len(told):
        order = plain
    return [
        f"{label}: " + " ".join(each[name] if name in plain else f"{name}={each[name] or 'none'}" for name in order)
        for each in told
    ]


def _collected(given: Given) -> _Found:
    found = _Found([], [])
    alone = len(given.paths) == 1
    for path in given.paths:
        for item in _items(path):
            if isinstance(item, tuple):
                found.left_out.append(item)
                continue
            try:
                found.runs += [item] if isinstance(item, RunMeasures) else [measures_of(item)]
            except SpecError as error:
                if alone and item == path:
                    raise
                found.left_out.append((item.name if isinstance(item, Path) else item.run_id, str(error)))
    return found


def _items(path: Path) -> Iterator[RunMeasures | Path | tuple[str, str]]:
    """Runs as measures or folders; and what is no run to compare, with the reason."""
    if is_run_folder(path):
        yield path
    elif is_sweep(path):
        folder = SweepFolder.open(path)
        for entry, outcome in zip(folder.plan.entries, folder.state(), strict=True):
            if outcome.status == FINISHED and outcome.run_dir is not None and outcome.run_dir.is_dir():
                yield outcome.run_dir
            else:
                label = folder.plan.cells[entry.cell].label
                yield f"run {entry.number} of the sweep ({label})", outcome.reason or outcome.status
    elif is_measures(path):
        yield from read_measures(path)
    elif path.is_dir() and (inside := sorted(child for child in path.iterdir() if is_run_folder(child))):
        yield from inside
    elif path.is_dir() and any(path.glob("*.parquet")):
        yield from load_baseline(path)
    else:
        what = "no such file or folder" if not path.exists() else "neither run, sweep, folder of runs nor baseline"
        raise SpecError(f"{path}: {what}")
