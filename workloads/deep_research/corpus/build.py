"""A corpus on disk: a folder with the pages and their index, the questions, and the facts about it all.

A folder is whole or it isn't there: it is filled under another name, fsynced and renamed. A build that was killed
leaves the other name, which the next build of the same corpus removes; builds of one folder wait for one another.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import IO

from harness.protocol.durable import sync_file, sync_folder
from harness.protocol.errors import SpecError
from workloads.deep_research.corpus import soundness
from workloads.deep_research.corpus.generate import LEAST_PAGES, MOST_PAGES, VERSION, World
from workloads.deep_research.corpus.index import Entry, Hit, Index, IndexWriter, Page
from workloads.deep_research.corpus.making import batches
from workloads.deep_research.corpus.questions import questions
from workloads.deep_research.dataset import Row, read_rows, write_rows

FORMAT = 3  # of the folder; another one is built again
DATABASE, FACTS, QUESTIONS = "corpus.sqlite", "corpus.json", "questions.jsonl"
MOST_QUESTIONS = 20_000

Progress = Callable[[int, int | None], None]  # pages done, pages in all (None: not known beforehand)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusFacts:
    """What a corpus is. `seed` and `version` (of the generator) are None for one that a user brought."""

    source: str  # "generated", or the path it was read from
    pages: int
    questions: int
    seed: int | None
    version: int | None
    digest: str  # of addresses, titles and pages, in order: 16 hexadecimal digits
    bytes: int  # of all pages, as they are served
    format: int = FORMAT


class Corpus:
    """An open corpus; reads only, from any thread."""

    def __init__(self, path: Path, facts: CorpusFacts) -> None:
        self.path, self.facts = path, facts
        self.index = Index(path / DATABASE)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The best `k` pages for any text; see `index`."""
        return self.index.search(query, k)

    def page(self, url: str) -> Page | None:
        """The page at an address as links have it: a fragment is left out, and https is the same as http."""
        address = url.partition("#")[0]
        found = self.index.page(address)
        if found is None and address.startswith("https://"):
            found = self.index.page("http://" + address.removeprefix("https://"))
        return found

    def questions(self) -> Iterator[Row]:
        """The questions that came with the corpus; none for one that a user brought."""
        if (self.path / QUESTIONS).exists():
            yield from read_rows(self.path / QUESTIONS)

    def close(self) -> None:
        """Closes the index's file."""
        self.index.close()


def generated_name(pages: int, seed: int) -> str:
    """The folder's name of a generated corpus, in the cache of corpora."""
    return f"generated-{pages}-{seed}-v{VERSION}.{FORMAT}"


def build_corpus(
    out: Path, *, pages: int, seed: int, progress: Progress | None = None, processes: int | None = None
) -> CorpusFacts:
    """Generates a corpus of `pages` pages into the folder `out`, or finds that it is there already.

    `processes` make the pages (None: as many as there are cores, at most 8; 1: this one). The result does not
    depend on it.

    Raises:
        SpecError: `pages` is out of range, or `out` holds something else.
    """
    if not LEAST_PAGES <= pages <= MOST_PAGES:
        raise SpecError(
            f"corpus: {pages:,} pages can't be generated; choose between {LEAST_PAGES:,} and {MOST_PAGES:,}"
        )

    def wanted(facts: CorpusFacts) -> bool:
        return (facts.source, facts.pages, facts.seed, facts.version) == ("generated", pages, seed, VERSION)

    def make(folder: Path) -> CorpusFacts:
        written = _write(folder, batches(pages, seed, processes), total=pages, progress=progress)
        rows = list(questions(World(pages, seed), min(MOST_QUESTIONS, 4 * pages)))
        write_rows(rows, folder / QUESTIONS)
        return CorpusFacts(source="generated", questions=len(rows), seed=seed, version=VERSION, **asdict(written))

    return _settle(out, wanted, make, what=f"a generated corpus of {pages:,} pages, seed {seed}")


def import_entries(
    out: Path, entries: Iterable[Entry], *, source: str, progress: Progress | None = None
) -> CorpusFacts:
    """A corpus of pages that a user brought, into the folder `out`, which must not be there or be a corpus of `source`.

    Raises:
        SpecError: `out` holds something else, two pages share an address, or there is no page; and what reading
            `entries` raises.
    """

    def make(folder: Path) -> CorpusFacts:
        written = _write(folder, _in_batches(entries), total=None, progress=progress)
        return CorpusFacts(source=source, questions=0, seed=None, version=None, **asdict(written))

    # Its files may have changed since: it is made again.
    return _settle(out, lambda facts: False, make, what=f"the corpus of {source}", replace=lambda f: f.source == source)


