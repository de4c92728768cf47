"""One page of several runs of one problem, for example on several machines: an overview, and each run's page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..runtime.files import write_named
from ..runtime.records.record import RecordError
from ..search.events import gap_text
from .page import page_html, page_style
from .rebuilt import rebuilt
from .run_data import RunData, load_run

_FRAME_HEIGHT = 1000
_COLUMNS = ("run", "machine", "compiler", "evaluations", "slots", "best", "bound", "gap", "status")


@dataclass(frozen=True)
class MergedPage:
    """A written page of several runs: its file, the number of their evaluations, and a one-line summary."""

    file: Path
    n_evaluations: int
    summary: str


def write_merged(runs: Sequence[Path], file: Path) -> MergedPage:
    """Writes the merged page of several runs. Raises RecordError if their problems differ, and OSError."""
    found = [load_run(run) for run in runs]
    write_named(file, merged_html(found).encode())
    n = sum(len(run.evaluations) for run in found)
    return MergedPage(file, n, f"{len(found)} runs of {found[0].header.sequence}, {n} evaluations")


def merged_html(runs: Sequence[RunData]) -> str:
    """Returns the merged page as text. Times of different machines are in one table, but not in one picture.

    Raises RecordError if the problems of the runs differ.
    """
    first = runs[0].header
    for run in runs[1:]:
        if run.header.problem_key != first.problem_key:
            raise RecordError(
                f"{run.folder} and {runs[0].folder} are runs of different problems: one page is of one"
            )
    title = html.escape(f"{first.sequence}: {len(runs)} runs")
    style = page_style()
    rows = "\n".join(_row([html.escape(x) for x in _cells(run)], "td") for run in runs)
    frames = "\n".join(
        f"<section><h2>{html.escape(run.folder.name)}</h2>"
        f'<iframe sandbox="allow-scripts" style="width:100%;height:{_FRAME_HEIGHT}px;border:0" '
        f'srcdoc="{html.escape(page_html(run, rebuilt(run)))}"></iframe></section>'
        for run in runs
    )
    policy = (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{title}</title>\n<style>\n{style}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<table>\n{_row(_COLUMNS, 'th')}\n{rows}\n</table>\n{frames}\n</body>\n</html>\n"
    )


def _row(cells: Sequence[str], kind: str) -> str:
    return "<tr>" + "".join(f"<{kind}>{cell}</{kind}>" for cell in cells) + "</tr>"


def _cells(run: RunData) -> list[str]:
    """Returns the table cells of a run in the overview."""
    c, best = run.header.conditions, run.best
    slots = {r.place.slot for r in run.evaluations if r.place is not None}
    names = ", ".join(sorted(x for x in slots if isinstance(x, str)))
    is_sure = best is not None and bool(best.bound_ns) and not run.is_doubted()
    return [
        run.folder.name,
        c.machine,
        c.compiler,
        str(len(run.evaluations)),
        names or "-",
        "-" if best is None else f"{best.time_ns:.1f} ns",
        f"{best.bound_ns:.1f} ns" if best is not None and is_sure else "-",
        gap_text(best.gap) if best is not None and is_sure else "-",
        run.status,
    ]
