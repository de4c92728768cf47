"""Commands that draw: `report`, and `graph` and `trace` for other programs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..runtime.files import write_named
from .options import (
    Talk,
    beginning,
    put_json,
    sequence_argument,
    settings_of,
    sizes_of,
    talks,
    workload_of,
)
from .speaking import say
from .user_file import Named


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File; RUN/report.html if left out."
)
@click.option("--live", is_flag=True, help="Write it again and again while the search goes on.")
@talks
def report(talk: Talk, path: Path, output: Path | None, live: bool) -> None:
    """Draw the run in PATH as one HTML page that needs no network."""
    from ..report.live import LIVE_EVERY_S, pages

    for page in pages(path, output, LIVE_EVERY_S if live else 0.0):
        if talk.is_json:
            put_json({"event": "report", "file": str(page.file), "evaluations": page.n_evaluations})
        else:
            say(f"{page.file}  {page.summary}")


@click.command()
@sequence_argument
@beginning
@click.option("--size", "sizes", multiple=True, help="n=4096 or n=2^24; repeatable.")
@click.option("--dtype", help="f32 or f64.")
@click.option("--dot", "form", flag_value="dot", help="For Graphviz.")
@click.option("--mermaid", "form", flag_value="mermaid", help="For Markdown.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File; else stdout.")
@talks
def graph(
    talk: Talk,
    sequence: str,
    before: tuple[str, ...],
    sizes: tuple[str, ...],
    dtype: str | None,
    form: str | None,
    output: Path | None,
) -> None:
    """The state-flow graph of a SEQUENCE: which task reads and writes which version of what."""
    from ..kernels.tasks.graph import build_graph, show_graph
    from ..kernels.tasks.graph_text import dot_text, mermaid_text

    settings = settings_of(talk, dtype=dtype)
    named = Named(sequence, before)
    workload = workload_of(talk, settings, named, sizes_of(sizes), compare=False, measures=False)
    problem = workload.problem
    found = build_graph(problem)
    temporaries = frozenset(a.name for a in problem.arrays if a.role == "temp")
    if form == "dot":
        text = dot_text(found, problem.name, temporaries)
    elif form == "mermaid":
        text = mermaid_text(found, temporaries)
    else:
        text = show_graph(found)
    if output is not None:
        write_named(output, text.encode())
        say(str(output), err=True)
    if talk.is_json:
        fields = {"event": "graph", "problem": problem.name, "form": form or "text", "text": text}
        put_json(fields | {"file": None if output is None else str(output)})
    elif output is None:
        say(text, nl=False)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("trace.json"), help="File."
)
@talks
def trace(talk: Talk, directory: Path, output: Path) -> None:
    """Write the run in DIRECTORY as Chrome trace events, which ui.perfetto.dev draws."""
    from ..explorer.trace import trace_of

    found = trace_of(directory)
    write_named(output, json.dumps(found, allow_nan=False).encode())
    n_events = len(found["traceEvents"])
    if talk.is_json:
        put_json({"event": "trace", "file": str(output), "events": n_events})
    else:
        say(f"{output}  {n_events} events; open it at https://ui.perfetto.dev")
