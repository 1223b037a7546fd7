"""What is wrong with a record itself, gathered while it is read."""

SHOWN = 5  # cases named in the one failure row that a kind of defect gets


class Defects:
    """What is wrong with the record itself: each kind becomes one failure row, however often it came."""

    def __init__(self) -> None:
        self._shown: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def add(self, kind: str, what: str) -> None:
        """Notes one case."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        shown = self._shown.setdefault(kind, [])
        if len(shown) < SHOWN:
            shown.append(what)

    def rows(self) -> list[tuple[str, str]]:
        """(kind, message) of each, sorted by kind."""
        rows = []
        for kind in sorted(self._shown):
            left = self._counts[kind] - len(self._shown[kind])
            rows.append((kind, "; ".join(self._shown[kind]) + (f"; and {left} more" if left else "")))
        return rows
