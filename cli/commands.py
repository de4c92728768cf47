"""The `explore` command."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..search.run import STRATEGIES
from .backstop import backstop
from .check_command import check
from .exits import Exit, exit_of, exit_of_replay, explain_error
from .export_command import export
from .options import (
    Talk,
    about_problem,
    decisions_of,
    fixing,
    given_inputs,
    interrupted,
    limits,
    options_of,
    put_json,
    settings_of,
    sizes_of,
    talks,
    verifying,
    workload_of,
)
from .picture_commands import graph, report, trace
from .settings import Settings
from .speaking import say
from .taichi_command import taichi
from .tune_command import tune
from .upkeep_commands import cache, schema
from .user_file import Named

if TYPE_CHECKING:
    from ..explorer.workload import Workload

_COMMANDS = (
    "list",
    "show",
    "run",
    "resume",
    "explain",
    "report",
    "replay",
    "codegen",
    "export",
    "check",
    "tune",
    "taichi",
    "graph",
    "trace",
    "calibrate",
    "doctor",
    "cache",
    "schema",
)


class _Group(click.Group):
    """Says which command was meant, and ends quietly when nobody reads on."""

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


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
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


@explore.command("list")
@talks
def list_command(talk: Talk) -> None:
    """The library sequences: formula, sizes, targets."""
    from .views import list_fields, list_lines

    if talk.is_json:
        for fields in list_fields():
            put_json(fields)
        return
    for line in list_lines():
        say(line)


@explore.command()
@about_problem
@fixing
@click.option(
    "--descents",
    type=click.IntRange(min=0),
    default=200,
    help="Random descents for the estimate; 0: none.",
)
@click.option("--profile", help="The GPU, where there is none: h200, h100, a100, rtx4090.")
@talks
def show(
    talk: Talk,
    sequence: str,
    before: tuple[str, ...],
    sizes: tuple[str, ...],
    dtype: str | None,
    target: str | None,
    fixed: tuple[str, ...],
    descents: int,
    profile: str | None,
) -> None:
    """Tasks, state-flow graph, objects and choices of a SEQUENCE, and how large its space is."""
    from ..space.decisions import fix
    from .tree_view import tree_lines
    from .views import show_fields, show_lines, space_of

    settings = settings_of(talk, dtype=dtype, target=target)
    named = Named(sequence, before)
    workload = workload_of(talk, settings, named, sizes_of(sizes), compare=False, measures=False)
    space = fix(space_of(workload, settings.target, profile), decisions_of(fixed))
    if talk.is_json:
        put_json(show_fields(space, settings.seed, descents, talk.verbosity))
        return
    if workload.recording.trees:
        say("Trees")
        for line in tree_lines(workload.recording, workload.problem, workload.arguments):
            say(f"  {line}")
        say("")
    for line in show_lines(space, settings.seed, descents, talk.verbosity):
        say(line)


@explore.command()
@about_problem
@limits
@fixing
@verifying
@click.option("--seed", help="Of inputs and search.")
@click.option("--strategy", help=" | ".join(STRATEGIES))
@click.option("--compiler", help="C compiler, name or path.")
@click.option("--build-only", is_flag=True, help="Compile and report; run nothing (GPUs).")
@click.option("--profile", help="With it: the GPU, where there is none: h200, h100, a100, rtx4090.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Directory of the run.")
@talks
def run(
    talk: Talk,
    sequence: str,
    before: tuple[str, ...],
    sizes: tuple[str, ...],
    fixed: tuple[str, ...],
    build_only: bool,
    profile: str | None,
    output: Path | None,
    **flags: Any,
) -> None:
    """Search the implementations of a SEQUENCE: a name from `explore list`, or FILE.py:function."""
    from ..explorer.entry import explore_made

    settings = settings_of(talk, **flags)
    options = options_of(settings, decisions_of(fixed))
    named, extents = Named(sequence, before), sizes_of(sizes)

    def make() -> Workload:
        return workload_of(talk, settings, named, extents)

    if profile is not None and not build_only:
        raise click.UsageError("--profile goes with --build-only: what runs, runs on this machine")
    if build_only and output is not None:
        raise click.UsageError("--output is of what runs: with --build-only nothing is saved")
    if build_only:
        from ..explorer.building import PROFILE
        from ..explorer.building import build_only as build
        from .build_view import show_builds

        n_ok = show_builds(build(make(), options, profile or PROFILE), talk.is_json)
        sys.exit(Exit.OK if n_ok else Exit.NOTHING_VALID)
    found = explore_made(
        make,
        options,
        directory=output,
        runs=settings.runs,
        on_event=_listener(talk, settings),
        on_interrupt=interrupted,
    )
    sys.exit(exit_of(found))


@explore.command()
@click.argument("directory", type=click.Path(path_type=Path))
@limits
@given_inputs
@talks
def resume(talk: Talk, directory: Path, inputs: Path | None, **flags: Any) -> None:
    """Go on with the run in DIRECTORY, from its journal."""
    from ..explorer.entry import resume as go_on

    settings = settings_of(talk, **flags)
    given = settings.origins
    found = go_on(
        directory,
        time_limit=settings.time_limit_s if "time_limit" in given else None,
        max_evals=settings.max_evals if "max_evals" in given else None,
        gap=settings.gap if "gap" in given else None,
        compiler=settings.compiler if "compiler" in given else None,
        inputs=inputs,
        on_event=_listener(talk, settings),
        on_interrupt=interrupted,
    )
    sys.exit(exit_of(found))


@explore.command()
@click.argument("path", type=click.Path(path_type=Path))
@talks
def explain(talk: Talk, path: Path) -> None:
    """Say of PATH (run directory or best.json) where the time goes, why, and what was left out."""
    from ..explorer.explanation import explain_fruitless, explain_run
    from .explain_view import explain_fields, explain_lines, fruitless_fields, fruitless_lines

    fruitless = explain_fruitless(path)
    if fruitless is not None:
        if talk.is_json:
            put_json(fruitless_fields(fruitless))
            return
        for line in fruitless_lines(fruitless, talk.verbosity):
            say(line.rstrip())
        return
    found = explain_run(path)
    if talk.is_json:
        put_json(explain_fields(found))
        return
    for line in explain_lines(found, talk.verbosity):
        say(line.rstrip())


@explore.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--tolerance", help="How much slower is still well: 25%.")
@click.option("--trust-library", is_flag=True, help="Without a compiler: run what lies beside it.")
@given_inputs
@talks
def replay(
    talk: Talk, path: Path, tolerance: str | None, trust_library: bool, inputs: Path | None
) -> None:
    """Rebuild the stored implementation of PATH (run directory or best.json), verify, time it."""
    from ..explorer.results import replay_again
    from .views import replay_fields, replay_lines

    settings = settings_of(talk, tolerance=tolerance)
    again = replay_again(
        path, settings.input_sets, settings.tolerance, trust_library=trust_library, inputs=inputs
    )
    code = exit_of_replay(again.outcome, again.slower_by, settings.tolerance)
    if talk.is_json:
        put_json(replay_fields(again) | {"exit": int(code)})
    else:
        for line in replay_lines(again, settings.tolerance):
            say(line)
    sys.exit(code)


@explore.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("."))
@talks
def codegen(talk: Talk, path: Path, output: Path) -> None:
    """Write the C file of PATH (run directory or best.json) and say how to compile it."""
    from ..explorer.results import write_source

    file, command, entry = write_source(path, output)
    if talk.is_json:
        put_json({"event": "source", "file": str(file), "compile": command, "entry": entry})
        return
    say(f"{file}  exports {entry}", err=True)
    say(command)


@explore.command()
@click.option("--target", help="cpu or cuda.")
@talks
def calibrate(talk: Talk, target: str | None) -> None:
    """Measure the machine facts that the bound uses, and keep them for this machine."""
    from .views import calibration_fields, calibration_lines, measurable

    settings = settings_of(talk, target=target)
    device = measurable(settings.target, settings.compiler)
    if talk.verbosity:
        say("measuring caches, memory, arithmetic and threads (about 10 s)", err=True)
    found = device.machine.calibrate()
    if talk.is_json:
        put_json(calibration_fields(found))
        return
    for line in calibration_lines(found):
        say(line)


@explore.command()
@talks
def doctor(talk: Talk) -> None:
    """What this machine has, what is missing, and how to get it."""
    from .doctor import examine

    settings = settings_of(talk)
    findings = examine(os.environ, settings.compiler)
    for f in findings:
        if talk.is_json:
            fields = {"topic": f.topic, "verdict": f.verdict, "text": f.text, "advice": f.advice}
            put_json({"event": "finding"} | fields)
        elif talk.verbosity or f.verdict != "ok":
            say(f"{f.verdict:<8} {f.topic:<12} {f.text}")
            if f.advice:
                say(f"{'':<21} {f.advice}")
    if any(f.verdict == "missing" for f in findings):
        sys.exit(Exit.ENVIRONMENT)


for _command in (report, export, check, tune, taichi, graph, trace, cache, schema):
    explore.add_command(_command)


def _listener(talk: Talk, settings: Settings) -> Callable[[Any], None]:
    """JSON lines go to stdout, and then the rows for people to stderr."""
    from .. import __version__
    from .json_log import JsonLog
    from .log import TextLog

    def write(line: str) -> None:
        say(line, err=talk.is_json)

    rows = TextLog(
        write,
        version=__version__,
        every_s=settings.log_every_s,
        verbosity=talk.verbosity,
    )
    if not talk.is_json:
        return rows
    lines = JsonLog(say)
    is_silent = talk.verbosity == 0

    def both(event: Any) -> None:
        lines(event)
        if not is_silent:
            rows(event)

    return both


def _say(sentence: str) -> None:
    say(f"explore: {' '.join(sentence.split())}", err=True)


def main(arguments: list[str] | None = None) -> None:
    """The `explore` command; ends the process."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    """The exit code of a command line; every error of the user is one sentence on stderr."""
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
