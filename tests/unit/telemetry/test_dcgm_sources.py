"""DCGM from exporters of several versions and from a `dcgmi` of the tests' own."""

import os
import random
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.telemetry.dcgm import dmon, exporter
from harness.telemetry.dcgm.exposition import parse
from harness.telemetry.dcgm.fields import FIELDS
from harness.telemetry.dcgm.watch import DcgmWatch
from harness.telemetry.values import Timed

HANG_S = 30.0
A, B = "GPU-58e8f5ea-13cc-013a-d88f-2bcf5ae8bc77", "GPU-6dfcb4f1-7aaf-41a5-9e0c-3a3b1e9d7c11"
INT_BLANK, FLOAT_BLANK = "9223372036854775794", "140737488355328.000000"

# The label sets of real exporters, by release: template of labels, then of an instance's.
LABELS: dict[str, tuple[str, str]] = {
    "1.x, old namespace": ('gpu="{i}",uuid="{u}",device="nvidia{i}"', ""),
    "2.1": ('gpu="{i}", UUID="{u}"', ""),
    "2.4, Kubernetes": (
        'gpu="{i}",UUID="{u}",device="nvidia{i}",modelName="NVIDIA A30",Hostname="h",container="",namespace="",pod=""',
        'gpu="{i}",UUID="{u}",device="nvidia{i}",modelName="NVIDIA A30",GPU_I_PROFILE="2g.12gb",GPU_I_ID="{g}",'
        'Hostname="h",container="",namespace="",pod=""',
    ),
    "3.3": (
        'gpu="{i}",UUID="{u}",pci_bus_id="00000000:1A:00.0",device="nvidia{i}",modelName="NVIDIA H100 80GB HBM3",'
        'Hostname="gsrh100-074",DCGM_FI_DRIVER_VERSION="535.129.03"',
        'gpu="{i}",UUID="{u}",pci_bus_id="00000000:1A:00.0",device="nvidia{i}",modelName="NVIDIA H100 80GB HBM3",'
        'GPU_I_PROFILE="1g.10gb",GPU_I_ID="{g}",Hostname="gsrh100-074",DCGM_FI_DRIVER_VERSION="535.129.03"',
    ),
    "4.5, hostname": (
        'gpu="{i}",UUID="{u}",pci_bus_id="00000000:B1:00.0",device="nvidia{i}",modelName="NVIDIA H200",hostname="n",'
        'container="a",namespace="b",pod="c,d=\\"e\\"}}"',
        'gpu="{i}",UUID="{u}",pci_bus_id="00000000:B1:00.0",device="nvidia{i}",modelName="NVIDIA H200",'
        'GPU_I_PROFILE="1g.18gb",GPU_I_ID="{g}",hostname="n"',
    ),
}
FULL = {
    "DCGM_FI_PROF_SM_ACTIVE": "0.812500",
    "DCGM_FI_PROF_SM_OCCUPANCY": "0.250000",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "0.400000",
    "DCGM_FI_PROF_DRAM_ACTIVE": "0.300000",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "1048576",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "2097152",
    "DCGM_FI_PROF_NVLINK_TX_BYTES": "4000000",
    "DCGM_FI_PROF_NVLINK_RX_BYTES": "5000000",
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": "512.345000",
}
DEFAULT_LIST = {  # what an exporter has without a counters file of one's own
    "DCGM_FI_DEV_SM_CLOCK": "1980",
    "DCGM_FI_DEV_MEMORY_TEMP": INT_BLANK,
    "DCGM_FI_DEV_POWER_USAGE": "499.100000",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.900000",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "0.400000",
    "DCGM_FI_PROF_DRAM_ACTIVE": "0.300000",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "1048576",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "2097152",
}
EXPECTED = {
    "dcgm_sm_active_ratio": 0.8125,
    "dcgm_sm_occupancy_ratio": 0.25,
    "dcgm_tensor_active_ratio": 0.4,
    "dcgm_dram_active_ratio": 0.3,
    "dcgm_pcie_tx_bytes_per_s": 1048576.0,
    "dcgm_pcie_rx_bytes_per_s": 2097152.0,
    "dcgm_nvlink_tx_bytes_per_s": 4_000_000.0,
    "dcgm_nvlink_rx_bytes_per_s": 5_000_000.0,
    "dcgm_power_instant_watts": 512.345,
}


