"""Prometheus' text exposition format (version 0.0.4), as far as an exporter of gauges and counters uses it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_NAME = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: the metric's name, its labels, and its number as it was written."""

    name: str
    labels: dict[str, str]
    text: str


@dataclass(slots=True)
class Exposition:
    """What could be read of a page, and the lines that could not."""

    samples: list[Sample] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def parse(page: str) -> Exposition:
    """The samples of a page. A line that is cut or no sample is kept in `bad` and costs only itself.

    The last line counts only if a line end follows it: a page that was cut could have lost digits of it.
    """
    found = Exposition()
    lines = page.split("\n")
    for line in lines[:-1]:
        _take(line, found)
    if lines[-1].strip():
        found.bad.append(lines[-1][:200])
    return found


def _take(line: str, found: Exposition) -> None:
    stripped = line.strip()
    if not stripped or stripped.startswith("#"):
        return
    sample = _sample(stripped)
    if sample is None:
        found.bad.append(stripped[:200])
    else:
        found.samples.append(sample)


def _sample(line: str) -> Sample | None:
    name = _NAME.match(line)
    if name is None:
        return None
    rest, labels = line[name.end() :], {}
    if rest.startswith("{"):
        place = 1
        for key, value, end in _labels(rest):
            labels[key], place = value, end
        if rest[place : place + 1] != "}":
            return None
        rest = rest[place + 1 :]
    words = rest.split()
    if not 1 <= len(words) <= 2:  # the number, and perhaps a time
        return None
    return Sample(name[1], labels, words[0])


def _labels(text: str) -> Iterator[tuple[str, str, int]]:
    place = 1
    while match := _LABEL.match(text, place):
        place = match.end()
        yield match[1], _ESCAPE.sub(lambda one: "\n" if one[1] == "n" else one[1], match[2]), place
