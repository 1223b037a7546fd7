"""What a SkyRL run has in each row of the fairness table, read off its own overrides (a user's included)."""

from collections.abc import Mapping, Sequence

from harness.protocol.spec import Device, Placement, RunSpec

UNSET = "skyrl's default"


def fairness(spec: RunSpec, overrides: Sequence[str]) -> Mapping[str, str]:
    """Every row of `adapters.base.FAIRNESS`."""
    settings = dict(item.split("=", 1) for item in overrides)

    def engine(key: str) -> str:
        return settings.get(f"generator.inference_engine.{key}", UNSET)

    on_cpu = spec.device is Device.CPU
    asynchronous = spec.placement is Placement.ASYNC
    offloaded = settings.get("trainer.policy.optimizer_config.offload_after_step") == "true"
    optimizer = "AdamW, fp32 master weights and states"
    if settings.get("trainer.policy.fsdp_config.cpu_offload") == "true":
        optimizer += ", parameters and states on CPU"
    elif offloaded and spec.placement is Placement.COLOCATED:
        optimizer += ", states moved to CPU after each step"
    else:
        optimizer += ", not offloaded"  # without colocation SkyRL ignores offload_after_step
    groups = int(settings.get("trainer.fully_async.num_parallel_generation_workers", spec.batch_size))
    flash = settings.get("trainer.flash_attn", "true") == "true"
    packed = settings.get("trainer.remove_microbatch_padding", "true") == "true"
    return {
        "loss": _loss(settings),
        "logprobs": _logprobs(settings, asynchronous),
        "optimizer": optimizer,
        "attention": "flash-attention" if flash else "scaled dot product (no flash-attention)",
        "packing": "packed, padding removed" if packed else "padded",
        "micro_batch": settings.get("trainer.max_tokens_per_microbatch", UNSET),
        "updates": f"1 optimizer step of {settings.get('trainer.policy_mini_batch_size')} prompts, then a sync",
        "rollout_tp": engine("tensor_parallel_size"),
        "engine": f"vllm, {'CPU' if on_cpu else 'CUDA'}, {engine('model_dtype')}",
        "prefix_cache": "on" if engine("enable_prefix_caching") == "true" else "off",
        "kv_at_sync": _kv(spec.placement, settings),
        "sync": {"delta": "delta files (safetensors)", "nccl": _nccl(spec.placement)}.get(
            engine("weight_sync_backend"), engine("weight_sync_backend")
        ),
        "max_num_seqs": engine("max_num_seqs"),
        "memory": "not applicable on CPU" if on_cpu else engine("gpu_memory_utilization"),
        "graphs": "off" if engine("enforce_eager") == "true" else "vllm's default",
        "in_flight": f"{groups * spec.group_size} ({groups} groups)",
        "staleness": _staleness(settings) if asynchronous else "synchronous: 0",
        "polls": "none: the trainer awaits a queue",
        "chat": "the model's own, token in, token out: history is not rendered again",
        "sampling": (
            f"temperature {settings.get('generator.sampling_params.temperature')}, "
            f"top_p {settings.get('generator.sampling_params.top_p')}, "
            f"top_k {settings.get('generator.sampling_params.top_k')}, generation_config of the model ignored"
        ),
    }


def _loss(settings: Mapping[str, str]) -> str:
    algorithm = "trainer.algorithm."
    kind = settings.get(f"{algorithm}policy_loss_type", UNSET)
    if kind == "cispo" and settings.get(f"{algorithm}cispo.cispo_anchor") == "rollout":
        high = 1 + float(settings.get(f"{algorithm}cispo.cispo_eps_clip_high", "4"))
        return f"GRPO, token-level importance ratio to the rollout policy truncated at {high:g}, nothing masked, no KL"
    return kind


def _logprobs(settings: Mapping[str, str], asynchronous: bool) -> str:
    if "trainer.algorithm.off_policy_correction.outlier_token_is_threshold_high" in settings:
        return "on"
    return "skipped (skyrl's default with this loss)" if asynchronous else "on"


def _kv(placement: Placement, settings: Mapping[str, str]) -> str:
    if placement is not Placement.ASYNC:
        return "empty: no trajectory is in flight at a sync"
    cleared = settings.get("trainer.fully_async.clear_kv_cache_on_weight_sync") == "true"
    return "recomputed" if cleared else "kept: requests are frozen and go on with the old keys and values"


def _nccl(placement: Placement) -> str:
    return "CUDA IPC" if placement is Placement.COLOCATED else "NCCL broadcast"


def _staleness(settings: Mapping[str, str]) -> str:
    bound = settings.get("trainer.fully_async.max_staleness_steps", UNSET)
    return f"max_staleness_steps = {bound}; 0: scheduled and trained in one step; an admission rule, not a hard bound"
