"""Fills a request's gaps with the defaults and checks the whole: types, values, work and the framework's abilities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from adapters.base import Adapter, adapter_names, load_adapter
from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, Policy, RunSpec, Thinking
from harness.specs import defaults
from harness.specs.checks import beyond_cpu, check_spec
from harness.specs.inputs import (
    DEFAULT_CORPUS,
    UNKNOWN,
    Tools,
    named_providers,
    read_corpus,
    read_dataset,
    read_preset,
    read_tools,
    recorded_work,
    reward_digest,
)
from harness.specs.machine import Machine, probe_machine
from harness.specs.request import KEYS, Request, decode, parse_overrides, read_toml, suggest

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A complete, checked spec, and what was chosen for the user and why (one line each)."""

    spec: RunSpec
    notes: tuple[str, ...]


def resolve(
    flags: Mapping[str, object],
    *,
    config: Path | None = None,
    overrides: Sequence[str] = (),
    machine: Machine | None = None,
    dry_run: bool = False,
) -> Resolved:
    """The run that flags, a TOML file and `KEY=VALUE` overrides ask for.

    Flags win over the file, the file over the defaults; `overrides` win over the file's `[overrides.<framework>]`.
    A flag that is None is not given. `machine` defaults to this one, probed only when a default depends on it.
    With `dry_run`, --gpus beyond what a run on cpu can have mean cuda, also on a machine without a GPU.

    Raises:
        SpecError: names the key, its value and what is allowed.
    """
    asked: dict[str, object] = {}
    tables: dict[str, dict[str, str]] = {}
    if config is not None:
        raw, tables = read_toml(config)
        asked |= _given(decode(raw, str(config)))
    asked |= _given(decode({key: value for key, value in flags.items() if value is not None}, "the flags"))
    request = Request(**asked)  # type: ignore[arg-type]  # each value was decoded for its own key

    names = adapter_names()
    framework = _required("framework", request.framework, names, "--framework skyrl")
    if framework not in names:
        raise SpecError(f"framework = {framework!r}: unknown{suggest(framework, names)}")
    placement = _required("placement", request.placement, [p.value for p in Placement], "--placement async")
    merged = {**tables.get(framework, {}), **parse_overrides(overrides)}

    resolved = _fill(request, framework, placement, merged, machine, dry_run=dry_run)
    return replace(resolved, notes=(*resolved.notes, *check_spec(resolved.spec)))


def default_spec(framework: str, placement: Placement, device: Device) -> RunSpec:
    """The spec of `bench run` with nothing but these three: type-correct, not checked further.

    Raises:
        SpecError: no adapter of that name is installed, or it can't be used.
    """
    return _fill(Request(device=device), framework, placement, {}, Machine()).spec


