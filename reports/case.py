"""One run as a report sees it: its tables, its figures, and the words that go under each of its tables."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reports import bars
from reports.contaminated import contamination_line
from reports.markdown import Footnotes, code, escape, percent, plural, seconds
from reports.power import energy_verdict, has_gpu
from reports.provenance import (
    NON_STANDARD,
    NOT_SAID,
    STEPS_ONLY,
    commit_of,
    device_of,
    framework_of,
    kind_of,
    known_or,
    non_standard,
    steps_only,
    verified_on,
)
from reports.tables import fresh_verdict, in_order, verdict
from results.answers import answers, doubts
from results.contamination import Contamination
from results.metrics import RunFigures, compute
from results.store import COMPUTED, RunTables, is_collected, load_run, table_path, write_table
from results.watch import Watch
from results.window import Window

_SHORT = 5  # versions named under each table; the rest stand in the provenance
_NAMED_FIRST = ("skyrl", "areal", "verl", "vllm", "sglang", "torch", "ray", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run with its figures. `steps` are those inside the steady window."""

    run: RunTables
    figures: RunFigures
    steps: tuple[int, ...]

    @classmethod
    def load(cls, run_dir: Path, watch: Callable[[RunTables], Watch | None] = lambda run: None) -> "Case":
        """Loads a run; one that was never collected, or was not sealed when it was, is collected first.

        Computed tables that it lacks are written, where its folder can be.

        `watch`: gives who is told of this run what is known early.

        Raises:
            SpecError: not a run folder, or its spec or tables cannot be read.
        """
        complete = is_collected(run_dir) and (run_dir / "sealed").exists()
        run = load_run(run_dir) if complete else _collected(run_dir)
        figures = compute(run, watch(run))
        _write_missing(run, figures)
        return cls(run=run, figures=figures, steps=steps_in(run, figures.window))

    @property
    def gpu(self) -> bool:
        """Whether GPU numbers may be shown."""
        return has_gpu(self.run)

    @property
    def no_window(self) -> str:
        """Why there is no steady window."""
        return f"no steady window: {self.figures.no_window or 'not known why'}"

    @property
    def contamination(self) -> Contamination:
        """What beside the run was busy, or was set, on its machine."""
        return self.figures.contamination

    @property
    def spoiled(self) -> str | None:
        """Why no verdict follows from a run on GPUs: it was contaminated. None on CPU, where none follows anyway."""
        found = self.contamination
        return f"contaminated: {'; '.join(found.reasons)}" if self.gpu and found.reasons else None

    def caption(self, n: str, notes: Footnotes) -> str:
        """The line under a table: n and window, and a note with all that `source` says."""
        return f"<sub>{self.extent(n, notes)}</sub>"

    def extent(self, n: str, notes: Footnotes) -> str:
        """What a caption says, for a line that names several runs."""
        window = self.figures.window
        span = "no steady window"
        if window is not None:
            span = f"steps {window.after_step + 1} to {window.last_step}, {seconds(window.seconds)}"
        return f"{n} · {span}{notes.mark(self.source)}"

    @property
    def source(self) -> str:
        """What a table's numbers are of: run, machine, device, commit, versions, window, `other`, overrides."""
        run, window = self.run, self.figures.window
        machine = run.meta.get("machine")
        host = machine.get("host") if isinstance(machine, dict) else None
        account = self.figures.account
        span = "no steady window"
        if window is not None:
            span = f"steady window steps {window.after_step + 1} to {window.last_step}, {seconds(window.seconds)}"
        parts = [
            run.run_id,
            kind_of(run.spec),
            f"host {host or 'unknown'}",
            device_of(run),
            f"bench {commit_of(run) or 'of unknown commit'}",
            _versions(run),
            span,
            "other not known" if account is None else f"other {percent(1 - account.coverage)} in the worst unit",
            f"{NON_STANDARD}: {ways}" if (ways := non_standard(run.spec)) else "no overrides",
            STEPS_ONLY if steps_only(run) else None,
        ]
        return " · ".join(part for part in parts if part)

    def phase_seconds(self) -> dict[str, float]:
        """Seconds of the steady window per phase, in the order of a step."""
        return {row.phase: row.total_s for row in in_order(self.figures.phases)}

    def phase_bar(self, name: str) -> bars.Row:
        """The average step as one bar."""
        parts = {row.phase: row.mean_s for row in in_order(self.figures.phases)}
        return bars.Row(name=name, parts=parts, note=f"n = {plural(len(self.steps), 'step')}")

    def verdicts(self, notes: Footnotes) -> list[str]:
        """The summary lines: what this run may claim."""
        ways = non_standard(self.run.spec)
        return [
            f"- **status**: {self._status()}",
            *([f"- **{NON_STANDARD}**: {escape(ways)}"] if ways else []),
            *([f"- **record**: **{STEPS_ONLY}**: what needs more is not known"] if steps_only(self.run) else []),
            f"- **steady window**: {self._window()}",
            f"- **plan adherence**: {self._adherence(notes)}",
            *(f"- **answers**: **{escape(text)}**" for text in doubts(answers(self.run))),
            f"- **named time**: {self._coverage(notes)}",
            f"- **staleness**: {self._staleness(notes)}",
            *self._sync(),
            f"- **contamination**: {contamination_line(self.contamination, self.run.spec.device, notes)}",
            f"- **energy**: {self._energy()}",
            f"- **verified on**: {known_or(verified_on(self.run.spec), notes, NOT_SAID)}",
        ]

    def _status(self) -> str:
        meta = self.run.meta
        status = str(meta.get("status") or "unknown")
        text = status if status == "finished" else f"**{escape(status)}**"
        if isinstance(meta.get("exit_code"), int):
            text += f", exit code {meta['exit_code']}"
        failures = self.run.tables["failures"].num_rows
        text += f", {plural(failures, 'failure')} on record"
        return text + (f": {escape(meta['reason'])}" if meta.get("reason") else "")

    def _window(self) -> str:
        window = self.figures.window
        if window is None:
            return f"**none**: {escape(self.figures.no_window or 'not known why')}"
        text = f"steps {window.after_step + 1} to {window.last_step}, n = {window.steps}, {seconds(window.seconds)}"
        if window.not_steady:
            text += f"; not steady: {escape('; '.join(window.not_steady))}"
        return text

    def _adherence(self, notes: Footnotes) -> str:
        found = self.figures.adherence
        missing = f"; **{plural(found.not_replayed, 'tool call')} not in the trace**" if found.not_replayed else ""
        if found.content_ratio is None:
            return notes.unknown(found.why_none or "nothing was planned") + missing
        share = percent(found.content_ratio)
        text = f"{share}: {found.adhering:,} of {found.started:,} started trajectories as planned"
        if found.adhering != found.started:
            text = f"**{text}** ({plural(found.deviation_count, 'deviation')})"
        if found.undercut:
            text += f"; **{found.undercut:,} tool calls were shorter than planned**"
        return text + missing + ("; timing distorted" if found.timing_distorted else "")

    def _coverage(self, notes: Footnotes) -> str:
        account = self.figures.account
        if account is None:
            return notes.unknown(self.no_window)
        text = f"{percent(account.coverage)} in the worst unit ({code(account.worst.unit)}); `other` "
        text += f"{seconds(account.worst.other_s)}, allowed {seconds(account.allowed_other_s)}"
        text = text if account.covered else f"**too little: {text}**"
        if account.overlaps:
            text += f"; **{account.overlaps:,} spans overlap** ({seconds(account.overlap_s)})"
        return text

    def _staleness(self, notes: Footnotes) -> str:
        found = self.figures.staleness
        start, whole = found.at_start, self.figures.staleness_run
        if start.mean is None or start.max is None:
            return notes.unknown("no consumed trajectory has its versions on record")
        text = f"at start mean {start.mean:.2f}, max {start.max:.0f} (bound {found.bound}, n = {start.n:,})"
        beyond = f"{whole.violations:,} of {plural(whole.at_start.n, 'trajectory')} of the run beyond the bound"
        return f"{text}; " + (f"**{beyond}**" if whole.violations else beyond)

    def _energy(self) -> str:
        said = energy_verdict(self.run, self.figures.energy)
        return f"**no verdict**: the run was contaminated; its sensors: {said}" if self.spoiled else said

    def _sync(self) -> list[str]:
        proof = self.figures.sync_proof
        parts = (("1 fresh", proof.fresh), ("2 changed", proof.changed), ("3 follows", proof.follows))
        failed = any(part.passed is False for _, part in parts)
        head = "proven" if proof.proven else "**NOT proven**" if failed else "**not shown**: a part is not known"
        lines = [f"- **weight sync**: {head}"]
        words = (fresh_verdict(proof), verdict(proof.changed), verdict(proof.follows))
        told = zip(parts, words, strict=True)
        lines += [f"  - {name}: {word}; {escape(part.why)}" for (name, part), word in told]
        return [*lines, f"  - 4 control: {escape(proof.control)}"]


