"""Proof that weight sync works: that the engine generates with the weights that the trainer made.

MEASURING.md, "Weight-sync proof". Three parts come from what the run recorded; the fourth, the control, is a contract
test: with the sync stubbed out this proof fails.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.protocol.spec import Device
from results.store import RunTables

PROBE = "probe_logprobs"
DIFF_MAX, DIFF_MEAN = "logprob_diff_max", "logprob_diff_mean"
CPU_FP32_BOUND = 1e-4  # largest |d logprob| of one version between engine and trainer, both in fp32
MOVED_FACTOR = 10.0
BEFORE, AFTER = 0, 2  # versions between which the trainer's probe must have moved
CONTROL = "contract test: with the weight sync stubbed out, this proof must fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part. `passed` None: not enough was recorded to say; `why` always says what was seen."""

    passed: bool | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """One probe of an engine at one version: mean |d logprob| to the trainer's probes (nats per token)."""

    version: int
    engine: str | None
    to_same: float
    to_before: float
    rows: int  # texts that were probed
    rows_behind: int  # of those, not nearer the trainer's of the same version than of the one before


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncProof:
    """The proof. Differences are of natural-log probabilities of the same tokens (nats)."""

    fresh: Part
    """1: trained on-policy, engine and trainer agree within `bound`. None where the device has no bound: then what was
    seen is shown, and part 2 puts it in proportion."""
    changed: Part
    """2: the trainer's probe moved by 10 x the fresh difference or more, and every gradient was non-zero."""
    follows: Part
    """3: after each sync the engine's probe is nearer the trainer's of the same version than of the one before."""
    control: str
    """4: where the control is."""
    fresh_max: float | None
    """Largest |d logprob| over tokens trained on-policy."""
    fresh_mean: float | None
    """Mean |d logprob| over tokens trained on-policy; steps weigh by their tokens if all say how many."""
    bound: float | None
    """Bound on `fresh_max`; None where the device has none (bf16: shown only)."""
    moved: float | None
    """Mean |d logprob| of the trainer's probe between versions 0 and 2."""
    grad_norms: Mapping[int, float | None]
    """By step."""
    versions: tuple[Follow, ...]
    """Every probe of an engine that could be compared."""

    @property
    def proven(self) -> bool:
        """Parts 1 to 3 all hold. Part 4 is not of this run.

        Without a bound, part 1 holds nothing by itself: it must have been shown, and its mean be a tenth of `moved` or
        less.
        """
        if self.changed.passed is not True or self.follows.passed is not True:
            return False
        if self.bound is not None:
            return self.fresh.passed is True
        shown = self.fresh_mean is not None and self.fresh_max is not None
        return shown and self.moved is not None and (self.fresh_mean or 0.0) <= self.moved / MOVED_FACTOR


@dataclass(frozen=True, slots=True)
class _Probe:
    source: str
    version: int
    engine: str | None
    values: tuple[float, ...]
    row_tokens: int | None


def prove_sync(run: RunTables) -> SyncProof:
    """The proof from a run's recorded probes and steps."""
    rows = run.tables["probes"].select(["name", "value", "values", "labels_json"]).to_pylist()
    probes = [probe for row in rows if row["name"] == PROBE and (probe := _probe(row)) is not None]
    # One trainer's probe per version: should it be recorded twice, the first was taken when the version was new.
    trainer: dict[int, tuple[float, ...]] = {}
    for probe in probes:
        if probe.source == "trainer":
            trainer.setdefault(probe.version, probe.values)
    largest = [row["value"] for row in rows if row["name"] == DIFF_MAX and _on_policy(row)]
    fresh_mean = _mean([row for row in rows if row["name"] == DIFF_MEAN and _on_policy(row)])
    fresh_max = max(largest) if largest else None
    bound = CPU_FP32_BOUND if run.spec.device is Device.CPU else None
    moved = _distance(trainer.get(BEFORE), trainer.get(AFTER))
    steps = run.tables["steps"]
    grad_norms = dict(zip(steps["step"].to_pylist(), steps["grad_norm"].to_pylist(), strict=True))
    engine = [probe for probe in probes if probe.source == "engine"]
    versions = tuple(_follows(engine, trainer))
    return SyncProof(
        fresh=_fresh(fresh_max, fresh_mean, bound),
        changed=_changed(moved, fresh_mean, grad_norms, trainer),
        follows=_follow_part(versions, engine, _synced(run)),
        control=CONTROL,
        fresh_max=fresh_max,
        fresh_mean=fresh_mean,
        bound=bound,
        moved=moved,
        grad_norms=grad_norms,
        versions=versions,
    )