def open_corpus(path: Path) -> Corpus:
    """Opens a corpus for reading.

    Raises:
        SpecError: there is none, or it can't be read; says what to do.
    """
    facts = read_facts(path)
    if facts is None:
        raise SpecError(f"{path}: no corpus there ({FACTS} is missing); build one with `bench tools build`")
    try:
        return Corpus(path, facts)
    except sqlite3.Error as error:
        raise SpecError(f"{path / DATABASE}: can't be read: {error}; remove the folder and build it again") from None


def damage(path: Path, facts: CorpusFacts) -> str | None:
    """What is wrong with the corpus at `path`, and how it is built again; None: nothing was found."""
    found = soundness.damage(path / DATABASE, facts.pages)
    what = f"{path / DATABASE} is damaged ({found})"
    if found is None:
        if not facts.questions or (path / QUESTIONS).exists():
            return None
        what = f"{path / QUESTIONS} is missing"
    if facts.source == "generated":
        again = f"bench tools build generated:{facts.pages} --seed {facts.seed} -o {quote(str(path))}"
    else:
        again = f"bench tools build {quote(facts.source)} -o {quote(str(path))}, with the --columns that it had"
    return f"{what}: build it again ({again})"


def read_facts(path: Path) -> CorpusFacts | None:
    """What the corpus at `path` is; None where there is none.

    Raises:
        SpecError: it is of another format or damaged.
    """
    try:
        raw = json.loads((path / FACTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise SpecError(f"{path / FACTS}: can't be read: {error}; remove the folder and build it again") from None
    try:
        facts = CorpusFacts(**raw)
    except TypeError as error:
        raise SpecError(
            f"{path / FACTS}: not the facts of a corpus: {error}; remove the folder and build it again"
        ) from None
    if facts.format != FORMAT:
        raise SpecError(
            f"{path}: a corpus of format {facts.format}, and this version reads format {FORMAT}; "
            "remove the folder and build it again"
        )
    return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    pages: int
    digest: str
    bytes: int


def _write(
    folder: Path, entries: Iterable[Sequence[tuple[Entry, bytes, int]]], *, total: int | None, progress: Progress | None
) -> _Written:
    """Fills the database; each entry comes with the digest of its page and the page's bytes."""
    digest, size = hashlib.sha256(), 0
    writer = IndexWriter(folder / DATABASE)
    try:
        for batch in entries:
            writer.add([entry for entry, _, _ in batch])
            for _, fingerprint, length in batch:
                digest.update(fingerprint)
                size += length
            if progress is not None:
                progress(writer.pages, total)
        if not writer.pages:
            raise SpecError("corpus: there is no page in it")
        if (twice := writer.duplicate()) is not None:
            raise SpecError(f"corpus: two pages have the address {twice}; give each page its own")
        writer.finish()
    finally:
        writer.close()
    return _Written(pages=writer.pages, digest=digest.hexdigest()[:16], bytes=size)


def _in_batches(entries: Iterable[Entry], size: int = 200) -> Iterator[list[tuple[Entry, bytes, int]]]:
    from workloads.deep_research.corpus.making import with_fingerprint

    batch: list[tuple[Entry, bytes, int]] = []
    for found in entries:
        batch.append(with_fingerprint(found))
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _settle(
    out: Path,
    wanted: Callable[[CorpusFacts], bool],
    make: Callable[[Path], CorpusFacts],
    *,
    what: str,
    replace: Callable[[CorpusFacts], bool] = lambda facts: False,
) -> CorpusFacts:
    """The corpus at `out`: as it is there, or made by `make` in a folder beside it and then put in place."""
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            facts = read_facts(out) if out.is_dir() else None
            same = facts is not None and wanted(facts)
            if facts is not None and same and damage(out, facts) is None:
                return facts
            if facts is None or not (same or replace(facts)):
                held = "another corpus" if facts is not None else "something that is no corpus"
                raise SpecError(
                    f"{out}: holds {held}, so {what} can't be put there; choose another folder or remove it"
                )
        building = out.with_name(f".{out.name}.building")
        shutil.rmtree(building, ignore_errors=True)  # of a build that was killed
        building.mkdir()
        try:
            facts = make(building)
            (building / FACTS).write_text(json.dumps(asdict(facts), indent=2) + "\n", encoding="utf-8")
            for path in building.iterdir():
                sync_file(path)
            sync_folder(building)
            if out.exists():
                shutil.rmtree(out)
            building.rename(out)
            sync_folder(out.parent)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return facts


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[IO[str]]:
    """No other process builds `out` meanwhile; the lock goes with the process that holds it, and so does its file."""
    path = out.with_name(f".{out.name}.lock")
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is(path, file):
                continue  # whoever had it has taken it away meanwhile: others may hold the one that is there now
            try:
                yield file
            finally:
                path.unlink(missing_ok=True)
            return


def _is(path: Path, file: IO[str]) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
