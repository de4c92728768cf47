"""`explore report`: draws a run as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options import Talk, put_json, talks
from ..speaking import say

if TYPE_CHECKING:
    from ...report.live import Page
    from ...report.merged import MergedPage


@click.command("report")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File; RUN/report.html if left out."
)
@click.option("--live", is_flag=True, help="Write it again and again while the search goes on.")
@talks
def command(talk: Talk, paths: tuple[Path, ...], output: Path | None, live: bool) -> None:
    """Draw the run in PATHS as one HTML page that needs no network. Of a program's directory each window has a page.

    Several runs of one problem, as of several machines, are one page with -o FILE.
    """
    from ...report.live import LIVE_EVERY_S, pages
    from ...runtime.records.program_file import bests_of, program_folder

    if len(paths) > 1:
        if output is None or live:
            raise click.UsageError("several runs are one page with -o FILE, without --live")
        from ...report.merged import write_merged

        _tell(talk, write_merged(paths, output))
        return
    (path,) = paths
    folder = program_folder(path)
    if folder is not None and output is not None:
        raise click.UsageError(f"--output is of one page: name a window of {folder}")
    runs = (path,) if folder is None else [best.parent for best in bests_of(path)]
    every_s = LIVE_EVERY_S if live else 0.0
    for page in (page for run in runs for page in pages(run, output, every_s)):
        _tell(talk, page)


def _tell(talk: Talk, page: Page | MergedPage) -> None:
    if talk.is_json:
        put_json({"event": "report", "file": str(page.file), "evaluations": page.n_evaluations})
    else:
        say(f"{page.file}  {page.summary}")
