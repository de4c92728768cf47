"""`explore compare`: compares two results."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import Talk, put_json, talks
from ..speaking import say


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@talks
def command(talk: Talk, a: Path, b: Path) -> None:
    """Compare the results A and B (run directories or best.json): times, and decisions that differ."""
    from ...explorer.comparison import compare
    from ..compare_view import compare_fields, compare_lines

    found, names = compare(a, b), (str(a), str(b))
    if talk.is_json:
        put_json(compare_fields(names, found))
        return
    for line in compare_lines(names, found, talk.verbosity):
        say(line)
