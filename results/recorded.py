"""The events of a run as rows: each event to the table it belongs to, typed attributes pulled out of spans."""

from collections.abc import Collection, Mapping
from operator import itemgetter

import pyarrow as pa

from harness.protocol import PROTOCOL_VERSION
from harness.protocol.events import Event, Failure, Gate, Metric, Open, Scalar, Span, Step, Trajectory
from harness.protocol.phases import SYNC_ATTRIBUTES, TOOL_ATTRIBUTES, TURN_ATTRIBUTES, Phase
from results import bulk
from results.attributes import odd, to_json
from results.defects import Defects
from results.event_parts import Part, parts
from results.joins import RECORDED
from results.reading import EventFile, Process, checked
from results.rows import Rows

RECORDING = "recording"  # boundary of the failures that the collection itself finds
SAME_CLOCK_NS = 50_000_000  # hosts whose anchors differ by less share a clock, or nearly: wall clocks are set by NTP
# Line, number of an open, and what it opened (as an event, or its line); None: it ended.
Changes = list[tuple[int, int, Open | bytes | None]]
Opens = dict[tuple[int, int], Open | bytes]

# What the tables are sorted by; rows of one instant stay in the order of the files' names and their lines.
SORT_KEYS: Mapping[str, str | None] = {
    "processes": None,
    "spans": "start_ns",
    "steps": "start_ns",
    "turns": "start_ns",
    "tool_calls": "start_ns",
    "weight_syncs": "start_ns",
    "gates": "mono_ns",
    "probes": "mono_ns",
    "opens": "start_ns",
}

# Columns of the tables with the most rows that hold few different texts: these come dictionary-encoded.
_FEW = ("host", "role", "phase", "native_name", "pool", "unit", "engine", "stop_reason", "tool", "status")
FEW_TEXTS: Mapping[str, tuple[str, ...]] = dict.fromkeys(("spans", "turns", "tool_calls"), (*_FEW, "attributes_json"))


