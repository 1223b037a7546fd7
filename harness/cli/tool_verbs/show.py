"""`bench tools show CORPUS`: what a corpus is, and what it answers."""

import click

from harness.cli.output import table
from harness.protocol.errors import SpecError
from reports.markdown import plural


@click.command("show", short_help="Show a corpus: its facts, a search, a page.")
@click.argument("corpus", metavar="generated:PAGES|DIR")
@click.option("--seed", type=int, default=1, show_default=True, help="Of a generated corpus.")
@click.option("--search", "query", metavar="WORDS", help="Show what a search for WORDS finds.")
@click.option("--page", "url", metavar="URL", help="Print the page at an address, as it is served.")
@click.option("--questions", type=click.IntRange(min=0), default=3, show_default=True, help="Show so many questions.")
def command(corpus: str, seed: int, query: str | None, url: str | None, questions: int) -> None:
    """Show a corpus: its facts and some of its questions, what a search finds, or one of its pages."""
    from itertools import islice
    from pathlib import Path

    from harness.cache import cache_folder
    from harness.specs.inputs import GENERATED_CORPUS
    from workloads.deep_research.corpus.build import damage, generated_name, open_corpus, read_facts

    folder = Path(corpus)
    if (match := GENERATED_CORPUS.match(corpus)) is not None:
        folder = cache_folder() / "corpora" / generated_name(int(match[1]), seed)
        if read_facts(folder) is None:
            raise SpecError(f"corpus = {corpus!r}: not built yet: bench tools build {corpus} --seed {seed}")
    if (facts := read_facts(folder)) is not None and (wrong := damage(folder, facts)) is not None:
        raise SpecError(f"corpus = {corpus!r}: {wrong}")
    opened = open_corpus(folder)
    try:
        if url is not None:
            page = opened.page(url)
            if page is None:
                raise SpecError(f"--page = {url!r}: the corpus has no such page")
            click.echo(page.html.decode("utf-8", "replace"))
            return
        if query is not None:
            hits = opened.search(query, 10)
            for number, hit in enumerate(hits, start=1):
                click.echo(f"[{number}] {hit.title}  ({hit.score:.2f})\n    {hit.url}\n    {hit.snippet}")
            if not hits:
                click.echo("nothing found")
            return
        facts = opened.facts
        rows = [
            ("folder", str(folder.absolute())),
            ("source", facts.source),
            ("pages", f"{facts.pages:,}, {facts.bytes / 1e6:,.1f} MB as they are served"),
            ("questions", f"{facts.questions:,}"),
            ("seed", "-" if facts.seed is None else str(facts.seed)),
            ("digest", facts.digest),
        ]
        click.echo(table(rows))
        for row in islice(opened.questions(), questions):
            hops = "" if row.hops is None else f" ({plural(row.hops, 'hop')})"
            click.echo(f"\n{row.question}{hops}\n  {' | '.join(row.answers)}")
    finally:
        opened.close()
