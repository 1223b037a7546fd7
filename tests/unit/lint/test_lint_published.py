"""Tables of others: the study's, planted errors in each form, and that rounding is never taken for an error."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.protocol.errors import SpecError
from results.importing.tables import read_tables
from results.lint.findings import Finding, Linted, Severity
from results.lint.given import Given, gpu_peak
from results.lint.published import lint_tables
from results.lint.source import lint_file

# The two tables of the GPU-utilisation study of agentic RL on 8 x H100, as it prints them.
STUDY = """
Model\tColocated\tDisagg Async\tSplit (Train, Generate)\tpower utilization\twall clock time reduction
Qwen3-14B (Thinking)\t34.6%\t51.4%\t4+4\t+16.8 %\t-16.1%

Some words between the tables.

Phase\tAvg Time\t% of Step
Generate (inference + tools)\t~385s\t~85%
Forward (logprobs + values)\t~24s\t~5%
Train (policy update)\t~33s\t~7%
Weight sync + other\t~9s\t~2%
Total step\t~451s\t100%
"""
STUDY_COLUMNS = {
    "Colocated": "power_utilisation_baseline",
    "Disagg Async": "power_utilisation",
    "power utilization": "power_utilisation_gain",
}


def lint(text: str, suffix: str = ".csv", **given: Any) -> Linted:
    return lint_tables("table", read_tables(text, suffix), Given(**given))


def violations(linted: Linted) -> list[Finding]:
    return linted.of(Severity.VIOLATION)


def test_the_study_implies_a_quarter_more_joules_a_step() -> None:
    linted = lint(STUDY, ".txt", columns=STUDY_COLUMNS)
    assert violations(linted) == []
    (implied,) = linted.of(Severity.IMPLIED)
    assert implied.identity == "energy_per_step"
    assert implied.left == pytest.approx(0.2464, abs=1e-4)
    assert implied.row.endswith("row 1 (Qwen3-14B (Thinking))")
    assert implied.line == 3
    assert "+24.6% joules a step" in implied.message
    for identity in ("difference", "phases_within_step", "share_of_whole", "shares_within_one", "share_in_unit"):
        assert linted.made[identity] >= 1


@pytest.mark.parametrize(
    ("was", "planted", "identity"),
    [
        ("+16.8 %", "+48.6 %", "difference"),  # per cent of a per cent
        ("51.4%", "103.4%", "share_in_unit"),
        ("~33s", "~63s", "phases_within_step"),
        ("~85%", "~75%", "share_of_whole"),
        ("~7%", "~17%", "shares_within_one"),
        ("~9s", "-9s", "count_not_negative"),
    ],
)
def test_errors_planted_in_the_study(was: str, planted: str, identity: str) -> None:
    linted = lint(STUDY.replace(was, planted), ".txt", columns=STUDY_COLUMNS)
    assert identity in {finding.identity for finding in violations(linted)}


def test_the_study_needs_no_map() -> None:
    """A signed power utilisation is a difference, and the placements' columns are what it is of."""
    with_map, without = lint(STUDY, ".txt", columns=STUDY_COLUMNS), lint(STUDY, ".txt")
    assert without.findings == with_map.findings
    assert without.made == with_map.made


# Rows of two tables of verl's page on fully asynchronous training (docs/advance/fully_async.md, 5 February 2026).
VERL_PAGE = """
| training mode | resource allocation | step | gen | old_log_prob | update_actor | total time<br>100 step |
| :-: | :-: | :-: | :-: | :-: | :-: | :-: |
| colocate sync | 32 | 790.10 | 357.41 | 107.71 | 269.80 | 13h 44m |
| fully_async_policy | 16:16 | 294.77 | 21.26 | \\ | 313.81 | 7h 58m<br>(1.72x) |
| fully_async_policy | 32:32 | 189.26 | 28.46 | \\ | 156.98 | 4h 57m<br>(2.09x) |

| require_batches | step | gen | old_log_prob | update_actor |
| :-: | :-: | :-: | :-: | :-: |
| 1 | 203.47 | 30.88 | \\ | 181.08 |
| 2 | 158.72 | 26.32 | \\ | 128.08 |
"""


def test_published_rows_whose_phases_are_longer_than_their_step() -> None:
    linted = lint(VERL_PAGE, ".md")
    found = [(finding.identity, finding.line, finding.left, finding.right) for finding in violations(linted)]
    assert found == [
        ("phases_within_step", 5, pytest.approx(335.07), 294.77),
        ("phases_within_step", 10, pytest.approx(211.96), 203.47),
    ]
    assert linted.made["phases_within_step"] == 5
    assert linted.notes == []


