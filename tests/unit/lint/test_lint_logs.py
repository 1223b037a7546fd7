"""Logs of verl, AReaL and MLPerf: recorded ones are clean, and errors planted in them are found at their line."""

import json
from pathlib import Path

import pytest

from results.importing import areal_console, verl_console
from results.importing.areal_tracer import read_sessions
from results.lint.findings import Linted, Severity
from results.lint.given import Given
from results.lint.source import kind_of, lint_file

RECORDED = Path(__file__).parent / "recorded"
VERL, AREAL, SESSIONS = (
    RECORDED / name for name in ("verl-console.log", "areal-console.log", "areal-sessions-r0.jsonl")
)
OLD_VERL = (
    "\x1b[36m(TaskRunner pid=123)\x1b[0m step:{step} - actor/entropy:0.323 - perf/mfu/actor:{mfu} - "
    "critic/rewards/mean:0.558 - critic/rewards/max:1.000 - critic/rewards/min:0.000 - timing_s/gen:45.123 - "
    "timing_s/old_log_prob:12.001 - timing_s/update_actor:{actor} - timing_s/step:{time} - "
    "timing_per_token_ms/gen:0.123 - perf/total_num_tokens:100000.000 - perf/time_per_step:{time} - "
    "perf/throughput:{rate} - fully_async/rollouter/idle_ratio:{idle}\n"
)
CLEAN = {"mfu": "0.343", "actor": "30.500", "time": "90.000", "rate": "138.889", "idle": "0.310"}


def lint(path: Path, text: str | None = None, **given: object) -> Linted:
    if text is not None:
        path.write_text(text, encoding="utf-8")
    return lint_file(path, Given(**given))  # type: ignore[arg-type]


def broken(linted: Linted) -> list[tuple[str, int | None]]:
    return [(finding.identity, finding.line) for finding in linted.of(Severity.VIOLATION)]


def test_kinds_are_told_from_the_content() -> None:
    kinds = [kind_of(path.read_text(encoding="utf-8"), path.suffix) for path in (VERL, AREAL, SESSIONS)]
    assert kinds == ["verl-console", "areal-console", "areal-tracer"]


def test_a_recorded_verl_log_is_clean_and_says_for_how_many_gpus_it_speaks() -> None:
    linted = lint(VERL, max_staleness=1)
    assert broken(linted) == []
    assert {"phases_within_step", "mfu_below_one", "ordered", "share_in_unit", "counts_agree"} <= set(linted.made)
    (implied,) = linted.of(Severity.IMPLIED)
    assert (implied.identity, round(implied.left or 0)) == ("tokens_rate", 2)
    assert {finding.identity for finding in linted.of(Severity.UNCHECKED)} == {"tokens_rate"}


def test_a_throughput_that_leaves_out_the_rollout_gpus_is_found() -> None:
    assert broken(lint(VERL, gpus=2, max_staleness=1)) == []
    found = broken(lint(VERL, gpus=4, max_staleness=1))
    assert found == [("tokens_rate", line) for line in (2, 3, 4)]


@pytest.mark.parametrize(
    ("was", "planted", "identity"),
    [
        ("perf/mfu/actor:0.", "perf/mfu/actor:3.", "mfu_below_one"),
        ("timing_s/gen:", "timing_s/gen:9", "phases_within_step"),
        ("response/aborted_ratio:0.0", "response/aborted_ratio:1.5", "share_in_unit"),
        ("response_length/min:", "response_length/min:99", "ordered"),
        ("perf/time_per_step:", "perf/time_per_step:9", "counts_agree"),
        ("timing_s/adv:", "timing_s/adv:-", "count_not_negative"),
    ],
)
def test_errors_planted_in_a_recorded_verl_log(was: str, planted: str, identity: str, tmp_path: Path) -> None:
    lines = VERL.read_text(encoding="utf-8").splitlines(keepends=True)
    assert was in lines[2]
    lines[2] = lines[2].replace(was, planted)
    found = broken(lint(tmp_path / "worker.log", "".join(lines), gpus=2, max_staleness=1))
    assert (identity, 3) in found
    assert {line for _, line in found} == {3}


def test_staleness_against_its_bound() -> None:
    assert "staleness_within_bound" in lint(VERL, max_staleness=9).made
    stale = lint(VERL, max_staleness=0)
    assert {finding.identity for finding in stale.of(Severity.VIOLATION)} == {"staleness_within_bound"}


