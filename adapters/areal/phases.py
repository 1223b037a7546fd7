"""AReaL 1.0.4's native timers, and what each is in the common vocabulary."""

from collections.abc import Mapping

from harness.protocol.phases import Phase
from harness.protocol.spec import Placement

ROLES = ("actor", "critic", "ref", "teacher")

# `record_timing` keys of `areal.trainer.rl_trainer`, and (below the blank line) named functions that no native timer
# covers. None: a container, or a detail inside a leaf.
PHASES: Mapping[str, Phase | None] = {
    "rollout": Phase.GENERATION,
    "critic_values": Phase.LOGPROB,
    "ref_logp": Phase.LOGPROB,
    "teacher_logp": Phase.LOGPROB,
    "recompute_logp": Phase.LOGPROB,
    "compute_advantage": Phase.ADVANTAGE,
    "train_step": Phase.TRAIN,
    "critic_train_step": Phase.TRAIN,
    "update_weights": Phase.WEIGHT_SYNC,
    "save": None,  # AReaL times these three in every step, whether they do anything or not: what they do is below
    "checkpoint_for_recover": None,
    "eval": None,
    "clear_batches": Phase.OVERHEAD,
    "rollout_pause": Phase.OFFLOAD,
    "rollout_pause_generation": Phase.OFFLOAD,
    "rollout_offload": Phase.OFFLOAD,
    "rollout_onload": Phase.OFFLOAD,
    "rollout_continue_generation": Phase.OFFLOAD,
    "rollout_resume": Phase.OFFLOAD,
    **{f"{role}_{move}": Phase.OFFLOAD for role in ROLES for move in ("onload", "offload")},
    #
    "rollout.pause": Phase.WEIGHT_SYNC,
    "rollout.resume": Phase.WEIGHT_SYNC,
    "actor.save": Phase.CHECKPOINT,
    "evaluate_fn": Phase.EVAL,
    "saver.maybe_wait_for_staging": Phase.CHECKPOINT,
    "export_and_commit_stats": Phase.OVERHEAD,
    "save_perf_tracer": Phase.OVERHEAD,
    "proof": Phase.OVERHEAD,
}


def phases_for(placement: Placement) -> Mapping[str, Phase | None]:
    """The map of one placement: with separate pools, the trainer's `rollout` is its wait for the rollout side."""
    if placement is Placement.COLOCATED:
        return PHASES
    return {**PHASES, "rollout": Phase.WAIT_ROLLOUT}
