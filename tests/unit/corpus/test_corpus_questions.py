"""Questions about generated worlds are answered by reading the pages, one hop after the other."""

import pytest
import trafilatura

from workloads.deep_research.corpus.build import Corpus, build_corpus, open_corpus
from workloads.deep_research.corpus.generate import World
from workloads.deep_research.corpus.questions import questions
from workloads.deep_research.question_grammar import RELATIONS, find_fact, parse_question


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpora") / "c"
    build_corpus(folder, pages=600, seed=11)
    return open_corpus(folder)


def test_questions_are_different_and_have_one_to_eight_hops(corpus: Corpus) -> None:
    rows = list(corpus.questions())
    assert len(rows) == corpus.facts.questions > 1_000
    assert len({row.question for row in rows}) == len(rows)
    assert [row.prompt for row in rows] == list(range(len(rows)))
    assert {row.hops for row in rows} == set(range(1, 9))
    assert rows[:40] == list(questions(World(600, 11), 40))


def _answer(corpus: Corpus, question: str) -> tuple[str | None, list[str]]:
    """The answer by reading: start from the page with the title asked about, follow what each page states."""
    title, names = parse_question(question)
    path = []
    for name in names:
        [url] = {hit.url for hit in corpus.search(title, 30) if hit.title == title}
        path.append(url)
        page = corpus.page(url)
        assert page is not None
        value = find_fact(trafilatura.extract(page.html, url=url) or "", name)
        if value is None:
            return None, path
        title = value
    return title, path


def test_reading_the_pages_answers_every_question(corpus: Corpus) -> None:
    hops = set()
    for row in list(corpus.questions())[:64]:
        answer, path = _answer(corpus, row.question)
        assert answer in row.answers, row
        assert path == row.extra["path"], row
        assert path[0] == row.start_url
        hops.add(row.hops)
    assert hops == set(range(1, 9))


def test_numbers_may_be_answered_with_and_without_commas_and_unit(corpus: Corpus) -> None:
    rows = [row for row in corpus.questions() if RELATIONS[row.extra["relations"][-1]].target == "number"]  # type: ignore[index]
    large = next(row for row in rows if "," in row.answers[0])
    assert large.answers[1] == large.answers[0].replace(",", "")
    assert len(large.answers) == 4
