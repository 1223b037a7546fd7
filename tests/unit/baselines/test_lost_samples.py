"""Lost samples, on a machine without GPUs: of a sampler that died, of one that fell silent; and where none are due."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from harness.cli import call
from results.collect import collect
from results.comparing.measuring import measure_run
from results.host_samples import lost_samples
from results.store import TABLES
from results.window import Window

S = 10**9
WINDOW = Window(start_ns=100 * S, end_ns=200 * S, after_step=1, last_step=2, boundaries_ns=(100 * S, 200 * S))


def sampled(times, *, hz=10.0, hosts=("a",), clock="monotonic"):
    rows = [{"host": host, "gpu": None, "mono_ns": round(at * S)} for host in hosts for at in times]
    table = pa.Table.from_pylist(
        rows, schema=pa.schema([TABLES["samples"].field(n) for n in ("host", "gpu", "mono_ns")])
    )
    return SimpleNamespace(meta={"clock": clock}, spec=SimpleNamespace(sample_hz=hz), where=lambda *_: table)


def test_samples_as_they_come_are_whole():
    jitter = np.random.default_rng(1).uniform(0.1, 0.9, 400)
    assert lost_samples(sampled(np.cumsum(jitter) + 95), WINDOW) == ""
    assert lost_samples(sampled(np.arange(90, 210, 9), hz=0.1), WINDOW) == ""


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([], "no sample of any host is on record"),
        (np.arange(90, 150, 0.5), "50 of 100 s of the window have no sample of the host a"),
        (np.arange(160, 210, 0.5), "60 of 100 s of the window have no sample of the host a"),
        (np.arange(0, 90, 0.5), "100 of 100 s of the window have no sample of the host a"),
    ],
)
def test_what_is_lost_is_said(times, said):
    assert lost_samples(sampled(times), WINDOW) == said


def test_one_silent_host_of_several_is_named():
    whole, cut = sampled(np.arange(90, 210, 0.5)), sampled(np.arange(90, 120, 0.5), hosts=("b",))
    both = pa.concat_tables([whole.where(), cut.where()])
    whole.where = lambda *_: both
    assert lost_samples(whole, WINDOW).endswith("no sample of the host b")


def test_beside_virtual_time_nothing_is_sampled_and_nothing_lost():
    assert lost_samples(sampled([], clock="virtual"), WINDOW) == ""


def test_a_run_that_lost_them_says_so_in_its_measures(tmp_path):
    words = ["--framework", "simulated", "--placement", "async", "--steps", "5", "-o", "clock=real"]
    assert call(["run", *words, "--runs-dir", str(tmp_path)]) == 0
    (folder,) = tmp_path.iterdir()
    run = collect(folder)
    measured = measure_run(run)
    assert measured.lost == ""
    assert measured.adherence == 1.0
    without = replace(run, tables={**run.tables, "samples": run.tables["samples"].slice(0, 0)})
    assert measure_run(without).lost == "no sample of any host is on record"
