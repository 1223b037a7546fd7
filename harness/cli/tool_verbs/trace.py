"""`bench tools trace RUN -o FILE`: a trace of any run, or of what a killed recording left."""

from pathlib import Path

import click

from harness.cli.runs import runs_dir_option
from harness.cli.tool_verbs.source import new_file, read_source
from reports.markdown import plural


@click.command("trace", short_help="Make a trace of a run's tool calls.")
@click.argument("source", metavar="RUN")
@click.option("-o", "--out", required=True, metavar="FILE.parquet", help="The trace to write.")
@runs_dir_option
def command(source: str, out: str, runs_dir: Path) -> None:
    """Make a trace of a run's tool calls: arguments, latencies, outcomes.

    RUN is a run folder, a name under the runs folder, or `latest`; or FILE.parquet.part, the rest of a recording that
    was killed, which becomes a trace of its own. A run keeps no observations: its trace can be fitted, not replayed.
    """
    path = new_file(out, ".parquet")
    from workloads.deep_research.trace import write_trace

    trace, _ = read_source(source, runs_dir)
    facts = dict(trace.facts)
    if trace.damaged_lines:
        facts["damaged_lines"] = trace.damaged_lines
    count = write_trace(path, trace.calls(), facts)
    damaged = trace.damaged_lines
    lost = f"; {plural(damaged, 'damaged line')} {'is' if damaged == 1 else 'are'} lost" if damaged else ""
    texts = count - trace.table["text"].null_count
    click.echo(f"{path}: {plural(count, 'call')}, {texts:,} with {'its' if count == 1 else 'their'} observation{lost}")
