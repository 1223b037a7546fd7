"""The page itself: what the Markdown report says, with charts in place of its pictures, as one file."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.protocol.unfinished import made_whole
from reports import style
from reports.case import Case, labels
from reports.html import charts
from reports.html.axis import Fineness
from reports.html.cards import Card, cards_of, side_by_side
from reports.html.charts import Chart, asynchronous
from reports.html.data import run_data
from reports.html.document import Block, Document, Line, Section, plain, read
from reports.html.packing import embedded
from reports.markdown import plural
from reports.places import without_places
from reports.provenance import NON_STANDARD, commit_of, device_of, framework_of, kinds_of, non_standard, random_weights

MOST_RUNS = 8  # with a timeline of their own in one page
_DRAWN = re.compile(r"(?:^|/)(?:\d+-[\w-]+-)?(?:straggler|timeline|account|waterfall|steps)\.png$")
_NOT_DRAWN = ("No timeline: ", "No straggler chart: ", "No picture of ")  # of pictures that the page draws itself
_SCRIPTS = (
    "dom",
    "tables",
    "theme",
    "view",
    "paint",
    "frame",
    "details",
    "input",
    "straggler",
    "downloads",
    "start",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run as the template shows it. `data` is JSON, safe inside a script element."""

    name: str
    run_id: str
    facts: str
    labels: tuple[str, ...]
    cards: tuple[Card, ...]
    data: Markup | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionView:
    """One section: its anchor, what it says, and the charts that stand before that."""

    anchor: str
    title: str
    charts: tuple[tuple[str, Chart], ...]  # (run's name where there are several, chart)
    stragglers: bool
    blocks: tuple[Block, ...]


def write_html(lines: Sequence[str], pictures: Path, path: Path, cases: Sequence[Case] = ()) -> Path:
    """Writes the page: the report in those Markdown lines, with the runs' timelines and charts.

    Args:
        lines: the Markdown report, as `reports.report` makes it.
        pictures: the folder that its pictures' paths begin at; those without a chart here go into the page.
        path: the file to write.
        cases: its runs; none for a page about many runs, as a sweep's is.

    Raises:
        OSError: `path` cannot be written.
    """
    write_page(render(lines, pictures, cases), path)
    return path


def write_page(text: str, path: Path) -> None:
    """Writes a page, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with made_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render(lines: Sequence[str], pictures: Path, cases: Sequence[Case] = ()) -> str:
    """The page's text; the same report gives the same bytes."""
    document = read(lines)
    names = labels(cases) if cases else []
    fine = Fineness().shared(max(1, min(len(cases), MOST_RUNS)))
    runs = [
        _run(case, name, fine, timeline=place < MOST_RUNS)
        for place, (case, name) in enumerate(zip(cases, names, strict=True))
    ]
    return fill(
        "page.html.j2",
        over="bench report",
        title=document.title or "bench report",
        notes=document.notes,
        banner=banner_of(document),
        runs=runs,
        beside=side_by_side([run.cards for run in runs]),
        left_out=plural(len(cases) - MOST_RUNS, "more run") if len(cases) > MOST_RUNS else "",
        sections=_sections(document, cases, names),
        pictures=_Pictures(pictures),
    )


def fill(
    template: str, *, over: str, title: str, notes: Mapping[int, Line], banner: Sequence[Line], **more: object
) -> str:
    """A page of one of the templates: with its policy, style and scripts, whole.

    Args:
        template: its name.
        over: the verb that makes it, e.g. `bench report`.
        title: its heading.
        notes: the reasons of footnotes, by number.
        banner: what stands under the title, in a frame.
        more: what else the template needs.
    """
    script, sheet = _script(), _sheet()
    return (
        _environment()
        .get_template(template)
        .render(
            over=over,
            title=title,
            policy=_policy(script, sheet),
            script=Markup(script),
            sheet=Markup(sheet),
            hatches=[name for name in style.COLOURS if style.hatch(name)],
            banner=banner,
            notes=notes,
            whys={number: plain(line) for number, line in notes.items()},
            **more,
        )
    )


def _run(case: Case, name: str, fine: Fineness, *, timeline: bool) -> RunView:
    spec, run = case.run.spec, case.run

    def clean(texts: Sequence[str]) -> list[str]:
        return without_places(texts, {run.run_id: run.run_dir})

    told = [*kinds_of([spec])]
    told += ["random weights"] if random_weights(spec) else []
    told += [NON_STANDARD] if non_standard(spec) else []
    told += ["contaminated"] if case.spoiled else []
    status = run.meta.get("status")
    told += [] if status == "finished" else [f"not finished: {status or 'unknown'}"]
    facts = [
        framework_of(run) or spec.framework,
        spec.placement.value,
        spec.model,
        device_of(run),
        f"bench {commit_of(run) or 'of unknown commit'}",
        str(run.meta.get("started_utc") or "start unknown"),
    ]
    return RunView(
        name=name,
        run_id=run.run_id,
        facts=" · ".join(facts),
        labels=tuple(told),
        cards=cards_of(case, asynchronous=asynchronous(case)),
        data=Markup(embedded(run_data(case, name, fine, clean))) if timeline else None,
    )


def banner_of(document: Document) -> tuple[Line, ...]:
    """The caveats under the title: the quotes before the first section."""
    head = document.sections[0] if document.sections and not document.sections[0].title else None
    return tuple(line for block in head.blocks if block.kind == "quote" for line in block.lines) if head else ()


