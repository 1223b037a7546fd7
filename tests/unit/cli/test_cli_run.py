"""`bench run`: what a dry run prints (and that it writes nothing), and the exit code of each way to end."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import harness.run
from harness.cli import call
from harness.envs.reachable import Reachable
from harness.protocol.errors import EnvError, WorkerError
from harness.protocol.spec import RunSpec

TORCH = "torch==2.13.0+cpu"
PLACED = ["run", "--framework", "skyrl", "--placement", "async", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name in ("BENCH_SKYRL_PYTHON", "SEARXNG_URL", "SERPER_API_KEY", "TAVILY_API_KEY", "BRAVE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("harness.envs.reachable.ask_pip", lambda *_: [Reachable(pin=TORCH, found=True)])


def test_dry_run_prints_all_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*PLACED, "-o", "trainer.policy.optimizer_config.lr=1e-3", "-o", "my.key=two words", "--dry-run"]
    assert call(arguments) == 0
    first = capsys.readouterr()
    assert list(tmp_path.iterdir()) == []
    for part in (
        "nothing is written",
        "PYTHON -m adapters.skyrl.worker",
        f"{tmp_path}/runs/RUN/spec.json",
        "HF_HUB_OFFLINE=1",
        "trainer.train_batch_size=4",
        "my.key=two words",
        "this machine can start it",
        "to be built",
    ):
        assert part in first.out
    spec = first.out[first.out.index("  {") :]
    assert RunSpec.from_json(spec).overrides["trainer.policy.optimizer_config.lr"] == "1e-3"
    assert call(arguments) == 0
    assert capsys.readouterr().out == first.out


def test_dry_run_says_how_the_tool_server_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([*PLACED, "--tools", "local", "--seed", "3", "--dry-run"]) == 0
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if "workloads.deep_research.serving" in line]
    for part in ("--tools local", f"--address {tmp_path}/runs/RUN/tools.json", f"--corpus {tmp_path}/cache/corpora/"):
        assert part in line
    assert list(tmp_path.iterdir()) == []  # the corpus is not built either

    monkeypatch.setenv("BRAVE_API_KEY", "not-to-be-shown")
    assert call([*PLACED, "--tools", "web", "--web-cache", "off", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "--tools web:brave" in out
    assert "--cache off" in out
    assert "not-to-be-shown" not in out

    monkeypatch.delenv("BRAVE_API_KEY")
    assert call([*PLACED, "--tools", "web", "--dry-run"]) == 0
    assert "this machine can't start it: --tools web has no search provider" in capsys.readouterr().out

    assert call([*PLACED, "--dry-run"]) == 0
    assert "tool server\n  none" in capsys.readouterr().out


def test_dry_run_of_an_8_gpu_node_works_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "--framework", "skyrl", "--placement", "async", "--device", "cuda", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "4 GPU(s) to train + 4 to roll out" in out
    assert "random:qwen3-14b" in out
    assert "this machine can't start it: device = cuda" in out


def test_dry_run_leaves_a_read_only_folder_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*PLACED, "--runs-dir", str(tmp_path / "not" / "there"), "--dry-run"]) == 0
    assert not (tmp_path / "not").exists()


def test_the_python_of_a_container_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCH_SKYRL_PYTHON", "/opt/skyrl/bin/python")
    assert call([*PLACED, "--dry-run"]) == 0
    assert "/opt/skyrl/bin/python (from BENCH_SKYRL_PYTHON)" in capsys.readouterr().out


def test_a_file_and_flags_reach_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RunSpec] = []

    def run(spec: RunSpec, *_: Any, **__: Any) -> None:
        seen.append(spec)
        raise WorkerError("stop here")

    monkeypatch.setattr(harness.run, "run", run)
    (tmp_path / "run.toml").write_text('framework = "skyrl"\nplacement = "colocated"\nsteps = 20\nseed = 7\n')
    assert call(["run", "-c", "run.toml", "--steps", "5", "--fault", "die=2", "--as-shipped"]) == 4
    (spec,) = seen
    assert (spec.placement.value, spec.steps, spec.seed, spec.faults, spec.as_shipped) == (
        "colocated",
        5,
        7,
        ("die=2",),
        True,
    )


def test_a_run_says_what_it_will_do_and_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise EnvError("no network")

    monkeypatch.setattr(harness.run, "run", run)
    assert call(["run", "--framework", "skyrl", "--placement", "async"]) == 3
    err = capsys.readouterr().err
    for part in ("skyrl 0.4.0, async", "device = cpu: ", "tiny", "to be built", "GB on disk", "functional check"):
        assert part in err
    assert err.endswith("bench: no network\n")


@pytest.mark.parametrize(("found", "code"), [(False, 3), (None, 4), (True, 4)])
def test_a_pin_that_pip_does_not_find_is_told_before_anything_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: bool | None, code: int
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise WorkerError("begun")

    monkeypatch.setattr(harness.run, "run", run)
    monkeypatch.setattr(
        "harness.envs.reachable.ask_pip", lambda *_: [Reachable(pin=TORCH, found=found, why="no answer in 20 s")]
    )
    assert call(PLACED) == code
    err = capsys.readouterr().err
    assert ("PIP_EXTRA_INDEX_URL" in err and "begun" not in err) == (found is False)
    assert (f"whether pip finds {TORCH} is not known (no answer in 20 s)" in err) == (found is None)


def test_a_made_model_says_its_size_first_and_must_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise WorkerError("begun")

    monkeypatch.setattr(harness.run, "run", run)
    asked = [*PLACED, "--model", "random:qwen3-0.6b"]
    assert call([*asked, "--dry-run"]) == 0
    assert "to be made once: 2.4 GB in " in capsys.readouterr().out  # 0.596e9 parameters of 4 bytes on cpu
    cuda = ["run", "--framework", "skyrl", "--placement", "async", "--device", "cuda", "--dry-run"]
    assert call(cuda) == 0
    assert "random:qwen3-14b, random weights, to be made once: 29.5 GB in " in capsys.readouterr().out
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 10**12, 10**9))  # type: ignore[attr-defined]
    assert call(asked) == 3
    assert "take 2.4 GB, and " in (err := capsys.readouterr().err)
    assert "has 1.0 GB free" in err
    made = tmp_path / "cache/models/random-qwen3-0.6b-float32-r1"
    made.mkdir(parents=True)
    (made / "complete").touch()
    assert call(asked) == 4
    assert f"made before: {made}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (EnvError("pip failed\nlast line"), 3, "bench: pip failed\nlast line\n"),
        (WorkerError("skyrl died"), 4, "bench: skyrl died\n"),
        (KeyboardInterrupt(), 130, "bench: interrupted\n"),
    ],
)
def test_errors_have_their_codes(
    error: BaseException, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(harness.run, "run", run)
    assert call(PLACED) == code
    err = capsys.readouterr().err
    assert err.endswith(text)
    assert "Traceback" not in err


def test_a_defect_is_one_line_and_its_traceback_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(harness.run, "run", run)
    assert call(PLACED) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("bench: unexpected ZeroDivisionError: by nought; this is a defect of bench, details in ")
    path = Path(last.rpartition(" ")[2])
    assert "ZeroDivisionError: by nought" in path.read_text()
    path.unlink()
