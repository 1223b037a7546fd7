"""What of a long answer is shown."""

from hypothesis import given
from hypothesis import strategies as st

from workloads.deep_research.excerpt import excerpt
from workloads.deep_research.tools import Observation

PAGE = Observation(
    text="Hal\nhttp://hal.test/\n\n"
    + "The weather was fine. " * 40
    + "The bridge was designed by Ada Holm. It has a designer. "
    + "The weather was fine. " * 40
    + "\n\nLinks:\n- Ada Holm: http://lives.test/ada\n- Weather: http://sky.test/",
    links=(("Ada Holm", "http://lives.test/ada"), ("Fog", "http://sky.test/")),
)


def test_a_short_answer_is_shown_whole() -> None:
    assert excerpt(PAGE, "?", len(PAGE.text)) == PAGE.text


def test_head_passages_and_their_links_are_shown() -> None:
    shown = excerpt(PAGE, "Who designed the bridge?", 300)
    assert shown.startswith("Hal\nhttp://hal.test/\n")
    assert "The bridge was designed by Ada Holm." in shown
    assert "- Ada Holm: http://lives.test/ada" in shown
    assert "sky.test" not in shown


def test_rare_words_count_more() -> None:
    shown = excerpt(PAGE, "weather fine designed", 160)
    assert "designed by Ada" in shown


def test_without_a_shared_word_the_beginning_is_shown() -> None:
    assert excerpt(PAGE, "xyz", 100) == PAGE.text[:100]


@given(st.text(), st.text(), st.integers(0, 300))
def test_it_is_never_longer_than_allowed(text: str, question: str, characters: int) -> None:
    answer = Observation(text=text, links=((text[:5], "http://a.test/"),))
    shown = excerpt(answer, question, characters)
    assert len(shown) <= characters
