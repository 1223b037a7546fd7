"""A run's own word on how it is, corrected by its lock: the one reader of meta.json. Standard library only."""

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.protocol.scalars import number, shown, text, whole, writable
from results.gpu_facts import facts_of_all, odd_words

# What each entry is, as far as something here reads it; of another kind, it counts as not said.
_KINDS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(
        ("run_id", "status", "reason", "started_utc", "ended_utc", "commit", "bench_version", "framework_version"),
        lambda value: text(value) is not None,
    ),
    **dict.fromkeys(("record_detail", "clock"), lambda value: text(value) is not None),
    **dict.fromkeys(
        ("machine", "environment", "versions", "tools", "fairness", "imported"), lambda value: isinstance(value, dict)
    ),
    "note": lambda value: isinstance(value, str | list),
    "exit_code": lambda value: whole(value) is not None,
    "wall_s": lambda value: number(value, 0.0) is not None,
    "dirty": lambda value: isinstance(value, bool),
}
_OF_MACHINE: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("host", "cpu", "kernel", "python"), lambda value: text(value) is not None),
    **dict.fromkeys(("cores", "memory_bytes"), lambda value: whole(value, 0) is not None),
}


def read_meta(run_dir: Path) -> tuple[dict[str, Any], str | None]:
    """What meta.json holds, and what is wrong with it (None: nothing); {} when it is missing or damaged.

    Without what can't be meant: a text for a number, say.
    A status `running` (or none yet) that no harness holds the lock of reads as `interrupted`: that harness was killed.
    A sealed run came to its end: where meta.json is lost, it has no status here.
    """
    path = run_dir / "meta.json"
    problem: str | None
    try:
        raw = writable(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raw, problem = {}, "meta.json is missing: the harness was killed before it wrote it"
    except (OSError, ValueError, RecursionError) as error:
        raw, problem = {}, f"meta.json cannot be read: {error}"
    else:
        problem = None if isinstance(raw, dict) else f"meta.json is no object but {type(raw).__name__}"
    meta, odd = _meant(raw if isinstance(raw, dict) else {})
    problem = f"meta.json: {odd_words(odd)}" if odd else problem
    lost = "status" not in meta and (run_dir / "sealed").exists()
    if not lost and meta.get("status", "running") == "running" and not held(run_dir / "lock"):
        meta["status"] = "interrupted"
        meta["reason"] = meta.get("reason") or "the harness was killed"
    return meta, problem


def _meant(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What is said without what can't be meant; and of that, `key = value` each."""
    meta, odd = _of_kinds(raw, _KINDS)
    machine, wrong = _of_kinds(meta.get("machine") or {}, _OF_MACHINE)
    odd += [f"machine.{one}" for one in wrong]
    if wrong:
        meta["machine"] = machine
    gpus = meta.get("gpus")
    if isinstance(gpus, list):
        meta["gpus"], wrong = facts_of_all(gpus)
        odd += wrong
    elif gpus is not None:
        odd.append(f"gpus = {shown(meta.pop('gpus'))}")
    return meta, odd


def _of_kinds(
    said: Mapping[str, Any], kinds: Mapping[str, Callable[[object], bool]]
) -> tuple[dict[str, Any], list[str]]:
    kept, odd = {}, []
    for key, value in said.items():
        if value is None or key not in kinds or kinds[key](value):
            kept[key] = value
        else:
            odd.append(f"{key} = {shown(value)}")
    return kept, odd


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