def test_energy_that_is_stated_is_checked_and_not_implied() -> None:
    heading = "run,power utilisation,step time (s),J/step\n"
    columns = {"J/step": "joules_per_step"}
    honest = lint(heading + "colocated,34.6%,451,1000000\nasync,51.4%,378.4,1246000\n", columns=columns)
    assert honest.findings == [] or {f.severity for f in honest.findings} == {Severity.UNCHECKED}
    assert honest.made["energy_per_step"] == 1
    wrong = lint(heading + "colocated,34.6%,451,1000000\nasync,51.4%,378.4,839000\n", columns=columns)
    (finding,) = violations(wrong)
    assert finding.identity == "energy_per_step"
    assert "async" in finding.row


# One consistent row of everything; `planted` changes one cell, `identity` is what must be found, and nothing else may.
ROW: dict[str, str] = {
    "gpus": "8",
    "steps": "20",
    "step_s": "378.4",
    "window_s": "7568",
    "wall_s": "7900",
    "tokens_per_step": "1816320",
    "tokens_per_s": "4800",
    "tokens_per_s_gpu": "600",
    "gpu_hours": "17.56",
    "mfu": "40.4%",
    "tflops_per_gpu": "400",
    "watts": "350.0",
    "limit_watts": "700",
    "power_utilisation": "50.0%",
    "joules_per_step": "1059520",
    "idle": "0.31",
    "speed_up": "1.19x",
    "step_s_baseline": "451",
    "time_reduction": "16.1%",
    "time_change": "-16.1%",
    "staleness_mean": "0.8",
    "staleness_max": "2",
    "staleness_bound": "2",
    "start": "100",
    "end": "7990",
    "open_at_start": "12",
    "added": "500",
    "trained": "480",
    "dropped": "5",
    "failed": "3",
    "in_flight": "20",
    "queued": "4",
    "tool latency p50": "12.1",
    "tool latency p95": "31.0",
    "tool latency max": "60.2",
    "tool latency mean": "16.0",
    "share.generate": "0.60",
    "share.train": "0.30",
    "phase_s.generate": "200",
    "phase_s.train": "150",
    "leaf_s.one": "4000",
    "leaf_s.two": "3900",
}
# Names with a dot or a kind of their own are not guessed from headings: a user names them.
NAMED = {name: name for name in ROW if "." in name or name == "time_change"}
PLANTED = [
    ("tokens_per_step", "3632640", "tokens_rate"),
    ("tokens_per_s", "2400", "rate_per_gpu"),
    ("gpu_hours", "8.78", "gpu_hours"),
    ("window_s", "6900", "steps_time"),
    ("mfu", "337%", "mfu_below_one"),
    ("mfu", "60.4%", "mfu_of_flops"),
    ("tflops_per_gpu", "3200", "flops_below_peak"),
    ("limit_watts", "300", "power_within_limit"),
    ("power_utilisation", "60.0%", "power_utilisation"),
    ("joules_per_step", "132440", "energy_is_power"),
    ("idle", "1.07", "share_in_unit"),
    ("idle", "-0.2", "share_in_unit"),
    ("speed_up", "1.9x", "speed_up"),
    ("time_reduction", "19.2%", "time_reduction"),
    ("time_change", "+16.1%", "time_reduction"),
    ("staleness_max", "3", "staleness_within_bound"),
    ("staleness_mean", "2.5", "ordered"),
    ("end", "50", "start_before_end"),
    ("trained", "490", "ledger_closes"),
    ("dropped", "-5", "count_not_negative"),
    ("tool latency p95", "11.0", "ordered"),
    ("tool latency mean", "70.0", "ordered"),
    ("share.train", "0.50", "shares_within_one"),
    ("phase_s.train", "250", "phases_within_step"),
    ("leaf_s.two", "4900", "leaves_within_wall"),
]
PEAK = gpu_peak("H100")


def table_of(row: Mapping[str, str], form: str) -> str:
    if form == ".json":
        return json.dumps([row])
    if form == ".md":
        names = [name.replace("|", "\\|") for name in row]
        return f"| {' | '.join(names)} |\n|{'---|' * len(row)}\n| {' | '.join(row.values())} |\n"
    separator = "," if form == ".csv" else "\t"
    return separator.join(row) + "\n" + separator.join(row.values()) + "\n"


