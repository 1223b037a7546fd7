"""vLLM's worker extension on CPU, named in `vllm.worker_extension_cls`.

AReaL's own joins the weight-update group and keeps the tensors' names and shapes; only the loading differs. vLLM's CPU
layers keep their weights packed for oneDNN, and a plain `load_weights` fails there and leaves the model half updated:
`reload_weights` unpacks, loads and packs again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from areal.engine.vllm_ext.vllm_worker_extension import VLLMWorkerExtension


class CPUWorkerExtension(VLLMWorkerExtension):
    """AReaL's extension, with loads that suit the CPU engine. Answers are (success, message), as AReaL's."""

    model_runner: Any
    weight_update_groups: dict[str, Any]

    def areal_update_weights(self, model_path: str) -> tuple[bool, str]:
        """Loads the checkpoint that the trainer left in a folder."""
        from safetensors.torch import load_file

        def weights() -> Iterator[tuple[str, torch.Tensor]]:
            for path in sorted(Path(model_path).glob("*.safetensors")):
                yield from load_file(path).items()

        return self._reload(weights())

    def areal_update_weight_xccl(self) -> tuple[bool, str]:
        """Receives the tensors that the trainer broadcasts, in the order and shapes that it announced."""
        group = self.weight_update_groups[self.areal_weight_meta_group_name]

        def weights() -> Iterator[tuple[str, torch.Tensor]]:
            announced = (self.areal_weight_meta_names, self.areal_weight_meta_dtypes, self.areal_weight_meta_shapes)
            for name, dtype, shape in zip(*announced, strict=True):
                tensor = torch.empty(shape, dtype=getattr(torch, str(dtype).removeprefix("torch.")))
                torch.distributed.broadcast(tensor, src=0, group=group)
                yield name, tensor

        return self._reload(weights())

    def _reload(self, weights: Iterator[tuple[str, torch.Tensor]]) -> tuple[bool, str]:
        try:
            self.model_runner.reload_weights(weights_iterator=weights)
        except Exception as error:
            return False, f"{type(error).__name__}: {error}"
        return True, "Success"
