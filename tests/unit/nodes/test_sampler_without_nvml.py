"""A node's sampler runs on the framework's Python, which may have no nvidia-ml-py: told as a reason, no traceback."""

import subprocess
import sys

# A process of its own: here, other tests may have imported what needs it.
WITHOUT = """
import sys
sys.modules["pynvml"] = None
from harness.telemetry.sampler import Opening
opening = Opening(lambda *_: None)
opening.run()
print(opening.nvml, opening.reason)
"""


def test_why_there_is_no_gpu_is_told():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.startswith("None the Python of this sampler has no nvidia-ml-py"), done.stdout
    assert done.stderr == ""
