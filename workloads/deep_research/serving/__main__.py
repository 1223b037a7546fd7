"""The tool server: `python -P -m workloads.deep_research.serving --tools local --corpus DIR --address FILE ...`."""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path

from harness.protocol.errors import BenchError, EnvError, SpecError
from workloads.deep_research.serving.app import Served, served, until_eof, write_private
from workloads.deep_research.serving.backends import Wanted, make_backend, make_recorder
from workloads.deep_research.serving.gateway import Gateway
from workloads.deep_research.trace_names import restarted

STATS_PERIOD_S = 5.0


def main(arguments: list[str]) -> int:
    """Serves until it is asked to end; returns the exit code."""
    try:
        serve(arguments)
    except BenchError as error:
        print(f"the tool server can't start: {error}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        print(f"the tool server can't start: {error}: pip install 'agentic-rl-bench[tools]'", file=sys.stderr)
        return EnvError.exit_code
    return 0


def serve(arguments: list[str]) -> None:
    """Serves until it is asked to end.

    Raises:
        SpecError, EnvError: it can't start; says why.
    """
    asyncio.run(_serve(_parser().parse_args(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workloads.deep_research.serving", description=__doc__)
    parser.add_argument("--tools", required=True, help="local, web, web:NAME,NAME or replay")
    parser.add_argument("--corpus", type=Path, help="folder of the corpus (local)")
    parser.add_argument("--trace", type=Path, help="trace to play (replay)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the latencies of a trace")
    parser.add_argument("--record", type=Path, help="trace to write")
    parser.add_argument("--faults", default="", help="of local tools, e.g. timeout=0.01,error=0.02")
    parser.add_argument("--work", type=json.loads, default={}, help="JSON: the questions, for a replay of the record")
    parser.add_argument("--cache", choices=("off", "read", "write"), default="write", help="of answers of the web")
    parser.add_argument("--allow-private", action="store_true", help="open pages of private networks too (web)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--address", type=Path, help="file that is made once calls are answered: url and token")
    parser.add_argument("--stats", type=Path, help="file that has the counters, at the end and every few seconds")
    parser.add_argument("--until-eof", action="store_true", help="end with standard input")
    return parser


async def _serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    wanted = Wanted(
        tools=options.tools,
        corpus=options.corpus,
        trace=options.trace,
        scale=options.scale,
        record=_record(options),
        faults=options.faults,
        work=options.work,
        cache=options.cache,
        allow_private=options.allow_private,
    )
    backend, facts = make_backend(wanted)
    gateway = Gateway(backend, recorder=make_recorder(wanted, facts))
    if options.stats:
        write_private(options.stats, gateway.stats())
    beside = [asyncio.create_task(_keep_stats(gateway, options.stats))] if options.stats else []
    if options.until_eof:
        beside.append(asyncio.create_task(_end_with_stdin(over)))
    try:
        async with served(gateway, facts, host=options.host, port=options.port) as server:
            _announce(server, options.address)
            await over.wait()
            if options.address is not None:
                options.address.unlink(missing_ok=True)
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        if options.stats:
            write_private(options.stats, gateway.stats())


def _record(options: argparse.Namespace) -> Path | None:
    """Where calls are recorded. A server that was started again in the same run leaves the first one's trace alone."""
    record: Path | None = options.record
    if record is None or options.stats is None or not options.stats.exists():
        return record
    return restarted(record)


def _announce(server: Served, address: Path | None) -> None:
    print(f"serving at {server.url}", flush=True)
    if address is None:
        print(f"token: {server.token}", flush=True)
        return
    try:
        write_private(address, {"url": server.url, "token": server.token})
    except OSError as error:
        raise SpecError(f"{address}: cannot be written: {error.strerror}") from None


async def _keep_stats(gateway: Gateway, path: Path) -> None:
    while True:
        await asyncio.sleep(STATS_PERIOD_S)
        with contextlib.suppress(OSError):  # a full disk ends the run elsewhere
            write_private(path, gateway.stats())


async def _end_with_stdin(over: asyncio.Event) -> None:
    await until_eof(0)
    over.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
