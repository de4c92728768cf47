"""The `explore` command group: it loads subcommands on demand, and converts errors to exit codes.

This module imports little: `explore --version` and `--help` load neither NumPy nor numba.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click

from .backstop import backstop
from .exits import Exit, explain_error
from .speaking import say

_COMMANDS = (  # each a module of subcommands/
    "list",
    "show",
    "run",
    "resume",
    "explain",
    "report",
    "compare",
    "replay",
    "codegen",
    "export",
    "check",
    "tune",
    "fleet",
    "worker",
    "taichi",
    "graph",
    "trace",
    "calibrate",
    "doctor",
    "cache",
    "store",
    "schema",
)


class _LazyGroup(click.Group):
    """Command group that loads subcommands on demand and suggests one for a misspelt name.

    It exits without an error message when the reader of its output has closed the pipe.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"{__package__}.subcommands.{cmd_name}")
        return cast(click.Command, module.command)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader has gone (`| head`): nothing is left to be said, not even at exit. click itself would
            # exit with 1, which is for bugs.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(Exit.OK)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], _COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_COMMANDS)}"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)


def _show_version(context: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        from .. import __version__

        say(f"kernelscape, version {__version__}")
        context.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option("--config", type=click.Path(path_type=Path), help="Settings file.")
@click.option("-v", "--verbose", count=True, help="Say more.")
@click.option("-q", "--quiet", is_flag=True, help="The result only.")
def explore(config: Path | None, verbose: int, quiet: bool) -> None:
    """Search all implementations of a sequence of compute kernels, with a bound and a gap."""


def _say(sentence: str) -> None:
    say(f"explore: {' '.join(sentence.split())}", err=True)


def main(arguments: list[str] | None = None) -> None:
    """Runs the `explore` command, and ends the process with its exit code."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    """Runs a command line and returns its exit code; a user's error is printed as one sentence on stderr."""
    try:
        with backstop():
            explore.main(arguments, prog_name="explore", standalone_mode=False)
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.ClickException as e:
        _say(e.format_message())
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt) as e:
        _say("stopped")
        return Exit.TERMINATED if e.args == (signal.SIGTERM,) else Exit.INTERRUPTED
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else Exit.INTERNAL
    except Exception as e:
        explained = explain_error(e)
        if explained is not None:
            _say(explained[0])
            return explained[1]
        traceback.print_exc()
        _say("this is a bug in kernelscape; please report it with the lines above")
        return Exit.INTERNAL
    return Exit.OK
