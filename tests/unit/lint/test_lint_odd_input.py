"""What no float holds, what is no text, columns that nothing is known of, ranges that are not even."""

import json
import random
from pathlib import Path

import pytest

from harness.cli import call
from results.lint.check import EQUAL, Check
from results.lint.findings import Linted, Severity, figure
from results.lint.given import Given
from results.lint.quantity import Quantity, half_width, read_number, too_large
from results.lint.source import lint_file

HUGE = "1e400"


def linted(tmp_path: Path, name: str, text: str) -> Linted:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return lint_file(path, Given())


@pytest.mark.parametrize("text", [HUGE, "-1e400", "9" * 400, "1e" + "9" * 5000, f"{HUGE} ms", f"{'9' * 320}h 1m"])
def test_a_number_that_no_float_holds_is_none(text: str) -> None:
    assert read_number(text) is None
    assert too_large(text)


@pytest.mark.parametrize("text", ["0e400", "1e-400", "1e-" + "9" * 5000, "1." + "0" * 400])
def test_a_number_with_any_number_of_digits_is_read(text: str) -> None:
    found = read_number(text)
    assert found is not None
    assert found.quantity.low <= found.quantity.value <= found.quantity.high
    assert half_width(text) >= 0
    assert not too_large(text)


def table_of(suffix: str, cells: list[list[str]]) -> str:
    head, *rows = cells
    if suffix == ".json":
        return json.dumps([dict(zip(head, row, strict=True)) for row in rows])
    if suffix == ".jsonl":
        return "\n".join(json.dumps(dict(zip(head, row, strict=True))) for row in rows)
    if suffix == ".md":
        rule = ["---"] * len(head)
        return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))
    return "\n".join(("," if suffix == ".csv" else "\t").join(row) for row in cells)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl", ".md", ".txt"])
def test_one_cell_too_large_is_noted_and_the_other_rows_go_on(suffix: str, tmp_path: Path) -> None:
    cells = [["Step time (s)", "Idle"], [HUGE, "20%"], ["10", "150%"]]
    found = linted(tmp_path, f"table{suffix}", table_of(suffix, cells))
    (note,) = found.notes
    assert "row 1" in note
    assert f"'Step time (s)' = '{HUGE}' is too large" in note
    (finding,) = found.of(Severity.VIOLATION)
    assert (finding.identity, finding.row) == ("share_in_unit", "row 2")


