"""OpenTelemetry spans of a run, read back by a receiver of the test's own that knows OTLP from its protobuf schema."""

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from harness.cli import call
from reports.exporting.otel import span_id, trace_id
from reports.exporting.source import wall_minus_mono_ns
from results.store import RunTables, load_run

CONVENTIONS = {
    value
    for module in (gen_ai_attributes, error_attributes, server_attributes)
    for value in vars(module).values()
    if isinstance(value, str)
}


def parse(body: bytes) -> ExportTraceServiceRequest:
    """OTLP/JSON, strictly: an unknown field fails. It has ids in hex, where protobuf's JSON has base64."""
    raw = json.loads(body)

    def ids(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                key: base64.b64encode(bytes.fromhex(value)).decode()
                if key in ("traceId", "spanId", "parentSpanId")
                else ids(value)
                for key, value in node.items()
            }
        return [ids(one) for one in node] if isinstance(node, list) else node

    return json_format.ParseDict(ids(raw), ExportTraceServiceRequest())


def spans_of(requests: list[ExportTraceServiceRequest]) -> list[Span]:
    return [span for one in requests for r in one.resource_spans for scope in r.scope_spans for span in scope.spans]


def attributes(span: Span) -> dict[str, Any]:
    found = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        found[pair.key] = [one.string_value for one in value.values] if kind == "array_value" else value
    assert len(found) == len(span.attributes)  # no key twice
    return found


