"""The questions asked: one row of the data set per prompt, and the instructions before them.

Under fixed load the text decides nothing (lengths and tools come from the plan); it is there so that prompts differ,
as they do in a real data set, and no engine answers one from another's cache.
"""

from dataclasses import dataclass

SYSTEM_PROMPT = (
    "You are a research assistant. Find out what is asked and answer it. Work in turns; in each turn call one tool:\n"
    "search_engine(query): search results with titles, addresses and excerpts.\n"
    "web_browser(url, question): what the page at that address says about the question.\n"
    "finish(answer): your answer. Call it once, at the end."
)

_ASKED = (
    "Which {subject} had {property} in {place}, and what did the {source} say about it in {year}?",
    "By how much did {property} of the {subject} in {place} change after {year}, according to the {source}?",
    "Who first reported {property} of the {subject} in {place}, and is it in the {source} of {year}?",
    "Compare {property} of the {subject} in {place} in {year} and ten years later, using the {source}.",
)
_SUBJECTS = ("suspension bridge", "public library", "tram network", "glacier", "river port", "observatory", "orchard")
_PROPERTIES = ("the largest span", "the highest yearly cost", "the fastest growth", "the longest closure")
_PLACES = ("Norway", "Portugal", "Hokkaido", "Patagonia", "Slovenia", "Tasmania", "Quebec", "Anatolia", "Wales")
_SOURCES = ("official statistics", "local press", "engineering survey", "parliamentary record", "annual report")
_YEARS = tuple(range(1921, 2016, 5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the data set: `prompt` is its index and the plan's `prompt`."""

    prompt: int
    question: str


def question(prompt: int) -> str:
    """The question of a row; rows have different ones."""
    rest = prompt
    chosen: list[str] = []
    for values in (_ASKED, _SUBJECTS, _PLACES, _YEARS, _PROPERTIES, _SOURCES):
        rest, index = divmod(rest, len(values))
        chosen.append(str(values[index]))
    asked, subject, place, year, property_, source = chosen
    text = asked.format(subject=subject, place=place, year=year, property=property_, source=source)
    return text if rest == 0 else f"{text} (case {rest + 1})"


def rows(prompts: int) -> list[Row]:
    """The data set: `prompts` rows in the order they are trained on."""
    return [Row(prompt=prompt, question=question(prompt)) for prompt in range(prompts)]
