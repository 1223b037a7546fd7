"""Search of a generated corpus: latency and queries per second beside bm25s, on the same pages and queries.

Both engines are asked in this process, with the same questions, titles and title-with-property queries, by 1, 32 and
256 agents that each wait for their answer before they ask again. As in a server, the engine works in as many threads as
there are cores, and a query's latency runs from asking to having the answer, waiting included. The engines take turns,
ROUNDS times, so that a machine's other load falls on both; figures are over all rounds. bm25s (numpy backend, its
default tokens and stop words) has the whole index in memory and gives numbers of pages; ours reads a file and gives
titles, addresses and snippets. `overlap`: the share of bm25s's ten best that are among ours; `found`: how often the
page with exactly the title asked for is among the ten best, of each engine.

Limit: found is not below bm25s's. The ratios of speed have none: they are there to be watched.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bm25s
import tracked

from workloads.deep_research.corpus.build import Corpus, build_corpus, generated_name, open_corpus
from workloads.deep_research.corpus.generate import World
from workloads.deep_research.corpus.index import TITLE_WEIGHT
from workloads.deep_research.question_grammar import KINDS

AGENTS = (1, 32, 256)
QUERIES = 600
ROUNDS = 3
SEED = 1
K = 10


def main(arguments: argparse.Namespace) -> int:
    """Measures each size; returns 1 where a limit is missed."""
    figures: dict[str, object] = {"cores": len(os.sched_getaffinity(0)), "queries": QUERIES, "rounds": ROUNDS}
    kept: list[bool] = []
    with tempfile.TemporaryDirectory() as scratch:
        for pages in arguments.pages:
            folder = (arguments.corpora or Path(scratch)) / generated_name(pages, SEED)
            there = folder.exists()
            begin = time.perf_counter()
            build_corpus(folder, pages=pages, seed=SEED)
            built_s = None if there else time.perf_counter() - begin
            corpus = open_corpus(folder)
            measured, ok = measure(corpus)
            rate = None if built_s is None else round(pages / built_s)
            size = sum(path.stat().st_size for path in folder.iterdir())
            figures[f"pages_{pages}"] = {
                "built_pages_per_s": rate,
                "pages_bytes": corpus.facts.bytes,
                "folder_bytes": size,
                **measured,
            }
            kept.append(ok)
            corpus.close()
    return tracked.finish(
        "search_speed",
        figures,
        ok=all(kept),
        description=__doc__ or "",
        sources=("workloads/deep_research/corpus", "benchmarks/search_speed.py"),
        record=arguments.record,
    )


def measure(corpus: Corpus) -> tuple[dict[str, object], bool]:
    """The figures of one corpus, and whether the limit was kept."""
    urls, texts = [], []
    for url, title, text in corpus.index.entries():
        urls.append(url)
        texts.append((title + " ") * int(TITLE_WEIGHT) + text)
    begin = time.perf_counter()
    other = bm25s.BM25(k1=1.2, b=0.75)
    other.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    indexed_s = time.perf_counter() - begin
    del texts

    def ask_other(query: str) -> list[str]:
        tokens = bm25s.tokenize([query], show_progress=False)
        found, _ = other.retrieve(tokens, k=K, show_progress=False)
        return [urls[number] for number in found[0]]

    def ask_ours(query: str) -> list[str]:
        return [hit.url for hit in corpus.search(query, K)]

    asked, titles = queries(corpus)
    shared = [len(set(ask_other(query)) & set(ask_ours(query))) / K for query in asked[:200]]
    found = {
        name: statistics.mean(url in ask(title) for title, url in titles[:200])
        for name, ask in (("ours", ask_ours), ("bm25s", ask_other))
    }
    by_agents: dict[str, object] = {}
    for agents in AGENTS:
        latencies: dict[str, list[float]] = {"ours": [], "bm25s": []}
        seconds = dict.fromkeys(latencies, 0.0)
        for _ in range(ROUNDS):
            for name, ask in (("ours", ask_ours), ("bm25s", ask_other)):
                took, each = asyncio.run(load(ask, asked, agents))
                latencies[name] += each
                seconds[name] += took
        row: dict[str, dict[str, float]] = {}
        for name, each in latencies.items():
            ordered = sorted(each)
            row[name] = {
                "p50_ms": round(1e3 * ordered[len(ordered) // 2], 3),
                "p99_ms": round(1e3 * ordered[len(ordered) * 99 // 100], 3),
                "queries_per_s": round(len(ordered) / seconds[name], 1),
            }
        row["ours_over_bm25s"] = {key: round(row["ours"][key] / row["bm25s"][key], 3) for key in row["ours"]}
        by_agents[f"agents_{agents}"] = row
    figures = {
        "bm25s_index_s": round(indexed_s, 1),
        "overlap": round(statistics.mean(shared), 3),
        "found": {name: round(share, 3) for name, share in found.items()},
        **by_agents,
    }
    return figures, found["ours"] >= found["bm25s"]


def queries(corpus: Corpus) -> tuple[list[str], list[tuple[str, str]]]:
    """What agents ask, a third each: a question, a title, a title and a property; and titles with their addresses."""
    world = World(corpus.facts.pages, SEED)
    rng = random.Random(SEED)
    titles = []
    for _ in range(QUERIES):
        kind = rng.choice(KINDS)
        index = rng.randrange(world.counts[kind])
        titles.append((world.title(kind, index), world.url(kind, index)))
    questions = [row.question for row, _ in zip(corpus.questions(), range(QUERIES // 3), strict=False)]
    properties = ("year of birth", "designer", "length", "founder and seat", "who was the captain", "population")
    asked = [title for title, _ in titles[: QUERIES // 3]]
    asked += [f"{title} {rng.choice(properties)}" for title, _ in titles[: QUERIES // 3]]
    asked += questions
    rng.shuffle(asked)
    return asked, titles


async def load(ask: Callable[[str], object], asked: Sequence[str], agents: int) -> tuple[float, list[float]]:
    """Seconds in all and of each query, with `agents` asking at once."""
    loop = asyncio.get_running_loop()
    left = iter(asked * max(1, -(-2 * agents // len(asked))))
    latencies: list[float] = []

    async def agent() -> None:
        for query in left:
            begin = time.perf_counter()
            await loop.run_in_executor(pool, ask, query)
            latencies.append(time.perf_counter() - begin)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        begin = time.perf_counter()
        await asyncio.gather(*(agent() for _ in range(agents)))
        return time.perf_counter() - begin, latencies


if __name__ == "__main__":
    parser = tracked.options(__doc__ or "")
    parser.add_argument("--pages", type=int, nargs="+", default=[10_000, 100_000], help="sizes of the corpora")
    parser.add_argument("--corpora", type=Path, help="a folder with corpora that were built before (or will be kept)")
    sys.exit(main(parser.parse_args()))
