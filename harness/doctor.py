"""What this machine can run, and what is missing: `look` collects the facts, `judge` says what follows from them."""

import ctypes
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from adapters.base import Adapter, BrokenAdapter, Environment, load_adapters
from harness.cache import cache_folder
from harness.envs import known_environments, locate
from harness.envs.pythons import find_python
from harness.envs.reachable import WHAT_TO_DO, Reachable, ask_pip
from harness.protocol.errors import EnvError, SpecError
from harness.protocol.spec import Device, Placement
from harness.specs import default_spec

GIGA = 1e9
MEMORY_BYTES = 6 * GIGA  # a CPU run of SkyRL peaked at 4.3 GB (sum of PSS), 2026-11-29
SHM_BYTES = GIGA  # Ray's object store; containers default to 64 MB
CORES = 2
DRIVER_FLOOR = 580  # CUDA 13, which the frameworks' cuda pins are built for
ROOM = 1.5  # as the builder asks for
COMPILERS = ("cc", "gcc", "clang")
NO_GPU = "no NVIDIA GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line: what was looked at, and what follows. `ok` None: absent, but nothing here needs it; or not knowable."""

    name: str
    ok: bool | None
    found: str
    needed: str
    action: str = ""  # what to do; empty when there is nothing to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; `memory_bytes` None where the driver does not say."""

    name: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was seen on a machine. Sizes in bytes; None: could not be read, or is not there."""

    cores: int
    memory_bytes: int
    available_bytes: int
    shm_bytes: int | None
    disk_path: Path
    disk_free_bytes: int
    libnuma: bool
    compiler: str | None
    driver: str | None  # e.g. "580.82.07"
    driver_error: str
    gpus: tuple[Gpu, ...]
    pythons: Mapping[str, str]  # version -> its path; a version that was not found is missing
    built: frozenset[str]  # names of the environments that are complete with today's pins
    special_pins: Mapping[str, tuple[Reachable, ...]]  # environment not built yet -> what pip says of such pins
    own_pythons: Mapping[str, str]  # framework -> what BENCH_<FRAMEWORK>_PYTHON says


def diagnose() -> list[Check]:
    """Every check of this machine, machine first, then each framework x placement x device. Takes a second or two."""
    adapters, broken = load_adapters()
    environments = known_environments(adapters)
    facts = look(environments)
    return [*judge_machine(facts, environments), *judge_frameworks(facts, adapters), *judge_broken(broken)]


def look(environments: Sequence[Environment]) -> Facts:
    """Looks at this machine. Starts the interpreters that the environments need, loads no framework."""
    memory = psutil.virtual_memory()
    driver, driver_error, gpus = _nvml()
    pythons = {}
    for version in sorted({environment.python for environment in environments}):
        try:
            pythons[version] = str(find_python(version))
        except EnvError:
            continue
    disk = _existing(cache_folder())
    return Facts(
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=memory.total,
        available_bytes=memory.available,
        shm_bytes=_size(Path("/dev/shm")),
        disk_path=disk,
        disk_free_bytes=shutil.disk_usage(disk).free,
        libnuma=_has_library("libnuma.so.1"),
        compiler=next((path for name in COMPILERS if (path := shutil.which(name))), None),
        driver=driver,
        driver_error=driver_error,
        gpus=gpus,
        pythons=pythons,
        built=frozenset(e.name for e in environments if locate(e).marker() is not None),
        special_pins=_asked(environments, pythons),
        own_pythons={
            e.framework: given for e in environments if (given := os.environ.get(e.python_variable)) is not None
        },
    )


def judge_machine(facts: Facts, environments: Sequence[Environment]) -> list[Check]:
    """The machine's own checks. Pure."""
    return [
        Check(
            name="cores",
            ok=facts.cores >= CORES,
            found=str(facts.cores),
            needed=f"{CORES} or more",
            action="" if facts.cores >= CORES else "1 works, slowly: start-up alone then takes many minutes",
        ),
        Check(
            name="memory",
            ok=facts.available_bytes >= MEMORY_BYTES,
            found=f"{facts.available_bytes / GIGA:.1f} GB available of {facts.memory_bytes / GIGA:.1f} GB",
            needed=f"{MEMORY_BYTES / GIGA:.0f} GB available for a run on cpu",
            action="" if facts.available_bytes >= MEMORY_BYTES else "end other programs, or take a larger machine",
        ),
        _shm(facts),
        _disk(facts, environments),
        *_pythons(facts, environments),
        *_special_pins(facts, environments),
        Check(
            name="C compiler",
            ok=True if facts.compiler else None,
            found=facts.compiler or "none",
            needed="bench's own tests, and kernels that frameworks compile at run time on GPUs",
            action="" if facts.compiler else "apt install gcc",
        ),
        _driver(facts),
        *_gpus(facts),
        Check(
            name="libnuma",
            ok=True if facts.libnuma else (False if facts.gpus else None),
            found="libnuma.so.1" if facts.libnuma else "none",
            needed="runs on GPUs (offload sets NUMA affinity)",
            action="" if facts.libnuma else "apt install libnuma-dev (numactl-devel)",
        ),
    ]


