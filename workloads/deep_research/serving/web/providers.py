"""What a search provider is, and how those that a run uses are found and given their keys.

A package adds a provider of its own by an entry point in the group `bench.search_providers` whose name is the
provider's and whose object is a `ProviderType`.
"""

import os
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import quote

from harness.protocol.errors import EnvError, SpecError
from workloads.deep_research.serving.rendering import Hit
from workloads.deep_research.serving.web.limiter import Rate

if TYPE_CHECKING:
    import aiohttp

GROUP = "bench.search_providers"
BUILT_IN = ("searxng", "serper", "tavily", "brave")  # the order in which they are asked where none is named
HIDDEN = "[key]"


class Key:
    """What a provider knows its customer by. It shows itself to no `print`, log or traceback."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The key itself, for the request that carries it and nothing else."""
        return self._value

    def __repr__(self) -> str:
        return "Key(hidden)"

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("a key is not written anywhere")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAnswer:
    """What a provider found."""

    hits: tuple[Hit, ...]  # at most as many as were asked for, the best first
    size: int | None = None  # bytes of the answer as it came over the wire
    http_status: int | None = None
    credits: float | None = None  # what the provider says the search cost, in its own credits
    pause_s: float | None = None  # how long the provider says to ask nothing more


class ProviderError(Exception):
    """A provider gave no results.

    Args:
        kind: `again` (busy or broken: asking again may help), `key` (the key is not accepted), `quota` (nothing is
            left of what was paid for) or `request` (this question is not taken).
        message: one line; keys in it are hidden by whoever shows it.
        retry_after_s: how long the provider says to wait.
    """

    def __init__(
        self, kind: str, message: str, *, http_status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.http_status = http_status
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return self.message


@runtime_checkable
class Provider(Protocol):
    """A search provider."""

    name: str
    key_variable: str  # the environment variable that has its key (or, for one without keys, its address)
    rate: Rate  # how fast it may be asked unless the user says otherwise

    async def search(self, session: "aiohttp.ClientSession", query: str, k: int) -> ProviderAnswer:
        """At most `k` results. One request, without repeats: limits, time-outs and back-off are the caller's.

        The session doesn't unpack answers by itself: `engines.ask` does, with a limit.

        Raises:
            ProviderError: no results.
        """

    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""


class ProviderType(Protocol):
    """What an entry point names: usually a class."""

    key_variable: str

    def __call__(self, key: Key) -> Provider:
        """A provider that uses this key.

        Raises:
            ValueError: it can't be used as it is (said without showing it).
        """


def types() -> dict[str, ProviderType]:
    """Every provider by name.

    Raises:
        EnvError: the libraries that they need are missing, or a package's own provider can't be loaded.
    """
    try:
        from workloads.deep_research.serving.web import engines
    except ImportError as error:
        raise EnvError(f"--tools web needs {error.name}: pip install 'agentic-rl-bench[tools]'") from error
    found: dict[str, ProviderType] = dict(engines.TYPES)
    for entry in entry_points(group=GROUP):
        if entry.name in found:
            raise EnvError(f"two search providers are called {entry.name!r}: uninstall one of them ({entry.value})")
        try:
            found[entry.name] = entry.load()
        except Exception as error:  # any package's code runs here
            raise EnvError(
                f"the search provider {entry.name!r} ({entry.value}) can't be loaded: {type(error).__name__}: {error}"
            ) from error
    return found


def chosen(names: Sequence[str], environ: Mapping[str, str] | None = None) -> tuple[Provider, ...]:
    """The providers named, in that order; without names every one whose key is set.

    Raises:
        SpecError: an unknown name, a name twice, a key that is missing or can't be one, or no key at all.
        EnvError: as `types`.
    """
    environ = os.environ if environ is None else environ
    known = types()
    for name in names:
        if name not in known:
            raise SpecError(f"no search provider {name!r}: there are {', '.join(known)}")
        if names.count(name) > 1:
            raise SpecError(f"the search provider {name!r} is named twice")
    asked = names or [name for name in known if environ.get(known[name].key_variable, "").strip()]
    if not asked:
        variables = ", ".join(f"{kind.key_variable} ({name})" for name, kind in known.items())
        raise SpecError(f"--tools web has no search provider: set one of {variables}")
    return tuple(_made(name, known[name], environ) for name in asked)


def _made(name: str, kind: ProviderType, environ: Mapping[str, str]) -> Provider:
    value = environ.get(kind.key_variable, "").strip()
    if not value:
        raise SpecError(f"the search provider {name!r} needs {kind.key_variable} in the environment")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise SpecError(f"{kind.key_variable} has characters that no key has: look at how it was set")
    try:
        return kind(Key(value))
    except ValueError as error:
        raise SpecError(f"{kind.key_variable}: {str(error).replace(value, HIDDEN)}") from None


class Scrubber:
    """Takes keys out of texts, in the forms in which they could be written."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= 4 for form in _forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without keys."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"Scrubber({len(self._forms)} forms)"


def _forms(secret: str) -> tuple[str, ...]:
    return (secret, quote(secret), quote(secret, safe=""), b64encode(secret.encode()).decode())
