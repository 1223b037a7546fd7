import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import distribution, version
from pathlib import Path

import psutil
import pytest
from env_builders import DEMO, Built, News, demo_environment, wheel

import harness
from harness.envs import Stage, Status, check, create, ensure, list_environments, locate, remove
from harness.envs.probe import NAMES, probe
from harness.envs.wheels import pack, unpack
from harness.protocol.errors import EnvError

ROOT = Path(harness.__file__).resolve().parent.parent


def run(python: Path, code: str, **env: str) -> str:
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, cwd="/", env={**os.environ, **env}
    )
    return done.stdout.strip()


def test_no_environment_means_this_python() -> None:
    assert ensure(None) == Path(sys.executable)


def test_a_build_tells_its_cost_first_and_its_place_last(built: Built) -> None:
    stages = [news.stage for news in built.news.said]
    assert stages[:2] == [Stage.PLAN, Stage.VENV]
    assert stages[-1] is Stage.DONE
    assert "0.001 GB, about 0.1 min, 6 packages" in built.news.said[0].message
    assert Stage.DOWNLOAD in stages
    assert all(news.total == 6 for news in built.news.said if news.stage in (Stage.DOWNLOAD, Stage.INSTALL))


def test_an_environment_that_is_there_says_nothing(built: Built, news: News) -> None:
    assert ensure(built.environment, progress=news) == built.python
    assert news.said == []


def test_the_project_is_a_link_to_the_checkout_and_the_pins_are_behind_it(built: Built) -> None:
    code = "import harness.protocol, bench_demo, sys; print(harness.protocol.__file__, bench_demo.VALUE, sys.prefix)"
    where, value, prefix = run(built.python, code).split()
    assert Path(where).is_relative_to(ROOT)
    assert value == "41"
    assert Path(prefix) == built.python.parent.parent
    found = probe(built.python)
    assert found.owners == dict.fromkeys(NAMES, ("agentic-rl-bench",))
    assert found.packages["agentic-rl-bench"] == version("agentic-rl-bench")
    code = "from adapters.base import adapter_names; print(adapter_names())"
    assert "skyrl" in run(built.python, code)  # entry points come with it


def test_the_shared_part_does_not_know_the_project(built: Built) -> None:
    base = locate(built.environment).python
    assert set(probe(base).places.values()) == {None}


def test_marker_says_what_is_there(built: Built) -> None:
    marker = locate(built.environment).marker()
    assert marker is not None
    assert marker.packages["vllm"] == "0.30.0+cpu"
    assert marker.size_bytes > 1_000_000
    assert marker.seconds > 0


SPAWN = """
import multiprocessing, sys, typing
def child(queue):
    import skyrl.tinker.types as types
    queue.put((str(types.FOUND), typing.TypedDict is types.FOUND))
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get(timeout=60)[0])
    process.join()
    import skyrl.tinker.types
    print(skyrl.tinker.types.FOUND)
    print(typing.TypedDict.__module__)
"""


def test_typed_dict_is_the_other_one_in_every_process_and_only_there(built: Built, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SPAWN, encoding="utf-8")
    done = subprocess.run([built.python, script], capture_output=True, text=True, check=True, timeout=100)
    spawned, own, untouched = done.stdout.splitlines()
    if sys.version_info < (3, 12):
        assert spawned == own == "the other one"
    else:
        assert "the other one" not in (spawned, own)
    assert untouched == "typing"


def test_the_flash_attn_stand_in_imports_and_says_what_to_set(built: Built) -> None:
    code = "from flash_attn.bert_padding import pad_input\ntry: pad_input(1)\nexcept RuntimeError as e: print(e)"
    assert "trainer.flash_attn=false" in run(built.python, code)


def test_check_imports_everything(built: Built) -> None:
    report = check(built.environment)
    assert report.problems == ()
    assert report.ok
    assert [row.module for row in report.imports] == [*built.environment.imports, "harness.protocol"]


def test_list_shows_complete_stale_and_absent(built: Built, tmp_path: Path) -> None:
    (row,) = list_environments([built.environment])
    assert (row.name, row.status) == ("demo-cpu-vllm", Status.COMPLETE)
    assert row.size_bytes
    other = demo_environment(tmp_path, published=(wheel("bench-demo", DEMO, "2.0"),))
    absent, stale = list_environments([other])
    assert (absent.status, absent.size_bytes) == (Status.ABSENT, None)
    assert (stale.status, stale.path) == (Status.STALE, row.path)


