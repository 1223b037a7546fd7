"""The time account of a hand-made history."""

from recorded_histories import History, ns

from results.account import Account, UnitAccount, make_account
from results.classes import Class
from results.tracks import tracks
from results.window import Window

END = 40  # seconds of the histories


def account_of(history: History, low: float = 0, high: float = END, steps: int = 1) -> Account:
    """The account of a window, in seconds of the history; `steps` are of one length."""
    run = history.run()
    edges = tuple(ns(low + (high - low) * i / steps) for i in range(steps + 1))
    window = Window(start_ns=edges[0], end_ns=edges[-1], after_step=0, last_step=steps, boundaries_ns=edges)
    return make_account(run, tracks(run), window)


def labels_of(unit: UnitAccount, end: int = END) -> list[str]:
    """The class in the middle of each second."""
    names, edges = list(Class), unit.timeline.edges.tolist()
    cell, found = 0, []
    for second in range(end):
        while edges[cell + 1] <= ns(second + 0.5):
            cell += 1
        found.append(names[unit.timeline.codes[cell]].value)
    return found


def unit_named(account: Account, name: str) -> UnitAccount:
    """One of its units."""
    return next(unit for unit in account.units if unit.unit == name)
