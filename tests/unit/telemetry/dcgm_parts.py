"""Pages as exporters of several releases print them, an exporter of the tests' own, and a watch of it."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