def test_an_old_log_of_three_decimals(tmp_path: Path) -> None:
    text = "".join(OLD_VERL.format(step=step, **CLEAN) for step in range(1, 4))
    linted = lint(tmp_path / "log.txt", text, gpus=8)
    assert broken(linted) == []
    assert linted.made["tokens_rate"] == 3


@pytest.mark.parametrize(
    ("change", "identity"),
    [
        ({"mfu": "3.370"}, "mfu_below_one"),
        ({"actor": "90.500"}, "phases_within_step"),
        ({"rate": "277.778"}, "tokens_rate"),
        ({"idle": "1.070"}, "share_in_unit"),
        ({"idle": "-0.070"}, "share_in_unit"),
    ],
)
def test_errors_planted_in_an_old_log(change: dict[str, str], identity: str, tmp_path: Path) -> None:
    text = OLD_VERL.format(step=1, **CLEAN) + OLD_VERL.format(step=2, **{**CLEAN, **change})
    assert broken(lint(tmp_path / "log.txt", text, gpus=8)) == [(identity, 2)]


def test_an_idle_ratio_that_is_always_zero_is_said(tmp_path: Path) -> None:
    text = "".join(OLD_VERL.format(step=step, **{**CLEAN, "idle": "0.000"}) for step in range(1, 5))
    (implied,) = lint(tmp_path / "log.txt", text, gpus=8).of(Severity.IMPLIED)
    assert "exactly 0 in all 4 steps" in implied.message


def test_figures_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    line = OLD_VERL.format(step=1, **CLEAN).replace("critic/rewards/mean:0.558", "critic/rewards/mean:np.float64(nan)")
    linted = lint(tmp_path / "log.txt", line + OLD_VERL.format(step=2, **CLEAN), gpus=8)
    assert broken(linted) == []
    assert linted.notes == ["critic/rewards/mean is no number in 1 of 2 steps, first in step 1"]


def test_the_file_log_says_the_same(tmp_path: Path) -> None:
    steps = verl_console.read_steps(VERL.read_text(encoding="utf-8").splitlines())
    numbers = [
        {"step": one.step, "data": {key: one.value(key) for key in one.values if "np." not in one.values[key]}}
        for one in steps
    ]
    text = "\n".join(json.dumps(one) for one in numbers)
    linted = lint(tmp_path / "steps.jsonl", text, gpus=2, max_staleness=1)
    assert broken(linted) == []
    assert linted.made["tokens_rate"] == 3


def test_lines_that_are_no_steps_are_passed_over() -> None:
    lines = ["step:1 - loss:0.5", "at step:3 - see a/b", "step:x - a/b:1", "step:2 - a/b:1.5 - broken - c/d:"]
    (step,) = verl_console.read_steps(lines)
    assert (step.step, step.line, dict(step.values)) == (2, 4, {"a/b": "1.5"})


def test_a_recorded_areal_log_is_clean() -> None:
    linted = lint(AREAL, max_staleness=0)
    assert broken(linted) == []
    assert linted.made["phases_within_step"] == 1  # of the first step no beginning is on record
    assert linted.made["ledger_closes"] == 2
    (first, second) = areal_console.read_steps(AREAL.read_text(encoding="utf-8").splitlines())
    assert (first.step, second.step, first.line) == (1, 2, 1)
    assert first.value("timeperf/rollout") == 2.3433
    assert (second.wall_s or 0) - (first.wall_s or 0) == pytest.approx(4.603)


@pytest.mark.parametrize(
    ("was", "planted", "identity"),
    [
        ("timeperf/rollout                     │  2.1688e+00", "timeperf/rollout │  2.1688e+01", "phases_within_step"),
        ("ppo_actor/n_seqs                      │  8.0000e+00", "ppo_actor/n_seqs │  9.0000e+00", "ledger_closes"),
        ("ppo_actor/n_valid_tokens              │  6.4300e+02", "ppo_actor/n_valid_tokens │  6.4300e+03", "ordered"),
    ],
)
def test_errors_planted_in_a_recorded_areal_log(was: str, planted: str, identity: str, tmp_path: Path) -> None:
    text = AREAL.read_text(encoding="utf-8")
    head, second = text[: text.rindex("Train step")], text[text.rindex("Train step") :]
    assert was in second
    found = broken(lint(tmp_path / "areal.log", head + second.replace(was, planted), max_staleness=0))
    assert identity in {name for name, _ in found}


def test_recorded_sessions_are_clean() -> None:
    linted = lint(SESSIONS)
    assert broken(linted) == []
    assert {"start_before_end", "counts_agree", "leaves_within_wall"} == set(linted.made)
    (pending,) = linted.of(Severity.UNCHECKED)
    assert "never finalized (status pending)" in pending.message


