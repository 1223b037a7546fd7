"""A run as OpenTelemetry spans: each trajectory a trace, `invoke_agent` with `chat` and `execute_tool` inside.

Names: OpenTelemetry's semantic conventions for generative AI (status: development),
https://opentelemetry.io/docs/specs/semconv/gen-ai/. Encoding: OTLP/JSON, in a file one request a line, or sent to an
OTLP/HTTP receiver. Ids follow from the names of run and trajectory: an export made again says the same. Times are wall
time.
"""

import hashlib
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.protocol.errors import EnvError, SpecError
from reports.exporting.files import written
from reports.exporting.source import Rows, bounds_ns, wall_minus_mono_ns
from results.store import RunTables

SPANS_PER_REQUEST = 500
TIMEOUT_S = 30.0
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"  # OpenTelemetry's own variable: name=value,name=value
INTERNAL, CLIENT = 1, 3  # SpanKind
ERROR = 2  # StatusCode
_ARGUMENTS = {"search_engine": "query", "web_browser": "url"}  # what the argument of a tool is called by its model
_LIFE = (
    *("group_id", "prompt", "sample", "attempt", "status", "turns", "tool_calls", "reward", "observation_tokens"),
    *("version_first", "version_last", "version_trained", "step_consumed", "step_dropped"),
)

Span = dict[str, Any]


def export_otlp(run: RunTables, path: Path, *, content: bool = False) -> int:
    """Writes the spans of a run to `path`, one OTLP/JSON request a line; returns how many there are.

    Raises:
        SpecError: the run has no wall time, which every span needs.
        OSError: `path` cannot be written; what was there is left as it was.
    """
    total = 0
    with written(path) as file:
        for request, count in _requests(run, content):
            file.write(json.dumps(request, allow_nan=False, separators=(",", ":")).encode() + b"\n")
            total += count
    return total


def send_otlp(run: RunTables, endpoint: str, *, content: bool = False) -> int:
    """Sends the spans of a run to an OTLP/HTTP receiver; returns how many it took.

    `endpoint` is a base address, as in `OTEL_EXPORTER_OTLP_ENDPOINT`, or the whole address that ends in /v1/traces.
    Headers, as for a key, are taken from `OTEL_EXPORTER_OTLP_HEADERS`.

    Raises:
        SpecError: the endpoint is no http address, or the run has no wall time.
        EnvError: the receiver can't be reached, refuses, or drops spans.
    """
    parts = urllib.parse.urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SpecError(f"--to otlp={endpoint}: give the address of an OTLP/HTTP receiver, as http://127.0.0.1:4318")
    address = endpoint if parts.path.endswith("/v1/traces") else endpoint.rstrip("/") + "/v1/traces"
    total = 0
    for request, count in _requests(run, content):
        _post(address, json.dumps(request, allow_nan=False).encode())
        total += count
    return total


def trace_id(run_id: str, trajectory_id: str) -> str:
    """The trace of a trajectory: 16 bytes in hex."""
    return _digest("trace", run_id, trajectory_id)[:32]


def span_id(run_id: str, trajectory_id: str, *inside: object) -> str:
    """A span of a trajectory, 8 bytes in hex: without `inside` the agent's own."""
    return _digest("span", run_id, trajectory_id, *map(str, inside))[:16]


def _digest(*names: str) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def _requests(run: RunTables, content: bool) -> Iterator[tuple[dict[str, Any], int]]:
    offset, bounds = wall_minus_mono_ns(run), bounds_ns(run)
    if offset is None or bounds is None:
        raise SpecError(f"{run.run_dir}: no process recorded both clocks, and spans have wall time")
    batch: list[Span] = []
    spans = _Spans(run, offset, bounds[1], content)
    resource = {
        "service.name": "bench",
        "service.instance.id": run.run_id,
        "bench.framework": run.spec.framework,
        "bench.placement": run.spec.placement.value,
        "bench.device": run.spec.device.value,
        "bench.work_digest": run.spec.work_digest,
    }
    scope = {"name": "bench", "version": version("agentic-rl-bench")}

    def request() -> dict[str, Any]:
        inside = [{"scope": scope, "spans": batch}]
        return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": inside}]}

    for one in spans.all():
        batch.append(one)
        if len(batch) == SPANS_PER_REQUEST:
            yield request(), len(batch)
            batch = []
    if batch:
        yield request(), len(batch)


