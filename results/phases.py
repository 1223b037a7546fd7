"""The phase table: the train track of the steady window, second by second, so that the rows sum to the step time."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.protocol.phases import Phase, Pool
from harness.protocol.spec import Placement
from results.intervals import innermost
from results.tracks import Tracks
from results.window import Window

_CODES = {phase.value: code for code, phase in enumerate(Phase)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """One phase of the train track over the window."""

    phase: str
    native_names: tuple[str, ...]
    total_s: float
    mean_s: float  # per step
    share: float  # of the window: of the step
    n: int  # leaf spans


def phase_rows(tracks: Tracks, window: Window, placement: Placement) -> tuple[PhaseRow, ...]:
    """Rows in the vocabulary's order, those that occur and always `other`: what no leaf span named."""
    pools = [Pool.TRAIN.value] + ([Pool.BOTH.value] if placement is Placement.COLOCATED else [])
    leaves = tracks.leaves
    leaves = leaves[leaves["pool"].isin(pools) & leaves["phase"].isin(list(_CODES))]
    leaves = leaves.drop_duplicates(["host", "pid", "phase", "start_ns", "end_ns"])
    leaves = leaves[(leaves["start_ns"] < window.end_ns) & (leaves["end_ns"] > window.start_ns)]
    seconds = innermost(
        leaves["start_ns"].to_numpy(np.int64),
        leaves["end_ns"].to_numpy(np.int64),
        leaves["phase"].map(_CODES).to_numpy().astype(np.int8),
        window.start_ns,
        window.end_ns,
        _CODES[Phase.OTHER.value],
    ).timeline.seconds(len(_CODES))
    return tuple(
        PhaseRow(
            phase=phase,
            native_names=_names(leaves, phase),
            total_s=float(seconds[code]),
            mean_s=float(seconds[code]) / window.steps,
            share=float(seconds[code]) / window.seconds,
            n=int((leaves["phase"] == phase).sum()),
        )
        for phase, code in _CODES.items()
        if seconds[code] > 0 or phase == Phase.OTHER.value or (leaves["phase"] == phase).any()
    )


def _names(leaves: pd.DataFrame, phase: str) -> tuple[str, ...]:
    return tuple(sorted({str(name) for name in leaves.loc[leaves["phase"] == phase, "native_name"]}))