def page(version: str, metrics: Mapping[str, str], uuids: tuple[str, ...] = (A, B)) -> str:
    """What an exporter of that release prints of these fields."""
    lines = []
    for name, value in metrics.items():
        lines += [f"# HELP {name} About {name} (in words).", f"# TYPE {name} gauge"]
        lines += [f"{name}{{{LABELS[version][0].format(i=index, u=uuid)}}} {value}" for index, uuid in enumerate(uuids)]
    return "\n".join(lines) + "\n\n"


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


class Exporter:
    """An exporter of the tests' own: pages as given, one after the other, the last again and again."""

    def __init__(self) -> None:
        self.pages: list[str | int] = [""]  # a number: that HTTP status
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                answer = outer.pages[0] if len(outer.pages) == 1 else outer.pages.pop(0)
                self.send_response(answer if isinstance(answer, int) else 200)
                self.end_headers()
                if isinstance(answer, str):
                    self.wfile.write(answer.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Exporter]:
    one = Exporter()
    yield one
    one.close()


class Watched:
    """A DcgmWatch and what it gave."""

    def __init__(self, source: str, *, default_url: str = "http://127.0.0.1:9/none") -> None:
        self.rows: list[tuple[str, Timed]] = []
        self.told: list[tuple[str, float | None, dict[str, object]]] = []
        self.stop = threading.Event()
        self.watch = DcgmWatch(
            source,
            emit=lambda uuid, timed: self.rows.append((uuid, timed)),
            metric=lambda name, value, unit, labels: self.told.append((name, value, dict(labels))),
            stop=self.stop,
            rng=random.Random(1),
            period_s=0.05,
            retry_s=0.05,
            default_url=default_url,
        )
        self.watch.start()

    def wait_for(self, what: Callable[[], object]) -> None:
        end = time.monotonic() + HANG_S
        while not what():
            assert time.monotonic() < end, (self.told, len(self.rows))
            time.sleep(0.01)

    def end(self) -> None:
        self.stop.set()
        self.watch.end(HANG_S)
        assert not self.watch.is_alive()

    def metrics(self, name: str) -> list[tuple[float | None, dict[str, object]]]:
        return [(value, labels) for found, value, labels in self.told if found == name]


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


DISCOVERY = f"""2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA H800                                                    |
|        | PCI Bus ID: 00000000:18:00.0                                         |
|        | Device UUID: {B}                |
+--------+----------------------------------------------------------------------+
| 3      | Name: NVIDIA H800                                                    |
|        | PCI Bus ID: 00000000:3E:00.0                                         |
|        | Device UUID: {A}                |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
+-----------+
| Switch ID |
+-----------+
+-----------+
"""
HEADINGS = ("SMACT", "SMOCC", "TENSO", "DRAMA", "PCITX", "PCIRX", "NVLTX", "NVLRX", "POWINST")
NEW_HEAD = "#Entity         " + "".join(f"{one:<14}" for one in HEADINGS) + "\nID              " + " " * 14 * 9 + "\n"
OLD_HEAD = "# Entity  " + "  ".join(HEADINGS) + "\n      Id\n"
VALUES = ("0.812", "0.250", "N/A", "0.300", "1048576", "2097152", "4000000", "N/A", "512.345")


def row(entity: str, values: tuple[str, ...] = VALUES) -> str:
    return f"{entity:<16}" + "".join(f"{value:<14}" for value in values)


@pytest.mark.parametrize("head", [NEW_HEAD, OLD_HEAD])
def test_rows_of_dmon_of_old_and_new_versions(head: str) -> None:
    text = head + "\n".join([row("GPU 0"), row("GPU 3"), row("GPU-I 7"), "", "Error: x", row("GPU 0", VALUES[:-1])])
    found = list(dmon.parse_lines(iter((text + "\n" + head + row("GPU 0")).splitlines())))
    rows = [one for one in found if isinstance(one, dmon.Row)]
    assert [one.gpu_id for one in rows] == [0, 3, 0]
    assert rows[0].values == {
        "dcgm_sm_active_ratio": 0.812,
        "dcgm_sm_occupancy_ratio": 0.25,
        "dcgm_tensor_active_ratio": None,
        "dcgm_dram_active_ratio": 0.3,
        "dcgm_pcie_tx_bytes_per_s": 1048576.0,
        "dcgm_pcie_rx_bytes_per_s": 2097152.0,
        "dcgm_nvlink_tx_bytes_per_s": 4_000_000.0,
        "dcgm_nvlink_rx_bytes_per_s": None,
        "dcgm_power_instant_watts": 512.345,
    }
    assert rows[0].reasons == {"dcgm_tensor_active_ratio": "N/A", "dcgm_nvlink_rx_bytes_per_s": "N/A"}
    assert [one for one in found if isinstance(one, str)] == ["Error: x", row("GPU 0", VALUES[:-1]).strip()]


