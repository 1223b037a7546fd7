"""GPUs are given to pools by what SkyRL's actors say, never by counting."""

from types import SimpleNamespace
from typing import Any

import pytest

from adapters.child.gpus import UnknownGpuError
from adapters.skyrl.worker import pools

UUIDS = [f"GPU-{i}{i}{i}" for i in range(8)]


def trainer(monkeypatch: pytest.MonkeyPatch, training: list[Any], *, colocated: bool = False) -> Any:
    monkeypatch.setattr(pools, "physical_uuids", lambda: UUIDS)
    ray = SimpleNamespace(get=lambda refs: refs)
    monkeypatch.setitem(__import__("sys").modules, "ray", ray)
    actors = [SimpleNamespace(get_gpu_id=SimpleNamespace(remote=lambda value=value: value)) for value in training]
    return SimpleNamespace(policy_model=SimpleNamespace(_actor_handlers=actors), colocate_all=colocated)


def group(port: int, ids: list[Any]) -> Any:
    info = SimpleNamespace(url=f"http://host:{port}")
    return SimpleNamespace(server_infos=[info], _get_gpu_ids_for_server=lambda index: ids)


def test_a_part_of_the_node_is_taken_for_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_VISIBLE_DEVICES=4,5,6,7: GPUs 0 to 3 are nobody's."""
    found = pools.gpus_of_run(trainer(monkeypatch, [4, 5]), [group(1, [6]), group(2, [7])])
    assert [(gpu.uuid, gpu.pool, gpu.engine) for gpu in found] == [
        ("GPU-444", "train", None),
        ("GPU-555", "train", None),
        ("GPU-666", "rollout", "http://host:1"),
        ("GPU-777", "rollout", "http://host:2"),
    ]


def test_devices_named_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pools.gpus_of_run(trainer(monkeypatch, ["GPU-222"]), [group(1, ["GPU-11"])])
    assert {gpu.uuid: gpu.pool for gpu in found} == {"GPU-222": "train", "GPU-111": "rollout"}


def test_colocated_gpus_are_both_and_know_their_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pools.gpus_of_run(trainer(monkeypatch, [0, 1], colocated=True), [group(1, [0]), group(2, [1])])
    assert [(gpu.uuid, gpu.pool, gpu.engine) for gpu in found] == [
        ("GPU-000", "both", "http://host:1"),
        ("GPU-111", "both", "http://host:2"),
    ]


@pytest.mark.parametrize(
    ("training", "ids", "colocated"),
    [([9], [1], False), (["GPU-x"], [1], False), ([1], [1], False), ([0, 1], [0], True)],
)
def test_what_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, training: list[Any], ids: list[Any], colocated: bool
) -> None:
    with pytest.raises(UnknownGpuError):
        pools.gpus_of_run(trainer(monkeypatch, training, colocated=colocated), [group(1, ids)])


def test_without_a_driver_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer(monkeypatch, [0])
    monkeypatch.setattr(pools, "physical_uuids", list)
    assert pools.gpus_of_run(run, [group(1, [1])]) == []
