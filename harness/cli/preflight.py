"""What `bench run` checks after it has said what it will do, and before gigabytes are downloaded or written."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from adapters.base import Adapter
from harness.protocol.errors import BenchError, EnvError
from harness.protocol.models import SHAPES
from harness.protocol.spec import Device, RunSpec
from harness.scorer import check_scorer
from harness.specs import check_machine, probe_machine

GIGA = 1e9
RECIPE = 1  # of made models; adapters.child.models writes it, and cannot be imported without torch
RANDOM = "random:"


def preflight(spec: RunSpec, adapter: Adapter) -> list[str]:
    """Checks what a first run needs: pins that pip must be told where to find, and room for a model to be made.

    Returns:
        What could not be found out, one line each.

    Raises:
        SpecError: a reward of the user's own is not there.
        EnvError: pip does not find a pin, or the disk is too small; says what to do.
    """
    said = check_scorer(spec, adapter)
    check_model_room(spec, adapter)
    return [*([] if said is None else [said]), *_check_pins(spec, adapter)]


def start_checks(spec: RunSpec, adapter: Adapter) -> tuple[list[str], list[str]]:
    """The checks of a start that take no time and write nothing: GPUs, room for a model, the interpreter.

    Returns:
        What keeps this machine from starting the run, and what is found out by starting it only; one line each.
    """
    problems: list[str] = []
    unchecked: list[str] = []
    checks: tuple[Callable[[], None], ...] = (
        lambda: check_machine(spec, probe_machine()),
        lambda: check_model_room(spec, adapter),
    )
    for check in checks:
        try:
            check()
        except BenchError as error:
            problems.append(str(error))
    try:
        said = check_scorer(spec, adapter)
    except BenchError as error:
        problems.append(str(error))
    else:
        unchecked += [] if said is None else [said]
    if spec.nodes > 1:
        unchecked.append(f"the other {spec.nodes - 1} of {spec.nodes} nodes")
    if spec.model not in SHAPES and not Path(spec.model).expanduser().is_dir():
        unchecked.append(f"whether {spec.model} is in the local cache of the hub, or can be downloaded")
    environment = adapter.environment(spec.device, spec.engine)
    if environment is None:
        return problems, unchecked
    given = os.environ.get(environment.python_variable)
    if given:
        python = Path(given).expanduser().absolute()
        if not python.is_file() or not os.access(python, os.X_OK):
            problems.append(f"{environment.python_variable}={given}: no program there")
        else:
            unchecked.append(f"whether {python} has all that {environment.framework} needs (bench env check)")
        return problems, unchecked
    from harness.envs import locate
    from harness.envs.pythons import find_python

    location = locate(environment)
    if location.marker() is None:
        try:
            find_python(environment.python)
        except EnvError as error:
            problems.append(str(error).splitlines()[0])
        there = next(parent for parent in location.path.parents if parent.exists())
        free, needed = shutil.disk_usage(there).free, environment.size_gb * GIGA
        if free < needed:
            problems.append(
                f"environment {environment.name} takes {needed / GIGA:.1f} GB, {there} has {free / GIGA:.1f} GB free"
            )
        unchecked.append(f"whether pip finds every pin of {environment.name} (bench doctor asks it)")
    unchecked.append("free memory, shared memory and the driver (bench doctor)")
    return problems, unchecked


def model_bytes(spec: RunSpec, adapter: Adapter) -> int | None:
    """Bytes of the weights that a run makes on this machine (bfloat16 on GPUs, float32 on CPU); None: it makes none."""
    if not (spec.model.startswith(RANDOM) and adapter.computes):
        return None
    return SHAPES[spec.model].parameters * (2 if spec.device is Device.CUDA else 4)


def model_folder(spec: RunSpec) -> Path:
    """Where the made model lies, or will lie."""
    from harness.cache import cache_folder

    dtype = "bfloat16" if spec.device is Device.CUDA else "float32"
    return cache_folder() / "models" / f"{spec.model.replace(':', '-')}-{dtype}-r{RECIPE}"


def model_line(spec: RunSpec, adapter: Adapter) -> str:
    """The model, and what it costs where it must be made first."""
    size = model_bytes(spec, adapter)
    if size is None:
        return spec.model
    folder = model_folder(spec)
    if (folder / "complete").exists():
        return f"{spec.model}, made before: {folder}"
    return f"{spec.model}, random weights, to be made once: {size / GIGA:.1f} GB in {folder}"


def check_model_room(spec: RunSpec, adapter: Adapter) -> None:
    """Checks that a model that is not there yet fits on the disk.

    Raises:
        EnvError: gives both sizes.
    """
    size = model_bytes(spec, adapter)
    folder = model_folder(spec) if size is not None else None
    if size is None or folder is None or (folder / "complete").exists():
        return
    there = next(parent for parent in folder.parents if parent.exists())
    free = shutil.disk_usage(there).free
    if free < size:
        raise EnvError(
            f"model = {spec.model}: its weights take {size / GIGA:.1f} GB, and {there} has {free / GIGA:.1f} GB free: "
            "free space, set BENCH_CACHE to a folder on a larger disk, or take a smaller model (--model)"
        )


def _check_pins(spec: RunSpec, adapter: Adapter) -> list[str]:
    from harness.envs import locate
    from harness.envs.pythons import find_python
    from harness.envs.reachable import WHAT_TO_DO, ask_pip

    environment = adapter.environment(spec.device, spec.engine)
    if environment is None or os.environ.get(environment.python_variable) or locate(environment).marker() is not None:
        return []
    asked = ask_pip(find_python(environment.python), environment)
    missing = [one.pin for one in asked if one.found is False]
    if missing:
        raise EnvError(
            f"environment {environment.name}: this machine's pip does not find {', '.join(missing)}; nothing was "
            f"downloaded yet. {WHAT_TO_DO}"
        )
    return [f"whether pip finds {one.pin} is not known ({one.why})" for one in asked if one.found is None]
