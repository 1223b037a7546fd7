"""A group whose verbs are modules, each imported when it is asked for: a start imports no more than it needs."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group of verbs; the module of each has it as `command`."""

    def __init__(self, *given: Any, modules: Mapping[str, str], **named: Any) -> None:
        """`modules`: the module of each verb, by its name, in the order of the help."""
        super().__init__(*given, **named)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return None
        command: click.Command = importlib.import_module(self._modules[cmd_name]).command
        return command
