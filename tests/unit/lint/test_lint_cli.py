"""`bench lint`: exit codes, forms of output, and what is a wrong request."""

import json
import shutil
from pathlib import Path

import pytest

from harness.cli import call

RECORDED = Path(__file__).parent / "recorded"
CLEAN = "run,GPUs,Step time (s),Tokens/s/GPU,Tokens/step\na,8,100.0,600,480000\n"
BROKEN = CLEAN + "b,8,100.0,600,960000\n"
PAIR = "run,Power utilisation,Step time (s)\nsync,34.6%,451\nasync,51.4%,378.4\n"
TOKENS = ["--map", "Tokens/step=tokens_per_step"]


def table(tmp_path: Path, text: str) -> str:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["lint", table(tmp_path, CLEAN), *TOKENS]) == 0
    assert "0 violations" in capsys.readouterr().out
    assert call(["lint", table(tmp_path, BROKEN), *TOKENS]) == 1
    out = capsys.readouterr().out
    for part in ("row 2 (b), line 3", "`tokens_rate`", "960000", "480000", "100.00%", "tokens/s/GPU x GPUs x s"):
        assert part in out


def test_what_is_implied_is_said_and_fails_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["lint", table(tmp_path, PAIR)]) == 0
    out = capsys.readouterr().out
    assert "implies +24.6% joules a step" in out
    assert "row 2 (async) against row 1 (sync)" in out
    assert call(["lint", table(tmp_path, PAIR), "--strict"]) == 1


def test_json_has_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["lint", table(tmp_path, BROKEN), *TOKENS, "--format", "json"]) == 1
    read = json.loads(capsys.readouterr().out)
    assert (read["violations"], read["implied"]) == (1, 0)
    (finding,) = read["sources"][0]["findings"]
    assert (finding["left"], finding["right"], finding["direction"], finding["line"]) == (960000, 480000, "=", 3)
    assert finding["tolerance"] > 0


def test_annotations_of_a_workflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = tmp_path / "a,b:c.csv"
    name.write_text(BROKEN, encoding="utf-8")
    assert call(["lint", str(name), *TOKENS, "--format", "github"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"::error file={tmp_path}/a%2Cb%3Ac.csv,line=3,title=violation%3A tokens_rate::row 2 (b): ")
    assert "%25" in line


def test_equal_files_give_equal_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path, BROKEN + PAIR)
    texts = []
    for _ in range(2):
        call(["lint", path, str(RECORDED / "verl-console.log"), "--all"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert "cannot be checked" in texts[0]


def test_runs_by_name_latest_and_folder(simulated_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--runs-dir", str(simulated_runs)]
    assert call(["lint", "latest", *folder]) == 0
    assert "simulated-async" in capsys.readouterr().out
    assert call(["lint", str(simulated_runs)]) == 0
    assert capsys.readouterr().out.count("0 violations") == 3


def test_what_cannot_be_read_does_not_hide_the_rest(
    simulated_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(simulated_runs, tmp_path / "runs")
    broken = sorted((tmp_path / "runs").iterdir())[0]
    (broken / "tables" / "steps.parquet").write_bytes(b"no table")
    assert call(["lint", str(tmp_path / "runs")]) == 2
    printed = capsys.readouterr()
    assert printed.out.count("0 violations") == 2
    assert "steps.parquet" in printed.err
    assert "Traceback" not in printed.err


def test_limits_given_on_the_command_line(tmp_path: Path) -> None:
    watts = table(tmp_path, "Mean power (W),MFU\n720.0,0.5\n")
    assert call(["lint", watts]) == 0
    assert call(["lint", watts, "--limit-watts", "700"]) == 1
    log = str(RECORDED / "verl-console.log")
    assert call(["lint", log, "--gpus", "2", "--max-staleness", "1"]) == 0
    assert call(["lint", log, "--gpus", "4"]) == 1
    assert call(["lint", log, "--gpus", "4", "--slack", "1"]) == 0
    flops = table(tmp_path, "TFLOPS,MFU\n400,0.404\n")
    assert call(["lint", flops, "--gpu", "H100"]) == 0
    assert call(["lint", flops, "--gpu", "A100"]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-file.csv"], "no such file"),
        (["{tmp}"], "holds none"),
        (["{tmp}/words.txt"], "no table"),
        (["{tmp}/words.txt", "--from", "verl-console"], "no step"),
        (["{tmp}/words.txt", "--from", "mlperf"], "nothing of a mlperf file"),
        (["{tmp}/other.csv"], "--map COLUMN=NAME"),
        (["{tmp}/other.csv", "--map", "colour"], "allowed is COLUMN=NAME"),
        (["{tmp}/other.csv", "--map", "colour=red"], "no figure of that name"),
        (["{tmp}/other.csv", "--map", "size=idle"], "no such column"),
        ([str(RECORDED / "verl-console.log"), "--map", "a=idle"], "it has no columns"),
        (["{tmp}/other.csv", "--gpu", "H900"], "its dense peak is not known"),
        (["{tmp}/damaged.json"], "no table can be read"),
        (["{tmp}/binary.json"], "binary, or text that is not UTF-8"),
    ],
)
def test_wrong_requests(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "words.txt").write_text("only words\n", encoding="utf-8")
    (tmp_path / "other.csv").write_text("colour,taste\nred,sour\n", encoding="utf-8")
    (tmp_path / "damaged.json").write_text('{"a": [1, 2', encoding="utf-8")
    (tmp_path / "binary.json").write_bytes(b"\x00\xff\xfe{")
    assert call(["lint", *(part.replace("{tmp}", str(tmp_path)) for part in arguments)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_sweep_is_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[common]\nframework = "simulated"\nsteps = 4\nlatency_scale = 0.1\n[matrix]\nplacement = ["colocated"]\n'
    (tmp_path / "sweep.toml").write_text(text, encoding="utf-8")
    places = ["--out", str(tmp_path / "sweep"), "--runs-dir", str(tmp_path / "runs")]
    assert call(["sweep", "-c", str(tmp_path / "sweep.toml"), *places]) == 0
    capsys.readouterr()
    assert call(["lint", str(tmp_path / "sweep")]) == 0
    assert capsys.readouterr().out.count("simulated-colocated") == 1
