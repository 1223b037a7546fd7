"""`python -m adapters.verl.worker.validate SPEC...`: verl's own validation of a configuration; starts nothing."""

import json
import sys
from pathlib import Path
from typing import Any

from adapters.verl.overrides import overrides
from harness.protocol.spec import RunSpec


def validate(spec: RunSpec, run_dir: Path, model: str) -> Any:
    """verl's real configuration of a spec, after its `validate_config` and its rollout configuration's own checks.

    Raises:
        ValueError, AssertionError: as verl raises them.
        hydra.errors.HydraException: a key that verl's configuration does not have.
    """
    import verl.trainer
    from hydra import compose, initialize_config_dir
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    folder = Path(verl.trainer.__path__[0]) / "config"
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        config: Any = compose(
            config_name="ppo_trainer",
            overrides=[*overrides(spec, run_dir), f"actor_rollout_ref.model.path={model}"],
        )
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)  # else only its workers find out, after minutes
    return config


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        spec_path = Path(argument)
        spec = RunSpec.load_file(spec_path)
        config = validate(spec, spec_path.parent, spec.model)
        rollout = config.actor_rollout_ref.rollout
        print(
            json.dumps(
                {
                    "placement": spec.placement.value,
                    "trainer_mode": config.trainer.v1.trainer_mode,
                    "hybrid_engine": config.actor_rollout_ref.hybrid_engine,
                    "train_gpus": config.trainer.n_gpus_per_node,
                    "rollout_nodes": rollout.nnodes,
                    "rollout_gpus": rollout.n_gpus_per_node,
                    "tensor_parallel_size": rollout.tensor_model_parallel_size,
                    "rollout_is": config.algorithm.rollout_correction.rollout_is,
                    "backend": rollout.checkpoint_engine.backend,
                    "engine": rollout.name,
                    "engine_kwargs": dict(rollout.engine_kwargs.get(rollout.name, {})),
                    "max_num_seqs": rollout.max_num_seqs,
                    "memory": rollout.gpu_memory_utilization,
                    "enforce_eager": rollout.enforce_eager,
                    "prefix_caching": rollout.enable_prefix_caching,
                    "logprobs": rollout.calculate_log_probs,
                }
            )
        )
