"""`python -m adapters.verl.worker.validate SPEC...`: verl's own validation of a configuration; starts nothing."""

import json
import sys
from pathlib import Path
from typing import Any

from adapters.verl.overrides import overrides
from harness.protocol.spec import RunSpec


def validate(spec: RunSpec, run_dir: Path, model: str) -> Any:
    """verl's real configuration of a spec, after its `validate_config`.

    Raises:
        ValueError, AssertionError: as verl raises them.
        hydra.errors.HydraException: a key that verl's configuration does not have.
    """
    import verl.trainer
    from hydra import compose, initialize_config_dir
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    folder = Path(verl.trainer.__path__[0]) / "config"
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        config: Any = compose(
            config_name="ppo_trainer",
            overrides=[*overrides(spec, run_dir), f"actor_rollout_ref.model.path={model}"],
        )
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
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
                }
            )
        )