def test_discovery_tells_the_uuid_of_each_id() -> None:
    assert dmon.parse_discovery(DISCOVERY) == {0: B, 3: A}


def fake_dcgmi(folder: Path, body: str) -> None:
    """A `dcgmi` that answers discovery as the real one does, and dmon as `body` says."""
    (folder / "discovery").write_text(DISCOVERY)
    script = folder / "dcgmi"
    script.write_text(
        f"#!{sys.executable}\nimport sys, time\n"
        f"if sys.argv[1] == 'discovery':\n    print(open({str(folder / 'discovery')!r}).read()); sys.exit()\n"
        f"open({str(folder / 'argv')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n{body}"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


FOREVER = f"""print({NEW_HEAD!r}, flush=True)
while True:
    print({row("GPU 0")!r}); print({row("GPU 3")!r}, flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize("source", ["dmon", "auto"])
def test_dmon_is_joined_by_uuid_and_ends_with_the_watch(on_path: Path, source: str) -> None:
    fake_dcgmi(on_path, FOREVER)
    watched = Watched(source)
    watched.wait_for(lambda: len(watched.rows) >= 6)
    child = watched.watch._child
    watched.end()
    assert child is not None
    assert child.wait(HANG_S) is not None
    assert {uuid for uuid, _ in watched.rows} == {A, B}
    assert watched.rows[0][1].values["dcgm_sm_active_ratio"] == 0.812
    assert watched.rows[0][1].values["dcgm_tensor_active_ratio"] is None
    assert watched.rows[0][1].uncertainty_ns == 25_000_000  # the reading is of the period before
    asked = (on_path / "argv").read_text().split()
    assert asked[:3] == ["dmon", "-e", "1002,1003,1004,1005,1009,1010,1011,1012,157"]


def test_a_dmon_that_dies_is_started_again_and_the_gap_marked(on_path: Path) -> None:
    fake_dcgmi(on_path, f"print({NEW_HEAD!r}); print({row('GPU 0')!r}, flush=True)\n")
    watched = Watched("dmon")
    watched.wait_for(lambda: len(watched.metrics("dcgm.gap")) >= 2)
    watched.end()
    assert len(watched.rows) >= 3
    assert watched.metrics("dcgm.unreachable")[0][1]["reason"] == "`dcgmi dmon` ended"


@pytest.mark.parametrize("body", ["print('Error: unable to connect', file=sys.stderr); sys.exit(1)\n", "sys.exit(0)\n"])
def test_a_dcgmi_that_gives_nothing_is_told_once(on_path: Path, body: str) -> None:
    (on_path / "dcgmi").write_text(f"#!{sys.executable}\nimport sys\n{body}")
    (on_path / "dcgmi").chmod(0o755)
    watched = Watched("dmon")
    watched.wait_for(lambda: watched.metrics("dcgm.source"))
    watched.end()
    ((value, labels),) = watched.metrics("dcgm.source")
    assert value is None
    assert "dcgmi discovery -l" in str(labels["reason"])


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


def test_the_samplers_dmon_ends_with_it(sampler, tmp_path: Path, uuid) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    fake_dcgmi(folder, FOREVER + f"open({str(folder / 'never')!r}, 'w')\n")
    (folder / "discovery").write_text(DISCOVERY.replace(A, uuid(0)).replace(B, uuid(1)))
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    running = sampler("* gpus 2\n", more=("--dcgm", "dmon"), path=path)
    running.wait_for(lambda: any(one["dcgm_sm_active_ratio"] is not None for one in running.rows(0)))
    assert running.end() == 0
    mine = [pid for pid in Path("/proc").iterdir() if pid.name.isdigit() and str(folder) in _command(pid)]
    assert mine == []


def _command(pid: Path) -> str:
    try:
        return (pid / "cmdline").read_text()
    except OSError:
        return ""
