"""Writes pages of results again, of the values that all machines have left: after a machine got a name, or a page another form.

    python -m kernelscape.experiments.pages [NAME ...]

Names of machines are in experiments/results/raw/machines.json, by their keys. Nothing is measured. Pages of questions that are
answered, whose scripts are gone, stay as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from .writing import RESULTS, Report, parser_of, write_page

_OWN = (
    *("fleet_faults", "fleet_speed"),
    "alarms",
    "by_hand",
    *("admissible", "autodiff", "bodies", "body_bounds", "calls", "correctness", "counted"),
    "derivatives",
    "earlier",
    *("fused_bodies", "gpu_contracts", "gpu_correctness", "gpu_sanitizer", "gradients"),
    *("kernel_calls", "kill_resume", "lanes", "limits", "npbench", "peers", "polybench"),
    *("programs", "pruning", "random_bodies", "rank", "run_table", "scatters"),
    *("seeds", "sparse", "sparse_sequences", "sparse_trees", "taichi_behaviours"),
    *(
        "taichi_programs",
        "taichi_speed",
        "think_speed",
        "threads",
        "today",
        "vector_functions",
        "versions",
        "window_costs",
    ),
)
REPORTERS: Mapping[str, str] = {
    **{name: name for name in _OWN},
    "gpu_table": "gpu_text",
    "gpu_table_emulator": "gpu_text",
    **dict.fromkeys(("gpu_sparse", "gpu_sparse_emulator"), "gpu_sparse"),
    **dict.fromkeys(("gpu_telamon", "gpu_telamon_emulator"), "gpu_telamon"),
    "paper_tables": "paper_text",
}
"""The module of each page: its `report` makes Markdown of the values of a machine."""


def report_of(name: str) -> Report:
    """The report of a page."""
    report: Report = import_module(f".{REPORTERS[name]}", __package__).report
    return report


def stored(folder: Path | None = None) -> list[str]:
    """Names of pages that there are values for, and a script."""
    files = ((folder or RESULTS) / "raw").glob("*.*.json")
    return sorted({file.name.split(".")[0] for file in files} & REPORTERS.keys())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="(default: all that are there)")
    given = parser.parse_args(arguments)
    known = stored(given.results)
    for name in given.names:
        if name not in known:
            parser.error(f"no values for {name!r}: there are {', '.join(known)}")
    for name in given.names or known:
        print(write_page(name, report_of(name), given.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
