"""Which GPUs a run may use here, by CUDA_VISIBLE_DEVICES, asked of the stand-in library."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ASK = """
import json
from harness.specs.machine import probe_machine
found = probe_machine()
print(json.dumps([list(found.gpu_memory_bytes), found.why]))
"""
GIB = 2**30
SETTINGS = f"* gpus 3\n0 memory_total {80 * GIB}\n1 memory_total {40 * GIB}\n2 memory_total {20 * GIB}\n2 mig 1\n"
SETTINGS += "2 mig_instances 2\n"
WHOLE = f"* gpus 2\n0 memory_total {80 * GIB}\n1 memory_total {40 * GIB}\n"
FIRST = "GPU-00000000-0000-4000-8000-000000000000"
INSTANCE = "MIG-00000000-0000-4000-8000-000002000001"


@pytest.mark.parametrize(
    ("variable", "gib", "said"),
    [
        (None, [20], "MIG is on: a program sees one instance"),
        ("2,1", [20], "MIG is on"),
        ("1,0", [40, 80], "leaves 2 of 3"),
        (FIRST, [80], "leaves 1 of 3"),
        ("", [], "leaves 0 of 3"),
        ("1,9,0", [40], "leaves 1 of 3"),
        (INSTANCE, [20], "MIG is on"),
        ("MIG-GPU-00000000-0000-4000-8000-000000000002/8/0", [20], "MIG is on"),
        ("MIG-ffff", [], "leaves 0 of 3"),
    ],
)
def test_visible_gpus_and_their_memory(tmp_path: Path, stand_in: Path, variable, gib, said):
    memory, why = probed(tmp_path, stand_in, SETTINGS, variable)
    assert [each // GIB for each in memory] == gib
    assert said in why


@pytest.mark.parametrize(
    ("settings", "gib", "said"),
    [(WHOLE, [80, 40], "2 NVIDIA GPU(s) visible"), (f"{WHOLE}1 mig 1\n", [80], "1 NVIDIA GPU(s) visible")],
)
def test_without_the_variable(tmp_path: Path, stand_in: Path, settings, gib, said):
    memory, why = probed(tmp_path, stand_in, settings, None)
    assert [each // GIB for each in memory] == gib
    assert said in why


def probed(tmp_path: Path, stand_in: Path, settings: str, variable: str | None) -> tuple[list[int], str]:
    (tmp_path / "settings").write_text(settings)
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {"LD_LIBRARY_PATH": str(stand_in), "NVML_STAND_IN": str(tmp_path / "settings")}
    if variable is not None:
        environment["CUDA_VISIBLE_DEVICES"] = variable
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    memory, why = json.loads(done.stdout)
    return memory, why