SESSION = {"task_id": 1, "session_id": 1, "status": "accepted", "submit_ts": 10.0, "finalized_ts": 5.0, "total_s": -5.0}
MLLOG = ':::MLLOG {"key": "run_start", "event_type": "INTERVAL_START", "time_ms": %s, "value": %s}'
LOGS = {
    "verl": (f"step:1 - timing_s/step:{HUGE} - a/b:1\nstep:2 - timing_s/step:1 - timing_s/gen:20\n", 1),
    "verl file log": (
        f'{{"step": 1, "data": {{"timing_s/step": {HUGE}}}}}\n'
        '{"step": 2, "data": {"timing_s/step": 1, "timing_s/gen": 20}}\n',
        1,
    ),
    "areal": (
        f"Train step 1/2 done.\n│ timeperf/rollout │ {HUGE} │\n"
        "Train step 2/2 done.\n│ timeperf/rollout │ -1.0 │\n",
        1,
    ),
    "sessions": (
        json.dumps(SESSION) + "\n" + json.dumps({**SESSION, "session_id": 2}).replace("10.0", HUGE) + "\n"
        + json.dumps({**SESSION, "session_id": 3}).replace('"task_id": 1', f'"task_id": {HUGE}') + "\n",
        1,
    ),
    "mlperf": (
        MLLOG % (HUGE, 1) + "\n" + MLLOG % ("1" + "0" * 400, 1) + "\n" + MLLOG % (1, HUGE) + "\n" + MLLOG % (9000, 1)
        + "\n" + (MLLOG % (5000, 1)).replace("START", "END").replace("run_start", "run_stop"),
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_a_log_with_a_number_too_large_is_linted_but_for_it(name: str, tmp_path: Path) -> None:
    text, violations = LOGS[name]
    found = linted(tmp_path, "file.log", text)
    assert len(found.of(Severity.VIOLATION)) >= violations
    assert found.notes, "what could not be read is said"


def test_no_infinity_in_a_message(tmp_path: Path) -> None:
    text = "GPUs,Step time (s),Tokens/s/GPU,Tokens/step\n8,100,1e308,5\n8,100,600,960000\n"
    found = linted(tmp_path, "t.csv", text)
    said = [finding.message for finding in found.findings]
    assert any("too large to be computed" in message for message in said)
    assert not [message for message in said if " inf" in message or "nan" in message]
    assert [finding.row for finding in found.of(Severity.VIOLATION)] == ["row 2"]


@pytest.mark.parametrize(("step", "power"), [("-50", "50%"), ("0", "50%"), ("-5e-2", "50%")])
def test_times_and_powers_below_nothing_imply_no_energy(step: str, power: str, tmp_path: Path) -> None:
    found = linted(tmp_path, "t.csv", f"Step time (s),Power utilisation\n100,40%\n{step},{power}\n")
    assert found.of(Severity.IMPLIED) == []
    assert any("not above 0" in finding.message for finding in found.of(Severity.UNCHECKED))


def test_a_finding_does_not_contradict_itself(tmp_path: Path) -> None:
    text = "Step time (s),Power limit,Mean power,Power utilisation\n50,1,1,1%\n"
    (finding,) = linted(tmp_path, "t.csv", text).of(Severity.VIOLATION)
    assert "1 (0.333 to 3)" in finding.message  # a ratio of 0.5..1.5 and 0.5..1.5: not 1 +- 1.3
    assert finding.left is not None
    assert finding.right is not None
    assert finding.tolerance is not None
    assert abs(finding.left - finding.right) > finding.tolerance


def test_whatever_the_ranges_a_violation_is_further_apart_than_its_tolerance() -> None:
    draw = random.Random(5)
    broken = 0
    for _ in range(3000):
        one, two = (sorted(draw.uniform(-5, 5) for _ in range(3)) for _ in range(2))
        check = Check(
            identity="speed_up",
            direction=draw.choice(["=", "<=", "<", ">="]),
            left=Quantity(one[1], one[0], one[2]),
            right=Quantity(two[1], two[0], two[2]),
            left_words="a",
            right_words="b",
        )
        if not check.holds:
            broken += 1
            assert abs(check.left.value - check.right.value) >= check.tolerance * (1 - 1e-5)
    assert broken > 100


def test_figures_with_their_ranges() -> None:
    infinity = float("inf")
    assert figure(Quantity(451, 450.5, 451.5)) == "451 ±0.5"
    assert figure(Quantity(1, 1 / 3, 3)) == "1 (0.333 to 3)"
    assert figure(Quantity(5, -infinity, 5.5)) == "at most 5.5"
    assert figure(Quantity(5, 4.5, infinity)) == "at least 4.5"
    assert "any number" in figure(Quantity(5, -infinity, infinity))
    assert Check(
        identity="speed_up", direction=EQUAL, left=Quantity(5, 4.5, infinity), right=Quantity(1, 1, 1),
        left_words="", right_words="",
    ).tolerance == pytest.approx(0.5, abs=1e-4)  # fmt: skip


def test_columns_that_are_not_read_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = [f"extra{n}" for n in range(20)]
    path = tmp_path / "t.csv"
    path.write_text(
        f"run,GPUs,Step time (s),Avg power draw,{','.join(more)}\na,8,10,300,{','.join('1' * 20)}\n", encoding="utf-8"
    )
    assert call(["lint", str(path)]) == 0
    said = capsys.readouterr().out
    assert "columns not read: 'Avg power draw'" in said
    assert "--map" in said
    assert "'run'" not in said  # words, and no numbers
    assert "13 more" in said
    assert "extra19" not in said
    assert call(["lint", str(path), "--all"]) == 0
    assert "extra19" in capsys.readouterr().out
    assert call(["lint", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["sources"][0]["columns_not_read"] == ["Avg power draw", *more]
    assert call(["lint", str(path), "--map", "Avg power draw=watts"]) == 0
    assert "Avg power draw" not in capsys.readouterr().out


@pytest.mark.parametrize("suffix", [".bin", ".csv", ".json", ".txt", ".log", ""])
@pytest.mark.parametrize("kind", [[], ["--from", "verl-console"]])
def test_random_bytes_are_one_short_line(
    suffix: str, kind: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"random{suffix}"
    for seed in range(5):
        path.write_bytes(random.Random(seed).randbytes(20_000))
        assert call(["lint", str(path), *kind]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert len(said.err) < 200 + len(str(path))
        assert "binary" in said.err


def test_a_log_that_begins_with_zeros_is_text(tmp_path: Path) -> None:
    path = tmp_path / "cut.log"
    path.write_bytes(b"\0" * 10_000 + b"\nstep:1 - timing_s/step:10 - timing_s/gen:20\n")
    assert len(lint_file(path, Given()).of(Severity.VIOLATION)) == 1


def test_a_table_of_words_only_is_a_short_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"column number {n}" for n in range(3000)) + "\n" + ",".join("x" * 3000) + "\n", "utf-8")
    assert call(["lint", str(path)]) == 2
    assert len(capsys.readouterr().err) < 1500
