"""Models made on this machine: a tokenizer with a chat template, and random weights of a published shape.

Random weights give the same schedule, bytes and FLOPs as trained ones when lengths are imposed; their power draw does
depend on data, so reports label it.
"""

import fcntl
import json
import os
import shutil
import sysconfig
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

from harness.protocol.models import SHAPES, ModelShape

RECIPE = 1  # raised when what is written below changes, so that a cached model is never a different one
SHARD_BYTES = 4 << 30
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
ROLES = (
    "assistant",
    "user",
    "system",
)  # one token each, as in trained tokenizers: a short observation fits its wrapper
CHAT_TEMPLATE = (
    "{%- for m in messages %}"
    "{%- if m.role == 'tool' %}"
    "{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def cache_root() -> Path:
    """Where made models are kept: BENCH_CACHE, else the user's cache folder."""
    base = os.environ.get("BENCH_CACHE")
    if base:
        return Path(base) / "models"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "agentic-rl-bench" / "models"


def resolve_model(name: str, dtype: str) -> str:
    """The path (or hub name) a framework loads for a spec's `model`; a random one is made once and cached.

    Args:
        name: `tiny`, `random:qwen3-*`, a path, or a hub name.
        dtype: `float32` or `bfloat16`, of made weights.
    """
    shape = SHAPES.get(name)
    if shape is None:
        return name
    folder = cache_root() / f"{name.replace(':', '-')}-{dtype}-r{RECIPE}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
            partial.mkdir()
            make_model(partial, shape, getattr(torch, dtype))
            (partial / "complete").touch()
            partial.rename(folder)
    return str(folder)


def make_model(folder: Path, shape: ModelShape, dtype: torch.dtype) -> None:
    """Writes tokenizer, config and sharded safetensors; the same shape and dtype give the same weights."""
    tokenizer = make_tokenizer(shape.vocabulary)
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_positions,
        tie_word_embeddings=shape.tied_embeddings,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        architectures=["Qwen3ForCausalLM"],
        dtype=dtype,
    )
    config.save_pretrained(folder)
    _write_weights(folder, config, shape, dtype)


def make_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE with chat and tool tags, filled up so that every id of the vocabulary decodes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # Any English text that every Python has will do: merges only decide how long a rendered observation is.
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("a*.py"))[:20]
    tokenizer.train(
        [str(path) for path in sources],
        trainers.BpeTrainer(
            vocab_size=min(vocabulary - len(TAGS) - len(ROLES), 1_500),
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=list(SPECIAL),
        ),
    )
    tokenizer.add_tokens([*TAGS, *ROLES])
    missing = vocabulary - tokenizer.get_vocab_size()
    tokenizer.add_tokens([f"<|filler_{i}|>" for i in range(missing)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = CHAT_TEMPLATE
    if len(fast) != vocabulary:
        raise RuntimeError(f"tokenizer has {len(fast)} tokens, the model's vocabulary {vocabulary}")
    return fast


def _write_weights(folder: Path, config: Qwen3Config, shape: ModelShape, dtype: torch.dtype) -> None:
    from safetensors.torch import save_file

    with torch.device("meta"):
        state = AutoModelForCausalLM.from_config(config).state_dict()
    if shape.tied_embeddings:
        state.pop("lm_head.weight", None)
    generator = torch.Generator().manual_seed(0)
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    names: dict[str, int] = {}
    total = 0
    for name, meta in state.items():
        nbytes = meta.numel() * dtype.itemsize
        if size and size + nbytes > SHARD_BYTES:
            _save_shard(folder, shards[-1], len(shards), save_file)
            shards[-1] = {}  # written: its tensors need not stay in memory
            shards.append({})
            size = 0
        # Norms are ones, as in a fresh model; matrices have the initializer range of the published configuration.
        tensor = (
            torch.ones(meta.shape, dtype=dtype)
            if meta.dim() == 1
            else (torch.randn(meta.shape, generator=generator) * 0.02).to(dtype)
        )
        shards[-1][name] = tensor
        names[name] = len(shards)
        size += nbytes
        total += nbytes
    _save_shard(folder, shards[-1], len(shards), save_file)
    count = len(shards)
    if count == 1:
        (folder / "model-1.safetensors").rename(folder / "model.safetensors")
        return
    for index in range(1, count + 1):
        (folder / f"model-{index}.safetensors").rename(folder / f"model-{index:05d}-of-{count:05d}.safetensors")
    weight_map = {name: f"model-{index:05d}-of-{count:05d}.safetensors" for name, index in names.items()}
    index_file = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index_file, indent=1))


def _save_shard(folder: Path, tensors: dict[str, torch.Tensor], number: int, save_file: object) -> None:
    save_file(tensors, folder / f"model-{number}.safetensors", metadata={"format": "pt"})  # type: ignore[operator]
