"""A comparison as Markdown: the same runs give the same bytes."""

from collections.abc import Sequence

from reports.compared.words import caveats, effect, joined, lacking, runs_of, signed, size, title, value, verdict
from reports.markdown import Footnotes, code, escape, number, plural, table
from results.comparing.blame import Blame, Effect
from results.comparing.claims import Claim
from results.comparing.comparison import Comparison, Pair
from results.comparing.measures import RunMeasures
from results.comparing.welch import Contrast

_MOST = 3  # runs named in a table; the rest are counted


def markdown(found: Sequence[Comparison]) -> str:
    """The page of one or several comparisons."""
    texts, notes = pages(found)
    lines = [line for text in texts for line in (*text, "")]
    return "\n".join([*lines, *notes.lines()]).rstrip("\n") + "\n"


def pages(found: Sequence[Comparison]) -> tuple[list[list[str]], Footnotes]:
    """The Markdown lines of each comparison, and the notes that they refer to: one numbering for all."""
    notes = Footnotes()
    return [_one(one, notes, apart=one.apart if not place else ()) for place, one in enumerate(found)], notes


def _one(found: Comparison, notes: Footnotes, apart: Sequence[str]) -> list[str]:
    lines = [f"# {escape(title(found))}", ""]
    said = [*caveats(found), *(f"**Not compared**: {escape(text)}." for text in apart)]
    lines += [line for text in said for line in (f"> {text}", ">")][:-1]
    lines += [""] if said else []
    lines += ["## Sides", "", *_sides(found, notes), ""]
    for pair in found.pairs:
        lines += _pair(pair, found, notes)
    return [*lines, "## Machine, driver, versions and settings in which the sides differ", "", *_differences(found)]


def _sides(found: Comparison, notes: Footnotes) -> list[str]:
    rows = []
    for letter, side in zip(letters(found), found.sides, strict=True):
        runs = side.runs
        names = ", ".join(code(run.run_id) for run in runs[:_MOST])
        more = f" and {len(runs) - _MOST} more" if len(runs) > _MOST else ""
        told = joined([note for run in runs for note in run.notes])
        rows.append(
            [
                letter,
                escape(side.label) + (notes.mark(told) if told else ""),
                escape(joined([_framework(run) for run in runs])),
                escape(joined([run.placement for run in runs])),
                f"{len(runs)}",
                escape(joined([str(run.steps) for run in runs])),
                names + more,
            ]
        )
    lines = table(["", "Side", "Framework", "Placement", "runs", "steps in the window", "Runs"], rows, "llllrll")
    left = [(side.label, name, why) for side in found.sides for name, why in side.left_out]
    if left:
        lines += ["", "Left out, as they have no number in any comparison:", ""]
        lines += [f"- {code(name)} of {escape(label)}: {escape(why)}" for label, name, why in left]
    missing = lacking(found)
    if missing:
        lines += ["", "Values that runs do not have; they are compared without:", ""]
        lines += [f"- {text}" for text in missing]
    return lines


def _framework(run: RunMeasures) -> str:
    version = run.framework_version or ""
    return version if version.startswith(run.framework) else f"{run.framework} {version}".strip()


def _pair(pair: Pair, found: Comparison, notes: Footnotes) -> list[str]:
    a, b = letters_of(pair, found)
    lines = [f"## {b} against {a}: {escape(pair.side.label)} against {escape(pair.base.label)}", ""]
    for family, claims in pair.claims.items():
        if claims:
            lines += [f"### {family[0].upper()}{family[1:]}", "", *_claims(claims, a, b, found, notes), ""]
    lines += [_foot(pair, found, notes), ""]
    lines += ["### Where the change of a step comes from", "", *_blame(pair.blame, a, b, notes), ""]
    return lines