def test_check_of_what_is_not_built_says_how_to_build_it(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="bench env create demo --device cpu"):
        check(demo_environment(tmp_path))


@pytest.mark.usefixtures("cache")
def test_a_refusal_of_the_disk_comes_before_anything_is_made(tmp_path: Path, news: News) -> None:
    environment = demo_environment(tmp_path, size_gb=5e6)
    with pytest.raises(EnvError, match=r"needs 7500000\.0 GB free .*BENCH_CACHE"):
        create(environment, progress=news)
    assert not locate(environment).path.exists()
    assert news.said == []


def test_a_cache_that_cannot_be_written_is_an_environment_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, news: News
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(EnvError, match="BENCH_CACHE"):
        create(demo_environment(tmp_path), progress=news)


@pytest.mark.usefixtures("cache")
def test_pips_failure_is_told_and_leaves_nothing_usable(tmp_path: Path, news: News) -> None:
    environment = demo_environment(tmp_path, extra_pins="torch==2.99.0+cpu\n")
    with pytest.raises(EnvError) as caught:
        create(environment, progress=news)
    message = str(caught.value)
    assert "No matching distribution found for torch==2.99.0+cpu" in message
    assert "pip config set global.find-links" in message
    assert str(locate(environment).log) in message
    (row,) = list_environments([environment])
    assert row.status is Status.PARTIAL


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("foreign", ["results/__init__.py", "reports.py"])
def test_another_owner_of_a_name_is_refused_by_name(tmp_path: Path, news: News, foreign: str) -> None:
    intruder = wheel("grabby-package", {foreign: ""})
    environment = demo_environment(tmp_path, published=(wheel("bench-demo", DEMO), intruder))
    for _ in range(2):  # and again: it does not become usable by trying once more
        with pytest.raises(EnvError, match=r"`re\w+` also belongs to grabby-package"):
            create(environment, progress=news)
    assert locate(environment).marker() is None


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import harness.envs.build
from env_builders import demo_environment, quick_find_python
from harness.envs import Stage, ensure
harness.envs.build.find_python = quick_find_python
def progress(news):
    if news.stage is Stage.{stage}:
        os.kill(os.getpid(), signal.SIGKILL)
ensure(demo_environment(Path({folder!r})), progress=progress)
"""


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("stage", ["VENV", "DOWNLOAD", "CHECK"])
def test_a_killed_build_is_noticed_and_finished(tmp_path: Path, news: News, stage: str) -> None:
    environment = demo_environment(tmp_path)
    location = locate(environment)
    code = INTERRUPTED.format(tests=str(Path(__file__).parent), folder=str(tmp_path), stage=stage)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert _nobody_runs_from(location.path)
    (row,) = list_environments([environment])
    assert row.status is Status.PARTIAL
    python = ensure(environment, progress=news)
    assert run(python, "import bench_demo; print(bench_demo.VALUE)") == "41"
    assert ("finishing an interrupted build" in news.text) == (stage != "VENV")
    (row,) = list_environments([environment])
    assert row.status is Status.COMPLETE


def _nobody_runs_from(folder: Path) -> bool:
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        lines = [process.info["cmdline"] or [""] for process in psutil.process_iter(["cmdline"])]
        if not any(line[0].startswith(str(folder)) for line in lines if line):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.usefixtures("cache")
def test_packages_that_pip_did_not_finish_are_installed_again_and_removal_ends_it(tmp_path: Path, news: News) -> None:
    environment = demo_environment(
        tmp_path, published=(wheel("bench-demo", DEMO), wheel("torn", {"torn.py": "A = 1\n"}))
    )
    python = ensure(environment, progress=news)
    location = locate(environment)
    site_packages = next(location.venv.glob("lib/*/site-packages"))
    # As a kill leaves it: no marker, one package without RECORD and with a file missing, one file cut short.
    (location.path / "complete.json").unlink()
    (site_packages / "bench_demo-1.0.dist-info" / "RECORD").unlink()
    (site_packages / "bench_demo" / "extra.py").unlink()
    (site_packages / "torn.py").write_text("", encoding="utf-8")
    assert ensure(environment, progress=news) == python
    assert "bench_demo-1.0.dist-info was not finished" in news.text
    assert "torn-1.0.dist-info was not finished" in news.text
    assert run(python, "import bench_demo.extra, torn; print(bench_demo.extra.MORE, torn.A)") == "1 1"

    shutil.rmtree(location.path / "layers")  # an environment without a layer gets one, without a build
    assert ensure(environment, progress=news) == python

    with subprocess.Popen([python, "-c", "import time; print(1, flush=True); time.sleep(600)"], stdout=-1) as user:
        assert user.stdout is not None
        user.stdout.readline()
        with pytest.raises(EnvError, match=f"in use by process {user.pid}"):
            remove("demo-cpu-vllm")
        user.kill()
    with pytest.raises(EnvError, match=r"no environment 'demo'.*demo-cpu-vllm"):
        remove("demo")
    assert remove("demo-cpu-vllm") == [location.path]
    assert not location.path.exists()
    (row,) = list_environments([environment])
    assert row.status is Status.ABSENT


TOGETHER = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import harness.envs.build
from env_builders import demo_environment, quick_find_python
from harness.envs import Stage, ensure
harness.envs.build.find_python = quick_find_python
folder, own = Path({folder!r}), sys.argv[1]
said = []
def progress(news):
    said.append(str(news.stage))
    (folder / f"{{own}}.{{news.stage}}").touch()
    if news.stage is Stage.VENV:  # builds: goes on when the other one waits
        limit = time.monotonic() + 60
        while not list(folder.glob("*.waiting")) and time.monotonic() < limit:
            time.sleep(0.05)
python = ensure(demo_environment(folder), progress=progress)
print(json.dumps([str(python), said]))
"""


