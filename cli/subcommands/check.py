"""`explore check`: verifies a user's function, times it beside ours, and compares it with the bound."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import options
from ..sequence_name import Named
from ..speaking import say

if TYPE_CHECKING:
    from ...explorer.external_function import LaunchParameters


@click.command("check")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--as", "sequence", required=True, help="The sequence that it computes.")
@options.beginning
@click.option("--size", "sizes", multiple=True, help="n=4096 or n=2^24; repeatable.")
@click.option("--dtype", help="f32 or f64.")
@click.option("--target", help="cpu, cuda or emulator.")
@click.option("--name", help="The function, where there are several.")
@click.option("--flag", "flags", multiple=True, help="Of the C compiler; repeatable.")
@click.option("--against", type=click.Path(path_type=Path), help="Ours: a run or best.json.")
@click.option("--grid", help="Of a CUDA kernel: blocks, as in 128 or 16,16.")
@click.option("--block", help="Of a CUDA kernel: threads of a block, as in 256 or 16,16.")
@click.option("--shared", type=click.IntRange(min=0), default=0, help="Its dynamic shared bytes.")
@click.option("--compiler", help="C compiler, name or path.")
@options.verifying
@options.talks
def command(
    talk: options.Talk,
    source: Path,
    sequence: str,
    before: tuple[str, ...],
    sizes: tuple[str, ...],
    name: str | None,
    flags: tuple[str, ...],
    against: Path | None,
    grid: str | None,
    block: str | None,
    shared: int,
    **given: Any,
) -> None:
    """Verify the C function or CUDA kernel of file SOURCE, time it beside ours, compare the bound.

    It takes the arguments of the sequence in order: arrays as pointers, numbers by value; sizes are constants of it, which it may
    call by their names in capitals (N).
    """
    from ...explorer.check import Foreign, check_source
    from ...explorer.sitting import made_within
    from ..check_view import check_fields, check_lines, exit_of_check

    settings = options.settings_of(talk, **given)
    named, extents = Named(sequence, before), options.sizes_of(sizes)
    workload = made_within(
        settings.time_limit_s,
        lambda: options.workload_of(talk, settings, named, extents, compare=False),
    )
    launch = _launch(grid, block, shared)
    foreign = Foreign(file=source, name=name, flags=flags, launch=launch)
    found = check_source(foreign, workload, options.options_of(settings), against)
    code = exit_of_check(found)
    if talk.is_json:
        options.put_json(check_fields(found) | {"exit": int(code)})
    else:
        for line in check_lines(found):
            say(line)
    sys.exit(code)


def _launch(grid: str | None, block: str | None, shared: int) -> LaunchParameters | None:
    if (grid is None) != (block is None):
        raise click.UsageError("--grid and --block go together")
    if grid is None or block is None:
        if shared:
            raise click.UsageError("--shared goes with --grid and --block")
        return None
    from ...explorer.external_function import LaunchParameters

    return LaunchParameters(_extents("--grid", grid), _extents("--block", block), shared)


def _extents(option: str, text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if len(parts) > 3 or not all(p.strip().isdigit() and int(p) > 0 for p in parts):
        raise click.UsageError(f"{option}: {text!r} is not one to three counts such as 16,16")
    x, y, z = (*map(int, parts), 1, 1)[:3]
    return x, y, z
