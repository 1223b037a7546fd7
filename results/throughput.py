"""Tokens per second and GPU, goodput, MFU, and the two ledgers that say where every token and trajectory went."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from harness.protocol.models import SHAPES
from results.account import Account
from results.classes import Class
from results.intervals import Ns
from results.stats import Estimate, ratio_of_sums
from results.store import RunTables
from results.tracks import FOREVER, UNKNOWN, Tracks
from results.trained import trained_tokens
from results.window import Window

TRAIN_PASSES = 3.0  # forward, and a backward of twice its FLOPs (Kaplan et al. 2020, section 2.1)

# Dense bf16 peak of the tensor cores, FLOP/s (NVIDIA's data sheets of each product, figures without sparsity). The
# first name that is part of the GPU's own is taken, so the more specific come first.
PEAK_BF16_FLOPS: tuple[tuple[str, float], ...] = (
    ("H100 PCIe", 756e12),
    ("H100 NVL", 835e12),
    ("H100 80GB HBM3", 989.4e12),
    ("H100 SXM", 989.4e12),
    ("H200 NVL", 835e12),
    ("H200", 989.4e12),
    ("B200", 2250e12),
    ("A100", 312e12),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What came in and where it went, over the window; `unit` is token or trajectory. In flight and queued: at its end.

    Each side is counted from its own records (turns in, trajectories out), so `gap` is a check, not an identity.
    Generated tokens of a trained trajectory that its loss mask leaves out are dropped (other). A trajectory that did
    not end well is failed, also where it kept its place in a batch: it trained on nothing.
    """

    unit: str
    open_at_start: float
    added: float  # generated tokens, or started trajectories
    trained: float
    dropped_stale: float
    dropped_other: float
    failed: float
    in_flight: float
    queued: float

    @property
    def gap(self) -> float:
        """What came in and went nowhere: 0 when the ledger closes."""
        out = self.trained + self.dropped_stale + self.dropped_other + self.failed + self.in_flight + self.queued
        return self.open_at_start + self.added - out


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Rates are per second and GPU, over ALL GPUs of the run; token counts are of the window."""

    tokens: Estimate  # generated tokens / s / GPU
    goodput: Estimate  # loss tokens of the good trajectories / s / GPU
    trained: Estimate  # loss tokens of all that were trained on / s / GPU, beyond the bound or not
    generated_tokens: float
    prefilled_tokens: float | None  # prompt tokens of turns that began in the window, cached or not
    loss_tokens: int | None
    processed_tokens: int | None
    processed_source: str  # trainer | trajectories (their sequences' lengths)
    good_trajectories: int
    stale_trajectories: int  # trained on beyond the bound: not good
    unknown_trajectories: int  # trained on, version at the first token unknown: not good either
    unmasked_trajectories: int  # good, but how many of their tokens were trained is not on record: no goodput
    mfu: float | None  # training FLOPs / (window x all GPUs x peak)
    mfu_train: float | None  # training FLOPs / (seconds of class train x train GPUs x peak)
    train_flops: float | None
    logprob_flops: float | None  # one more forward, apart from the MFU; None when no logprob forward ran
    mfu_note: str | None
    token_ledger: Ledger
    trajectory_ledger: Ledger


def peak_flops(gpu_name: str | None) -> float | None:
    """Dense bf16 peak of a GPU by its NVML name, FLOP/s; None when it is not in the table."""
    if gpu_name is None or re.search(r"\bMIG\b", gpu_name):
        return None  # a slice of a GPU has a share of its peak that the name does not tell
    found = (peak for name, peak in PEAK_BF16_FLOPS if re.search(rf"\b{name}\b", gpu_name, re.IGNORECASE))
    return next(found, None)


def throughput(run: RunTables, tracks: Tracks, window: Window, account: Account, lives: "Lives") -> Throughput:
    """Rates and ledgers over the window. Tokens of a turn across an edge count pro rata to its time inside."""
    gpus = run.spec.total_gpus
    boundaries = np.asarray(window.boundaries_ns, dtype=np.int64)
    per_step = _tokens_per_step(tracks, boundaries)
    gpu_seconds = window.step_seconds * gpus
    stale = lives.age > run.spec.max_staleness
    left_now = window.holds(lives.left)
    trained = left_now & lives.trained
    good = trained & ~stale & ~np.isnan(lives.age)
    good_tokens, unmasked = _loss_per_step(lives, good, boundaries)
    trained_loss, unknown_masks = _loss_per_step(lives, trained, boundaries)
    unknown_rate = Estimate(value=None, n=window.steps)
    steps = run.frame("steps")
    steps = steps[window.holds(steps["end_ns"].to_numpy(np.int64))]
    processed, source = _whole(steps["processed_tokens"]), "trainer"
    lengths = lives.lengths[left_now & lives.consumed]  # what trains on nothing goes through the forward all the same
    if processed is None and lengths.size and not np.isnan(lengths).any():
        processed, source = int(lengths.sum()), "trajectories"
    flops, note = _train_flops(run, processed, lengths)
    peak, reason = _peak(run)
    seconds = sum(unit.seconds.get(Class.TRAIN.value, 0.0) * unit.gpus for unit in account.units)
    logprob = any(Class.LOGPROB.value in unit.seconds for unit in account.units)
    known = flops is not None and peak is not None
    tokens_ledger, trajectories_ledger = _ledgers(tracks, window, lives, stale, float(per_step.sum()))
    return Throughput(
        tokens=ratio_of_sums(per_step, gpu_seconds),
        goodput=unknown_rate if unmasked else ratio_of_sums(good_tokens, gpu_seconds),
        trained=unknown_rate if unknown_masks else ratio_of_sums(trained_loss, gpu_seconds),
        generated_tokens=float(per_step.sum()),
        prefilled_tokens=_prefilled(run, window),
        loss_tokens=_whole(steps["loss_tokens"]),
        processed_tokens=processed,
        processed_source=source,
        good_trajectories=int(good.sum()),
        stale_trajectories=int((trained & stale).sum()),
        unknown_trajectories=int((trained & np.isnan(lives.age)).sum()),
        unmasked_trajectories=unmasked,
        mfu=flops / (window.seconds * gpus * peak) if flops is not None and peak is not None else None,
        mfu_train=flops / (seconds * peak) if flops is not None and peak is not None and seconds > 0 else None,
        train_flops=flops,
        logprob_flops=flops / TRAIN_PASSES if flops is not None and logprob else None,
        mfu_note=None if known else reason or note,
        token_ledger=tokens_ledger,
        trajectory_ledger=trajectories_ledger,
    )


def _loss_per_step(lives: "Lives", these: npt.NDArray[np.bool_], boundaries: Ns) -> tuple[npt.NDArray[np.float64], int]:
    """Loss tokens of these trajectories by the step that trained on them; and of how many the mask is not known."""
    of_step = np.searchsorted(boundaries[1:], lives.left[these], side="left")
    summed = np.bincount(of_step, weights=np.nan_to_num(lives.loss[these]), minlength=boundaries.size - 1)
    return summed.astype(np.float64), int(np.isnan(lives.loss[these]).sum())


def _tokens_per_step(tracks: Tracks, boundaries: Ns) -> npt.NDArray[np.float64]:
    """Tokens generated between neighbouring boundaries, a turn's spread evenly over it (unknown counts add none)."""
    told = tracks.answered
    start, end, tokens = tracks.turns.start[told], tracks.turns.end[told], np.nan_to_num(tracks.turn_tokens[told])
    inside = (end > boundaries[0]) & (start < boundaries[-1])
    start, end, tokens = start[inside], np.maximum(end[inside], start[inside] + 1), tokens[inside]
    first = np.searchsorted(boundaries, start, side="right")  # 0: before the window
    last = np.searchsorted(boundaries, end, side="left")
    pieces = last - first + 1
    turn = np.repeat(np.arange(start.size), pieces)
    cell = first[turn] + np.arange(turn.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    edges = np.concatenate((np.array([0], dtype=np.int64), boundaries, np.array([FOREVER], dtype=np.int64)))
    length = np.minimum(end[turn], edges[cell + 1]) - np.maximum(start[turn], edges[cell])
    share = tokens[turn] * length / (end - start)[turn]
    summed = np.bincount(cell, weights=share, minlength=boundaries.size + 1)
    return summed[1 : boundaries.size].astype(np.float64)


def _tokens_of_lives(tracks: Tracks, at: int) -> npt.NDArray[np.float64]:
    """Tokens each trajectory had generated at an instant."""
    told = tracks.answered
    start, end, life = tracks.turns.start[told], tracks.turns.end[told], tracks.turns.life[told]
    length = np.maximum(end - start, 1)
    tokens = np.nan_to_num(tracks.turn_tokens[told]) * np.clip(at - start, 0, length) / length
    known = life != UNKNOWN
    summed = np.bincount(life[known], weights=tokens[known], minlength=tracks.life_start.size)
    return summed.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Lives:
    """Trajectories, and when and how each left the pipeline (FOREVER: it did not).

    One that did not end well and was consumed all the same kept its place in a batch, its loss mask 0: it was not
    trained on, it failed.
    """

    left: Ns
    consumed: npt.NDArray[np.bool_]  # in the batch of an update
    trained: npt.NDArray[np.bool_]  # of those, the ones that ended well
    dropped: npt.NDArray[np.bool_]
    ok: npt.NDArray[np.bool_]
    cancelled: npt.NDArray[np.bool_]
    age: npt.NDArray[np.float64]  # trained_at - version_first; NaN where unknown
    tokens: npt.NDArray[np.float64]  # generated
    loss: npt.NDArray[np.float64]  # of those, what the loss mask has
    lengths: npt.NDArray[np.float64]  # of the sequences as they are trained

    @classmethod
    def of(cls, run: RunTables, tracks: Tracks) -> "Lives":
        lives, steps = run.frame("trajectories"), run.frame("steps").set_index("step")
        dropped_at = lives["step_dropped"].map(steps["end_ns"][~steps.index.duplicated(keep="last")])
        status = lives["status"]
        consumed, dropped = lives["consumed_ns"].notna().to_numpy(), dropped_at.notna().to_numpy()
        ended_badly = status.isin(["failed", "timeout", "cancelled"]).to_numpy()
        left = np.full(len(lives), FOREVER, dtype=np.int64)
        left[ended_badly] = tracks.life_end[ended_badly]
        left[dropped] = dropped_at[dropped].to_numpy(np.int64)
        left[consumed] = lives.loc[consumed, "consumed_ns"].to_numpy(np.int64)
        at = lives["version_trained"].fillna(lives["step_dropped"].map(_trained_at(steps)).astype("Int64"))
        age = (at - lives["version_first"]).to_numpy(np.float64, na_value=np.nan)
        tokens = lives["generated_tokens"].to_numpy(np.float64, na_value=np.nan)
        loss, lengths = trained_tokens(run)
        ok, cancelled = (status == "ok").to_numpy(np.bool_), (status == "cancelled").to_numpy(np.bool_)
        return cls(left, consumed, consumed & ok, dropped & ~consumed, ok, cancelled, age, tokens, loss, lengths)

    @property
    def failed(self) -> npt.NDArray[np.bool_]:
        """Of those that left: neither trained on, nor dropped, nor cancelled before anyone took them."""
        gone = (self.left != FOREVER) & ~self.trained & ~self.dropped
        return np.asarray(gone & (self.consumed | ~self.cancelled), dtype=np.bool_)

    @property
    def cut(self) -> npt.NDArray[np.bool_]:
        """Of those that left: cancelled before anyone took them."""
        gone = (self.left != FOREVER) & ~self.consumed & ~self.dropped
        return np.asarray(gone & self.cancelled, dtype=np.bool_)


def _trained_at(steps: pd.DataFrame) -> "pd.Series[int]":
    return steps["trained_at"][~steps.index.duplicated(keep="last")]


def _ledgers(
    tracks: Tracks, window: Window, lives: Lives, stale: npt.NDArray[np.bool_], added: float
) -> tuple[Ledger, Ledger]:
    begin, end = window.start_ns, window.end_ns
    before, after = _tokens_of_lives(tracks, begin), _tokens_of_lives(tracks, end)
    gone, leaves = lives.left <= begin, window.holds(lives.left)
    stays = ~gone & ~leaves & (tracks.life_start < end)
    fates = {
        "trained": leaves & lives.trained,
        "dropped_stale": leaves & lives.dropped & stale,
        "dropped_other": leaves & ((lives.dropped & ~stale) | lives.cut),
        "failed": leaves & lives.failed,
        "in_flight": stays & (tracks.life_end > end),
        "queued": stays & (tracks.life_end <= end),
    }
    recorded = np.where(np.isnan(lives.tokens), after, lives.tokens)
    open_before = ~gone & (tracks.life_start < begin)
    amounts: Mapping[str, npt.NDArray[np.float64]] = {
        name: (recorded if name in ("trained", "dropped_stale", "dropped_other", "failed", "queued") else after)
        for name in fates
    }
    flows = {name: float(amounts[name][mask].sum()) for name, mask in fates.items()}
    # What a trained trajectory generated and its loss mask leaves out was not trained; an unknown mask leaves out none.
    left_out = np.where(fates["trained"], recorded - np.where(np.isnan(lives.loss), recorded, lives.loss), 0.0)
    flows["dropped_other"] += float(left_out.sum())
    flows["trained"] -= float(left_out.sum())
    tokens = Ledger(unit="token", open_at_start=float(before[open_before].sum()), added=added, **flows)
    started = (tracks.life_start >= begin) & (tracks.life_start < end)
    counts = Ledger(
        unit="trajectory",
        open_at_start=float(open_before.sum()),
        added=float(started.sum()),
        **{name: float(mask.sum()) for name, mask in fates.items()},
    )
    return tokens, counts


def _prefilled(run: RunTables, window: Window) -> int | None:
    turns = run.part("turns", ("start_ns", "prompt_tokens"))
    begun = pc.and_(pc.greater_equal(turns["start_ns"], window.start_ns), pc.less(turns["start_ns"], window.end_ns))
    tokens = turns["prompt_tokens"].filter(begun)
    return None if tokens.null_count or not len(tokens) else int(pc.sum(tokens).as_py())


def _whole(column: "pd.Series[int]") -> int | None:
    """The sum of a column that is known in every row; None when it is empty or a row is unknown."""
    return None if column.empty or column.isna().any() else int(column.sum())


def _train_flops(run: RunTables, processed: int | None, lengths: npt.NDArray[np.float64]) -> tuple[float | None, str]:
    shape = SHAPES.get(run.spec.model)
    if shape is None:
        return None, f"the shape of model {run.spec.model} is not known"
    if processed is None:
        return None, "tokens through the training forward were not recorded"
    if lengths.size == 0 or np.isnan(lengths).any():
        return None, "lengths of the trained trajectories were not recorded"
    # Token i of a sequence attends to i tokens: a token-weighted mean of half the sequence it is in.
    context = float((lengths * (lengths + 1) / 2).sum() / max(lengths.sum(), 1))
    return TRAIN_PASSES * shape.forward_flops(processed, context), ""


def _peak(run: RunTables) -> tuple[float | None, str | None]:
    names = {str(gpu.get("name")) for gpu in run.meta.get("gpus") or ()}
    if not names:
        return None, "no GPU"
    if len(names) > 1:
        return None, f"GPUs of different kinds: {', '.join(sorted(names))}"
    name = names.pop()
    peak = peak_flops(name)
    return peak, None if peak is not None else f"the dense peak of {name} is not in the table"
