"""A RunSpec as AReaL's own configuration: a dot-list of `PPOConfig` keys, in the order in which they win.

Every key was read in, and accepted by, areal 1.0.4's `PPOConfig` and `PPOTrainer._validate_cfg`.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from adapters.base import learning_rate
from harness.protocol.spec import Device, Offload, Placement, RunSpec

WORKER = "python -m adapters.areal.worker.rpc"
EXPERIMENT = "bench"

# GRPO with the importance ratio of the trained policy to the one that generated, per token, truncated at 2, which
# masks no token. With one update per batch the ratio to the recomputed policy is 1, so that PPO's clip never acts.
# `lower` is as good as none: AReaL turns a missing one into 0, and its workers then refuse their configuration.
LOSS = (
    "actor.recompute_logprob=true",
    "actor.use_decoupled_loss=true",
    "actor.prox_logp_method=recompute",
    "actor.importance_sampling_level=token",
    "actor.rejection_sampling={level: token, action: clamp, metric: ratio, upper: 2.0, lower: 1.0e-30}",
    "actor.adv_norm=null",
    "actor.reward_bias=0.0",
    "actor.reward_scaling=1.0",
)

# What stays AReaL's own, or can't be set equal to the others, and what it means for a comparison.
DIFFERENCES = (
    "prefix caching is off: AReaL's vllm and sglang configurations disable it, so each turn prefills its whole history",
    "in-flight requests are aborted at a weight sync, and resume with their prefix computed again (no kept KV)",
    "requests interrupted by a sync look every 0.5 s whether it is over; none resumes before the step's statistics "
    "are logged",
    "synchronisation through disk (colocated) is polled every 1 s by the loader",
    "max_staleness bounds how many groups are admitted, not each one's age: a group that later ones overtake can be "
    "older by a step, and is counted as beyond the bound",
    "rollout workers do not divide the staleness bound among themselves a second time (areal issue 1396)",
    "groups are admitted whole: in-flight limits count prompts, not trajectories",
    "a step takes whole groups in order of completion, shuffled",
    "PPO's clip (0.2) is kept; with one update per batch its ratio is 1 and nothing is clipped",
    "sequences are packed by AReaL (first fit decreasing) up to micro_batch_tokens",
    "offload=optimizer moves parameters too: AReaL has FSDP's CPU offload as a whole, or none",
    "rewards are normalised with eps 1e-6 inside AReaL's own GRPO normalisation (unbiased deviation per group)",
)


def overrides(spec: RunSpec, run_dir: Path) -> list[str]:
    """All keys of a run but the model's path, which is known once the model is there."""
    return [
        *_common(spec, run_dir),
        *_placement(spec),
        *([] if spec.as_shipped else [*LOSS, _reward_norm(spec)]),
        *(_cpu(spec) if spec.device is Device.CPU else _cuda(spec)),
        *(f"{key}={value}" for key, value in spec.overrides.items()),
    ]


def model_keys(model: str, engine: str) -> list[str]:
    """The keys that name the model, once its path is known."""
    keys = ["tokenizer_path", "actor.path", "rollout.tokenizer_path"]
    keys.append("vllm.model" if engine == "vllm" else "sglang.model_path")
    return [f"{key}={model}" for key in keys]


def _common(spec: RunSpec, run_dir: Path) -> list[str]:
    scratch = run_dir / "scratch"
    sections = ("actor", "rollout", "saver", "evaluator", "recover", "stats_logger")
    return [
        f"experiment_name={EXPERIMENT}",
        f"trial_name={spec.placement.value}",
        *(f"{name}.experiment_name={EXPERIMENT}" for name in sections),
        *(f"{name}.trial_name={spec.placement.value}" for name in sections),
        *(f"{name}.fileroot={scratch}/areal" for name in ("rollout", "saver", "evaluator", "recover", "stats_logger")),
        f"cluster.fileroot={scratch}/areal",
        "cluster.name_resolve.type=nfs",
        f"cluster.name_resolve.nfs_record_root={scratch}/names",
        f"cluster.n_nodes={spec.nodes}",
        "scheduler.type=local",
        f"seed={spec.seed}",
        "total_train_epochs=1",
        f"total_train_steps={spec.steps}",
        "train_dataset.path=bench",
        "train_dataset.type=rl",
        f"train_dataset.batch_size={spec.batch_size}",
        "train_dataset.shuffle=false",
        "train_dataset.num_workers=0",
        "valid_dataset=null",
        "recover.mode=disabled",
        f"gconfig.n_samples={spec.group_size}",
        f"gconfig.max_tokens={spec.context_tokens}",
        "gconfig.temperature=1.0",
        "gconfig.top_p=1.0",
        "gconfig.top_k=-1",
        f"actor.backend=fsdp:d{spec.gpus.train}",
        f"actor.mb_spec.max_tokens_per_mb={spec.micro_batch_tokens}",
        "actor.ppo_n_minibatches=1",
        "actor.kl_ctl=0.0",  # AReaL's 0.1 without a reference model would penalise plain log-probabilities
        "actor.temperature=1.0",
        "actor.disable_dropout=true",
        f"actor.optimizer.lr={learning_rate(spec)}",
        "actor.optimizer.lr_scheduler_type=constant",
        "actor.optimizer.warmup_steps_proportion=0.0",
        "actor.optimizer.gradient_clipping=1.0",
        f"actor.fsdp.offload_params={_bool(spec.offload is not Offload.NONE)}",
        f"rollout.backend={_rollout_backend(spec)}",
        f"rollout.consumer_batch_size={spec.batch_size}",
        f"rollout.max_concurrent_rollouts={spec.batch_size * (spec.max_staleness + 1)}",
        f"rollout.max_head_offpolicyness={spec.max_staleness}",
        "rollout.setup_timeout=900",
        "rollout.request_timeout=3600",
    ]


