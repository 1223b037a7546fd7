"""A RunSpec as SkyRL's own configuration: the dot-list overrides, in the order in which they win.

Every key was read in, and validated by, skyrl 0.4.0's `SkyRLTrainConfig` and `validate_cfg`.
"""

from pathlib import Path

from adapters.base import learning_rate
from harness.protocol.spec import Device, Offload, Placement, RunSpec

# One loss for all placements: the importance ratio of the trained policy to the one that generated, per token,
# truncated at 2, which masks no token. SkyRL's fully async trainer refuses losses that need a kept old policy.
LOSS = (
    "trainer.algorithm.advantage_estimator=grpo",
    "trainer.algorithm.use_kl_loss=false",
    "trainer.algorithm.policy_loss_type=cispo",
    "trainer.algorithm.cispo.cispo_anchor=rollout",
    "trainer.algorithm.cispo.cispo_eps_clip_low=1.0",
    "trainer.algorithm.cispo.cispo_eps_clip_high=1.0",
    # Keeps the logprob forward on (SkyRL skips it when no correction reads it). The ratio is at most e^20, so this
    # threshold masks nothing.
    "trainer.algorithm.off_policy_correction.outlier_token_is_threshold_high=1e30",
)


def overrides(spec: RunSpec, run_dir: Path) -> list[str]:
    """All overrides of a run but the model's path, which is known once the model is there."""
    return [
        *_common(spec, run_dir),
        *_placement(spec),
        *([] if spec.as_shipped else LOSS),
        *(_cpu(spec, run_dir) if spec.device is Device.CPU else _cuda(spec)),
        *(f"{key}={value}" for key, value in spec.overrides.items()),
    ]


def _common(spec: RunSpec, run_dir: Path) -> list[str]:
    train_per_node = spec.gpus.train // spec.nodes
    return [
        "data.train_data=['bench']",
        "data.val_data=[]",
        "data.dataloader.num_workers=0",
        "trainer.strategy=fsdp",
        "trainer.epochs=1",
        f"trainer.seed={spec.seed}",
        f"trainer.max_training_steps={spec.steps}",
        f"trainer.train_batch_size={spec.batch_size}",
        f"trainer.policy_mini_batch_size={spec.batch_size}",
        "trainer.update_epochs_per_batch=1",
        f"trainer.max_tokens_per_microbatch={spec.micro_batch_tokens}",
        f"trainer.placement.policy_num_nodes={spec.nodes}",
        f"trainer.placement.policy_num_gpus_per_node={train_per_node}",
        f"trainer.placement.ref_num_nodes={spec.nodes}",
        f"trainer.placement.ref_num_gpus_per_node={train_per_node}",
        f"trainer.placement.critic_num_gpus_per_node={train_per_node}",
        "trainer.eval_interval=-1",
        "trainer.eval_before_train=false",
        "trainer.ckpt_interval=-1",
        "trainer.hf_save_interval=-1",
        "trainer.resume_mode=null",
        f"trainer.ckpt_path={run_dir}/scratch/checkpoints",
        f"trainer.export_path={run_dir}/scratch/export",
        f"trainer.log_path={run_dir}/logs/skyrl",
        "trainer.logger=console",
        "trainer.project_name=bench",
        f"trainer.run_name={run_dir.name}",
        "trainer.print_example_interval=-1",
        "trainer.enable_ray_gpu_monitor=false",
        f"trainer.max_prompt_length={spec.context_tokens}",
        f"trainer.policy.optimizer_config.lr={learning_rate(spec)}",
        f"trainer.policy.optimizer_config.offload_after_step={_bool(spec.offload is Offload.OPTIMIZER)}",
        f"trainer.policy.fsdp_config.cpu_offload={_bool(spec.offload is Offload.FULL)}",
        f"generator.n_samples_per_prompt={spec.group_size}",
        "generator.batched=false",
        f"generator.max_input_length={spec.context_tokens}",
        "generator.sampling_params.temperature=1.0",
        "generator.sampling_params.top_p=1.0",
        "generator.sampling_params.top_k=-1",
        "generator.sampling_params.logprobs=1",
        f"generator.inference_engine.num_engines={spec.gpus.rollout // spec.rollout_tp}",
        f"generator.inference_engine.tensor_parallel_size={spec.rollout_tp}",
        "generator.inference_engine.enable_prefix_caching=true",
        "generator.inference_engine.enable_ray_prometheus_stats=false",
        "generator.inference_engine.engine_init_kwargs.disable_log_stats=false",
        f"generator.inference_engine.engine_init_kwargs.max_model_len={spec.context_tokens}",
        "generator.inference_engine.engine_init_kwargs.generation_config=vllm",
    ]


def _placement(spec: RunSpec) -> list[str]:
    if spec.placement is Placement.COLOCATED:
        return ["trainer.placement.colocate_all=true"]
    separate = ["trainer.placement.colocate_all=false"]
    if spec.placement is Placement.DISAGGREGATED:
        return separate
    asynchronous = [
        *separate,
        "trainer.fully_async.enabled=true",
        f"trainer.fully_async.max_staleness_steps={spec.max_staleness}",
        f"trainer.fully_async.num_parallel_generation_workers={spec.batch_size * (spec.max_staleness + 1)}",
        "trainer.fully_async.clear_kv_cache_on_weight_sync=false",
    ]
    if spec.as_shipped:  # the trainer refuses its own default loss
        asynchronous.append("trainer.algorithm.policy_loss_type=rollout_is")
    return asynchronous


def _cuda(spec: RunSpec) -> list[str]:
    return [
        "trainer.gradient_checkpointing=true",
        "generator.inference_engine.model_dtype=bfloat16",
        "generator.inference_engine.weight_sync_backend=nccl",
        "generator.inference_engine.gpu_memory_utilization=0.8",
        f"generator.inference_engine.max_num_seqs={_sequences(spec)}",
    ]


def _cpu(spec: RunSpec, run_dir: Path) -> list[str]:
    engine = "generator.inference_engine"
    return [
        "trainer.flash_attn=false",
        "trainer.remove_microbatch_padding=false",
        "trainer.gradient_checkpointing=false",
        "trainer.use_expandable_segments=false",
        "trainer.policy.fsdp_config.mixed_precision.param_dtype=fp32",
        f"{engine}.model_dtype=float32",
        f"{engine}.enforce_eager=true",
        f"{engine}.distributed_executor_backend=mp",
        f"{engine}.max_num_seqs={_sequences(spec)}",
        # The delta backend moves weights through files: NCCL and CUDA IPC need GPUs.
        f"{engine}.weight_sync_backend=delta",
        f"{engine}.delta_weight_sync.sync_dir={run_dir}/scratch/sync",
        f"{engine}.delta_weight_sync.local_checkpoint_dir={run_dir}/scratch/local",
        f"{engine}.delta_weight_sync.publish_staging_dir={run_dir}/scratch/staging",
        f"{engine}.engine_init_kwargs.worker_cls=vllm.v1.worker.cpu_worker.CPUWorker",
        f"{engine}.engine_init_kwargs.worker_extension_cls=adapters.skyrl.cpu.engine.CPUWorkerExtension",
        f"{engine}.engine_init_kwargs.enable_sleep_mode=false",
    ]


def _sequences(spec: RunSpec) -> int:
    """Sequences an engine may run at once: all that can be in flight, at least 32."""
    return max(32, spec.trajectories_per_step * (spec.max_staleness + 1))


def _bool(value: bool) -> str:
    return "true" if value else "false"
