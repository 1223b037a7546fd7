"""The verbs of `bench`, one thin file each, and what their errors become. Nothing heavy is imported before one runs."""

from collections.abc import Sequence
from contextlib import suppress

import click

from harness.cli.lazy import LazyGroup
from harness.cli.output import INTERRUPTED, fail, save_traceback, terminal_gone
from harness.protocol.errors import NO_SPACE, BenchError
from harness.protocol.names import NOT_UTF8, is_text, shown

_VERBS = {
    "run": "run",
    "sweep": "sweep",
    "collect": "collect",
    "report": "report",
    "compare": "compare",
    "query": "query",
    "export": "export",
    "publish": "publish",
    "check": "check",
    "baseline": "baseline",
    "history": "history",
    "workshop": "workshop",
    "import": "importing",
    "lint": "lint",
    "list": "listing",
    "logs": "logs",
    "tools": "tools",
    "env": "env",
    "doctor": "doctor",
    "simulate": "simulate",
    "calibrate": "calibrate",
    "plan": "plan",
    "score": "score",
}
CLOSED_PIPE = 141  # 128 + SIGPIPE, as a program that the signal ends
HUNG_UP = 129  # 128 + SIGHUP
OUTPUT_FULL = 74  # sysexits' EX_IOERR: what was printed found no room


def _show_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version  # half of `bench --help`, if imported above

        click.echo(f"bench {version('agentic-rl-bench')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    modules={verb: f"harness.cli.{name}" for verb, name in _VERBS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def bench() -> None:
    """Compare RL frameworks for agentic LLM training on the same work, and see where the GPU time went.

    Exit codes: 0 done, 1 an error of bench itself, 2 a wrong request, 3 an environment, 4 the framework's run,
    5 a check that could not have shown a regression,
    74 what was printed found no room, 141 a closed pipe,
    130 interrupted (Ctrl-C), 143 ended by SIGTERM, 129 by SIGHUP.
    """


def answer(arguments: Sequence[str]) -> int:
    """Runs one command line; returns its exit code. Errors are one line on stderr, never a traceback."""
    try:
        code = bench.main(list(arguments), prog_name="bench", standalone_mode=False)
    except BenchError as error:
        return fail(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:  # its message is the help, as it was laid out
        with suppress(OSError):
            click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        where = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        return fail(" ".join(error.format_message().split()) + where, 2)
    except click.ClickException as error:
        return fail(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        return fail("interrupted", INTERRUPTED)
    except SystemExit:  # click's own answer to a closed pipe, and in this mode to nothing else
        return CLOSED_PIPE
    except BrokenPipeError:
        return CLOSED_PIPE
    except PermissionError as error:  # says something of a place, and nothing of bench
        return fail(f"{error.filename or error}: {error.strerror}; ask its owner for read access", 2)
    except Exception as error:
        if terminal_gone(error):
            return HUNG_UP
        if isinstance(error, UnicodeEncodeError) and (bad := next((a for a in arguments if not is_text(a)), None)):
            return fail(f"{shown(bad)}: {NOT_UTF8}; give another", 2)
        if isinstance(error, OSError) and error.filename is None and error.errno in NO_SPACE:
            return fail(
                f"what was printed can't be written: {error.strerror}; make room, or print elsewhere", OUTPUT_FULL
            )
        path = save_traceback(error)
        return fail(f"unexpected {type(error).__name__}: {error}; this is a defect of bench, details in {path}", 1)
    return code if isinstance(code, int) else 0
