"""`explore codegen`: writes the source text of a stored implementation."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import Talk, put_json, talks
from ..speaking import say


@click.command("codegen")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("."))
@talks
def command(talk: Talk, path: Path, output: Path) -> None:
    """Write the C file of PATH (run directory or best.json) and say how to compile it."""
    from ...explorer.results import write_source

    file, line, entry = write_source(path, output)
    if talk.is_json:
        put_json({"event": "source", "file": str(file), "compile": line, "entry": entry})
        return
    say(f"{file}  exports {entry}", err=True)
    say(line)
