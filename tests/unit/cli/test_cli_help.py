"""What `bench` says of itself, and how little it loads to say it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import call
from harness.cli.output import INTERRUPTED
from harness.cli.verbs import CLOSED_PIPE, HUNG_UP, OUTPUT_FULL
from harness.specs.request import KEYS

HEAVY = ("pandas", "pyarrow", "matplotlib", "pydantic", "rich", "pynvml", "psutil", "filelock", "numpy", "harness.run")
VERBS = (
    "run",
    "sweep",
    "collect",
    "report",
    "compare",
    "query",
    "export",
    "publish",
    "check",
    "baseline",
    "history",
    "workshop",
    "import",
    "lint",
    "list",
    "logs",
    "tools",
    "env",
    "doctor",
    "simulate",
    "calibrate",
    "plan",
    "score",
)


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--help"]) == 0
    text = capsys.readouterr().out
    lines = [line.split()[0] for line in text.partition("Commands:")[2].splitlines() if line.strip()]
    assert lines == list(VERBS)
    assert "..." not in text.partition("Commands:")[2]  # no help that is cut


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([verb, "--help"]) == 0
    assert f"bench {verb}" in capsys.readouterr().out


def test_run_help_has_every_key_and_hides_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "--help"]) == 0
    text = capsys.readouterr().out
    for key in KEYS:
        flag = "--" + key.replace("_", "-")
        assert (flag in text) == (key != "faults"), key
    assert "--fault" not in text
    for more in ("--config", "--override", "--dry-run", "--runs-dir"):
        assert more in text


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom harness.cli import call\n"
        "for a in (['--help'], ['run', '--help'], ['env', '--help']):\n    assert call(a) == 0\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"]) == 0
    assert capsys.readouterr().out.startswith("bench 0.")


def test_the_installed_script_is_this_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from harness.cli import main; main()", "nonsense"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "bench: No such command 'nonsense'. (see: bench --help)\n"


def test_the_page_names_every_exit_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "usage.md").read_text(encoding="utf-8")
    section = page.partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    named = [int(code) for code in re.findall(r"^\| (\d+) \|", section, flags=re.MULTILINE)]
    own = {0, 1, 2, 3, 4, 5, 143, INTERRUPTED, HUNG_UP, OUTPUT_FULL, CLOSED_PIPE}
    assert set(named) == own
    assert len(named) == len(own)


def test_help_names_the_exit_codes_of_signals(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in (
        "130 interrupted",
        "143 ended by SIGTERM",
        "129 by SIGHUP",
        "74 what was printed",
        "141 a closed pipe",
    ):
        assert text in shown


@pytest.mark.parametrize("group", [[], ["env"], ["tools"], ["baseline"]], ids=str)
def test_a_group_without_a_verb_shows_its_help(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*group, "--help"]) == 0
    shown = capsys.readouterr().out
    assert call(group) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", shown)
