"""What a run was: its title, its machine, its versions and its settings, for every table and picture."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adapters.base import load_adapter
from harness.protocol.errors import SpecError
from harness.protocol.spec import WORK_FIELDS, Device, Load, Placement, Policy, RunSpec
from reports.markdown import Footnotes, code, escape, number, plural, table
from reports.served import entry, served
from results.importing.imported import LABEL, is_imported
from results.store import RunTables

SIMULATED = "simulated"
NON_STANDARD = "non-standard"
ON_CPU = "functional check on CPU"
SCRIPTED_KIND = "scripted policy"
SCRIPTED = "Scripted policy: the model did not decide. It scored the script's tokens, and was trained on them."
IMPORTED = "Imported: made from what somebody else recorded. What that does not tell is not known here."
STEPS_ONLY = "recorded with steps only (BENCH_RECORD=steps)"
NOT_SAID = "the adapter says nothing of this cell, is not installed here, or can't be used (bench list)"
_SETTING = re.compile(r"^[A-Za-z_+][\w.+-]*=")  # a framework setting among the notes of meta.json


def kinds_of(specs: Iterable[RunSpec]) -> list[str]:
    """What a title must say so that nobody mistakes any of the runs for a model at work on GPUs; empty if all are."""
    listed = list(specs)
    told = {
        LABEL: any(is_imported(spec) for spec in listed),
        SIMULATED: any(spec.framework == SIMULATED for spec in listed),
        ON_CPU: any(spec.device is Device.CPU and spec.framework != SIMULATED for spec in listed),
        SCRIPTED_KIND: any(is_scripted(spec) for spec in listed),
    }
    return [kind for kind, said in told.items() if said]


def kind_of(spec: RunSpec) -> str | None:
    """The same of one run, e.g. `functional check on CPU, scripted policy`; None for a model at work on GPUs."""
    return ", ".join(kinds_of([spec])) or None


def is_scripted(spec: RunSpec) -> bool:
    """Whether a script, and not the model, decided what was done."""
    return spec.policy is Policy.SCRIPTED


def non_standard(spec: RunSpec) -> str | None:
    """In what the run is not the standard one, which is the same in all placements; None for a standard run."""
    ways = []
    if spec.overrides:
        ways.append("overrides " + ", ".join(f"{key}={value}" for key, value in sorted(spec.overrides.items())))
    if spec.as_shipped:
        ways.append("as shipped: the framework's own loss and correction")
    if spec.faults:
        ways.append(f"planted faults {', '.join(spec.faults)}")
    return "; ".join(ways) or None


def title(spec: RunSpec) -> str:
    """E.g. `skyrl, async: functional check on CPU, non-standard`."""
    kinds = [*kinds_of([spec]), *([NON_STANDARD] if non_standard(spec) else [])]
    return f"{spec.framework}, {spec.placement.value}" + (f": {', '.join(kinds)}" if kinds else "")


def steps_only(run: RunTables) -> bool:
    """Whether the run recorded its steps and nothing else (BENCH_RECORD=steps)."""
    return run.meta.get("record_detail") == "steps"


def caveat(spec: RunSpec) -> str | None:
    """The sentence under such a title."""
    said = [IMPORTED if is_imported(spec) else _of_device(spec), SCRIPTED if is_scripted(spec) else None]
    return " ".join(text for text in said if text) or None


def _of_device(spec: RunSpec) -> str | None:
    if spec.framework == SIMULATED:
        return (
            "Simulated: plans were played through the real recording, without a model. Its times measure no framework."
        )
    if spec.device is Device.CPU:
        return (
            "Functional check on CPU: the frameworks run different engines here and share the cores. "
            "The figures show that the measuring works; ratios between frameworks carry no verdict."
        )
    return None


def device_of(run: RunTables) -> str:
    """The devices in words: `8 x NVIDIA H100 80GB HBM3`, or `CPU, 2 cores`."""
    if run.spec.device is Device.CPU:
        cores = entry(run.meta, "machine", "cores")
        return "CPU" if cores is None else f"CPU, {cores} cores"
    names = [str(gpu.get("name") or "GPU of unknown model") for gpu in gpus(run)]
    if not names:
        return "GPUs of unknown model"
    return " + ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def gpus(run: RunTables) -> Sequence[Mapping[str, Any]]:
    """The GPUs that meta.json lists; none on CPU."""
    listed = run.meta.get("gpus")
    return [gpu for gpu in listed if isinstance(gpu, Mapping)] if isinstance(listed, list) else []


def commit_of(run: RunTables) -> str | None:
    """Commit of bench, shortened; marked where the working tree differed from it."""
    commit = run.meta.get("commit")
    if not isinstance(commit, str) or not commit:
        return None
    return commit[:10] + (" (with local changes)" if run.meta.get("dirty") else "")


def framework_of(run: RunTables) -> str | None:
    """E.g. `skyrl 0.4.0`; None when the version is not on record."""
    name, version = run.spec.framework, run.meta.get("framework_version")
    if not isinstance(version, str) or not version:
        return None
    return version if version.startswith(name) else f"{name} {version}"


def foot(run: RunTables, n: str) -> str:
    """The line under a picture: where its data come from."""
    spec = run.spec
    split = "shared" if spec.placement is Placement.COLOCATED else str(spec.gpus)
    parts = [
        kind_of(spec),
        NON_STANDARD if non_standard(spec) else None,
        framework_of(run) or spec.framework,
        spec.placement.value,
        spec.model + (" (random weights)" if random_weights(spec) else ""),
        device_of(run) + (f", {split}" if spec.device is Device.CUDA else ""),
        n,
        f"bench {commit_of(run) or 'of unknown commit'}",
        run.run_id,
    ]
    return " · ".join(part for part in parts if part)


def random_weights(spec: RunSpec) -> bool:
    """Whether the model was made here with random weights."""
    return spec.model == "tiny" or spec.model.startswith("random:")


def verified_on(spec: RunSpec) -> str | None:
    """What the adapter says of where this cell was run; None when the adapter is not installed or says nothing."""
    try:
        adapter = load_adapter(spec.framework)
    except (SpecError, ImportError):
        return None
    return adapter.verified_on.get((spec.placement.value, spec.device.value))


def provenance(run: RunTables, notes: Footnotes) -> list[str]:
    """The table of what ran where."""
    spec, meta = run.spec, run.meta
    unread = "not in the run's meta.json"

    def known(value: object) -> str:
        return notes.unknown(unread) if value is None or value == "" else escape(value)

    machine = [entry(meta, "machine", key) for key in ("host", "cpu")]
    cores, memory = entry(meta, "machine", "cores"), entry(meta, "machine", "memory_bytes")
    facts = [*machine, cores and f"{cores} cores", memory and f"{number(float(memory) / 2**30)} GiB memory"]
    environment = [entry(meta, "environment", key) for key in ("name", "status")]
    python = entry(meta, "environment", "python")
    pins = entry(meta, "environment", "pins_digest")
    rows = [
        ["run", code(run.run_id)],
        ["machine", known(", ".join(str(fact) for fact in facts if fact))],
        ["device", escape(device_of(run))],
        ["framework", known(framework_of(run))],
        ["cell verified on", known_or(verified_on(spec), notes, NOT_SAID)],
        ["bench", known(_version(meta.get("bench_version"), commit_of(run)))],
        ["environment", known(_joined(*environment, python and f"Python {python}", pins and f"pins {pins}"))],
        ["versions", known(_joined(*(f"{name} {value}" for name, value in sorted(_versions(run).items()))))],
        ["model", escape(spec.model) + (" (random weights)" if random_weights(spec) else "")],
        ["work", _work(spec)],
        *([] if spec.tools == "mock" else [["tools", known(served(run))]]),
        ["placement", escape(_placement(spec))],
        ["work digest", code(spec.work_digest)],
        ["spec digest", code(spec.spec_digest)],
        ["started", known(meta.get("started_utc"))],
        ["wall time", known(_wall(meta.get("wall_s")))],
    ]
    return table(["", "what"], rows, "ll")


def known_or(value: str | None, notes: Footnotes, reason: str) -> str:
    """The value, or the mark of an unknown with its reason."""
    return notes.unknown(reason) if value is None else escape(value)


def settings(run: RunTables) -> list[str]:
    """The overrides asked for, and the settings the framework was started with."""
    spec = run.spec
    asked = [f"{key}={value}" for key, value in sorted(spec.overrides.items())]
    lines = ["### Overrides and framework settings", ""]
    lines += ["Overrides (`-o`, given to the framework verbatim and last):", ""] if asked else ["No overrides (`-o`)."]
    lines += [f"- {code(text)}" for text in asked]
    if spec.as_shipped:
        lines += ["", "`--as-shipped`: the framework's own loss and correction were kept: not the standard training."]
    if spec.faults:
        lines += ["", f"Planted faults: {', '.join(code(fault) for fault in spec.faults)}."]
    said = [str(note) for note in _notes(run)]
    given = [note for note in said if _SETTING.match(note)]
    if given:
        what = f"{plural(len(given), 'setting')} the framework was started with"
        lines += ["", f"<details><summary>{what}</summary>", ""]
        lines += [f"- {code(note)}" for note in given]
        lines += ["", "</details>"]
    else:
        lines += ["", "No framework settings were recorded."]
    other = [note for note in said if not _SETTING.match(note)]
    if other:
        lines += ["", "Notes of the run:", "", *(f"- {escape(note)}" for note in other)]
    return lines


def differences(runs: Sequence[RunTables]) -> list[tuple[str, list[str]]]:
    """Machine and version facts in which runs differ: what, and its value in each run."""

    def facts(run: RunTables) -> dict[str, str]:
        seen = {
            "host": entry(run.meta, "machine", "host"),
            "CPU": entry(run.meta, "machine", "cpu"),
            "cores": entry(run.meta, "machine", "cores"),
            "memory": entry(run.meta, "machine", "memory_bytes"),
            "kernel": entry(run.meta, "machine", "kernel"),
            "device": device_of(run),
            "framework": framework_of(run),
            "bench": _version(run.meta.get("bench_version"), commit_of(run)),
            "environment": entry(run.meta, "environment", "name"),
            "pins": entry(run.meta, "environment", "pins_digest"),
            "GPUs": str(run.spec.total_gpus),
            "offload": run.spec.offload.value,
            "micro_batch_tokens": run.spec.micro_batch_tokens,
            "as_shipped": run.spec.as_shipped,
        }
        seen.update({f"version of {name}": value for name, value in _versions(run).items()})
        seen.update({f"override {key}": value for key, value in run.spec.overrides.items()})
        return {name: "–" if value is None else str(value) for name, value in seen.items()}

    per_run = [facts(run) for run in runs]
    names = list(dict.fromkeys(name for seen in per_run for name in seen))
    rows = [(name, [seen.get(name, "–") for seen in per_run]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def work_differences(one: RunSpec, two: RunSpec) -> list[str]:
    """The fields of the work in which two specs differ, with both values; what decides nothing in them is left out."""
    return [
        f"{name} ({getattr(one, name)} and {getattr(two, name)})"
        for name in WORK_FIELDS
        if one.work.get(name) != two.work.get(name)
    ]


def default_name(run_dir: Path) -> str:
    """A run folder's name."""
    return run_dir.resolve().name


