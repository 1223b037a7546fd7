"""A run's own word on how it is, corrected by its lock: the one reader of meta.json. Standard library only."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any


def read_meta(run_dir: Path) -> tuple[dict[str, Any], str | None]:
    """What meta.json holds, and what is wrong with it (None: nothing); {} when it is missing or damaged.

    A status `running` (or none yet) that no harness holds the lock of reads as `interrupted`: that harness was killed.
    A sealed run came to its end: where meta.json is lost, it has no status here.
    """
    path = run_dir / "meta.json"
    problem: str | None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raw, problem = {}, "meta.json is missing: the harness was killed before it wrote it"
    except (OSError, ValueError) as error:
        raw, problem = {}, f"meta.json cannot be read: {error}"
    else:
        problem = None if isinstance(raw, dict) else f"meta.json is no object but {type(raw).__name__}"
    meta: dict[str, Any] = raw if isinstance(raw, dict) else {}
    gpus = meta.get("gpus")
    if gpus is not None and not (isinstance(gpus, list) and all(isinstance(gpu, dict) for gpu in gpus)):
        meta["gpus"], problem = [], "meta.json: gpus is no list of objects: what it says of GPUs is not used"
    lost = "status" not in meta and (run_dir / "sealed").exists()
    if not lost and meta.get("status", "running") == "running" and not held(run_dir / "lock"):
        meta["status"] = "interrupted"
        meta["reason"] = meta.get("reason") or "the harness was killed"
    return meta, problem


def held(lock: Path) -> bool:
    """Whether a living process holds the lock; False when there is none."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
