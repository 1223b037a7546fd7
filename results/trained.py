"""What of each trajectory a trainer trains on: its loss tokens, and the length of its sequence."""

import numpy as np
import numpy.typing as npt

from harness.protocol.spec import Load, Thinking
from results.store import RunTables
from results.tracks import floats

Tokens = npt.NDArray[np.float64]


def may_be_cut(run: RunTables) -> bool:
    """Whether what is trained may be less than what was generated: thoughts are taken out of what is sent later."""
    return run.spec.load is Load.LIVE and run.spec.thinking is Thinking.STRIP


def trained_tokens(run: RunTables) -> tuple[Tokens, Tokens]:
    """(loss tokens, tokens of the whole sequence) of each trajectory, by row; NaN where unknown.

    A trajectory that did not end well trains on nothing: it only keeps its place in a batch. Where they were not
    recorded, all that was generated is trained, and nothing is taken out, unless thoughts are stripped.
    """
    lives = run.tables["trajectories"]
    parts = [floats(lives.column(f"{name}_tokens")) for name in ("prompt", "generated", "observation")]
    cut = may_be_cut(run)
    nothing = np.full(lives.num_rows, np.nan)
    loss = _known(floats(lives.column("loss_tokens")), nothing if cut else parts[1])
    whole = _known(floats(lives.column("sequence_tokens")), nothing if cut else parts[0] + parts[1] + parts[2])
    ended = np.array([status == "ok" for status in lives.column("status").to_pylist()], dtype=np.bool_)
    return np.where(ended, loss, 0.0), whole


def _known(recorded: Tokens, otherwise: Tokens) -> Tokens:
    return np.where(np.isnan(recorded), otherwise, recorded)
