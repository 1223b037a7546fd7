"""What users of other tools were told wrongly about power, energy and GPUs, told right here.

Each case is an issue or pull request of a public project whose report gives inputs small enough for a CPU.

zeus 181, 12: the counter said 187 J, polling 327 J, of the same 5 s
    test_a_counter_that_says_187_j_where_polling_says_327_is_bad_and_cuts_no_class
zeus 45, DCGM 157: average power where instant power was meant
    test_instant_and_average_power_are_never_one_series
codecarbon 1316, 838, 309: no sensor, and 0 kWh reported as real
    test_without_a_sensor_there_are_no_joules_and_not_0
InferenceX 2323: a torn last row ran into the next and was counted as energy
    test_a_torn_row_costs_itself_and_no_number
InferenceX 1558: warm-up and eval inside made ~440 W of 720 W
    test_power_is_of_the_window_and_not_of_the_warm_up
gpu-monitoring-tools 92, DCGM 244, 152, nvidia-container-toolkit 842: blanks as values, N/A of one field, above 100 %
    test_a_blank_is_no_value_costs_its_own_field_alone_and_has_a_reason
zeus 109: a MIG id in CUDA_VISIBLE_DEVICES; HAMi-core 318: CUDA's index taken for NVML's
    test_a_gpu_is_who_the_driver_says_whatever_cuda_calls_it
gpustat 76: polling faster than the sensor returns repeats
    test_repeats_of_a_slow_sensor_are_no_new_knowledge
power-dev 262, inference 1338, perfetto 568: two hosts' clocks 500 to 890 ms apart
    test_what_another_host_recorded_stands_where_it_happened
Daft 3576, dbtrail 798, hats-import 634: a Parquet file cut by a kill was accepted
    test_a_cut_table_is_refused_with_what_to_do
"""

from pathlib import Path

import numpy as np
import pytest
from recorded_histories import History, ns

from adapters.child.gpus import UnknownGpuError, uuid_of
from harness.nodes.clock import METRIC
from harness.protocol.errors import SpecError
from harness.protocol.events import Hello, Metric, Span, encode
from harness.telemetry.dcgm.exporter import read_page
from harness.telemetry.dcgm.fields import BY_NAME
from harness.telemetry.segment import Segment
from harness.telemetry.values import clean, reason_of
from results.account import make_account
from results.clocks import Clocks
from results.energy import Energy, energy
from results.engine_samples import read_engine_samples
from results.power import Series
from results.samples import read_samples
from results.sampling import half_width
from results.schema import TABLES
from results.store import read_table, table_path, write_table
from results.tracks import tracks
from results.window import Window

LOW, HIGH, LIMIT = 20.0, 120.0, 700.0


def _history() -> History:
    history = History("colocated", {"device": "cuda"})
    history.meta = {"gpus": [{"uuid": f"GPU-{i}", "name": "NVIDIA L40S"} for i in range(2)]}
    history.process("controller", 12, gpu_uuids=["GPU-0", "GPU-1"], pool="both")
    history.span("train", 20, 120, "both")
    return history


def _found(history: History) -> Energy:
    run = history.run()
    edges = (ns(LOW), ns(HIGH))
    window = Window(start_ns=edges[0], end_ns=edges[1], after_step=1, last_step=2, boundaries_ns=edges)
    account = make_account(run, tracks(run), window)
    return energy(run, window, {unit.pool: unit.timeline for unit in account.units}, 4)


def _sample(history: History, **watts: object) -> None:
    """Ten readings a second of both GPUs; a sensor is a number, or a function of seconds."""
    for gpu in ("GPU-0", "GPU-1"):
        for at in np.arange(0.05, 140, 0.1):
            values = {name: float(of(at) if callable(of) else of) for name, of in watts.items()}  # type: ignore[arg-type]
            history.add("samples", gpu=gpu, mono_ns=ns(at), power_limit_watts=LIMIT, **values)


def test_a_counter_that_says_187_j_where_polling_says_327_is_bad_and_cuts_no_class() -> None:
    history = _history()
    _sample(history, power_instant_watts=327 / 5, energy_joules=lambda at: 187 / 5 * at)
    found = _found(history)
    assert found.gpus[0].k == pytest.approx(187 / 327, rel=1e-3)
    assert (found.verdict, found.reasons) == ("bad", ("k_off",))
    assert found.joules == pytest.approx(2 * 187 / 5 * 100)  # the counter's, with its verdict; never their mean
    assert [each.joules for each in found.classes] == [None]


def test_instant_and_average_power_are_never_one_series() -> None:
    history = _history()
    _sample(history, power_instant_watts=300.0, power_average_watts=475.0)
    assert _found(history).joules == pytest.approx(2 * 300 * 100)
    only_average = _history()
    _sample(only_average, power_average_watts=475.0)
    found = _found(only_average)
    assert found.joules == pytest.approx(2 * 475 * 100)
    assert found.reasons == ("average_only", "no_counter")
    assert found.verdict == "warn"
    assert "DCGM_FI_DEV_POWER_USAGE" not in BY_NAME  # field 155, an average; 157 is instant power
    assert BY_NAME["DCGM_FI_DEV_POWER_USAGE_INSTANT"].column == "dcgm_power_instant_watts"


def test_without_a_sensor_there_are_no_joules_and_not_0() -> None:
    history = _history()
    _sample(history)
    found = _found(history)
    assert (found.joules, found.power_utilisation, found.joules_per_trained, found.idle_watts) == (None,) * 4
    assert found.verdict == "bad"
    assert "no_counter" in found.reasons
    assert {each.joules for each in found.classes} == {None}


