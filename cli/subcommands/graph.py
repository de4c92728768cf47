"""`explore graph`: prints a state-flow graph for people, or in a format for drawing programs."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options
from ..sequence_name import Named
from ..speaking import say


@click.command("graph")
@options.sequence_argument
@options.beginning
@click.option("--size", "sizes", multiple=True, help="n=4096 or n=2^24; repeatable.")
@click.option("--dtype", help="f32 or f64.")
@click.option("--dot", "form", flag_value="dot", help="For Graphviz.")
@click.option("--mermaid", "form", flag_value="mermaid", help="For Markdown.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File; else stdout.")
@options.talks
def command(
    talk: options.Talk,
    sequence: str,
    before: tuple[str, ...],
    sizes: tuple[str, ...],
    dtype: str | None,
    form: str | None,
    output: Path | None,
) -> None:
    """The state-flow graph of a SEQUENCE: which task reads and writes which version of what."""
    from ...kernels.tasks.graph_text import dot_text, mermaid_text
    from ...kernels.tasks.state_flow import build_graph, show_graph
    from ...runtime.files import write_named

    settings = options.settings_of(talk, dtype=dtype)
    named = Named(sequence, before)
    workload = options.workload_of(
        talk, settings, named, options.sizes_of(sizes), compare=False, measures=False
    )
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
        options.put_json(fields | {"file": None if output is None else str(output)})
    elif output is None:
        say(text, nl=False)
