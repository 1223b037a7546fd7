"""NVML as it is opened: why there are no GPUs is told, whatever this Python has of nvidia-ml-py."""

import subprocess
import sys

import pytest

OPEN = """
import sys, types
import pynvml
{change}
from harness.telemetry.opening import Opening
opening = Opening(print)
opening.run()
print(opening.reason)
assert opening.nvml is None and not opening.gpus
"""
WITHOUT_MODULE = "sys.modules['pynvml'] = None"
OLD_AT_IMPORT = "del pynvml.NVML_FI_DEV_POWER_INSTANT"
# What is made for each GPU that is found.
OLD_LATER = """
del pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES
pynvml.nvmlInit = lambda: None
pynvml.nvmlSystemGetDriverVersion = pynvml.nvmlSystemGetNVMLVersion = lambda: "1"
pynvml.nvmlDeviceGetCount = lambda: 1
pynvml.nvmlDeviceGetUUID = str
pynvml.nvmlDeviceGetHandleByIndex = pynvml.nvmlDeviceGetHandleByUUID = lambda which: None
"""


@pytest.mark.parametrize(
    ("change", "reason"),
    [(WITHOUT_MODULE, "has no nvidia-ml-py"), (OLD_AT_IMPORT, "POWER_INSTANT"), (OLD_LATER, "COUNT_XMIT_BYTES")],
)
def test_an_nvidia_ml_py_that_is_not_there_or_too_old_is_told(change: str, reason: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPEN.format(change=change)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "nvidia-ml-py" in done.stdout
    assert reason in done.stdout
