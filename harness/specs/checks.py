"""The checks of a complete spec that need more than its own types: work, model, and what the framework can do."""

import re
from pathlib import Path

from adapters.base import load_adapter
from harness.protocol.errors import SpecError
from harness.protocol.models import SHAPES
from harness.protocol.spec import Device, Gpus, Load, Policy, RunSpec, Thinking
from harness.specs import defaults
from harness.specs.datasets import read_dataset
from harness.specs.request import suggest
from workloads.deep_research.plan import check_context
from workloads.deep_research.presets import preset_of

MOST_PLANS = 10_000  # drawn to check their length before a run: below a second

_SCORER = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
_HUB_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")


def check_spec(spec: RunSpec) -> list[str]:
    """Every check that needs more than the spec's own types.

    Returns:
        What was not checked, one line each.

    Raises:
        SpecError: names the key, its value and what is allowed.
    """
    spec.check()
    if spec.workload != defaults.WORKLOAD:
        raise SpecError(f"workload = {spec.workload!r}: allowed is {defaults.WORKLOAD}")
    _check_load(spec)
    _check_rows(spec)
    _check_model(spec)
    unchecked = _check_plans(spec) if spec.load is Load.FIXED else []
    reason = load_adapter(spec.framework).supports(spec)
    if reason is not None:
        hint = "; --device cuda --dry-run shows such a run without GPUs" if _gpus_wanted_on_cpu(spec) else ""
        raise SpecError(
            f"framework = {spec.framework}, placement = {spec.placement.value}, device = {spec.device.value}:"
            f" {reason}{hint}"
        )
    return unchecked


def _check_rows(spec: RunSpec) -> None:
    """Reads the rows that the run will take from a user's data set, so that a dry run finds what the run would.

    Raises:
        SpecError: as `read_dataset`.
    """
    if spec.dataset not in ("generated", "corpus"):
        read_dataset(Path(spec.dataset), spec.columns, spec.prompts, answers=spec.load is Load.LIVE)


def _check_load(spec: RunSpec) -> None:
    """Checks that load, tools, policy, reward and data set go together.

    Raises:
        SpecError: they don't.
    """
    _check_unused(spec)
    if spec.load is Load.FIXED:
        if spec.policy is not Policy.MODEL:
            raise SpecError(f"policy = {spec.policy.value}: allowed with load = live; a fixed load imposes the plan")
        if spec.thinking is not Thinking.KEEP:
            raise SpecError(f"thinking = {spec.thinking.value}: allowed with load = live; a fixed load reads no reply")
        if spec.reward not in ("plan", "probe"):
            raise SpecError(f"reward = {spec.reward!r}: allowed with load = fixed is plan or probe")
    else:
        if spec.tools == "mock":
            raise SpecError("tools = mock: allowed with load = live is local, web or replay; mock tools answer a plan")
        if spec.reward in ("plan", "probe") or not (spec.reward in ("exact", "f1") or _SCORER.match(spec.reward)):
            raise SpecError(f"reward = {spec.reward!r}: allowed with load = live is exact, f1 or MODULE:FUNCTION")
        if spec.dataset == "generated":
            raise SpecError(
                "dataset = generated: its questions have no answers; allowed with load = live is corpus or a file"
            )
    if spec.dataset == "corpus" and not spec.corpus:
        raise SpecError("dataset = corpus: no corpus is given, e.g. --corpus generated:1000")
    if spec.dataset != "generated" and (spec.nodes > 1 or spec.ray_address):
        where = f"nodes = {spec.nodes}" if spec.nodes > 1 else f"ray_address = {spec.ray_address}"
        raise SpecError(
            f"dataset = {spec.dataset}: allowed on one machine, with a Ray of its own, and {where}; its rows lie in the"
            " run's folder, which workers on other machines don't see; --dataset generated needs none"
        )
    if spec.tools == "mock" and spec.record is not None:
        raise SpecError("record: mock tools answer nothing worth it; their latencies are in any run's tool_calls table")


def _check_unused(spec: RunSpec) -> None:
    """Refuses what was asked for and would change nothing: who reads the request would believe that it did.

    Raises:
        SpecError: names the key and what it goes with.
    """
    base = defaults.DEVICE_DEFAULTS[spec.device]
    kind = spec.tools.partition(":")[0]
    if spec.load is Load.FIXED:
        for name, usual in (("max_turns", defaults.MAX_TURNS), ("turn_tokens", base.turn_tokens)):
            if getattr(spec, name) != usual:
                raise SpecError(
                    f"{name} = {getattr(spec, name)}: allowed with load = live; a fixed load's turns and their lengths"
                    " are planned (--preset)"
                )
        if kind != "mock" and preset_of(spec).faults:
            raise SpecError(
                f"preset = {spec.preset}: it has faults, which mock tools alone play, and tools = {spec.tools};"
                " allowed is a preset without faults, or --tools mock"
            )
    elif spec.preset_definition or spec.preset != base.preset:
        raise SpecError(f"preset = {spec.preset}: allowed with load = fixed; of a live load nothing is planned")
    if spec.latency_scale != 1.0 and kind not in ("mock", "replay"):
        raise SpecError(
            f"latency_scale = {spec.latency_scale:g}: allowed with tools = mock or replay; a call to {kind} tools takes"
            " what it takes"
        )


def _gpus_wanted_on_cpu(spec: RunSpec) -> bool:
    return spec.device is Device.CPU and beyond_cpu(spec.gpus)


def _check_plans(spec: RunSpec) -> list[str]:
    """Checks the plans against the context: none where even the longest possible one fits, else MOST_PLANS at most.

    Raises:
        SpecError: a plan is longer than the context.
    """
    preset = preset_of(spec)
    longest = (
        preset.prompt.cap + (preset.most_calls + 1) * preset.generated.cap + preset.most_calls * preset.observation.cap
    )
    if longest <= spec.context_tokens:
        return []
    prompts = min(spec.prompts, max(1, MOST_PLANS // spec.group_size))
    group_size = min(spec.group_size, MOST_PLANS)
    check_context(
        preset,
        seed=spec.seed,
        prompts=prompts,
        group_size=group_size,
        context_tokens=spec.context_tokens,
        latency_scale=spec.latency_scale,
        most_context_tokens=shape.max_positions if (shape := SHAPES.get(spec.model)) is not None else None,
    )
    if (checked := prompts * group_size) == spec.prompts * spec.group_size:
        return []
    return [
        f"context_tokens = {spec.context_tokens:,}: the first {checked:,} of {spec.prompts * spec.group_size:,} plans"
        f" fit, the others were not looked at; the longest possible is {longest:,.0f}"
    ]


def _check_model(spec: RunSpec) -> None:
    shape = SHAPES.get(spec.model)
    if shape is None:
        folder = Path(spec.model).expanduser()
        if folder.is_dir():
            if not (folder / "config.json").is_file():
                raise SpecError(f"model = {spec.model!r}: the folder has no config.json: it is not a model's")
            return
        if _HUB_NAME.match(spec.model) and ":" not in spec.model:
            return
        raise SpecError(
            f"model = {spec.model!r}: allowed is one of {', '.join(SHAPES)}, a folder, or a hub name (owner/name)"
            f"{suggest(spec.model, SHAPES, listing=False)}"
        )
    if spec.context_tokens > shape.max_positions:
        raise SpecError(
            f"context_tokens = {spec.context_tokens}: allowed is at most {shape.max_positions:,} for model {spec.model}"
        )


def beyond_cpu(gpus: Gpus) -> bool:
    """On cpu one training process and one engine are run: --gpus 1 or 1+1."""
    return gpus.train > 1 or gpus.rollout > 1
