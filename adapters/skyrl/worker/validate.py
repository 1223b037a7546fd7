"""`python -m adapters.skyrl.worker.validate SPEC`: SkyRL's own validation of a spec's configuration; starts nothing."""

import json
import sys
from pathlib import Path
from typing import Any

from adapters.skyrl.overrides import overrides
from harness.protocol.spec import RunSpec


def validate(spec: RunSpec, run_dir: Path, model: str) -> Any:
    """The real SkyRLTrainConfig of a spec, after SkyRL's `validate_cfg`.

    Raises:
        ValueError, AssertionError, NotImplementedError: as SkyRL raises them.
    """
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.utils import validate_cfg

    config: Any = SkyRLTrainConfig.from_cli_overrides([*overrides(spec, run_dir), f"trainer.policy.model.path={model}"])
    validate_cfg(config)
    return config


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        spec_path = Path(argument)
        spec = RunSpec.load_file(spec_path)
        config = validate(spec, spec_path.parent, spec.model)
        engine = config.generator.inference_engine
        print(
            json.dumps(
                {
                    "placement": spec.placement.value,
                    "colocate_all": config.trainer.placement.colocate_all,
                    "fully_async": config.trainer.fully_async.enabled,
                    "train_gpus": config.trainer.placement.policy_num_gpus_per_node,
                    "engines": engine.num_engines,
                    "tensor_parallel_size": engine.tensor_parallel_size,
                    "policy_loss_type": config.trainer.algorithm.policy_loss_type,
                    "weight_sync_backend": engine.weight_sync_backend,
                }
            )
        )
