"""SkyRL 0.4.0's native timers, and what each is in the common vocabulary."""

from collections.abc import Mapping

from harness.protocol.phases import Phase
from harness.protocol.spec import Placement

# Native timers of `skyrl.train.trainer` and `skyrl.train.fully_async_trainer`, and (below the blank line) named
# functions of theirs that no native timer covers. None: a container, or a detail inside a leaf.
PHASES: Mapping[str, Phase | None] = {
    "step": None,
    "run_training": None,
    "generate": Phase.GENERATION,
    "wait_for_generation_buffer": Phase.WAIT_ROLLOUT,
    "postprocess_generator_output": Phase.DATA,
    "convert_to_training_input": Phase.DATA,
    "log_train_results": Phase.OVERHEAD,
    "fwd_logprobs_values_reward": Phase.LOGPROB,
    "apply_reward_kl_penalty": Phase.REWARD,
    "compute_advantages_and_returns": Phase.ADVANTAGE,
    "dump_data_batch": Phase.DATA,
    "train_critic_and_policy": Phase.TRAIN,
    "critic_train": None,
    "policy_train": None,
    "sync_weights": Phase.WEIGHT_SYNC,
    "sync_weights_to_inference_engines": Phase.WEIGHT_SYNC,
    "init_weight_sync_state": Phase.OVERHEAD,
    "update_ref_with_policy": Phase.OVERHEAD,
    "save_checkpoints": Phase.CHECKPOINT,
    "save_hf_model": Phase.CHECKPOINT,
    "cleanup_old_checkpoints": Phase.CHECKPOINT,
    "load_checkpoints": Phase.CHECKPOINT,
    "eval": Phase.EVAL,
    #
    "prepare_generator_input": Phase.DATA,
    "remove_tail_data": Phase.DATA,
    "client.sleep": Phase.OFFLOAD,
    "tracker.log": Phase.OVERHEAD,
    "mark_consumed_uids": Phase.OVERHEAD,
}


def phases_for(placement: Placement) -> Mapping[str, Phase | None]:
    """The map of one placement: with separate pools, the trainer's `generate` is its wait for the rollout side."""
    if placement is Placement.COLOCATED:
        return PHASES
    return {**PHASES, "generate": Phase.WAIT_ROLLOUT}
