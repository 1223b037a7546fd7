"""GPU readings through NVML (`nvidia-ml-py`), in SI units, None where a sensor says nothing."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from ctypes import byref, c_uint, c_ulonglong
from typing import Any

import pynvml

from harness.protocol.power_sensors import sensor_of
from harness.telemetry.gpu_power import PowerSensors
from harness.telemetry.kept_calls import FieldValues, Kept, Number, has, made_now
from harness.telemetry.values import FINAL, GONE, Reading, Report, Timed, Value, clean, reason_of

# The name of this call changed with driver 535; both give the same bits.
_THROTTLE, _OLDER_THROTTLE = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
ALL_LINKS = 0xFFFFFFFF  # scope of an NVLink field value that sums over the links

# Begin and end (monotonic ns), per cent, and if they were asked for: MHz, throttle reasons.
StateAnswers = tuple[int, int, int | None, tuple[int | None, int | None] | None]


class GpuLostError(Exception):
    """A GPU fell off the bus or needs a reset; nothing more can be read from it."""


class Gpu:
    """One GPU, addressed by its UUID. Every read raises GpuLostError once the GPU is gone.

    Reads of different groups may be made from different threads. `power` and `state` by one thread at a time, and so
    all that is read again and again: `memory`, `slow_state`, `pcie`, `nvlink`, `read_limit_again`, clocks asked for,
    MIG.
    """

    def __init__(self, index: int, uuid: str, handle: Any, report: Report) -> None:
        self.index = index
        self.uuid = uuid
        self.unsupported: dict[str, str] = {}
        self.power_limit_watts: float | None = None
        self.clock_and_reasons: tuple[Value, Value] = (
            None,
            None,
        )  # SM clock, throttle reasons: as `state` last had them
        self._constant: dict[str, Any] = {}
        self.handle = handle
        self._report = report
        self._lock = threading.Lock()
        self._told: set[tuple[str, str]] = set()
        self.power = PowerSensors(self)
        self._util = Number("nvmlDeviceGetUtilizationRates", handle, pynvml.c_nvmlUtilization_t())
        self._sm_clock = Number("nvmlDeviceGetClockInfo", handle, c_uint(), pynvml.NVML_CLOCK_SM)
        self._throttle = Number(_THROTTLE if has(_THROTTLE) else _OLDER_THROTTLE, handle, c_ulonglong())
        self._limit = Number("nvmlDeviceGetEnforcedPowerLimit", handle, c_uint())
        newer = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)
        self._memory = Number("nvmlDeviceGetMemoryInfo_v2", handle, newer)
        self._without_v2 = False
        self._older_memory = Number("nvmlDeviceGetMemoryInfo", handle, pynvml.c_nvmlMemory_t())
        self._slow = {
            "memory_clock_hz": Number("nvmlDeviceGetClockInfo", handle, c_uint(), pynvml.NVML_CLOCK_MEM),
            "temperature_celsius": Number("nvmlDeviceGetTemperature", handle, c_uint(), pynvml.NVML_TEMPERATURE_GPU),
        }
        self._asked_clock = Number("nvmlDeviceGetApplicationsClock", handle, c_uint(), pynvml.NVML_CLOCK_SM)
        pending = byref(c_uint())
        self._mig = Number("nvmlDeviceGetMigMode", handle, c_uint(), after=(pending,))
        self._fields: dict[tuple[tuple[str, tuple[int, int]], ...], FieldValues] = {}
        self._link_fields = {
            "nvlink_tx_bytes": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 1024),
            "nvlink_rx_bytes": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 1024),
        }
        self._pcie = {
            name: Number("nvmlDeviceGetPcieThroughput", handle, c_uint(), which)
            for name, which in (
                ("pcie_tx_bytes_per_s", pynvml.NVML_PCIE_UTIL_TX_BYTES),
                ("pcie_rx_bytes_per_s", pynvml.NVML_PCIE_UTIL_RX_BYTES),
            )
        }
        self._links: FieldValues | None = None
        self._link_fallback = {
            "nvlink_tx_bytes": (pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, 1),
            "nvlink_rx_bytes": (pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, 1),
        }

    def state(self, *, clocks: bool = True) -> Timed:
        """What changes with the load: utilisation (ratio); on demand SM clock (Hz) and throttle reasons (NVML bits)."""
        return self.state_of(self.state_answers(clocks=clocks))

    def state_answers(self, *, clocks: bool) -> StateAnswers:
        """What the driver gives for `state`, for `state_of`."""
        begin_ns = time.monotonic_ns()
        util = self._kept("util_ratio", self._util)
        percent = None if util is None else util.gpu
        if not clocks:
            return begin_ns, time.monotonic_ns(), percent, None
        sm_mhz = self._kept("sm_clock_hz", self._sm_clock)
        throttle = self._kept("throttle_reasons", self._throttle)
        end_ns = time.monotonic_ns()
        both = None if sm_mhz is None else sm_mhz.value, None if throttle is None else throttle.value
        return begin_ns, end_ns, percent, both

    def state_of(self, answers: StateAnswers) -> Timed:
        """The readings in what `state_answers` gave."""
        begin_ns, end_ns, raw, clocks = answers
        percent = self._scaled("util_ratio", raw)
        values: Reading = {"util_ratio": None if percent is None else percent / 100}
        if clocks is not None:
            clock = self._scaled("sm_clock_hz", clocks[0], 1_000_000)
            reasons = self._scaled("throttle_reasons", clocks[1])
            values |= {"sm_clock_hz": clock, "throttle_reasons": reasons}
            self.clock_and_reasons = clock, reasons
        return Timed(begin_ns, end_ns, values)

    def memory(self) -> Timed:
        """Memory used and there, in bytes."""
        begin_ns, end_ns, memory = self._memory_now()
        values: Reading = {
            "memory_used_bytes": self._scaled("memory_used_bytes", None if memory is None else memory.used),
            "memory_total_bytes": self._scaled("memory_used_bytes", None if memory is None else memory.total),
        }
        return Timed(begin_ns, end_ns, values)

    def memory_calls(self) -> list[Kept]:
        """The call that the next `memory` makes, unless it was made ahead."""
        return [] if "memory_used_bytes" in self.unsupported else [self._memory_call()]

    def _memory_call(self) -> Number:
        return self._older_memory if self._without_v2 else self._memory

    def slow_state(self) -> Timed:
        """What changes slowly: memory clock (Hz), temperature (Celsius)."""
        return self._numbers(self._slow, {"memory_clock_hz": 1_000_000, "temperature_celsius": 1.0})

    def pcie(self) -> Timed:
        """PCIe throughput (bytes/s) over the 20 ms that each of its two calls blocks. NVML's KB is read as 1,000 B."""
        return self._numbers(self._pcie, dict.fromkeys(self._pcie, 1000.0))

    def seldom_calls(self) -> list[Kept]:
        """The calls that the next `slow_state`, `nvlink` and `pcie` make, unless they were made ahead."""
        both = {**self._slow, **self._pcie}
        calls: list[Kept] = [call for name, call in both.items() if name not in self.unsupported]
        return [*calls, self._links] if self._links is not None and self._link_fields else calls

    def check_calls(self) -> list[Kept]:
        """The calls that the next `mig_enabled` and `application_clocks_hz` make, unless they were made ahead."""
        both = {"mig_mode": self._mig, "application_clock_hz": self._asked_clock}
        return [call for name, call in both.items() if name not in self.unsupported]

    def _numbers(self, calls: Mapping[str, Number], factors: Mapping[str, int | float]) -> Timed:
        """What these calls give, times their factors."""
        values: Reading = dict.fromkeys(calls)
        begin_ns = end_ns = 0
        for name, call in calls.items():
            if name in self.unsupported:
                continue
            begin, end_ns, code = made_now(call)
            begin_ns = begin_ns or begin
            self.lost_if(code)
            if code:
                self.nothing(name, code)
            else:
                values[name] = self._scaled(name, call.result.value, factors[name])
        now = end_ns or time.monotonic_ns()
        return Timed(begin_ns or now, now, values)

    def nvlink(self) -> Timed:
        """NVLink data bytes, cumulative, all links summed."""
        values: Reading = {"nvlink_tx_bytes": None, "nvlink_rx_bytes": None}
        made = self._links.made if self._links is not None else None
        begin_ns = time.monotonic_ns() if made is None else made[0]
        answers = self._link_answers()
        if any(code in FINAL and name in self._link_fallback for name, (_, code) in answers.items()):
            # Newer GPUs count under other fields; both directions change over together.
            self._link_fields, self._link_fallback, self._links = self._link_fallback, {}, None
            made, begin_ns = None, time.monotonic_ns()
            answers = self._link_answers()
        end_ns = time.monotonic_ns() if made is None else made[1]
        for name, (raw, code) in answers.items():
            if code == pynvml.NVML_SUCCESS:
                values[name] = self._scaled(name, raw, self._link_fields[name][1])
                continue
            self.nothing(name, code)
            if code in FINAL:
                del self._link_fields[name]
                self._links = None
        return Timed(begin_ns, end_ns, values)

    def _link_answers(self) -> dict[str, tuple[Value, int]]:
        if not self._link_fields:
            return {}
        if self._links is None:
            wanted = {name: (id_, ALL_LINKS) for name, (id_, _) in self._link_fields.items()}
            self._links = FieldValues(self.handle, wanted)
        return self.answers(self._links.read, self._link_fields)

    def read_limit(self) -> float | None:
        """Re-reads the enforced power limit (W), which `power` then carries."""
        return self._take_limit(self.read("power_limit_watts", pynvml.nvmlDeviceGetEnforcedPowerLimit))

    def read_limit_again(self) -> float | None:
        """As `read_limit`, with less work."""
        limit = self._made("power_limit_watts", self._limit)
        return self._take_limit(None if limit is None else limit.value)

    def limit_calls(self) -> list[Kept]:
        """The call that the next `read_limit_again` makes, unless it was made ahead."""
        return [] if "power_limit_watts" in self.unsupported else [self._limit]

    def _take_limit(self, raw: int | None) -> float | None:
        milliwatts = self._scaled("power_limit_watts", raw)
        self.power_limit_watts = None if milliwatts is None else milliwatts / 1000
        return self.power_limit_watts

    def default_limit(self) -> float | None:
        """The power limit (W) this board has by default."""
        raw = self._once("power_limit_default_watts", pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
        return None if raw is None else raw / 1000.0

    def mig_enabled(self) -> bool | None:
        """Whether the GPU is cut into instances; None where it cannot be."""
        mode = self._made("mig_mode", self._mig)
        return None if mode is None else bool(mode.value)

    def application_clocks_hz(self) -> tuple[int | None, int | None]:
        """The SM clock asked for and the board's default for it, in Hz."""
        now = self._made("application_clock_hz", self._asked_clock)
        which = pynvml.NVML_CLOCK_SM
        default = self._once("application_clock_default_hz", pynvml.nvmlDeviceGetDefaultApplicationsClock, which)
        return None if now is None else now.value * 1_000_000, None if default is None else default * 1_000_000

    def processes(self) -> dict[int, int | None] | None:
        """Bytes of GPU memory by pid (of the host's namespace) that computes on this GPU; None: cannot be read.

        Bytes are None where the driver does not say (as under MIG).
        """
        found = self.read("compute_processes", pynvml.nvmlDeviceGetComputeRunningProcesses)
        if found is None:
            return None
        used = {int(one.pid): one.usedGpuMemory for one in found}
        return {pid: None if memory is None else _whole(clean(memory)) for pid, memory in used.items()}

    def describe(self) -> dict[str, Any]:
        """What does not change while the run goes on."""
        limits = self.read("power_limit_constraints", pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
        memory = self._memory_now()[2]
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

    def usage_is_average(self) -> bool:
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
        """Value (None for a blank) and return code per name, all read by one call; for one thread at a time."""
        if not wanted:
            return {}
        fields = tuple(wanted.items())
        if fields not in self._fields:
            self._fields[fields] = FieldValues(self.handle, wanted)
        return self.answers(self._fields[fields].read, wanted)

    def answers(
        self, read: Callable[[], dict[str, tuple[Value, int]]], wanted: Iterable[str]
    ) -> dict[str, tuple[Value, int]]:
        """What `read` gives; where it failed as a whole, its return code for each name."""
        try:
            answers = read()
        except pynvml.NVMLError as error:
            self.lost_if(error.value)
            return dict.fromkeys(wanted, (None, error.value))
        for _, code in answers.values():
            if code:
                self.lost_if(code)
        return answers

    def read(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """What `call(handle, *arguments)` gives; None, and the reason told, where it gives nothing."""
        if name in self.unsupported:
            return None
        try:
            return call(self.handle, *arguments)
        except pynvml.NVMLError as error:
            self.lost_if(error.value)
            self.nothing(name, error.value)
            return None

    def _once(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """As `read`, of what a board never changes."""
        if name not in self._constant:
            self._constant[name] = self.read(name, call, *arguments)
        return self._constant[name]

    def _kept(self, name: str, call: Number) -> Any:
        """As `read`."""
        if name in self.unsupported:
            return None
        code = call.call()
        if not code:
            return call.result
        self.lost_if(code)
        self.nothing(name, code)
        return None

    def _made(self, name: str, call: Number) -> Any:
        """As `_kept`, of a call that may have been made ahead."""
        if name in self.unsupported:
            return None
        code = made_now(call)[2]
        self.lost_if(code)
        if code:
            self.nothing(name, code)
        return None if code else call.result

    def _memory_now(self) -> tuple[int, int, Any]:
        """Begin, end (monotonic ns) and what was given.

        Version 2 leaves the driver's own reserve out of `used`, as nvidia-smi does; older drivers lack it.
        """
        if "memory_used_bytes" in self.unsupported:
            now = time.monotonic_ns()
            return now, now, None
        call = self._memory_call()
        begin_ns, end_ns, code = made_now(call)
        if code in FINAL and not self._without_v2:
            self._without_v2 = True
            return self._memory_now()
        self.lost_if(code)
        if code:
            self.nothing("memory_used_bytes", code)
        return begin_ns, end_ns, None if code else call.result

    def _scaled(self, name: str, raw: int | float | None, factor: int | float = 1) -> Value:
        if raw is None:
            return None
        value = clean(raw)
        if value is None:
            self.tell(name, "blank value")
            return None
        return value * factor

    def lost_if(self, code: int) -> None:
        """Raises GpuLostError where the return code says so."""
        if code in GONE:
            raise GpuLostError(f"GPU {self.index} ({self.uuid}): {reason_of(code)}")

    def nothing(self, name: str, code: int) -> None:
        """Notes that reading `name` gave nothing, for the reason that the return code names."""
        if code in FINAL:
            self.unsupported[name] = reason_of(code)
        self.tell(name, reason_of(code))

    def tell(self, name: str, reason: str) -> None:
        """Tells once that reading `name` gives nothing, and why."""
        with self._lock:
            if (name, reason) in self._told:
                return
            self._told.add((name, reason))
        self._report(self.uuid, name, reason)


def _whole(value: Value) -> int | None:
    return None if value is None else int(value)
