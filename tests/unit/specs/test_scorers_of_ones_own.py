"""A reward MODULE:FUNCTION is looked for before anything starts: by the Python that will run it, without running it."""

import subprocess
import sys
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.base import load_adapter
from harness import scorer
from harness.cli import call
from harness.envs.store import Location, locate
from harness.protocol.errors import SpecError
from harness.protocol.spec import RunSpec
from harness.scorer import check_scorer, check_scorer_of, known_python
from harness.scorer_source import look
from harness.specs import Machine, resolve

GOOD = "def score(answer, row):\n    return 1.0\n"
SHOUTS = "raise RuntimeError('this must not be run')\n"


def live(reward: str, framework: str = "simulated") -> RunSpec:
    asked = {"framework": framework, "placement": "async", "load": "live", "tools": "local", "reward": reward}
    if framework == "simulated":
        asked["policy"] = "scripted"
    return resolve(asked, machine=Machine(why="no NVIDIA GPU is visible")).spec


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that this Python, and those that it starts, import from."""
    place = tmp_path / "mine"
    place.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(place))
    monkeypatch.syspath_prepend(str(place))
    return place


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "def score(answer, row, scale=1.0): return scale\n",
        "def score(*both): return 1.0\n",
        "def score(answer, row, *, scale=1.0): return scale\n",
        "class score:\n    def __new__(cls, answer, row): return 1.0\n",
        "score = lambda answer, row: 1.0\n",
        "first, score = 1, print\n",
        "from json import dumps as score\n",
        "import json as score\n",
        "import sys\nif sys.version_info > (3,):\n    def score(answer, row): return 1.0\n",
        "try:\n    from fast import score\nexcept ImportError:\n    def score(answer, row): return 1.0\n",
        "with open('x') as score:\n    pass\n",
        "for score in ():\n    pass\n",
        "if (score := len):\n    pass\n",
        "score: object = len\n",
        "import functools\n@functools.cache\ndef score(answer): return 1.0\n",
        "def score(): pass\n" + GOOD,
    ],
)
def test_whatever_binds_the_name_will_do(here: Path, text: str) -> None:
    (here / "well.py").write_text(SHOUTS + text)
    assert look("well:score") == {"wrong": None, "unknown": None, "missing": None}


@pytest.mark.parametrize(
    "text",
    [
        "from json import *\n",
        "def __getattr__(name): return print\n",
        "globals()['score'] = print\n",
        "exec('x = 1')\n",
    ],
)
def test_what_only_running_it_can_tell_is_said_not_refused(here: Path, text: str) -> None:
    (here / "sly.py").write_text(text)
    found = look("sly:score")
    assert found["wrong"] is None
    assert "may make score only when it runs" in (found["unknown"] or "")
    assert "is looked for before the first trajectory" in (check_scorer_of(Path(sys.executable), "sly:score") or "")


@pytest.mark.parametrize(
    ("reward", "text", "said"),
    [
        ("mine_scorer:scor", GOOD, "mine_scorer.py has no function scor; did you mean score?"),
        ("mine_scorer:other", GOOD, "mine_scorer.py has no function other"),
        ("mine_scorer:score", "def inner():\n    def score(answer, row): return 1.0\n", "has no function score"),
        ("mine_scorer:score", "async def score(answer, row): return 1.0\n", "line 1: score is async"),
        ("mine_scorer:score", "score = 3\n", "line 1: score is a value and no function"),
        ("mine_scorer:score", "\ndef score(answer): return 1.0\n", "line 2: score can't be called with (answer, row)"),
        ("mine_scorer:score", "def score(answer, row, more): return 1.0\n", "can't be called with (answer, row)"),
        ("mine_scorer:score", "def score(answer, row, *, more): return 1.0\n", "can't be called with (answer, row)"),
        ("mine_scorer:score", "def score(:\n", "no Python that can be read"),
        ("mine_scorrer:score", GOOD, "there is no module mine_scorrer"),
        ("mine_scorer.sub:score", GOOD, "there is no module mine_scorer.sub in mine_scorer"),
        ("mine_folder:score", GOOD, "mine_folder is a folder without a module"),
    ],
)
def test_a_misspelled_one_ends_the_run_before_it_starts(
    here: Path, tmp_path: Path, reward: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine_scorer.py").write_text(text)
    (here / "mine_folder").mkdir()
    runs = tmp_path / "runs"
    asked = ["--framework", "simulated", "--placement", "async", "--load", "live", "--tools", "local"]
    asked += ["--policy", "scripted", "--reward", reward, "--runs-dir", str(runs)]
    assert call(["run", *asked]) == 2
    error = capsys.readouterr().err
    (line,) = [line for line in error.splitlines() if said in line]
    assert f"reward = {reward}: " in line
    assert not runs.exists()
    assert call(["run", *asked, "--dry-run"]) == 0
    assert said in capsys.readouterr().out


def test_the_interpreter_that_runs_it_is_asked_and_not_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found there and not here, and the other way round."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    there = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    (there / "only_there.py").write_text(SHOUTS + GOOD)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "only_here.py").write_text(GOOD)
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    monkeypatch.setenv("BENCH_SKYRL_PYTHON", str(python))
    adapter = load_adapter("skyrl")
    assert check_scorer(live("only_there:score", "skyrl"), adapter) is None
    with pytest.raises(SpecError, match=r"only_there\.py has no function scores; did you mean score"):
        check_scorer(live("only_there:scores", "skyrl"), adapter)
    with pytest.raises(
        SpecError, match=rf"no module only_here for {python}, which runs the framework: install it there"
    ):
        check_scorer(live("only_here:score", "skyrl"), adapter)


def test_where_that_is_not_built_yet_this_one_is_asked_and_what_it_does_not_know_is_said(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BENCH_SKYRL_PYTHON", raising=False)
    (here / "mine_scorer.py").write_text(GOOD)
    adapter = load_adapter("skyrl")
    for reward in ("elsewhere:score", "mine_scorer:score"):
        said = check_scorer(live(reward, "skyrl"), adapter)
        assert said is not None
        assert "is not known before that is built; it is looked for then, before the framework starts" in said
    with pytest.raises(SpecError, match="has no function scor; did you mean score"):
        check_scorer(live("mine_scorer:scor", "skyrl"), adapter)
    assert not (tmp_path / "cache").exists()


def test_a_relative_pythonpath_does_not_lead_to_it_from_where_workers_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_relative.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ".")
    with pytest.raises(SpecError, match="no module mine_relative"):
        check_scorer_of(Path(sys.executable), "mine_relative:score")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert check_scorer_of(Path(sys.executable), "mine_relative:score") is None


def test_a_package_with_a_finder_of_its_own_is_found(here: Path) -> None:
    """As packages are that were installed editable: nothing on sys.path leads to them."""
    package = here.parent / "elsewhere" / "linked"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SHOUTS)
    (package / "sums.py").write_text(GOOD)
    (here / "sitecustomize.py").write_text(
        "import sys\nfrom importlib.util import spec_from_file_location\n"
        f"top, inside = {str(package / '__init__.py')!r}, [{str(package)!r}]\n"
        "class Finder:\n    def find_spec(self, name, path=None, target=None):\n        if name == 'linked':\n"
        "            return spec_from_file_location(name, top, submodule_search_locations=inside)\n"
        "sys.meta_path.append(Finder())\n"
    )
    assert check_scorer_of(Path(sys.executable), "linked.sums:score") is None
    with pytest.raises(SpecError, match="has no function scor"):
        check_scorer_of(Path(sys.executable), "linked.sums:scor")


def test_a_python_that_does_not_answer_leaves_it_to_the_worker(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no json\n")
    broken.chmod(0o755)
    for python in (broken, tmp_path / "nowhere"):
        assert "could not be asked for it" in (check_scorer_of(python, "mine:score") or "")


@pytest.mark.parametrize("reward", ["plan", "exact", "f1"])
def test_built_in_rewards_ask_nobody(reward: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(subprocess, "run", nobody)
    assert check_scorer(replace(live("exact"), reward=reward), load_adapter("simulated")) is None
    assert check_scorer_of(Path(sys.executable), reward) is None


def test_the_worker_of_a_built_environment_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    assert known_python(None) == Path(sys.executable)
    spec = live("exact", "skyrl")
    environment = load_adapter("skyrl").environment(spec.device, spec.engine)
    assert environment is not None
    monkeypatch.setenv(environment.python_variable, str(tmp_path / "nowhere"))
    assert known_python(environment) is None
    monkeypatch.delenv(environment.python_variable)
    monkeypatch.setattr(Location, "marker", lambda _: object())
    found, shared = known_python(environment), locate(environment).python
    assert found == shared
    monkeypatch.setattr(scorer, "is_ready", lambda _: True)  # with the project on top
    layered = known_python(environment)
    assert layered is not None
    assert "layers" in layered.parts