class _Spans:
    def __init__(self, run: RunTables, offset: int, last: int, content: bool) -> None:
        self.run, self.offset, self.last, self.content = run, offset, last, content
        spec = run.spec
        provider = spec.framework if spec.engine in ("", "none") else spec.engine
        self.provider = {"gen_ai.provider.name": provider, "gen_ai.request.model": spec.model}

    def all(self) -> Iterator[Span]:
        """Trajectory by trajectory, then the steps. Each span is made when it is asked for: there may be millions."""
        turns, calls = Rows.of(self.run, "turns"), Rows.of(self.run, "tool_calls")
        inside: dict[str, list[Callable[[], Span]]] = defaultdict(list)
        for rows, make in ((turns, self._turn), (calls, self._tool_call)):
            for row, name in enumerate(rows.columns["trajectory_id"]):
                inside[name].append(partial(make, rows, row))
        lives = Rows.of(self.run, "trajectories")
        for row, name in enumerate(lives.columns["trajectory_id"]):
            yield self._trajectory(lives, row)
            yield from (make() for make in inside.pop(name, ()))
        for orphans in inside.values():  # their trajectory was not recorded
            yield from (make() for make in orphans)
        steps = Rows.of(self.run, "steps")
        yield from (self._step(steps, row) for row in range(steps.count))

    def _trajectory(self, rows: Rows, row: int) -> Span:
        c, spec = rows.columns, self.run.spec
        name, status, tokens = c["trajectory_id"][row], c["status"][row], c["generated_tokens"][row]
        attributes = self._common("invoke_agent", name) | self.provider
        attributes |= {"gen_ai.agent.name": spec.workload, "gen_ai.usage.output_tokens": tokens}
        attributes |= {f"bench.trajectory.{key}": value for key, value in rows.known(row, _LIFE).items()}
        failed = status if status not in ("ok", "open") else None
        span = self._span(name, (), f"invoke_agent {spec.workload}", INTERNAL, c["start_ns"][row], c["end_ns"][row])
        return _finish(span, attributes, failed, c["message"][row] if self.content else None)

    def _turn(self, rows: Rows, row: int) -> Span:
        c, name = rows.columns, rows.columns["trajectory_id"][row]
        start, end, reason = c["start_ns"][row], c["end_ns"][row], c["stop_reason"][row]
        span = self._span(name, ("chat", c["turn"][row], start), f"chat {self.run.spec.model}", CLIENT, start, end)
        attributes = self._common("chat", name) | self.provider
        attributes |= {"gen_ai.usage.input_tokens": c["prompt_tokens"][row]}
        attributes |= {"gen_ai.usage.output_tokens": c["generated_tokens"][row]}
        attributes |= {"gen_ai.response.finish_reasons": [reason] if reason else None}
        attributes |= _server(c["engine"][row])
        attributes |= {f"bench.{key}": c[key][row] for key in ("turn", "version_start", "version_end", "cache_break")}
        failed = (reason or "no_reply") if c["generated_tokens"][row] is None else None
        return _finish(span, attributes, failed, None)

    def _tool_call(self, rows: Rows, row: int) -> Span:
        c, name = rows.columns, rows.columns["trajectory_id"][row]
        tool, start, status = c["tool"][row] or "unknown", c["start_ns"][row], c["status"][row]
        call = c["turn"][row] if c["call"][row] is None else c["call"][row]
        span = self._span(name, ("tool", call, start), f"execute_tool {tool}", INTERNAL, start, c["end_ns"][row])
        attributes = self._common("execute_tool", name)
        attributes |= {"gen_ai.tool.name": tool, "gen_ai.tool.call.id": f"{name}/{call}"}
        attributes |= {"gen_ai.tool.type": "function"}
        if self.content and c["argument"][row] is not None:
            argument = {_ARGUMENTS.get(tool, "argument"): c["argument"][row]}
            attributes["gen_ai.tool.call.arguments"] = json.dumps(argument, ensure_ascii=False)
        for key in ("turn", "planned_ns", "observation_tokens", "observation_bytes", "http_status", "served_ns"):
            attributes[f"bench.{key}"] = c[key][row]
        failed = None if status in (None, "ok") else status
        return _finish(span, attributes, failed, c["detail"][row] if self.content else None)

    def _step(self, rows: Rows, row: int) -> Span:
        """A step is in the trace of the run, with a link to every trajectory that it trained on."""
        c, run = rows.columns, self.run.run_id
        step, start = c["step"][row], c["start_ns"][row]
        span = self._span("", ("step", step, start), f"step {step}", INTERNAL, start, c["end_ns"][row])
        del span["parentSpanId"]
        names = c["trajectory_ids"][row]
        span["links"] = [{"traceId": trace_id(run, name), "spanId": span_id(run, name)} for name in names]
        keys = ("step", "policy_version", "trained_at", "trajectories", "loss_tokens", "reward_mean")
        attributes = {"bench.run_id": run} | {f"bench.step.{key}": c[key][row] for key in keys}
        return _finish(span, attributes, None, None)

    def _common(self, operation: str, trajectory: str) -> dict[str, Any]:
        named = {"gen_ai.operation.name": operation, "gen_ai.conversation.id": trajectory}
        return named | {"bench.run_id": self.run.run_id, "bench.trajectory_id": trajectory}

    def _span(
        self, trajectory: str, inside: tuple[object, ...], name: str, kind: int, start: int, end: int | None
    ) -> Span:
        run = self.run.run_id
        span = {
            "traceId": trace_id(run, trajectory),
            "spanId": span_id(run, trajectory, *inside),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(start + self.offset),
            # What never ended was there to the end of the record; its status says that it was open.
            "endTimeUnixNano": str((self.last if end is None else end) + self.offset),
        }
        return span | ({"parentSpanId": span_id(run, trajectory)} if inside else {})


