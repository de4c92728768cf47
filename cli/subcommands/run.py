"""`explore run`: searches the implementations of a sequence or a program."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...search.options import STRATEGIES
from ..exits import Exit, exit_of
from ..fleet_options import each_key, on_a_fleet
from ..options import (
    Talk,
    ablating,
    about_problem,
    decisions_of,
    fixing,
    hiding,
    interrupted,
    limits,
    options_of,
    reproducing,
    settings_of,
    sizes_of,
    talks,
    verifying,
    workload_of,
)
from ..sequence_name import Named, is_program

if TYPE_CHECKING:
    from ...explorer.workload import Workload
    from ...runtime.fleet.request import FleetRequest


@click.command("run")
@about_problem
@hiding
@ablating
@limits
@fixing
@verifying
@reproducing
@click.option("--seed", help="Of inputs and search.")
@click.option("--strategy", help=" | ".join(STRATEGIES))
@click.option("--compiler", help="C compiler, name or path.")
@click.option("--build-only", is_flag=True, help="Compile and report; run nothing (GPUs).")
@click.option("--profile", help="With it: the GPU, where there is none: h200, h100, a100, rtx4090.")
@click.option(
    "--frames",
    type=click.IntRange(min=1),
    help="Of FILE.py: watch so many pictures at most; 10 if left out.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Directory of the run.")
@on_a_fleet
@click.option(
    "--each-key",
    "is_each",
    is_flag=True,
    help="One search for each device key of the fleet, of all kinds without --target.",
)
@talks
def command(
    talk: Talk,
    fleet: FleetRequest | None,
    is_each: bool,
    sequence: str,
    before: tuple[str, ...],
    unseen: tuple[str, ...],
    without: tuple[str, ...],
    sizes: tuple[str, ...],
    fixed: tuple[str, ...],
    build_only: bool,
    profile: str | None,
    frames: int | None,
    output: Path | None,
    **flags: Any,
) -> None:
    """Search the implementations of a SEQUENCE: a name from `explore list`, or FILE.py:function.

    FILE.py alone is run as a program; the sequences of kernels that it calls again and again are searched.
    """
    from ...explorer.entry import explore_made
    from ..listener import listener

    settings = settings_of(talk, **flags)
    options = options_of(settings, decisions_of(fixed))
    if without:
        options = replace(options, given=(*options.given, ("without", ",".join(without))))
    named, extents = Named(sequence, before, unseen, without), sizes_of(sizes)

    def make() -> Workload:
        return workload_of(talk, settings, named, extents)

    if profile is not None and not build_only:
        raise click.UsageError("--profile goes with --build-only: what runs, runs on this machine")
    if is_program(sequence):
        of_functions = {"--size": sizes, "--before": before, "--unseen": unseen, "--fix": fixed}
        of_functions |= {"--without": without}
        for name, value in {**of_functions, "--build-only": build_only}.items():
            if value:
                raise click.UsageError(
                    f"{name} is not of programs: name a function, {sequence}:NAME"
                )
        if fleet is not None or is_each:
            raise click.UsageError("programs run on this machine: a fleet is of sequences")
        if options.target != "cpu":
            raise click.UsageError(
                f"programs run on the CPU: --target {options.target} is of sequences"
            )
        from ..program_search import search_program

        sys.exit(search_program(talk, settings, Path(sequence), options, output, frames or 10))

    if frames is not None:
        raise click.UsageError("--frames is of programs, FILE.py without a function")
    if build_only and output is not None:
        raise click.UsageError("--output is of what runs: with --build-only nothing is saved")
    if build_only:
        from ...explorer.building import PROFILE
        from ...explorer.building import build_only as build
        from ..build_view import show_builds

        n_ok = show_builds(build(make(), options, profile or PROFILE), talk.is_json)
        sys.exit(Exit.OK if n_ok else Exit.NOTHING_VALID)
    code = int(Exit.OK)
    target = settings.target if "target" in settings.origins else None
    searches = each_key(fleet, target) if is_each else ((fleet, options.target),)
    for asked, of in searches:
        folder = output
        if is_each and asked is not None and output is not None:
            folder = output / str(asked.on)
        found = explore_made(
            make,
            replace(options, target=of),
            directory=folder,
            runs=settings.runs,
            on_event=listener(talk, settings),
            on_interrupt=interrupted,
            fleet=asked,
        )
        code = code or exit_of(found)
        if found.signal:
            break
    sys.exit(code)
