"""How far a long calculation is, on stderr, for someone who looks at a terminal."""

import sys
import time
from collections.abc import Callable

import click

_EVERY_S = 0.2


def counted(what: str) -> Callable[[int, int], None] | None:
    """What is to be told (done, of how many); None where stderr is no terminal."""
    if not sys.stderr.isatty():
        return None
    told = 0.0

    def tell(done: int, of: int) -> None:
        nonlocal told
        now = time.monotonic()
        if done == of or now - told >= _EVERY_S:
            told = now
            click.echo(f"\r{done:,}/{of:,} {what}", nl=done == of, err=True)

    return tell
