"""What `bench run` says before it starts: what will run, on what and why, and what that costs."""

import os
from pathlib import Path

from adapters.base import Adapter
from harness.cli.output import table
from harness.cli.preflight import model_line
from harness.protocol.spec import Device, Placement, RunSpec
from harness.specs import Resolved
from reports.markdown import plural


def announcement(resolved: Resolved, adapter: Adapter) -> str:
    """A few lines; everything that was chosen for the user is among them."""
    spec = resolved.spec
    rows = [
        ("framework", f"{framework_line(adapter)}, {spec.placement.value}, {_pools(spec)}"),
        ("work", _work(spec)),
        ("model", model_line(spec, adapter)),
        *(("chosen", note) for note in resolved.notes),
        ("environment", environment_line(resolved, adapter)),
    ]
    seen = adapter.verified_on.get((spec.placement.value, spec.device.value), "never")
    rows.append(("verified on", seen))
    if spec.device is Device.CPU and adapter.computes:
        rows.append(("note", "on CPU this is a functional check: its times say nothing about GPUs"))
    if spec.overrides or spec.as_shipped:
        rows.append(("non-standard", "overrides or --as-shipped: the report labels such a run, and so must you"))
    if spec.overrides:
        rows.append(("overrides", " ".join(f"{key}={value}" for key, value in spec.overrides.items())))
    if spec.faults:
        rows.append(("faults", " ".join(spec.faults)))
    return table(rows)


def framework_line(adapter: Adapter) -> str:
    """Name and version, e.g. `skyrl 0.4.0`."""
    version = adapter.framework_version
    return version if version.startswith(adapter.name) else f"{adapter.name} {version}"


def environment_line(resolved: Resolved, adapter: Adapter) -> str:
    """Which Python the framework will run in; what building it costs when it is not there. Reads, builds nothing."""
    from harness.envs import locate

    environment = adapter.environment(resolved.spec.device, resolved.spec.engine)
    if environment is None:
        return "bench's own Python"
    given = os.environ.get(environment.python_variable)
    if given:
        return f"{given} (from {environment.python_variable})"
    location = locate(environment)
    if location.marker() is not None:
        return f"{environment.name}, built: {location.path}"
    return (
        f"{environment.name}, to be built in {location.path}: {environment.size_gb:g} GB on disk, about"
        f" {environment.minutes:g} min ({environment.status})"
    )


def _pools(spec: RunSpec) -> str:
    what = "GPU" if spec.device is Device.CUDA else "CPU slot"
    if spec.placement is Placement.COLOCATED:
        return f"{spec.gpus.train} {what}(s) shared"
    return f"{spec.gpus.train} {what}(s) to train + {spec.gpus.rollout} to roll out, max_staleness {spec.max_staleness}"


def _work(spec: RunSpec) -> str:
    tools = spec.tools + (f":{Path(spec.trace).name}" if spec.trace else "")
    tools += f", recorded into {Path(spec.record).name}" if spec.record is not None else ""
    size = f"{plural(spec.steps, 'step')} of {plural(spec.batch_size, 'prompt')} x"
    return (
        f"{spec.preset}, load {spec.load.value}, tools {tools}: {size} {plural(spec.group_size, 'trajectory')},"
        f" the first {spec.warmup_steps} to warm up, seed {spec.seed}"
    )