def _rollout_backend(spec: RunSpec) -> str:
    replicas = spec.gpus.rollout // spec.rollout_tp
    return f"{spec.engine}:d{replicas}" + (f"t{spec.rollout_tp}" if spec.rollout_tp > 1 else "")


def _reward_norm(spec: RunSpec) -> str:
    return (
        f"actor.reward_norm={{mean_level: group, std_level: group, group_size: {spec.group_size}, "
        "std_unbiased: true, eps: 1.0e-6}"
    )


def _placement(spec: RunSpec) -> list[str]:
    if spec.placement is Placement.COLOCATED:
        return [
            "rollout.scheduling_strategy={type: colocation, target: actor, fork: true}",
            "enable_offload=true",
            "actor.weight_update_mode=disk",
        ]
    return [
        "rollout.scheduling_strategy={type: separation}",
        "enable_offload=false",
        "actor.weight_update_mode=xccl",
    ]


def _cuda(spec: RunSpec) -> list[str]:
    worker = _worker(cpu=8, gpu=1, mem=64)
    common = [
        f"cluster.n_gpus_per_node={spec.total_gpus // spec.nodes}",
        f"actor.scheduling_spec={worker}",
        f"rollout.scheduling_spec={worker}",
        "actor.gradient_checkpointing=true",
        "actor.dtype=bfloat16",
        "actor.optimizer_dtype=float32",
        "actor.optimizer.type=adam",
        "actor.attn_impl=flash_attention_2",
    ]
    if spec.engine == "sglang":
        return [
            *common,
            "sglang.dtype=bfloat16",
            f"sglang.context_length={spec.context_tokens}",
            f"sglang.max_running_requests={sequences(spec)}",
            "sglang.mem_fraction_static=0.8",
        ]
    # Only a sleeping engine gives its memory back to the trainer; /sleep and /wake_up are vLLM's development routes.
    sleep = ["vllm.enable_sleep_mode=true"] if spec.placement is Placement.COLOCATED else []
    return [
        *common,
        *sleep,
        "vllm.dtype=bfloat16",
        f"vllm.max_model_len={spec.context_tokens}",
        f"vllm.max_num_seqs={sequences(spec)}",
        "vllm.gpu_memory_utilization=0.8",
    ]


def _cpu(spec: RunSpec) -> list[str]:
    worker = _worker(cpu=1, gpu=0, mem=4)
    return [
        "cluster.n_gpus_per_node=1",
        f"actor.scheduling_spec={worker}",
        f"rollout.scheduling_spec={worker}",
        "actor.gradient_checkpointing=false",
        "actor.dtype=float32",
        "actor.optimizer_dtype=float32",
        "actor.optimizer.type=adam",
        "actor.attn_impl=sdpa",  # flash-attn has no CPU build
        "vllm.dtype=float32",
        f"vllm.max_model_len={spec.context_tokens}",
        f"vllm.max_num_seqs={sequences(spec)}",
        "vllm.enforce_eager=true",
        "vllm.block_size=32",  # vLLM's CPU attention needs a multiple of 32
        "vllm.worker_extension_cls=adapters.areal.cpu.engine.CPUWorkerExtension",
    ]


def _worker(*, cpu: int, gpu: int, mem: int) -> str:
    """One worker process of AReaL's scheduler, as the value of a `scheduling_spec`."""
    spec: Mapping[str, object] = {"cpu": cpu, "gpu": gpu, "mem": mem, "port_count": 2, "cmd": WORKER}
    return json.dumps([spec])


def sequences(spec: RunSpec) -> int:
    """Sequences an engine may run at once: all that can be in flight, at least 32."""
    return max(32, spec.trajectories_per_step * (spec.max_staleness + 1))


def _bool(value: bool) -> str:
    return "true" if value else "false"
