"""verl 0.9.1's native timers, and what each is in the common vocabulary."""

from collections.abc import Mapping

from harness.protocol.phases import Phase
from harness.protocol.spec import Placement

# Native timers of verl.trainer.ppo.v1, and (below the blank line) named functions of its controller that no native
# timer covers. None: a container, or a detail inside a leaf.
PHASES: Mapping[str, Phase | None] = {
    "step": None,
    # The wait for sampleable groups and, when colocated, the engines' sleep: two phases, named by what is inside.
    "gen": None,
    "reward": Phase.REWARD,
    "old_log_prob": Phase.LOGPROB,
    "ref": Phase.LOGPROB,
    "values": Phase.LOGPROB,
    "adv": Phase.ADVANTAGE,
    "update_critic": Phase.TRAIN,
    "update_actor": Phase.TRAIN,
    "update_weights": Phase.WEIGHT_SYNC,
    "switch_to_trainer": Phase.OFFLOAD,
    "switch_wait": Phase.WAIT_ROLLOUT,
    "switch_to_rollout": Phase.WEIGHT_SYNC,
    "save_checkpoint": Phase.CHECKPOINT,
    "testing": Phase.EVAL,
    "dump_rollout_generations": Phase.DATA,
    #
    "replay_buffer.sample": Phase.GENERATION,
    "sleep_replicas": Phase.OFFLOAD,
    "prepare_step": Phase.DATA,
    "balance_batch": Phase.DATA,
    "compute_metrics": Phase.OVERHEAD,
    "kv_clear": Phase.OVERHEAD,
    "tracking.log": Phase.OVERHEAD,
}


def phases_for(placement: Placement) -> Mapping[str, Phase | None]:
    """The map of one placement: with separate pools, the trainer's sampling is its wait for the rollout side."""
    if placement is Placement.COLOCATED:
        return PHASES
    return {**PHASES, "replay_buffer.sample": Phase.WAIT_ROLLOUT}
