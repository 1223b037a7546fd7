"""What the harness tells the supervisor at its start: one JSON line."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from harness.protocol.recorder import RUN_ID_VARIABLE

SCRATCH_VARIABLE = "BENCH_TMP"  # a short folder of the run's own for sockets and session files; gone after the run
RESTART_PERIOD_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The child to run, what runs beside it, and how patient to be. Times are seconds, paths absolute."""

    run_id: str
    arguments: tuple[str, ...]  # the child's argv, interpreter first
    log: str  # the child's stdout and stderr
    logs: str  # folder that keeps the logs found in `scratch`
    scratch: str  # also the child's working folder, so that what a framework drops there goes with it
    env: Mapping[str, str] = field(default_factory=dict)  # added to the inherited environment
    sampler: tuple[str, ...] = ()  # argv of the telemetry sampler; empty: none
    sampler_log: str = "/dev/null"
    sampler_ready: str = ""  # a file that the sampler makes once every GPU has given power; empty: not waited for
    ready_patience_s: float = 30.0  # how long that file is waited for
    service: tuple[str, ...] = ()  # argv of a server that the child needs; empty: none. It ends after the child
    service_name: str = "service"  # as messages call it
    service_log: str = "/dev/null"
    service_ready: str = ""  # a file that it makes once it can serve; the child is not started before
    service_patience_s: float = 120.0  # how long it is waited for, after a restart too; then the run fails
    service_grace_s: float = 15.0  # from asking it to end until it is killed
    withheld: tuple[str, ...] = ()  # environment variables that the service inherits and the child does not: keys
    lead_s: float = 0.0  # then the sampler runs this long before the child starts (idle power)
    tail_s: float = 0.0  # and this long after the child's end, so that the last window lies inside its samples
    grace_s: float = 20.0  # from asking the child to end until it is killed
    leftover_grace_s: float = 5.0  # the same, for what outlives the child
    settle_s: float = 2.0  # what a child that ended by itself left may end by itself too
    restart_period_s: float = RESTART_PERIOD_S  # a dead sampler is restarted at most once in this time

    @property
    def child_env(self) -> dict[str, str]:
        """What the child's environment has besides the inherited one."""
        # TMPDIR too: a killed engine can't remove its own temporary files, and they go with the run's folder then.
        scratch = dict.fromkeys((SCRATCH_VARIABLE, "TMPDIR"), self.scratch)
        return {**self.env, RUN_ID_VARIABLE: self.run_id, **scratch}

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "Orders":
        """The orders of one line.

        Raises:
            ValueError: not JSON.
            TypeError: keys that do not fit.
        """
        raw = json.loads(line)
        for name in ("arguments", "sampler", "service", "withheld"):
            raw[name] = tuple(raw[name])
        return cls(**raw)
