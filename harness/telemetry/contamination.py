"""What would spoil a measurement: foreign GPU processes, a lowered power cap, held clocks, MIG, a busy host.

Each check is a Metric `contamination.<what>`, recorded at the start (0: looked, and clean; None: could not look) and
again whenever it changes.
"""

from collections.abc import Callable, Iterable, Mapping

import pynvml

from harness.protocol.events import Scalar
from harness.telemetry.host import Owner, owner_of
from harness.telemetry.nvml import Gpu

Tell = Callable[[str, float | None, str, Mapping[str, Scalar]], None]  # name, value, unit, labels

CLOCK_MARGIN = 0.95  # of the board's highest SM clock: below it, a clock setting really holds the clock down
CAP_TOLERANCE = 0.995  # limits are integers of milliwatts, and some boards report a default a fraction off


class Contamination:
    """The checks of one GPU, remembered so that only changes are told."""

    def __init__(self, gpu: Gpu, run_id: str, tell: Tell, sm_clock_max_hz: int | None) -> None:
        self._gpu = gpu
        self._run_id = run_id
        self._tell = tell
        self._max_hz = sm_clock_max_hz
        self._last: dict[str, tuple[float | None, Mapping[str, Scalar]]] = {}

    def check(self, processes: Iterable[int] | None) -> None:
        """Looks at everything once. `processes`: pids that compute on the GPU; None: that cannot be read.

        Raises:
            GpuLostError: the GPU is gone.
        """
        self._processes(processes)
        self._power_cap()
        self._clocks()
        mig = self._gpu.mig_enabled()
        self._note("mig", None if mig is None else float(mig), "", {})

    def _processes(self, pids: Iterable[int] | None) -> None:
        if pids is None:
            self._note(
                "foreign_processes", None, "processes", {"reason": self._gpu.unsupported.get("compute_processes")}
            )
            return
        owners = {pid: owner_of(pid, self._run_id) for pid in pids}
        foreign = sorted(pid for pid, owner in owners.items() if owner is Owner.FOREIGN)
        unknown = sorted(pid for pid, owner in owners.items() if owner is Owner.UNKNOWN)
        labels = {"pids": " ".join(map(str, foreign)), "unknown_pids": " ".join(map(str, unknown))}
        self._note("foreign_processes", float(len(foreign)), "processes", labels)

    def _power_cap(self) -> None:
        limit, default = self._gpu.power_limit_watts, self._gpu.default_limit()
        if limit is None or default is None or default <= 0:
            self._note("power_cap", None, "ratio", {})
            return
        lowered = limit < default * CAP_TOLERANCE
        labels: dict[str, Scalar] = {"limit_watts": limit, "default_watts": default}
        self._note("power_cap", 1.0 if lowered else 0.0, "", labels)

    def _clocks(self) -> None:
        asked, default = self._gpu.application_clocks_hz()
        clock, reasons = self._gpu.clock_and_reasons
        why = None
        if asked is not None and default is not None and asked != default:
            why = "application clock set"
        elif reasons is not None and int(reasons) & pynvml.nvmlClocksEventReasonApplicationsClocksSetting:
            # A setting at the board's highest clock holds nothing down, and an idle GPU is low for its own reason.
            idle = int(reasons) & pynvml.nvmlClocksEventReasonGpuIdle
            if not idle and clock is not None and self._max_hz is not None and clock < CLOCK_MARGIN * self._max_hz:
                why = "clock setting holds the SM clock below its highest"
        known = reasons is not None or (asked is not None and default is not None)
        value = None if not known else float(why is not None)
        self._note("locked_clocks", value, "", {"why": why, "asked_hz": asked, "default_hz": default})

    def _note(self, what: str, value: float | None, unit: str, labels: Mapping[str, Scalar]) -> None:
        known = {name: label for name, label in labels.items() if label not in (None, "")}
        if self._last.get(what) == (value, known):
            return
        self._last[what] = (value, known)
        self._tell(f"contamination.{what}", value, unit, {"gpu": self._gpu.uuid, **known})
