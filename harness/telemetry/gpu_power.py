"""The power sensors of one GPU: which call gives what, the call by itself, and what it said.

Power has two meanings that are kept apart: `NVML_FI_DEV_POWER_INSTANT` and `NVML_FI_DEV_POWER_AVERAGE`. The older
`nvmlDeviceGetPowerUsage` is a one-second average on Ampere and newer except GA100, and instantaneous on GA100 and
older (NVML API reference); it fills the column it belongs to, and `sources` says which call gave what.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pynvml

from harness.telemetry.kept_calls import FieldValues, value_of
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


class Asked:
    """Some power sensors of one GPU, asked for together."""

    def __init__(self, handle: Any, fields: Mapping[str, tuple[int, int]], calls: Mapping[str, Call]) -> None:
        """`fields`: those that one call of field values gives; `calls`: the others, by their own."""
        self._handle = handle
        self._kept = FieldValues(handle, fields) if fields else None
        self._calls = tuple(calls.items())
        self.names = self._kept.names if self._kept else ()
        # Has the driver give them, and does no more: the next GPU waits for its turn.
        self.call: Callable[[], object] = self._kept.call if self._kept and not calls else self._each
        # Where `call` gave 0: what is left for `columns` and `cells`, after the next call too.
        self.taken: Callable[[], bytes] = self._kept.taken if self._kept else bytes

    def _each(self) -> tuple[int, list[tuple[str, Value, int]]]:
        code = self._kept.call() if self._kept else 0
        return code, [(name, *_answer(call, self._handle)) for name, call in self._calls]

    def columns(self, many: Iterable[bytes]) -> dict[str, list[float]] | None:
        """W and J in what several calls gave; None where any of it is odd, and needs a look of its own."""
        numbers = self._kept.numbers(many) if self._kept else None
        if numbers is None:
            return None
        return {name: [one / 1000.0 for one in column] for name, column in numbers.items()}

    def cells(self, given: Any) -> Iterable[tuple[str, int, int]]:
        """The field values in what `call` gave, before its next call: name, type and bits, for `value_of`."""
        if self._kept is None:
            return ()
        if isinstance(given, bytes):
            return self._kept.cells(given)
        code = given if isinstance(given, int) else given[0]
        return [(name, code << 32, 0) for name in self._kept.names] if code else self._kept.cells()

    @staticmethod
    def others(given: Any) -> Iterable[tuple[str, Value, int]]:
        """Name, value (None for a blank) and return code of the others."""
        return () if isinstance(given, int | bytes) else given[1]


class PowerSensors:
    """Instant and average power (W) and the energy counter (J, since the driver was loaded). For one thread at a time.

    Every method may raise GpuLostError, `asked` excepted.
    """

    def __init__(self, gpu: "Gpu") -> None:
        self._gpu = gpu
        self._fields = dict(_FIELDS)
        self._calls: dict[str, Call] = {}
        self._sets: dict[tuple[str, ...], Asked] = {}
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

    def asked(self, names: tuple[str, ...] = POWER_NAMES) -> Asked:
        """Those of them that this GPU has, to be asked for at once. The same object each time, with its memory."""
        found = self._sets.get(names)
        if found is None:
            fields = {name: (id_, 0) for name, id_ in self._fields.items() if name in names}
            calls = {name: call for name, call in self._calls.items() if name in names}
            found = self._sets[names] = Asked(self._gpu.handle, fields, calls)
        return found

    def reading(self, asked: Asked, begin_ns: int, end_ns: int, given: object, limit: float | None) -> Timed:
        """What the last call of `asked` gave, made between these, with the limit (W) as it was last read then."""
        values: Reading = {}
        for name, kind, bits in asked.cells(given):
            values[name] = self._clean(name, *value_of(kind, bits))
        for name, raw, code in asked.others(given):
            values[name] = self._clean(name, raw, code)
        values["power_limit_watts"] = limit
        return Timed(begin_ns, end_ns, values)

    def read(self, names: tuple[str, ...] = POWER_NAMES) -> Timed:
        """Both at once. A sensor that this GPU lacks has no name in what comes."""
        asked = self.asked(names)
        begin_ns = time.monotonic_ns()
        given = asked.call()
        return self.reading(asked, begin_ns, time.monotonic_ns(), given, self._gpu.power_limit_watts)

    def _clean(self, name: str, raw: Value, code: int) -> Value:
        """The value in W or J; None for a reason that is told."""
        if raw and not code:
            return raw / 1000.0
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
