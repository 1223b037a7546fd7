"""The time accounts of several runs side by side; of another granularity they are not comparable, and not shown."""

from collections.abc import Mapping, Sequence

from reports.case import Case
from reports.comparable import bad_run, granularity_of
from reports.markdown import Footnotes, code, escape, percent, table
from reports.tables import classes


def accounts_beside(cases: Sequence[Case], names: Sequence[str], notes: Footnotes) -> list[str]:
    """A row per run: share of the window per class, of the pool that rolls out."""
    pools = [_rollout(case) for case in cases]
    grain = next((found for case in cases if (found := granularity_of(case)) and not bad_run([case])), None)
    why = [_why_not(case, grain) for case in cases]
    heads = classes([pool for pool, reason in zip(pools, why, strict=True) if reason is None])
    rows = []
    for case, name, pool, reason in zip(cases, names, pools, why, strict=True):
        account = case.figures.account
        if reason is not None or account is None:
            cells = [notes.unknown(reason or case.no_window) for _ in heads]
        else:
            cells = [_share(pool, head, account.window_s) for head in heads]
        rows.append([escape(name), code(granularity_of(case)) if account else notes.unknown(case.no_window), *cells])
    header = ["Run, pool that rolls out", "granularity", *(escape(head.replace("_", " ")) for head in heads)]
    return table(header, rows, "ll")


def _rollout(case: Case) -> dict[str, float]:
    account = case.figures.account
    if account is None:
        return {}
    pool = "both" if any(unit.pool == "both" for unit in account.units) else "rollout"
    return account.pool_seconds(pool) if any(unit.pool == pool for unit in account.units) else {}


def _share(pool: Mapping[str, float], name: str, whole: float) -> str:
    return " " if name not in pool and name != "other" else percent(pool.get(name, 0.0) / whole)


def _why_not(case: Case, grain: str | None) -> str | None:
    mine = granularity_of(case)
    if mine is None:
        return case.no_window
    if bad := bad_run([case]):
        return bad
    if mine != grain:
        return f"the granularity of its account is {mine}, the first run's is {grain}: they are not compared"
    return None
