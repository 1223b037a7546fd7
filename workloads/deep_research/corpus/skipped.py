"""The files below a folder that became no page of a corpus, and why: counted, and the first of each kind named."""

from dataclasses import dataclass, field

MOST_NAMED = 5  # of each reason


@dataclass(slots=True)
class Skipped:
    """Filled while a folder is read; holds a few names for each reason, however many files there are."""

    counts: dict[str, int] = field(default_factory=dict)  # reason -> files
    named: dict[str, list[str]] = field(default_factory=dict)  # reason -> the first of them

    def add(self, name: str, why: str) -> None:
        """A file was left out."""
        self.counts[why] = self.counts.get(why, 0) + 1
        first = self.named.setdefault(why, [])
        if len(first) < MOST_NAMED:
            first.append(name)

    @property
    def total(self) -> int:
        """Files left out."""
        return sum(self.counts.values())

    def lines(self) -> list[str]:
        """One line for each reason, e.g. `2 files: not .html, .md or .txt: a.pdf, b.png`; none where nothing was."""
        return [f"{count:,} file{'s' * (count != 1)}: {why}: {self._names(why)}" for why, count in self.counts.items()]

    def _names(self, why: str) -> str:
        first = self.named[why]
        more = self.counts[why] - len(first)
        shown = [name if name.isprintable() else repr(name) for name in first]
        return ", ".join(shown) + (f" and {more:,} more" if more else "")
