"""robots.txt by RFC 9309: the longest matching rule wins, `*` and `$` are understood, groups of a name are joined.

`urllib.robotparser` takes the first rule that matches and knows no wildcards, so it opens pages that are closed and
closes pages that are open.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote

MAX_BYTES = 512 * 1024  # the RFC asks for at least 500 KiB
_SAFE = "/?&=:@!$'()*+,;~-._[]%"


@dataclass(frozen=True, slots=True)
class Rules:
    """What one host asks of one agent."""

    rules: tuple[tuple[str, bool], ...] = ()  # (pattern, allowed)
    crawl_delay_s: float | None = None
    closed: str | None = None  # why nothing may be opened, whatever the path

    def allows(self, path: str) -> bool:
        """Whether a path (with its query) may be opened."""
        if self.closed is not None:
            return False
        target = _normal(path)
        best: tuple[int, bool] = (-1, True)
        for pattern, allowed in self.rules:
            if _matches(pattern, target):
                best = max(best, (len(pattern), allowed))  # as long: allow wins (RFC 9309, 2.2.2)
        return best[1]


OPEN = Rules()


def parse(text: str, agent: str) -> Rules:
    """The rules for an agent's product token (compared without case); those for `*` if none name it."""
    named: list[tuple[str, bool]] = []
    general: list[tuple[str, bool]] = []
    delays: dict[bool, float] = {}
    is_named = False
    groups: list[bool] = []  # for each agent line of the group being read: is it ours (True) or `*` (False)
    in_agents = False
    for line in text.removeprefix("\ufeff").splitlines():
        name, colon, value = line.split("#", 1)[0].partition(":")
        if not colon:
            continue
        name, value = name.strip().lower(), value.strip()
        if name == "user-agent":
            if not in_agents:
                groups = []
            in_agents = True
            token = value.split("/", 1)[0].strip().lower()
            if token == "*":
                groups.append(False)
            elif token == agent.lower():
                groups.append(True)
                is_named = True
            continue
        if name in ("allow", "disallow"):
            in_agents = False
            if value:
                for ours in set(groups):
                    (named if ours else general).append((_normal(value), name == "allow"))
        elif name == "crawl-delay":
            in_agents = False
            for ours in set(groups):
                if (delay := _seconds(value)) is not None:
                    delays.setdefault(ours, delay)
    return Rules(rules=tuple(named if is_named else general), crawl_delay_s=delays.get(is_named))


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _normal(path: str) -> str:
    """One form of a path: what need not be escaped is not, what must be is; `%2A` stays apart from `*`."""
    escaped = quote(path, safe=_SAFE, errors="replace")
    return re.sub("%[0-9a-fA-F]{2}", _unreserved, escaped)


def _unreserved(escape: re.Match[str]) -> str:
    character = chr(int(escape[0][1:], 16))
    return character if character.isascii() and (character.isalnum() or character in "-._~") else escape[0].upper()


def _matches(pattern: str, path: str) -> bool:
    """Whether a pattern with `*` and a closing `$` matches from the path's start; linear in both."""
    to_end = pattern.endswith("$")
    parts = (pattern[:-1] if to_end else pattern).split("*")
    if not path.startswith(parts[0]):
        return False
    at = len(parts[0])
    for part in parts[1:-1]:
        at = path.find(part, at)
        if at < 0:
            return False
        at += len(part)
    if len(parts) == 1:
        return not to_end or at == len(path)
    last = parts[-1]
    if to_end:
        return path.endswith(last) and len(path) - len(last) >= at
    return path.find(last, at) >= 0
