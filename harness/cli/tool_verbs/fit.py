"""`bench tools fit FILE`: a preset from recorded tool calls, and how well it fits."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.output import file_problem, table
from harness.cli.runs import runs_dir_option
from harness.cli.tool_verbs.source import new_file, read_source
from harness.protocol.errors import SpecError
from harness.protocol.unfinished import made_whole
from reports.markdown import plural

if TYPE_CHECKING:
    from workloads.deep_research.fit import Rate, TraceFit
    from workloads.deep_research.fit_law import Figure, LawFit
    from workloads.deep_research.presets import Preset

PROMPTS, GROUP = 64, 3  # trajectories that are drawn to see how long they get

_HEADER = ("", "law", "n", "", "observed", "95 % interval", "law's", "")


@click.command("fit", short_help="Fit a preset to recorded tool calls.")
@click.argument("source", metavar="FILE")
@click.option("-o", "--out", metavar="PRESET.json", help="Write the preset; `bench run --preset PRESET.json` reads it.")
@click.option(
    "--base", default="deep-research", show_default=True, help="Preset whose lengths stand where none are known."
)
@click.option(
    "--lengths",
    type=click.Choice(["recorded", "base"]),
    default="recorded",
    show_default=True,
    help="Whether lengths are fitted where they are known, or all are --base's (recorded pages are long).",
)
@runs_dir_option
def command(source: str, out: str | None, base: str, lengths: str, runs_dir: Path) -> None:
    """Fit a preset to recorded tool calls, and show how well it fits.

    FILE is a trace that `--record` made, or a run (folder, name, or `latest`). Latencies become log-normal where that
    fits, and the recorded values themselves where it does not.
    """
    path = None if out is None else new_file(out, ".json")
    from workloads.deep_research.fit import fit_trace
    from workloads.deep_research.presets import PRESETS, encode_preset

    if base not in PRESETS:
        raise SpecError(f"--base = {base!r}: allowed is one of {', '.join(PRESETS)}")
    trace, known = read_source(source, runs_dir)
    name = path.stem if path is not None else "fitted"
    fitted = fit_trace(trace, name=name, base=PRESETS[base], lengths=known, fit_lengths=lengths == "recorded")
    click.echo(in_words(fitted))
    click.echo(f"- {_context(fitted.preset)}")
    if path is not None:
        try:
            with made_whole(path) as temporary:
                temporary.write_text(encode_preset(fitted.preset) + "\n", encoding="utf-8")
        except OSError as error:
            raise file_problem(error, "the preset cannot be written", "name another file with -o") from None
        click.echo(f"\nwritten: {path} (bench run --preset {path})")


def _context(preset: "Preset") -> str:
    """How much context a run of the preset takes, and what can be done about it where that is much."""
    from harness.specs.defaults import DEVICE_DEFAULTS
    from workloads.deep_research.plan import longest_plan, ways_out

    longest = longest_plan(preset, 1, PROMPTS, GROUP).context_tokens
    said = f"context: the longest of {PROMPTS * GROUP:,} trajectories of it (seed 1) has {longest:,} tokens"
    beyond = [f"{device.value} {base.context_tokens:,}" for device, base in DEVICE_DEFAULTS.items()
              if longest > base.context_tokens]  # fmt: skip
    if not beyond:
        return said
    return f"{said}, and a run by default {', '.join(beyond)}: {ways_out(preset, longest)}"


def in_words(fitted: "TraceFit") -> str:
    """The fit as tables."""
    counts = fitted.calls_per_trajectory
    mean = sum(calls * times for calls, times in counts.items()) / fitted.trajectories
    least, most = min(counts), max(counts)
    calls = plural(most, "call") if least == most else f"{least} to {most} calls, mean {mean:.2f}"
    lines = [f"{plural(fitted.calls, 'call')}, {plural(fitted.trajectories, 'trajectory')} of {calls}", ""]
    shares = [(each.tool, "share", *_rate(each.share)) for each in fitted.tools]
    shares += [(each.tool, kind, *_rate(rate)) for each in fitted.tools for kind, rate in each.failures.items()]
    lines += [table(shares, ("tool", "", "calls", "rate", "95 % interval")), ""]
    rows = [row for each in fitted.tools for row in _law(f"{each.tool}, s", each.latency_s)]
    rows += [row for name, law in fitted.lengths.items() for row in _law(f"{name}, tokens", law)]
    lines += [table(rows, _HEADER)]
    notes = [
        *(f"{each.tool}: {_quality(each.latency_s)}" for each in fitted.tools),
        *(f"{name}: {_quality(law)}" for name, law in fitted.lengths.items()),
        *fitted.notes,
    ]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)])


def _rate(rate: "Rate") -> tuple[str, str, str]:
    low, high = rate.interval
    return f"{rate.count:,} of {rate.of:,}", f"{rate.value:.1%}", f"{low:.1%} to {high:.1%}"


def _law(name: str, fit: "LawFit") -> list[tuple[str, ...]]:
    figures = {"mean": fit.mean, "p50": fit.p50, "p95": fit.p95, "p99": fit.p99}
    first = (name, fit.kind, f"{fit.n:,}")
    rows = [(*(first if i == 0 else ("", "", "")), *_figure(*each)) for i, each in enumerate(figures.items())]
    return [*rows, ("", "", "", "max", f"{fit.greatest:.4g}", "", f"{fit.law.cap:.4g}", "")]


def _figure(name: str, figure: "Figure") -> tuple[str, ...]:
    ends = ("-" if end is None else f"{end:.4g}" for end in (figure.low, figure.high))
    return (
        name,
        f"{figure.observed:.4g}",
        " to ".join(ends),
        f"{figure.fitted:.4g}",
        "" if figure.within else "outside",
    )


def _quality(fit: "LawFit") -> str:
    said = f"{fit.kind}: {fit.why}"
    if fit.ks is not None:
        said += f"; the log-normal's KS distance {fit.ks:.3f}"
        said += "" if fit.p_value is None else f", p = {fit.p_value:.3f} by simulation"
    clipped = [
        f"{plural(n, 'value')} clipped at the {end}"
        for n, end in ((fit.clipped_low, "least"), (fit.clipped_high, "greatest"))
        if n
    ]
    return "; ".join([said, *clipped])