def _fresh(largest: float | None, mean: float | None, bound: float | None) -> Part:
    if largest is None or mean is None:
        return Part(passed=None, why=f"no {DIFF_MAX} and {DIFF_MEAN} of tokens trained on-policy were recorded")
    seen = f"|d logprob| at most {largest:.3g}, mean {mean:.3g}"
    if bound is None:
        why = f"shown: {seen}; no absolute bound applies to this device, so it proves nothing alone: see part 2"
        return Part(passed=None, why=why)
    if largest <= bound:
        return Part(passed=True, why=f"{seen}; the bound is {bound:g}")
    return Part(passed=False, why=f"{seen}; beyond the bound of {bound:g}: engine and trainer hold different weights")


def _changed(
    moved: float | None,
    fresh_mean: float | None,
    grad_norms: Mapping[int, float | None],
    trainer: Mapping[int, tuple[float, ...]],
) -> Part:
    zero = [step for step, norm in grad_norms.items() if norm == 0]
    if zero:
        return Part(passed=False, why=f"the gradient was zero in step(s) {', '.join(map(str, zero))}")
    if moved is None:
        have = ", ".join(map(str, sorted(trainer))) or "none"
        return Part(
            passed=None, why=f"the trainer was not probed alike at versions {BEFORE} and {AFTER} (probed: {have})"
        )
    if fresh_mean is None:
        return Part(passed=None, why=f"the probe moved by {moved:.3g}; no fresh difference to compare with")
    needed = MOVED_FACTOR * fresh_mean
    seen = f"the probe moved by {moved:.3g} between versions {BEFORE} and {AFTER}, {needed:.3g} was needed"
    if moved == 0 or moved < needed:
        return Part(passed=False, why=f"{seen}: the weights hardly move, so nothing can be proven about syncing them")
    unknown = [step for step, norm in grad_norms.items() if norm is None]
    if unknown or not grad_norms:
        return Part(passed=None, why=f"{seen}; {len(unknown)} of {len(grad_norms)} steps have no gradient recorded")
    return Part(passed=True, why=f"{seen}; the gradient was non-zero in all {len(grad_norms)} steps")


def _synced(run: RunTables) -> Mapping[int, set[str]]:
    """Version -> the engines that a weight sync to it names."""
    synced: dict[int, set[str]] = {}
    for row in run.tables["weight_syncs"].select(["version", "engine"]).to_pylist():
        if row["engine"] is not None and row["version"] is not None:
            synced.setdefault(row["version"], set()).add(row["engine"])
    return synced


def _unprobed(engine: Sequence[_Probe], synced: Mapping[int, set[str]]) -> list[str]:
    """Engines that synced to a probed version and were not probed at it, as `engine (version n)`."""
    missed = []
    for version in sorted({probe.version for probe in engine if probe.version >= 1}):
        names, probed = synced.get(version, set()), {probe.engine for probe in engine if probe.version == version}
        # A probe that names no engine can only be that of the one engine there is.
        if names and not (probed == {None} and len(names) == 1):
            missed += [f"{name} (version {version})" for name in sorted(names) if name not in probed]
    return missed


