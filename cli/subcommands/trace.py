"""`explore trace`: writes a run as trace events for drawing programs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..options import Talk, put_json, talks
from ..speaking import say


@click.command("trace")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("trace.json"), help="File."
)
@talks
def command(talk: Talk, directory: Path, output: Path) -> None:
    """Write the run in DIRECTORY as Chrome trace events, which ui.perfetto.dev draws."""
    from ...explorer.trace import trace_of
    from ...runtime.files import write_named

    found = trace_of(directory)
    write_named(output, json.dumps(found, allow_nan=False).encode())
    n_events = len(found["traceEvents"])
    if talk.is_json:
        put_json({"event": "trace", "file": str(output), "events": n_events})
    else:
        say(f"{output}  {n_events} events; open it at https://ui.perfetto.dev")
