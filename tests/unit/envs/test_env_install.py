import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import psutil
import pytest

from harness.envs.install import Seen, run_logged, tied
from harness.envs.progress import BuildProgress, Display, Stage
from harness.envs.pythons import find_python
from harness.protocol.errors import EnvError


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_failure_carries_the_last_lines_and_the_log(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("an earlier attempt said this\n", encoding="utf-8")
    with pytest.raises(EnvError) as caught:
        run_logged(python("for n in range(40): print('line', n)\nraise SystemExit(7)"), log, what="demo: pip install")
    message = str(caught.value)
    assert message.startswith("demo: pip install failed (exit 7)")
    assert "line 39" in message
    assert "line 25" in message
    assert "line 24" not in message  # 15 lines
    assert "earlier attempt" not in message
    assert str(log) in message
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", "find-links"),
        ("ERROR: No matching distribution found for ray==9", "no index that the machine's pip knows"),
        ("OSError: [Errno 28] No space left on device", "BENCH_CACHE"),
        (
            "NewConnectionError('<pip._vendor...>: Failed to establish a new connection')",
            "no package index was reached",
        ),
    ],
)
def test_known_reasons_come_with_what_to_do(tmp_path: Path, said: str, advice: str) -> None:
    with pytest.raises(EnvError, match=advice) as caught:
        run_logged(python(f"print({said!r}); raise SystemExit(1)"), tmp_path / "log", what="x")
    assert "://" not in str(caught.value)  # names configuration keys, no host


def test_output_is_counted_while_it_comes(tmp_path: Path) -> None:
    code = "import time\nfor n in range(3): print('Collecting a', flush=True); time.sleep(0.3)\n"
    code += "print('Installing collected packages: a'); print(' Collecting no')"
    seen: list[Seen] = []
    run_logged(python(code), tmp_path / "log", what="x", on_poll=seen.append)
    assert seen[-1] == Seen(3, True)
    assert any(not one.installing for one in seen)


def test_an_interrupted_wait_ends_the_installer(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    code = f"import os, time, pathlib\npathlib.Path({str(marker)!r}).write_text(str(os.getpid()))\ntime.sleep(600)"

    def interrupt(_seen: Seen) -> None:
        if marker.exists() and marker.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_logged(python(code), tmp_path / "log", what="x", on_poll=interrupt)
    assert not psutil.pid_exists(int(marker.read_text()))


def test_a_tied_process_does_not_outlive_its_parent(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text("import time; print('up', flush=True); time.sleep(600)\n", encoding="utf-8")
    command = tied(Path(sys.executable), "sleeper")
    command[1:2] = []  # without -I, so that the module is found on PYTHONPATH
    start = (
        "import os, subprocess, sys\n"
        f"command = {command!r}; command[2] = str(os.getpid())\n"
        "child = subprocess.Popen(command, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); child.wait()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, env=env) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.Process(pid).is_running()
        parent.send_signal(signal.SIGKILL)
    assert _gone(pid)


def _gone(pid: int) -> bool:
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_the_running_python_is_found_first() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert find_python(version) == Path(sys.executable)


def test_a_shim_that_answers_nothing_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shims, pyenv = tmp_path / "shims", tmp_path / "pyenv"
    real = pyenv / "versions" / "3.98.11" / "bin" / "python"
    for path, body in (
        (shims / "python3.98", "echo 'pyenv: python3.98: command not found' >&2; exit 127"),
        (pyenv / "versions" / "3.98.2" / "bin" / "python", "echo '[3, 98, \"/older\"]'"),
        (real, f"echo '[3, 98, \"{real}\"]'"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(shims), prepend=os.pathsep)
    monkeypatch.setenv("PYENV_ROOT", str(pyenv))
    assert find_python("3.98") == real
    (real.parent / "python").write_text("#!/bin/sh\necho '[3, 97, \"/x\"]'\n", encoding="utf-8")
    assert find_python("3.98") == Path("/older")


def test_no_python_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(EnvError, match=r"Python 3\.99 .*apt install python3\.99-venv"):
        find_python("3.99")


def test_without_a_terminal_the_display_prints_plain_lines() -> None:
    out = StringIO()
    with Display(out) as display:
        display(BuildProgress(environment="e", stage=Stage.PLAN, message="building [x] (2 GB)"))
        for done in range(101):
            display(BuildProgress(environment="e", stage=Stage.INSTALL, message="installing", done=done, total=100))
        display(BuildProgress(environment="e", stage=Stage.DONE, message="built"))
    lines = out.getvalue().splitlines()
    assert lines[0] == "e: building [x] (2 GB)"
    assert lines[-1] == "e: built"
    assert "e: installing 50/100 packages" in lines
    assert len(lines) == 2 + 11  # one for each tenth, not one for each package
    assert "\x1b" not in out.getvalue()
