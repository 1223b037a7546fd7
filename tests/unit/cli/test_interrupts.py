"""Ctrl-C ends a command whose library never looks for signals."""

import signal
import subprocess
import sys
import threading

import pytest

from harness.cli.interrupts import interruptible

# The main thread waits for a lock in C, and the handler that Python would run there does nothing: so does a library
# that computes for hours.
DEAF = """
import signal, sys, threading
from harness.cli.interrupts import interruptible
signal.signal(signal.SIGINT, lambda *_: None)
with interruptible("interrupted", 130, grace_s=0.2):
    print("begins", flush=True)
    threading.Event().wait()
"""


def test_a_library_that_hears_no_signal_is_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begins\n"
        try:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, b"bench: interrupted\n")


def test_one_that_ends_in_time_raises_as_ever() -> None:
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    with pytest.raises(KeyboardInterrupt), interruptible("interrupted", 130):
        signal.raise_signal(signal.SIGINT)
    assert signal.set_wakeup_fd(before) == before
    assert "interrupts" not in {thread.name for thread in threading.enumerate()}


def test_in_another_thread_nothing_is_changed() -> None:
    entered: list[bool] = []

    def work() -> None:
        with interruptible("interrupted", 130):
            entered.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [True]


# Ctrl-C in the first 50 ms: while click is being imported.
EARLY = """
import sys
class Pressed:
    def find_spec(self, name, *_):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Pressed())
from harness.cli import main
main()
"""


def test_ctrl_c_while_bench_is_being_imported() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY, "--help"], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"bench: interrupted\n")