def _work(spec: RunSpec) -> str:
    parts = [
        spec.workload,
        f"preset {spec.preset}",
        f"load {spec.load.value}" + (" (plan imposed)" if spec.load is Load.FIXED else ""),
        *_decisions(spec),
        f"tools {spec.tools}",
        *_inputs(spec),
        f"{plural(spec.batch_size, 'prompt')} x {spec.group_size}"
        f" = {plural(spec.trajectories_per_step, 'trajectory')} a step",
        f"context {spec.context_tokens:,} tokens",
        f"seed {spec.seed}",
    ]
    if spec.latency_scale != 1.0:
        parts.append(f"latency scale {spec.latency_scale:g}")
    return escape(", ".join(parts))


def _decisions(spec: RunSpec) -> list[str]:
    """Who decides what is done in a live load, within which limits, and what is rewarded."""
    reward = f"reward {spec.reward}"
    if spec.load is Load.FIXED:
        return [reward]
    limits = f"at most {plural(spec.max_turns, 'turn')} of {plural(spec.turn_tokens, 'generated token')}"
    return [f"policy {spec.policy.value}", f"thinking {spec.thinking.value}", limits, reward]


def _inputs(spec: RunSpec) -> list[str]:
    """Data set, corpus and trace by name and digest; a file by its name alone: where it lies is nobody's business."""
    parts = []
    if spec.load is Load.LIVE or spec.dataset != "generated":
        parts.append(_named("data set", spec.dataset, spec.dataset_digest))
    if spec.corpus:
        parts.append(_named("corpus", spec.corpus, spec.corpus_digest))
    if spec.trace:
        parts.append(_named("trace", spec.trace, spec.trace_digest))
    if spec.tools.startswith("web"):
        parts.append(f"web cache {spec.web_cache}" + (", private networks allowed" if spec.allow_private else ""))
    return parts


def _named(what: str, value: str, digest: str) -> str:
    return f"{what} {Path(value).name}" + (f" ({digest})" if digest else "")


def _placement(spec: RunSpec) -> str:
    unit = "GPUs" if spec.device is Device.CUDA else "processes in place of GPUs"
    split = str(spec.gpus.train) if spec.placement is Placement.COLOCATED else f"{spec.gpus} (train + rollout)"
    return f"{spec.placement.value}, {split} {unit}, max_staleness {spec.max_staleness}, offload {spec.offload.value}"


def _wall(value: object) -> str | None:
    return f"{number(float(value))} s" if isinstance(value, int | float) else None


def _version(version: object, commit: str | None) -> str | None:
    return _joined(version, commit and f"commit {commit}") or None


def _joined(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)


def _versions(run: RunTables) -> Mapping[str, str]:
    versions = run.meta.get("versions")
    return {str(k): str(v) for k, v in versions.items()} if isinstance(versions, Mapping) else {}


def _notes(run: RunTables) -> Sequence[object]:
    notes = run.meta.get("note")
    if isinstance(notes, str):
        return [notes]
    return notes if isinstance(notes, list) else []
