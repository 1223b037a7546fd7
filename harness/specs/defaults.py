"""The defaults of a run, each in one place, and the choice of a model that fits the GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.protocol.errors import SpecError
from harness.protocol.models import SHAPES
from harness.protocol.spec import Device, Gpus, Placement

WORKLOAD = "deep-research"
SEED = 1
SAMPLE_HZ = 10.0
# Of a live trajectory. A question of 8 hops, the most there are, takes a search, 8 pages and the answer; a malformed
# first call, or a page that no link leads to and that must be searched for, takes one more each.
MAX_TURNS = 12
ASYNC_MAX_STALENESS = 1
# Warm-up: the pipeline of an async run is full only after max_staleness + 1 updates, and the first step of any
# run compiles and allocates.
WARMUP_BEYOND_STALENESS = 2

# An 8-GPU node: what `--device cuda` assumes on a machine without a GPU, so that --dry-run works anywhere.
ASSUMED_GPUS = 8
ASSUMED_GPU_BYTES = 80 * 2**30

# Largest first. 32b must be asked for: on 80 GB GPUs it needs an offload that changes what is measured.
MODELS_BY_SIZE = (
    "random:qwen3-14b",
    "random:qwen3-8b",
    "random:qwen3-4b",
    "random:qwen3-1.7b",
    "random:qwen3-0.6b",
)
CPU_MODEL = "tiny"

# Mixed-precision AdamW, sharded over the training GPUs: fp32 weights, gradients and two moments (ZeRO, Rajbhandari
# et al. 2020, section 3.1). The engine holds a bf16 copy. A quarter of the GPU is left to activations and the cache.
TRAIN_BYTES_PER_PARAMETER = 16
ENGINE_BYTES_PER_PARAMETER = 2
USABLE_SHARE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDefaults:
    """What differs between a GPU node (the study's sizes) and a functional check on CPU."""

    preset: str
    batch_size: int
    group_size: int
    steps: int
    context_tokens: int
    live_context_tokens: int  # pages are longer than the smoke preset's observations
    micro_batch_tokens: int
    turn_tokens: int  # most of one live reply


DEVICE_DEFAULTS: Mapping[Device, DeviceDefaults] = {
    Device.CUDA: DeviceDefaults(
        preset="deep-research",
        batch_size=8,
        group_size=3,
        steps=12,
        context_tokens=40_960,
        live_context_tokens=40_960,
        micro_batch_tokens=32_768,
        turn_tokens=2_048,
    ),
    Device.CPU: DeviceDefaults(
        preset="deep-research-smoke",
        batch_size=4,
        group_size=2,
        steps=8,
        context_tokens=2_048,
        live_context_tokens=4_096,
        micro_batch_tokens=2_048,
        turn_tokens=256,
    ),
}


def default_gpus(placement: Placement, device: Device, visible: int) -> Gpus:
    """All GPUs when colocated, else half and half; on CPU one logical slot per pool.

    Raises:
        SpecError: separate pools were asked for and only one GPU is visible.
    """
    if device is Device.CPU:
        return Gpus(train=1, rollout=1)
    if placement is Placement.COLOCATED:
        return Gpus(train=visible, rollout=visible)
    if visible < 2:
        raise SpecError(
            f"gpus = {visible} visible: --placement {placement.value} needs at least 2 (one per pool);"
            " --placement colocated works with 1"
        )
    return Gpus(train=visible - visible // 2, rollout=visible // 2)


def gpu_bytes_needed(model: str, placement: Placement, gpus: Gpus, rollout_tp: int) -> int:
    """Bytes of weights and optimizer state on the fullest GPU of a known shape, activations and cache not counted."""
    parameters = SHAPES[model].parameters
    train = TRAIN_BYTES_PER_PARAMETER * parameters // gpus.train
    engine = ENGINE_BYTES_PER_PARAMETER * parameters // rollout_tp
    return train + engine if placement is Placement.COLOCATED else max(train, engine)


def _fullest(model: str, placement: Placement, gpus: Gpus, rollout_tp: int) -> str:
    """The pool whose GPUs a model fills most, in words."""
    if placement is Placement.COLOCATED:
        return f"{gpus.train} shared GPU{'s' * (gpus.train > 1)}"
    parameters = SHAPES[model].parameters
    if TRAIN_BYTES_PER_PARAMETER * parameters // gpus.train >= ENGINE_BYTES_PER_PARAMETER * parameters // rollout_tp:
        return f"{gpus.train} training GPU{'s' * (gpus.train > 1)}"
    return f"an engine of {rollout_tp} GPU{'s' * (rollout_tp > 1)}"


def largest_model(placement: Placement, gpus: Gpus, rollout_tp: int, gpu_bytes: int) -> tuple[str, str]:
    """The largest default model whose weights and optimizer state take at most three quarters of each GPU.

    It must fit colocated on all the run's GPUs and split half and half as well as what was asked, so that runs of
    different placements on one machine train the same model and can be compared.

    Returns:
        The model, and the pool that no larger one fits, e.g. `3 training GPUs of 80 GiB`.

    Raises:
        SpecError: not even the smallest fits.
    """
    total = gpus.train if placement is Placement.COLOCATED else gpus.train + gpus.rollout
    ways = [(placement, gpus), (Placement.COLOCATED, default_gpus(Placement.COLOCATED, Device.CUDA, total))]
    if total >= 2:
        ways.append((Placement.ASYNC, default_gpus(Placement.ASYNC, Device.CUDA, total)))
    limit = ""
    for model in MODELS_BY_SIZE:
        # Of equals the first: what was asked for.
        way, split = max(ways, key=lambda one: gpu_bytes_needed(model, one[0], one[1], rollout_tp))
        pool = f"{_fullest(model, way, split, rollout_tp)} of {gpu_bytes / 2**30:.0f} GiB"
        if way is not placement and split != gpus:
            pool += f" (placements are compared with one model: also {way.value} on all {total} must fit)"
        if gpu_bytes_needed(model, way, split, rollout_tp) <= USABLE_SHARE * gpu_bytes:
            return model, limit or pool
        limit = pool
    raise SpecError(
        f"model: none of {', '.join(MODELS_BY_SIZE)} fits {total} GPU(s) of {gpu_bytes / 2**30:.0f} GiB;"
        " give more GPUs (--gpus) or a smaller model (--model tiny)"
    )
