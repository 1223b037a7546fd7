"""What no check may pass unseen: other work, lost samples, mixtures, runs without a measure; and what it prints."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.protocol.errors import SpecError
from reports.checked.document import document
from reports.checked.junit import junit
from reports.checked.page import page
from results.baselines.check import Outcome, check, gates_named
from results.baselines.occasions import grouped, occasions
from results.baselines.store import Baseline, accept, digest_of, read_baseline
from results.comparing.kept import read_measures, write_measures
from results.comparing.measures import Value


def one(cells):
    (cell,) = cells
    return cell


def tonight(nights, **other):
    return nights(3, first=9, each=3, seed=2, prefix="new", **other)


def also(runs, **values):
    """Runs with more values."""
    return [replace(run, values={**run.values, **{k: Value(v) for k, v in values.items()}}) for run in runs]


def printed(cell):
    return page([cell], Baseline(where="b", runs=(), ignored=(), trusted=frozenset({"Ann"}), accepted={}))


def test_shorter_steps_of_less_work_fail_and_say_why(nights):
    """What cuts trajectories short makes steps faster: no green."""
    work = {"consumed_generated_tokens": 500.0, "consumed_tool_calls": 4.0}
    held = also(nights(6), **work)
    new = also(tonight(nights, factors={"step_time_s": 0.8}), **{**work, "consumed_generated_tokens": 440.0})
    cell = one(check(new, held))
    assert cell.outcome is Outcome.FAILED
    (problem,) = cell.problems
    assert problem.startswith("the work differs: generated tokens per trajectory trained on in the window: 500 in the")
    assert "440 in the new runs (-12.0%)" in problem
    assert "the work differs" in printed(cell)
    assert one(check(also(tonight(nights), **work), held)).outcome is Outcome.PASSED


def test_work_that_varies_by_itself_is_doubted_and_not_failed(nights):
    held = [also([run], consumed_generated_tokens=500.0 + 40 * (k % 3))[0] for k, run in enumerate(nights(6))]
    new = [also([run], consumed_generated_tokens=540.0 + 40 * k)[0] for k, run in enumerate(tonight(nights))]
    cell = one(check(new, held))
    assert cell.outcome is Outcome.PASSED
    assert any("generated tokens per trajectory" in doubt and "+7.4%" in doubt for doubt in cell.doubts)


def test_tools_that_take_longer_are_no_other_work(nights):
    cell = one(check(also(tonight(nights), consumed_tool_s=2.0), also(nights(6), consumed_tool_s=1.0)))
    assert cell.problems == ()
    assert any("seconds in tools" in doubt for doubt in cell.doubts)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"adherence": 0.9996}, "only 99.9% of its trajectories did the work that was planned"),
        ({"lost": "40 of 50 s have no sample"}, "lost its samples: 40 of 50 s have no sample"),
    ],
)
def test_a_run_that_did_less_than_planned_or_lost_its_samples_fails_and_is_no_baseline(tmp_path, nights, changes, said):
    new = tonight(nights)
    bad = replace(new[1], **changes)
    cell = one(check([new[0], bad, new[2]], nights(6)))
    assert cell.outcome is Outcome.FAILED
    assert cell.problems == (f"{bad.run_id}: {said}",)
    with pytest.raises(SpecError, match="can't be a baseline"):
        accept(tmp_path / "b", [bad], who="Ann", why="x", utc="2026-03-09T00:00:00Z")
    cell = one(check(new, [*nights(6), replace(bad, run_id="old")]))
    assert cell.outcome is Outcome.PASSED
    assert cell.left_out == (f"old: {said}",)


def test_what_a_check_reads_of_a_run_is_in_its_digest_and_on_disk(tmp_path, nights):
    (run,) = nights(1)
    bad = replace(run, adherence=0.5, lost="all")
    assert digest_of(bad) != digest_of(run) == digest_of(replace(run, adherence=1.0))
    write_measures(tmp_path / "m.parquet", [bad])
    assert read_measures(tmp_path / "m.parquet") == [
        replace(bad, series=read_measures(tmp_path / "m.parquet")[0].series)
    ]


def test_doubts_of_both_sides_are_printed_once_each(nights):
    note = "not steady: 5 steps, fewer than 10"
    new = [replace(run, notes=(note,)) for run in tonight(nights)]
    cell = one(check(new, [replace(run, notes=("0.52 s of the window have no name",)) for run in nights(6)]))
    assert cell.outcome is Outcome.PASSED  # printed, not gated on
    assert cell.doubts[0] == f"new: {note} ({', '.join(run.run_id for run in new)})"
    assert cell.doubts[1].endswith("and 3 more)")
    said = printed(cell)
    assert "Doubts:" in said
    assert "0.52 s of the window have no name" in said
    assert document([cell])["cells"][0]["doubts"] == list(cell.doubts)


def test_another_number_of_steps_is_other_work(nights):
    long = [replace(run, run_id=f"long{k}", system={"steps": "24"}) for k, run in enumerate(nights(6))]
    short = [replace(run, system={"steps": "12"}) for run in nights(6)]
    new = [replace(run, system={"steps": "12"}) for run in tonight(nights)]
    cell = one(check(new, [*long, *short]))
    assert len(cell.baseline) == 6
    assert cell.left_out[0] == "long0: of 24 steps, the new runs of 12"
    mixed = [*new[:2], replace(new[2], system={"steps": "24"})]
    assert "the new runs differ in number of steps: 12, 24; check them apart" in one(check(mixed, short)).thin


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"commit": "fffffff"}, "commit of bench: c009, fffffff"),
        ({"framework_version": "0.3"}, "framework version: 0.2, 0.3"),
        ({"granularity": "engine"}, "granularity of the time accounts: engine, pool"),
    ],
)
def test_new_runs_of_different_versions_are_not_judged_together(nights, changes, said):
    new = tonight(nights)
    cell = one(check([*new[:2], replace(new[2], **changes)], nights(6)))
    assert cell.outcome is Outcome.UNDERPOWERED
    assert cell.thin == (f"the new runs differ in {said}; check them apart",)


def test_one_poor_baseline_run_is_left_out_and_named(nights):
    held = nights(7)
    poor = replace(held[0], values={**held[0].values, "phase_train_s": Value(None, "no track")})
    cell = one(check(tonight(nights), [poor, *held[1:]]))
    assert cell.outcome is Outcome.PASSED
    assert cell.left_out == (f"{poor.run_id}, for phase_train_s: has none: no track",)
    assert len(cell.baseline) == 7  # it has the other measures
    few = [replace(run, values={**run.values, "phase_train_s": Value(0.0)}) for run in held[:3]]
    cell = one(check(tonight(nights), [*few, *held[3:]]))
    assert cell.outcome is Outcome.UNDERPOWERED
    assert "4 baseline run(s) can be judged by phase_train_s; at least 5 are needed" in cell.thin
    assert [gate.measure.name for gate in cell.gates if gate.failed] == []


def test_a_run_that_no_check_could_use_is_no_baseline(tmp_path, nights):
    (run,) = nights(1)
    for bad, said in (
        (replace(run, started_utc=None), "when it began is not on record"),
        (replace(run, values={}), "it has none of step_time_s"),
        (replace(run, device="cuda"), "no power figure"),
    ):
        with pytest.raises(SpecError, match=said):
            accept(tmp_path / "b", [bad], who="Ann", why="x", utc="2026-03-09T00:00:00Z")
    assert not (tmp_path / "b").exists()
    accept(tmp_path / "b", [run], who="Ann", why="x", utc="2026-03-09T00:00:00Z")
    assert len(read_baseline(tmp_path / "b").runs) == 1


def test_a_gate_of_0_says_so(nights):
    new = tonight(nights)
    none = replace(new[1], values={**new[1].values, "goodput_tokens_per_s_gpu": Value(0.0)})
    cell = one(check([new[0], none, new[2]], nights(6)))
    assert cell.outcome is Outcome.FAILED
    (failed,) = [gate for gate in cell.gates if gate.failed]
    assert failed.why == f"{none.run_id} has 0 token/s/process of it, and to that there is no ratio"


def test_nothing_of_what_should_be_low_is_no_failure_and_not_green(nights):
    gone = also(tonight(nights), phase_train_s=0.0)
    cell = one(check(gone, nights(6)))
    assert cell.outcome is Outcome.UNDERPOWERED
    assert [gate.measure.name for gate in cell.gates] == ["step_time_s", "goodput_tokens_per_s_gpu"]
    assert any(reason.startswith("phase_train_s is 0 in new-9-0, new-9-1, new-9-2:") for reason in cell.thin)
    alone = one(check(gone, nights(6), gates_named(["phase_train_s"])))
    assert alone.outcome is Outcome.UNDERPOWERED
    assert "no measure gates" in alone.thin


def test_the_tolerance_of_each_gate_is_printed(nights):
    cell = one(check(tonight(nights), nights(6), gates_named(["step_time_s=4%", "phase_train_s"])))
    rows = [line for line in printed(cell).splitlines() if line.startswith(("| step", "| phase"))]
    assert [row.split("|")[6].strip() for row in rows] == ["4.0%", "10.0%"]
    assert [gate["tolerance"] for gate in document([cell])["cells"][0]["gates"]] == [0.04, 0.1]


def test_a_machine_that_never_rests_has_an_occasion_a_day(nights):
    """Every five hours for a week: each run is near the one before, and the first is far from the last."""
    week = [
        replace(run, run_id=f"r{k:02}", started_utc=f"2026-03-{1 + 5 * k // 24:02}T{5 * k % 24:02}:00:00Z")
        for k, run in enumerate(nights(34))
    ]
    groups = grouped(week)
    assert [len(group) for group in groups[:-1]] == [5] * (len(groups) - 1)
    assert 6 <= occasions(week) <= 7
    evening = [replace(run, started_utc=f"2026-03-01T{18 + k}:00:00Z") for k, run in enumerate(nights(5))]
    assert occasions(evening) == 1


GRAINS = """
from conftest import measured
from results.baselines.fit import baseline_of
runs = [measured(name, granularity=name) for name in ("engine", "metric")]
print(baseline_of(runs, [measured("old")])[1])
"""


def test_the_page_s_bytes_do_not_hang_on_the_order_of_a_set():
    seen = {
        subprocess.run(
            [sys.executable, "-c", GRAINS],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(seen) == 1
    assert "engine/metric" in seen.pop()


def test_doubts_are_in_the_xml_of_a_ci_too(nights):
    new = [replace(run, notes=("scripted policy\x07",)) for run in tonight(nights)]
    (suite,) = ElementTree.fromstring(junit(check(new, nights(6))))
    said = suite.findtext("system-out") or ""
    assert said.startswith("new: scripted policy (new-9-0")
