"""Spreading over Ray, without Ray: what is given to it, in what order rows come back, and how its absence is told."""

import socket
import subprocess
import sys
import types

import pytest

from harness.protocol.errors import EnvError, SpecError
from results.planner import on_ray
from results.planner.sweep import cells, run

BASE = {"durations": {"law": "log_normal", "median_s": 20, "sigma": 1}, "horizon_s": 600.0}


def fake_ray(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cluster in this process that runs a task when its result is fetched; returns what was asked of it."""
    said: list[str] = []
    module = types.ModuleType("ray")

    class RayError(Exception):
        pass

    def init(address: str, runtime_env: dict, **_: object) -> None:
        said.append(f"init {address} {' '.join(path.rpartition('/')[2] for path in runtime_env['py_modules'])}")

    def remote(**_: object):
        return lambda function: types.SimpleNamespace(remote=lambda *arguments: (function, arguments))

    module.init, module.remote = init, remote
    module.get = lambda task: task[0](*task[1])
    module.shutdown = lambda: said.append("shutdown")
    module.exceptions = types.SimpleNamespace(RayError=RayError)
    monkeypatch.setitem(sys.modules, "ray", module)
    return said


def test_a_cluster_gives_the_rows_of_one_process_in_their_order(monkeypatch):
    said = fake_ray(monkeypatch)
    sweep = cells(BASE, {"workers": [8, 16, 32], "mode": ["synchronous", "async"]}, seeds=3)

    rows = run(sweep, ray_address="auto")

    assert rows == run(sweep, jobs=1)
    assert said == ["init auto harness results", "shutdown"]


ALLOWED = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ("numpy", "harness", "results"):
            return None
        raise ModuleNotFoundError(f"a node has no {name}", name=name)

sys.meta_path.insert(0, Refuse())
from results.planner import on_ray, sweep
from results.planner.scenario_file import mapping_of

found = sweep.cells({"durations": {"law": "log_normal", "median_s": 20, "sigma": 1}, "horizon_s": 600.0}, {})
print(on_ray._several(sweep._row, [({}, mapping_of(found[0].scenario))])[0]["updates"])
"""


def test_a_node_needs_numpy_and_no_other_package():
    done = subprocess.run([sys.executable, "-c", ALLOWED], capture_output=True, text=True, timeout=120, check=False)

    assert done.stderr == ""
    assert int(done.stdout) > 3


def test_a_task_that_fails_is_an_environments_error_and_the_cluster_is_left(monkeypatch):
    said = fake_ray(monkeypatch)
    ray = sys.modules["ray"]

    def lost(_task: object) -> None:
        raise ray.exceptions.RayError("a long story\nthe node died")

    ray.get = lost

    with pytest.raises(EnvError, match="ray = auto: the node died"):
        run(cells(BASE, {}), ray_address="auto")
    assert said[-1] == "shutdown"


def test_where_no_one_listens_is_said_at_once(monkeypatch):
    fake_ray(monkeypatch)
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))  # bound, and not listening
        address = f"127.0.0.1:{own.getsockname()[1]}"
        with pytest.raises(EnvError, match=f"ray = {address}"):
            run(cells(BASE, {}), ray_address=address)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(SpecError, match=r"agentic-rl-bench\[ray\]"):
        list(on_ray.spread(str, [1], "auto"))
