"""DCGM from `dcgmi dmon`: a `dcgmi` of the tests' own."""

import os
import stat
import sys
from pathlib import Path

import pytest
from dcgm_parts import (
    HANG_S,
    A,
    B,
    Watched,
)

from harness.telemetry.dcgm import dmon
from harness.telemetry.dcgm.fields import FIELDS

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


REFUSED = """import time
ids = sys.argv[3].split(",")
refused = {refused}
if set(refused) & set(ids) or len(ids) > {most}:
    print("Error setting watches. Result: Feature not supported"); sys.exit(1)
print("#Entity  " + "  ".join(ids)); print("ID", flush=True)
while True:
    print("GPU 0   " + "  ".join("0.5" if int(one) > 1000 else "500.0" for one in ids), flush=True)
    if "-c" in sys.argv:
        sys.exit()
    time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("refused", "most", "left_out"),
    [
        (["1011", "1012"], 9, {"dcgm_nvlink_tx_bytes_per_s", "dcgm_nvlink_rx_bytes_per_s"}),
        ([], 8, {"dcgm_power_instant_watts"}),  # each is given alone, and all together are not
        (["1011"], 7, {"dcgm_nvlink_tx_bytes_per_s", "dcgm_power_instant_watts"}),
    ],
)
def test_a_field_that_is_refused_costs_itself_and_is_told(
    on_path: Path, refused: list[str], most: int, left_out: set[str]
) -> None:
    fake_dcgmi(on_path, REFUSED.format(refused=refused, most=most))
    watched = Watched("dmon")
    watched.wait_for(lambda: len(watched.rows) >= 3)
    watched.end()
    told = {str(labels["field"]): str(labels["reason"]) for _, labels in watched.metrics("dcgm.left_out")}
    assert {field for field in told if field.startswith("dcgm_")} == left_out
    assert all("refuses it" in told[field] and "not supported" in told[field] for field in left_out)
    given = {column for column, value in watched.rows[-1][1].values.items() if value is not None}
    assert given == {one.column for one in FIELDS} - left_out
    assert [value for value, _ in watched.metrics("dcgm.source")] == [1.0]


def test_a_dmon_that_is_refused_every_field_is_told_as_no_source(on_path: Path) -> None:
    fake_dcgmi(on_path, REFUSED.format(refused=[str(one.id) for one in FIELDS], most=0))
    watched = Watched("dmon")
    watched.wait_for(lambda: watched.metrics("dcgm.source"))
    watched.end()
    ((value, labels),) = watched.metrics("dcgm.source")
    assert value is None
    assert "Feature not supported" in str(labels["reason"])


def test_the_gap_of_a_dmon_that_dies_begins_with_its_last_row(on_path: Path) -> None:
    fake_dcgmi(on_path, f"for _ in range(20):\n    print({row('GPU 0')!r}, flush=True); time.sleep(0.05)\n")
    watched = Watched("dmon")
    watched.wait_for(lambda: watched.metrics("dcgm.gap"))
    watched.end()
    (length, labels), *_ = watched.metrics("dcgm.gap")
    begin = int(str(labels["begin_ns"]))
    before = max(timed.end_ns for _, timed in watched.rows if timed.end_ns <= begin + 1_000_000)
    assert begin >= before  # and not with the table, a second earlier
    assert length is not None


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
