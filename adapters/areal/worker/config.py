"""A spec's real PPOConfig, and AReaL's own validation of it.

`python -m adapters.areal.worker.config SPEC...` validates specs without starting anything.
"""

import json
import sys
from pathlib import Path
from typing import Any

from adapters.areal.overrides import model_keys, overrides
from harness.protocol.spec import RunSpec


def make_config(spec: RunSpec, run_dir: Path, model: str) -> Any:
    """The PPOConfig of a spec: keys are checked by AReaL's dataclasses, values by their `__post_init__`.

    Raises:
        omegaconf.errors.OmegaConfBaseException: a key that PPOConfig does not have, or a value of the wrong type.
        ValueError: as AReaL raises it.
    """
    from areal.api.cli_args import PPOConfig, to_structured_cfg
    from omegaconf import OmegaConf

    given = OmegaConf.from_dotlist([*overrides(spec, run_dir), *model_keys(model, spec.engine)])
    config: Any = OmegaConf.to_object(to_structured_cfg(given, config_cls=PPOConfig))
    return config


def validate(config: Any) -> None:
    """AReaL's `PPOTrainer._validate_cfg`, on a trainer that has only what it reads.

    Raises:
        ValueError: as AReaL raises it.
        TapError: the method is gone.
    """
    from areal import PPOTrainer
    from areal.api.alloc_mode import ModelAllocation

    from adapters.child.track import require

    check: Any = require(PPOTrainer, "_validate_cfg")
    trainer: Any = object.__new__(PPOTrainer)
    trainer.config = config
    trainer.actor_alloc = ModelAllocation.from_str(config.actor.backend, name="actor")
    trainer.rollout_alloc = ModelAllocation.from_str(config.rollout.backend, name="rollout")
    trainer._should_offload_rollout = trainer._is_actor_rollout_colocated(config)
    trainer._should_offload_actor = trainer._should_offload_rollout or config.actor.offload
    trainer._should_offload_critic = trainer._should_offload_ref = trainer._should_offload_teacher = False
    check(trainer)


def _summary(spec: RunSpec, config: Any) -> dict[str, Any]:
    engine = config.vllm if spec.engine == "vllm" else config.sglang
    correction = config.actor.rejection_sampling
    return {
        "placement": spec.placement.value,
        "actor": config.actor.backend,
        "rollout": config.rollout.backend,
        "colocated": "colocation" in str(config.rollout.scheduling_strategy.type),
        "enable_offload": config.enable_offload,
        "weight_update_mode": config.actor.weight_update_mode,
        "max_head_offpolicyness": config.rollout.max_head_offpolicyness,
        "worker_gpus": config.actor.scheduling_spec[0].gpu,
        "correction": None if correction is None else [correction.level, correction.action, correction.upper],
        "recompute": config.actor.should_compute_prox_logp(),
        "engine_dtype": engine.dtype,
    }


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        spec_path = Path(argument)
        spec = RunSpec.load_file(spec_path)
        config = make_config(spec, spec_path.parent, spec.model)
        validate(config)
        print(json.dumps(_summary(spec, config)))
