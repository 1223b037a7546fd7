"""What a page must say of runs that were not alone, not standard, not whole, or made on other machines."""

import json
import re
from pathlib import Path
from typing import Any

import played_folders as folders
import played_gpus as gpus
import played_runs as played
import pytest

from harness.protocol.events import Event, Metric, Span
from harness.protocol.spec import Device, Gpus, RunSpec
from reports import style
from reports.places import without_places
from reports.report import write_report

S = played.S
STUDY = "Model | Colocated | Disagg Async | Split (Train, Generate) | power utilization | wall clock time reduction"
POWER, REDUCTION = 4, 5


def small(placement: str = "colocated", **changes: Any) -> RunSpec:
    split = Gpus(train=1, rollout=1) if placement != "colocated" else Gpus(train=2, rollout=2)
    return played.make_spec(placement, **({"batch_size": 4, "group_size": 2, "steps": 8, "gpus": split} | changes))


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    def touch(_: object, stem: Path) -> list[Path]:
        files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        for file in files:
            file.write_bytes(b"")
        return files

    monkeypatch.setattr(style, "save", touch)


def page(out: Path, *runs: Path) -> str:
    return write_report(runs, out).read_text(encoding="utf-8")


def cells(text: str, header: str, place: int = 0) -> list[str]:
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {header} |"))
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", lines[start + 2 + place])[1:-1]]


def reasons(text: str, cell: str) -> str:
    """What the footnotes of a cell say."""
    numbers = re.findall(r"\[\^(\d+)\]", cell)
    return "\n".join(line for n in numbers for line in text.splitlines() if line.startswith(f"[^{n}]: "))


def told(what: str, value: float | None, at_ns: int, **labels: Any) -> Metric:
    return Metric(name=f"contamination.{what}", mono_ns=at_ns, value=value, labels=labels)


def gpu_run(folder: Path, spec: RunSpec, extra: list[Event] | None = None, **meta: Any) -> Path:
    """A run on GPUs whose sampler told `extra` too, in a file of its own."""
    run = gpus.write_gpu_run(folder, spec)
    if extra:
        hello = next(event for event in played.play(spec))
        lines = [folders.encode(event) for event in [folders.replace(hello, run_id=run.name, pid=5), *extra]]
        (run / "events" / "node-1-5.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = run / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **meta}))
    return run


FOREIGN = {"gpu": "GPU-0001", "pids": "77"}


def test_a_run_that_was_not_alone_is_marked_and_gets_no_number(tmp_path: Path) -> None:
    specs = [small(device=Device.CUDA), small("async", device=Device.CUDA)]
    inside = played.BEGIN + 400 * S
    clean = told("foreign_processes", 0.0, played.BEGIN, gpu="GPU-0001")
    dirty = [clean, told("foreign_processes", 1.0, inside, **FOREIGN)]
    runs = [gpu_run(tmp_path / "base", specs[0]), gpu_run(tmp_path / "async", specs[1], dirty)]
    alone = page(tmp_path / "alone", runs[1])
    assert "- **contamination**: **contaminated**: foreign processes on 1 GPU (pid 77)" in alone
    assert "- **energy**: **no verdict**: the run was contaminated" in alone
    text = page(tmp_path / "out", *runs)
    row = cells(text, STUDY)
    for place in (2, POWER, REDUCTION, 7):
        assert row[place].startswith("–"), row
        assert "async was contaminated: foreign processes" in reasons(text, row[place])
    assert row[1].endswith("%")  # the clean run keeps its own
    assert "> **Contaminated**, so without a number in any comparison: `async`" in text


CLEAN = told("foreign_processes", 0.0, played.BEGIN + S, gpu="GPU-0001")
CAPPED = told("power_cap", 1.0, played.BEGIN, gpu="GPU-0000", limit_watts=500.0, default_watts=700.0)


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ([], "- **contamination**: –[^"),
        ([CLEAN], "- **contamination**: none seen (foreign process,"),
        ([CAPPED], "**contaminated**: a power limit below the board's default on 1 GPU (500 W of 700 W)"),
        ([told("host_load", 0.9, played.BEGIN - S)], "**contaminated**: a busy host: load 0.90 per core"),
        ([told("host_load", 0.9, played.BEGIN + 9 * S)], "- **contamination**: –[^"),  # the run's own
        ([told("mig", None, played.BEGIN, gpu="GPU-0000")], "could not tell: foreign process, held clock, MIG"),
        ([told("power_cap", 1.0, played.BEGIN, gpu="GPU-0077")], "- **contamination**: –[^"),  # not of the run
        (
            [told("foreign_processes", 0.0, played.BEGIN, gpu="GPU-0000", unknown_pids="77")],
            "could not tell: foreign process (pid 77: whose it is is not known)",
        ),
        # It ended before the window began.
        ([told("foreign_processes", 1.0, played.BEGIN, **FOREIGN), CLEAN], "- **contamination**: none seen"),
    ],
)
def test_contamination_holds_until_the_next_look(tmp_path: Path, extra: list[Event], line: str) -> None:
    assert line in page(tmp_path / "out", gpu_run(tmp_path / "run", small(device=Device.CUDA), extra))