def _sections(document: Document, cases: Sequence[Case], names: Sequence[str]) -> list[SectionView]:
    """The report's sections, each with its charts; charts that no section asks for get one of their own."""
    wanted = _charts(cases, names)
    made: list[SectionView] = []
    taken: set[str] = set()
    for section in document.sections:
        key = next((key for key in wanted if section.title in key), None)
        title = section.title or "What may be claimed"
        blocks = tuple(block for block in section.blocks if section.title or block.kind != "quote")
        found: tuple[tuple[str, Chart], ...] = ()
        if key is not None and key[0] not in taken:
            taken.add(key[0])
            found = tuple(wanted[key])
        made.append(_section(replace(section, title=title, blocks=blocks), found, drawn=bool(cases)))
    at = next((place for place, view in enumerate(made) if view.title == "Where a step goes"), len(made) - 1) + 1
    for key, found_charts in wanted.items():
        if key[0] not in taken:
            made.insert(at, _section(Section(title=key[0], blocks=()), tuple(found_charts), drawn=True))
            at += 1
    return made


def _section(section: Section, found: tuple[tuple[str, Chart], ...], *, drawn: bool) -> SectionView:
    return SectionView(
        anchor=anchor_of(section.title),
        title=section.title,
        charts=found,
        stragglers=drawn and section.title == "Stragglers",
        blocks=_without_drawn(section.blocks) if drawn else section.blocks,
    )


def anchor_of(title: str) -> str:
    """The name by which a section of that title is linked to."""
    return "s-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _charts(cases: Sequence[Case], names: Sequence[str]) -> dict[tuple[str, ...], list[tuple[str, Chart]]]:
    """Charts by the titles of the sections that may hold them, the first of which is made where there is none."""
    if not cases:
        return {}
    shown = ["" for _ in names] if len(names) == 1 else list(names)
    each = list(zip(shown, cases, strict=True))
    made: dict[tuple[str, ...], list[tuple[str, Chart]]] = {
        ("Where a step goes",): [("", charts.step_stacks(cases, names))],
        ("Stragglers",): [],
        ("Time account", "Time accounts"): [(name, charts.time_waterfall(case)) for name, case in each],
        ("Energy",): [(name, charts.energy_waterfall(case)) for name, case in each if case.gpu],
        ("Staleness",): [(name, charts.staleness_bars(case)) for name, case in each],
    }
    made["Time account", "Time accounts"] += [(name, charts.account_stacks(case)) for name, case in each]
    return {key: found for key, found in made.items() if found or key == ("Stragglers",)}


def draws(picture: str) -> bool:
    """Whether the page has a chart in place of the picture at that path."""
    return _DRAWN.search(picture) is not None


def _without_drawn(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks without the pictures that the page draws itself, and without the lines that say what they show."""
    kept: list[Block] = []
    dropped: set[str] = set()
    for block in blocks:
        if block.kind == "picture" and draws(block.path):
            dropped.add(plain(block.line))
        elif block.kind != "paragraph" or not (
            plain(block.line) in dropped or plain(block.line).startswith(_NOT_DRAWN)
        ):
            kept.append(block)
    return tuple(kept)


class _Pictures:
    """Pictures of the report as data URLs; None for one that is not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, path: str) -> str | None:
        file = self._folder / path
        try:
            inside = file.resolve().is_relative_to(self._folder.resolve())
            data = file.read_bytes() if inside and file.suffix == ".png" else None
        except OSError:
            return None
        return None if data is None else "data:image/png;base64," + base64.b64encode(data).decode("ascii")


def _policy(script: str, sheet: str) -> str:
    """Nothing is fetched, nothing runs but this script, nothing is styled but by this sheet, no text becomes markup."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(sheet)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _script() -> str:
    """The scripts as one, in a scope of its own."""
    parts = [_static(f"{name}.js") for name in _SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


@cache
def _sheet() -> str:
    """The style sheet, with the colours that phases have everywhere."""
    return _static("report.css") + "\n" + "\n".join(_colours()) + "\n"


def _colours() -> list[str]:
    """One variable and one class per phase; what is hatched in pictures is hatched here."""
    lines = [":root {", *(f"  --c-{name}: {fill};" for name, fill in style.COLOURS.items()), "}"]
    for name in style.COLOURS:
        fill = f"url(#hatch-{name})" if style.hatch(name) else f"var(--c-{name})"
        lines.append(f".c-{name} {{ fill: {fill}; }}")
    # On a dark page, what is idle or not known is dark too: it must recede there as it does on a light one.
    idle = {name: fill for name, fill in style.COLOURS.items() if style.hatch(name)}
    dark = [
        f"  --c-{name}: var(--idle{'-unknown' if fill.upper() == '#FFFFFF' else ''});" for name, fill in idle.items()
    ]
    dark.append("  --c-down: #9A9A9A;")
    lines += ["@media (prefers-color-scheme: dark) {", ":root:not([data-theme=light]) {", *dark, "}", "}"]
    paper = [f"  --c-{name}: {style.COLOURS[name]} !important;" for name in (*idle, "down")]
    return [*lines, ":root[data-theme=dark] {", *dark, "}", "@media print { :root {", *paper, "} }"]


def _static(name: str) -> str:
    text = files("reports.html").joinpath("static", name).read_text(encoding="utf-8")
    if "</script" in text.lower() or "<!--" in text:
        raise AssertionError(f"{name}: would end the element that it is in")
    return text
