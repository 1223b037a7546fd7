"""Whether runs may be compared in a cell: all finished, alone, on one kind of machine and as much of it."""

from collections.abc import Sequence

from harness.protocol.errors import SpecError
from harness.protocol.spec import Device
from reports.case import Case
from reports.consumed import consumed, uneven_tools
from reports.provenance import device_of, gpus, non_standard
from results.importing.imported import LABEL, is_imported


def bad_run(cases: Sequence[Case]) -> str | None:
    """Why runs have no number in a comparison at all: one did not finish, recorded too little, or was not alone."""
    for case in cases:
        status = case.run.meta.get("status") or "unknown"
        if status != "finished":
            return f"{case.run.run_id} did not finish (status {status})"
    for case in cases:
        if case.spoiled:
            return f"{case.run.run_id} was {case.spoiled}"
    return None


def refuse_imported(cases: Sequence[Case]) -> None:
    """Checks that no imported run is about to be compared.

    Raises:
        SpecError: one is among several runs.
    """
    for case in cases:
        if len(cases) > 1 and is_imported(case.run.spec):
            what = "the work it was offered, its machine and its settings are not known"
            raise SpecError(f"{case.run.run_id}: {LABEL}: {what}, so it is compared with no run; report it alone")


def refusal(cases: Sequence[Case]) -> str | None:
    """Why no ratio or difference of those runs may be shown; None when one may.

    Equal must be: device, CPU model and cores of the host, models and number of GPUs. On CPU the host itself.
    """
    bad = bad_run(cases)
    if bad:
        return bad
    devices = {case.run.spec.device for case in cases}
    if len(devices) > 1:
        return "one run used GPUs and the other did not"
    on_gpus = devices == {Device.CUDA}
    for what, values in (
        *((name, [_machine(case, key) for case in cases]) for key, name in _hardware(on_gpus)),
        *([("GPUs", [_models(case) for case in cases])] if on_gpus else []),
    ):
        if None in values:
            return f"the {what} of {cases[values.index(None)].run.run_id} is not on record"
        if len(set(values)) > 1:
            return f"the runs' machines differ: {what} {' and '.join(dict.fromkeys(str(value) for value in values))}"
    counts = sorted({case.run.spec.total_gpus for case in cases})
    if on_gpus and len(counts) > 1:
        return f"the runs used different numbers of GPUs ({', '.join(map(str, counts))})"
    return None


def warnings(cases: Sequence[Case]) -> list[str]:
    """What a reader must know of a number that is shown."""
    said = []
    if any(case.run.spec.device is Device.CPU for case in cases):
        said.append("not a measurement of GPUs: no verdict follows from this ratio")
        used = list(dict.fromkeys(case.run.spec.total_gpus for case in cases))
        if len(used) > 1:
            said.append(
                f"the runs had different numbers of processes ({' and '.join(map(str, used))}) on the same cores"
            )
        busy = [case.run.run_id for case in cases if case.contamination.reasons]
        said += [f"{', '.join(busy)}: other work ran on the machine (see contamination)"] if busy else []
    ways = [f"{case.run.run_id} is not standard ({way})" for case in cases if (way := non_standard(case.run.spec))]
    uneven = tools_differ(cases)
    return said + ways + ([f"{uneven}: the ratio holds that difference too"] if uneven else [])


def tools_differ(cases: Sequence[Case]) -> str | None:
    """Why times of runs hold differences of their tools; None where the tools took the same, or as imposed."""
    return uneven_tools([(case.run, consumed(case.run, case.steps)) for case in cases])


def granularity_of(case: Case) -> str | None:
    """What a rollout unit of the run's account is; None without an account."""
    return None if case.figures.account is None else case.figures.account.granularity


def machines_differ(cases: Sequence[Case]) -> str | None:
    """In what the devices or hosts of runs differ, in words."""
    devices = list(dict.fromkeys(device_of(case.run) for case in cases))
    if len(devices) > 1:
        return f"the devices differ ({' and '.join(devices)})"
    for key, name in _hardware(all(case.gpu for case in cases)):
        values = list(dict.fromkeys(str(_machine(case, key) or "unknown") for case in cases))
        if len(values) > 1:
            return f"the machines differ in {name} ({' and '.join(values)})"
    return None


def _hardware(on_gpus: bool) -> tuple[tuple[str, str], ...]:
    # On CPU a host differs from the next by what else runs there; GPU nodes of one kind are interchangeable.
    same = (("cpu", "CPU"), ("cores", "cores"))
    return same if on_gpus else (*same, ("host", "host"))


def _machine(case: Case, key: str) -> str | None:
    machine = case.run.meta.get("machine")
    value = machine.get(key) if isinstance(machine, dict) else None
    return None if value in (None, "") else str(value)


def _models(case: Case) -> str | None:
    names = sorted({str(gpu["name"]) for gpu in gpus(case.run) if gpu.get("name")})
    return " + ".join(names) or None
