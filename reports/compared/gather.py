"""What was given on the command line -> sides: run folders, sweeps, folders of runs, baselines, files of measures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.protocol.errors import SpecError
from harness.protocol.names import NOT_UTF8, is_text, shown
from harness.sweep.folder import FINISHED, SweepFolder, is_sweep
from reports.markdown import plural
from results.baselines.ledger import LEDGER
from results.baselines.store import read_baseline
from results.comparing.comparison import Side
from results.comparing.kept import is_measures, load_baseline, read_measures
from results.comparing.many import Progress, measures_of_all
from results.comparing.measures import RunMeasures
from results.store import is_run_folder

Key = tuple[tuple[str, str], ...]
_NOT_OF_A_CELL = ("steps", "seed")  # longer runs are cut to the plans they share; seeds are blocks
_MACHINE = {"host": "host", "CPU": "cpu", "cores": "cores", "GPU models": "gpus", "number of GPUs": "gpu_count"}
_NO_LEDGER = "no ledger in {}: who took its runs in, and whether they were changed since, is not on record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One argument: its label, and the paths it means (several for a glob)."""

    label: str
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What was given, as comparisons to be made, each of two or more sides of which the first is the base.

    `apart`: cells that are in none of them, and why.
    """

    sections: tuple[tuple[Side, ...], ...]
    apart: tuple[str, ...]


@dataclass(slots=True)
class _Found:
    """The runs of one argument; what was not read or is not used belongs to no cell that is known."""

    cells: dict[Key, Side]
    left_out: tuple[tuple[str, str], ...]
    notices: tuple[str, ...]


@dataclass(slots=True)
class _Read:
    """Runs of an argument; what is none to compare, with the reason; and what must be said of where they are from."""

    runs: list[RunMeasures] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def gather(given: Sequence[Given], progress: Progress | None = None) -> Gathered:
    """The comparisons to be made. `progress` is told of runs whose measures are not kept, and have to be computed.

    One argument is compared cell by cell with its own first cell; several arguments of one cell each with the first of
    them; where the first has several cells, each of them with the same cell of the others. A cell that has no partner,
    or no run that may be compared, is named in `apart`.

    Raises:
        SpecError: nothing to compare with, no run in an argument, or what is there cannot be read.
    """
    found = [_found(one, each) for one, each in zip(given, _collected(given, progress), strict=True)]
    apart: list[str] = []
    if len(found[0].cells) > 1 and len(found) > 1:
        sections = _by_cell(given, found, apart)
    else:
        base = list(found[0].cells.values())
        rest = [side for each in found[1:] for side in each.cells.values()]
        # Of several cells one without a run that may be compared must not stop the others; of one a side it does.
        several = len(base) + len(rest) > max(2, len(found))
        kept = _with_runs([*base, *rest], apart) if several else []
        sections = [kept if len(kept) > 1 and (len(found) == 1 or base[0].runs) else [*base, *rest]]
    return Gathered(sections=_told(sections, found), apart=tuple(apart))


def cells_of(given: Given, progress: Progress | None = None) -> list[Side]:
    """The runs of an argument that may differ by chance alone: by cell, seed, length and machine (for their noise).

    Raises:
        SpecError: as `gather`.
    """
    (each,) = _collected([given], progress)
    found = _found(given, each, _narrow)
    return list(found.cells.values())


def _by_cell(given: Sequence[Given], found: Sequence[_Found], apart: list[str]) -> list[list[Side]]:
    made = []
    for key in dict.fromkeys(key for each in found for key in each.cells):
        sides = [each.cells[key] for each in found if key in each.cells]
        lacking = " and ".join(one.label for one, each in zip(given, found, strict=True) if key not in each.cells)
        good = _with_runs(sides, apart)
        if key in found[0].cells and found[0].cells[key].runs and len(good) > 1:
            made.append(good)
            apart += [f"{_about(good[0])}: there is no such cell in {lacking}"] if lacking else []
        else:
            apart += [
                f"{_about(side)}: there is "
                + (f"no such cell in {lacking}" if lacking else "no run to compare it with")
                for side in good
            ]
    if not made:
        raise SpecError(
            f"no cell of {given[0].label} is in another argument: {'; '.join(apart)}: "
            "name the runs of the cells that are to be compared"
        )
    return made


def _with_runs(sides: Sequence[Side], apart: list[str]) -> list[Side]:
    """The sides that have a run which may be compared; the others are told in `apart`."""
    for side in sides:
        if not side.runs:
            why = "; ".join(f"{name} {reason}" for name, reason in side.left_out)
            apart.append(f"{side.label}: no run that may be compared: {why}")
    return [side for side in sides if side.runs]


def _about(side: Side) -> str:
    runs = side.runs
    cell = " and ".join(dict.fromkeys(f"{run.framework} {run.placement}" for run in runs))
    return f"{side.label} ({plural(len(runs), 'run')}, {cell})"


def _told(sections: Sequence[Sequence[Side]], found: Sequence[_Found]) -> tuple[tuple[Side, ...], ...]:
    """With what was not read or used of an argument on the first of its sides that is compared."""
    made = [list(section) for section in sections]
    for each in found:
        own = list(each.cells.values())
        where = next(((s, k) for s, section in enumerate(made) for k, side in enumerate(section) if side in own), None)
        if where is not None:
            section, place = where
            side = made[section][place]
            made[section][place] = replace(
                side, left_out=(*side.left_out, *each.left_out), notices=(*side.notices, *each.notices)
            )
    return tuple(tuple(section) for section in made)


def _key(run: RunMeasures) -> Key:
    """What names the cell of a run among those of an argument."""
    return tuple(
        (name, value) for name, value in sorted({**run.work, **run.system}.items()) if name not in _NOT_OF_A_CELL
    )


def _narrow(run: RunMeasures) -> Key:
    facts = {name: run.machine.get(fact) or "" for name, fact in _MACHINE.items()}
    return (*_key(run), ("seed", str(run.seed)), ("steps", run.system.get("steps", "")), *facts.items())


def _found(given: Given, each: _Read, key_of: Callable[[RunMeasures], Key] = _key) -> _Found:
    left_out = each.left_out
    held: dict[Key, list[RunMeasures]] = {}
    for run in each.runs:
        held.setdefault(key_of(run), []).append(run)
    if not held:
        why = "; ".join(f"{name}: {reason}" for name, reason in left_out)
        raise SpecError(f"{given.label}: no run in it" + (f" ({why})" if why else ""))
    names = _names(given.label, list(held))
    sides = {key: Side.of(name, runs) for name, (key, runs) in zip(names, held.items(), strict=True)}
    return _Found(sides, tuple(left_out), tuple(each.notices))


def _names(label: str, keys: Sequence[Key]) -> list[str]:
    """The label, and where there are several cells the fields that tell them apart."""
    if len(keys) == 1:
        return [label]
    told = [dict(key) for key in keys]
    names = dict.fromkeys(name for each in told for name in each)
    varied = [name for name in names if len({each.get(name) for each in told}) > 1]
    order = sorted(varied, key=lambda name: (("framework", "placement", *varied).index(name), name))
    plain = [name for name in order if name in ("framework", "placement")]
    if plain and len({tuple(each.get(name) for name in plain) for each in told}) == len(told):
        order = plain
    return [
        f"{label}: "
        + " ".join(str(each.get(name)) if name in plain else f"{name}={each.get(name) or 'none'}" for name in order)
        for each in told
    ]


def _collected(given: Sequence[Given], progress: Progress | None) -> list[_Read]:
    """What there is of each argument, the runs of all of them measured at once."""
    listed = [[(path, item) for path in one.paths for item in _items(path, one.label)] for one in given]
    folders = [item for items in listed for _, item in items if isinstance(item, Path)]
    measured = iter(measures_of_all(folders, progress))
    made = []
    for one, items in zip(given, listed, strict=True):
        each = _Read()
        for path, item in items:
            found = next(measured) if isinstance(item, Path) else item
            if isinstance(found, RunMeasures):
                each.runs.append(found)
            elif isinstance(found, tuple):
                each.left_out.append(found)
            elif isinstance(found, str):
                each.notices.append(found)
            elif len(one.paths) == 1 and item == path:
                raise found
            else:
                each.left_out.append((item.name if isinstance(item, Path) else one.label, str(found)))
        made.append(each)
    return made


def _items(path: Path, label: str) -> Iterator[RunMeasures | Path | tuple[str, str] | str]:
    """Runs as measures or folders; what is no run to compare, with the reason; and notices, as text."""
    if is_run_folder(path):
        yield path
    elif is_sweep(path):
        folder = SweepFolder.open(path)
        for entry, outcome in zip(folder.plan.entries, folder.state(), strict=True):
            if outcome.status == FINISHED and outcome.run_dir is not None and outcome.run_dir.is_dir():
                yield outcome.run_dir
            else:
                cell = folder.plan.cells[entry.cell].label
                yield f"run {entry.number} of the sweep ({cell})", outcome.reason or outcome.status
    elif is_measures(path):
        yield from _trusted(path.parent, label, read_measures(path))
    elif path.is_dir() and (inside := _inside(path)):
        yield from inside
    elif path.is_dir() and (any(path.glob("*.parquet")) or (path / LEDGER).is_file()):
        yield from _trusted(path, label)
    else:
        what = "no such file or folder" if not path.exists() else "neither run, sweep, folder of runs nor baseline"
        raise SpecError(f"{path}: {what}")


def _inside(folder: Path) -> list[Path | tuple[str, str]]:
    """The run folders of a folder; those with no name that can be written, with the reason."""
    found: list[Path | tuple[str, str]] = []
    for child in sorted(folder.iterdir()):
        if not is_text(child.name):
            if (child / "spec.json").is_file():
                found.append((shown(child.name), f"{NOT_UTF8}; rename it"))
        elif is_run_folder(child):
            found.append(child)
    return found


def _trusted(
    folder: Path, label: str, of_file: Sequence[RunMeasures] | None = None
) -> Iterator[RunMeasures | tuple[str, str] | str]:
    """The runs of a baseline (or of one file of it) that its ledger has as accepted and unchanged, as a check has it;
    and those that it has not. All of them, with a notice, where there is no ledger."""
    if not (folder / LEDGER).is_file():
        yield from load_baseline(folder) if of_file is None else of_file
        if of_file is None:
            yield _NO_LEDGER.format(label)
        return
    held = read_baseline(folder, label)
    wanted = None if of_file is None else {run.run_id for run in of_file}
    yield from (run for run in held.runs if wanted is None or run.run_id in wanted)
    for text in held.ignored:
        name, _, why = text.partition(": ")
        of_a_run = bool(why) and " " not in name
        if wanted is None or name in wanted:
            yield (name, why) if of_a_run else ("the ledger", f"has no effect: {text}")
