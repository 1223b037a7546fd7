"""The power sensors of one GPU: which call gives what, the call by itself, and what it said.

Power has two meanings that are kept apart: `NVML_FI_DEV_POWER_INSTANT` and `NVML_FI_DEV_POWER_AVERAGE`. The older
`nvmlDeviceGetPowerUsage` is a one-second average on Ampere and newer except GA100, and instantaneous on GA100 and
older (NVML API reference); it fills the column it belongs to, and `sources` says which call gave what.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pynvml

from harness.telemetry.kept_calls import FieldValues
from harness.telemetry.values import FINAL, Reading, Timed, Value, clean

if TYPE_CHECKING:
    from harness.telemetry.nvml import Gpu

POWER_NAMES = ("power_instant_watts", "power_average_watts", "energy_joules")
_FIELDS: Mapping[str, int] = {
    "power_instant_watts": pynvml.NVML_FI_DEV_POWER_INSTANT,
    "power_average_watts": pynvml.NVML_FI_DEV_POWER_AVERAGE,
    "energy_joules": pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
}

Call = Callable[[Any], int]


# What the driver gave: begin and end (monotonic ns), the fields it was asked for and the code of that call, and
# name, value and code of each other call. A tuple, because it is made between two GPUs' calls.
PowerCall = tuple[int, int, FieldValues | None, int, tuple[tuple[str, Value, int], ...]]


class PowerSensors:
    """Instant and average power (W) and the energy counter (J, since the driver was loaded). For one thread at a time.

    Every method may raise GpuLostError, `call` excepted.
    """

    def __init__(self, gpu: "Gpu") -> None:
        self._gpu = gpu
        self._fields = dict(_FIELDS)
        self._calls: dict[str, Call] = {}
        self._sets: dict[tuple[str, ...], tuple[FieldValues | None, tuple[tuple[str, Call], ...]]] = {}
        self.sources: dict[str, str] = {}

    def prepare(self) -> None:
        """Finds which call gives power and energy on this GPU. Must be called first."""
        gpu = self._gpu
        answers = gpu.field_values({name: (id_, 0) for name, id_ in self._fields.items()})
        older = "power_average_watts" if gpu.usage_is_average() else "power_instant_watts"
        calls: dict[str, Call] = {
            older: pynvml.nvmlDeviceGetPowerUsage,
            "energy_joules": pynvml.nvmlDeviceGetTotalEnergyConsumption,
        }
        for name, (value, code) in answers.items():
            if code == pynvml.NVML_SUCCESS or code not in FINAL:
                self.sources[name] = "nvmlDeviceGetFieldValues"
                continue
            del self._fields[name]
            call = calls.get(name)
            if call is None:
                gpu.nothing(name, code)
                continue
            value, code = _answer(call, gpu.handle)
            gpu.lost_if(code)
            if value is None and code in FINAL:
                gpu.nothing(name, code)
            else:
                self._calls[name] = call
                self.sources[name] = call.__name__

    def twin(self) -> "PowerSensors":
        """The same sensors for another thread: what a call fills is its own."""
        twin = PowerSensors(self._gpu)
        twin._fields, twin._calls, twin.sources = self._fields, self._calls, self.sources
        return twin

    def call(self, names: tuple[str, ...] = POWER_NAMES) -> PowerCall:
        """Has the driver give those, and does no more: the next GPU waits for its turn.

        `readings` must come before the next call for the same names: the driver's memory is used again.
        """
        kept, plain = self._sets.get(names) or self._set(names)
        begin_ns = time.monotonic_ns()
        code = kept.call() if kept is not None else 0
        answers = tuple((name, *_answer(call, self._gpu.handle)) for name, call in plain) if plain else ()
        return begin_ns, time.monotonic_ns(), kept, code, answers

    def readings(self, call: PowerCall) -> Timed:
        """What `call` gave, of one moment, with the limit (W) as it was last read."""
        begin_ns, end_ns, kept, code, plain = call
        values: Reading = {}
        if kept is None:
            answers = plain
        elif code:
            answers = (*((name, None, code) for name in kept.names), *plain)
        else:
            answers = (*kept.values(), *plain)
        for name, raw, its_code in answers:
            if raw and not its_code:
                values[name] = raw / 1000.0
            else:
                values[name] = self._odd(name, raw, its_code)
        values["power_limit_watts"] = self._gpu.power_limit_watts
        return Timed(begin_ns, end_ns, values)

    def _set(self, names: tuple[str, ...]) -> tuple[FieldValues | None, tuple[tuple[str, Call], ...]]:
        fields = {name: (id_, 0) for name, id_ in self._fields.items() if name in names}
        calls = tuple((name, call) for name, call in self._calls.items() if name in names)
        self._sets[names] = (FieldValues(self._gpu.handle, fields) if fields else None, calls)
        return self._sets[names]

    def read(self, names: tuple[str, ...] = POWER_NAMES) -> Timed:
        """Both at once. A sensor that this GPU lacks has no name in what comes."""
        return self.readings(self.call(names))

    def _odd(self, name: str, raw: Value, code: int) -> Value:
        """A value that is 0, or none, for a reason that is told."""
        if code != pynvml.NVML_SUCCESS:
            self._gpu.lost_if(code)
            self._gpu.nothing(name, code)
        elif raw is None:
            self._gpu.tell(name, "blank value")
        elif name != "energy_joules":
            self._gpu.tell(name, "reads 0 W, which no powered GPU draws")
        else:
            return 0.0
        return None


def _answer(call: Call, handle: Any) -> tuple[Value, int]:
    """Value (None for a blank) and return code."""
    try:
        return clean(call(handle)), pynvml.NVML_SUCCESS
    except pynvml.NVMLError as error:
        return None, int(error.value)
