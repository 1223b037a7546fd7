"""GPU readings through NVML (`nvidia-ml-py`), in SI units, None where a sensor says nothing.

Power has two meanings that are kept apart: `NVML_FI_DEV_POWER_INSTANT` and `NVML_FI_DEV_POWER_AVERAGE`. The older
`nvmlDeviceGetPowerUsage` is a one-second average on Ampere and newer except GA100, and instantaneous on GA100 and
older (NVML API reference); it fills the column it belongs to, and `Gpu.sources` says which call gave what.
"""

import threading
import time
from collections.abc import Callable, Container
from typing import Any

import pynvml

from harness.protocol.power_sensors import sensor_of
from harness.telemetry.values import FINAL, GONE, Reading, Report, Timed, Value, clean, reason_of, typed

ALL_LINKS = 0xFFFFFFFF  # scope of an NVLink field value that sums over the links


class NvmlError(Exception):
    """NVML cannot be used on this machine; the message says why."""


class GpuLostError(Exception):
    """A GPU fell off the bus or needs a reset; nothing more can be read from it."""


class Nvml:
    """The library, initialised. NVML itself is thread-safe."""

    def __init__(self) -> None:
        """Loads `libnvidia-ml.so.1` and initialises it.

        Raises:
            NvmlError: no library, no driver, or they do not fit.
        """
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NvmlError(f"NVML cannot be used: {reason_of(error.value)}") from None
        self.driver = self._text(pynvml.nvmlSystemGetDriverVersion)
        self.version = self._text(pynvml.nvmlSystemGetNVMLVersion)

    def gpus(self, report: Report) -> tuple[list["Gpu"], list[tuple[int, str]]]:
        """The GPUs of this machine, and (index, reason) of those that do not answer."""
        found: list[Gpu] = []
        bad: list[tuple[int, str]] = []
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise NvmlError(f"NVML cannot count the GPUs: {reason_of(error.value)}") from None
        for index in range(count):
            try:
                uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
                found.append(Gpu(index, uuid, pynvml.nvmlDeviceGetHandleByUUID(uuid), report))
            except pynvml.NVMLError as error:
                bad.append((index, reason_of(error.value)))
        return found, bad

    def others(self, known: Container[str], report: Report) -> list["Gpu"]:
        """GPUs that answer now and whose UUID is not in `known`: new ones, and lost ones that came back."""
        found: list[Gpu] = []
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError:
            return found
        for index in range(count):
            try:
                uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
                if uuid in known:
                    continue
                gpu = Gpu(index, uuid, pynvml.nvmlDeviceGetHandleByUUID(uuid), report)
                gpu.read_limit()  # a handle is given for some GPUs that then don't answer
                found.append(gpu)
            except (pynvml.NVMLError, GpuLostError):
                continue  # still gone; its loss is on record
        return found

    def close(self) -> None:
        """Shuts the library down; errors of a driver that is already gone are of no interest."""
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return

    @staticmethod
    def _text(call: Callable[[], str]) -> str:
        try:
            return str(call())
        except pynvml.NVMLError as error:
            return f"unknown ({reason_of(error.value)})"


