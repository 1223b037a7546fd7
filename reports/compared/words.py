"""Words and numbers of a comparison's page."""

from collections.abc import Sequence

from reports.markdown import code, escape, number, percent
from reports.provenance import ON_CPU, SIMULATED
from results.comparing.alike import ON_CPU as NO_VERDICT_ON_CPU
from results.comparing.alike import TOLERANCE
from results.comparing.claims import Claim, Verdict
from results.comparing.comparison import Comparison, Side
from results.comparing.measures import Measure, RunMeasures
from results.comparing.welch import Contrast


def title(found: Comparison) -> str:
    """E.g. `skyrl async: main against branch (functional check on CPU, different seed)`."""
    base, *rest = found.sides
    runs = [run for side in found.sides for run in side.runs]
    cells = list(dict.fromkeys(f"{run.framework} {run.placement}" for run in runs))
    said = kinds(runs)
    if any("scripted policy" in run.notes for run in runs):
        said.append("scripted policy")
    if any(note.startswith("non-standard") for run in runs for note in run.notes):
        said.append("non-standard")
    if any(pair.unclaimed for pair in found.pairs):
        said.append("no verdict")
    said += [f"different {one.name}" for one in found.allowed]
    names = f"{' and '.join(side.label for side in rest)} against {base.label}"
    head = f"{cells[0]}: {names}" if len(cells) == 1 else names
    return head + (f" ({', '.join(dict.fromkeys(said))})" if said else "")


def kinds(runs: Sequence[RunMeasures]) -> list[str]:
    """What keeps the runs from being measurements of GPUs: `simulated`, `functional check on CPU`; empty if nothing."""
    said = []
    if any(run.framework == SIMULATED for run in runs):
        said.append(SIMULATED)
    if any(run.device == "cpu" and run.framework != SIMULATED for run in runs):
        said.append(ON_CPU)
    return said


def caveats(found: Comparison) -> list[str]:
    """What a reader may take from it, and what not; Markdown, one entry a paragraph."""
    said = []
    for one in found.allowed:
        said.append(f"**Not the same {escape(one.name)}**: {escape(' and '.join(one.values))}; allowed by the caller.")
    if any(pair.unclaimed == NO_VERDICT_ON_CPU for pair in found.pairs):
        said.append(f"**No verdict**: {NO_VERDICT_ON_CPU}.")
    said += _spreads(found)
    said += dict.fromkeys(f"{escape(text[0].upper() + text[1:])}." for side in found.sides for text in side.notices)
    if len({run.evidence for side in found.sides for run in side.runs if run.evidence is not None}) > 1:
        said.append(
            "`rollout_generating_s` rests on the engines' own counts in some runs, and on turns open at the client in "
            "others, where it holds what was queued: take it and `rollout_queued_s` together."
        )
    uneven = _uneven(found)
    if uneven:
        names = ", ".join(uneven)
        said.append(f"**Consumed work differs by more than {TOLERANCE:.0%}**: {names}: times hold that difference too.")
    return said


def _spreads(found: Comparison) -> list[str]:
    """Where how runs vary is taken from, pair by pair where they differ in it."""
    said: list[str] = []
    several = len(found.pairs) > 1
    for pair in found.pairs:
        of = f" ({escape(pair.side.label)} against {escape(pair.base.label)})" if several else ""
        alone = min(len(pair.base.runs), len(pair.side.runs)) == 1
        if pair.noise_unused:
            said.append(f"The noise that was named with `--noise-from` is not used{of}: {pair.noise_unused}.")
        if pair.noise and alone:
            said.append(
                f"How runs vary is taken from {pair.noise_runs} runs of {escape(pair.noise)}{of}, together with the "
                "sides' own where they have more than one: one spread for all is assumed."
            )
        elif pair.noise:
            said.append(
                f"The spread of runs is pooled with that of {pair.noise_runs} runs of {escape(pair.noise)}{of}."
            )
        elif alone:
            said.append(
                "A run is the replicate: with one run on a side, how runs vary is not known, and nothing is claimed."
            )
    return list(dict.fromkeys(said))


