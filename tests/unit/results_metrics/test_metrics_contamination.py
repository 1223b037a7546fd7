"""Contamination that held at known times, and what it does to the verdict on energy."""

import json

import pytest
from recorded_histories import History, ns
from sampled_gpus import energy_of, flat, gpu_history, sample

from harness.protocol.spec import Device
from reports.contaminated import contamination_line
from reports.markdown import Footnotes
from results.contamination import contamination, unless_spoiled
from results.metrics import compute
from results.window import Window

WINDOW = Window(start_ns=ns(20), end_ns=ns(120), after_step=1, last_step=2, boundaries_ns=(ns(20), ns(120)))
CHECKS = ("foreign_processes", "power_cap", "locked_clocks", "mig")


def _probe(
    history: History, check: str, at: float, value: float | None, gpu: str | None = "GPU-0", host: str = "", **more: str
) -> None:
    labels = json.dumps({**({} if gpu is None else {"gpu": gpu}), **more})
    history.add("probes", name=f"contamination.{check}", mono_ns=ns(at), value=value, labels_json=labels, host=host)


def _clean() -> History:
    history = gpu_history(gpus=2)
    for gpu in ("GPU-0", "GPU-1"):
        for check in CHECKS:
            _probe(history, check, 1, 0.0, gpu)
    _probe(history, "host_load", 0.5, 0.1, None)
    return history


def test_a_clean_machine_has_no_reasons() -> None:
    found = contamination(_clean().run(), WINDOW)
    assert (found.gpu, found.before, found.unknown, found.reasons) == ((), (), (), ())
    assert (found.load_ratio, found.busy_host) == (0.1, False)


@pytest.mark.parametrize(
    ("begin", "end", "inside", "before"),
    [
        (5, 10, False, True),
        (5, 30, True, True),
        (50, 51, True, False),
        (5, None, True, True),
        (130, None, False, False),
    ],
)
def test_a_finding_holds_until_the_next_of_its_kind(
    begin: float, end: float | None, inside: bool, before: bool
) -> None:
    history = _clean()
    _probe(history, "foreign_processes", begin, 2.0)
    if end is not None:
        _probe(history, "foreign_processes", end, 0.0)
    _probe(history, "foreign_processes", 60, 0.0, "GPU-1")  # another GPU's says nothing of this one
    found = contamination(history.run(), WINDOW)
    assert found.gpu == (("foreign_processes",) if inside else ())
    assert found.before == (("foreign_processes",) if before else ())
    assert found.reasons == (("foreign processes on 1 GPU",) if inside else ())


def test_a_gpu_that_is_not_of_the_run_spoils_nothing() -> None:
    history = _clean()
    _probe(history, "power_cap", 2, 1.0, "GPU-7")
    assert contamination(history.run(), WINDOW).gpu == ()


def test_what_could_not_be_looked_at_is_unknown_and_not_clean() -> None:
    history = _clean()
    _probe(history, "mig", 2, None)
    assert contamination(history.run(), WINDOW).unknown == ("mig",)
    never = History("colocated")
    _probe(never, "mig", 2, 0.0)
    assert contamination(never.run(), WINDOW).unknown == ("foreign_processes", "locked_clocks", "power_cap")


def test_load_counts_only_from_before_the_launch() -> None:
    history = gpu_history()  # its controller begins at 12
    _probe(history, "host_load", 18, 0.9, None)
    assert contamination(history.run(), WINDOW).load_ratio is None  # the run's own
    _probe(history, "host_load", 12.3, 0.8, None)  # of the minute before it, as good as all
    _probe(history, "host_load", 12.6, 0.9, None)
    assert contamination(history.run(), WINDOW).load_ratio == 0.8
    _probe(history, "host_load", 11, 0.7, None)
    found = contamination(history.run(), WINDOW)
    assert (found.load_ratio, found.busy_host) == (0.7, True)
    assert found.reasons == ("a busy host: load 0.70 per core before the launch",)


def test_of_several_hosts_the_busiest_counts_by_its_last_load_before_the_launch() -> None:
    history = gpu_history()
    for at, load, host in ((2, 0.9, "a"), (11, 0.1, "a"), (5, 0.6, "b"), (13, 0.8, "b")):
        _probe(history, "host_load", at, load, None, host)
    assert contamination(history.run(), WINDOW).load_ratio == 0.6


def test_a_process_that_may_be_anyones_is_neither_clean_nor_foreign() -> None:
    history = _clean()
    _probe(history, "foreign_processes", 50, 0.0, unknown_pids="41 42")
    history.process("engine", 15, host="node", pid=41)
    found = contamination(history.run(), WINDOW)
    assert (found.gpu, found.reasons, found.unknown) == ((), (), ("foreign_processes",))
    assert found.unknown_words == ("foreign process (pid 41 42: whose it is is not known)",)
    ours = _clean()  # both recorded into the run: they are its own, whatever their title
    _probe(ours, "foreign_processes", 50, 0.0, host="node", unknown_pids="41 42")
    for pid in (41, 42):
        ours.process("engine", 15, host="node", pid=pid)
    assert contamination(ours.run(), WINDOW).unknown == ()
    both = _clean()
    _probe(both, "foreign_processes", 50, 1.0, pids="7", unknown_pids="41")
    assert contamination(both.run(), WINDOW).reasons == ("foreign processes on 1 GPU (pid 7)",)


@pytest.mark.parametrize("gpu", ["GPU-0", "GPU-7"])
def test_a_page_and_the_figures_hold_the_same_against_a_run(gpu: str) -> None:
    history = _clean()  # GPU-7 is not of the run
    _probe(history, "foreign_processes", 50, 1.0, gpu, pids="7")
    found = contamination(history.run(), WINDOW)
    line = contamination_line(found, Device.CUDA, Footnotes())
    assert ("contaminated" in line) == bool(found.reasons) == (gpu == "GPU-0")
    assert all(reason in line for reason in found.reasons)


def test_energy_of_a_contaminated_window_gets_no_verdict_and_bad_stays_bad() -> None:
    for scale, before, after in ((1.0, "ok", None), (1.08, "bad", "bad")):
        history = _clean()
        for gpu in ("GPU-0", "GPU-1"):
            sample(history, gpu, flat(200), scale=scale)
        power = energy_of(history)
        clean = contamination(history.run(), WINDOW)
        assert unless_spoiled(power, clean).verdict == power.verdict == before
        _probe(history, "power_cap", 50, 1.0)
        spoiled = unless_spoiled(power, contamination(history.run(), WINDOW))
        assert spoiled.verdict == after
        assert spoiled.reasons[-1] == "contaminated"
        assert "a power limit below the board's default on 1 GPU" in str(spoiled.note)


def test_a_run_carries_its_contamination() -> None:
    history = _clean()
    _probe(history, "locked_clocks", 3, 1.0)
    assert compute(history.run()).contamination.gpu == ("locked_clocks",)
