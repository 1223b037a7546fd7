"""What every adapter's parent half provides, and how adapters are found."""

import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from harness.protocol.errors import BenchError, SpecError
from harness.protocol.phases import Phase
from harness.protocol.spec import Device, RunSpec

GROUP = "bench.adapters"
ENGINES = ("vllm", "sglang")  # of an adapter that names none itself


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
        # A shell can't set a variable with the hyphen of a framework's name.
        return f"BENCH_{re.sub(r'[^A-Z0-9]', '_', self.framework.upper())}_PYTHON"


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
    """The parent half of an adapter (standard library only).

    `engines` and `computes` may be left out by an adapter of another distribution: `load_adapter` fills in `ENGINES`
    and True.
    """

    name: str
    framework_version: str
    phases: Mapping[str, Phase | None]  # native timer -> phase; None: a container, or deliberately `other`
    verified_on: Mapping[tuple[str, str], str]  # (placement, device) -> "2026-11-29, 2-core CPU" or "never on GPU"
    computes: bool  # False: a stand-in for a framework. No model is made for it, and it has no business on a GPU

    def engines(self, device: Device) -> tuple[str, ...]:
        """What `--engine` may name on that device, the one that is used unless a user says otherwise first."""

    def environment(self, device: Device, engine: str) -> Environment | None:
        """The environment that a run needs; None: the harness's own Python will do."""

    def supports(self, spec: RunSpec) -> str | None:
        """None when the framework can do what is asked, else the reason it can't."""

    def launch(self, spec: RunSpec, run_dir: Path) -> Launch:
        """How to start the child. Pure: reads and writes nothing."""


_MEMBERS = ("name", "framework_version", "phases", "verified_on", "environment", "supports", "launch")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenAdapter:
    """An adapter that is installed and can't be used. `problem`: one line with its distribution and entry point."""

    name: str
    problem: str


def adapter_names() -> list[str]:
    """Names of the installed adapters, sorted; also of those that can't be loaded."""
    return sorted({entry.name for entry in _entries()[0]})


def load_adapter(name: str) -> Adapter:
    """The adapter of that name. Where several distributions have one, bench's own is taken.

    Whatever an adapter of another distribution raises later, or answers in a wrong form, is a SpecError that names it.

    Raises:
        SpecError: no adapter of that name is installed, or the one that is can't be used.
    """
    entries = _entries()[0]
    if name not in (names := {entry.name for entry in entries}):
        raise SpecError(f"framework = {name!r}: allowed is one of {', '.join(sorted(names))}")
    return _load_of(entries, name)


def load_adapters() -> tuple[list[Adapter], list[BrokenAdapter]]:
    """All installed adapters, by name, and what is installed and can't be used: it costs only itself."""
    entries, broken = _entries()
    adapters = []
    for name in sorted({entry.name for entry in entries}):
        try:
            adapters.append(_load_of(entries, name))
        except SpecError as error:
            broken.append(BrokenAdapter(name=name, problem=str(error)))
    own = {entry.name for entry in entries if _is_own(entry)}
    for entry in entries:
        if entry.name in own and not _is_own(entry):
            problem = f"{_where(entry)} is not used: bench has one of that name; give it another"
            broken.append(BrokenAdapter(name=entry.name, problem=problem))
    return adapters, broken


def _load_of(entries: list[EntryPoint], name: str) -> Adapter:
    mine = [entry for entry in entries if entry.name == name]
    chosen = [entry for entry in mine if _is_own(entry)] or mine
    if len(chosen) > 1:
        claims = " and ".join(f"{entry.value} from {_owner(entry)}" for entry in chosen)
        raise SpecError(f"framework = {name!r}: several adapters have that name, {claims}; uninstall all but one")
    return _load(chosen[0])


