"""What recording one span costs, against the OpenTelemetry SDK writing its spans to a file one by one.

Both write one JSON text per span, at once. `batched` is the SDK's other processor, its export left out of the time:
what it has not exported yet dies with the process. Rounds alternate, so that other load falls on all; the figure is
the median round. Limits: at most 5 us, at least 20 times faster.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor
from tracked import finish

from harness.protocol.recorder import Recorder, make_hello

SPANS, ROUNDS = 2_000, 15
LIMIT_US, LIMIT_RATIO = 5.0, 20.0


def bench(recorder: Recorder) -> None:
    """Spans as an adapter's tap records them: both ends known, with the ids that a turn carries."""
    now = time.monotonic_ns
    for i in range(SPANS):
        start = now()
        recorder.span("tool", "search_engine", start, now(), pool="rollout", step=3, trajectory_id="p12-s1-a0", turn=i)


def opentelemetry(tracer: object) -> None:
    """The same span with the same attributes by the SDK's usual call."""
    for i in range(SPANS):
        with tracer.start_as_current_span("search_engine") as span:  # type: ignore[attr-defined]
            span.set_attributes(
                {"phase": "tool", "pool": "rollout", "step": 3, "trajectory_id": "p12-s1-a0", "turn": i}
            )


def main() -> int:
    """Runs both, prints the figures."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "events.jsonl", make_hello("benchmark", "controller"))
        with (Path(folder) / "simple.jsonl").open("w") as simple, (Path(folder) / "batch.jsonl").open("w") as batch:
            contestants: dict[str, Callable[[], None]] = {"bench": partial(bench, recorder)}
            providers = []
            for name, processor in (
                ("opentelemetry", SimpleSpanProcessor(ConsoleSpanExporter(out=simple))),
                (
                    "opentelemetry_batched",
                    BatchSpanProcessor(ConsoleSpanExporter(out=batch), max_queue_size=10 * SPANS),
                ),
            ):
                provider = TracerProvider(resource=Resource.create({"service.name": "benchmark"}))
                provider.add_span_processor(processor)
                providers.append(provider)
                contestants[name] = partial(opentelemetry, provider.get_tracer("benchmark"))
            times: dict[str, list[float]] = {name: [] for name in contestants}
            for _ in range(ROUNDS):
                for name, work in contestants.items():
                    began = time.perf_counter()
                    work()
                    times[name].append((time.perf_counter() - began) / SPANS * 1e6)
                    for provider in providers:  # untimed: what is batched must not run into the next one's round
                        provider.force_flush()
            for provider in providers:
                provider.shutdown()
        recorder.shut()
    median = {name: round(statistics.median(values), 2) for name, values in times.items()}
    ratio = median["opentelemetry"] / median["bench"]
    return finish(
        "record_span",
        {
            "us_per_span": median,
            "us_per_span_best": {name: round(min(values), 2) for name, values in times.items()},
            "ratio": round(ratio, 1),
            "ratio_batched": round(median["opentelemetry_batched"] / median["bench"], 1),
            "limits": {"us_per_span": LIMIT_US, "ratio": LIMIT_RATIO},
            "rounds": ROUNDS,
            "spans_per_round": SPANS,
        },
        ok=median["bench"] <= LIMIT_US and ratio >= LIMIT_RATIO,
        description=__doc__ or "",
        sources=("harness/protocol", "benchmarks/record_span.py"),
    )


if __name__ == "__main__":
    sys.exit(main())
