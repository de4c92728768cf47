"""`explore list`: lists the library sequences."""

from __future__ import annotations

import click

from ..options import Talk, put_json, talks
from ..speaking import say


@click.command("list")
@talks
def command(talk: Talk) -> None:
    """The library sequences: formula, sizes, targets."""
    from ..list_view import list_fields, list_lines

    if talk.is_json:
        for fields in list_fields():
            put_json(fields)
        return
    for line in list_lines():
        say(line)