class _Outside:
    """An adapter of another distribution, its answers checked; what goes wrong inside it is no defect of bench."""

    def __init__(self, adapter: Any, where: str) -> None:
        self._adapter, self._where = adapter, where
        self.name: str = adapter.name
        self.framework_version: str = self._of("framework_version", adapter.framework_version, str)
        self.phases: Mapping[str, Phase | None] = self._of("phases", adapter.phases, Mapping)
        self.verified_on: Mapping[tuple[str, str], str] = self._of("verified_on", adapter.verified_on, Mapping)
        self.computes: bool = self._of("computes", getattr(adapter, "computes", True), bool)

    def engines(self, device: Device) -> tuple[str, ...]:
        if not hasattr(self._adapter, "engines"):
            return ENGINES
        told = self._ask("engines", device)
        if not (isinstance(told, tuple) and told and all(isinstance(name, str) and name for name in told)):
            raise SpecError(f"{self._where} answers engines({device.value}) with {told!r}: allowed is a tuple of names")
        return told

    def environment(self, device: Device, engine: str) -> Environment | None:
        told = self._of("environment", self._ask("environment", device, engine), Environment, None)
        if told is not None and not told.requirements.is_file():
            raise SpecError(f"{self._where} has pins for {told.name} in {told.requirements}, and there is no such file")
        return cast(Environment | None, told)

    def supports(self, spec: RunSpec) -> str | None:
        if not self.computes and spec.device is not Device.CPU:
            return f"{self.name} computes nothing, so a run of it says nothing of a GPU: use --device cpu"
        reason = cast(str | None, self._of("supports", self._ask("supports", spec), str, None))
        if reason is not None or not hasattr(self._adapter, "engines"):
            return reason
        engines = self.engines(spec.device)
        if spec.engine not in engines:
            return f"engine = {spec.engine}: allowed with {self.name} on {spec.device.value} is {' or '.join(engines)}"
        return None

    def launch(self, spec: RunSpec, run_dir: Path) -> Launch:
        return cast(Launch, self._of("launch", self._ask("launch", spec, run_dir), Launch))

    def try_out(self) -> None:
        """Asks what is asked of every adapter whenever all are listed, so that one that can't answer is left out.

        Raises:
            SpecError: an answer is missing or wrong.
        """
        for device in Device:
            for engine in self.engines(device):
                self.environment(device, engine)

    def _ask(self, what: str, *given: object) -> object:
        try:
            return getattr(self._adapter, what)(*given)
        except BenchError:
            raise  # said in words for a user
        except (Exception, SystemExit) as error:
            raise SpecError(f"{self._where} failed in {what}: {_said(error)}") from error

    def _of(self, what: str, value: object, kind: type, *others: object) -> Any:
        if isinstance(value, kind) or any(value is other for other in others):
            return value
        allowed = " or ".join((kind.__name__, *map(str, others)))
        raise SpecError(f"{self._where} has {what} = {value!r}: allowed is {allowed} ({_SEE})")


_SEE = "what an adapter has is in adapters.base.Adapter"


def _load(entry: EntryPoint) -> Adapter:
    where = _where(entry)
    try:
        adapter = entry.load()
    except (Exception, SystemExit) as error:  # another distribution's code: whatever it raises, it is not ours
        raise SpecError(f"{where} can't be loaded: {_said(error)}; repair or uninstall that distribution") from error
    try:
        return _checked(adapter, entry, where)
    except BenchError:
        raise
    except (Exception, SystemExit) as error:  # a property of it
        raise SpecError(f"{where} failed: {_said(error)}") from error


def _checked(adapter: Any, entry: EntryPoint, where: str) -> Adapter:
    # Of a class, too, isinstance would say yes: it has the methods' names.
    missing = [name for name in _MEMBERS if not hasattr(adapter, name)]
    if isinstance(adapter, type) or missing:
        what = "is a class, not an instance" if isinstance(adapter, type) else f"has no {', '.join(missing)}"
        raise SpecError(f"{where} {what}; {_SEE}")
    if adapter.name != entry.name:
        raise SpecError(f"{where} calls itself {adapter.name!r}: its entry point must have the same name")
    if _is_own(entry):
        return cast(Adapter, adapter)
    outside = _Outside(adapter, where)
    outside.try_out()
    return outside


def _entries() -> tuple[list[EntryPoint], list[BrokenAdapter]]:
    """The entry points of all distributions, and those distributions whose list of them can't be read."""
    try:
        return list(entry_points(group=GROUP)), []
    except Exception:  # one distribution's list is damaged, and the library then reads no one's
        pass
    found: dict[tuple[str, str], EntryPoint] = {}  # a distribution may lie in two folders of the path
    broken: dict[str, BrokenAdapter] = {}
    for distribution in distributions():
        name = distribution.name or "an unknown distribution"
        try:
            for entry in distribution.entry_points.select(group=GROUP):
                found.setdefault((name, entry.name), entry)
        except Exception as error:
            if GROUP in (distribution.read_text("entry_points.txt") or ""):
                problem = f"the entry points of {name} {distribution.version} can't be read: {_said(error)}"
                broken.setdefault(name, BrokenAdapter(name=name, problem=f"{problem}; repair or uninstall it"))
    return list(found.values()), list(broken.values())


def _is_own(entry: EntryPoint) -> bool:
    return entry.value.startswith("adapters.")


def _owner(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"


def _where(entry: EntryPoint) -> str:
    return f"framework = {entry.name!r}: its adapter ({entry.value}, from {_owner(entry)})"


def _said(error: BaseException) -> str:
    """An error in one line, with the place where it was raised."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else text[:299] + "…"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    # The first is the call in this file; an attribute that is not there is looked for by the library.
    inside = [frame for frame in frames[1:] if "importlib" not in Path(frame.filename).parts]
    place = f" ({inside[-1].filename}:{inside[-1].lineno})" if inside else ""
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"