def _follow_part(versions: Sequence[Follow], engine: Sequence[_Probe], synced: Mapping[int, set[str]]) -> Part:
    later = sorted({probe.version for probe in engine if probe.version >= 1})
    if not later:
        return Part(passed=None, why="no engine was probed after a sync")
    behind = [one for one in versions if one.rows_behind]
    if behind:
        worst = behind[0]
        who = "" if worst.engine is None else f" of engine {worst.engine}"
        rows = f" in {worst.rows_behind} of {worst.rows} rows" if worst.rows > 1 else ""
        what = (
            f"version {worst.version}{who}{rows}: {worst.to_same:.3g} from its trainer,"
            f" {worst.to_before:.3g} from the one before"
        )
        return Part(passed=False, why=f"{len(behind)} of {len(versions)} engine probes did not follow; {what}")
    compared = {(one.version, one.engine) for one in versions}
    missing = sorted({one.version for one in engine if one.version >= 1 and (one.version, one.engine) not in compared})
    if missing:
        names = ", ".join(map(str, missing))
        return Part(
            passed=None, why=f"engine probes of version(s) {names} have no trainer's of the same length beside them"
        )
    unprobed = _unprobed(engine, synced)
    if unprobed:
        return Part(passed=None, why=f"engines that synced were not probed: {', '.join(unprobed)}")
    count = sum(one.rows for one in versions)
    each = "" if count == len(versions) else f", in each of their {count} rows,"
    why = f"all {len(versions)} engine probes{each} are nearer the trainer's of their own version"
    return Part(passed=True, why=why)


def _follows(engine: Sequence[_Probe], trainer: Mapping[int, tuple[float, ...]]) -> list[Follow]:
    follows = []
    for probe in engine:
        if probe.version < 1:
            continue
        same = _distance(probe.values, trainer.get(probe.version))
        before = _distance(probe.values, trainer.get(probe.version - 1))
        if same is None or before is None:
            continue
        rows = _rows(probe, trainer)
        follows.append(
            Follow(
                version=probe.version,
                engine=probe.engine,
                to_same=same,
                to_before=before,
                rows=len(rows),
                rows_behind=sum(not near < far for near, far in rows),
            )
        )
    return follows


def _rows(probe: _Probe, trainer: Mapping[int, tuple[float, ...]]) -> list[tuple[float, float]]:
    """Per row of the probe: mean |d logprob| to the trainer's of the same version, and of the one before."""
    length = probe.row_tokens or len(probe.values)
    rows = []
    for begin in range(0, len(probe.values), length):
        part = slice(begin, begin + length)
        near, far = (_distance(probe.values[part], trainer[v][part]) for v in (probe.version, probe.version - 1))
        if near is not None and far is not None:
            rows.append((near, far))
    return rows


def _distance(one: Sequence[float] | None, other: Sequence[float] | None) -> float | None:
    """Mean absolute difference; None when one is missing, empty, or of another length."""
    if not one or not other or len(one) != len(other):
        return None
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


def _probe(row: Mapping[str, Any]) -> _Probe | None:
    labels = json.loads(row["labels_json"])
    source, version, engine = labels.get("source"), labels.get("version"), labels.get("engine")
    length = labels.get("row_tokens")
    if row["values"] is None or source not in ("trainer", "engine") or type(version) is not int:
        return None
    row_tokens = length if type(length) is int and length > 0 else None
    return _Probe(source, version, engine if isinstance(engine, str) else None, tuple(row["values"]), row_tokens)


def _mean(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The mean of means, each with the tokens it is of; where one does not say how many, all weigh the same."""
    tokens = [json.loads(row["labels_json"]).get("tokens") for row in rows]
    known = all(type(count) is int and count > 0 for count in tokens)
    weights = tokens if known else [1] * len(rows)
    return (
        sum(row["value"] * weight for row, weight in zip(rows, weights, strict=True)) / sum(weights) if rows else None
    )


def _on_policy(row: Mapping[str, Any]) -> bool:
    labels = json.loads(row["labels_json"])
    return row["value"] is not None and labels.get("staleness") == 0 and labels.get("same_version") is True
