"""Where a node keeps a run's files, the same words on every node and another folder on each host."""

import tempfile
from pathlib import Path

from harness.protocol.recorder import HOST_MARK, host_name

FOLDER_VARIABLE = "BENCH_NODE_FOLDER"  # where a node's own folders go, instead of the temporary folder


def node_root(run_id: str, base: str = "") -> str:
    """The node's folder for a run, with HOST_MARK in the host's place: the side that passes it on is not the node."""
    return str(Path(base or tempfile.gettempdir()) / f"bench-{run_id}" / HOST_MARK)


def here(root: str) -> Path:
    """That folder on this host."""
    return Path(root.replace(HOST_MARK, host_name()))
