"""Options shared by several commands, and their conversion to settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ..space.engine.compiling import tell_when_compiling
from .sequence_name import Named
from .settings import Settings, SettingsError, load_settings, parse_sizes
from .speaking import say

if TYPE_CHECKING:
    from ..explorer.workload import Options, Workload


@dataclass(frozen=True)
class Talk:
    """Options on a command's output: its verbosity, and text or JSON."""

    verbosity: int
    is_json: bool
    config: Path | None


def _say_that_it_compiles() -> None:
    sentence = "compiling what of the search itself is new, once a version: up to a minute"
    say(f"explore: {sentence}", err=True)


def talks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the options common to all commands, passed to the command as one `talk` argument."""

    def call(*, quiet: bool, verbose: int, is_json: bool, config: Path | None, **rest: Any) -> Any:
        outer = click.get_current_context().find_root().params
        config = config or outer.get("config")
        verbosity = 0 if quiet or outer.get("quiet") else 1 + verbose + outer.get("verbose", 0)
        talk = Talk(verbosity, is_json, config)
        if verbosity:
            tell_when_compiling(_say_that_it_compiles)
        settings_of(talk)  # every command says what is wrong with them, also where none is used
        return function(talk=talk, **rest)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__dict__.update(function.__dict__)
    for option in (
        click.option("--config", type=click.Path(path_type=Path), help="Settings file."),
        click.option("--json", "is_json", is_flag=True, help="JSON lines on stdout."),
        click.option("-v", "--verbose", count=True, help="Say more."),
        click.option("-q", "--quiet", is_flag=True, help="The result only."),
    ):
        call = option(call)
    return call


def interrupted() -> None:
    """Prints the message for the first interrupt signal."""
    # Not through click: its streams may be in the middle of a write.
    os.write(2, b"finishing the running evaluation; once more to stop at once\n")


def put_json(fields: Mapping[str, Any]) -> None:
    """Prints one line of `--json`."""
    from ..search.line import line_text  # brings msgspec

    say(line_text(fields))


def settings_of(talk: Talk, **flags: Any) -> Settings:
    """Returns all settings; `flags` take precedence over other sources. Raises SettingsError."""
    return load_settings(flags, config=talk.config)


def about_problem(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the argument that names a sequence, and the options for its sizes, dtype and target."""
    size = click.option(
        "--size", "sizes", multiple=True, help="n=4096, 4k, 2^12 or 1e6; repeatable."
    )
    dtype = click.option("--dtype", help="f32 or f64.")
    target = click.option("--target", help="cpu, cuda or emulator.")
    return sequence_argument(beginning(size(dtype(target(function)))))


def beginning(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the option `--before`, functions of the user's file to run before the explored one."""
    text = "Of FILE.py: a function to call before, such as one that fills its fields; repeatable."
    return click.option("--before", "before", multiple=True, metavar="NAME", help=text)(function)


def hiding(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the option that names arrays which nobody reads after the sequence."""
    text = "Of FILE.py: an array or field that nobody reads afterwards, which need not be written; repeatable."
    return click.option("--unseen", "unseen", multiple=True, metavar="NAME", help=text)(function)


def ablating(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the option that leaves out derived rewrites of a sequence."""
    text = "A rewrite to leave out, to see its worth: dead_stores, copies, lists, activations; repeatable."
    return click.option("--without", "without", multiple=True, metavar="NAME", help=text)(function)


def workload_of(
    talk: Talk,
    settings: Settings,
    named: Named,
    sizes: Mapping[str, int],
    *,
    compare: bool = True,
    measures: bool = True,
) -> Workload:
    """Returns the workload for the sequence of a command line. Raises WorkloadError and LanguageError.

    `compare`: with a NumPy function to compare with. `measures`: the contents of fields matter, since they are measured on.
    """
    from .user_file import find_workload

    def tell(sentence: str) -> None:
        if talk.verbosity:
            say(f"explore: {sentence}", err=True)

    dtype, seed = settings.dtype, settings.seed
    return find_workload(named, sizes, dtype, seed, compare=compare, measures=measures, tell=tell)


def sequence_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the argument that names a sequence, with shell completion for library names and files."""
    return click.argument("sequence", shell_complete=_complete_sequence)(function)


def _complete_sequence(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from ..kernels.library import names

    found = [CompletionItem(name) for name in names() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def limits(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the options that limit a search."""
    time_limit = click.option("--time-limit", help="30s, 2m, 500ms.")
    max_evals = click.option("--max-evals", help="Most candidates to measure.")
    gap = click.option("--gap", help="Stop at this gap: 5% or 0.05.")
    return time_limit(max_evals(gap(function)))


def given_inputs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the option with values of arrays, which replace those that a run stored."""
    text = (
        "An .npz file with arrays of the sequence, by name: in place of what was kept or is drawn."
    )
    return click.option("--inputs", type=click.Path(path_type=Path), help=text)(function)


def verifying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the option on the share of a result that rounding may decide."""
    text = "Share of an array's elements that may lie on a branch: 1e-4; default 1e-5."
    return click.option("--undecided", help=text)(function)


def reproducing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the option that makes results independent of the order of threads."""
    text = "Nothing may depend on the number or order of threads: equal bytes in every run."
    flag = click.option("--deterministic", is_flag=True, default=None, help=text)
    return flag(function)


def fixing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the option that fixes decisions before the search."""
    text = "CHOICE=VALUE: decide this upfront; repeatable. `explore show -v` lists choices."
    return click.option("--fix", "fixed", multiple=True, help=text)(function)


def decisions_of(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the fixed decisions on a command line as pairs (name, value). Raises UsageError."""
    parts = [text.rpartition("=") for text in texts]
    for text, (name, _, value) in zip(texts, parts, strict=True):
        if not name.strip() or not value.strip():
            raise click.UsageError(f"--fix: {text!r} is not CHOICE=VALUE, such as fused=SEPARATE")
    return tuple((name.strip(), value.strip()) for name, _, value in parts)


def options_of(settings: Settings, fixed: tuple[tuple[str, str], ...] = ()) -> Options:
    """Returns the options of a session from settings and fixed decisions. Raises SettingsError."""
    try:
        return replace(_options(settings), fixed=fixed)
    except ValueError as e:
        raise SettingsError(str(e)) from e


def _options(settings: Settings) -> Options:
    from ..explorer.workload import Options

    return Options(
        time_limit_s=settings.time_limit_s,
        max_evals=settings.max_evals,
        gap=settings.gap,
        seed=settings.seed,
        strategy=settings.strategy,
        target=settings.target,
        compiler=settings.compiler,
        compile_timeout_s=settings.compile_timeout_s,
        final_top=settings.final_top,
        input_sets=settings.input_sets,
        store=settings.store,
        undecided=settings.undecided,
        deterministic=settings.deterministic,
        given=tuple(sorted((k, v) for k, v in settings.given.items() if k != "seed")),
    )


def sizes_of(texts: tuple[str, ...]) -> dict[str, int]:
    """Returns the sizes on a command line by name. Raises UsageError."""
    try:
        return parse_sizes(texts)
    except ValueError as e:
        raise click.UsageError(f"--size: {e}") from e
