"""What samplers, or meta.json, say of GPUs is damaged: that is no reason for a run to have no report."""

import json
from pathlib import Path

import played_folders as folders
import played_gpus as gpus
import played_runs as played
import pytest

from harness.protocol.spec import Device, Gpus
from reports.case import Case

SPLIT = Gpus(train=1, rollout=2)


def a_run(folder: Path, device: Device) -> Path:
    spec = played.make_spec("async", batch_size=4, group_size=2, steps=8, gpus=SPLIT, device=device)
    return gpus.write_gpu_run(folder, spec) if device is Device.CUDA else folders.write_run(folder, spec)


@pytest.mark.parametrize("device", [Device.CPU, Device.CUDA])
@pytest.mark.parametrize("said", ['{"gpus": ["a", "b"]}', '{"gpus": [3]}', '{"gpus": [{"index": null}]}', "{"])
def test_what_the_samplers_said(tmp_path: Path, device: Device, said: str) -> None:
    run = a_run(tmp_path / "run", device)
    (run / "samples" / "gpus.json").write_text(said, encoding="utf-8")
    energy = Case.load(run).figures.energy
    assert energy is not None
    assert (energy.joules is not None) is (device is Device.CUDA)


@pytest.mark.parametrize("device", [Device.CPU, Device.CUDA])
@pytest.mark.parametrize("said", [["a", "b"], "NVIDIA H100", 3, [None]])
def test_what_the_meta_file_says(tmp_path: Path, device: Device, said: object) -> None:
    run = a_run(tmp_path / "run", device)
    meta = json.loads((run / "meta.json").read_text(encoding="utf-8"))
    (run / "meta.json").write_text(json.dumps({**meta, "gpus": said}), encoding="utf-8")
    energy = Case.load(run).figures.energy
    assert energy is not None
    assert (energy.joules is not None) is (device is Device.CUDA)
