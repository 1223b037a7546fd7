"""Faults that can be planted in a simulated run, so that the harness's reaction to each can be tested."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from harness.protocol.clock import now_ns
from harness.protocol.events import Metric, encode
from harness.protocol.phases import Phase
from harness.protocol.recorder import Recorder
from harness.protocol.spec import RunSpec

FAULTS: Mapping[str, str] = {
    "die": "STEP: exits 17 in the middle of that step's training",
    "hang": "STEP: blocks for ever in that step's training, its span open",
    "raise": "STEP: raises in that step's training: a recorded failure, exit 1",
    "torn-line": "[STEP]: writes half a line and exits 17; step 1 by default",
    "slow-phase": "PHASE:SECONDS: adds that to each occurrence of a phase",
    "sleep-between": "SECONDS: sleeps that long between two native timers of each step, unnamed",
    "no-sync": "weights never reach the engines, though every sync says so",
    "no-bye": "exits 0 without the last event",
    "fork-orphan": "leaves a process in a session of its own behind",
    "overstale": "async only: admits two batches more than max_staleness allows",
}

SLOWABLE = (
    Phase.GENERATION,
    Phase.TOOL,
    Phase.DATA,
    Phase.LOGPROB,
    Phase.ADVANTAGE,
    Phase.TRAIN,
    Phase.WEIGHT_SYNC,
    Phase.OFFLOAD,
    Phase.OVERHEAD,
)

DEATH_CODE = 17
# An orphan that no supervisor ends does so itself.
ORPHAN_SECONDS = 600
# What `overstale` adds: the data set holds max_staleness + 2 batches more than the steps train on.
OVERSTALE_BATCHES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What is planted. Steps count from 1; None: not planted. Seconds are wall seconds, not scaled."""

    die: int | None = None
    hang: int | None = None
    raise_: int | None = None
    torn_line: int | None = None
    slow_phase: Phase | None = None
    slow_s: float = 0.0
    sleep_between_s: float = 0.0
    no_sync: bool = False
    no_bye: bool = False
    fork_orphan: bool = False
    overstale: bool = False

    @classmethod
    def of(cls, spec: RunSpec) -> "Faults":
        """The faults of a spec.

        Raises:
            ValueError: an unknown fault or a value that does not fit it.
        """
        for fault in spec.faults:
            name = fault.partition("=")[0]
            if name not in FAULTS:
                raise ValueError(f"fault {name!r} is unknown: allowed is one of {', '.join(FAULTS)}")
        phase, slow_s = _slow_phase(spec)
        return cls(
            die=_step(spec, "die"),
            hang=_step(spec, "hang"),
            raise_=_step(spec, "raise"),
            torn_line=_step(spec, "torn-line", default="1"),
            slow_phase=phase,
            slow_s=slow_s,
            sleep_between_s=_seconds("sleep-between", spec.fault("sleep-between")),
            no_sync=_flag(spec, "no-sync"),
            no_bye=_flag(spec, "no-bye"),
            fork_orphan=_flag(spec, "fork-orphan"),
            overstale=_flag(spec, "overstale"),
        )

    def extra_s(self, phase: Phase) -> float:
        """Seconds that an occurrence of `phase` takes longer."""
        return self.slow_s if phase is self.slow_phase else 0.0

    def strike(self, step: int, recorder: Recorder) -> None:
        """What is planted for the middle of this step's training."""
        if self.die == step:
            os._exit(DEATH_CODE)
        if self.torn_line == step:
            tear(recorder)
        if self.raise_ == step:
            raise RuntimeError(f"planted failure in step {step}")
        if self.hang == step:
            # Blocking: an event loop that still ran would go on recording, and no watchdog would see a hang.
            # It would also never see a signal, which is why these get their plain effect back.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            while True:
                time.sleep(3600)


def tear(recorder: Recorder) -> None:
    """Writes half a line as the last of the file and dies, as a machine that loses power may leave it."""
    line = encode(Metric(name="torn", mono_ns=now_ns(), value=1.0))
    with recorder.path.open("ab", buffering=0) as file:
        file.write(line[: len(line) // 2].encode())
    os._exit(DEATH_CODE)


def leave_orphan() -> int:
    """Starts a process that is in a session of its own and outlives this one; returns its id."""
    code = f"import time; time.sleep({ORPHAN_SECONDS})"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ).pid


def _step(spec: RunSpec, name: str, default: str = "") -> int | None:
    value = spec.fault(name)
    if value is None:
        return None
    text = value or default
    if not text.isdecimal() or not 1 <= int(text) <= spec.steps:
        raise ValueError(f"fault {name}={value}: allowed is a step, 1 to {spec.steps}")
    return int(text)


def _seconds(name: str, value: str | None) -> float:
    if value is None:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 86_400:
        raise ValueError(f"fault {name}={value}: allowed is a number of seconds more than 0, e.g. {name}=0.5")
    return seconds


def _slow_phase(spec: RunSpec) -> tuple[Phase | None, float]:
    value = spec.fault("slow-phase")
    if value is None:
        return None, 0.0
    name, _, seconds = value.partition(":")
    if name not in {phase.value for phase in SLOWABLE}:
        names = ", ".join(phase.value for phase in SLOWABLE)
        raise ValueError(f"fault slow-phase={value}: allowed is PHASE:SECONDS with one of {names}")
    return Phase(name), _seconds("slow-phase", seconds)


def _flag(spec: RunSpec, name: str) -> bool:
    value = spec.fault(name)
    if value:
        raise ValueError(f"fault {name}={value}: it takes no value")
    return value is not None
