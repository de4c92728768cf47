"""`explore explain`: the time of a result, accounted for."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import Talk, put_json, talks
from ..speaking import say


@click.command("explain")
@click.argument("path", type=click.Path(path_type=Path))
@talks
def command(talk: Talk, path: Path) -> None:
    """Say of PATH (run directory or best.json) where the time goes, why, and what was left out."""
    from ...explorer.explanation import explain_fruitless, explain_run
    from ..explain_view import explain_fields, explain_lines, fruitless_fields, fruitless_lines

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
