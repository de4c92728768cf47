"""How soon is the page of a run drawn whose search tree is large?

    python -m kernelscape.experiments.report_speed [NODES ...]

A small search on the fake device, its tree.jsonl replaced by a made tree of so many nodes (default: 10^5 and 10^6):
unbalanced, with pruned and forbidden children, bounds and names as searches have them. Headless Chromium opens the page
(software rendering); the time is the page's own clock, from its navigation until all is drawn, the least of three.
Writes experiments/results/report_speed.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer.entry import explore_workload, library_workload
from ..explorer.workload import Options
from ..kernels.library import load
from ..report.live import pages
from ..runtime.records.folder import TREE
from ..runtime.records.tree_file import Opened, TreeWriter
from ..testing.browser import Browser, find_browser
from .conditions import stamp, stamp_text
from .writing import table, write_results

N_TRIES = 3
_CHOICES = 80  # names of choices and values as gemver has them


def made_tree(path: Path, n_nodes: int, seed: int = 1) -> None:
    """A tree file with so many nodes: each expansion takes one of the newest open nodes (as dives do) or any (as descents do)."""
    rng = np.random.default_rng(seed)
    writer = TreeWriter(path, cap_bytes=1 << 40)
    root_ns = 473_700.0
    writer.begin(1, 0, root_ns)
    nodes, bounds, depths = [0], [root_ns], [0]
    n_made, expansion = 1, 0
    while n_made < n_nodes:
        last = len(nodes) - 1
        at = (
            last - int(min(rng.geometric(0.1) - 1, last))
            if rng.random() < 0.5
            else int(rng.integers(last + 1))
        )
        node, bound_ns, depth = nodes.pop(at), bounds.pop(at), depths.pop(at)
        children = []
        for k in range(min(int(rng.integers(2, 9)), n_nodes - n_made)):
            child_ns = bound_ns * (1 + (rng.random() ** 4 if rng.random() < 0.5 else 0))
            fate = rng.random()
            is_forbidden, is_cut = k > 0 and fate < 0.1, k > 0 and 0.1 <= fate < 0.3
            name = (
                str(2**k) if depth % 2 else ("BEFORE", "AFTER", "MERGED", "INNER", "OUTER")[k % 5]
            )
            why = f"'merged' leaves no value {expansion % 40}" if is_forbidden else ""
            children.append(Opened(name, None if is_forbidden else child_ns, is_cut, why))
            if not is_forbidden and not is_cut:
                nodes.append(n_made + k)
                bounds.append(child_ns)
                depths.append(depth + 1)
        choice = f"size(task{depth % 7}.i.{depth % _CHOICES})"
        tag = "D" if expansion % 3 else "M"
        writer.expand(node, choice, tag, expansion * 1e-3, n_made, children, bound_ns)
        n_made += len(children)
        expansion += 1
    writer.flush()


def measured(folder: Path, n_nodes: int, browser: Browser | None) -> dict[str, Any]:
    """One size: files, seconds of making the page, and milliseconds until it is drawn."""
    (folder / TREE).unlink(missing_ok=True)
    made_tree(folder / TREE, n_nodes)
    started_s = time.monotonic()
    (page,) = pages(folder)
    row: dict[str, Any] = {
        "nodes": n_nodes,
        "tree_bytes": (folder / TREE).stat().st_size,
        "page_bytes": page.file.stat().st_size,
        "making_s": time.monotonic() - started_s,
    }
    if browser is not None:
        marks = [browser.open(page.file, "drawnMs") for _ in range(N_TRIES)]
        assert all(m["treeNodes"] == str(n_nodes) for m in marks), marks
        row["drawn_ms"] = min(int(m["drawnMs"]) for m in marks)
        row["cells"] = int(marks[0]["treeCells"])
    return row


def run(sizes: Sequence[int], results: Path | None) -> int:
    """Measure all sizes and write the table; the exit status."""
    executable = find_browser()
    browser = None if executable is None else Browser(executable)
    rows = []
    with tempfile.TemporaryDirectory(prefix="kernelscape-report-") as scratch:
        folder = Path(scratch) / "run"
        workload = library_workload(load("bicgk"), {"m": 64, "n": 64}, "f32", 1)
        options = Options(target="fake", max_evals=60, store=False)
        explore_workload(workload, options, directory=folder)
        for n_nodes in sizes:
            rows.append(measured(folder, n_nodes, browser))
            print(rows[-1], flush=True)
    if browser is not None:
        browser.close()
    found = {"conditions": stamp(), "rows": rows}
    write_results("report_speed", report, found, results)
    return 0


def report(found: dict[str, Any]) -> str:
    """The rows as Markdown."""
    body = [
        [
            f"{r['nodes']:,}",
            f"{r['tree_bytes'] / 1e6:.2f}",
            f"{r['tree_bytes'] / r['nodes']:.1f}",
            f"{r['page_bytes'] / 1e6:.2f}",
            f"{r['making_s']:.1f}",
            str(r.get("drawn_ms", "–")),
            f"{r['cells']:,}" if "cells" in r else "–",
        ]
        for r in found["rows"]
    ]
    heads = [
        "nodes",
        "tree.jsonl, MB",
        "bytes a node",
        "page, MB",
        "making it, s",
        "drawn after, ms",
        "cells drawn",
    ]
    return "\n".join(
        [
            "# Pages of large search trees",
            "",
            "Made trees; headless Chromium without a GPU, from navigation until everything on the page is drawn.",
            f"The least of {N_TRIES}; a dash where no Chromium is installed.",
            "",
            stamp_text(found["conditions"]),
            "",
            table(heads, body),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nodes", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--results", type=Path, help="folder of the results")
    given = parser.parse_args(arguments)
    return run(given.nodes, given.results)


if __name__ == "__main__":
    raise SystemExit(main())
