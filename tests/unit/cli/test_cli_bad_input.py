"""Every bad request ends in exit code 2 and one line that names what was wrong; nothing is written."""

from pathlib import Path

import pytest

from harness.cli import call

PLACED = ["run", "--framework", "skyrl", "--placement", "async", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run"], ["framework is not given", "--framework skyrl"]),
        (["run", "--framework", "skyrl"], ["placement is not given", "colocated, disaggregated, async"]),
        (["run", "--framework", "skryl", "--placement", "async"], ["framework = 'skryl'", "did you mean skyrl?"]),
        (["run", "--framework", "skyrl", "--placement", "anync"], ["placement = 'anync'", "did you mean async?"]),
        ([*PLACED, "--gpus", "0+1"], ["gpus (train pool) = 0", "at least 1 GPU"]),
        ([*PLACED, "--gpus", "8"], ["gpus (rollout pool) = 0"]),
        ([*PLACED, "--gpus", "4+"], ["gpus = '4+'", "e.g. 4+4"]),
        ([*PLACED, "--steps", "-1"], ["steps = -1", "at least 1"]),
        ([*PLACED, "--steps", "many"], ["'--steps'", "'many'", "not a valid integer"]),
        ([*PLACED, "--timeout", "-1"], ["timeout = -1.0"]),
        ([*PLACED, "--latency-scale", "nan"], ["latency_scale = nan"]),
        ([*PLACED, "--max-staleness", "0"], ["max_staleness = 0", "1 or more when async"]),
        ([*PLACED, "--context-tokens", "100"], ["context_tokens = 100", "prompt", "sample"]),
        (["run", "--framework", "simulated", "--placement", "async", "--engine", "foo"], ["engine = foo", "none"]),
        ([*PLACED, "--load", "live"], ["tools = mock", "allowed with load = live"]),
        ([*PLACED, "--tools", "wub"], ["tools = 'wub'", "mock, local, web"]),
        ([*PLACED, "--device", "cuda"], ["device = cuda", "no NVIDIA GPU"]),
        ([*PLACED, "--stepz", "3"], ["--stepz", "--steps"]),
        ([*PLACED, "-o", "lr"], ["'lr'", "KEY=VALUE"]),
        ([*PLACED, "-c", "none.toml"], ["none.toml", "No such file"]),
        ([*PLACED, "extra"], ["extra"]),
        (["runn"], ["runn"]),
        (["report"], ["RUNS"]),
        (["report", "latest"], ["run = latest", "no run under /", "/runs; "]),
        (["report", "nothing"], ["run = nothing", "no such run folder"]),
        (["collect", "cache"], ["run = cache", "no such run folder"]),
        (["logs", "nothing"], ["run = nothing"]),
        (["list", "cats"], ["cats"]),
        (["env", "create", "skryl"], ["framework = 'skryl'", "did you mean skyrl?"]),
        (["env", "check", "skyrl", "--device", "gpu"], ["device = 'gpu'"]),
    ],
    ids=lambda value: " ".join(value[:12]) if isinstance(value, list) else "",
)
def test_one_line_and_exit_2(
    arguments: list[str],
    parts: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the same on a machine with GPUs
    assert call(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("bench: ")
    assert captured.err.count("\n") == 1
    for part in parts:
        assert part in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("stepz = 3", ["stepz = 3", "did you mean steps?", "run.toml"]),
        ("steps = 3\nseed 4", ["not valid TOML", "line 2", "run.toml"]),
        ("steps = 'x'", ["steps = 'x'", "a whole number", "run.toml"]),
        ("[overrides.skyrll]", ["overrides.skyrll", "did you mean skyrl?"]),
    ],
)
def test_a_bad_file(text: str, parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text(text)
    assert call([*PLACED, "-c", "run.toml"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_a_folder_that_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    assert call(["report", "photos"]) == 2
    assert "not a run folder (it has no spec.json)" in capsys.readouterr().err
