"""A framework's process for the tests of the run: records through the real recorder, then does as it is told.

argv: spec.json, then words: `steps=N`, `pause=SECONDS` (per step), and one ending:
exit=N | no-bye | hang (else: bye). Also: no-start, ignore-term, leave=PIDFILE, padding=BYTES (more per step)
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.protocol.events import Step, Trajectory
from harness.protocol.recorder import Recorder, RecorderFullError

GRANDCHILD = """
import os, sys, time
os.setsid()
open(sys.argv[1], "w").write(str(os.getpid()))
if os.fork() == 0:
    open(sys.argv[1] + ".2", "w").write(str(os.getpid()))
time.sleep(600)
"""


def step(recorder: Recorder, number: int, pause: float) -> None:
    """One step with one trajectory: a turn, a tool call, another turn, and training."""
    begin = time.monotonic_ns()
    name = f"p{number}-s0-a0"
    opened = recorder.open(None, "trajectory", trajectory_id=name)
    turn = recorder.open("generation", "turn", pool="rollout", trajectory_id=name, turn=0, announce=False)
    time.sleep(pause / 2)
    recorder.close(turn, attributes={"generated_tokens": 20})
    tool = recorder.open("tool", "search_engine", trajectory_id=name, turn=0, announce=False)
    recorder.close(tool, attributes={"tool": "search_engine", "status": "ok"})
    recorder.emit(
        Trajectory(
            trajectory_id=name,
            group_id=f"p{number}",
            prompt=number,
            sample=0,
            attempt=0,
            status="ok",
            start_ns=opened.start_ns,
            end_ns=time.monotonic_ns(),
            turns=1,
            tool_calls=1,
            tool_ns=0,
            prompt_tokens=5,
            generated_tokens=20,
            observation_tokens=0,
            version_first=max(0, number - 1),
            version_last=max(0, number - 1),
            open_id=opened.id,
        )
    )
    with recorder.timed("train", "policy_train", pool="train", step=number):
        time.sleep(pause / 2)
    recorder.emit(
        Step(step=number, policy_version=number + 1, start_ns=begin, end_ns=time.monotonic_ns(), trajectory_ids=(name,))
    )


def leave(pidfile: str) -> None:
    """A grandchild in a session of its own with an empty environment, and its orphan."""
    subprocess.Popen([sys.executable, "-c", GRANDCHILD, pidfile], env={})
    while not Path(pidfile + ".2").exists():
        time.sleep(0.01)


def main() -> None:
    """Does what argv says."""
    words = dict(word.partition("=")[::2] for word in sys.argv[2:])
    recorder = Recorder.from_environment("controller", versions={"stand-in": "1"})
    (Path(os.environ["BENCH_TMP"]) / "session").mkdir()
    (Path(os.environ["BENCH_TMP"]) / "session" / "engine.log").write_text("the engine said this\n")
    print("the worker speaks", flush=True)
    if "ignore-term" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "no-start" in words:
        time.sleep(600)
    try:
        for number in range(int(words.get("steps", "3"))):
            step(recorder, number, float(words.get("pause", "0.02")))
            recorder.metric("padding", labels={"text": "x" * int(words.get("padding", "0"))})
    except RecorderFullError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(1)
    if "leave" in words:
        leave(words["leave"])
    if "hang" in words:
        recorder.open("weight_sync", "sync_weights", step=3)
        recorder.open(None, "trajectory", trajectory_id="p9-s0-a0")
        time.sleep(600)
    if "exit" in words:
        recorder.failure("worker", "the optimizer diverged")
        os._exit(int(words["exit"]))
    if "no-bye" in words:
        os._exit(0)
    recorder.bye()


main()
