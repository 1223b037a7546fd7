"""What a request names and a run needs: tools, traces, corpora, data sets and presets, checked and named by content."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.protocol.errors import EnvError, SpecError
from harness.scorer_source import find_module
from workloads.deep_research.presets import PRESETS, decode_preset, encode_preset
from workloads.deep_research.trace_names import part_of, recordings

GENERATED_CORPUS = re.compile(r"^generated:([0-9]+)$")
LEAST_PAGES, MOST_PAGES = 1_000, 1_000_000
DEFAULT_CORPUS = f"generated:{LEAST_PAGES}"
COLUMNS = ("prompt", "answer", "extra")

UNKNOWN = "unknown"  # digest of what can't be seen from here

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


def named_providers(kind: str, environ: Mapping[str, str] = os.environ) -> str:
    """Plain `web` with the providers that it means here, those whose keys are set, e.g. `web:serper,brave`.

    Which are asked is part of the work, and another shell may have other keys. Anything else comes back as it is, and
    so does `web` where no key is set or the libraries are missing: such a run can be looked at and not started.
    """
    if kind != "web":
        return kind
    from workloads.deep_research.serving.web.providers import types

    try:
        known = types()
    except EnvError:
        return kind  # said in full by harness.tool_server.check_tools
    names = [name for name, provider in known.items() if environ.get(provider.key_variable, "").strip()]
    return f"web:{','.join(names)}" if names else kind


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
    for beside in recordings(path):
        for taken in (beside, part_of(beside)):
            if taken.exists():
                raise SpecError(f"record = {name!r}: {taken} is there, of an earlier recording; use another name")
    return path


def read_corpus(corpus: str, seed: int) -> tuple[str, str]:
    """(the corpus, its digest). The same pages have the same digest, wherever they lie.

    A generated one is named by its recipe, as it need not be there yet; one that a user brought by its pages. The
    format of the index is part of both: another one may rank otherwise.

    Raises:
        SpecError: no generated one of that size, no folder, one without a corpus in it, or one that is damaged.
    """
    if match := GENERATED_CORPUS.match(corpus):
        pages = int(match[1])
        if not LEAST_PAGES <= pages <= MOST_PAGES:
            raise SpecError(f"corpus = {corpus!r}: allowed are {LEAST_PAGES:,} to {MOST_PAGES:,} pages")
        from workloads.deep_research.corpus.generate import VERSION  # loaded by who searches a corpus only

        return corpus, _recipe(pages, seed, VERSION)
    from workloads.deep_research.corpus.build import FACTS, FORMAT, damage, read_facts

    folder = Path(corpus).expanduser().resolve()
    try:
        facts = read_facts(folder)
    except SpecError as error:
        raise SpecError(f"corpus = {corpus!r}: {error}") from None
    if facts is None:
        raise SpecError(
            f"corpus = {corpus!r}: allowed is generated:PAGES or a folder that `bench tools build` made"
            f" ({folder / FACTS} is not there)"
        )
    if (wrong := damage(folder, facts)) is not None:
        raise SpecError(f"corpus = {corpus!r}: {wrong}")
    if facts.seed is not None and facts.version is not None:
        return str(folder), _recipe(facts.pages, facts.seed, facts.version)
    return str(folder), f"pages:{facts.digest}:f{FORMAT}"


def _recipe(pages: int, seed: int, version: int) -> str:
    from workloads.deep_research.corpus.build import FORMAT

    return f"generated:{pages}:{seed}:v{version}:f{FORMAT}"


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


def reward_digest(reward: str) -> str:
    """Names the content of the module of a reward MODULE:FUNCTION: what it computes is part of the work.

    The module is looked for where this Python would find it, and nothing of it is executed. It runs in the
    framework's Python, so it may well not be here.

    Returns:
        "" of a built-in reward, UNKNOWN where the source is not found.
    """
    module, sign, _ = reward.partition(":")
    if not sign:
        return ""
    source, _ = find_module(module)
    try:
        return UNKNOWN if source is None else file_digest(source, "reward")
    except SpecError:
        return UNKNOWN


def read_dataset(dataset: str, columns: Mapping[str, str], corpus_digest: str = "") -> tuple[str, str]:
    """(the data set, its digest). Questions of a corpus are those of the corpus with that digest.

    Raises:
        SpecError: no such file, or columns that are not asked of it.
    """
    for name in columns:
        if name not in COLUMNS:
            raise SpecError(f"columns.{name}: allowed is {', '.join(COLUMNS)}")
    if dataset in ("generated", "corpus"):
        if columns:
            raise SpecError(f"columns: allowed with a file; dataset is {dataset}")
        return dataset, dataset if dataset == "generated" else f"corpus:{corpus_digest}"
    path = Path(dataset).expanduser().resolve()
    if path.suffix not in (".parquet", ".jsonl"):
        raise SpecError(f"dataset = {dataset!r}: allowed is generated, corpus, or a file .parquet or .jsonl")
    digest = hashlib.sha256(f"{file_digest(path, 'dataset')}:{sorted(columns.items())}".encode())
    return str(path), digest.hexdigest()[:16]


def parse_columns(text: str, names: Sequence[str] = COLUMNS) -> dict[str, str]:
    """`prompt=question,answer=answer` as a mapping.

    Raises:
        SpecError: a part without `=`, or a name given twice.
    """
    found = {}
    for part in text.split(","):
        name, sign, column = part.partition("=")
        if not (name.strip() and sign and column.strip()):
            raise SpecError(f"columns = {text!r}: allowed is NAME=COLUMN,... with {', '.join(names)}")
        if name.strip() in found:
            raise SpecError(f"columns = {text!r}: {name.strip()} is given twice")
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
