"""`explore export`: files that need nothing of this package."""

from __future__ import annotations

from pathlib import Path

import click

from .options import Talk, put_json, talks
from .speaking import say


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder of the files."
)
@talks
def export(talk: Talk, path: Path, output: Path) -> None:
    """Write PATH (run directory or best.json) as C, a header, CMake, a check and a shared library."""
    from ..explorer.export import export as write

    found = write(path, output)
    if talk.is_json:
        fields = {"event": "export", "folder": str(found.folder), "function": found.function}
        put_json(fields | {"files": [f.name for f in found.files]})
        return
    say(f"{found.folder}  {' '.join(f.name for f in found.files)}")
    say(
        f"check it: cmake -S {output} -B {output}/build && cmake --build {output}/build && ctest --test-dir {output}/build"
    )
