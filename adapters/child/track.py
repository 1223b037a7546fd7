"""The train track: turns a framework's own timers into spans with a begin and an end.

A framework times blocks that nest. Only the outermost block that names a phase becomes a leaf span; what nests
inside a leaf is recorded as a container, so that no second is covered twice.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from harness.protocol.events import Scalar
from harness.protocol.phases import Phase
from harness.protocol.recorder import OpenSpan, Recorder


class TapError(RuntimeError):
    """A patch point of the framework is gone: the pinned version is not the one that the adapter was written for."""


def require(owner: object, name: str) -> object:
    """`getattr` that names what is missing.

    Raises:
        TapError: `owner` has no attribute `name`.
    """
    try:
        return getattr(owner, name)
    except AttributeError:
        where = getattr(owner, "__name__", None) or type(owner).__name__
        raise TapError(
            f"patch point {where}.{name} is gone: this adapter's pins and the installed framework differ "
            "(see `bench env check`)"
        ) from None


@dataclass
class _Block:
    span: OpenSpan
    leaf: bool
    attributes: dict[str, Scalar] = field(default_factory=dict)


class Track:
    """The blocks of one controller, in the order they nest. Blocks are entered and left by one logical thread."""

    def __init__(
        self,
        recorder: Recorder,
        pool: str,
        phases: Mapping[str, Phase | None],
        step: Callable[[], int | None],
    ) -> None:
        """`phases` maps native timers to phases (None: a container); `step` gives the step being worked on."""
        self.recorder = recorder
        self.pool = pool
        self.phases = phases
        self.step = step
        self.unknown: set[str] = set()
        self.began: dict[str, int] = {}  # native timer -> monotonic ns of its first begin
        self._stack: list[_Block] = []
        self._lock = threading.Lock()

    def enter(self, native: str) -> None:
        """A native timer began."""
        if native not in self.phases:
            self.unknown.add(native)
        phase = self.phases.get(native)
        with self._lock:
            leaf = phase is not None and not any(block.leaf for block in self._stack)
            span = self.recorder.open(
                phase.value if phase is not None else None, native, pool=self.pool, unit="train", step=self.step()
            )
            self.began.setdefault(native, span.start_ns)
            self._stack.append(_Block(span, leaf))

    def leave(self, native: str, **attributes: Scalar) -> None:
        """The innermost native timer of that name ended. One that never began is ignored."""
        with self._lock:
            for index in range(len(self._stack) - 1, -1, -1):
                if self._stack[index].span.native_name == native:
                    block = self._stack.pop(index)
                    break
            else:
                return
        block.attributes.update(attributes)
        self.recorder.close(block.span, container=not block.leaf, attributes=block.attributes or None)

    def note(self, native: str, **attributes: Scalar) -> None:
        """Adds attributes to the innermost open block of that name."""
        with self._lock:
            for block in reversed(self._stack):
                if block.span.native_name == native:
                    block.attributes.update(attributes)
                    return

    @contextmanager
    def block(self, native: str, **attributes: Scalar) -> Iterator[None]:
        """A named framework function, wrapped because no native timer covers it."""
        self.enter(native)
        try:
            yield
        finally:
            self.leave(native, **attributes)