@pytest.mark.parametrize("form", [".csv", ".tsv", ".md", ".json", ".txt"])
def test_a_consistent_row_is_clean(form: str) -> None:
    linted = lint(table_of(ROW, form), form, columns=NAMED, gpu="H100")
    assert violations(linted) == []
    assert linted.notes == []
    # Nothing in it went unchecked for want of a column.
    assert {finding.identity for finding in linted.of(Severity.UNCHECKED)} <= {"energy_per_step"}
    assert {identity for _, _, identity in PLANTED} <= set(linted.made)


@pytest.mark.parametrize("form", [".csv", ".md", ".json"])
@pytest.mark.parametrize(("column", "value", "identity"), PLANTED)
def test_a_planted_error_is_found(column: str, value: str, identity: str, form: str) -> None:
    linted = lint(table_of({**ROW, column: value}, form), form, columns=NAMED, gpu="H100")
    found = violations(linted)
    assert identity in {finding.identity for finding in found}
    assert all(finding.row == "row 1" for finding in found)


def test_rows_are_compared_with_the_one_whose_speed_up_is_one() -> None:
    heading = "placement,step time (s),speedup\n"
    assert violations(lint(heading + "async,200,2.00x\ncolocated,400,1.0x\n")) == []
    (finding,) = violations(lint(heading + "async,200,2.60x\ncolocated,400,1.0x\n"))
    assert (finding.identity, finding.left, finding.right) == ("speed_up", 2.6, 2.0)
    # Rows of different models are not compared.
    grouped = "model,step time (s),speedup\n4B,400,1.0x\n8B,900,1.0x\n4B,200,2.0x\n8B,300,3.0x\n"
    assert violations(lint(grouped)) == []


def test_what_is_missing_is_listed() -> None:
    linted = lint("tokens_per_step,tokens_per_s_gpu\n1000,5\n")
    (finding,) = linted.of(Severity.UNCHECKED)
    assert finding.identity == "tokens_rate"
    assert "gpus, step_s is not" in finding.message
    assert lint("tokens_per_step,tokens_per_s_gpu,step_s\n1000,5,50\n", gpus=4).made["tokens_rate"] == 1


def test_what_stands_for_no_reading(tmp_path: Path) -> None:
    linted = lint("gpu,Mean power (W),GPU util (%)\n0,9223372036854775794,50\n1,312.0,140737488355328\n2,0,50\n")
    assert {(f.identity, f.line) for f in violations(linted)} == {
        ("not_blank", 2),
        ("not_blank", 3),
        ("share_in_unit", 3),
    }
    (implied,) = linted.of(Severity.IMPLIED)
    assert "exactly 0" in implied.message


def test_units_of_headings_and_of_the_map() -> None:
    linted = lint("Step time (min),Tokens/s/GPU,tok\n5,10,12000\n", columns={"tok": "tokens_per_step"}, gpus=4)
    assert violations(linted) == []
    assert linted.made["tokens_rate"] == 1
    wrong = lint("took,Tokens/s/GPU,tok\n5,10,12000\n", columns={"tok": "tokens_per_step", "took": "step_s"}, gpus=4)
    assert [finding.identity for finding in violations(wrong)] == ["tokens_rate"]
    named = {"tok": "tokens_per_step", "took": "step_s:min"}
    assert violations(lint("took,Tokens/s/GPU,tok\n5,10,12000\n", columns=named, gpus=4)) == []


def test_a_torn_row_is_told_and_left_out() -> None:
    linted = lint("idle,gpus\n0.5,8\n0.50.6,8,8\n0.4,8\n")
    assert linted.made["share_in_unit"] == 2
    assert any("line 3: 3 cells under 2 columns" in note for note in linted.notes)


