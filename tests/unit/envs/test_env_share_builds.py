"""Sharing as builds do it, with a real pip: what is linked, what pip does to it later, what is downloaded twice."""

import errno
import functools
import http.server
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from env_builders import DEMO, News, demo_environment, wheel

from adapters.base import Environment
from harness.cli.env import command
from harness.envs import Stage, create, locate, remove, share_environments
from harness.envs.wheels import write_wheel

DATA = "".join(f"row {row}\n" for row in range(3000))
COMMON = wheel("common", {"common/__init__.py": "", "common/data.txt": DATA, "common/large.py": f"T = {DATA!r}\n"})


def pair(folder: Path) -> tuple[Environment, Environment]:
    """Two environments with different pins, and a wheel in common."""
    one = demo_environment(folder / "one", published=(COMMON, wheel("bench-demo", DEMO)))
    two = demo_environment(folder / "two", published=(COMMON, wheel("bench-demo", DEMO, "2.0")))
    return one, two


def installed(environment: Environment, path: str) -> Path:
    return next(locate(environment).venv.glob("lib/*/site-packages")) / path


@pytest.mark.usefixtures("cache")
def test_the_second_build_shares_with_the_first_and_neither_depends_on_the_other(tmp_path: Path, news: News) -> None:
    one, two = pair(tmp_path)
    first = News()
    create(one, progress=first)
    assert Stage.SHARE not in [said.stage for said in first.said]  # nobody to share with
    python = create(two, progress=news)
    assert installed(one, "common/data.txt").samefile(installed(two, "common/data.txt"))
    assert not installed(one, "common/large.py").samefile(installed(two, "common/large.py"))
    done = news.said[-1]
    assert done.stage is Stage.DONE
    assert f"GB of it shared with {locate(one).path.name}, in {locate(two).path}" in done.message

    said = CliRunner().invoke(command, ["list"])
    assert said.exit_code == 0, said.output
    assert said.output.count("GB of it shared") == 2
    assert "\ntogether " in said.output

    # pip puts new files in the place of old ones, and does not write into them: the other environment keeps its own.
    other = write_wheel(wheel("common", {"common/__init__.py": "", "common/data.txt": "replaced"}), tmp_path)
    install = ["-m", "pip", "install", "--no-index", "--no-deps", "--force-reinstall", str(other)]
    subprocess.run([locate(one).python, *install], check=True, capture_output=True)
    assert installed(one, "common/data.txt").read_text(encoding="utf-8") == "replaced"
    assert installed(two, "common/data.txt").read_text(encoding="utf-8") == DATA

    remove(locate(one).path.name)
    code = "import common.large, bench_demo; print(len(common.large.T))"
    assert subprocess.run([python, "-c", code], check=True, capture_output=True).stdout.strip() == b"%d" % len(DATA)


@pytest.mark.usefixtures("cache")
def test_without_hard_links_a_build_is_as_good_and_says_so(
    tmp_path: Path, news: News, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair(tmp_path)
    create(one, progress=news)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", refuse)
    create(two, progress=news)
    assert f"hard links cannot be made there: {os.strerror(errno.EOPNOTSUPP)}" in news.text
    assert "of it shared" not in news.text
    assert locate(two).marker() is not None
    said = CliRunner().invoke(command, ["share"])
    assert said.exit_code == 0, said.output
    assert "stopped: hard links cannot be made there" in said.output


@pytest.mark.usefixtures("cache")
def test_share_finishes_what_a_build_did_not_but_not_under_a_running_program(
    tmp_path: Path, news: News, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair(tmp_path)
    create(one, progress=news)
    with monkeypatch.context() as patch:  # killed after its marker, before it shared anything
        patch.setattr("harness.envs.build.share", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            create(two, progress=news)
    assert locate(two).marker() is not None
    python = create(two, progress=news)
    assert not installed(one, "common/data.txt").samefile(installed(two, "common/data.txt"))

    with subprocess.Popen([python, "-c", "import time; print(1, flush=True); time.sleep(600)"], stdout=-1) as user:
        assert user.stdout is not None
        user.stdout.readline()
        rows = {row.folder: row for row in share_environments()}
        user.kill()
    assert rows[locate(two).path].left == f"in use by process {user.pid}"
    said = CliRunner().invoke(command, ["share"])
    assert said.exit_code == 0, said.output
    assert installed(one, "common/data.txt").samefile(installed(two, "common/data.txt"))
    assert " now shared with demo-cpu-vllm-" in said.output
    assert "GB on disk before, " in said.output


TOGETHER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import harness.envs.build
from env_builders import quick_find_python
from test_env_share_builds import pair
from harness.envs import Stage, create
harness.envs.build.find_python = quick_find_python
folder, own = Path({folder!r}), int(sys.argv[1])
def progress(news):
    if news.stage is Stage.CHECK:  # goes on when the other one is here too: they end together
        (folder / f"{{own}}.here").touch()
        limit = time.monotonic() + 60
        while not (folder / f"{{1 - own}}.here").exists() and time.monotonic() < limit:
            time.sleep(0.02)
create(pair(folder)[own], progress=progress)
"""


@pytest.mark.usefixtures("cache")
def test_two_builds_that_end_together_share_as_well(tmp_path: Path) -> None:
    one, two = pair(tmp_path)
    code = TOGETHER.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    both = [
        subprocess.Popen([sys.executable, "-c", code, own], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for own in ("0", "1")
    ]
    for process in both:
        _, err = process.communicate(timeout=100)
        assert process.returncode == 0, err.decode()
    assert installed(one, "common/data.txt").samefile(installed(two, "common/data.txt"))


@dataclass
class Index:
    """A package index over HTTP that counts what it is asked for."""

    folder: Path
    caching: str  # the Cache-Control of its wheels
    asked: Counter[str] = field(default_factory=Counter)
    url: str = ""


class _Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *args: object, index: Index, **options: object) -> None:
        self.index = index
        super().__init__(*args, directory=str(index.folder), **options)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.index.asked[self.path.rpartition("/")[2]] += 1
        super().do_GET()

    def end_headers(self) -> None:
        if self.path.endswith(".whl"):
            self.send_header("Cache-Control", self.index.caching)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Index]:
    one = Index(tmp_path / "index", request.param)
    for each in (COMMON, wheel("bench-demo", DEMO), wheel("bench-demo", DEMO, "2.0")):
        folder = one.folder / "simple" / each.name
        folder.mkdir(parents=True, exist_ok=True)
        write_wheel(each, folder)
        (folder / "index.html").write_text("".join(f'<a href="{p.name}">{p.name}</a>\n' for p in folder.glob("*.whl")))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, index=one)) as server:
        one.url = f"http://127.0.0.1:{server.server_port}/simple"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield one
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("index", "downloads"), [("public, max-age=365000000, immutable", 1), ("no-store", 2)], indirect=["index"]
)
def test_the_builds_share_pips_cache_where_the_index_allows_to_keep_its_answers(
    index: Index, downloads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
    monkeypatch.setenv("PIP_TRUSTED_HOST", index.url.split("/")[2])  # pip keeps nothing of other hosts without TLS
    for name, version in (("one", "1.0"), ("two", "2.0")):
        environment = demo_environment(tmp_path / name, published=())
        environment.requirements.write_text(f"-i {index.url}\ncommon==1.0\nbench-demo=={version}\n", encoding="utf-8")
        create(environment, progress=News())
    assert index.asked["common-1.0-py3-none-any.whl"] == downloads
    assert index.asked["bench_demo-2.0-py3-none-any.whl"] == 1