class Receiver:
    """Takes what is posted to /v1/traces."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status, self.answer = 200, b"{}"
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json":
                    receiver.requests.append(parse(body))
                    receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                    self.send_response(receiver.status)
                else:
                    self.send_response(404)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(receiver.answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


@pytest.fixture(scope="module", params=["async_run", "colocated_run", "gpu_run"])
def run(request: pytest.FixtureRequest) -> RunTables:
    return load_run(request.getfixturevalue(request.param))


@pytest.fixture(scope="module")
def spans(run: RunTables, tmp_path_factory: pytest.TempPathFactory) -> list[Span]:
    path = tmp_path_factory.mktemp("otlp") / "run.jsonl"
    assert call(["export", str(run.run_dir), "--to", "otlp", "-o", str(path)]) == 0
    return spans_of([parse(line) for line in path.read_bytes().splitlines()])


def named(spans: list[Span], operation: str) -> list[tuple[Span, dict[str, Any]]]:
    found = [(span, attributes(span)) for span in spans]
    return [(span, told) for span, told in found if told.get("gen_ai.operation.name") == operation]


def test_every_trajectory_turn_tool_call_and_step_is_a_span(run: RunTables, spans: list[Span]) -> None:
    kinds = Counter(attributes(span).get("gen_ai.operation.name", "step") for span in spans)
    assert kinds == {
        "invoke_agent": run.tables["trajectories"].num_rows,
        "chat": run.tables["turns"].num_rows,
        "execute_tool": run.tables["tool_calls"].num_rows,
        "step": run.tables["steps"].num_rows,
    }
    assert len({span.span_id for span in spans}) == len(spans)


def test_a_trace_is_a_trajectory(run: RunTables, spans: list[Span]) -> None:
    agents = {span.trace_id: span for span, _ in named(spans, "invoke_agent")}
    for name in run.tables["trajectories"]["trajectory_id"].to_pylist():
        span = agents[bytes.fromhex(trace_id(run.run_id, name))]
        assert span.span_id == bytes.fromhex(span_id(run.run_id, name))
        assert not span.parent_span_id
    for operation in ("chat", "execute_tool"):
        for span, told in named(spans, operation):
            parent = agents[span.trace_id]
            assert span.parent_span_id == parent.span_id
            assert attributes(parent)["gen_ai.conversation.id"] == told["gen_ai.conversation.id"]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano


def test_times_are_wall_time_to_the_nanosecond(run: RunTables, spans: list[Span]) -> None:
    offset = wall_minus_mono_ns(run)
    assert offset is not None
    for operation, table in (("chat", "turns"), ("execute_tool", "tool_calls")):
        rows = run.tables[table].select(["trajectory_id", "start_ns", "end_ns"]).to_pylist()
        wanted = sorted((row["trajectory_id"], row["start_ns"] + offset, row["end_ns"] + offset) for row in rows)
        found = [
            (told["gen_ai.conversation.id"], span.start_time_unix_nano, span.end_time_unix_nano)
            for span, told in named(spans, operation)
        ]
        assert sorted(found) == wanted


def test_names_and_attributes_are_the_conventions(run: RunTables, spans: list[Span]) -> None:
    seen: set[str] = set()
    for span in spans:
        told = attributes(span)
        seen |= set(told)
        operation = told.get("gen_ai.operation.name")
        if operation is None:
            continue
        subject = {
            "invoke_agent": "gen_ai.agent.name",
            "chat": "gen_ai.request.model",
            "execute_tool": "gen_ai.tool.name",
        }
        assert span.name == f"{operation} {told[subject[operation]]}"
        assert span.kind == (Span.SPAN_KIND_CLIENT if operation == "chat" else Span.SPAN_KIND_INTERNAL)
    assert {name for name in seen if not name.startswith("bench.")} <= CONVENTIONS
    assert {"gen_ai.provider.name", "gen_ai.usage.input_tokens", "gen_ai.tool.call.id"} <= seen
    operations = {value.value for value in gen_ai_attributes.GenAiOperationNameValues}
    assert {told["gen_ai.operation.name"] for _, told in named(spans, "chat")} <= operations


def test_tokens_and_outcomes_are_those_of_the_tables(run: RunTables, spans: list[Span]) -> None:
    turns, calls = run.frame("turns"), run.frame("tool_calls")
    chats = [told for _, told in named(spans, "chat")]
    assert sum(told.get("gen_ai.usage.output_tokens", 0) for told in chats) == turns["generated_tokens"].sum()
    assert sum(told.get("gen_ai.usage.input_tokens", 0) for told in chats) == turns["prompt_tokens"].sum()
    tools = named(spans, "execute_tool")
    assert Counter(told["gen_ai.tool.name"] for _, told in tools) == dict(calls["tool"].value_counts())
    assert sum("error.type" in told for _, told in tools) == (calls["status"] != "ok").sum()
    assert all((span.status.code == Status.STATUS_CODE_ERROR) == ("error.type" in told) for span, told in tools)


def test_a_step_links_to_what_it_trained_on(run: RunTables, spans: list[Span]) -> None:
    steps = [span for span in spans if "gen_ai.operation.name" not in attributes(span)]
    agents = {
        (span.trace_id, span.span_id): told["gen_ai.conversation.id"] for span, told in named(spans, "invoke_agent")
    }
    linked = {
        attributes(span)["bench.step.step"]: [agents[link.trace_id, link.span_id] for link in span.links]
        for span in steps
    }
    rows = run.tables["steps"].to_pylist()
    assert linked == {row["step"]: row["trajectory_ids"] for row in rows}


def test_a_receiver_gets_the_same_spans(
    async_run: Path, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b,x-other=c")
    path = tmp_path / "run.jsonl"
    assert call(["export", str(async_run), "--to", "otlp", "-o", str(path)]) == 0
    for endpoint in (receiver.address, f"{receiver.address}/v1/traces"):
        receiver.requests.clear()
        assert call(["export", str(async_run), "--to", f"otlp={endpoint}"]) == 0
        assert receiver.requests == [parse(line) for line in path.read_bytes().splitlines()]
    assert receiver.headers[0]["x-key"] == "a b"
    assert receiver.headers[0]["x-other"] == "c"


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [(503, b"", "HTTP 503"), (200, b'{"partialSuccess": {"rejectedSpans": "3"}}', "dropped 3 spans")],
)
def test_a_receiver_that_refuses_is_told(
    async_run: Path, receiver: Receiver, status: int, answer: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.status, receiver.answer = status, answer
    assert call(["export", str(async_run), "--to", f"otlp={receiver.address}"]) == 3
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_nobody_listens(async_run: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    receiver.server.server_close()
    assert call(["export", str(async_run), "--to", f"otlp={receiver.address}"]) == 3
    assert "can't be reached" in capsys.readouterr().err
    assert call(["export", str(async_run), "--to", "otlp=127.0.0.1:4318"]) == 2
    assert "OTLP/HTTP" in capsys.readouterr().err


def test_what_was_asked_is_only_there_on_demand(async_run: Path, tmp_path: Path) -> None:
    asked = load_run(async_run).frame("tool_calls")["argument"].dropna()
    found = {}
    for name, flags in (("plain", []), ("whole", ["--content"])):
        path = tmp_path / name
        assert call(["export", str(async_run), "--to", "otlp", "-o", str(path), *flags]) == 0
        spans = spans_of([parse(line) for line in path.read_bytes().splitlines()])
        found[name] = [told.get("gen_ai.tool.call.arguments") for _, told in named(spans, "execute_tool")]
        assert ("gen_ai.tool.call.arguments" in path.read_text()) == (name == "whole")
    assert set(found["plain"]) == {None}
    assert Counter(next(iter(json.loads(text).values())) for text in found["whole"] if text) == Counter(asked)


def test_a_trajectory_that_never_ended_says_so(cut_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert call(["export", str(cut_run), "--to", "otlp", "-o", str(path)]) == 0
    run = load_run(cut_run)
    spans = spans_of([parse(line) for line in path.read_bytes().splitlines()])
    open_ = [span for span, told in named(spans, "invoke_agent") if told["bench.trajectory.status"] == "open"]
    assert len(open_) == sum(end is None for end in run.tables["trajectories"]["end_ns"].to_pylist()) > 0
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano for span in spans)
