"""`explore export`: writes a tuned implementation as files that do not need this package."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import Talk, given_inputs, put_json, talks
from ..speaking import say


@click.command("export")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder of the files."
)
@given_inputs
@talks
def command(talk: Talk, path: Path, output: Path, inputs: Path | None) -> None:
    """Write PATH (run directory or best.json) as C or CUDA, a header, CMake, a check and a shared library."""
    from ...explorer.export import export

    found = export(path, output, inputs)
    if talk.is_json:
        fields = {"event": "export", "folder": str(found.folder), "function": found.function}
        files = [f.name for f in found.files]
        library = None if found.library is None else found.library.name
        put_json(fields | {"files": files, "library": library})
        return
    say(f"{found.folder}  {' '.join(f.name for f in found.files)}")
    if found.library is None:
        say(f"no library: {found.compiler} is not here; CMake builds it where the CUDA toolkit is")
    say(
        f"check it: cmake -S {output} -B {output}/build && cmake --build {output}/build && ctest --test-dir {output}/build"
    )
