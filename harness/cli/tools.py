"""`bench tools build|serve|show|fit|trace`: corpora, tool servers and traces; each verb in a file of its own."""

import importlib

import click

_VERBS = ("build", "show", "serve", "trace", "fit")


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        command: click.Command = importlib.import_module(f"harness.cli.tool_verbs.{cmd_name}").command
        return command


@click.group("tools", cls=_Verbs, short_help="Build corpora, serve tools, fit recorded calls.")
def command() -> None:
    """Build corpora, serve tools, fit recorded calls.

    `bench run --tools local` builds the corpus and starts the server that it needs; these verbs are for doing it
    beforehand, for looking at them, and for traces of tool calls.
    """
