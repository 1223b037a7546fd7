"""How far a run is, from its events as they come: what the display shows and what the watchdog judges."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from harness.nodes.clock import METRIC as CLOCK_METRIC
from harness.protocol.events import Bye, Event, Failure, Hello, Metric, Open, Span, Step, Trajectory
from harness.protocol.phases import Phase

RATE_WINDOW_NS = 30_000_000_000  # tokens per second are those of the last half minute
GENERATED = "generated_tokens"


@dataclass(frozen=True, slots=True)
class OpenPhase:
    """Something begun and not ended, and who said so."""

    source: str  # the event file
    role: str
    open: Open
    ahead_ns: int = 0  # of its host's clock, against this one's

    def describe(self, now_ns: int) -> str:
        """E.g. `train step 3 (policy_train), open for 312 s, controller of host-4711`."""
        event = self.open
        parts = [event.phase or event.native_name]
        if event.trajectory_id is not None:
            parts = ["trajectory", event.trajectory_id]
        if event.turn is not None:
            parts.append(f"turn {event.turn}")
        if event.step is not None:
            parts = [part for part in parts if part != "step"]  # not "step step 2"
            parts.append(f"step {event.step}")
        if event.native_name not in parts and event.native_name != "step":
            parts.append(f"({event.native_name})")
        who = f"{self.role} of {self.source.removesuffix('.jsonl')}"
        open_s = max(now_ns + self.ahead_ns - event.start_ns, 0) / 1e9  # below 0: begun on a virtual clock
        return f"{' '.join(parts)}, open for {open_s:.0f} s, {who}"


@dataclass(slots=True)
class Progress:
    """The state of a run. Feed it every event of every file, in any order between files."""

    steps_done: int = 0
    last_step: Step | None = None
    trajectories_done: int = 0
    trajectories_failed: int = 0
    working: bool = False  # the start-up is over: an event belonged to a step or a trajectory
    moved: int = 0  # events that show that something was done: spans, steps, trajectories, opens
    said_bye: bool = False  # the controller
    lost_events: int = 0
    damaged_lines: int = 0
    failures: list[Failure] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    gpu_uuids: dict[str, str] = field(default_factory=dict)  # uuid -> pool
    staleness: tuple[float, int] | None = None  # mean and max at_start of the last step's trajectories
    _roles: dict[str, str] = field(default_factory=dict)
    _hosts: dict[str, str] = field(default_factory=dict)  # by event file
    _offsets: dict[str, int] = field(default_factory=dict)  # by host
    _open: dict[tuple[str, int], Open] = field(default_factory=dict)
    _in_tool: dict[str, bool] = field(default_factory=dict)  # trajectory -> its last closed span was a turn
    _version_first: dict[str, int | None] = field(default_factory=dict)
    _tokens: deque[tuple[int, int]] = field(default_factory=deque)
    _first_turn_ns: int | None = None
    _step_ns: list[int] = field(default_factory=list)

    def add(self, source: str, event: Event | ValueError) -> None:
        """Takes in one event of the file `source`."""
        match event:
            case ValueError():
                self.damaged_lines += 1
            case Hello():
                self._roles[source] = event.role
                self._hosts[source] = event.host
                if event.role == "controller":
                    self.versions.update(event.versions)
                self.gpu_uuids.update(dict.fromkeys(event.gpu_uuids, event.pool or ""))
            case Open():
                self._open[source, event.id] = event
                self._moved(event.step, event.trajectory_id)
            case Span():
                self._close(source, event.open_id)
                self._moved(event.step, event.trajectory_id)
                self._add_span(event, self._ahead_ns(source))
            case Trajectory():
                self._close(source, event.open_id)
                self._moved(None, event.trajectory_id)
                self._in_tool.pop(event.trajectory_id, None)
                self._version_first[event.trajectory_id] = event.version_first
                self.trajectories_done += 1
                self.trajectories_failed += event.status in ("failed", "timeout")
            case Step():
                self._moved(event.step, None)
                self._add_step(event)
            case Failure():
                self.failures.append(event)
            case Metric() if event.name == CLOCK_METRIC:
                self._add_offset(event)
            case Bye():
                self.lost_events += event.lost_events
                self.said_bye |= self._roles.get(source) == "controller"

    def open_phases(self) -> list[OpenPhase]:
        """What is begun and not ended, the oldest first, trajectories last."""
        found = [
            OpenPhase(source, self._roles.get(source, "?"), event, self._ahead_ns(source))
            for (source, _), event in self._open.items()
        ]
        return sorted(found, key=lambda one: (one.open.trajectory_id is not None, one.open.start_ns - one.ahead_ns))

    @property
    def phase(self) -> str | None:
        """What the controller says it does now: its most recently begun open phase."""
        mine = [
            event
            for (source, _), event in self._open.items()
            if self._roles.get(source) == "controller" and event.phase is not None and event.trajectory_id is None
        ]
        return max(mine, key=lambda event: event.start_ns).phase if mine else None

    @property
    def in_flight(self) -> int:
        """Trajectories begun and not ended."""
        return sum(event.phase is None and event.trajectory_id is not None for event in self._open.values())

    @property
    def tools_waiting(self) -> int:
        """Estimate: live trajectories whose last ended span is a turn (tool spans are written at their end)."""
        return sum(self._in_tool.values())

    @property
    def median_step_s(self) -> float | None:
        """Median of the steps so far, end to end where there are two, else the first one's own length."""
        return median(self._step_ns) / 1e9 if self._step_ns else None

    def tokens_per_s(self, now_ns: int) -> float | None:
        """Generated tokens per second of the turns that ended in the last half minute (since the first turn's begin
        when that is less); None without any yet."""
        if self._first_turn_ns is None:
            return None
        if self._tokens:
            now_ns = max(now_ns, self._tokens[-1][0])  # a virtual clock is ahead
        window_ns = min(RATE_WINDOW_NS, now_ns - self._first_turn_ns)
        recent = [tokens for end_ns, tokens in self._tokens if end_ns > now_ns - window_ns]
        return sum(recent) / (window_ns / 1e9) if window_ns > 0 else None

    def _moved(self, step: int | None, trajectory_id: str | None) -> None:
        self.moved += 1
        self.working |= step is not None or trajectory_id is not None

    def _close(self, source: str, open_id: int | None) -> None:
        if open_id is not None:
            self._open.pop((source, open_id), None)

    def _ahead_ns(self, source: str) -> int:
        """How far the clock of that file's host is ahead of this one's, as last compared; 0 where it wasn't."""
        return self._offsets.get(self._hosts.get(source, ""), 0)

    def _add_offset(self, metric: Metric) -> None:
        host, offset = metric.labels.get("host"), metric.labels.get("offset_ns")
        if isinstance(host, str) and isinstance(offset, int):
            self._offsets[host] = offset

    def _add_span(self, span: Span, ahead_ns: int) -> None:
        if span.trajectory_id is None:
            return
        if span.phase == Phase.GENERATION:
            self._in_tool[span.trajectory_id] = True
            tokens = span.attributes.get(GENERATED)
            if isinstance(tokens, int):
                end_ns = span.end_ns - ahead_ns
                self._first_turn_ns = self._first_turn_ns or span.start_ns - ahead_ns
                self._tokens.append((end_ns, tokens))
                while self._tokens[0][0] < end_ns - 2 * RATE_WINDOW_NS:
                    self._tokens.popleft()
        elif span.phase in (Phase.TOOL, Phase.REWARD):
            self._in_tool[span.trajectory_id] = False

    def _add_step(self, step: Step) -> None:
        begin = self.last_step.end_ns if self.last_step is not None else step.start_ns
        self._step_ns.append(step.end_ns - begin)
        self.last_step = step
        self.steps_done += 1
        firsts = [self._version_first.pop(name, None) for name in step.trajectory_ids]
        stale = [step.policy_version - 1 - first for first in firsts if first is not None]
        self.staleness = (sum(stale) / len(stale), max(stale)) if stale else None
