"""What a training worker records: the difference of its recomputed log-probabilities from the engine's."""

from typing import Any

from adapters.areal.worker.rpc import process_recorder
from adapters.child.steps import record_logprob_difference
from adapters.child.track import require


def tap_actor() -> None:
    """Watches `PPOActor._compute_logp`, where both log-probabilities of a batch are at hand, without moving them.

    Raises:
        TapError: the method is gone.
    """
    from areal.trainer.ppo import actor

    owner: Any = require(actor, "PPOActor")
    real: Any = require(owner, "_compute_logp")

    def _compute_logp(self: Any, data: dict[str, Any]) -> Any:
        ours = real(self, data)
        if ours is not None and "versions" in data:  # the probe's batch has none
            _record(int(self.engine.get_version()), ours, data)
        return ours

    owner._compute_logp = _compute_logp


def _record(version: int, ours: Any, data: dict[str, Any]) -> None:
    import torch

    # AReaL keeps at position t the log-probability of token t + 1.
    def shifted(key: str) -> Any:
        return torch.roll(data[key].cpu(), shifts=-1, dims=-1)

    mask, versions = shifted("loss_mask"), shifted("versions")
    fresh = [
        row
        for row in range(mask.shape[0])
        if bool((mask[row] > 0).any()) and bool((versions[row][mask[row] > 0] == version).all())
    ]
    record_logprob_difference(
        process_recorder("train"), version + 1, ours.float().cpu(), shifted("logprobs"), mask, fresh
    )