def judge_broken(broken: Sequence[BrokenAdapter]) -> list[Check]:
    """One failed check per adapter that is installed and can't be used. Pure."""
    return [
        Check(
            name=f"adapter {one.name}",
            ok=False,
            found="not usable",
            needed="an adapter as bench asks for it",
            action=one.problem,
        )
        for one in broken
    ]


def judge_frameworks(facts: Facts, adapters: Sequence[Adapter]) -> list[Check]:
    """One check per framework, placement and device: can it run here, and if not, all that is missing. Pure."""
    return [
        _cell(facts, adapter, placement, device) for adapter in adapters for placement in Placement for device in Device
    ]


def _cell(facts: Facts, adapter: Adapter, placement: Placement, device: Device) -> Check:
    name = f"{adapter.name} {placement.value} on {device.value}"
    try:
        spec = default_spec(adapter.name, placement, device)
        reason = adapter.supports(spec)
        environment = adapter.environment(device, spec.engine)
    except SpecError as error:
        reason, environment = str(error), None
    if reason is not None:
        return Check(name=name, ok=False, found="not possible", needed="support by the framework", action=reason)
    missing = [
        *([] if device is Device.CPU else _missing_gpus(facts, placement)),
        *([] if environment is None else _missing_libraries(facts, environment)),
        *([] if environment is None else _missing_environment(facts, environment)),
    ]
    needs = "bench's own Python" if environment is None else f"environment {environment.name}"
    if device is Device.CUDA:
        needs += f", {_gpus_needed(placement)} or more GPUs"
    return Check(
        name=name,
        ok=not missing,
        found=_state(facts, environment),
        needed=needs,
        action="; ".join(missing),
    )


def _missing_gpus(facts: Facts, placement: Placement) -> list[str]:
    needed = _gpus_needed(placement)
    if not facts.gpus:
        return [NO_GPU]
    return [] if len(facts.gpus) >= needed else [f"{needed} GPUs (one per pool), {len(facts.gpus)} found"]


def _missing_libraries(facts: Facts, environment: Environment) -> list[str]:
    if environment.device is Device.CPU:
        return [] if facts.available_bytes >= MEMORY_BYTES else [f"{MEMORY_BYTES / GIGA:.0f} GB of available memory"]
    if not facts.gpus:
        return []  # said already
    missing = []
    if _driver_ok(facts) is False:
        missing.append(f"driver r{DRIVER_FLOOR} or newer, {facts.driver} found")
    if not facts.libnuma:
        missing.append("libnuma")
    return missing


def _missing_environment(facts: Facts, environment: Environment) -> list[str]:
    if environment.framework in facts.own_pythons or environment.name in facts.built:
        return []
    missing = []
    if environment.python not in facts.pythons:
        missing.append(f"Python {environment.python} to build the environment")
    lost = [one.pin for one in facts.special_pins.get(environment.name, ()) if one.found is False]
    if lost:
        missing.append(f"{', '.join(lost)}, which pip does not find (see its line)")
    if facts.disk_free_bytes < environment.size_gb * GIGA * ROOM:
        missing.append(f"{environment.size_gb * ROOM:.1f} GB of disk to build the environment")
    return missing


def _state(facts: Facts, environment: Environment | None) -> str:
    if environment is None:
        return "ready"
    if environment.framework in facts.own_pythons:
        return f"{environment.python_variable}={facts.own_pythons[environment.framework]}"
    if environment.name in facts.built:
        return "environment ready"
    cost = f"{environment.size_gb:g} GB, about {environment.minutes:g} min"
    return f"environment not built: the first run builds it ({cost})"


def _gpus_needed(placement: Placement) -> int:
    return 1 if placement is Placement.COLOCATED else 2


def _shm(facts: Facts) -> Check:
    needed = f"{SHM_BYTES / GIGA:.0f} GB for Ray's objects; several times that on a GPU node"
    action = "container: start it with --shm-size 16g; else remount: mount -o remount,size=16G /dev/shm"
    if facts.shm_bytes is None:
        return Check(name="/dev/shm", ok=False, found="none", needed=needed, action=action)
    ok = facts.shm_bytes >= SHM_BYTES
    found = f"{facts.shm_bytes / GIGA:.2f} GB"
    return Check(name="/dev/shm", ok=ok, found=found, needed=needed, action="" if ok else action)


