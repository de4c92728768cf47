"""`explore schema`: prints the JSON schema of `--json` lines."""

from __future__ import annotations

import json

import click

from ..options import Talk, put_json, talks
from ..speaking import say


@click.command("schema")
@talks
def command(talk: Talk) -> None:
    """The JSON schema of a line that any command prints with --json."""
    from ..schema import line_schema

    found = line_schema()
    if talk.is_json:
        put_json({"event": "schema", "schema": found})
    else:
        say(json.dumps(found, indent=2))
