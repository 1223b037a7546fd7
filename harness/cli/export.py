"""`bench export RUN --to FORMAT`: a run in the format of another tool."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.output import traceback_into, writable
from harness.cli.runs import find_run, runs_dir_option
from harness.protocol.errors import SpecError

if TYPE_CHECKING:
    from results.store import RunTables

SUFFIXES = {"perfetto": "perfetto-trace", "otlp": "otlp.jsonl", "mlperf": "mlperf.log"}
_HINT = "name another file with -o"


@click.command("export", short_help="A run as Perfetto trace, OpenTelemetry spans or MLPerf log.")
@click.argument("run")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="FORMAT",
    help="perfetto | otlp | otlp=ENDPOINT (an OTLP/HTTP receiver, as http://127.0.0.1:4318) | mlperf",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write. Default: RUN's name with the format's suffix, here.",
)
@click.option("--content", is_flag=True, help="With what the agent asked: queries, addresses, messages. Else left out.")
@runs_dir_option
def command(run: str, target: str, out: Path | None, content: bool, runs_dir: Path) -> None:
    """Write a run for another tool.

    perfetto: a trace for ui.perfetto.dev (extra `export`). otlp: spans by OpenTelemetry's GenAI names, as OTLP JSON in
    a file or sent to ENDPOINT. mlperf: :::MLLOG lines. RUN is a run folder, a name under the runs folder, or `latest`.
    """
    form, _, endpoint = target.partition("=")
    if form not in SUFFIXES or (endpoint and form != "otlp") or target.endswith("="):
        raise SpecError(f"--to {target}: allowed is perfetto, otlp, otlp=ENDPOINT or mlperf")
    if endpoint and out is not None:
        raise SpecError(f"-o {out}: spans go to {endpoint}; leave one of the two away")
    folder = find_run(run, runs_dir)
    with traceback_into(folder, "exporting", _HINT):
        tables = _tables(folder)
        path = out or Path(f"{tables.run_id}.{SUFFIXES[form]}")
        if endpoint:
            from reports.exporting.otel import send_otlp

            click.echo(f"sent: {send_otlp(tables, endpoint, content=content):,} spans to {endpoint}")
            return
        writable(path.parent, _HINT)
        _write(form, tables, path, content)
    click.echo(f"written: {path}, {path.stat().st_size:,} bytes")


def _tables(folder: Path) -> "RunTables":
    """As a report reads it: what was never collected, or while the run still went on, is collected now."""
    from results.collect import collect
    from results.store import is_collected, load_run

    return load_run(folder) if is_collected(folder) and (folder / "sealed").exists() else collect(folder)


def _write(form: str, tables: "RunTables", path: Path, content: bool) -> None:
    if form == "perfetto":
        from reports.exporting.perfetto import export_perfetto

        export_perfetto(tables, path, content=content)
    elif form == "otlp":
        from reports.exporting.otel import export_otlp

        export_otlp(tables, path, content=content)
    else:
        from reports.exporting.mlperf import export_mlperf

        for note in export_mlperf(tables, path):
            click.echo(f"note: {note}", err=True)
