"""What a newcomer does first, and what must not be called a defect of bench."""

from pathlib import Path

import pytest

from harness.cli import call


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("BENCH_SKYRL_PYTHON", raising=False)


@pytest.mark.parametrize(("placement", "gpus"), [("colocated", "8"), ("async", "4+4")])
def test_a_node_is_shown_on_a_laptop(placement: str, gpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", "--framework", "skyrl", "--placement", placement, "--gpus", gpus]
    assert call([*asked, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "device = cuda: assumed for the dry run" in out
    assert "this machine can't start it" in out
    assert call(asked) == 2
    assert "--device cuda --dry-run" in capsys.readouterr().err