def _finish(span: Span, attributes: Mapping[str, Any], failed: str | None, message: str | None) -> Span:
    span["attributes"] = _attributes({**attributes, "error.type": failed})
    if failed:
        span["status"] = {"code": ERROR} | ({"message": message} if message else {})
    return span


def _server(engine: str | None) -> dict[str, Any]:
    """The engine's address by the names that all clients have for it."""
    if engine is None:
        return {}
    host, _, port = engine.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        return {"server.address": host, "server.port": int(port)}
    return {"server.address": engine}


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Known values as OTLP/JSON has them; what is unknown is not there."""
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}  # 64 bits: JSON's numbers may not hold them
        case float():
            return {"doubleValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}


def _post(address: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for pair in filter(None, os.environ.get(HEADERS, "").split(",")):
        name, _, value = pair.partition("=")
        headers[name.strip()] = urllib.parse.unquote(value.strip())
    request = urllib.request.Request(address, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        raise EnvError(
            f"{address}: refused spans with HTTP {error.code} {error.reason}; is it OTLP over HTTP?"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise EnvError(f"{address}: can't be reached: {reason}; is a receiver listening there?") from None
    dropped = _dropped(answer)
    if dropped:
        raise EnvError(f"{address}: dropped {dropped} spans; its own log says why")


def _dropped(answer: bytes) -> int:
    try:
        told = json.loads(answer or b"{}")
        return int(told.get("partialSuccess", {}).get("rejectedSpans", 0))
    except (ValueError, AttributeError, TypeError):
        return 0  # not JSON: it answered 2xx, and that is what counts
