"""`bench report --html`: where the page goes, and what is refused."""

from pathlib import Path

import pytest

from harness.cli import call

RUN = ["run", "--framework", "simulated", "--placement", "colocated", "--steps", "4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of the simulated framework."""
    runs = tmp_path_factory.mktemp("runs")
    assert call([*RUN, "--runs-dir", str(runs)]) == 0
    (folder,) = [path.parent for path in runs.glob("*/spec.json")]
    return folder


def test_beside_the_markdown(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert call(["report", str(run), "--html", "-o", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["figures", "report.html", "report.md"]
    assert capsys.readouterr().out.splitlines()[-1] == f"written: {out / 'report.html'}"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "simulated, colocated: simulated" in page


def test_one_file_and_nothing_else(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "new" / "page.html"
    before = sorted(path.name for path in run.iterdir())
    assert call(["report", str(run), "--html", "-o", str(page)]) == 0
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]
    assert sorted(path.name for path in run.iterdir()) == before
    assert capsys.readouterr().out.splitlines()[-1] == f"written: {page}"


def test_a_page_needs_its_flag(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["report", str(run), "-o", str(tmp_path / "page.html")]) == 2
    assert "--html is not given" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert call(["report", str(run), "--html", "-o", str(tmp_path / "file" / "page.html")]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "file" in error


def test_a_sweeps_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[common]\nframework = "simulated"\nsteps = 4\nlatency_scale = 0.05\n'
    text += '[matrix]\nplacement = ["colocated", "async"]\n'
    (tmp_path / "sweep.toml").write_text(text, encoding="utf-8")
    folder = tmp_path / "sweep"
    words = ["-c", str(tmp_path / "sweep.toml"), "--out", str(folder), "--runs-dir", str(tmp_path / "runs")]
    assert call(["sweep", *words]) == 0, capsys.readouterr().err
    page = tmp_path / "sweep.html"
    assert call(["report", str(folder), "--html", "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Frameworks x placements" in text
    assert "data:image/png;base64," in text
    assert "figures/" not in text
