"""The thread that samples DCGM, from an exporter or `dcgmi dmon`, into rows of the same GPUs that NVML reads."""

import contextlib
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from harness.protocol.events import Scalar
from harness.telemetry.cadence import Ticks, refresh_of
from harness.telemetry.dcgm import dmon, exporter
from harness.telemetry.dcgm.fields import FIELDS, Field
from harness.telemetry.values import Timed, Value

OFF, AUTO, DMON = "off", "auto", "dmon"
PERIOD_S = 1.0
RETRY_S = 5.0
REFRESH_AFTER_S = 60.0  # of pages, until it is told how often the exporter collects
LINES = {one.column: one.line for one in FIELDS}
COLUMNS = tuple(LINES)
LEFT_OUT = "dcgm.left_out"  # what was not taken up, and why

Metric = Callable[[str, float | None, str, Mapping[str, Scalar]], None]
Emit = Callable[[str, Timed], None]


class DcgmWatch(threading.Thread):
    """Samples until `stop` is set. What cannot be read, and why, is told once as a metric."""

    def __init__(
        self,
        source: str,
        *,
        emit: Emit,
        metric: Metric,
        stop: threading.Event,
        rng: random.Random,
        period_s: float = PERIOD_S,
        retry_s: float = RETRY_S,
        default_url: str = exporter.DEFAULT_URL,
        here: Callable[[], Container[str]] | None = None,
    ) -> None:
        """`source`: the address of an exporter, `dmon`, or `auto` (an exporter on this machine, else dmon).

        `here` gives the UUIDs of this machine's GPUs: an exporter may serve those of another one.
        """
        super().__init__(name="dcgm", daemon=True)
        self._source = source
        self._emit = emit
        self._metric = metric
        self._stopped = stop
        self._rng = rng
        self._period_s = period_s
        self._retry_s = retry_s
        self._default_url = default_url
        self._told: set[tuple[str, str, str]] = set()
        self._child: subprocess.Popen[str] | None = None
        self._lost_ns: int | None = None
        self._lost_whys: set[str] = set()
        self._answered = False
        self._absent: set[str] = set()  # columns that the last page lacked
        self._seen_ns = 0  # when something was last read
        self._rows = 0
        self._here = here

    def run(self) -> None:
        """Never raises: an error that no one foresaw is told as the end of this source."""
        try:
            self._run()
        except Exception as error:
            self._metric("dcgm.source", None, "", {"reason": f"{type(error).__name__}: {error}"[:500]})
        if self._lost_ns is not None and self._answered:
            self._close_gap(time.monotonic_ns(), {"ended": "with the run"})

    def end(self, timeout_s: float) -> None:
        """Ends `dcgmi`, if it runs, and waits for the thread."""
        child = self._child
        if child is not None:
            with contextlib.suppress(OSError):
                child.terminate()
        self.join(timeout_s)
        if child is not None and child.poll() is None:
            with contextlib.suppress(OSError):
                child.kill()

    def _run(self) -> None:
        if self._source == DMON:
            self._dmon()
        elif self._source == AUTO:
            self._auto()
        else:
            self._exporter(self._source)

    def _auto(self) -> None:
        try:
            if not exporter.read_page(exporter.fetch(self._default_url)).dcgm:
                raise exporter.ExporterError(f"{self._default_url} has nothing of DCGM")
        except exporter.ExporterError as error:
            if shutil.which(dmon.PROGRAM):
                self._dmon()
            else:
                reason = f"{error}; no {dmon.PROGRAM} on PATH either: --dcgm URL names an exporter elsewhere"
                self._metric("dcgm.source", None, "", {"reason": reason})
            return
        self._exporter(self._default_url)

    def _exporter(self, url: str) -> None:
        ticks = Ticks(self._period_s, time.monotonic_ns(), self._rng)
        polls: list[tuple[int, float | None]] = []
        told = False
        while not self._wait(ticks.next(time.monotonic_ns())):
            begin_ns = time.monotonic_ns()
            try:
                page = exporter.read_page(exporter.fetch(url))
                if not page.dcgm:
                    raise exporter.ExporterError(f"{url} has nothing of DCGM")
            except exporter.ExporterError as error:
                self._gap(begin_ns, str(error), url)
                continue
            end_ns = time.monotonic_ns()
            self._back(begin_ns, url)
            self._tell_page(page)
            for uuid, values in page.readings.items():
                self._put(uuid, begin_ns, end_ns, values)
            for (uuid, column), why in page.reasons.items():
                self._unsupported(uuid, column, why)
            if not told:
                polls.append(((begin_ns + end_ns) // 2, _fingerprint(page)))
                told = polls[-1][0] - polls[0][0] >= REFRESH_AFTER_S * 1e9
                if told:
                    self._tell_refresh(polls)
        if polls and not told:
            self._tell_refresh(polls)

    def _tell_page(self, page: exporter.Page) -> None:
        """What this page lacks that the one before had, what it has again, and what is left out of it."""
        absent = exporter.missing(page)
        for column in absent.keys() - self._absent:
            labels: dict[str, Scalar] = {"field": column, "line": LINES[column], "how": absent[column]}
            self._metric("dcgm.missing", None, "", labels)
        for column in self._absent - absent.keys():
            self._metric("dcgm.missing", 0.0, "", {"field": column, "line": LINES[column]})
        self._absent = set(absent)
        if page.instances:
            self._once("", "rows", "of MIG instances: no share of the whole GPU", LEFT_OUT)
        if page.bad_lines:
            self._once("", "lines", "could not be read", LEFT_OUT)

    def _tell_refresh(self, polls: list[tuple[int, float | None]]) -> None:
        """How often the exporter collects: pages in between repeat the values before (its default is 30 s)."""
        refresh = refresh_of(polls)
        labels: dict[str, Scalar] = {"pages": len(polls), "resolution_s": refresh.resolution_s}
        if refresh.reason is not None:
            labels["reason"] = refresh.reason
        if refresh.period_s is not None and refresh.period_s > 2 * self._period_s:
            labels["how"] = "dcgm-exporter --collect-interval 1000 collects once a second"
        self._metric("dcgm.refresh", refresh.period_s, "s", labels)

    def _dmon(self) -> None:
        fields: Sequence[Field] = FIELDS
        while not self._stopped.is_set():
            ran = False
            try:
                uuids = dmon.discover()
                ran = True
                why = self._dmon_once(uuids, fields)
            except (dmon.DmonError, OSError) as error:
                why = str(error)
            if self._stopped.is_set():
                return
            if self._rows:
                self._gap(self._seen_ns, why, dmon.PROGRAM)
                self._stopped.wait(self._retry_s)
            elif ran and (fewer := self._fewer(fields, why)):
                fields = fewer
            else:
                self._metric("dcgm.source", None, "", {"reason": why})
                return  # it never gave anything: it will not later

    def _fewer(self, fields: Sequence[Field], why: str) -> Sequence[Field]:
        """Fields that may be given where those were not: one that is refused ends the whole table.

        First those that are given when asked for alone; some of these are refused together, so the last goes next.
        """
        given = list(fields[:-1])
        said: dict[str, str] = {}
        if fields is FIELDS:
            given = []
            for one in fields:
                rows, said[one.column] = self._alone(one)
                given += [one] if rows else []
                if self._stopped.is_set():
                    return []
            given = given[:-1] if len(given) == len(fields) else given
        for one in fields if given else ():
            if one not in given:
                reason = said.get(one.column) or f"beside the others: {why}"
                self._once("", one.column, f"{dmon.PROGRAM} refuses it: {reason}"[:300], LEFT_OUT)
        return given

    def _alone(self, field: Field) -> tuple[bool, str]:
        """Whether `dcgmi dmon` gives a row of that field alone, and what it said else."""
        said = "no row"
        with self._opened(dmon.command(self._period_s, (field,), rows=1)) as child:
            assert child.stdout is not None
            for row in dmon.parse_lines(iter(child.stdout.readline, ""), (field,)):
                if not isinstance(row, str):
                    return True, ""
                said = row
        return False, said

    def _dmon_once(self, uuids: Mapping[int, str], fields: Sequence[Field]) -> str:
        """Reads the table until it ends; why it did."""
        argv, said = dmon.command(self._period_s, fields), ""
        with self._opened(argv) as child:
            assert child.stdout is not None
            for row in dmon.parse_lines(iter(child.stdout.readline, ""), fields):
                if self._stopped.is_set():
                    break
                now = time.monotonic_ns()
                if isinstance(row, str):
                    said = f": {row}"
                    self._once("", "lines of dmon", row, LEFT_OUT)
                elif row.gpu_id in uuids:
                    self._back(now, " ".join(argv))
                    # A row is of the period before it was printed.
                    self._put(uuids[row.gpu_id], now - round(self._period_s * 1e9), now, row.values)
                    for column, why in row.reasons.items():
                        self._unsupported(uuids[row.gpu_id], column, why)
        return f"`{dmon.PROGRAM} dmon` ended{said}"

    @contextlib.contextmanager
    def _opened(self, argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
            self._child = child
            try:
                yield child
            finally:
                if child.poll() is None:
                    child.terminate()

    def _put(self, uuid: str, begin_ns: int, end_ns: int, values: Mapping[str, Value]) -> None:
        if self._here is not None and uuid not in self._here():
            self._once(uuid, "gpu", "NVML lists no such GPU on this machine", LEFT_OUT)
            return
        known = {column: values.get(column) for column in COLUMNS}
        if any(value is not None for value in known.values()):
            self._rows += 1
            self._emit(uuid, Timed(begin_ns, end_ns, known))

    def _gap(self, now_ns: int, why: str, source: str) -> None:
        """Nothing came. Before anything ever did, it is told as no source: the address may be wrong."""
        if self._lost_ns is None:
            self._lost_ns, self._lost_whys = now_ns, set()
        if why in self._lost_whys:
            return
        self._lost_whys.add(why)
        if self._answered:
            self._metric("dcgm.unreachable", None, "", {"field": "gap", "reason": why, "begin_ns": self._lost_ns})
        else:
            self._metric("dcgm.source", None, "", {"source": source, "reason": why})

    def _back(self, now_ns: int, source: str) -> None:
        self._seen_ns = now_ns
        if not self._answered:
            self._answered = True
            self._metric("dcgm.source", 1.0, "", {"source": source})
        if self._lost_ns is not None:
            self._close_gap(now_ns, {})

    def _close_gap(self, now_ns: int, labels: Mapping[str, Scalar]) -> None:
        assert self._lost_ns is not None
        self._metric("dcgm.gap", (now_ns - self._lost_ns) / 1e9, "s", {"begin_ns": self._lost_ns, **labels})
        self._lost_ns = None

    def _unsupported(self, uuid: str, column: str, why: str) -> None:
        self._once(uuid, column, why, "telemetry.unsupported")

    def _once(self, uuid: str, what: str, why: str, name: str) -> None:
        if (uuid, what, why) in self._told:
            return
        self._told.add((uuid, what, why))
        labels: dict[str, Scalar] = {"field": what, "reason": why}
        self._metric(name, None, "", {"gpu": uuid, **labels} if uuid else labels)

    def _wait(self, due_ns: int) -> bool:
        return self._stopped.wait(max(0, due_ns - time.monotonic_ns()) / 1e9)


def _fingerprint(page: exporter.Page) -> float:
    """A number that changes whenever a reading on the page does."""
    return float(
        hash(tuple((uuid, *sorted(values.items(), key=str)) for uuid, values in page.readings.items())) % 2**52
    )
