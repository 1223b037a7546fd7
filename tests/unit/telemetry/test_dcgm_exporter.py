"""DCGM from exporters of several versions."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dcgm_parts import DEFAULT_LIST, EXPECTED, FLOAT_BLANK, FULL, INT_BLANK, LABELS, A, B, Exporter, Watched, page
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.telemetry.dcgm import dmon, exporter
from harness.telemetry.dcgm.exposition import parse
from harness.telemetry.dcgm.fields import FIELDS


@pytest.mark.parametrize("version", LABELS)
def test_pages_of_every_release_are_joined_by_uuid(version: str) -> None:
    found = exporter.read_page(page(version, FULL))
    assert found.readings == {A: EXPECTED, B: EXPECTED}
    assert (found.reasons, found.instances, found.bad_lines, found.dcgm) == ({}, 0, 0, True)
    assert exporter.missing(found) == {}


def test_newer_names_of_the_same_fields_are_known() -> None:
    renamed = {one.names[-1]: FULL[one.names[0]] for one in FIELDS}
    assert set(renamed) != set(FULL)
    assert exporter.read_page(page("3.3", renamed)).readings[A] == EXPECTED


def test_what_is_off_by_default_is_told_with_how_to_turn_it_on() -> None:
    found = exporter.read_page(page("4.5, hostname", DEFAULT_LIST))
    assert set(found.readings[A]) == {
        "dcgm_tensor_active_ratio",
        "dcgm_dram_active_ratio",
        "dcgm_pcie_tx_bytes_per_s",
        "dcgm_pcie_rx_bytes_per_s",
    }
    told = exporter.missing(found)
    assert set(told) == {name for name in EXPECTED if name not in found.readings[A]}
    assert "DCGM_FI_PROF_SM_ACTIVE, gauge" in told["dcgm_sm_active_ratio"]
    assert "off in dcgm-exporter's own list" in told["dcgm_sm_occupancy_ratio"]
    assert "default-counters.csv" in told["dcgm_power_instant_watts"]


def test_an_exporter_without_profiling_says_what_may_be_wrong() -> None:
    found = exporter.read_page(page("3.3", {"DCGM_FI_DEV_SM_CLOCK": "1980"}))
    told = exporter.missing(found)
    assert "CAP_SYS_ADMIN" in told["dcgm_dram_active_ratio"]
    assert found.dcgm


@pytest.mark.parametrize("blank", [INT_BLANK, "9223372036854775792", "9223372036854775795", FLOAT_BLANK, "NaN", "+Inf"])
@pytest.mark.parametrize("name", ["DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES"])
def test_blanks_are_none_with_a_reason(blank: str, name: str) -> None:
    found = exporter.read_page(page("3.3", {**FULL, name: blank}))
    column = next(one.column for one in FIELDS if name in one.names)
    assert found.readings[A][column] is None
    assert found.reasons[A, column] == "blank value"
    assert found.readings[A]["dcgm_dram_active_ratio"] == 0.3  # one blank field, not a blank GPU


def test_a_share_above_one_is_none() -> None:
    found = exporter.read_page(page("3.3", {**FULL, "DCGM_FI_PROF_SM_ACTIVE": "1.62"}))
    assert found.readings[A]["dcgm_sm_active_ratio"] is None
    assert "no share" in found.reasons[A, "dcgm_sm_active_ratio"]


@pytest.mark.parametrize("version", [version for version, (_, mig) in LABELS.items() if mig])
def test_rows_of_mig_instances_are_left_out(version: str) -> None:
    labels = LABELS[version][1]
    lines = [f"DCGM_FI_PROF_SM_ACTIVE{{{labels.format(i=0, u=A, g=gi)}}} 0.9" for gi in (7, 8)]
    found = exporter.read_page(page(version, FULL, (B,)) + "\n".join(lines) + "\n")
    assert set(found.readings) == {B}
    assert found.instances == 2


@pytest.mark.parametrize("cut", range(1, 400, 13))
def test_a_cut_page_loses_its_last_line_and_gives_no_wrong_number(cut: int) -> None:
    whole = page("3.3", FULL).rstrip("\n") + "\n"
    found = exporter.read_page(whole[:-cut])
    for values in found.readings.values():
        assert values.items() <= EXPECTED.items()


def test_lines_that_are_no_samples_cost_only_themselves() -> None:
    text = 'a 1\nb{x="1",y="q\\"\\\\n"} 2 1700000000000\nc{x="1"\n{} 3\nd\ne{x=1} 4\nf{} +Inf\n# c\n\n'
    found = parse(text)
    assert [(one.name, one.labels, one.text) for one in found.samples] == [
        ("a", {}, "1"),
        ("b", {"x": "1", "y": 'q"\\n'}, "2"),
        ("f", {}, "+Inf"),
    ]
    assert found.bad == ['c{x="1"', "{} 3", "d", "e{x=1} 4"]


@pytest.fixture
def server() -> Iterator[Exporter]:
    one = Exporter()
    yield one
    one.close()


def test_rows_carry_the_middle_of_the_call(server: Exporter) -> None:
    server.pages = [page("3.3", FULL)]
    begin_ns = time.monotonic_ns()
    watched = Watched(server.url)
    watched.wait_for(lambda: len(watched.rows) >= 6)
    watched.end()
    assert {uuid for uuid, _ in watched.rows} == {A, B}
    for _, timed in watched.rows:
        assert timed.values == EXPECTED
        assert begin_ns < timed.mono_ns < time.monotonic_ns()
        assert timed.uncertainty_ns > 0
    assert watched.metrics("dcgm.source") == [(1.0, {"source": server.url})]


def test_a_gap_is_marked_with_its_length_and_why(server: Exporter) -> None:
    server.pages = [page("3.3", FULL), page("3.3", FULL), 503, 503, "nothing of the kind 1\n", page("3.3", FULL)]
    watched = Watched(server.url)
    watched.wait_for(lambda: watched.metrics("dcgm.gap"))
    watched.end()
    ((length, _),) = watched.metrics("dcgm.gap")
    assert length is not None
    assert length > 0
    reasons = [str(labels["reason"]) for _, labels in watched.metrics("dcgm.unreachable")]
    assert len(reasons) == 2  # each once
    assert "503" in reasons[0]
    assert "nothing of DCGM" in reasons[1]


def test_an_address_that_never_answers_is_no_source(server: Exporter) -> None:
    watched = Watched("http://127.0.0.1:9/typo")
    watched.wait_for(lambda: watched.metrics("dcgm.source"))
    watched.end()
    ((value, labels),) = watched.metrics("dcgm.source")
    assert value is None
    assert labels["source"] == "http://127.0.0.1:9/typo"
    assert "gave no page" in str(labels["reason"])


def test_a_gap_that_lasts_to_the_end_is_marked_too(server: Exporter) -> None:
    server.pages = [page("3.3", FULL), 503]
    watched = Watched(server.url)
    watched.wait_for(lambda: watched.metrics("dcgm.unreachable"))
    assert watched.metrics("dcgm.unreachable")[0][1]["begin_ns"]  # on record before the end: a sampler may be killed
    watched.end()
    ((length, labels),) = watched.metrics("dcgm.gap")
    assert length is not None
    assert length > 0
    assert labels["ended"] == "with the run"


def test_what_comes_with_a_later_page_is_missing_no_more_and_what_goes_is(server: Exporter) -> None:
    without = {name: value for name, value in FULL.items() if name != "DCGM_FI_PROF_SM_ACTIVE"}
    fewer = {name: value for name, value in FULL.items() if name != "DCGM_FI_PROF_DRAM_ACTIVE"}
    server.pages = [page("3.3", without), page("3.3", FULL), page("3.3", FULL), page("3.3", fewer)]
    watched = Watched(server.url)
    watched.wait_for(lambda: len(watched.metrics("dcgm.missing")) >= 3)
    watched.end()
    told = [(value, labels["field"]) for value, labels in watched.metrics("dcgm.missing")]
    assert told == [
        (None, "dcgm_sm_active_ratio"),
        (0.0, "dcgm_sm_active_ratio"),
        (None, "dcgm_dram_active_ratio"),
    ]


def test_what_is_missing_is_told_once(server: Exporter) -> None:
    server.pages = [page("4.5, hostname", {**DEFAULT_LIST, "DCGM_FI_PROF_DRAM_ACTIVE": INT_BLANK})]
    watched = Watched(server.url)
    watched.wait_for(lambda: len(watched.rows) >= 8)
    watched.end()
    missing = [labels["field"] for _, labels in watched.metrics("dcgm.missing")]
    assert sorted(missing) == sorted(set(missing))
    assert "dcgm_sm_occupancy_ratio" in missing
    blanks = [labels for _, labels in watched.metrics("telemetry.unsupported")]
    assert {(str(one["gpu"]), one["field"]) for one in blanks} == {
        (A, "dcgm_dram_active_ratio"),
        (B, "dcgm_dram_active_ratio"),
    }
    assert len(blanks) == 2


def test_how_often_the_exporter_collects_is_measured(server: Exporter) -> None:
    values = [f"{0.1 + n / 100:.6f}" for n in range(12) for _ in range(6)]  # new at every sixth page
    server.pages = [page("3.3", {**FULL, "DCGM_FI_PROF_SM_ACTIVE": value}) for value in values]
    watched = Watched(server.url)
    watched.wait_for(lambda: server.asked >= len(values))
    watched.end()
    ((refresh_s, labels),) = watched.metrics("dcgm.refresh")
    assert refresh_s is not None
    assert refresh_s > 0.15  # six pages of 0.05 s and more on a busy machine; each page is not a new reading
    assert "--collect-interval" in str(labels["how"])


def test_auto_takes_an_exporter_of_this_machine(server: Exporter) -> None:
    server.pages = [page("3.3", FULL)]
    watched = Watched("auto", default_url=server.url)
    watched.wait_for(lambda: watched.rows)
    watched.end()
    assert watched.metrics("dcgm.source") == [(1.0, {"source": server.url})]


def test_auto_finds_nothing_and_says_what_it_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    watched = Watched("auto")
    watched.wait_for(lambda: watched.metrics("dcgm.source"))
    watched.end()
    ((value, labels),) = watched.metrics("dcgm.source")
    assert value is None
    assert "dcgmi" in str(labels["reason"])
    assert not watched.rows


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(alphabet=st.sampled_from('DCGM_FIPROSA{}=",\\\n 019.-e+#NaN/'), max_size=120) | st.text(max_size=60)
)
def test_no_text_is_an_error(text: str) -> None:
    for value in exporter.read_page(text).readings.values():
        assert set(value) <= set(EXPECTED)
    for one in dmon.parse_lines(iter(text.splitlines())):
        assert isinstance(one, str | dmon.Row)
    dmon.parse_discovery(text)


@given(digits=st.integers(1, 400), sign=st.sampled_from(["", "-"]), digit=st.sampled_from("19"))
def test_no_number_is_an_error(digits: int, sign: str, digit: str) -> None:
    text = sign + digit * digits
    found = exporter.read_page(
        f'DCGM_FI_PROF_PCIE_TX_BYTES{{UUID="{A}"}} {text}\nDCGM_FI_PROF_SM_ACTIVE{{UUID="{A}"}} {text}\n'
    )
    value = found.readings[A]["dcgm_pcie_tx_bytes_per_s"]
    assert value is None or value == float(text)


def test_gpus_of_another_machine_are_left_out(sampler, server: Exporter, uuid) -> None:
    server.pages = [page("3.3", FULL, (uuid(0), A))]
    running = sampler("* gpus 1\n", more=("--dcgm", server.url))
    running.wait_for(lambda: any(one["dcgm_sm_active_ratio"] is not None for one in running.rows(0)))
    running.wait_for(lambda: running.metrics("dcgm.left_out"))
    assert running.end() == 0
    assert {one["gpu"] for one in running.rows()} == {None, uuid(0)}
    (told,) = running.metrics("dcgm.left_out")
    assert (told.labels["gpu"], told.labels["field"]) == (A, "gpu")


def test_the_sampler_has_dcgm_beside_nvml(sampler, server: Exporter, uuid) -> None:
    server.pages = [page("3.3", FULL, (uuid(0), uuid(1)))]
    running = sampler("* gpus 2\n", more=("--dcgm", server.url))
    running.wait_for(
        lambda: any(one["dcgm_sm_active_ratio"] is not None for one in running.rows(1)) and running.power(1)
    )
    assert running.end() == 0
    for gpu in (0, 1):
        rows = [one for one in running.rows(gpu) if one["dcgm_dram_active_ratio"] is not None]
        assert rows
        assert all(one["dcgm_power_instant_watts"] == 512.345 for one in rows)
        assert all(one["util_ratio"] is None for one in rows)  # NVML's readings are rows of their own
    assert running.metrics("dcgm.source")[0].value == 1.0
