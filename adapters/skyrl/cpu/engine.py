"""vLLM's worker extension on CPU, named in `engine_init_kwargs.worker_extension_cls`."""

import torch

# vLLM calls torch.accelerator.synchronize() after each weight update, and it raises where there is no accelerator.
if not torch.accelerator.is_available():
    torch.accelerator.synchronize = lambda *args, **kwargs: None

from skyrl.backends.skyrl_train.inference_servers.new_inference_worker_wrap import (
    NewInferenceWorkerWrap,
)


class CPUWorkerExtension(NewInferenceWorkerWrap):
    """SkyRL's own extension (it registers the `delta` receiver), imported after the shim above."""
