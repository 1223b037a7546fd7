"""The questions' grammar: what is written can be read back, in one way, and facts are found where they stand."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.deep_research.question_grammar import (
    KINDS,
    NUMBER,
    RELATIONS,
    YEAR,
    Relation,
    find_fact,
    parse_question,
    relations_of,
    render_question,
    sentence,
)

TITLES = st.from_regex(r"[A-Z][a-zé]{2,8}( (&|of|Old|[A-Z][a-z]{1,6}|18[0-9]{2})){0,4}", fullmatch=True)


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, list[str], list[int]]:
    kind, names = draw(st.sampled_from(KINDS)), []
    hops = draw(st.integers(1, 8))
    for hop in range(hops):
        fits = [r for r in relations_of(kind) if (r.asked if hop == hops - 1 else r.phrases)]
        chosen = draw(st.sampled_from(fits))
        names.append(chosen.name)
        kind = chosen.target
    return draw(TITLES), names, draw(st.lists(st.integers(0, 7), min_size=hops, max_size=hops))


@given(chains())
def test_a_question_is_read_back_as_it_was_asked(chain: tuple[str, list[str], list[int]]) -> None:
    title, names, wordings = chain
    assert parse_question(render_question(title, names, wordings)) == (title, tuple(names))


@pytest.mark.parametrize("which", ["phrases", "asked"])
def test_no_two_phrases_can_be_taken_for_each_other(which: str) -> None:
    affixes = [pair for relation in RELATIONS.values() for pair in getattr(relation, which)]
    for (one, after_one), (other, after_other) in itertools.combinations(affixes, 2):
        if one == other:
            assert not after_one.endswith(after_other)
            assert not after_other.endswith(after_one)
        else:
            assert not one.startswith(other)
            assert not other.startswith(one)


def test_every_relation_leads_to_a_known_kind_and_can_be_asked() -> None:
    for relation in RELATIONS.values():
        assert relation.target in (*KINDS, YEAR, NUMBER)
        assert relation.asked
        assert bool(relation.phrases) == relation.leads_on


@pytest.mark.parametrize(
    "text", ["", "?", "What is love?", "Who designed ", "Who designed ?", "Who designed the moon?"]
)
def test_another_question_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"question|title"):
        parse_question(text)


def test_a_chain_that_does_not_hold_together_is_refused() -> None:
    with pytest.raises(ValueError, match="does not lead to"):
        parse_question("Who designed the mayor of Hal?")
    with pytest.raises(ValueError, match="relation of a town"):
        render_question("Hal Bridge", ["designer", "mayor"])
    with pytest.raises(ValueError, match="only end"):
        render_question("Hal Bridge", ["bridge_opened", "mayor"])


def _value(relation: Relation) -> str:
    return {YEAR: "1871", NUMBER: "12,345"}.get(relation.target, "Hal & Sons of Årby")


@pytest.mark.parametrize("name", RELATIONS)
def test_each_wording_of_a_fact_is_found_and_no_other_relation_in_it(name: str) -> None:
    relation = RELATIONS[name]
    for wording in range(len(relation.sentences)):
        text = sentence(relation, _value(relation), wording=wording, pronoun="She")
        page = f"Some words before, in 1911. {text} And 44 others after."
        assert find_fact(page, name) == _value(relation)
        assert [other for other in RELATIONS if find_fact(page, other) is not None] == [name]


def test_a_fact_is_found_in_markdown_and_across_lines() -> None:
    page = "It rained. The bridge was designed\nby [Ida Marie Hal](http://lives.test/biography/ida-1)."
    assert find_fact(page, "designer") == "Ida Marie Hal"


def test_what_a_page_says_of_another_subject_is_not_its_own_fact() -> None:
    assert find_fact("The designer given for Old Hal Bridge is Ida Marie Hal.", "designer") is None
    assert find_fact("Old Hal Bridge was designed by Ida Marie Hal.", "designer") is None
