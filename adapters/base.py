"""What every adapter's parent half provides, and how adapters are found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from harness.protocol.errors import SpecError
from harness.protocol.phases import Phase
from harness.protocol.spec import Device, RunSpec

GROUP = "bench.adapters"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWheel:
    """A small wheel made on this machine: stubs and metadata that a CPU environment needs, never framework code."""

    name: str
    version: str
    why: str
    files: Mapping[str, str] = field(default_factory=dict)  # path inside site-packages -> text


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One virtual environment: its pins, what it costs and how far it has been tried."""

    framework: str
    device: Device
    engine: str
    python: str  # "3.11": the interpreter's version the pins are for
    requirements: Path  # full pins, installed with --no-deps
    local_wheels: tuple[LocalWheel, ...] = ()
    pip_arguments: tuple[str, ...] = ()
    size_gb: float = 0.0
    minutes: float = 0.0
    status: str = ""  # "installed and run 2026-11-29" | "resolved, not installed here"
    imports: tuple[str, ...] = ()  # imported by `bench env check`

    @property
    def name(self) -> str:
        """E.g. `skyrl-cpu-vllm`."""
        return f"{self.framework}-{self.device.value}-{self.engine}"

    @property
    def python_variable(self) -> str:
        """Environment variable that points at another Python (a container's) instead of a built environment."""
        return f"BENCH_{self.framework.upper()}_PYTHON"


# What may differ between frameworks and bend a comparison. Each adapter fills every row for a run, from what it really
# configured; a comparison prints them side by side and marks those that differ. "unknown: ..." where it can't tell.
FAIRNESS: Mapping[str, str] = {
    "loss": "loss and importance correction",
    "logprobs": "logprob forward before the update",
    "optimizer": "optimizer, its dtype and offload",
    "attention": "attention in training",
    "packing": "padding and packing of training batches",
    "micro_batch": "micro-batch, tokens per GPU",
    "updates": "optimizer steps and mini-batches per weight sync",
    "rollout_tp": "tensor parallelism of an engine",
    "engine": "engine and its device",
    "prefix_cache": "prefix caching",
    "kv_at_sync": "KV cache across a weight sync",
    "sync": "weight-sync transport",
    "max_num_seqs": "sequences an engine may run at once",
    "memory": "engine's share of GPU memory",
    "graphs": "CUDA graphs",
    "in_flight": "trajectories in flight, at most",
    "staleness": "staleness knob and its zero point",
    "polls": "poll intervals on the way of data",
    "chat": "chat template",
    "sampling": "sampling",
}


def learning_rate(spec: RunSpec) -> str:
    """AdamW's learning rate, one for all frameworks, as they are told it.

    1e-6 on GPUs, as deep-research agents are trained. The tiny model of a CPU run needs more to move at all within a
    few steps, and more still to show that it learns (reward `probe`).
    """
    if spec.device is not Device.CPU:
        return "1e-6"
    return "2e-2" if spec.reward == "probe" else "1e-3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start the child. The interpreter is the environment's own and is put before `arguments`."""

    arguments: tuple[str, ...]  # ("-m", "adapters.skyrl.worker", "<run_dir>/spec.json")
    env: Mapping[str, str] = field(default_factory=dict)  # added to the inherited environment
    files: Mapping[str, str] = field(default_factory=dict)  # path under run_dir -> text, written before the start
    notes: tuple[str, ...] = ()  # what a reader of --dry-run should know: every framework override
    fairness: Mapping[str, str] = field(default_factory=dict)  # row of FAIRNESS -> what this run has
    virtual_time: bool = False  # the child's clock is no clock of this machine: nothing of it is sampled beside


@runtime_checkable
class Adapter(Protocol):
    """The parent half of an adapter (standard library only)."""

    name: str
    framework_version: str
    phases: Mapping[str, Phase | None]  # native timer -> phase; None: a container, or deliberately `other`
    verified_on: Mapping[tuple[str, str], str]  # (placement, device) -> "2026-11-29, 2-core CPU" or "never on GPU"

    def environment(self, device: Device, engine: str) -> Environment | None:
        """The environment that a run needs; None: the harness's own Python will do."""

    def supports(self, spec: RunSpec) -> str | None:
        """None when the framework can do what is asked, else the reason it can't."""

    def launch(self, spec: RunSpec, run_dir: Path) -> Launch:
        """How to start the child. Pure: reads and writes nothing."""


_MEMBERS = ("name", "framework_version", "phases", "verified_on", "environment", "supports", "launch")


def adapter_names() -> list[str]:
    """Names of the installed adapters, sorted."""
    return sorted(entry.name for entry in _entries())


def load_adapter(name: str) -> Adapter:
    """The adapter of that name.

    Raises:
        SpecError: no adapter of that name is installed, or the one that is can't be used.
    """
    for entry in _entries():
        if entry.name == name:
            return _load(entry)
    known = ", ".join(adapter_names())
    raise SpecError(f"framework = {name!r}: allowed is one of {known}")


def _load(entry: EntryPoint) -> Adapter:
    owner = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
    where = f"framework = {entry.name!r}: its adapter ({entry.value}, from {owner})"
    try:
        adapter = entry.load()
    except Exception as error:  # another distribution's code: whatever it raises, it is not ours
        why = f"{type(error).__name__}: {error}"
        raise SpecError(f"{where} can't be loaded: {why}; repair or uninstall that distribution") from error
    # Of a class, too, isinstance would say yes: it has the methods' names.
    missing = [name for name in _MEMBERS if not hasattr(adapter, name)]
    if isinstance(adapter, type) or missing:
        what = "is a class, not an instance" if isinstance(adapter, type) else f"has no {', '.join(missing)}"
        raise SpecError(f"{where} {what}; what an adapter has is in adapters.base.Adapter")
    return cast(Adapter, adapter)


def _entries() -> list[EntryPoint]:
    return list(entry_points(group=GROUP))
