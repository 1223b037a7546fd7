"""Sides of runs, compared: the first is the base, and each of the others is claimed and blamed against it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.protocol.errors import SpecError
from results.comparing.alike import GRANULARITY, Difference, no_verdict, others, refuse
from results.comparing.blame import Blame, blame
from results.comparing.claims import RULE, Claim, Compared, Rule, judge
from results.comparing.measures import HEADLINE, MEASURES, PARTS, WORK, Measure, RunMeasures, on_devices
from results.comparing.noise import SEEDS, Spread, spread_of
from results.comparing.paired import by_seed, by_steps, on_common_plans, same_seeds
from results.comparing.welch import finite

SMALL = 0.01  # of a step: parts below it on both sides are not judged (blame has them)
_ROLLOUT = tuple(measure for measure in MEASURES.values() if measure.account)
_WAITS = tuple(MEASURES[name] for name in ("phase_generation_s", "phase_wait_rollout_s"))
FAMILIES = ("headline", "parts of a step", "rollout side", "work consumed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Runs of one cell. `left_out`: runs that were given and have no number in a comparison, with the reason.

    `notices`: what must be said of where the runs are from.
    """

    label: str
    runs: tuple[RunMeasures, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, label: str, runs: Sequence[RunMeasures]) -> "Side":
        """A side of those of the runs that may be compared."""
        good = tuple(run for run in runs if not run.problems)
        return cls(
            label=label,
            runs=good,
            left_out=tuple((run.run_id, "; ".join(run.problems)) for run in runs if run.problems),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One side against the base. `claims`: by family, in FAMILIES' order; `unclaimed`: why nothing is claimed.

    `noise`, `noise_runs`: the runs of elsewhere whose spread is taken; empty where none is. `noise_unused`: why it is
    not, though it was given.
    """

    base: Side
    side: Side
    claims: Mapping[str, tuple[Claim, ...]]
    blame: Blame | str
    common_plans: int | None
    unclaimed: str
    noise: str = ""
    noise_runs: int = 0
    noise_unused: str = ""

    def claim(self, measure: str) -> Claim | None:
        """The claim of a measure; None where it was not judged."""
        for family in self.claims.values():
            for one in family:
                if one.measure.name == measure:
                    return one
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that a page of a comparison says. `allowed`: differences that refuse it, and were allowed.

    `apart`: cells that were given too, and are in no comparison of the page, with the reason.
    """

    sides: tuple[Side, ...]
    pairs: tuple[Pair, ...]
    allowed: tuple[Difference, ...]
    differences: tuple[tuple[str, list[tuple[str, ...]]], ...]
    rule: Rule
    apart: tuple[str, ...] = ()


def compare_sides(
    sides: Sequence[Side],
    *,
    allowed: Collection[str] = (),
    rule: Rule = RULE,
    noise: Side | Sequence[Side] | None = None,
    apart: Sequence[str] = (),
) -> Comparison:
    """All sides against the first. `noise`: runs, cell by cell, whose spread stands for that of a side of their cell.

    Raises:
        SpecError: fewer than two sides, a side without a run that may be compared, a run on two sides, runs that may
            not be compared (see `alike.refuse`), or noise of other cells than the sides'.
    """
    if len(sides) < 2:
        raise SpecError("nothing to compare with: give two or more of runs, sweeps, quoted globs or baselines")
    for side in sides:
        if not side.runs:
            why = "; ".join(f"{name} {reason}" for name, reason in side.left_out) or "it holds no run"
            raise SpecError(f"{side.label}: no run that may be compared: {why}")
    seen: dict[str, str] = {}
    for side in sides:
        for run in side.runs:
            if run.run_id in seen:
                raise SpecError(f"{run.run_id}: in {seen[run.run_id]} and in {side.label}; a run is given once")
            seen[run.run_id] = side.label
    found = refuse([side.runs for side in sides], allowed)
    cells = None if noise is None else [noise] if isinstance(noise, Side) else list(noise)
    return Comparison(
        sides=tuple(sides),
        pairs=tuple(_pair(sides[0], side, rule, cells) for side in sides[1:]),
        allowed=tuple(found),
        differences=tuple(others([side.runs for side in sides])),
        rule=rule,
        apart=tuple(apart),
    )


def _pair(base: Side, side: Side, rule: Rule, cells: Sequence[Side] | None) -> Pair:
    runs, common = on_common_plans([*base.runs, *side.runs])
    a, b = runs[: len(base.runs)], runs[len(base.runs) :]
    unclaimed = no_verdict(a, b)
    spread = None if cells is None else spread_of(cells, base, side, (*HEADLINE, *PARTS, *_ROLLOUT, *_WAITS), PARTS)
    grains = {run.granularity for run in (*a, *b) if run.granularity is not None}
    refused = f"the time accounts differ in {GRANULARITY} ({' and '.join(sorted(grains))})" if len(grains) > 1 else ""
    families = (HEADLINE, (*_large(a, b), *_WAITS), _ROLLOUT, WORK)
    claims = {}
    for name, measures in zip(FAMILIES, families, strict=True):
        given = [_compared(measure, a, b, refused, unclaimed, spread) for measure in measures]
        kept = [_told(one, (base, a), (side, b)) for one in given if one is not None]
        claims[name] = judge(kept, rule=rule, noise=None if spread is None else spread.claims)
    return Pair(
        base=base,
        side=side,
        claims=claims,
        blame=blame(a, b, noise=None if spread is None else spread.effects),
        common_plans=common,
        unclaimed=unclaimed,
        noise="" if spread is None else spread.label,
        noise_runs=0 if spread is None else spread.runs,
        noise_unused=SEEDS if cells is not None and spread is None else "",
    )


def _compared(
    measure: Measure,
    a: Sequence[RunMeasures],
    b: Sequence[RunMeasures],
    refused: str,
    unclaimed: str,
    noise: Spread | None,
) -> Compared | None:
    """The material of one claim; None where no run of either side has a value, or all of them are 0."""
    x, y = [run.value(measure.name) for run in a], [run.value(measure.name) for run in b]
    if not any((*x, *y)):
        known = [value for value in (*x, *y) if value is not None]
        if not known or measure.kind == "ratio":
            return None
    contrast = None
    apart = ""
    if len(x) == len(y) == 1 and noise is None:
        contrast = by_steps(a[0], b[0], measure)
    elif same_seeds([a, b]):
        of_a, of_b, contrast = by_seed(a, b, measure)
        if of_a:
            x, y = list(of_a), list(of_b)
        elif any(map(finite, x)) and any(map(finite, y)):
            apart = "there is no seed of which both sides have a value"
    unknown = next((run.why(measure.name) for run in (*a, *b) if run.value(measure.name) is None), "")
    return Compared(
        measure=on_devices(measure, [run.device for run in (*a, *b)]),
        a=x,
        b=y,
        contrast=contrast,
        refused=(refused if measure.account else "") or apart,
        unclaimed=unclaimed,
        why_unknown=unknown,
    )


def _told(one: Compared, *sides: tuple[Side, Sequence[RunMeasures]]) -> Compared:
    """With what each side's runs lack: a value that is not there must not go unseen."""
    counts, said = [], []
    for side, runs in sides:
        lacking = [run for run in runs if not finite(run.value(one.measure.name))]
        counts.append(len(lacking))
        if lacking and len(lacking) < len(runs):
            why = dict.fromkeys(run.why(one.measure.name) or "not a number" for run in lacking)
            said.append(f"{len(lacking)} of {len(runs)} runs of {side.label} have none of it: {'; '.join(why)}")
    return replace(one, lost_a=counts[0], lost_b=counts[1], lost="; ".join(said))


def _large(a: Sequence[RunMeasures], b: Sequence[RunMeasures]) -> tuple[Measure, ...]:
    """The parts that are more than SMALL of a step on a side."""

    def share(side: Sequence[RunMeasures], name: str) -> float:
        whole = sum(run.value("step_time_s") or 0.0 for run in side)
        return sum(run.value(name) or 0.0 for run in side) / whole if whole else 0.0

    return tuple(part for part in PARTS if max(share(a, part.name), share(b, part.name)) > SMALL)