def _disk(facts: Facts, environments: Sequence[Environment]) -> Check:
    wanted = [e for e in environments if e.name not in facts.built and (facts.gpus or e.device is Device.CPU)]
    needed = max((e.size_gb for e in wanted), default=0.0) * GIGA * ROOM
    ok = facts.disk_free_bytes >= needed
    what = "the largest environment that is not built yet" if wanted else "nothing: the environments are built"
    return Check(
        name="disk",
        ok=ok,
        found=f"{facts.disk_free_bytes / GIGA:.1f} GB free at {facts.disk_path}",
        needed=f"{needed / GIGA:.1f} GB for {what}" if wanted else what,
        action="" if ok else "free space, or set BENCH_CACHE to a folder on a larger disk",
    )


def _pythons(facts: Facts, environments: Sequence[Environment]) -> list[Check]:
    rows = []
    for version in sorted({environment.python for environment in environments}):
        users = [environment for environment in environments if environment.python == version]
        path = facts.pythons.get(version)
        usable = [e for e in users if facts.gpus or e.device is Device.CPU]
        rows.append(
            Check(
                name=f"Python {version}",
                ok=True if path else (False if usable else None),
                found=path or "none with venv and pip",
                needed=", ".join(environment.name for environment in users),
                action="" if path else f"apt install python{version}-venv, or pyenv install {version}",
            )
        )
    return rows


def _asked(environments: Sequence[Environment], pythons: Mapping[str, str]) -> dict[str, tuple[Reachable, ...]]:
    return {
        environment.name: tuple(ask_pip(Path(pythons[environment.python]), environment))
        for environment in environments
        if environment.python in pythons
        and environment.python_variable not in os.environ
        and locate(environment).marker() is None
    }


def _special_pins(facts: Facts, environments: Sequence[Environment]) -> list[Check]:
    """One line per pin that no ordinary index has; none when every environment that needs one is built."""
    users: dict[str, list[str]] = {}
    judged: dict[str, Reachable] = {}
    for environment in environments:
        for one in facts.special_pins.get(environment.name, ()):
            users.setdefault(one.pin, []).append(environment.name)
            judged[one.pin] = one
    return [
        Check(
            name=pin,
            ok=one.found,
            found={True: "pip finds it", False: "pip does not find it", None: f"not known: {one.why}"}[one.found],
            needed=f"to build {', '.join(users[pin])}",
            action="" if one.found else WHAT_TO_DO,
        )
        for pin, one in judged.items()
    ]


def _driver(facts: Facts) -> Check:
    needed = f"r{DRIVER_FLOOR} or newer (CUDA 13) for runs on cuda"
    if facts.driver is None:
        return Check(name="NVIDIA driver", ok=None, found=f"none ({facts.driver_error})", needed=needed)
    ok = _driver_ok(facts)
    action = "" if ok else "install a newer driver; containers use the host's"
    return Check(name="NVIDIA driver", ok=ok, found=facts.driver, needed=needed, action=action)


def _driver_ok(facts: Facts) -> bool | None:
    major = (facts.driver or "").partition(".")[0]
    return int(major) >= DRIVER_FLOOR if major.isdigit() else None


def _gpus(facts: Facts) -> list[Check]:
    needed = "1 for colocated, 2 for disaggregated and async"
    if not facts.gpus:
        action = "--device cpu is a functional check" if facts.driver is None else "see nvidia-smi"
        return [Check(name="GPUs", ok=None, found="none", needed=needed, action=action)]
    kinds: dict[str, int] = {}
    for gpu in facts.gpus:
        memory = "memory unknown" if gpu.memory_bytes is None else f"{gpu.memory_bytes / GIGA:.0f} GB"
        kinds[f"{gpu.name}, {memory}"] = kinds.get(f"{gpu.name}, {memory}", 0) + 1
    found = "; ".join(f"{count} x {kind}" for kind, count in kinds.items())
    return [Check(name="GPUs", ok=True, found=found, needed=needed)]


def _nvml() -> tuple[str | None, str, tuple[Gpu, ...]]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, str(error), ()
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        return driver, "", tuple(_gpu(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        return None, str(error), ()
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: object) -> Gpu:
    import pynvml

    try:
        memory: int | None = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        memory = None
    return Gpu(name=str(pynvml.nvmlDeviceGetName(handle)), memory_bytes=memory)


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _size(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).total
    except OSError:
        return None


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())
