"""`bench tools build|serve|show|fit|trace`: corpora, tool servers and traces; each verb in a file of its own."""

import click

from harness.cli.lazy import LazyGroup

_VERBS = ("build", "show", "serve", "trace", "fit")


@click.group(
    "tools",
    cls=LazyGroup,
    modules={verb: f"harness.cli.tool_verbs.{verb}" for verb in _VERBS},
    short_help="Build corpora, serve tools, fit recorded calls.",
)
def command() -> None:
    """Build corpora, serve tools, fit recorded calls.

    `bench run --tools local` builds the corpus and starts the server that it needs; these verbs are for doing it
    beforehand, for looking at them, and for traces of tool calls.
    """
