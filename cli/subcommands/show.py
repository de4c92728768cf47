"""`explore show`: prints a sequence and its space, without a search."""

from __future__ import annotations

import click

from .. import options
from ..sequence_name import Named
from ..speaking import say


@click.command("show")
@options.about_problem
@options.hiding
@options.ablating
@options.fixing
@click.option(
    "--descents",
    type=click.IntRange(min=0),
    default=200,
    help="Random descents for the estimate; 0: none.",
)
@click.option("--profile", help="The GPU, where there is none: h200, h100, a100, rtx4090.")
@options.talks
def command(
    talk: options.Talk,
    sequence: str,
    before: tuple[str, ...],
    unseen: tuple[str, ...],
    without: tuple[str, ...],
    sizes: tuple[str, ...],
    dtype: str | None,
    target: str | None,
    fixed: tuple[str, ...],
    descents: int,
    profile: str | None,
) -> None:
    """Tasks, state-flow graph, objects and choices of a SEQUENCE, and how large its space is."""
    from ...space.decisions import fix
    from ..tree_view import tree_lines
    from ..views import show_fields, show_lines, space_of

    settings = options.settings_of(talk, dtype=dtype, target=target)
    named = Named(sequence, before, unseen, without)
    workload = options.workload_of(
        talk, settings, named, options.sizes_of(sizes), compare=False, measures=False
    )
    space = fix(space_of(workload, settings.target, profile), options.decisions_of(fixed))
    if talk.is_json:
        options.put_json(show_fields(space, settings.seed, descents, talk.verbosity))
        return
    if workload.recording.trees:
        say("Trees")
        for line in tree_lines(workload.recording, workload.problem, workload.arguments):
            say(f"  {line}")
        say("")
    for line in show_lines(space, settings.seed, descents, talk.verbosity):
        say(line)
