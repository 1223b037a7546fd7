"""What an AReaL run has in each row of the fairness table, read off its own overrides (a user's included)."""

from collections.abc import Mapping, Sequence

from harness.protocol.spec import Device, Placement, RunSpec

UNSET = "areal's default"
ATTENTION = {"sdpa": "scaled dot product (no flash-attention)", "flash_attention_2": "flash-attention"}


def fairness(spec: RunSpec, overrides: Sequence[str]) -> Mapping[str, str]:
    """Every row of `adapters.base.FAIRNESS`."""
    settings = dict(item.split("=", 1) for item in overrides)

    def engine(key: str) -> str:
        return settings.get(f"{spec.engine}.{key}", UNSET)

    on_cpu = spec.device is Device.CPU
    vllm = spec.engine == "vllm"
    attention = settings.get("actor.attn_impl", UNSET)
    groups = int(settings.get("rollout.max_concurrent_rollouts", spec.batch_size))
    return {
        "loss": _loss(settings),
        "logprobs": "on" if settings.get("actor.recompute_logprob") == "true" else "skipped (areal's default)",
        "optimizer": _optimizer(settings),
        "attention": ATTENTION.get(attention, attention),
        "packing": "packed, padding removed",
        "micro_batch": settings.get("actor.mb_spec.max_tokens_per_mb", UNSET),
        "updates": _updates(spec, settings),
        "rollout_tp": str(spec.rollout_tp),
        "engine": f"{spec.engine}, {'CPU' if on_cpu else 'CUDA'}, {engine('dtype')}",
        "prefix_cache": _prefix_cache(engine("no_enable_prefix_caching" if vllm else "disable_radix_cache")),
        "kv_at_sync": "recomputed: a sync aborts what is generated, and the rest is asked again"
        if spec.placement is Placement.ASYNC
        else "empty: no trajectory is in flight at a sync",
        "sync": _transport(settings, on_cpu),
        "max_num_seqs": engine("max_num_seqs" if vllm else "max_running_requests"),
        "memory": "not applicable on CPU"
        if on_cpu
        else engine("gpu_memory_utilization" if vllm else "mem_fraction_static"),
        "graphs": "off"
        if engine("enforce_eager" if vllm else "disable_cuda_graph") == "true"
        else f"{spec.engine}'s default",
        "in_flight": f"{groups * spec.group_size} ({groups} groups)",
        "staleness": _staleness(settings) if spec.placement is Placement.ASYNC else "synchronous: 0",
        "polls": _polls(settings),
        "chat": "the model's own, token in, token out: history is not rendered again",
        "sampling": (
            f"temperature {settings.get('gconfig.temperature')}, top_p {settings.get('gconfig.top_p')}, "
            f"top_k {settings.get('gconfig.top_k')}, generation_config of the model for what requests leave out"
        ),
    }


def _loss(settings: Mapping[str, str]) -> str:
    norm = "GRPO" if "mean_level: group" in settings.get("actor.reward_norm", "") else "no group normalisation"
    correction = _fields(settings.get("actor.rejection_sampling", ""))
    if not correction or settings.get("actor.use_decoupled_loss") != "true":
        return f"{norm}, PPO clipping, no importance correction (areal's default)"
    high = float(correction.get("upper", "5"))
    kl = "no KL" if float(settings.get("actor.kl_ctl", "0.1")) == 0 else "with KL"
    if (correction.get("level"), correction.get("action")) != ("token", "clamp"):
        level, action = correction.get("level", "token"), correction.get("action", "mask")
        return f"{norm}, {level}-level importance ratio to the rollout policy, {action} at {high:g}, {kl}"
    return f"{norm}, token-level importance ratio to the rollout policy truncated at {high:g}, nothing masked, {kl}"


def _fields(flow: str) -> dict[str, str]:
    """The pairs of a flat YAML mapping in braces."""
    pairs = (item.partition(":") for item in flow.strip("{} ").split(",") if ":" in item)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _optimizer(settings: Mapping[str, str]) -> str:
    dtype = {"float32": "fp32 master weights and states"}.get(settings.get("actor.optimizer_dtype", ""), UNSET)
    kind = {"adam": "AdamW"}.get(settings.get("actor.optimizer.type", ""), settings.get("actor.optimizer.type", UNSET))
    if settings.get("actor.fsdp.offload_params") == "true":
        return f"{kind}, {dtype}, parameters and states on CPU"
    return f"{kind}, {dtype}, not offloaded"


def _updates(spec: RunSpec, settings: Mapping[str, str]) -> str:
    count = int(settings.get("actor.ppo_n_minibatches", "4"))
    prompts = int(settings.get("train_dataset.batch_size", spec.batch_size)) // count
    return f"{count} optimizer step{'s' if count > 1 else ''} of {prompts} prompts, then a sync"


def _prefix_cache(disabled: str) -> str:
    return {"true": "off", "false": "on"}.get(disabled, "off (areal's default)")


def _transport(settings: Mapping[str, str], on_cpu: bool) -> str:
    mode = settings.get("actor.weight_update_mode", UNSET)
    return {"disk": "files (safetensors)", "xccl": "gloo broadcast" if on_cpu else "NCCL broadcast"}.get(mode, mode)


def _staleness(settings: Mapping[str, str]) -> str:
    bound = settings.get("rollout.max_head_offpolicyness", UNSET)
    return f"max_head_offpolicyness = {bound}; 0: admitted and trained in one step; an admission rule, not a hard bound"


def _polls(settings: Mapping[str, str]) -> str:
    resume = "a turn held by a sync looks every 0.5 s"
    return f"disk sync 1 s; {resume}" if settings.get("actor.weight_update_mode") == "disk" else resume
