"""What a verl run has in each row of the fairness table, read off its own overrides (a user's included)."""

from collections.abc import Mapping, Sequence

from adapters.verl.overrides import SHORT_POLL_S
from harness.protocol.spec import Device, Placement, RunSpec

UNSET = "verl's default"
SHIPPED_POLL_S = 2.0  # ReplayBuffer.poll_interval
ACTOR = "actor_rollout_ref.actor."
ROLLOUT = "actor_rollout_ref.rollout."


def fairness(spec: RunSpec, overrides: Sequence[str]) -> Mapping[str, str]:
    """Every row of `adapters.base.FAIRNESS`."""
    settings = dict(item.lstrip("+").split("=", 1) for item in overrides)

    def engine(key: str) -> str:
        return settings.get(f"{ROLLOUT}{key}", UNSET)

    on_cpu = spec.device is Device.CPU
    sglang = spec.engine == "sglang" and not on_cpu
    groups = spec.batch_size * (1 + int(settings.get("trainer.v1.separate_async.num_warmup_batches", "0")))
    attention = settings.get("actor_rollout_ref.model.override_config.attn_implementation", "flash_attention_2")
    packed = settings.get("actor_rollout_ref.model.use_remove_padding", "True") == "True"
    return {
        "loss": _loss(settings),
        "logprobs": "skipped" if settings.get("algorithm.rollout_correction.bypass_mode", "False") == "True" else "on",
        "optimizer": _optimizer(settings),
        "attention": "flash-attention" if attention.startswith("flash") else "scaled dot product (no flash-attention)",
        "packing": "packed, padding removed" if packed else "padded",
        "micro_batch": settings.get(f"{ACTOR}ppo_max_token_len_per_gpu", UNSET),
        "updates": f"1 optimizer step of {settings.get(f'{ACTOR}ppo_mini_batch_size')} prompts, then a sync",
        "rollout_tp": engine("tensor_model_parallel_size"),
        "engine": f"transformers, CPU, {engine('dtype')}" if on_cpu else f"{spec.engine}, CUDA, {engine('dtype')}",
        "prefix_cache": "off: the CPU engine has none" if on_cpu else _prefix_cache(settings, sglang),
        "kv_at_sync": "recomputed: a sync aborts what is generated, and it is asked again 1 s later"
        if spec.placement is Placement.ASYNC
        else "empty: no trajectory is in flight at a sync",
        "sync": _transport(settings, on_cpu),
        "max_num_seqs": "unbounded: the CPU engine interleaves all requests"
        if on_cpu
        else _server(settings, "max_num_seqs", "max_running_requests", sglang),
        "memory": "not applicable on CPU"
        if on_cpu
        else _server(settings, "gpu_memory_utilization", "mem_fraction_static", sglang),
        "graphs": "off" if on_cpu or _no_graphs(settings, sglang) else f"{spec.engine}'s default",
        "in_flight": f"{groups * spec.group_size} ({groups} groups)",
        "staleness": _staleness(settings) if spec.placement is Placement.ASYNC else "synchronous: 0",
        "polls": _polls(settings, sglang and spec.placement is Placement.ASYNC),
        "chat": "the model's own, token in, token out: history is not rendered again",
        "sampling": (
            f"temperature {engine('temperature')}, top_p {engine('top_p')}, "
            f"top_k {engine('top_k')}, generation_config of the model ignored"
        ),
    }


def _loss(settings: Mapping[str, str]) -> str:
    correction = "algorithm.rollout_correction."
    kind = settings.get("algorithm.adv_estimator", UNSET).upper()
    if settings.get(f"{correction}rollout_is") != "token":
        return f"{kind}, PPO clipping, no importance correction (verl's default)"
    high = float(settings.get(f"{correction}rollout_is_threshold", "2.0"))
    kl = "with KL" if settings.get(f"{ACTOR}use_kl_loss") == "True" else "no KL"
    return f"{kind}, token-level importance ratio to the rollout policy truncated at {high:g}, nothing masked, {kl}"


def _optimizer(settings: Mapping[str, str]) -> str:
    parameters = settings.get(f"{ACTOR}fsdp_config.param_offload") == "True"
    states = settings.get(f"{ACTOR}fsdp_config.optimizer_offload") == "True"
    optimizer = "AdamW, fp32 master weights and states"
    if parameters and states:
        return f"{optimizer}, parameters and states moved to CPU between uses"
    if parameters or states:
        return f"{optimizer}, {'parameters' if parameters else 'states'} moved to CPU between uses"
    return f"{optimizer}, not offloaded"


def _transport(settings: Mapping[str, str], on_cpu: bool) -> str:
    backend = settings.get(f"{ROLLOUT}checkpoint_engine.backend")
    if backend is None:
        return "in process, one copy through Ray" if on_cpu else "CUDA IPC"
    return {"nccl": "NCCL broadcast", "bench_gloo": "gloo broadcast"}.get(backend, backend)


def _staleness(settings: Mapping[str, str]) -> str:
    sampler = "trainer.v1.sampler."
    threshold = settings.get(f"{sampler}max_off_policy_threshold", UNSET)
    strategy = settings.get(f"{sampler}max_off_policy_strategy", UNSET)
    return f"max_off_policy_threshold = {threshold} ({strategy}); 1: dispatched and trained in one step; a hard bound"


def _server(settings: Mapping[str, str], common: str, own: str, sglang: bool) -> str:
    """What the engine's server gets: verl's common key, unless sglang was given its own name for it."""
    value = settings.get(f"{ROLLOUT}{common}", UNSET)
    return settings.get(f"{ROLLOUT}engine_kwargs.sglang.{own}", value) if sglang else value


def _prefix_cache(settings: Mapping[str, str], sglang: bool) -> str:
    if sglang:
        # SGLang has it on unless told otherwise; verl passes nothing on.
        disabled = settings.get(f"{ROLLOUT}engine_kwargs.sglang.disable_radix_cache", "False")
        return "off" if disabled.lower() == "true" else "on"
    return {"True": "on", "False": "off"}.get(settings.get(f"{ROLLOUT}enable_prefix_caching", UNSET), UNSET)


def _no_graphs(settings: Mapping[str, str], sglang: bool) -> bool:
    return _server(settings, "enforce_eager", "disable_cuda_graph", sglang).lower() == "true"


def _polls(settings: Mapping[str, str], pauses: bool) -> str:
    ours = settings.get("trainer.v1.sampler.custom_sampler.path", "").startswith("pkg://adapters.verl.")
    seconds = SHORT_POLL_S if ours else SHIPPED_POLL_S
    buffer = f"replay buffer {seconds:g} s" + (f" (verl ships {SHIPPED_POLL_S:g} s)" if ours else "")
    return f"{buffer}; a sync's abort 1 s (sglang)" if pauses else buffer
