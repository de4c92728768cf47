"""`explore tune`: searches several shapes and writes one file with an implementation per shape."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import options
from ..exits import Exit, exit_of
from ..fleet_options import on_a_fleet
from ..sequence_name import Named
from ..settings import parse_sizes
from ..speaking import say

if TYPE_CHECKING:
    from ...runtime.fleet.request import FleetRequest


@click.command("tune")
@options.sequence_argument
@options.beginning
@click.option(
    "--sizes",
    "texts",
    multiple=True,
    required=True,
    help="n=256,n=1024 or m=8,n=9,m=16,n=9: a name that comes again begins the next shape.",
)
@click.option("--dtype", help="f32 or f64.")
@click.option("--target", help="cpu, cuda or emulator.")
@options.limits
@options.verifying
@options.reproducing
@click.option("--seed", help="Of inputs and searches.")
@click.option("--compiler", help="C compiler, name or path.")
@click.option("--again", is_flag=True, help="Also shapes that the file has already.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File: tuned-NAME.json.")
@on_a_fleet
@options.talks
def command(
    talk: options.Talk,
    fleet: FleetRequest | None,
    sequence: str,
    before: tuple[str, ...],
    texts: tuple[str, ...],
    again: bool,
    output: Path | None,
    **flags: Any,
) -> None:
    """Search a SEQUENCE at several shapes into one file, which `kernelscape.load_tuned` calls.

    Each shape has the whole time limit. The file is written after each; what it has is not searched again.
    """
    from ...explorer.sitting import made_within
    from ...explorer.tuning import Tuning, tune
    from ..tune_view import shape_fields, shape_line

    settings = options.settings_of(talk, **flags)
    shapes = shapes_of(texts)
    file = output or Path(f"tuned-{Path(sequence.replace(':', '-')).name}.json")
    tuning = Tuning(
        shapes=shapes,
        workload_of=lambda sizes: made_within(
            settings.time_limit_s,
            lambda: options.workload_of(talk, settings, Named(sequence, before), sizes),
        ),
        options=options.options_of(settings),
        file=file,
        runs=settings.runs,
        again=again,
        fleet=fleet,
    )
    code, n_tuned = Exit.OK, 0
    for done in tune(tuning, on_interrupt=options.interrupted):
        n_tuned += done.entry is not None
        if done.entry is None:
            code = Exit.NOTHING_VALID
        if talk.is_json:
            options.put_json(shape_fields(done))
        else:
            say(shape_line(done))
        if done.run is not None and exit_of(done.run) >= Exit.INTERRUPTED:
            code = Exit(exit_of(done.run))
    if talk.is_json:
        options.put_json(
            {"event": "tuned", "file": str(file), "shapes": n_tuned, "exit": int(code)}
        )
    else:
        say(f"{file}  {n_tuned} of {len(shapes)} shapes")
    sys.exit(code)


def shapes_of(texts: tuple[str, ...]) -> list[dict[str, int]]:
    """Returns the distinct shapes on a command line, in order. Raises UsageError.

    A shape ends before the next occurrence of a size name that it already has.
    """
    shapes: list[dict[str, int]] = []
    for text in texts:
        shape: dict[str, int] = {}
        for item in (x for x in text.split(",") if x.strip()):
            try:
                one = parse_sizes((item,))
            except ValueError as e:
                raise click.UsageError(f"--sizes: {e}") from e
            if set(one) & set(shape):
                shapes.append(shape)
                shape = {}
            shape |= one
        if shape:
            shapes.append(shape)
    if not shapes:
        raise click.UsageError("--sizes: there is no shape; give them as in n=256,n=1024")
    return [s for k, s in enumerate(shapes) if s not in shapes[:k]]