class Recorded:
    """The rows of one run, growing file by file."""

    def __init__(self, run_id: str, defects: Defects, *, compared: Collection[str] = ()) -> None:
        """`compared`: hosts whose events come with their times on the controller's axis."""
        self.run_id = run_id
        self.compared = compared
        self.defects = defects
        self.rows = {name: Rows(name, texts=FEW_TEXTS.get(name, ())) for name in SORT_KEYS}
        self.failures = Rows("failures")
        self.trajectories = Rows("trajectories", RECORDED)
        self.closed: set[str] = set()  # trajectories that have an end
        self._processes: list[Process] = []
        self._opens: list[tuple[Process, Open]] = []
        self._before = 0  # lines of the files before

    def take_file(self, file: EventFile) -> None:
        """Reads one events file to its end."""
        opens: Opens = {}
        for part in parts(file, self.compared):
            self._take_part(file, part, opens)
        for (number, _), event in opens.items():
            self._opens.append((file.processes[number - 1], _opened(event)))
        for process in file.processes:
            self._end(process)
        self._processes += file.processes
        self._before += file.lines
        if file.damaged:
            share = f"{file.damaged} of {file.lines} lines cut or damaged"
            self.add_failure("damaged_lines", f"events/{file.path.name}: {share}, first {file.first_damage}")

    def _take_part(self, file: EventFile, part: Part, opens: Opens) -> None:
        """Takes lines of one process; `opens` is what it began and did not end, by its number and that of the open."""
        changes: Changes = []  # line, number of an open, None: it ended
        if part.hello:  # before what is read together: that is of this process
            self._take_line(file, *part.alone.pop(0), changes)
        for found, lines in part.read:
            self._take_bulk(file.process(), found, lines, changes)
        for number, line in part.alone:
            self._take_line(file, number, line, changes)
        process = len(file.processes)
        for _, open_id, event in sorted(changes, key=itemgetter(0)):
            if event is None:
                opens.pop((process, open_id), None)
            else:
                opens[process, open_id] = event

    def _take_line(self, file: EventFile, number: int, line: bytes, changes: Changes) -> None:
        found = file.line(line.removesuffix(b"\n"), number)
        if found is not None:
            for name in ("spans", "turns", "tool_calls", "weight_syncs"):
                self.rows[name].at = self._before + number
            self.trajectories.at = self._before + number
            self._take(found[0], number, found[1], changes)

    def _take_bulk(self, process: Process, found: bulk.Bulk, lines: pa.LargeBinaryArray, changes: Changes) -> None:
        process.saw_all(len(lines), *found.times())
        numbers = found.lines.tolist()
        columns = bulk.columns_of(found)
        where = {"host": process.host, "pid": process.pid, "role": process.role, "attributes_json": "{}"}
        order = found.lines + self._before
        if found.kind is bulk.OPENS:
            changes += zip(numbers, columns["id"].to_pylist(), lines.to_pylist(), strict=True)
            return
        if columns["open_id"].null_count < len(lines):
            ended = zip(numbers, columns["open_id"].to_pylist(), strict=True)
            changes += [(number, open_id, None) for number, open_id in ended if open_id is not None]
        if found.kind is bulk.TRAJECTORIES:
            self.closed.update(columns["trajectory_id"].to_pylist())
            self.trajectories.put({**columns, **where}, order)
            return
        # Once for both tables.
        names = [name for name in FEW_TEXTS["spans"] if name in found.table.column_names]
        few = {name: columns[name].combine_chunks().dictionary_encode() for name in names}
        columns = {**columns, **few}
        self.rows["spans"].put({**columns, **where}, order)
        if found.kind is not bulk.SPANS:
            self.rows[found.kind.name].put({**columns, **where}, order)

    def finish(self) -> dict[str, pa.Table]:
        """The tables that need no joining, once every file was taken."""
        self.trajectories.at = None
        for process, event in self._opens:
            of_trajectory = event.phase is None and event.turn is None  # and not of something within one
            if not of_trajectory or event.trajectory_id not in self.closed:
                self._add_open(process, event)
        self._check_clocks()
        return {name: rows.table(SORT_KEYS[name]) for name, rows in self.rows.items()}

    def add_failure(self, kind: str, message: str) -> None:
        """A failure row of the collection itself."""
        self.failures.add(None, None, None, RECORDING, kind, message)

    def _take(self, process: Process, number: int, event: Event, changes: Changes) -> None:
        where = (process.host, process.pid)
        match event:
            case Span():
                changes.append((number, event.open_id or 0, None))
                self._span(process, event)
            case Open():
                changes.append((number, event.id, event))
            case Trajectory():
                changes.append((number, event.open_id or 0, None))
                self._trajectory(process, event)
            case Step():
                self.rows["steps"].add(
                    *where,
                    event.step,
                    event.policy_version,
                    event.policy_version - 1,
                    event.start_ns,
                    event.end_ns,
                    event.trajectory_ids,
                    event.dropped_ids,
                    len(event.trajectory_ids),
                    event.loss_tokens,
                    event.processed_tokens,
                    _float(event.reward_mean),
                    _float(event.grad_norm),
                    event.recorder_ns,
                )
            case Metric():
                values = None if event.values is None else [float(value) for value in event.values]
                labels = to_json(event.labels)
                self.rows["probes"].add(
                    *where, event.name, event.mono_ns, event.step, _float(event.value), values, event.unit, labels
                )
            case Gate():
                self.rows["gates"].add(*where, event.mono_ns, event.open, event.why, event.in_flight, event.cap)
            case Failure():
                self.failures.add(*where, event.mono_ns, event.boundary, event.type, event.message)

    def _span(self, process: Process, event: Span) -> None:
        typed: tuple[str, ...] = ()
        if event.phase == Phase.GENERATION and event.trajectory_id is not None:
            self._turn(process, event)
            typed = TURN_ATTRIBUTES
        elif event.phase == Phase.TOOL and event.trajectory_id is not None:
            self._tool_call(process, event)
            typed = TOOL_ATTRIBUTES
        elif event.phase == Phase.WEIGHT_SYNC and self._int(event, "version") is not None:
            self._weight_sync(process, event)
            typed = SYNC_ATTRIBUTES
        rest = {name: value for name, value in event.attributes.items() if name not in typed or odd(name, value)}
        self.rows["spans"].add(
            process.host,
            process.pid,
            process.role,
            event.phase,
            event.native_name,
            event.pool,
            event.unit,
            event.step,
            event.trajectory_id,
            event.turn,
            event.container,
            event.start_ns,
            event.end_ns,
            event.open_id,
            to_json(rest),
        )

    def _turn(self, process: Process, event: Span) -> None:
        self.rows["turns"].add(
            process.host,
            process.pid,
            event.trajectory_id,
            event.turn,
            self._text(event, "engine"),
            event.pool,
            event.unit,
            self._int(event, "submitted_ns"),
            event.start_ns,
            event.end_ns,
            self._int(event, "prompt_tokens"),
            self._int(event, "generated_tokens"),
            self._int(event, "version_start"),
            self._int(event, "version_end"),
            self._text(event, "stop_reason"),
            self._bool(event, "cache_break"),
        )

    def _tool_call(self, process: Process, event: Span) -> None:
        self.rows["tool_calls"].add(
            process.host,
            process.pid,
            event.trajectory_id,
            event.turn,
            self._text(event, "tool"),
            self._int(event, "call"),
            self._text(event, "argument"),
            event.start_ns,
            event.end_ns,
            self._int(event, "planned_ns"),
            self._text(event, "status"),
            self._int(event, "observation_tokens"),
            self._int(event, "observation_bytes"),
            self._int(event, "http_status"),
            self._int(event, "wire_bytes"),
            self._int(event, "served_ns"),
            self._text(event, "detail"),
        )

    def _weight_sync(self, process: Process, event: Span) -> None:
        self.rows["weight_syncs"].add(
            process.host,
            process.pid,
            event.step,
            self._int(event, "version"),
            self._text(event, "engine"),
            event.pool,
            event.unit,
            event.start_ns,
            event.end_ns,
            self._int(event, "pause_ns"),
            self._int(event, "transfer_ns"),
            self._int(event, "resume_ns"),
            self._int(event, "bytes"),
        )

    def _trajectory(self, process: Process, event: Trajectory) -> None:
        self.closed.add(event.trajectory_id)
        self.trajectories.add(
            process.host,
            process.pid,
            event.trajectory_id,
            event.group_id,
            event.prompt,
            event.sample,
            event.attempt,
            event.status,
            event.start_ns,
            event.end_ns,
            event.turns,
            event.tool_calls,
            event.tool_ns,
            event.prompt_tokens,
            event.generated_tokens,
            event.observation_tokens,
            event.version_scheduled,
            event.version_first,
            event.version_last,
            _float(event.reward),
            event.message,
            event.loss_tokens,
            event.sequence_tokens,
        )

    def _add_open(self, process: Process, event: Open) -> None:
        self.rows["opens"].add(
            process.host,
            process.pid,
            process.role,
            event.id,
            event.start_ns,
            event.phase,
            event.native_name,
            event.pool,
            event.unit,
            event.step,
            event.trajectory_id,
            event.turn,
        )

    def _end(self, process: Process) -> None:
        hello, bye = process.hello, process.bye
        self.rows["processes"].add(
            process.file,
            process.host,
            process.pid,
            process.role,
            hello.protocol if hello else None,
            hello.run_id if hello else None,
            hello.pool if hello else None,
            hello.gpu_uuids if hello else (),
            to_json(hello.versions if hello else {}),
            hello.wall_ns if hello else None,
            hello.mono_ns if hello else None,
            hello.wall_ns - hello.mono_ns if hello else None,
            process.first_ns,
            process.last_ns,
            bye is not None,
            bye.mono_ns if bye else None,
            bye.wall_ns if bye else None,
            process.events,
            bye.events if bye else None,
            bye.lost_events if bye else None,
            bye.recorder_ns if bye else None,
            process.damaged,
        )
        if hello is None:
            self.defects.add("no_hello", f"events/{process.file} does not begin with the process's first line")
        elif hello.protocol > PROTOCOL_VERSION:
            self.defects.add("newer_protocol", f"events/{process.file} speaks protocol {hello.protocol}")
        if hello is not None and hello.run_id != self.run_id:
            self.defects.add("foreign_run", f"events/{process.file} says it belongs to run {hello.run_id}")
        if bye is not None and bye.lost_events:
            self.defects.add("lost_events", f"events/{process.file}: {bye.lost_events} events could not be written")
        if bye is not None and process.events < bye.events + 1:  # its Bye is one more
            missing = bye.events + 1 - process.events
            self.defects.add("missing_events", f"events/{process.file}: {missing} events it wrote are not there")

    def _check_clocks(self) -> None:
        anchors: dict[str, int] = {}
        for process in self._processes:
            if process.hello is not None and process.host not in self.compared:
                anchors.setdefault(process.host, process.hello.wall_ns - process.hello.mono_ns)
        if anchors and max(anchors.values()) - min(anchors.values()) > SAME_CLOCK_NS:
            hosts = ", ".join(sorted(anchors))
            self.defects.add(
                "several_clocks", f"times of {hosts} are of different clocks: see processes.wall_minus_mono_ns"
            )

    def _int(self, event: Span, name: str) -> int | None:
        value = self._attribute(event, name)
        return value if isinstance(value, int) else None

    def _text(self, event: Span, name: str) -> str | None:
        value = self._attribute(event, name)
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None

    def _bool(self, event: Span, name: str) -> bool | None:
        value = self._attribute(event, name)
        return value if isinstance(value, bool) else None

    def _attribute(self, event: Span, name: str) -> Scalar:
        """The value of an attribute that has a column; one of the wrong type is told, and unknown."""
        value = event.attributes.get(name)
        if value is None or not odd(name, value):
            return value
        self.defects.add("bad_attribute", f"{event.phase} span {event.native_name!r}: {name} = {str(value)[:40]!r}")
        return None


def _opened(event: Open | bytes) -> Open:
    if isinstance(event, Open):
        return event
    found = checked(event)
    assert isinstance(found, Open)  # it was read as one before
    return found


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)
