"""The study of false alarms in small, on noise that is known: the same code as `benchmarks/false_alarms.py` runs."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from made_measures import made_run

from results.comparing.kept import write_measures
from results.comparing.measures import RunMeasures

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SD = 0.03


@pytest.fixture(scope="module")
def study() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import false_alarms
    finally:
        sys.path.remove(str(BENCHMARKS))
    return false_alarms


def noisy(count: int, *, together: float = 0.5) -> list[RunMeasures]:
    """Runs whose parts vary by SD, and partly together: a slow moment of the machine slows them all."""
    rng = np.random.default_rng(4)
    runs = []
    for i in range(count):
        shared = rng.normal()

        def seconds(mean: float, shared: float = shared) -> list[float]:
            own = rng.normal()
            off = SD * (np.sqrt(together) * shared + np.sqrt(1 - together) * own)
            return [mean * float(np.exp(off))] * 6

        parts = {
            "phase_train_s": seconds(0.3),
            "phase_logprob_s": seconds(0.1),
            "exposed_tool_s": seconds(1.3),
            "exposed_generating_s": seconds(0.6),
            "phase_other_s": [0.003] * 6,
        }
        rate = 1000 / sum(each[0] for each in parts.values())
        runs.append(made_run(f"real{i}", parts, values={"goodput_tokens_per_s_gpu": rate}))
    return runs


def test_made_runs_vary_as_the_real_ones_and_together(study: ModuleType) -> None:
    real = noisy(12)
    noise = study.Noise.of(real)
    assert set(noise.parts) == {"phase_train_s", "phase_logprob_s", "exposed_tool_s", "exposed_generating_s"}
    made = noise.draw(np.random.default_rng(1), 4000, "made")
    for name in ("phase_train_s", "exposed_tool_s", "step_time_s", "goodput_tokens_per_s_gpu"):
        was, now = (np.log([run.value(name) or np.nan for run in runs]) for runs in (real, made))
        assert now.std() == pytest.approx(was.std(ddof=1), rel=0.1), name
        assert now.mean() == pytest.approx(was.mean(), abs=0.005), name
    pair = [
        np.log([[run.value(n) for n in ("phase_train_s", "exposed_tool_s")] for run in runs]) for runs in (real, made)
    ]
    was, now = (np.corrcoef(each, rowvar=False)[0, 1] for each in pair)
    assert now == pytest.approx(was, abs=0.06)
    assert len({run.value("phase_train_s") for run in made}) == len(made)


def test_a_slow_down_is_in_the_training_and_in_what_follows_from_it(study: ModuleType) -> None:
    noise = study.Noise.of(noisy(12))
    (plain,), (slow,) = (noise.draw(np.random.default_rng(1), 1, "r", slower=factor) for factor in (1.0, 1.15))
    added = 0.15 * plain.value("phase_train_s")
    assert slow.value("phase_train_s") == pytest.approx(1.15 * plain.value("phase_train_s"))
    assert slow.value("step_time_s") == pytest.approx(plain.value("step_time_s") + added)
    lost = plain.value("goodput_tokens_per_s_gpu") / slow.value("goodput_tokens_per_s_gpu")
    assert lost == pytest.approx(slow.value("step_time_s") / plain.value("step_time_s"))
    assert slow.value("exposed_tool_s") == plain.value("exposed_tool_s")


def test_false_alarms_are_rare_and_slow_downs_are_found_and_blamed(study: ModuleType) -> None:
    noise = study.Noise.of(noisy(12))
    alike = study.made_checks(noise, 300, 12, 6)
    assert alike.failed <= 7  # at 1 % a check, 8 and more of 300 come about once in a hundred times
    slow = study.made_checks(noise, 100, 12, 6, slower=1.15)
    assert slow.by_phase >= 93
    assert slow.blamed >= 93
    assert slow.underpowered < 50
    small = study.made_checks(noise, 100, 12, 6, slower=1.05)
    assert small.failed <= 5  # within the tolerance: reported, and not claimed
    assert small.shown >= 60


def test_loud_runs_are_called_underpowered_and_raise_no_alarm(study: ModuleType) -> None:
    loud = study.Noise.of(noisy(12))
    louder = type(loud)(
        **{
            name: getattr(loud, name) * (5 if name == "residuals" else 1)
            for name in ("means", "rest_s", "residuals", "rate_residuals")
        },
        template=loud.template,
        parts=loud.parts,
    )
    alike = study.made_checks(louder, 300, 12, 6)
    assert alike.failed <= 8
    assert alike.underpowered >= 299


def test_as_many_runs_as_are_needed_find_a_slow_down(study: ModuleType) -> None:
    needed = study.runs_needed(SD)
    assert 2 <= needed <= 6
    assert study.runs_needed(0.01) <= needed < study.runs_needed(0.10)
    assert study.runs_needed(1.0) is None
    noise = study.Noise.of(noisy(12))
    most = float(np.sqrt((noise.residuals**2).mean(axis=0))[noise.parts.index("phase_train_s")])
    enough = study.runs_needed(most)
    slow = study.made_checks(noise, 200, 2 * enough, enough, slower=1.15)
    assert slow.by_phase / slow.checks >= 0.91  # 95 %, less three times the luck of 200 checks


def test_all_splits_of_the_real_runs(study: ModuleType) -> None:
    tally = study.splits(noisy(8))
    assert tally.checks == 35  # 8 over 4, each once
    assert tally.failed <= 1


def test_the_upper_bound_is_clopper_pearsons(study: ModuleType) -> None:
    assert study.upper_bound(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert study.upper_bound(10, 2000) == pytest.approx(0.00847, abs=2e-5)
    assert study.upper_bound(5, 5) == 1.0


def test_the_study_end_to_end(study: ModuleType, tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    for run in noisy(6):
        write_measures(tmp_path / f"{run.run_id}.parquet", [run])
    figure = tmp_path / "curve.svg"
    sizes = ["--checks", "20", "--injected", "10", "--curve", "2", "--figure", str(figure)]
    monkeypatch.setattr(sys, "argv", ["false_alarms.py", "--noise", str(tmp_path), *sizes])
    assert study.main() == 1  # 20 checks can't bound a rate by 1 %
    assert '"made_checks": 20' in capsys.readouterr().out
    assert figure.read_text().startswith("<?xml")
    first = figure.read_bytes()
    study.main()
    assert figure.read_bytes() == first


def test_nights_that_differ_alarm_no_test_that_knows_of_nights(study: ModuleType) -> None:
    noise = study.Noise.of(noisy(12))
    knows, knows_not = study.nights_checks(noise, 150, 5, 1, 0.05)
    assert knows.failed <= 5  # at 1 % a check, 6 and more of 150 come about once in two hundred times
    assert knows_not.failed > knows.failed
    made = noise.draw(np.random.default_rng(1), 3000, "r", nights=[f"2026-11-{n:02}T02:00:00Z" for n in range(1, 31)])
    assert len({run.started_utc for run in made}) == 30
    spread = noise.draw(np.random.default_rng(1), 3000, "r", nights=study.dates(0, 1500), between=0.05)
    was, now = (np.log([run.value("phase_train_s") or np.nan for run in runs]).std() for runs in (made, spread))
    assert now == pytest.approx(float(np.hypot(was, 0.05)), rel=0.05)


def test_quieter_noise_is_the_same_scaled(study: ModuleType) -> None:
    noise = study.Noise.of(noisy(12))
    quiet = noise.quieter(0.01)
    place = noise.parts.index("phase_train_s")
    assert float(np.sqrt((quiet.residuals[:, place] ** 2).mean())) == pytest.approx(0.01)
    factor = quiet.residuals / noise.residuals
    assert factor == pytest.approx(np.full_like(factor, factor.flat[0]))
