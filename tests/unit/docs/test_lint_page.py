"""The page on the lint says what the code has: its identities, its names, and its example."""

import re
import shlex
from pathlib import Path

import pytest

from harness.cli import call
from results.lint.check import IDENTITIES
from results.lint.names import FAMILIES, NAMES

PAGE = (Path(__file__).parents[3] / "docs" / "lint.md").read_text(encoding="utf-8")
STUDY = (
    "Model\tColocated\tDisagg Async\tSplit (Train, Generate)\tpower utilization\twall clock time reduction\n"
    "Qwen3-14B (Thinking)\t34.6%\t51.4%\t4+4\t+16.8 %\t-16.1%\n"
)


def part(name: str) -> str:
    return PAGE.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]


def test_every_identity_stands_on_the_page() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", part("identities"), flags=re.MULTILINE))
    assert told == dict(IDENTITIES)


def test_every_name_stands_on_the_page() -> None:
    told = set(re.findall(r"`([\w.]+)`", part("names")))
    assert told == {*NAMES, *(f"{family}.WORD" for family in FAMILIES)}


def test_its_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    words = shlex.split(block.replace("\\\n", " "))
    assert words[0] == "bench"
    (tmp_path / "study.txt").write_text(STUDY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert call(words[1:]) == 0
    assert "implies +24.6% joules a step (24.3% to 25.0% more" in capsys.readouterr().out