def check_machine(spec: RunSpec, machine: Machine) -> None:
    """Checks that this machine has what the spec takes: its node's share of GPUs, unless the run computes on CPU.

    Raises:
        SpecError: no GPU, or fewer than asked for.
    """
    if spec.device is Device.CPU:
        return
    here = -(-spec.total_gpus // spec.nodes)
    if machine.gpus == 0:
        raise SpecError(
            f"device = cuda: {machine.why or 'no NVIDIA GPU is visible'}; --device cpu is a functional check"
        )
    if here > machine.gpus:
        each = "in all" if spec.nodes == 1 else f"on each of {spec.nodes} nodes, and {here} would be needed"
        raise SpecError(f"gpus = {_gpus_text(spec)}: allowed is at most {machine.gpus} {each} ({machine.why})")


def _given(request: Request) -> dict[str, object]:
    return {key: value for key in KEYS if (value := getattr(request, key)) is not None}


def _required(key: str, value: T | None, allowed: Sequence[str], example: str) -> T:
    if value is None:
        raise SpecError(f"{key} is not given: allowed is one of {', '.join(allowed)}, e.g. {example}")
    return value


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _fill(
    request: Request,
    framework: str,
    placement: Placement,
    overrides: Mapping[str, str],
    machine: Machine | None,
    *,
    dry_run: bool = False,
) -> Resolved:
    notes: list[str] = []
    adapter = load_adapter(framework)
    device, machine = _device(request, adapter, machine, notes, dry_run=dry_run)
    base = defaults.DEVICE_DEFAULTS[device]

    visible = machine.gpus if machine else 0
    if device is Device.CUDA and visible == 0 and (request.gpus is None or request.model is None):
        visible = defaults.ASSUMED_GPUS
        count = f"{visible} GPUs" if request.gpus is None else "GPUs"
        notes.append(f"no GPU here: defaults are those of {count} of {defaults.ASSUMED_GPU_BYTES / 2**30:.0f} GiB")
    gpus = _split(request.gpus, placement) or defaults.default_gpus(placement, device, visible)
    rollout_tp = _or(request.rollout_tp, 1)
    steps = _or(request.steps, base.steps)
    max_staleness = _or(request.max_staleness, defaults.ASYNC_MAX_STALENESS if placement is Placement.ASYNC else 0)
    tools = read_tools(_or(request.tools, "mock"), request.record)
    kind = named_providers(tools.kind)
    if kind != tools.kind:
        notes.append(f"tools = {kind}: the search providers whose keys are set")
    request = _as_recorded(request, tools, notes)
    load, seed = _or(request.load, Load.FIXED), _or(request.seed, defaults.SEED)
    usual = base.live_context_tokens if load is Load.LIVE else base.context_tokens
    context_tokens = _or(request.context_tokens, usual)

    preset, definition = read_preset(_or(request.preset, base.preset))
    corpus, corpus_digest = _corpus(request.corpus, tools.kind, seed)
    dataset, columns = _or(request.dataset, "corpus" if corpus else "generated"), _or(request.columns, {})
    dataset, dataset_digest = read_dataset(dataset, columns, corpus_digest)
    reward = _or(request.reward, "exact" if load is Load.LIVE else "plan")
    reward_source = reward_digest(reward)
    if reward_source == UNKNOWN:
        notes.append(f"reward = {reward}: its source is not found here, so the work digest knows its name only")

    spec = RunSpec(
        framework=framework,
        placement=placement,
        workload=_or(request.workload, defaults.WORKLOAD),
        preset=preset,
        load=load,
        tools=kind,
        model=_or(request.model, defaults.CPU_MODEL),
        gpus=gpus,
        nodes=_or(request.nodes, 1),
        steps=steps,
        warmup_steps=_warmup(request.warmup_steps, max_staleness, steps, notes),
        batch_size=_or(request.batch_size, base.batch_size),
        group_size=_or(request.group_size, base.group_size),
        max_staleness=max_staleness,
        seed=seed,
        device=device,
        engine=request.engine if request.engine is not None else adapter.engines(device)[0],
        rollout_tp=rollout_tp,
        context_tokens=context_tokens,
        micro_batch_tokens=_or(request.micro_batch_tokens, max(base.micro_batch_tokens, context_tokens)),
        offload=_or(request.offload, Offload.NONE),
        timeout=request.timeout,
        sample_hz=_or(request.sample_hz, defaults.SAMPLE_HZ),
        dcgm=_or(request.dcgm, "auto"),
        ray_address=_or(request.ray_address, ""),
        latency_scale=_or(request.latency_scale, 1.0),
        preset_definition=definition,
        reward=reward,
        reward_digest=reward_source,
        policy=_or(request.policy, Policy.MODEL),
        thinking=_or(request.thinking, Thinking.KEEP),
        max_turns=_or(request.max_turns, defaults.MAX_TURNS),
        turn_tokens=_or(request.turn_tokens, base.turn_tokens),
        dataset=dataset,
        dataset_digest=dataset_digest,
        columns=dict(sorted(columns.items())),
        corpus=corpus,
        corpus_digest=corpus_digest,
        trace=tools.trace,
        trace_digest=tools.trace_digest,
        web_cache=_or(request.web_cache, "write"),
        allow_private=_or(request.allow_private, False),
        record=tools.record,
        as_shipped=_or(request.as_shipped, False),
        unverified=_or(request.unverified, False),
        overrides=dict(sorted(overrides.items())),
        faults=_or(request.faults, ()),
    )
    if device is Device.CUDA and request.model is None:
        spec.check()  # before a model is fitted to the pools: an empty pool has no memory
        spec = replace(spec, model=_model(spec, machine, notes))
    return Resolved(spec=spec, notes=tuple(notes))


def _as_recorded(request: Request, tools: Tools, notes: list[str]) -> Request:
    """The request of a replay, its questions taken from the trace where they are not given: others are not in it.

    Raises:
        SpecError: the trace can't be read.
    """
    if tools.kind != "replay":
        return request
    recorded = recorded_work(Path(tools.trace))
    taken = {key: value for key, value in recorded.items() if value and getattr(request, key) is None}
    if request.dataset is not None:
        taken.pop("columns", None)
    if not taken:
        return request
    notes.append(", ".join(f"{key} = {value}" for key, value in taken.items()) + ": as in the trace")
    given = _given(request) | _given(decode(taken, tools.trace))
    return Request(**given)  # type: ignore[arg-type]  # each value was decoded for its own key


def _corpus(asked: str | None, tools: str, seed: int) -> tuple[str, str]:
    """(corpus, digest); none where nothing searches one.

    Raises:
        SpecError: as `read_corpus`.
    """
    if not asked and tools != "local":
        return "", ""
    return read_corpus(asked or DEFAULT_CORPUS, seed)


def _device(
    request: Request, adapter: Adapter, machine: Machine | None, notes: list[str], *, dry_run: bool
) -> tuple[Device, Machine | None]:
    asked = _or(request.device, "auto")
    if isinstance(asked, Device):
        return asked, (machine or probe_machine()) if asked is Device.CUDA else machine
    if not adapter.computes:
        notes.append(f"device = cpu: {adapter.name} computes nothing")
        return Device.CPU, machine
    machine = machine or probe_machine()
    if dry_run and not machine.gpus and request.gpus is not None and beyond_cpu(request.gpus):
        gpus = request.gpus if request.gpus.rollout else request.gpus.train
        notes.append(
            f"device = cuda: assumed for the dry run, as --gpus {gpus}"
            f" is more than a run on cpu has; {machine.why or 'no NVIDIA GPU is visible'}"
        )
        return Device.CUDA, machine
    device = Device.CUDA if machine.gpus else Device.CPU
    notes.append(f"device = {device.value}: {machine.why or 'no NVIDIA GPU is visible'}")
    return device, machine


def _split(asked: Gpus | None, placement: Placement) -> Gpus | None:
    """One number is the shared pool of a colocated run; elsewhere it leaves a pool without a GPU, and is refused.

    Raises:
        SpecError: two numbers for the one pool of a colocated run: 4+4 could mean 4 or 8.
    """
    if asked is None or placement is not Placement.COLOCATED:
        return asked
    if asked.rollout:
        raise SpecError(f"gpus = {asked}: allowed is one number when colocated (the same GPUs take turns), e.g. 8")
    return Gpus(train=asked.train, rollout=asked.train)


def _warmup(asked: int | None, max_staleness: int, steps: int, notes: list[str]) -> int:
    if asked is not None:
        return asked
    wanted = max_staleness + defaults.WARMUP_BEYOND_STALENESS
    if wanted < steps:
        return wanted
    notes.append(f"warmup_steps = {max(steps - 1, 0)}: steps = {steps} leaves no room for the usual {wanted}")
    return max(steps - 1, 0)


def _model(spec: RunSpec, machine: Machine | None, notes: list[str]) -> str:
    memory = machine.smallest_gpu_bytes if machine and machine.gpus else defaults.ASSUMED_GPU_BYTES
    if memory is None:
        raise SpecError("model is not given, and the driver does not say how much memory a GPU has: give --model")
    model, limit = defaults.largest_model(spec.placement, spec.gpus, spec.rollout_tp, memory)
    notes.append(
        f"model = {model}: the largest default that fits {limit} (random weights: same schedule and FLOPs, no learning)"
    )
    return model


def _gpus_text(spec: RunSpec) -> str:
    return str(spec.gpus.train) if spec.placement is Placement.COLOCATED else str(spec.gpus)
