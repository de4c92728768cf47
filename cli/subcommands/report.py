"""`explore report`: a run as a page."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import Talk, put_json, talks
from ..speaking import say


@click.command("report")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File; RUN/report.html if left out."
)
@click.option("--live", is_flag=True, help="Write it again and again while the search goes on.")
@talks
def command(talk: Talk, path: Path, output: Path | None, live: bool) -> None:
    """Draw the run in PATH as one HTML page that needs no network."""
    from ...report.live import LIVE_EVERY_S, pages

    for page in pages(path, output, LIVE_EVERY_S if live else 0.0):
        if talk.is_json:
            put_json({"event": "report", "file": str(page.file), "evaluations": page.n_evaluations})
        else:
            say(f"{page.file}  {page.summary}")
