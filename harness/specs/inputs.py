"""What a request names and a run needs: tools, traces, corpora, data sets and presets, checked and named by content."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.protocol.errors import SpecError
from workloads.deep_research.presets import PRESETS, decode_preset, encode_preset

GENERATED_CORPUS = re.compile(r"^generated:([0-9]+)$")
LEAST_PAGES, MOST_PAGES = 1_000, 1_000_000
DEFAULT_CORPUS = f"generated:{LEAST_PAGES}"
COLUMNS = ("prompt", "answer", "extra")

_TOOLS = "mock, local, web, web:NAME,NAME, replay:FILE or record:FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What `tools` and `record` ask for: the set, the trace it plays, the file it is recorded into."""

    kind: str
    trace: str = ""
    trace_digest: str = ""
    record: str | None = None


def read_tools(tools: str, record: str | None) -> Tools:
    """`mock`, `local`, `web[:NAME,NAME]`, `replay:FILE` or `record:FILE` (local tools, recorded).

    Raises:
        SpecError: another text, a trace that isn't there, or a file that can't be recorded into.
    """
    name, _, rest = tools.partition(":")
    if name == "record":
        if record is not None:
            raise SpecError(f"tools = {tools!r}: the file to record is given twice (record = {record!r})")
        name, record, rest = "local", rest, ""
        if not record:
            raise SpecError(f"tools = {tools!r}: allowed is record:FILE")
    if record is not None:
        record = str(_record_file(record))
    if name in ("mock", "local") and not rest and tools[-1:] != ":":
        return Tools(kind=name, record=record)
    if name == "web" and all(part for part in rest.split(",")) == bool(rest):
        return Tools(kind=f"web:{rest}" if rest else "web", record=record)
    if name == "replay" and rest:
        path = Path(rest).expanduser().resolve()
        return Tools(kind="replay", trace=str(path), trace_digest=file_digest(path, "tools"), record=record)
    raise SpecError(f"tools = {tools!r}: allowed is {_TOOLS}")


def recorded_work(trace: Path) -> dict[str, object]:
    """What a trace says of the questions of its run: seed, corpus, data set, columns; nothing where it does not know.

    Raises:
        SpecError: it is no trace.
    """
    from workloads.deep_research.trace import read_facts

    work = read_facts(trace).get("work")
    return {key: work[key] for key in ("seed", "corpus", "dataset", "columns") if key in work} if work else {}


def _record_file(name: str) -> Path:
    path = Path(name).expanduser().resolve()
    if path.suffix != ".parquet":
        raise SpecError(f"record = {name!r}: allowed is a file name that ends in .parquet")
    if not path.parent.is_dir():
        raise SpecError(f"record = {name!r}: there is no folder {path.parent}")
    if path.exists():
        raise SpecError(f"record = {name!r}: there is such a file; a trace is never written over")
    return path


def read_corpus(corpus: str, seed: int) -> tuple[str, str]:
    """(the corpus, its digest). A generated one is named by its recipe: it need not be there yet.

    Raises:
        SpecError: no generated one of that size, no folder, or one without a corpus in it.
    """
    if match := GENERATED_CORPUS.match(corpus):
        pages = int(match[1])
        if not LEAST_PAGES <= pages <= MOST_PAGES:
            raise SpecError(f"corpus = {corpus!r}: allowed are {LEAST_PAGES:,} to {MOST_PAGES:,} pages")
        from workloads.deep_research.corpus.generate import VERSION  # loaded by who searches a corpus only

        return corpus, f"generated:{pages}:{seed}:v{VERSION}"
    folder = Path(corpus).expanduser().resolve()
    facts = folder / "corpus.json"
    if not facts.is_file():
        raise SpecError(
            f"corpus = {corpus!r}: allowed is generated:PAGES or a folder that `bench tools build` made"
            f" ({facts} is not there)"
        )
    return str(folder), file_digest(facts, "corpus")


def read_preset(preset: str) -> tuple[str, str]:
    """(name, definition): a built-in preset has no definition; a file that `bench tools fit` wrote has its own.

    Raises:
        SpecError: no built-in preset and no file, or the file is not a preset's.
    """
    if preset in PRESETS:
        return preset, ""
    path = Path(preset).expanduser()
    if path.suffix != ".json":
        from harness.specs.request import suggest

        raise SpecError(f"preset = {preset!r}: unknown{suggest(preset, PRESETS)}, or a file NAME.json")
    try:
        read = decode_preset(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"preset = {preset!r}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"preset = {preset!r}: is not a text file") from None
    except SpecError as error:
        raise SpecError(f"preset = {preset!r}: {error}") from None
    return read.name, encode_preset(read)


def read_dataset(dataset: str, columns: Mapping[str, str]) -> tuple[str, str]:
    """(the data set, its digest): `generated` and `corpus` have none of their own.

    Raises:
        SpecError: no such file, or columns that are not asked of it.
    """
    for name in columns:
        if name not in COLUMNS:
            raise SpecError(f"columns.{name}: allowed is {', '.join(COLUMNS)}")
    if dataset in ("generated", "corpus"):
        if columns:
            raise SpecError(f"columns: allowed with a file; dataset is {dataset}")
        return dataset, ""
    path = Path(dataset).expanduser().resolve()
    if path.suffix not in (".parquet", ".jsonl"):
        raise SpecError(f"dataset = {dataset!r}: allowed is generated, corpus, or a file .parquet or .jsonl")
    digest = hashlib.sha256(f"{file_digest(path, 'dataset')}:{sorted(columns.items())}".encode())
    return str(path), digest.hexdigest()[:16]


def parse_columns(text: str) -> dict[str, str]:
    """`prompt=question,answer=answer` as a mapping.

    Raises:
        SpecError: a part without `=`.
    """
    found = {}
    for part in text.split(","):
        name, sign, column = part.partition("=")
        if not (name.strip() and sign and column.strip()):
            raise SpecError(f"columns = {text!r}: allowed is NAME=COLUMN,... with {', '.join(COLUMNS)}")
        found[name.strip()] = column.strip()
    return found


def file_digest(path: Path, key: str) -> str:
    """Names a file's content.

    Raises:
        SpecError: it can't be read; the message names `key`.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise SpecError(f"{key} = {str(path)!r}: cannot be read: {error.strerror}") from None