class Gpu:
    """One GPU, addressed by its UUID. Every read raises GpuLostError once the GPU is gone.

    Reads of different groups may be made from different threads.
    """

    def __init__(self, index: int, uuid: str, handle: Any, report: Report) -> None:
        self.index = index
        self.uuid = uuid
        self.unsupported: dict[str, str] = {}
        self.sources: dict[str, str] = {}
        self.power_limit_watts: float | None = None
        self.handle = handle
        self._report = report
        self._lock = threading.Lock()
        self._told: set[tuple[str, str]] = set()
        self._power_fields = {
            "power_instant_watts": pynvml.NVML_FI_DEV_POWER_INSTANT,
            "power_average_watts": pynvml.NVML_FI_DEV_POWER_AVERAGE,
            "energy_joules": pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
        }
        self._power_calls: dict[str, Callable[[Any], int]] = {}
        self._link_fields = {
            "nvlink_tx_bytes": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 1024),
            "nvlink_rx_bytes": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 1024),
        }
        self._link_fallback = {
            "nvlink_tx_bytes": (pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, 1),
            "nvlink_rx_bytes": (pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, 1),
        }

    def prepare(self) -> None:
        """Finds which call gives power and energy on this GPU. Must be called before `power`."""
        answers = self.field_values({name: (id_, 0) for name, id_ in self._power_fields.items()})
        older = "power_average_watts" if self._usage_is_average() else "power_instant_watts"
        calls: dict[str, Callable[[Any], int]] = {
            older: pynvml.nvmlDeviceGetPowerUsage,
            "energy_joules": pynvml.nvmlDeviceGetTotalEnergyConsumption,
        }
        for name, (value, code) in answers.items():
            if code == pynvml.NVML_SUCCESS or code not in FINAL:
                self.sources[name] = "nvmlDeviceGetFieldValues"
                continue
            del self._power_fields[name]
            call = calls.get(name)
            if call is None:
                self.nothing(name, code)
                continue
            value, code = self._plain(call)
            if value is None and code in FINAL:
                self.nothing(name, code)
            else:
                self._power_calls[name] = call
                self.sources[name] = call.__name__

    def power(self) -> Timed:
        """Instant and average power (W) and the energy counter (J, since the driver was loaded), of one moment."""
        begin_ns = time.monotonic_ns()
        answers = self.field_values({name: (id_, 0) for name, id_ in self._power_fields.items()})
        for name, call in self._power_calls.items():
            answers[name] = self._plain(call)
        end_ns = time.monotonic_ns()
        values: Reading = {"power_instant_watts": None, "power_average_watts": None, "energy_joules": None}
        for name, (raw, code) in answers.items():
            if code != pynvml.NVML_SUCCESS:
                self.nothing(name, code)
            elif raw is None:
                self._tell(name, "blank value")
            elif raw == 0 and name != "energy_joules":
                self._tell(name, "reads 0 W, which no powered GPU draws")
            else:
                values[name] = raw / 1000.0
        values["power_limit_watts"] = self.power_limit_watts
        return Timed(begin_ns, end_ns, values)

    def state(self) -> Timed:
        """Utilisation (ratio), memory (bytes), clocks (Hz), temperature (Celsius), throttle reasons (NVML's bits)."""
        begin_ns = time.monotonic_ns()
        util = self.read("util_ratio", pynvml.nvmlDeviceGetUtilizationRates)
        memory = self.read("memory_used_bytes", _memory)
        sm_mhz = self.read("sm_clock_hz", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM)
        memory_mhz = self.read("memory_clock_hz", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM)
        celsius = self.read("temperature_celsius", pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)
        throttle = self.read("throttle_reasons", _throttle_reasons)
        end_ns = time.monotonic_ns()
        percent = self._scaled("util_ratio", None if util is None else util.gpu)
        values: Reading = {
            "util_ratio": None if percent is None else percent / 100,
            "memory_used_bytes": self._scaled("memory_used_bytes", None if memory is None else memory.used),
            "memory_total_bytes": self._scaled("memory_used_bytes", None if memory is None else memory.total),
            "sm_clock_hz": self._scaled("sm_clock_hz", sm_mhz, 1_000_000),
            "memory_clock_hz": self._scaled("memory_clock_hz", memory_mhz, 1_000_000),
            "temperature_celsius": self._scaled("temperature_celsius", celsius, 1.0),
            "throttle_reasons": self._scaled("throttle_reasons", throttle),
        }
        return Timed(begin_ns, end_ns, values)

    def pcie(self) -> Timed:
        """PCIe throughput (bytes/s) over the 20 ms that each of its two calls blocks. NVML's KB is read as 1,000 B."""
        begin_ns, call = time.monotonic_ns(), pynvml.nvmlDeviceGetPcieThroughput
        tx = self.read("pcie_tx_bytes_per_s", call, pynvml.NVML_PCIE_UTIL_TX_BYTES)
        rx = self.read("pcie_rx_bytes_per_s", call, pynvml.NVML_PCIE_UTIL_RX_BYTES)
        values: Reading = {
            "pcie_tx_bytes_per_s": self._scaled("pcie_tx_bytes_per_s", tx, 1000.0),
            "pcie_rx_bytes_per_s": self._scaled("pcie_rx_bytes_per_s", rx, 1000.0),
        }
        return Timed(begin_ns, time.monotonic_ns(), values)

    def nvlink(self) -> Timed:
        """NVLink data bytes, cumulative, all links summed."""
        begin_ns = time.monotonic_ns()
        values: Reading = {"nvlink_tx_bytes": None, "nvlink_rx_bytes": None}
        answers = self._link_answers()
        if any(code in FINAL and name in self._link_fallback for name, (_, code) in answers.items()):
            # Newer GPUs count under other fields; both directions change over together.
            self._link_fields, self._link_fallback = self._link_fallback, {}
            begin_ns = time.monotonic_ns()
            answers = self._link_answers()
        end_ns = time.monotonic_ns()
        for name, (raw, code) in answers.items():
            if code == pynvml.NVML_SUCCESS:
                values[name] = self._scaled(name, raw, self._link_fields[name][1])
                continue
            self.nothing(name, code)
            if code in FINAL:
                del self._link_fields[name]
        return Timed(begin_ns, end_ns, values)

    def _link_answers(self) -> dict[str, tuple[Value, int]]:
        return self.field_values({name: (id_, ALL_LINKS) for name, (id_, _) in self._link_fields.items()})

    def read_limit(self) -> float | None:
        """Re-reads the enforced power limit (W), which `power` then carries."""
        raw = self.read("power_limit_watts", pynvml.nvmlDeviceGetEnforcedPowerLimit)
        milliwatts = self._scaled("power_limit_watts", raw)
        self.power_limit_watts = None if milliwatts is None else milliwatts / 1000
        return self.power_limit_watts

    def default_limit(self) -> float | None:
        """The power limit (W) this board has by default."""
        raw = self.read("power_limit_default_watts", pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
        return None if raw is None else raw / 1000.0

    def mig_enabled(self) -> bool | None:
        """Whether the GPU is cut into instances; None where it cannot be."""
        modes = self.read("mig_mode", pynvml.nvmlDeviceGetMigMode)
        return None if modes is None else bool(modes[0])

    def application_clocks_hz(self) -> tuple[int | None, int | None]:
        """The SM clock asked for and the board's default for it, in Hz."""
        sm = pynvml.NVML_CLOCK_SM
        now = self.read("application_clock_hz", pynvml.nvmlDeviceGetApplicationsClock, sm)
        default = self.read("application_clock_default_hz", pynvml.nvmlDeviceGetDefaultApplicationsClock, sm)
        return None if now is None else now * 1_000_000, None if default is None else default * 1_000_000

    def process_ids(self) -> list[int] | None:
        """Pids (of the host's namespace) that compute on this GPU; None where that cannot be read."""
        found = self.processes()
        return None if found is None else list(found)

    def processes(self) -> dict[int, int | None] | None:
        """Bytes of GPU memory by pid, None where the driver does not say (as under MIG); None: cannot be read."""
        found = self.read("compute_processes", pynvml.nvmlDeviceGetComputeRunningProcesses)
        if found is None:
            return None
        used = {int(one.pid): one.usedGpuMemory for one in found}
        return {pid: None if memory is None else _whole(clean(memory)) for pid, memory in used.items()}

    def describe(self) -> dict[str, Any]:
        """What does not change while the run goes on."""
        limits = self.read("power_limit_constraints", pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
        memory = self.read("memory_used_bytes", _memory)
        pci = self.read("pci_bus_id", pynvml.nvmlDeviceGetPciInfo)
        max_mhz = self.read("sm_clock_max_hz", pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)
        return {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.read("name", pynvml.nvmlDeviceGetName),
            "minor_number": self.read("minor_number", pynvml.nvmlDeviceGetMinorNumber),
            "pci_bus_id": None if pci is None else pci.busId,
            "compute_capability": self._capability(),
            "mig_mode": self.mig_enabled(),
            "memory_total_bytes": None if memory is None else memory.total,
            "power_limit_watts": self.read_limit(),
            "power_limit_min_watts": None if limits is None else limits[0] / 1000.0,
            "power_limit_max_watts": None if limits is None else limits[1] / 1000.0,
            "power_limit_default_watts": self.default_limit(),
            "sm_clock_max_hz": None if max_mhz is None else max_mhz * 1_000_000,
        }

    def _usage_is_average(self) -> bool:
        """Whether the older power call averages: by chip, else by architecture, else as nearly all since 2020 do."""
        sensor = sensor_of(self._capability())
        if sensor is not None:
            return sensor.plain_window_s > 0
        architecture = self.read("architecture", pynvml.nvmlDeviceGetArchitecture)
        if architecture is None or architecture == pynvml.NVML_DEVICE_ARCH_UNKNOWN:
            return True
        return bool(architecture >= pynvml.NVML_DEVICE_ARCH_AMPERE)

    def _capability(self) -> str | None:
        capability = self.read("compute_capability", pynvml.nvmlDeviceGetCudaComputeCapability)
        return None if capability is None else ".".join(map(str, capability))

    def field_values(self, wanted: dict[str, tuple[int, int]]) -> dict[str, tuple[Value, int]]:
        """Value (None for a blank) and return code per name, all read by one call."""
        if not wanted:
            return {}
        try:
            values = pynvml.nvmlDeviceGetFieldValues(self.handle, list(wanted.values()))
        except pynvml.NVMLError as error:
            self._lost_if(error.value)
            return dict.fromkeys(wanted, (None, error.value))
        answers: dict[str, tuple[Value, int]] = {}
        for name, value in zip(wanted, values, strict=True):
            self._lost_if(value.nvmlReturn)
            answers[name] = (clean(typed(value)) if value.nvmlReturn == 0 else None, value.nvmlReturn)
        return answers

    def _plain(self, call: Callable[[Any], int]) -> tuple[Value, int]:
        try:
            return clean(call(self.handle)), pynvml.NVML_SUCCESS
        except pynvml.NVMLError as error:
            self._lost_if(error.value)
            return None, error.value

    def read(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """What `call(handle, *arguments)` gives; None, and the reason told, where it gives nothing."""
        if name in self.unsupported:
            return None
        try:
            return call(self.handle, *arguments)
        except pynvml.NVMLError as error:
            self._lost_if(error.value)
            self.nothing(name, error.value)
            return None

    def _scaled(self, name: str, raw: int | float | None, factor: int | float = 1) -> Value:
        if raw is None:
            return None
        value = clean(raw)
        if value is None:
            self._tell(name, "blank value")
            return None
        return value * factor

    def _lost_if(self, code: int) -> None:
        if code in GONE:
            raise GpuLostError(f"GPU {self.index} ({self.uuid}): {reason_of(code)}")

    def nothing(self, name: str, code: int) -> None:
        """Notes that reading `name` gave nothing, for the reason that the return code names."""
        if code in FINAL:
            self.unsupported[name] = reason_of(code)
        self._tell(name, reason_of(code))

    def _tell(self, name: str, reason: str) -> None:
        with self._lock:
            if (name, reason) in self._told:
                return
            self._told.add((name, reason))
        self._report(self.uuid, name, reason)


def _whole(value: Value) -> int | None:
    return None if value is None else int(value)


def _memory(handle: Any) -> Any:
    """Version 2 leaves the driver's own reserve out of `used`, as nvidia-smi does; older drivers lack it."""
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as error:
        if error.value not in FINAL:
            raise
        return pynvml.nvmlDeviceGetMemoryInfo(handle)


def _throttle_reasons(handle: Any) -> int:
    """The name of this call changed with driver 535; both give the same bits."""
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
