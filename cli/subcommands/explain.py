"""`explore explain`: explains the time of a result."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import Talk, put_json, talks
from ..speaking import say


@click.command("explain")
@click.argument("path", type=click.Path(path_type=Path))
@talks
def command(talk: Talk, path: Path) -> None:
    """Say of PATH (run directory or best.json) where the time goes, why, and what was left out.

    Of a program's directory it says that of each window, and what ends it.
    """
    from ...runtime.records.program_file import load_program, program_folder
    from ..program_search import window_lines

    folder = program_folder(path)
    if folder is None:
        _explain(talk, path)
        return
    for row in load_program(folder).windows:
        if not talk.is_json:
            for line in window_lines(row):
                say(line)
            if row.why:
                say(f"  nothing found: {row.why}")
        if row.best_ns is not None:
            _explain(talk, folder / row.name)


def _explain(talk: Talk, path: Path) -> None:
    """Prints the explanation of one run or best.json."""
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