def _claims(claims: Sequence[Claim], a: str, b: str, found: Comparison, notes: Footnotes) -> list[str]:
    rows = []
    for claim in claims:
        measure, contrast = claim.measure, claim.contrast
        why = claim.why or "not known"
        equivalent = "–" if claim.equivalent is None else "yes" if claim.equivalent else "not shown"
        least = size(contrast, measure, claim.detectable) if contrast is not None else None
        rows.append(
            [
                f"{code(measure.name)}{'' if measure.unit == 'ratio' else f' ({escape(measure.unit)})'}",
                {"lower": "less", "higher": "more", "none": "–"}[measure.direction],
                value(measure, claim.a) or notes.unknown(why),
                value(measure, claim.b) or notes.unknown(why),
                effect(contrast, measure) if contrast is not None else notes.unknown(why),
                verdict(claim) + (notes.mark(claim.why) if claim.why else ""),
                equivalent,
                least or "–",
                (_n(contrast) if contrast is not None else "–") + (notes.mark(claim.lost) if claim.lost else ""),
            ]
        )
    header = [
        "Measure",
        "better",
        a,
        b,
        "change (95 % interval)",
        "verdict",
        f"within {found.rule.margin:.0%}",
        "detectable",
        "n",
    ]
    return table(header, rows, "lllllll")


def _n(contrast: Contrast) -> str:
    if contrast.basis == "within runs only":
        return f"{contrast.n_a} steps"
    if contrast.basis == "pairs of runs":
        return f"{contrast.n_a} seeds"
    return f"{contrast.n_a} + {contrast.n_b} runs"


def _foot(pair: Pair, found: Comparison, notes: Footnotes) -> str:
    a, b = runs_of(pair.base), runs_of(pair.side)
    a_letter, b_letter = letters_of(pair, found)
    words = [f"{a} and {b}"]
    if pair.common_plans is not None:
        words.append(f"times of steps over the {pair.common_plans} plans that all runs have in common")
    words.append(
        f"{a_letter} and {b_letter}: geometric means over the runs where the change is a ratio (in per cent), "
        "arithmetic means elsewhere"
    )
    if any(claim.contrast is not None and claim.contrast.basis == "pairs of runs" for claim in _all(pair)):
        words.append(
            "both sides have the same seeds: means are of the seeds' means, and how often one was run weighs nothing"
        )
    words += _intervals(pair)
    rule = found.rule
    mark = notes.mark(
        "ratios on the log scale, shares as differences in percentage points (pp); verdicts are Holm-corrected over a "
        f"table at {rule.alpha:.0%}, intervals are each measure's own; within {rule.margin:.0%} (shares: "
        f"{100 * rule.margin:.0f} pp): shown by two one-sided tests; detectable: the true change that is called "
        "better or worse with power 80 %, that correction included; underpowered: that is more than "
        f"{rule.most_detectable:.0%}"
    )
    return f"<sub>{'; '.join(words)}{mark}</sub>"


_BASES = {
    "runs": "Welch's t over runs",
    "pairs of runs": "t of the seeds' differences, each between the means of its runs",
    "runs and a baseline's noise": "t with the baseline's spread pooled in",
}


def _intervals(pair: Pair) -> list[str]:
    """What the intervals rest on; where they rest on several things, of which measures each."""
    within = False
    held: dict[str, list[str]] = {}
    for claim in _all(pair):
        contrast = claim.contrast
        if contrast is None or contrast.low is None:
            continue
        if contrast.basis == "within runs only":
            within = True
        else:
            held.setdefault(contrast.basis, []).append(code(claim.measure.name))
    words = []
    if len(held) == 1:
        words.append(f"intervals: {_BASES[next(iter(held))]}")
    elif held:
        usual, *others = sorted(held, key=lambda basis: (-len(held[basis]), basis))
        told = "; ".join(f"of {', '.join(held[basis])}: {_BASES[basis]}" for basis in others)
        words.append(f"intervals: {_BASES[usual]}, but {told}")
    if within:
        words.append("where n counts steps, intervals are **within runs only**: steps paired by plan")
    return words or ["no intervals: how runs vary is not known"]


def _all(pair: Pair) -> list[Claim]:
    return [claim for family in pair.claims.values() for claim in family]


