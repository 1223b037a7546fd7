"""A run folder made from what somebody else recorded: the tables that it can fill, and a list of what it lacks."""

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.protocol.errors import EnvError, SpecError
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec
from results.collect import runs_table
from results.importing.imported import WORKLOAD
from results.schema import TABLES, empty
from results.store import COMPUTED, RunTables, load_run, table_path, tables_dir, write_table

HOST = "imported"  # stands for the hosts of the source, which it does not name
UNKNOWN = "unknown"
# What a spec must have and no source says: held by placeholders in spec.json, and by nothing that is shown.
NOT_KNOWN = (
    "engine",
    "tools",
    "seed",
    "batch_size",
    "group_size",
    "context_tokens",
    "micro_batch_tokens",
    "rollout_tp",
    "nodes",
    "offload",
    "sample_hz",
    "reward",
    "policy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the user says of the source's run."""

    placement: Placement
    gpus: Gpus
    max_staleness: int
    device: Device
    model: str = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a source gave: rows by table, and what it lacks in words. `first_step` begins the window."""

    framework: str
    kind: str
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    lacks: Sequence[str]
    steps: int = 1
    first_step: int = 0
    notes: Sequence[str] = field(default_factory=tuple)


def write_partial(runs_dir: Path, sources: Sequence[Path], facts: Facts, built: Built) -> RunTables:
    """Makes a run folder `<utc>-imported-<framework>-<placement>-<digest6>` with its tables, and seals it.

    The sources are copied into `logs/`. Their digest is the digest of the work: an imported run was offered the work of
    no other run.

    Raises:
        SpecError: a source cannot be read, two have one name, or the facts are not a possible run.
        EnvError: the folder cannot be made.
    """
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise SpecError(f"two of the files are named {max(names, key=names.count)}: both are kept in logs/; rename one")
    hashed = hashlib.sha256()
    for source in sources:
        try:
            hashed.update(source.read_bytes())
        except OSError as error:
            raise SpecError(f"{source}: cannot be read: {error.strerror or error}") from None
    digest = hashed.hexdigest()
    spec = _spec(", ".join(names), digest, facts, built)
    spec.check()
    now = datetime.fromtimestamp(time.time(), UTC)
    stem = f"{now:%Y%m%dT%H%M%SZ}-imported-{built.framework}-{facts.placement.value}-{digest[:6]}"
    folder = _make(runs_dir, stem)
    try:
        _fill(folder, sources, now, digest, spec, built)
        return load_run(folder)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise EnvError(f"{folder}: cannot be written: {error.strerror or error}; name another place with -o") from None
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _fill(folder: Path, sources: Sequence[Path], now: datetime, digest: str, spec: RunSpec, built: Built) -> None:
    for name in ("events", "samples", "logs", "tables"):
        (folder / name).mkdir()
    for source in sources:
        shutil.copyfile(source, folder / "logs" / source.name)
    (folder / "spec.json").write_text(spec.to_json() + "\n", encoding="utf-8")
    meta = {
        "run_id": folder.name,
        "status": "finished",
        "reason": "",
        "imported": {
            "from": built.kind,
            "file": spec.dataset,
            "sha256": digest,
            "imported_utc": now.isoformat(timespec="seconds"),
            "lacks": list(built.lacks),
            "spec_not_known": list(NOT_KNOWN),
        },
        "record_detail": "imported",
        "gpus": [],
        "device": spec.device.value,
        "note": list(built.notes),
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    tables_dir(folder).mkdir(exist_ok=True)
    for name in TABLES:
        if name == "runs":
            table = runs_table(folder.name, spec, meta)
        elif name in COMPUTED:
            continue
        else:
            rows = [_row(name, row) for row in built.rows.get(name, ())]
            table = pa.Table.from_pylist(rows, schema=TABLES[name]) if rows else empty(name)
        write_table(table_path(folder, name), name, table, folder.name)
    (folder / "sealed").touch()


def _row(name: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with the host and process that all rows of an imported run have."""
    fixed = {"host": HOST, "pid": 0}
    return {**{key: value for key, value in fixed.items() if key in TABLES[name].names}, **row}


def _spec(names: str, digest: str, facts: Facts, built: Built) -> RunSpec:
    return RunSpec(
        framework=built.framework,
        placement=facts.placement,
        workload=WORKLOAD,
        preset=built.kind,
        load=Load.LIVE,  # nothing was planned here
        tools=UNKNOWN,
        model=facts.model,
        gpus=facts.gpus,
        nodes=1,
        steps=max(built.steps, built.first_step + 1),
        warmup_steps=built.first_step,
        batch_size=1,
        group_size=1,
        max_staleness=facts.max_staleness,
        seed=0,
        device=facts.device,
        engine=UNKNOWN,
        rollout_tp=1,
        context_tokens=1,
        micro_batch_tokens=1,
        offload=Offload.NONE,
        timeout=None,
        sample_hz=1.0,
        reward=UNKNOWN,
        dataset=names,
        dataset_digest=f"imported:{digest[:12]}",
    )


def _make(runs_dir: Path, stem: str) -> Path:
    number = 1
    while True:
        folder = runs_dir / (stem if number == 1 else f"{stem}-{number}")
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        except FileExistsError:
            if not runs_dir.is_dir():
                raise SpecError(f"{runs_dir}: not a folder; name another place with -o") from None
            number += 1
            continue
        except OSError as error:
            what = f"{runs_dir}: no folder can be made in it: {error.strerror or error}"
            raise SpecError(f"{what}; name another place with -o") from None
        return folder


def process_row(first_ns: int, last_ns: int, events: int, wall_minus_mono_ns: int | None = None) -> dict[str, Any]:
    """The one process of an imported run: what recorded its source, from its first to its last instant."""
    return {
        "file": "imported",
        "host": HOST,
        "pid": 0,
        "role": "controller",
        "gpu_uuids": [],
        "versions_json": "{}",
        "wall_minus_mono_ns": wall_minus_mono_ns,
        "mono_ns": first_ns,
        "first_ns": first_ns,
        "last_ns": last_ns,
        "ended": True,
        "bye_ns": last_ns,
        "events": events,
        "damaged_lines": 0,
    }