@pytest.mark.parametrize("status", ["failed", "interrupted", "timeout"])
def test_a_run_that_did_not_finish_has_no_ratio(tmp_path: Path, status: str) -> None:
    runs = [
        folders.write_run(tmp_path / "base", small()),
        folders.write_run(tmp_path / "async", small("async"), status=status, exit_code=4),
    ]
    text = page(tmp_path / "out", *runs)
    assert f"async did not finish (status {status})" in reasons(text, cells(text, STUDY)[REDUCTION])


MACHINE = {"host": "node-1", "cpu": "Example CPU @ 2.0 GHz", "cores": 2}


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ({"cpu": "Other CPU"}, "the runs' machines differ: CPU Example CPU @ 2.0 GHz and Other CPU"),
        ({"cores": 4}, "the runs' machines differ: cores 2 and 4"),
        ({"host": "node-2"}, "the runs' machines differ: host node-1 and node-2"),
        ({"cpu": None}, "the CPU of async is not on record"),
    ],
)
def test_other_machines_give_no_ratio_on_cpu(tmp_path: Path, machine: dict[str, Any], why: str) -> None:
    runs = [
        folders.write_run(tmp_path / "base", small()),
        folders.write_run(tmp_path / "async", small("async"), machine=MACHINE | machine),
    ]
    text = page(tmp_path / "out", *runs)
    assert why in reasons(text, cells(text, STUDY)[REDUCTION])


def test_other_gpus_give_no_ratio_and_no_points(tmp_path: Path) -> None:
    specs = [small(device=Device.CUDA), small("async", device=Device.CUDA)]
    other = [{**gpu, "name": "NVIDIA H200"} for gpu in gpus.gpu_list(2)]
    runs = [gpu_run(tmp_path / "base", specs[0]), gpu_run(tmp_path / "async", specs[1], gpus=other)]
    text = page(tmp_path / "out", *runs)
    row = cells(text, STUDY)
    for place in (POWER, REDUCTION):
        assert row[place].startswith("–")
        assert "GPUs NVIDIA H100 80GB HBM3 and NVIDIA H200" in reasons(text, row[place])
    same = [gpu_run(tmp_path / "one", specs[0]), gpu_run(tmp_path / "two", specs[1], machine=MACHINE | {"host": "n2"})]
    assert cells(page(tmp_path / "same", *same), STUDY)[REDUCTION].endswith("%")  # nodes of one kind


def test_on_cpu_the_ratio_says_that_the_processes_differ(tmp_path: Path) -> None:
    specs = [small(gpus=Gpus(train=1, rollout=1)), small("async")]
    runs = [folders.write_run(tmp_path / spec.placement.value, spec) for spec in specs]
    text = page(tmp_path / "out", *runs)
    said = reasons(text, cells(text, STUDY)[REDUCTION])
    assert "no verdict follows" in said
    assert "different numbers of processes (1 and 2)" in said
    assert "negative is shorter" in text
    assert "other work ran" not in said
    busy = [*played.play(specs[1])]
    busy.insert(1, told("host_load", 2.0, played.BEGIN))
    runs[1] = folders.write_run(tmp_path / "busy", specs[1], busy)
    text = page(tmp_path / "out", *runs)
    assert "busy: other work ran on the machine" in reasons(text, cells(text, STUDY)[REDUCTION])


def test_accounts_of_another_granularity_are_not_shown_beside(tmp_path: Path) -> None:
    spec = small("disaggregated")
    blind = [
        folders.replace(e, attributes={k: v for k, v in e.attributes.items() if k != "engine"})
        if isinstance(e, Span) and e.trajectory_id
        else e
        for e in played.play(small("async"))
    ]
    runs = [folders.write_run(tmp_path / "d", spec), folders.write_run(tmp_path / "a", small("async"), blind)]
    text = page(tmp_path / "out", *runs)
    first, second = (cells(text, "Run, pool that rolls out | granularity", n) for n in (0, 1))
    assert (first[1], second[1]) == ("`engine`", "`pool`")
    assert first[2].endswith("%")
    assert all("granularity of its account is pool, the first run's is engine" in reasons(text, c) for c in second[2:])