def _blame(found: Blame | str, a: str, b: str, notes: Footnotes) -> list[str]:
    if isinstance(found, str):
        return [f"Not known: {escape(found)}."]
    rows = [_effect(one, one.name) for one in found.effects if _worth(one, found)]
    small = [one for one in found.effects if not _worth(one, found)]
    if small:
        seconds = sum(one.seconds for one in small)
        whole = sum(one.share for one in small)
        names = ", ".join(one.name for one in small)
        first, second = sum(one.a_s for one in small), sum(one.b_s for one in small)
        rows.append(
            [
                f"{plural(len(small), 'smaller one')}{notes.mark(names)}",
                number(first),
                number(second),
                signed(seconds),
                "–",
                _share(whole),
            ]
        )
    rows.append(_effect(found.remainder, "remainder: named by nothing"))
    rows.append(_effect(found.total, "**total**"))
    header = ["Part of a step", f"{a}, s", f"{b}, s", "effect, s", "95 % interval, s", "of a step"]
    lines = [*table(header, rows, "l"), ""]
    culprit = found.culprit
    if culprit is not None and found.total.shown:
        total = signed(found.total.seconds)
        lines.append(f"Most of it: **{code(culprit.name)}**, {signed(culprit.seconds)} s of {total} s a step.")
    elif culprit is not None:
        lines.append(
            f"Shown of a part: **{code(culprit.name)}**, {signed(culprit.seconds)} s; of the whole step, none is."
        )
    if culprit is not None:
        lines.append("*: a change of this part is shown (5 %, Holm over the parts).")
    elif all(one.p_adjusted is None for one in (*found.effects, found.remainder)):
        lines.append("Nothing was tested: how runs vary is not known from one run on a side.")
    else:
        lines.append("No single part is shown to have changed with it (5 %, Holm over the parts).")
    if found.runs != (1, 1):
        blocked = found.basis == "pairs of runs"
        of = "the seeds of both sides, and in each over its runs" if blocked else "the runs"
        lines.append(f"Seconds are arithmetic means over {of}, so that the parts add up to the step.")
    if found.basis is not None and not found.within_runs:
        lines.append(f"Intervals: {_BASES[found.basis]}.")
    if found.within_runs:
        lines.append("One run a side: the intervals are **within runs only** (steps paired by plan).")
    return lines


def _worth(one: Effect, found: Blame) -> bool:
    """What has a row of its own: half a per cent of a step, or shown."""
    return one.shown or max(abs(one.seconds), abs(one.a_s) / 2, abs(one.b_s) / 2) >= 0.005 * found.total.a_s


def _effect(one: Effect, name: str) -> list[str]:
    named = name if name.startswith("**") or " " in name else code(name)
    interval = "–" if one.low is None or one.high is None else f"{signed(one.low)} to {signed(one.high)}"
    return [
        named + (" *" if one.shown and not name.startswith("**") else ""),
        number(one.a_s),
        number(one.b_s),
        signed(one.seconds),
        interval,
        _share(one.share),
    ]


def _share(given: float) -> str:
    text = f"{100 * given:+.1f}%"
    return text if float(text[:-1]) else "0.0%"


def _few(values: Sequence[str]) -> str:
    """The different values of a side's runs, the first of them where there are many."""
    more = f" | {len(values) - _MOST} more" if len(values) > _MOST else ""
    return escape(" | ".join(value or "none" for value in values[:_MOST]) + more)


def letters(found: Comparison) -> list[str]:
    """Short names of the sides, for headers: A is the base."""
    return [chr(ord("A") + place) if place < 26 else f"S{place + 1}" for place in range(len(found.sides))]


def letters_of(pair: Pair, found: Comparison) -> tuple[str, str]:
    """The letters of a pair: of the base, and of the side held against it."""
    names = letters(found)
    return names[0], names[found.sides.index(pair.side)]


def _differences(found: Comparison) -> list[str]:
    if not found.differences:
        return ["None on record."]
    rows = [[escape(what), *(_few(each) for each in values)] for what, values in found.differences]
    return table(["What", *letters(found)], rows, "l" * (len(found.sides) + 1))
