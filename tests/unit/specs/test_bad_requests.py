"""Every bad request is a SpecError that names the key, the value and what is allowed."""

from pathlib import Path
from typing import Any

import pytest

from harness.protocol.errors import SpecError
from harness.specs import Machine, resolve

NONE = Machine(why="no NVIDIA GPU is visible")
GOOD: dict[str, Any] = {"framework": "skyrl", "placement": "async", "device": "cpu"}


def refusal(flags: dict[str, Any], **more: Any) -> str:
    with pytest.raises(SpecError) as caught:
        resolve({**GOOD, **flags}, machine=NONE, **more)
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ({"framework": None}, ["framework is not given", "simulated, skyrl", "--framework skyrl"]),
        ({"placement": None}, ["placement is not given", "colocated, disaggregated, async"]),
        ({"framework": "skyrll"}, ["framework = 'skyrll'", "did you mean skyrl?", "simulated"]),
        ({"placement": "asynch"}, ["placement = 'asynch'", "one of colocated", "did you mean async?"]),
        ({"device": "gpu"}, ["device = 'gpu'", "one of auto, cuda, cpu"]),
        ({"offload": "all"}, ["offload = 'all'", "one of none, optimizer, full"]),
        ({"gpus": "four"}, ["gpus = 'four'", "e.g. 4+4"]),
        ({"gpus": "4+4+4"}, ["gpus = '4+4+4'"]),
        ({"gpus": "-4+4"}, ["gpus = '-4+4'"]),
        ({"gpus": "0+1"}, ["gpus (train pool) = 0", "at least 1 GPU in each pool"]),
        ({"gpus": "1+0"}, ["gpus (rollout pool) = 0"]),
        ({"gpus": "8"}, ["gpus (rollout pool) = 0", "--gpus 4+4"]),
        ({"gpus": "0", "placement": "colocated"}, ["gpus (train pool) = 0"]),
        ({"gpus": "4+4", "placement": "colocated"}, ["gpus = 4+4", "one number when colocated"]),
        ({"steps": 0}, ["steps = 0", "at least 1"]),
        ({"steps": -1}, ["steps = -1"]),
        ({"batch_size": -4}, ["batch_size = -4"]),
        ({"group_size": 0}, ["group_size = 0"]),
        ({"nodes": 0}, ["nodes = 0"]),
        ({"seed": -1}, ["seed = -1", "0 or more"]),
        ({"timeout": -5.0}, ["timeout = -5.0", "more than 0"]),
        ({"sample_hz": -1.0}, ["sample_hz = -1.0"]),
        ({"dcgm": "localhost:9400"}, ["dcgm = localhost:9400", "http://"]),
        ({"latency_scale": -1.0}, ["latency_scale = -1.0"]),
        ({"rollout_tp": 2}, ["rollout_tp = 2", "divisor"]),
        ({"warmup_steps": 8}, ["warmup_steps = 8", "fewer than steps = 8"]),
        ({"max_staleness": 0}, ["max_staleness = 0", "1 or more when async"]),
        ({"max_staleness": 2, "placement": "colocated"}, ["max_staleness = 2", "0 when colocated"]),
        ({"max_staleness": 1, "placement": "disaggregated"}, ["max_staleness = 1", "0 when disaggregated"]),
        ({"workload": "chess"}, ["workload = 'chess'", "deep-research"]),
        ({"preset": "deep-reserch"}, ["preset = 'deep-reserch'", "did you mean deep-research?"]),
        ({"load": "live"}, ["tools = mock", "allowed with load = live is local, web or replay"]),
        ({"load": "live", "tools": "local", "reward": "probe"}, ["reward = 'probe'", "exact, f1 or MODULE:FUNCTION"]),
        ({"load": "live", "tools": "web"}, ["dataset = generated", "corpus or a file"]),
        ({"tools": "wub"}, ["tools = 'wub'", "mock, local, web"]),
        ({"tools": "mock:x"}, ["tools = 'mock:x'", "mock, local, web"]),
        ({"tools": "web:a,,b"}, ["tools = 'web:a,,b'", "web:NAME,NAME"]),
        ({"tools": "replay:"}, ["tools = 'replay:'", "replay:FILE"]),
        ({"tools": "replay:/no/such.parquet"}, ["tools = '/no/such.parquet'", "No such file"]),
        ({"tools": "record:x.csv"}, ["record = 'x.csv'", "ends in .parquet"]),
        ({"tools": "local", "record": "/no/such/x.parquet"}, ["record = '/no/such/x.parquet'", "no folder /no/such"]),
        ({"policy": "scripted"}, ["policy = scripted", "allowed with load = live"]),
        ({"reward": "f1"}, ["reward = 'f1'", "plan or probe"]),
        ({"corpus": "generated:10"}, ["corpus = 'generated:10'", "1,000 to 1,000,000 pages"]),
        ({"corpus": "/no/such"}, ["corpus = '/no/such'", "bench tools build"]),
        ({"dataset": "x.csv"}, ["dataset = 'x.csv'", ".parquet or .jsonl"]),
        ({"dataset": "/no/x.jsonl"}, ["dataset = '/no/x.jsonl'", "No such file"]),
        ({"dataset": "corpus"}, ["dataset = corpus", "no corpus is given"]),
        ({"columns": {"question": "q"}}, ["columns.question", "prompt, answer, extra"]),
        ({"preset": "/no/x.json"}, ["preset = '/no/x.json'", "No such file"]),
        ({"max_turns": 0}, ["max_turns = 0"]),
        ({"model": "random:qwen3-15b"}, ["model = 'random:qwen3-15b'", "did you mean random:qwen3-14b?"]),
        ({"model": "/no/such/folder"}, ["model = '/no/such/folder'", "a folder"]),
        ({"context_tokens": 8_192}, ["context_tokens = 8192", "at most 4,096", "tiny"]),
        ({"context_tokens": 64}, ["context_tokens = 64", "prompt", "sample", "allowed is at least"]),
        ({"engine": "sglang"}, ["skyrl", "engine = sglang"]),
        ({"faults": ("Die!",)}, ["faults = Die!"]),
        ({"sample_hz": float("nan")}, ["sample_hz = nan"]),
        ({"timeout": float("inf")}, ["timeout = inf"]),
        ({"latency_scale": float("inf")}, ["latency_scale = inf"]),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_flags(flags: dict[str, Any], parts: list[str]) -> None:
    message = refusal(flags)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("stepz = 5", ["stepz = 5", "unknown key", "did you mean steps?", "batch_size"]),
        ("batch-size = 5", ["batch-size = 5", "did you mean batch_size?"]),
        ("spec_digest = 'x'", ["spec_digest = 'x'", "unknown key"]),
        ("steps = 'eight'", ["steps = 'eight'", "a whole number"]),
        ("steps = '8'", ["steps = '8'", "a whole number"]),
        ("steps = 8.5", ["steps = 8.5", "a whole number"]),
        ("steps = true", ["steps = True", "a whole number"]),
        ("timeout = 'soon'", ["timeout = 'soon'", "a number of seconds"]),
        ("timeout = true", ["timeout = True"]),
        ("as_shipped = 1", ["as_shipped = 1", "true or false"]),
        ("model = 14", ["model = 14", "a text"]),
        ("gpus = [4, 4]", ["gpus = [4, 4]", "e.g. 4+4"]),
        ("gpus = true", ["gpus = True"]),
        ("gpus = {train = 4}", ["gpus = {'train': 4}"]),
        ("gpus = {train = 4, rollout = '4'}", ["gpus = {'train': 4, 'rollout': '4'}"]),
        ("placement = 3", ["placement = 3", "one of"]),
        ("placement = ['async']", ["placement = ['async']", "one of"]),
        ("steps = 5\nseed = = 3", ["not valid TOML", "line 2"]),
        ("steps = 5\nsteps = 6", ["not valid TOML", "overwrite"]),
        ("[overrides.skyrll]\na = 1", ["[overrides.skyrll]", "did you mean skyrl?"]),
        ("[overrides]\nlr = 1", ["one table per framework"]),
        ("overrides = 3", ["one table per framework"]),
        ("[overrides.skyrl]\nfiles = ['x']", ["files = ['x']", "write a list as the text"]),
        ("[run]\nsteps = 3", ["run = {'steps': 3}", "unknown key"]),
    ],
)
def test_toml(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    message = refusal({}, config=path)
    for part in [*parts, "run.toml"]:
        assert part in message


def test_toml_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refusal({}, config=tmp_path / "none.toml")
    assert "directory" in refusal({}, config=tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert "not valid TOML" in refusal({}, config=tmp_path / "binary.toml")


@pytest.mark.parametrize("text", ["lr", "=3", " =3", ""])
def test_overrides(text: str) -> None:
    message = refusal({}, overrides=[text])
    assert repr(text) in message
    assert "KEY=VALUE" in message


def test_unknown_flag_key_is_refused_too() -> None:
    assert "did you mean steps?" in refusal({"stepz": 3})
