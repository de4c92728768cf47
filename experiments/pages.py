"""Writes pages of results again, of the values that all machines have left: after a machine got a name, or a page another form.

    python -m kernelscape.experiments.pages [NAME ...]

Names of machines are in experiments/results/raw/machines.json, by their keys. Nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import (
    body_bounds,
    bound_gap,
    calls,
    compile_flags,
    correctness,
    first_results,
    first_times,
    fused_bodies,
    gpu_correctness,
    gpu_registers,
    gpu_text,
    journal_cost,
    kernel_calls,
    kill_resume,
    lanes,
    limits,
    paper_text,
    peers,
    placements,
    polybench,
    random_bodies,
    report_speed,
    run_table,
    scatters,
    seeds,
    sharing,
    space_growth,
    sparse,
    sparse_choices,
    sparse_sequences,
    sparse_trees,
    surrogate,
    taichi_behaviours,
    taichi_programs,
    taichi_speed,
    think_speed,
    threads,
    time_loops,
    vector_functions,
    versions,
)
from .writing import RESULTS, Report, write_page

REPORTS: Mapping[str, Report] = {
    "body_bounds": body_bounds.report,
    "bound_gap": bound_gap.report,
    "calls": calls.report,
    "compile_flags": compile_flags.report,
    "correctness": correctness.QUESTION.page,
    "first_results": first_results.report,
    "first_times": first_times.report,
    "fused_bodies": fused_bodies.report,
    "gpu_correctness": gpu_correctness.QUESTION.page,
    "gpu_registers": gpu_registers.report,
    "gpu_table": gpu_text.report,
    "gpu_table_emulator": gpu_text.report,
    "journal_cost": journal_cost.report,
    "kernel_calls": kernel_calls.report,
    "kill_resume": kill_resume.report,
    "lanes": lanes.report,
    "limits": limits.report,
    "paper_tables": paper_text.report,
    "peers": peers.report,
    "placements": placements.report,
    "polybench": polybench.report,
    "random_bodies": random_bodies.report,
    "report_speed": report_speed.report,
    "run_table": run_table.report,
    "scatters": scatters.report,
    "seeds": seeds.report,
    "sharing": sharing.report,
    "space_growth": space_growth.report,
    "sparse": sparse.report,
    "sparse_choices": sparse_choices.report,
    "sparse_trees": sparse_trees.report,
    "sparse_sequences": sparse_sequences.report,
    "surrogate": surrogate.report,
    "taichi_behaviours": taichi_behaviours.report,
    "taichi_programs": taichi_programs.report,
    "taichi_speed": taichi_speed.report,
    "think_speed": think_speed.report,
    "threads": threads.report,
    "time_loops": time_loops.report,
    "vector_functions": vector_functions.report,
    "versions": versions.report,
}


def stored(folder: Path | None = None) -> list[str]:
    """Names of pages that there are values for, and a script."""
    files = ((folder or RESULTS) / "raw").glob("*.*.json")
    return sorted({file.name.split(".")[0] for file in files} & REPORTS.keys())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="(default: all that are there)")
    parser.add_argument("--results", type=Path, help="folder of the results")
    given = parser.parse_args(arguments)
    known = stored(given.results)
    for name in given.names:
        if name not in known:
            parser.error(f"no values for {name!r}: there are {', '.join(known)}")
    for name in given.names or known:
        print(write_page(name, REPORTS[name], given.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