def lacking(found: Comparison) -> list[str]:
    """Measures that runs have no value of, with the reason, each once; Markdown."""
    told: dict[str, list[str]] = {}
    for pair in found.pairs:
        for claims in pair.claims.values():
            for claim in claims:
                if claim.lost:
                    told.setdefault(claim.lost, []).append(claim.measure.name)
    return [f"{', '.join(map(code, dict.fromkeys(names)))}: {escape(lost)}" for lost, names in told.items()]


def _uneven(found: Comparison) -> list[str]:
    told = []
    for pair in found.pairs:
        for claim in pair.claims["work consumed"]:
            if claim.a and claim.b is not None and abs(claim.b / claim.a - 1) > TOLERANCE:
                name = claim.measure.name.removeprefix("consumed_").replace("_", " ")
                told.append(f"{name} of {escape(pair.side.label)} {change(claim.b / claim.a)}")
    return told


def value(measure: Measure, given: float | None) -> str | None:
    """A side's value, in the measure's unit; None where it is not known."""
    if given is None:
        return None
    if measure.unit == "ratio":
        return percent(given)
    return number(given, 4)


def change(ratio: float) -> str:
    """A ratio as the change it is: 1.083 is +8.3%."""
    if ratio >= 10:
        return f"x{number(ratio)}"
    moved = 100 * (ratio - 1)
    text = f"{moved:+.2f}%" if abs(moved) < 0.995 else f"{moved:+.1f}%"
    return text if float(text[:-1]) else "0.00%"


def effect(contrast: Contrast, measure: Measure) -> str:
    """The effect with its interval: `+8.3% (+5.1% to +11.6%)`."""
    shown = _shown(contrast, measure, contrast.estimate)
    if contrast.low is None or contrast.high is None:
        return shown
    low, high = (_shown(contrast, measure, end) for end in (contrast.low, contrast.high))
    return f"{shown} ({low} to {high})"


def size(contrast: Contrast, measure: Measure, amount: float | None) -> str | None:
    """An effect without a sign: what can be detected."""
    if amount is None:
        return None
    if contrast.kind == "ratio":
        return f"{percent(amount)}" if amount < 10 else f"x{number(1 + amount)}"
    if measure.unit == "ratio":
        return f"{100 * amount:.1f} pp"
    return f"{number(amount)} s" if measure.unit == "s" else number(amount)


def _shown(contrast: Contrast, measure: Measure, given: float) -> str:
    if contrast.kind == "ratio":
        return change(given)
    if measure.unit == "ratio":
        return f"{100 * given:+.1f} pp"
    text = f"{given:+.4f}" if measure.unit == "s" else f"{given:+.3f}"
    return f"{text} {measure.unit}" if measure.unit == "s" else text


def signed(given: float) -> str:
    """Seconds of an effect, with their sign; what is nothing to four digits is 0."""
    if abs(given) >= 100:
        return f"{given:+.1f}"
    text = f"{given:+.4f}"
    return text if float(text) else "0"


def verdict(claim: Claim) -> str:
    """The verdict with its p value where one was told."""
    name = claim.verdict.value
    strong = claim.verdict in (Verdict.BETTER, Verdict.WORSE)
    text = f"**{name}**" if strong else name
    if claim.p_adjusted is None or claim.verdict in (Verdict.NONE, Verdict.NOT_COMPARABLE):
        return text
    p = "p < 0.001" if claim.p_adjusted < 0.001 else f"p = {claim.p_adjusted:.3f}"
    return f"{text} ({p})"


def runs_of(side: Side) -> str:
    """E.g. `5 runs`."""
    return f"{len(side.runs)} run" + ("" if len(side.runs) == 1 else "s")


def joined(values: Sequence[str]) -> str:
    """Different values, each once."""
    return ", ".join(dict.fromkeys(values))
