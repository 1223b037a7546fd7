"""Whether runs may be compared: same work, same kind of machine, same granularity; and what else differs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from harness.protocol.errors import SpecError
from harness.protocol.spec import WORK_FIELDS
from results.comparing.measures import RunMeasures
from results.comparing.paired import same_seeds

ON_CPU = (
    "on CPU the frameworks run different engines and share the cores: ratios between frameworks, and between "
    "placements, carry no verdict"
)
SIMULATED = "simulated"
MACHINE, GRANULARITY, WORK = "machine", "granularity", "work"
WHATS = (WORK, MACHINE, GRANULARITY)
TOLERANCE = 0.02  # consumed work that differs by more is told


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing in which runs differ that must be equal: `what` is the name that allows it."""

    what: str  # machine | granularity | a field of the work
    name: str  # in words
    values: tuple[str, ...]  # the different ones

    @property
    def text(self) -> str:
        """E.g. `seed (1 and 2)`."""
        return f"{self.name} ({' and '.join(self.values)})"


def differences(sides: Sequence[Sequence[RunMeasures]]) -> list[Difference]:
    """In what those runs differ that must be equal. Seeds may differ where every side has the same ones."""
    runs = [run for side in sides for run in side]
    found = []
    if len({run.work_digest for run in runs}) > 1:
        blocked = ("seed",) if same_seeds(sides) else ()
        several = [name for name in WORK_FIELDS if len({run.work.get(name) for run in runs}) > 1]
        names = [name for name in several if name not in blocked]
        found += [
            Difference(what=name, name=name, values=_several([run.work.get(name) for run in runs])) for name in names
        ]
        if not several:
            found.append(Difference(what=WORK, name="work digest", values=_several([r.work_digest for r in runs])))
    devices = _several([run.device for run in runs])
    if len(devices) > 1:
        found.append(Difference(what=MACHINE, name="device", values=devices))
    for fact in machine_facts(runs):
        values = _several([run.machine.get(fact) for run in runs])
        if len(values) > 1:
            found.append(Difference(what=MACHINE, name=fact_name(fact), values=values))
    grains = _several([run.granularity for run in runs if run.granularity is not None])
    if len(grains) > 1:
        found.append(Difference(what=GRANULARITY, name="granularity of the time accounts", values=grains))
    return found


def machine_facts(runs: Sequence[RunMeasures]) -> list[str]:
    """What of their machines must be equal: GPU nodes of one kind are interchangeable, hosts on CPU are not."""
    on_cpu = any(run.device == "cpu" for run in runs)
    return ["cpu", "cores", *(["host"] if on_cpu else ["gpus", "gpu_count"])]


def fact_name(fact: str) -> str:
    """A fact of a machine in words."""
    return fact.replace("gpu_count", "number of GPUs")


def refuse(sides: Sequence[Sequence[RunMeasures]], allowed: Collection[str] = ()) -> list[Difference]:
    """The differences that were allowed, and are there.

    `allowed`: `machine`, `granularity`, a field of the work (`seed`, ...), or `work` for all of them.

    Raises:
        SpecError: runs differ in what was not allowed (names it all, with the values); or what is allowed is no name.
    """
    unknown = [what for what in allowed if what not in (*WHATS, *WORK_FIELDS)]
    if unknown:
        raise SpecError(
            f"--allow-different {', '.join(unknown)}: allowed is one of {', '.join(WHATS)}, or a field of the work: "
            f"{', '.join(WORK_FIELDS)}"
        )
    found = differences(sides)
    refused = [one for one in found if one.what not in allowed and not (one.what in WORK_FIELDS and WORK in allowed)]
    if refused:
        names = list(dict.fromkeys(one.what for one in refused))
        flags = " ".join(f"--allow-different {name}" for name in names)
        raise SpecError(
            f"the runs differ in {'; '.join(one.text for one in refused)}: runs are compared on the same work and "
            f"machine only. Run one side again with the other's, or say {flags}: the title will say so too"
        )
    return found


def no_verdict(a: Sequence[RunMeasures], b: Sequence[RunMeasures]) -> str:
    """Why no verdict follows of those sides, whatever is seen; empty where one may."""
    runs = (*a, *b)
    if any(run.device == "cpu" for run in runs) and len({_cell(run) for run in runs}) > 1:
        return ON_CPU
    return ""


def _cell(run: RunMeasures) -> tuple[str, str, str | None]:
    return run.framework, run.placement, run.machine.get("gpu_count")


def others(sides: Sequence[Sequence[RunMeasures]]) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Machine, driver, version and setting in which runs differ: what, and its different values on each side."""

    def facts(run: RunMeasures) -> dict[str, str | None]:
        return {
            "host": run.machine.get("host"),
            "CPU": run.machine.get("cpu"),
            "cores": run.machine.get("cores"),
            "memory": run.machine.get("memory_bytes"),
            "kernel": run.machine.get("kernel"),
            "GPUs": run.machine.get("gpus"),
            "number of GPUs": run.machine.get("gpu_count"),
            "driver": run.machine.get("driver"),
            "Python of bench": run.machine.get("python"),
            "bench": run.bench_version,
            "commit of bench": run.commit,
            "framework version": run.framework_version,
            "plans trained on (digest)": run.plans_digest,
            **{name: run.work.get(name) for name in WORK_FIELDS},
            **run.system,
            **{f"version of {name}": value for name, value in run.versions.items()},
        }

    told = [[facts(run) for run in side] for side in sides]
    names = list(dict.fromkeys(name for side in told for run in side for name in run))
    found = []
    for name in names:
        values = [_several([run.get(name) for run in side]) for side in told]
        if len(set(values)) > 1 or any(len(value) > 1 for value in values):
            found.append((name, values))
    return found


def _several(values: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys("not on record" if value is None else value for value in values))
