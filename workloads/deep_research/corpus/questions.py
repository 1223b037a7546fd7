"""Multi-hop questions about a generated world, each with one answer by construction.

A question follows relations from a named subject, and every relation has exactly one value for every subject (and
titles are unique), so there is one answer. No page is visited twice. See question_grammar for the wording.
"""

import random
from collections.abc import Iterator

from workloads.deep_research.corpus.generate import Fact, World
from workloads.deep_research.dataset import Row
from workloads.deep_research.question_grammar import KINDS, NUMBER, relations_of, render_question

MOST_HOPS = 8
_ATTEMPTS = 50


def questions(world: World, count: int) -> Iterator[Row]:
    """`count` different questions with 1 to 8 hops in turn; fewer where the world hasn't so many.

    A row's `extra`: `path`, the addresses of the pages read, in order, the answer on the last; `relations`; `start`,
    the first page's title.
    """
    asked: set[str] = set()
    for number in range(count):
        for attempt in range(_ATTEMPTS):
            rng = random.Random(f"question {world.pages} {world.seed} {number} {attempt}")
            row = _question(world, len(asked), 1 + number % MOST_HOPS, rng)
            if row is not None and row.question not in asked:
                asked.add(row.question)
                yield row
                break


def _question(world: World, prompt: int, hops: int, rng: random.Random) -> Row | None:
    """A question of `hops` hops, or None where the walk came back to a page it had been on."""
    kind = KINDS[int(rng.random() * len(KINDS))]
    index = int(rng.random() * world.counts[kind])
    start, path, taken, visited = world.title(kind, index), [], [], set()
    fact: Fact | None = None
    for hop in range(hops):
        if (kind, index) in visited:
            return None
        visited.add((kind, index))
        path.append(world.url(kind, index))
        last = hop == hops - 1
        fits = [r for r in relations_of(kind) if (r.asked if last else r.phrases)]
        fact = world.fact(kind, index, fits[int(rng.random() * len(fits))].name)
        taken.append(fact.relation.name)
        if fact.target is not None:
            kind, index = fact.target
    assert fact is not None
    wordings = [int(rng.random() * 8) for _ in taken]
    return Row(
        prompt=prompt,
        question=render_question(start, taken, wordings),
        answers=accepted(fact),
        hops=hops,
        start_url=path[0],
        extra={"path": path, "relations": taken, "start": start},
    )


def accepted(fact: Fact) -> tuple[str, ...]:
    """The answers that are right, as the page writes it first: numbers also without commas, and with their unit."""
    if fact.relation.target != NUMBER:
        return (fact.value,)
    plain, unit = fact.value.replace(",", ""), fact.relation.unit
    return tuple(dict.fromkeys((fact.value, plain, f"{fact.value} {unit}", f"{plain} {unit}")))