@pytest.mark.parametrize(
    ("columns", "said"),
    [({"Idel": "idle"}, "did you mean 'Idle'"), ({"Idle": "ilde"}, "did you mean idle")],
)
def test_a_wrong_map_is_a_wrong_request(columns: dict[str, str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        lint("Idle,GPUs\n0.5,8\n", columns=columns)


@pytest.mark.parametrize("text", ['{"a": ', "[1, 2]", '"text"', "[" * 5000])
def test_damaged_json_is_a_wrong_request(text: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"results\.json"):
        lint_file(path, Given())


@pytest.mark.parametrize(
    "text",
    [
        '{"idle": [0.5, 1.5], "gpus": [8, 8]}',
        '{"columns": ["idle", "gpus"], "data": [[0.5, 8], [1.5, 8]]}',
        '{"a": {"idle": 0.5, "gpus": 8}, "b": {"idle": 1.5, "gpus": 8}}',
        '[{"run": {"idle": 0.5}}, {"run": {"idle": 1.5}}]',
    ],
)
def test_forms_of_json(text: str) -> None:
    columns = {"run/idle": "idle"} if "run" in text else {}
    (finding,) = violations(lint(text, ".json", columns=columns))
    assert (finding.identity, finding.left) == ("share_in_unit", 1.5)


positive = st.floats(min_value=0.5, max_value=5000)
share = st.floats(min_value=0.02, max_value=0.98)


@st.composite
def printed(draw: st.DrawFn, value: float, *, percent: bool = False) -> str:
    """A number rounded as a table may print it: to decimals, or to two significant digits and more."""
    value = 100 * value if percent else value
    how = draw(st.integers(0, 3))
    if how == 0:
        text = f"{value:.{draw(st.integers(0, 4))}f}"
    elif how == 1:
        text = f"{value:.{draw(st.integers(2, 6))}g}"
    elif how == 2:
        text = f"~{value:.{draw(st.integers(0, 2))}f}"
    else:
        text = f"{value:,.1f}"
    return f'"{text}%"' if percent else f'"{text}"'


@settings(deadline=None, max_examples=300)
@given(st.data(), positive, positive, share, share, st.integers(1, 512), st.floats(0.3, 3.0), st.integers(1, 50))
def test_rounding_is_never_a_finding(
    data: st.DataObject, step: float, rate: float, used: float, share_: float, gpus: int, factor: float, steps: int
) -> None:
    """Figures that were consistent before they were printed give no violation, however each was rounded."""
    limit, before = 700.0, step * factor
    true = {
        "step_s": step,
        "step_s_baseline": before,
        "speed_up": before / step,
        "window_s": steps * step,
        "tokens_per_s_gpu": rate,
        "tokens_per_s": rate * gpus,
        "tokens_per_step": rate * gpus * step,
        "watts": used * limit,
        "limit_watts": limit,
        "joules_per_step": used * limit * gpus * step,
        "wall_s": steps * step,
        "joules": used * limit * gpus * steps * step,
        "gpu_hours": gpus * steps * step / 3600,
        "phase_s.a": step * share_,
        "phase_s.b": step * (1 - share_),
        "x p50": step,
        "x p95": step,
        "x max": step * 1.5,
    }
    shares = {
        "power_utilisation": used,
        "idle": share_,
        "phase_share.a": share_,
        "phase_share.b": 1 - share_,
        "time_reduction": abs(1 - step / before),
    }
    if step > before:
        del shares["time_reduction"]  # not a reduction
    cells = {name: data.draw(printed(value)) for name, value in true.items()}
    cells |= {name: data.draw(printed(value, percent=True)) for name, value in shares.items()}
    cells |= {"gpus": str(gpus), "steps": str(steps)}
    columns = {name: name for name in cells if "." in name}
    linted = lint(",".join(cells) + "\n" + ",".join(cells.values()) + "\n", columns=columns)
    assert violations(linted) == []
    assert linted.made["tokens_rate"] == 1
    assert linted.made["energy_is_power"] == 2


def test_multipliers_in_headings_are_understood() -> None:
    """12.3 under `ktok/s` is 12,300: no false violation, and a true one is found."""
    text = "Total tokens (millions),Tokens/s/GPU (ktok/s),GPUs,Wall time (s)\n{},12.3,8,100\n"
    linted = lint(text.format("9.84"))
    assert violations(linted) == []
    assert linted.made["tokens_rate"] == 1
    (found,) = violations(lint(text.format("7.84")))
    assert found.left == pytest.approx(7.84e6)
    assert found.right == pytest.approx(9.84e6)


def test_a_column_in_a_unit_that_is_not_known_is_noted_and_not_used() -> None:
    text = "Tokens (lakh),Tokens/s/GPU,GPUs,Wall time (s)\n12.3,12.3,8,100\n12.4,12.3,8,100\n"
    linted = lint(text)
    assert violations(linted) == []
    assert "tokens_rate" not in linted.made
    (note,) = linted.notes
    assert note.startswith("'Tokens (lakh)' is not used: 'lakh' is no known unit of tokens (number)")
    stated = lint(text, columns={"Tokens (lakh)": "tokens:1"})
    assert len(violations(stated)) == 2


def test_quantiles_in_different_units_are_compared_in_one() -> None:
    assert violations(lint("Latency p50 (ms),Latency max (s)\n250,1.5\n")) == []
    assert len(violations(lint("Latency p50 (ms),Latency max (s)\n250,0.1\n"))) == 1
