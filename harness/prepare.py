"""What a run needs beside its framework, made before it starts: its corpus, its data set, its tool server's orders."""

import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from harness.cache import cache_folder
from harness.live import Display
from harness.protocol.errors import EnvError, SpecError
from harness.protocol.spec import Load, RunSpec
from harness.run_folder import RunFolder
from harness.specs.datasets import read_dataset
from harness.specs.inputs import GENERATED_CORPUS
from harness.tool_server import ToolServer, tool_server
from workloads.deep_research.dataset import FILE, write_rows

PROGRESS_S = 2.0  # between two words on a corpus that is being built


def prepare(folder: RunFolder, spec: RunSpec, display: Display) -> ToolServer | None:
    """Makes the corpus where it is missing, and writes the data set into the run's folder.

    Returns:
        The tool server to start; None for mock tools, which need none.

    Raises:
        SpecError: the data set or the corpus can't be read, or has no questions.
        EnvError: the corpus can't be built here.
    """
    corpus = corpus_folder(spec.corpus, spec.seed, display.stage) if spec.corpus else None
    _write_rows(folder, spec, corpus)
    if spec.tools == "mock":
        return None
    return tool_server(folder.path, spec, corpus, _facts(corpus))


def corpus_folder(corpus: str, seed: int, say: Callable[[str], None]) -> Path:
    """Where a corpus lies; a generated one is built in the user's cache folder if it is not there, or damaged.

    Args:
        corpus: `generated:PAGES`, or a folder.
        say: told how the building goes.

    Raises:
        SpecError: it is no corpus.
        EnvError: it can't be built: no room, no permission.
    """
    match = GENERATED_CORPUS.match(corpus)
    folder = corpus_place(corpus, seed)
    if match is None:
        return folder
    from workloads.deep_research.corpus.build import build_corpus, damage, read_facts

    pages = int(match[1])
    if (facts := read_facts(folder)) is not None:
        if (wrong := damage(folder, facts)) is None:
            return folder
        say(wrong)  # it is bench's own, and comes out the same
    said = [0.0]

    def progress(done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - said[0] >= PROGRESS_S:
            said[0] = now
            say(f"building the corpus: {done:,} of {total or pages:,} pages")

    say(f"building the corpus of {pages:,} pages in {folder} (once; later runs find it there)")
    try:
        build_corpus(folder, pages=pages, seed=seed, progress=progress)
    except OSError as error:
        raise EnvError(
            f"the corpus can't be built in {folder}: {error}; free some space, or set BENCH_CACHE"
        ) from error
    return folder


def corpus_place(corpus: str, seed: int) -> Path:
    """Where a corpus lies, or will lie once it is built."""
    match = GENERATED_CORPUS.match(corpus)
    if match is None:
        return Path(corpus)
    from workloads.deep_research.corpus.build import generated_name

    return cache_folder() / "corpora" / generated_name(int(match[1]), seed)


def _write_rows(folder: RunFolder, spec: RunSpec, corpus: Path | None) -> None:
    """The rows that the run's prompts are taken from; none where questions are made from the prompt's number."""
    if spec.dataset == "generated":
        return
    if spec.dataset == "corpus":
        from workloads.deep_research.corpus.build import open_corpus

        assert corpus is not None  # harness.specs has seen to it
        opened = open_corpus(corpus)
        try:
            rows = list(islice(opened.questions(), spec.prompts))
        finally:
            opened.close()
        # Pages of a user have no questions: none are written, so that workers see that none were meant.
        if not rows and spec.load is Load.LIVE:
            raise SpecError(f"dataset = corpus: {corpus} came without questions; allowed is a file: --dataset FILE")
    else:
        rows = read_dataset(Path(spec.dataset), spec.columns, spec.prompts, answers=spec.load is Load.LIVE)
    write_rows(rows, folder.path / FILE)


def _facts(corpus: Path | None) -> dict[str, object]:
    if corpus is None:
        return {"corpus": None}
    from workloads.deep_research.corpus.build import read_facts

    facts = read_facts(corpus)
    return {"corpus": None if facts is None else {"path": str(corpus), **asdict(facts)}}