@pytest.mark.usefixtures("cache")
def test_two_that_start_together_build_once(tmp_path: Path) -> None:
    code = TOGETHER.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    demo_environment(tmp_path)
    both = [
        subprocess.Popen([sys.executable, "-c", code, own], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for own in ("a", "b")
    ]
    answers = []
    for process in both:
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err.decode()
        answers.append(json.loads(out))
    (first, said), (second, also_said) = answers
    assert first == second
    builder, waiter = (said, also_said) if "venv" in said else (also_said, said)
    assert builder[0] == "plan"
    assert builder[-1] == "done"
    assert waiter == ["waiting"]


class TestOwnPython:
    """BENCH_DEMO_PYTHON points at an interpreter that is used as it is."""

    def test_it_is_used(self, built: Built, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BENCH_CACHE", str(cache))
        monkeypatch.setenv("BENCH_DEMO_PYTHON", str(built.python))
        assert ensure(built.environment) == built.python
        assert not cache.exists()  # nothing was built

    def test_a_path_without_a_program_is_refused(self, built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BENCH_DEMO_PYTHON", "/nowhere/python")
        with pytest.raises(EnvError, match="BENCH_DEMO_PYTHON=/nowhere/python: no program"):
            ensure(built.environment)

    def test_missing_modules_are_named(self, built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BENCH_DEMO_PYTHON", str(built.python))
        with pytest.raises(EnvError, match="has no not_there"):
            ensure(replace(built.environment, imports=("bench_demo", "not_there.below")))

    def test_without_the_project_it_says_how_to_install_it(self, built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
        bare = locate(built.environment).python
        monkeypatch.setenv("BENCH_DEMO_PYTHON", str(bare))
        with pytest.raises(EnvError, match=f"{bare} -m pip install --no-deps -e {ROOT}"):
            ensure(built.environment)


INSTALLED = """
import json, os, sys
from pathlib import Path
sys.path.insert(1, {tests!r})
import harness.envs.build
from env_builders import demo_environment, quick_find_python
from harness.envs import ensure
from harness.envs.layer import project
harness.envs.build.find_python = quick_find_python
python = ensure(demo_environment(Path({folder!r})), progress=lambda news: None)
print(json.dumps([str(project().checkout), sorted(project().files), str(python)]))
"""


@pytest.mark.usefixtures("cache")
def test_bench_installed_from_a_wheel_brings_a_copy_of_itself(tmp_path: Path) -> None:
    installed = distribution("agentic-rl-bench")
    files = {str(p.relative_to(ROOT)): p.read_bytes() for name in NAMES for p in (ROOT / name).rglob("*.py")}
    info = {"METADATA": installed.read_text("METADATA") or "", "entry_points.txt": "[bench.adapters]\n"}
    site = tmp_path / "site"
    unpack(pack("agentic-rl-bench", installed.version, files, tmp_path, info), site)
    code = INSTALLED.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env, cwd="/")
    assert done.returncode == 0, done.stderr
    checkout, copied, python = json.loads(done.stdout)
    assert checkout == "None"
    assert copied == sorted(files)
    where = run(Path(python), "import harness.protocol; print(harness.protocol.__file__)")
    assert Path(where).is_relative_to(Path(python).parent.parent)
