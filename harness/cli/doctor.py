"""`bench doctor`: what this machine can run, and what is missing."""

import click

from harness.cli.output import table

_MARKS = {True: "ok", False: "MISSING", None: "-"}


@click.command("doctor", short_help="Say what this machine can run.")
def command() -> None:
    """Say what this machine can run, and what is missing.

    `-` is what is absent and not needed here. Starts no framework and changes nothing.
    """
    from harness.doctor import diagnose

    checks = diagnose()
    rows = [(_MARKS[check.ok], check.name, check.found, check.needed, check.action) for check in checks]
    click.echo(table(rows, ("", "what", "found", "needed", "to do")))
