"""Joules per class of synthetic GPUs, whose joules are known."""

from pathlib import Path

import pytest
from recorded_histories import History
from sampled_gpus import LIMIT, Power, classes_of, energy_of, flat, gpu_history, sample, whole_window

from reports.markdown import Footnotes
from reports.power import _per_class
from results.account import make_account
from results.class_energy import UNPLACED
from results.metrics import _energy
from results.throughput import Lives, throughput
from results.tracks import tracks


def test_the_phases_of_host_have_joules_and_a_utilisation_each_and_add_up_to_it() -> None:
    spans = (("reward", 20, 40, 100), ("advantage", 40, 50, 50), ("data", 50, 50.1, 50), ("overhead", 60, 80, 60))
    watts = [(start, end, each) for _, start, end, each in spans] + [(80, 120, 300)]

    def power(at: float) -> float:
        return next((each for start, end, each in watts if start <= at < end), 80.0)

    history = gpu_history()
    for phase, start, end, _ in spans:
        history.span(phase, start, end, "both")
    history.span("data", 42, 47, "both", pid=1)  # inside another of another process: the first in order wins
    history.span("train", 80, 120, "both")
    for gpu in ("GPU-0", "GPU-1"):
        sample(history, gpu, power)
    run, window = history.run(), whole_window()
    arrays = tracks(run)
    account = make_account(run, arrays, window)
    found = _energy(run, arrays, window, account, throughput(run, arrays, window, account, Lives.of(run, arrays)), None)
    host = next(each for each in found.classes if each.name == "host")
    phases = {each.name: each for each in found.phases}
    assert set(phases) == {"reward", "advantage", "data", "overhead"}
    assert phases["reward"].joules == pytest.approx(2 * 20 * 100, rel=0.01)
    assert phases["reward"].power_utilisation == pytest.approx(100 / LIMIT, rel=0.01)
    assert phases["advantage"].joules == pytest.approx(2 * 10 * 50, rel=0.01)
    assert phases["overhead"].joules == pytest.approx(2 * 20 * 60, rel=0.01)
    assert (phases["data"].joules, phases["data"].note) == (None, "too short")
    assert host.joules == pytest.approx(sum(each.joules or 0.0 for each in found.phases) + 2 * 0.1 * 50, rel=0.001)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in _per_class(found.classes, found.phases, Footnotes())
    ]
    names = [row[1] for row in rows[2:]]
    assert names[names.index("host") :][:5] == ["host", "... reward", "... advantage", "... data", "... overhead"]
    assert [row[3] for row in rows if row[1] == "... reward"] == ["25.0%"]


@pytest.mark.parametrize("placement", ["disaggregated", "colocated"])
def test_gpus_that_no_process_gave_a_pool_have_no_joules_by_class_and_the_reason(placement: str) -> None:
    history = History(placement, {"device": "cuda"})
    count = history.run().spec.total_gpus
    history.meta = {"gpus": [{"uuid": f"GPU-{i}", "name": "NVIDIA L40S", "index": i} for i in range(count)]}
    history.span("train", 20, 120, "train" if placement == "disaggregated" else "both")
    for number in range(count):
        sample(history, f"GPU-{number}", flat(100))
    found = energy_of(history)
    assert found.joules == pytest.approx(count * 100 * 100)
    train = next(each for each in found.classes if each.name == "train")
    if placement == "colocated":  # there they are all of the one pool
        assert {each.pool for each in found.gpus} == {"both"}
        assert (train.joules, train.note) == (pytest.approx(count * 100 * 100), None)
        return
    assert {each.pool for each in found.gpus} == {None}
    assert {(each.joules, each.note) for each in found.classes} == {(None, UNPLACED)}
    notes = Footnotes()
    assert any("train" in row for row in _per_class(found.classes, (), notes))
    assert any(UNPLACED in line for line in notes.lines())


def test_joules_per_class_are_cut_at_the_boundaries_and_sum_to_the_whole() -> None:
    history = gpu_history()
    history.span("train", 20, 70, "both")
    history.span("logprob", 70, 119.9, "both")
    history.span("weight_sync", 119.9, 120, "both")
    power: Power = lambda at: 300.0 if at < 70 else 100.0  # noqa: E731
    sample(history, "GPU-0", power, scale=1.02)
    sample(history, "GPU-1", power, scale=1.02)
    found = energy_of(history)
    classes = classes_of(found)
    train, logprob = classes["train"], classes["logprob"]
    assert train.joules == pytest.approx(2 * 300 * 50 * 1.02, rel=2e-3)
    assert logprob.joules == pytest.approx(2 * 100 * 49.9 * 1.02, rel=2e-3)
    # Two GPUs, one edge, |dP| = 200 W: a refresh of 0.1 s and half a gap of as much.
    assert train.uncertainty_joules == pytest.approx(2 * 200 * (0.1 + 0.1 / 2), rel=0.01)
    assert (classes["weight_sync"].joules, classes["weight_sync"].note) == (None, "too short")


def test_a_counter_far_from_the_integral_gives_no_class_figures() -> None:
    history = gpu_history()
    history.span("train", 20, 120, "both")
    for i in range(2):
        sample(history, f"GPU-{i}", flat(100), scale=1.06)
    found = energy_of(history)
    assert classes_of(found)["train"].joules is None
    assert (found.verdict, found.reasons) == ("bad", ("k_off",))
    assert found.joules is not None  # printed with its verdict


@pytest.mark.parametrize(("scale", "verdict"), [(1.04, "warn"), (1.06, "bad")])
def test_errors_that_explain_a_k_are_told_and_excuse_nothing(scale: float, verdict: str) -> None:
    history = gpu_history()
    history.span("train", 20, 120, "both")
    for i in range(2):
        sample(history, f"GPU-{i}", lambda at: 700.0 if round(at * 10) % 14 < 7 else 100.0, scale=scale)
        history.meta["gpus"][i]["power_instant_refresh_s"] = 1.0  # ten samples of one reading are one
    found = energy_of(history)
    assert {each.verdict for each in found.gpus} == {verdict}
    assert found.gpus[0].reasons == ("k_unsure",)
    assert (classes_of(found)["train"].joules is None) == (verdict == "bad")


def test_average_power_cannot_tell_classes_shorter_than_twice_its_window() -> None:
    history = gpu_history()
    history.span("train", 20, 118.5, "both")
    history.span("weight_sync", 118.5, 120, "both")  # longer than twice the refresh, shorter than twice 1 s
    for i in range(2):
        sample(history, f"GPU-{i}", flat(100), sensors=("power_average_watts",))
    assert classes_of(energy_of(history))["weight_sync"].note == "too short"


def test_a_gpu_without_joules_of_its_own_has_none_per_class() -> None:
    history = gpu_history()
    history.span("train", 20, 120, "both")
    for i in range(2):
        sample(history, f"GPU-{i}", flat(100))
    history.run_dir = Path("no-run")
    history.meta["gpus"][1]["energy_refresh_s"] = 60.0  # the window is shorter than two refreshes: no figure
    found = energy_of(history)
    assert (found.gpus[1].joules, found.gpus[1].reasons) == (None, ("window_short",))
    train = classes_of(found)["train"]
    assert (train.joules, train.note) == (None, "the joules of a GPU are not known")
