"""A node's sampler runs on the framework's Python, which may have no nvidia-ml-py: told as a reason, no traceback."""

import sys

from harness.telemetry.sampler import Opening


def test_why_there_is_no_gpu_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    for name in [name for name in sys.modules if name.startswith("harness.telemetry.nvml")]:
        monkeypatch.delitem(sys.modules, name)
    opening = Opening(lambda *_: None)
    opening.run()
    assert opening.nvml is None
    assert "has no nvidia-ml-py" in opening.reason
