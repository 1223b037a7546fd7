"""What `bench run` checks after it has said what it will do, and before gigabytes are downloaded or written."""

import os
import shutil
from pathlib import Path

from adapters.base import Adapter
from harness.protocol.errors import EnvError
from harness.protocol.models import SHAPES
from harness.protocol.spec import Device, RunSpec

GIGA = 1e9
RECIPE = 1  # of made models; adapters.child.models writes it, and cannot be imported without torch
RANDOM = "random:"


def preflight(spec: RunSpec, adapter: Adapter) -> list[str]:
    """Checks what a first run needs: pins that pip must be told where to find, and room for a model to be made.

    Returns:
        What could not be found out, one line each.

    Raises:
        EnvError: pip does not find a pin, or the disk is too small; says what to do.
    """
    check_model_room(spec)
    return _check_pins(spec, adapter)


def model_bytes(spec: RunSpec) -> int | None:
    """Bytes of the weights that a run makes on this machine (bfloat16 on GPUs, float32 on CPU); None: it makes none."""
    if not spec.model.startswith(RANDOM):
        return None
    return SHAPES[spec.model].parameters * (2 if spec.device is Device.CUDA else 4)


def model_folder(spec: RunSpec) -> Path:
    """Where the made model lies, or will lie."""
    from harness.envs import cache_folder

    dtype = "bfloat16" if spec.device is Device.CUDA else "float32"
    return cache_folder() / "models" / f"{spec.model.replace(':', '-')}-{dtype}-r{RECIPE}"


def model_line(spec: RunSpec) -> str:
    """The model, and what it costs where it must be made first."""
    size = None if spec.framework == "simulated" else model_bytes(spec)
    if size is None:
        return spec.model
    folder = model_folder(spec)
    if (folder / "complete").exists():
        return f"{spec.model}, made before: {folder}"
    return f"{spec.model}, random weights, to be made once: {size / GIGA:.1f} GB in {folder}"


def check_model_room(spec: RunSpec) -> None:
    """Checks that a model that is not there yet fits on the disk.

    Raises:
        EnvError: gives both sizes.
    """
    size = None if spec.framework == "simulated" else model_bytes(spec)
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
