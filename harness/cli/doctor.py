"""`bench doctor`: what this machine can run, and what is missing."""

import click


@click.command("doctor")
def command() -> None:
    """Say what this machine can run, and what is missing."""