@pytest.mark.parametrize(
    ("change", "identity"),
    [
        (lambda one: one.update(finalized_ts=one["submit_ts"] - 1, total_s=-1.0), "start_before_end"),
        (lambda one: one.update(total_s=one["total_s"] * 2), "counts_agree"),
        (lambda one: one.update(generate_s=one["generate_s"] + 0.5), "counts_agree"),
        (lambda one: one["phases"]["generate"][0].update(start_ts=one["submit_ts"] - 0.1), "start_before_end"),
        (lambda one: one["phases"]["reward"][0].update(end_ts=one["finalized_ts"] + 5), "leaves_within_wall"),
    ],
)
def test_errors_planted_in_recorded_sessions(change: object, identity: str, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in SESSIONS.read_text(encoding="utf-8").splitlines()]
    change(rows[1])  # type: ignore[operator]
    found = broken(lint(tmp_path / "sessions-r0.jsonl", "\n".join(map(json.dumps, rows))))
    assert (identity, 2) in found
    assert {line for _, line in found} == {2}


def test_a_session_line_cut_short_is_told() -> None:
    lines = SESSIONS.read_text(encoding="utf-8").splitlines()
    sessions, problems = read_sessions([*lines[:3], lines[3][:90]])
    assert len(sessions) == 3
    assert problems[0].startswith("line 4: ")


NESTED = [  # two of one name at once, as of two engines
    ("start", "INTERVAL_START", 1),
    ("start", "INTERVAL_START", 2),
    ("stop", "INTERVAL_END", 3),
    ("stop", "INTERVAL_END", 4),
]


def mlperf(key: str, kind: str, at: int, value: object = None, **metadata: object) -> str:
    event = {"namespace": "", "time_ms": at, "event_type": kind, "key": key, "value": value, "metadata": metadata}
    return f"0: :::MLLOG {json.dumps(event)}"


def test_mlperf_logs(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    lines = [
        mlperf("global_batch_size", "POINT_IN_TIME", 1, 256),
        mlperf("run_start", "INTERVAL_START", 10),
        mlperf("eval_start", "INTERVAL_START", 20),
        mlperf("eval_accuracy", "POINT_IN_TIME", 25, 0.5, samples_count=512),
        mlperf("eval_stop", "INTERVAL_END", 30, samples_count=512),
        mlperf("run_stop", "INTERVAL_END", 40, status="success"),
    ]
    linted = lint(path, "\n".join(lines))
    assert broken(linted) == []
    assert linted.made == {"count_not_negative": 1, "start_before_end": 2, "counter_grows": 1}
    planted = [
        (0, mlperf("global_batch_size", "POINT_IN_TIME", 1, -256), "count_not_negative"),
        (4, mlperf("eval_stop", "INTERVAL_END", 30, samples_count=256), "counter_grows"),
        (5, mlperf("run_stop", "INTERVAL_END", 4), "start_before_end"),
    ]
    for place, line, identity in planted:
        text = "\n".join([*lines[:place], line, *lines[place + 1 :]])
        assert broken(lint(path, text)) == [(identity, place + 1)]
    nested = [mlperf(f"bench.sync_{end}", kind, at) for end, kind, at in NESTED]
    assert lint(path, "\n".join([*lines[:1], *nested])).made["start_before_end"] == 2
    unended = lint(path, "\n".join([*lines[:5], ":::MLLOG {torn"]))
    assert [finding.row for finding in unended.of(Severity.UNCHECKED)] == ["run"]
    assert unended.notes[0].startswith("line 6: ")


def test_what_lies_outside_a_step_or_is_not_known_is_no_finding(tmp_path: Path) -> None:
    """Older versions save and test outside `timing_s/step`, some name MFU otherwise, and -1 stands for unknown."""
    line = (
        "step:60 - mfu/actor:0.321 - timing_s/gen:4191.591 - timing_s/update_actor:3533.000 - timing_s/step:7725.570 - "
        "timing_s/testing:770.552 - timing_s/save_checkpoint:51.069 - timing_s/agent_loop/num_preempted/min:-1.000 - "
        "timing_s/agent_loop/num_preempted/max:-1.000 - timing_s/agent_loop/slowest/num_preempted:-1.000 - words：1%\n"
    )
    linted = lint(tmp_path / "log.txt", line)
    assert broken(linted) == []
    assert linted.made["mfu_below_one"] == 1
    assert broken(lint(tmp_path / "log.txt", line.replace("mfu/actor:0", "mfu/actor:3"))) == [("mfu_below_one", 1)]