def steps_in(run: RunTables, window: Window | None) -> tuple[int, ...]:
    """The recorded steps inside the steady window; none without one."""
    if window is None:
        return ()
    recorded = sorted({int(step) for step in run.frame("steps")["step"]})
    return tuple(step for step in recorded if window.after_step < step <= window.last_step)


def _collected(run_dir: Path) -> RunTables:
    from results.collect import collect  # with what reads events and samples: most runs were collected before

    return collect(run_dir)


def _write_missing(run: RunTables, figures: RunFigures) -> None:
    """Writes computed tables that a run lacks: a collection was cut short before, or was not for figures."""
    missing = [name for name in COMPUTED if not table_path(run.run_dir, name).is_file()]
    if not missing:
        return
    tables = figures.computed_tables()
    with suppress(OSError):  # the report does without: it is of the figures themselves
        for name in missing:
            write_table(table_path(run.run_dir, name), name, tables[name], run.run_id)


def labels(cases: Sequence[Case]) -> list[str]:
    """A short name for each run: placement, with framework or number where that is not enough."""
    frameworks = {case.run.spec.framework for case in cases}
    names = [
        (f"{case.run.spec.framework} " if len(frameworks) > 1 else "") + case.run.spec.placement.value for case in cases
    ]
    return [
        name if names.count(name) == 1 else f"{name} {names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]


def _versions(run: RunTables) -> str:
    versions = run.meta.get("versions")
    found = versions if isinstance(versions, dict) else {}
    own = run.spec.framework
    first = None if own in found else framework_of(run)
    known = [name for name in dict.fromkeys((own, *_NAMED_FIRST)) if name in found]
    named = [first] if first else []
    named += [f"{name} {found[name]}" for name in known]
    return ", ".join(named[:_SHORT]) or "versions not on record"
