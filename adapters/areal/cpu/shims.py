"""AReaL's processes on CPU: three patches, each with its reason. AReaL itself knows a CPU platform (gloo)."""

from typing import Any

from adapters.child.track import require

SERVER = "adapters.areal.cpu.server"


def install_in_controller() -> None:
    """For the process that starts the workers.

    Raises:
        TapError: a patch point is gone.
    """
    # `enable_offload` makes the scheduler preload torch_memory_saver's CUDA hook. The switch itself stays on, so that
    # the trainer runs its real offload code against AReaL's own mock of the saver.
    from areal.infra.scheduler import local

    module: Any = local
    require(module, "get_tms_env_vars")
    module.get_tms_env_vars = lambda: {"TMS_INIT_ENABLE": "1"}


def install_in_worker() -> None:
    """For the RPC workers.

    Raises:
        TapError: a patch point is gone.
    """
    _serve_with_ours()
    _pack_with_positions()


def _serve_with_ours() -> None:
    """AReaL's server module is written for vLLM 0.19 on CUDA and cannot be imported with the CPU engine's version."""
    from areal.api import cli_args

    module: Any = cli_args
    real: Any = require(module, "get_py_cmd")

    def get_py_cmd(name: str, args: dict[str, Any]) -> list[str]:
        return list(real(SERVER if name.endswith("areal_vllm_server") else name, args))

    module.get_py_cmd = get_py_cmd


def _pack_with_positions() -> None:
    """Packed sequences must not see each other without flash-attn.

    The FSDP engine packs sequences and hands transformers masks of None, because flash-attn gets the boundaries another
    way. With attn_impl = sdpa an attention mask of None instead lets transformers derive them from the positions.
    """
    from areal.engine import fsdp_engine

    owner: Any = require(fsdp_engine, "FSDPEngine")
    real: Any = require(owner, "_prepare_mb_list")

    def _prepare_mb_list(self: Any, *args: Any, **kwargs: Any) -> Any:
        batches = real(self, *args, **kwargs)
        if self.config.attn_impl == "sdpa":
            for batch in (*batches.mbs, *batches.padded_mbs):
                batch["attention_mask"] = None
        return batches

    owner._prepare_mb_list = _prepare_mb_list
