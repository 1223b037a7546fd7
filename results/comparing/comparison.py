"""Sides of runs, compared: the first is the base, and each of the others is claimed and blamed against it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.protocol.errors import SpecError
from results.comparing.alike import GRANULARITY, Difference, no_verdict, others, refuse, same_seeds
from results.comparing.blame import Blame, blame
from results.comparing.claims import RULE, Claim, Compared, Rule, judge
from results.comparing.measures import HEADLINE, MEASURES, PARTS, WORK, Measure, RunMeasures
from results.comparing.paired import by_seed, by_steps, on_common_plans
from results.comparing.welch import Noise, noise_of

SMALL = 0.01  # of a step: parts below it on both sides are not judged (blame has them)
_ROLLOUT = tuple(measure for measure in MEASURES.values() if measure.account)
_WAITS = tuple(MEASURES[name] for name in ("phase_generation_s", "phase_wait_rollout_s"))
FAMILIES = ("headline", "parts of a step", "rollout side", "work consumed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Runs of one cell. `left_out`: runs that were given and have no number in a comparison, with the reason."""

    label: str
    runs: tuple[RunMeasures, ...]
    left_out: tuple[tuple[str, str], ...] = ()

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
    """One side against the base. `claims`: by family, in FAMILIES' order; `unclaimed`: why nothing is claimed."""

    base: Side
    side: Side
    claims: Mapping[str, tuple[Claim, ...]]
    blame: Blame | str
    common_plans: int | None
    unclaimed: str

    def claim(self, measure: str) -> Claim | None:
        """The claim of a measure; None where it was not judged."""
        for family in self.claims.values():
            for one in family:
                if one.measure.name == measure:
                    return one
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that a page of a comparison says. `allowed`: differences that refuse it, and were allowed."""

    sides: tuple[Side, ...]
    pairs: tuple[Pair, ...]
    allowed: tuple[Difference, ...]
    differences: tuple[tuple[str, list[tuple[str, ...]]], ...]
    rule: Rule
    noise_from: str
    noise_runs: int


def compare_sides(
    sides: Sequence[Side],
    *,
    allowed: Collection[str] = (),
    rule: Rule = RULE,
    noise: Side | None = None,
) -> Comparison:
    """All sides against the first. `noise`: runs of one cell whose run-to-run spread stands for the sides' own.

    Raises:
        SpecError: fewer than two sides, a side without a run that may be compared, a run on two sides, runs that may
            not be compared (see `alike.refuse`), or noise of another framework, placement or device.
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
    if noise is not None:
        _same_cell(noise, sides)
    return Comparison(
        sides=tuple(sides),
        pairs=tuple(_pair(sides[0], side, rule, noise) for side in sides[1:]),
        allowed=tuple(found),
        differences=tuple(others([side.runs for side in sides])),
        rule=rule,
        noise_from="" if noise is None else noise.label,
        noise_runs=0 if noise is None else len(noise.runs),
    )


def _pair(base: Side, side: Side, rule: Rule, noise: Side | None) -> Pair:
    runs, common = on_common_plans([*base.runs, *side.runs])
    a, b = runs[: len(base.runs)], runs[len(base.runs) :]
    unclaimed = no_verdict(a, b)
    spread = _noise(noise, (*HEADLINE, *PARTS, *_ROLLOUT, *_WAITS))
    grains = {run.granularity for run in (*a, *b) if run.granularity is not None}
    refused = f"the time accounts differ in {GRANULARITY} ({' and '.join(sorted(grains))})" if len(grains) > 1 else ""
    families = (HEADLINE, (*_large(a, b), *_WAITS), _ROLLOUT, WORK)
    claims = {}
    for name, measures in zip(FAMILIES, families, strict=True):
        given = [one for measure in measures if (one := _compared(measure, a, b, refused, unclaimed, spread))]
        claims[name] = judge(given, rule=rule, noise=spread)
    return Pair(
        base=base,
        side=side,
        claims=claims,
        blame=blame(a, b, noise=_noise(noise, PARTS, differences=True)),
        common_plans=common,
        unclaimed=unclaimed,
    )


def _compared(
    measure: Measure,
    a: Sequence[RunMeasures],
    b: Sequence[RunMeasures],
    refused: str,
    unclaimed: str,
    noise: Mapping[str, Noise] | None,
) -> Compared | None:
    """The material of one claim; None where no run of either side has a value, or all of them are 0."""
    x, y = [run.value(measure.name) for run in a], [run.value(measure.name) for run in b]
    if not any((*x, *y)):
        known = [value for value in (*x, *y) if value is not None]
        if not known or measure.kind == "ratio":
            return None
    contrast = None
    if len(x) == len(y) == 1 and noise is None:
        contrast = by_steps(a[0], b[0], measure)
    elif same_seeds([a, b]):
        contrast = by_seed(a, b, measure)
    unknown = next((run.why(measure.name) for run in (*a, *b) if run.value(measure.name) is None), "")
    return Compared(
        measure=measure,
        a=x,
        b=y,
        contrast=contrast,
        refused=refused if measure.account else "",
        unclaimed=unclaimed,
        why_unknown=unknown,
    )


def _large(a: Sequence[RunMeasures], b: Sequence[RunMeasures]) -> tuple[Measure, ...]:
    """The parts that are more than SMALL of a step on a side."""

    def share(side: Sequence[RunMeasures], name: str) -> float:
        whole = sum(run.value("step_time_s") or 0.0 for run in side)
        return sum(run.value(name) or 0.0 for run in side) / whole if whole else 0.0

    return tuple(part for part in PARTS if max(share(a, part.name), share(b, part.name)) > SMALL)


def _noise(side: Side | None, measures: Sequence[Measure], *, differences: bool = False) -> dict[str, Noise] | None:
    if side is None:
        return None
    runs, _ = on_common_plans(side.runs)
    made = [replace(measure, kind="difference") if differences else measure for measure in measures]
    made += [replace(MEASURES["step_time_s"], kind="difference")] if differences else []
    return {one.name: noise_of([run.value(one.name) for run in runs], one.kind) for one in made}


def _same_cell(noise: Side, sides: Sequence[Side]) -> None:
    if not noise.runs:
        raise SpecError(f"--noise-from {noise.label}: no run in it may be compared")
    cells = {(run.framework, run.placement, run.device) for side in sides for run in side.runs}
    for run in noise.runs:
        if (cell := (run.framework, run.placement, run.device)) not in cells:
            raise SpecError(
                f"--noise-from {noise.label}: its runs are {' '.join(cell)}, and none of the compared is: "
                "how runs vary is taken from runs of the same cell"
            )
    if len({run.spec_digest for run in noise.runs}) > 1:
        raise SpecError(f"--noise-from {noise.label}: runs of several cells; give the runs of one")
    if len(noise.runs) < 3:
        raise SpecError(f"--noise-from {noise.label}: {len(noise.runs)} run(s); 3 or more tell how runs vary")