@pytest.mark.parametrize(
    ("changes", "way"),
    [({"overrides": {"trainer.lr": "1"}}, "overrides trainer.lr=1"), ({"as_shipped": True}, "as shipped")],
)
def test_a_run_that_is_not_standard_says_so(tmp_path: Path, changes: dict[str, Any], way: str) -> None:
    odd = folders.write_run(tmp_path / "async", small("async", **changes))
    text = page(tmp_path / "one", odd)
    assert text.splitlines()[0] == "# skyrl, async: functional check on CPU, non-standard"
    assert f"- **non-standard**: {way}" in text
    beside = page(tmp_path / "two", folders.write_run(tmp_path / "base", small()), odd)
    assert beside.splitlines()[0].endswith("functional check on CPU, non-standard)")
    assert f"async is not standard ({way}" in reasons(beside, cells(beside, STUDY)[REDUCTION])
    assert "non-standard" not in page(tmp_path / "three", tmp_path / "base")


def test_a_run_recorded_with_steps_only_says_so(tmp_path: Path) -> None:
    run = folders.write_run(tmp_path / "run", small(), record_detail="steps")
    assert "**recorded with steps only (BENCH_RECORD=steps)**" in page(tmp_path / "out", run)
    whole = folders.write_run(tmp_path / "whole", small(), record_detail="all")
    assert "steps only" not in page(tmp_path / "out2", whole)


def test_the_account_shows_few_turns_and_the_tail_by_class(tmp_path: Path) -> None:
    text = page(tmp_path / "out", folders.write_run(tmp_path / "run", small()))
    head = next(line for line in text.splitlines() if line.startswith("| Unit |"))
    assert "generating, below 25% of p95" in head
    part = text.split("| Inside the tail |")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| (\**\w[\w ]*\**) \| ([\d,.]+) s", part, flags=re.M))
    whole = float(rows.pop("**tail**").replace(",", ""))
    assert {"generating", "tool wait"} <= set(rows)
    assert sum(float(value.replace(",", "")) for value in rows.values()) == pytest.approx(whole, rel=0.02)
    other = page(tmp_path / "out2", folders.write_run(tmp_path / "async", small("async")))
    assert "in async no step waits for a whole batch" in other


def test_folders_of_the_machine_are_not_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "my_cache"))
    monkeypatch.setenv("HOME", "/srv/people/ann")
    run = tmp_path / "20261129T1-skyrl-async-16254d"
    notes = [
        f"log={run}/logs",
        f"made=/elsewhere/runs/{run.name}/scratch",
        f"a note of {tmp_path}/my_cache/models/tiny",
        "weights=/other/cache/models/random-qwen3-8b-bfloat16-r1",
        "home=/srv/people/ann/x",
        "home2=/home/bob/x",
        "kept=/opt/skyrl/bin/python",
        "url=http://h/home/page",
    ]
    text = page(tmp_path / "out", folders.write_run(run, small("async"), note=notes))
    for kept in (
        "log=RUN/logs`",
        "made=RUN/scratch",
        "a note of $BENCH_CACHE/models/tiny",
        "weights=$BENCH_CACHE/models/random-qwen3-8b",
        "home=~/x",
        "home2=~/x",
        "kept=/opt/skyrl/bin/python",
        "url=http://h/home/page",
    ):
        assert kept in text
    for gone in (str(tmp_path), "/elsewhere", "/other", "/ann", "/bob"):
        assert gone not in text, gone
    assert f"| run | `{run.name}` |" in text  # its name stays
    assert without_places([f"see {run}2/logs"], {run.name: run}) == [f"see {run}2/logs"]


def test_without_a_bound_the_fresh_difference_is_shown_and_not_judged(tmp_path: Path) -> None:
    spec = small(device=Device.CUDA)
    text = page(tmp_path / "out", gpu_run(tmp_path / "run", spec))
    assert "  - 1 fresh: shown; " in text
    assert "| 1 fresh: within a version, engine and trainer agree | shown |" in text
    on_cpu = page(tmp_path / "cpu", folders.write_run(tmp_path / "c", small()))
    assert "  - 1 fresh: yes; " in on_cpu