def test_a_torn_row_costs_itself_and_no_number(tmp_path: Path) -> None:
    row = '{"host":"h","engine":"e0","mono_ns":%d,"uncertainty_ns":1,"family":"vllm","running_requests":3.0}'
    folder = tmp_path / "engines"
    folder.mkdir()
    torn = (row % 2)[:-20] + row % 3  # the last row of one process, and the first of the next one behind it
    (folder / "h-1.jsonl").write_text("\n".join([row % 1, torn, row % 4]) + "\n" + (row % 5)[:-3])
    table, problems = read_engine_samples(folder)
    assert table.column("mono_ns").to_pylist() == [1, 4]
    assert problems == ["h-1.jsonl: 2 lines cut or damaged"]
    segment = Segment(tmp_path / "h.arrows")
    for at in range(3):
        segment.append({"host": "h", "gpu": "GPU-0", "mono_ns": at, "energy_joules": 100.0 + at})
        segment.flush()
    segment.close()
    whole = (tmp_path / "h.arrows").read_bytes()
    (tmp_path / "h.arrows").write_bytes(whole[:-40])
    read = read_samples(tmp_path).column("energy_joules").to_pylist()
    assert read in ([100.0, 101.0], [100.0, 101.0, 102.0])


def test_power_is_of_the_window_and_not_of_the_warm_up() -> None:
    history = _history()
    _sample(history, power_instant_watts=lambda at: 720.0 if LOW <= at <= HIGH else 160.0)
    found = _found(history)
    assert found.joules == pytest.approx(2 * 720 * 100, rel=1e-3)
    assert found.power_utilisation == pytest.approx(720 / LIMIT, rel=1e-3)
    assert found.idle_watts == pytest.approx(2 * 160, rel=1e-3)


@pytest.mark.parametrize(
    "text", ["9223372036854775794", "9223372036854775795", "140737488355328", "140737488355330.0", "1.62", "NaN"]
)
def test_a_blank_is_no_value_costs_its_own_field_alone_and_has_a_reason(text: str) -> None:
    labels = '{gpu="0",UUID="GPU-a",modelName="NVIDIA H100"}'
    page = read_page(f"DCGM_FI_PROF_SM_ACTIVE{labels} {text}\nDCGM_FI_PROF_DRAM_ACTIVE{labels} 0.25\n")
    assert page.readings["GPU-a"] == {"dcgm_sm_active_ratio": None, "dcgm_dram_active_ratio": 0.25}
    assert page.reasons["GPU-a", "dcgm_sm_active_ratio"]
    assert clean(9223372036854775794) is None
    assert clean(2**32 - 1) is None
    assert clean(0) == 0  # a real zero stays one
    assert reason_of(4) == "NO_PERMISSION"


def test_a_gpu_is_who_the_driver_says_whatever_cuda_calls_it() -> None:
    physical = ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]
    # CUDA's device 0 is the first that is visible, and not NVML's first.
    assert [uuid_of(entry, physical) for entry in ["2", "0"]] == ["GPU-cccc", "GPU-aaaa"]
    assert uuid_of("GPU-bb", physical) == "GPU-bbbb"
    assert uuid_of("MIG-1234", physical) == "MIG-1234"
    for nobody in ("3", "GPU-", "GPU-dd", "-1", "nonsense"):
        with pytest.raises(UnknownGpuError):
            uuid_of(nobody, physical)


def test_repeats_of_a_slow_sensor_are_no_new_knowledge() -> None:
    rng = np.random.default_rng(1)
    watts = rng.normal(300, 60, 100)
    times = np.arange(100, dtype=np.int64) * 10**9
    once = half_width(Series(times, watts), 1.0)
    often = half_width(Series(np.arange(1000, dtype=np.int64) * 10**8, np.repeat(watts, 10)), 1.0)
    assert once is not None
    assert often is not None
    assert often == pytest.approx(once, rel=0.02)


@pytest.mark.parametrize("ahead_ms", [-890, 500, 700_000])
def test_what_another_host_recorded_stands_where_it_happened(tmp_path: Path, ahead_ms: int) -> None:
    ahead = ahead_ms * 10**6
    begin, end = 50 * 10**9, 60 * 10**9
    said: list[Hello | Metric] = [
        Hello(protocol=1, run_id="r", host="here", pid=1, role="gatherer", wall_ns=1, mono_ns=begin)
    ]
    for at in (begin, end):
        labels = {"host": "there", "at_ns": at, "offset_ns": ahead, "uncertainty_ns": 20_000, "round_trip_ns": 40_000}
        said.append(Metric(name=METRIC, mono_ns=at, unit="ns", labels={**labels, "rounds": 8}))
    (tmp_path / "gatherer-here-1.jsonl").write_text("".join(encode(each) + "\n" for each in said))
    clocks = Clocks.read(tmp_path)
    span = Span(phase="train", native_name="t", start_ns=52 * 10**9 + ahead, end_ns=53 * 10**9 + ahead)
    moved = clocks.event("there", span)
    assert isinstance(moved, Span)
    assert (moved.start_ns, moved.end_ns) == (52 * 10**9, 53 * 10**9)
    assert clocks.event("here", span) == span
    assert clocks.clocks["there"].uncertainty_between(begin + ahead, end + ahead) >= 20_000


def test_a_cut_table_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = table_path(tmp_path, "turns")
    path.parent.mkdir()
    write_table(path, "turns", TABLES["turns"].empty_table(), "run")
    assert read_table(path, "turns").num_rows == 0
    whole = path.read_bytes()
    for cut in (1, 8, len(whole) // 2, len(whole) - 4):
        path.write_bytes(whole[:-cut])
        with pytest.raises(SpecError, match="bench collect"):
            read_table(path, "turns")
