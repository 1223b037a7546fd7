"""What a run costs, by hand from its window, and what a page says of it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from played_gpus import write_gpu_run
from played_runs import make_spec

from harness.cli.report import command
from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Gpus
from reports.case import Case
from reports.report import write_report
from results.cost import cost
from results.prices import Prices


@pytest.fixture(scope="module")
def gpu_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = make_spec("async", device=Device.CUDA, gpus=Gpus(train=4, rollout=4), steps=12)
    run = write_gpu_run(tmp_path_factory.mktemp("cost"), spec)
    events = run / "events" / "node-1-4242.jsonl"
    lines, failed = [], 0
    for line in events.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event.get("status") == "ok" and event.get("sample") == 2:
            failed += 1
            event = {**event, "status": "failed"}  # and it keeps its place in its batch
        lines.append(json.dumps(event))
    assert failed > 10
    events.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run


def test_the_figures_by_hand(gpu_run: Path) -> None:
    case = Case.load(gpu_run)
    window, rates, energy = case.figures.window, case.figures.throughput, case.figures.energy
    assert window is not None
    assert rates is not None
    assert energy is not None
    found = cost(case.run, case.figures, Prices(gpu_hour=3.6, kwh=0.36))
    whole = 0.001 * 8 * window.seconds  # 3.6 an hour is a thousandth a second
    assert found.per_step.value == pytest.approx(whole / window.steps)
    # From the rows, one at a time: what steps of the window took, ended well, and how old it was.
    rows = [
        row
        for row in case.run.tables["trajectories"].to_pylist()
        if row["consumed_ns"] is not None and window.start_ns < row["consumed_ns"] <= window.end_ns
    ]
    trained = [row for row in rows if row["status"] == "ok"]
    good = [row for row in trained if row["version_trained"] - row["version_first"] <= case.run.spec.max_staleness]
    assert len(rows) > len(trained) > 0
    assert found.per_trajectories == pytest.approx(whole / len(trained) * 1_000)
    assert found.per_good_trajectories == pytest.approx(whole / len(good) * 1_000)
    for of, per, energy_per in (
        (trained, found.per_trained_tokens, found.energy_per_trained_tokens),
        (good, found.per_good_tokens, found.energy_per_good_tokens),
    ):
        tokens = sum(row["generated_tokens"] for row in of)
        assert per.value == pytest.approx(whole / tokens * 1e6)
        assert energy.joules is not None
        assert energy_per == pytest.approx(energy.joules / 3.6e6 * 0.36 / tokens * 1e6)
    assert energy.joules_per_trained == pytest.approx((energy.joules or 0.0) / len(trained))
    assert energy.trained == len(trained)
    assert {each.name for each in energy.attributed if each.joules} >= {"trained", "failed"}
    assert found.per_tokens.value == pytest.approx(whole / rates.generated_tokens * 1e6)
    assert energy.joules is not None
    assert found.energy_per_step == pytest.approx(energy.joules / 3.6e6 * 0.36 / window.steps)
    assert found.per_tokens.low is not None
    assert found.per_tokens.high is not None
    assert found.per_tokens.low <= found.per_tokens.value <= found.per_tokens.high
    twice = cost(case.run, case.figures, Prices(gpu_hour=7.2))
    assert twice.per_tokens.value == pytest.approx(2 * found.per_tokens.value)
    assert twice.energy_per_step is None
    assert twice.energy_per_tokens is twice.energy_per_trained_tokens is None
    power = cost(case.run, case.figures, Prices(kwh=0.36))
    assert power.per_trained_tokens.value is None
    assert power.energy_per_tokens == pytest.approx(energy.joules / 3.6e6 * 0.36 / rates.generated_tokens * 1e6)


def test_a_page_has_it_only_when_a_price_is_given(gpu_run: Path, tmp_path: Path) -> None:
    assert "## Cost" not in write_report([gpu_run], tmp_path).read_text()
    text = write_report([gpu_run], tmp_path, Prices(gpu_hour=2.5)).read_text()
    assert "At 2.50 per GPU hour, in the currency of the price." in text
    assert "| GPU hours, per million good tokens |" in text
    assert "| GPU hours, per million trained tokens |" in text
    assert "| energy, per step |" not in text
    text = write_report([gpu_run], tmp_path, Prices(kwh=0.25)).read_text()
    for of in ("generated", "trained", "good"):
        assert f"| energy, per million {of} tokens |" in text


def test_a_cpu_run_costs_no_gpu_hour(tmp_path: Path) -> None:
    from played_folders import write_run

    run = write_run(tmp_path, make_spec("colocated"))
    found = cost((case := Case.load(run)).run, case.figures, Prices(gpu_hour=2.5))
    assert (found.per_step.value, found.per_trajectories, found.note) == (None, None, "no GPU: there is no GPU hour")
    assert "there is no GPU hour" in write_report([run], tmp_path / "out", Prices(gpu_hour=2.5)).read_text()


@pytest.mark.parametrize("price", ["0", "-1", "nan", "inf"])
def test_prices_are_numbers_above_nothing(gpu_run: Path, price: str) -> None:
    result = CliRunner().invoke(command, [str(gpu_run), "--price-per-gpu-hour", price])
    assert isinstance(result.exception, SpecError)
    assert "price-per-gpu-hour" in str(result.exception)
