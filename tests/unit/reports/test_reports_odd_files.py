"""Values of a kind that can't be meant, in the files of a run that JSON holds: unknown and told of, never an exception.

Each file's values are replaced by a text, a list, an object, null, a flag, a negative and a huge number, and left out.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import played_gpus as gpus
import played_runs as played
import pytest

from harness.cli import call
from harness.protocol.events import Bye, Metric, Scalar, encode
from harness.protocol.spec import Device, Gpus
from reports import picture, report
from results import contamination, counters, gpu_errors, gpu_traffic, lost_gpus, sync_proof, untold
from results.store import load_run

GONE = object()
ODD = ["x", ["x"], {"a": 1}, None, True, -1, 2**63, float("nan"), 1e308, "\ud800", GONE]
ODD_LABELS: list[Any] = ["x", ["x"], {"a": 1}, None, True, -1, 2**62, 1e308, "\ud800"]  # of metrics


def described(n: int) -> dict[str, Any]:
    """As a sampler describes a GPU."""
    refresh = {f"{name}_refresh_s": 0.1 for name in ("energy", "power_instant", "power_average")}
    limits = {f"power_limit_{name}_watts": 700.0 for name in ("min", "max", "default")}
    return {
        "host": "node-1",
        "uuid": f"GPU-{n:04d}",
        "index": n,
        "name": "NVIDIA H100 80GB HBM3",
        "minor_number": n,
        "compute_capability": "9.0",
        "mig_mode": False,
        "mig_instances": [],
        "memory_total_bytes": 80 * 2**30,
        "power_limit_watts": 700.0,
        **limits,
        **refresh,
        "energy_refresh_resolution_s": 0.01,
        "energy_refresh_reason": None,
        "power_average_window_s": 1.0,
        "energy_source": "counter",
        "sample_period_s": 0.5,
        "unsupported": {"pcie_tx_bytes": "not supported"},
    }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on GPUs that was collected; its `failures` have no row."""
    spec = played.make_spec(
        "async", batch_size=1, group_size=2, steps=4, gpus=Gpus(train=1, rollout=2), device=Device.CUDA
    )
    run = gpus.write_gpu_run(tmp_path_factory.mktemp("recorded") / "run", spec)
    (run / "samples" / "gpus.json").write_text(json.dumps({"gpus": [described(n) for n in range(3)]}))
    assert call(["collect", str(run)]) == 0
    return run


