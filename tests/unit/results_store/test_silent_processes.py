"""Processes that ended without a Bye: whose silence is a fault, and whose is how frameworks end their workers."""

from pathlib import Path

import pytest
from small_runs import bye, hello, make_run, write_file

from results.collect import collect
from results.processes import ended_silently


@pytest.mark.parametrize(
    ("controller_ends", "roles", "silent"),
    [
        (True, ["train", "rollout", "engine"], 0),
        (True, ["sampler"], 1),
        (True, ["engine", "sampler"], 1),
        (False, ["train"], 2),
    ],
)
def test_workers_of_a_controller_that_said_bye_are_no_alarm(
    tmp_path: Path, controller_ends: bool, roles: list[str], silent: int
) -> None:
    run_dir = make_run(tmp_path / "run", [hello(), *([bye(0)] if controller_ends else [])])
    for pid, role in enumerate(roles, start=100):
        write_file(run_dir, [hello(pid=pid, role=role)], name=f"node-1-{pid}.jsonl")
    assert ended_silently(collect(run_dir)) == silent
