"""One folder per framework: `adapter.py` is the parent half, `worker.py` runs inside the framework's environment."""