@pytest.fixture
def run(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy; reports of it have empty pictures."""
    monkeypatch.setattr(report, "drawn_beside", nullcontext)
    monkeypatch.setattr(picture, "_save", lambda draw, stem: stem.with_suffix(".png").touch())
    return shutil.copytree(recorded, tmp_path / "run")


def replaced(value: Any, by: object, here: Callable[[str], bool] = lambda key: True) -> Any:
    """Every value that is neither list nor object, and every empty one of those, replaced or left out."""
    if isinstance(value, dict):
        kept = {key: replaced(one, by, here) if here(key) else one for key, one in value.items()}
        return {key: one for key, one in kept.items() if one is not GONE}
    if isinstance(value, list) and value:
        return [one for one in (replaced(one, by, here) for one in value) if one is not GONE]
    return by


def failures(run: Path) -> list[tuple[str, str]]:
    return [(row["type"], row["message"]) for row in load_run(run).tables["failures"].to_pylist()]


def joules(run: Path) -> float | None:
    rows = load_run(run).tables["metrics"].to_pylist()
    found: float | None = next(row["value"] for row in rows if row["metric"] == "joules_per_step")
    return found


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: "gone" if odd is GONE else repr(odd)[:12])
def test_what_samplers_say_of_gpus(run: Path, odd: object) -> None:
    path, before = run / "samples" / "gpus.json", joules(run)
    told = json.loads(path.read_text())
    path.write_text(json.dumps(replaced(told, odd, lambda key: key != "uuid")))
    assert call(["report", str(run)]) == 0
    assert call(["collect", str(run)]) == 0
    assert [kind for kind, _ in failures(run)] == ["bad_gpus"] * (odd is not None and odd is not GONE)
    assert joules(run) == pytest.approx(before, rel=0.05)
    path.write_text(json.dumps(replaced(told, odd)))  # their names, too
    assert call(["report", str(run)]) == 0


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: "gone" if odd is GONE else repr(odd)[:12])
def test_what_the_meta_file_says(run: Path, odd: object) -> None:
    path = run / "meta.json"
    told = json.loads(path.read_text())
    told["tools"] = {
        "tools": "web",
        "corpus": {"pages": 3},
        "recorded": ["a"],
        "counters": {"recorded_calls": 3, "backend": {"cache": {"mode": "write", "hits": 1, "misses": 2}}},
    }
    told["fairness"] = {"loss": "x"}
    for changed in (replaced(told, odd), {key: odd for key in told if odd is not GONE}):
        path.write_text(json.dumps(changed))
        assert call(["report", str(run)]) == 0
        assert call(["collect", str(run)]) == 0
        odd_words = [message for kind, message in failures(run) if kind == "bad_meta"]
        assert bool(odd_words) is (odd is not None and odd is not GONE)
        assert call(["list", "runs", "--runs-dir", str(run.parent)]) == 0


def odd_metrics(odd: Any, at_ns: int) -> Iterator[Metric]:
    """Of each name whose labels are read, one with such labels."""
    every: dict[str, tuple[str, ...]] = {
        gpu_traffic.PROCESS_MEMORY: ("gpu", "pid"),
        gpu_errors.XID: ("gpu",),
        lost_gpus.RETURNED: ("gpu",),
        untold.UNSUPPORTED: ("gpu", "field", "reason"),
        counters.COUNTER: ("engine",),
        f"{contamination.PREFIX}power_cap": ("gpu", "limit_watts", "default_watts", "why"),
        f"{contamination.PREFIX}{contamination.FOREIGN}": ("gpu", "pids", "unknown_pids"),
        "telemetry.cpu": ("wall_s",),
        "telemetry.ticks": ("skipped", "late"),
        "telemetry.rows": (),
        "gpu.pool": ("uuid", "pool"),
        "dcgm.source": ("source", "reason"),
        "dcgm.refresh": ("how",),
        "dcgm.left_out": ("field", "gpu", "reason"),
        "dcgm.missing": ("field", "line"),
        "dcgm.gap": ("begin_ns", "reason", "ended"),
        "dcgm.unreachable": ("begin_ns", "reason"),
        "logprob_diff": ("staleness", "same_version", "tokens"),
    }
    for name, names in every.items():
        yield Metric(name=name, mono_ns=at_ns, value=3.0, labels=dict.fromkeys(names, odd))
    for source in ("engine", "trainer"):
        good: dict[str, Scalar] = {"source": source, "version": 1, "engine": "e", "row_tokens": 1, "cost_s": 0.1}
        for name in good:
            labels = {**good, name: odd}
            yield Metric(name=sync_proof.PROBE, mono_ns=at_ns, value=None, values=(0.5, 0.25), labels=labels)


@pytest.mark.parametrize("odd", ODD_LABELS, ids=lambda odd: repr(odd)[:12])
def test_what_metrics_say(run: Path, odd: Any) -> None:
    path = run / "events" / "node-1-4242.jsonl"
    lines = path.read_text().splitlines()
    more = [encode(metric) for metric in odd_metrics(odd, played.BEGIN + 40 * played.S)]
    bye = Bye(**{key: value for key, value in json.loads(lines[-1]).items() if key != "k"})
    path.write_text("\n".join([*lines[:-1], *more, encode(replace(bye, events=bye.events + len(more)))]) + "\n")
    assert call(["collect", str(run)]) == 0
    assert call(["report", str(run)]) == 0
    assert "probes" in load_run(run).tables
    names = set(load_run(run).tables["probes"]["name"].to_pylist())
    assert {metric.name for metric in odd_metrics(odd, 0)} <= names
