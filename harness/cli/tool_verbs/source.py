"""A trace by what a user names: a trace file, the rest of a killed recording, or a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.runs import find_run
from harness.protocol.errors import SpecError

if TYPE_CHECKING:
    from workloads.deep_research.trace import Trace

SUFFIXES = (".parquet", ".part")


def read_source(name: str, runs_dir: Path) -> "tuple[Trace, Mapping[str, Sequence[int]]]":
    """(the trace, token lengths where a run knows them).

    Raises:
        SpecError: it is none of the three, or can't be read.
    """
    from results.collect import collect
    from results.store import is_collected, load_run
    from results.tool_trace import token_lengths, trace_of_run
    from workloads.deep_research.trace import read_trace

    if Path(name).suffix in SUFFIXES:
        return read_trace(Path(name)), {}
    folder = find_run(name, runs_dir)
    run = load_run(folder) if is_collected(folder) else collect(folder)
    return trace_of_run(run), token_lengths(run)


def new_file(name: str, suffix: str, option: str = "-o") -> Path:
    """A file that is to be made: of the right kind, in a folder that is there, and not there yet.

    Raises:
        SpecError: it is not so.
    """
    path = Path(name)
    if path.suffix != suffix:
        raise SpecError(f"{option} = {name!r}: allowed is a file name that ends in {suffix}")
    if not path.absolute().parent.is_dir():
        raise SpecError(f"{option} = {name!r}: there is no folder {path.absolute().parent}")
    if path.exists():
        raise SpecError(f"{option} = {name!r}: there is such a file; name another, or remove it")
    return path
