"""Tables of a sequence's sparse trees for `explore show`: nodes, states, active cells, and cost of lists."""

from __future__ import annotations

from collections.abc import Iterator

from ..kernels.analysis.effects import arrays_written
from ..kernels.fields.statistics import statistics_in
from ..kernels.fields.storage import TreeStorage
from ..kernels.frontend.recorder import Recording
from ..kernels.ir.task import Problem
from ..kernels.sparse.recorded import UsedTree
from ..runtime.worker.inputs import Arguments

_STATES = ("table", "mask", "length", "list", "keys")


def tree_lines(recording: Recording, problem: Problem, arguments: Arguments) -> Iterator[str]:
    """Yields a table for each sparse tree: its nodes and active cells before the sequence runs."""
    for used in recording.trees:
        if any(key not in used.arrays for key in _needed(used)):
            yield f"{used.tree.name}: its kernels do not take all that says which cells are active"
            for k, n in enumerate(used.tree.nodes):
                name = f"{n.kind} {'x'.join(map(str, n.extents))}"
                indent = "  " * len(used.tree.path(k))
                yield f"{indent}{name}  {_states(problem, used, k, None)}".rstrip()
            continue
        here = {key: arguments.arrays[name] for key, name in used.sections}
        names = [used.arrays.get(f"field{k}", "-") for k in range(len(used.fields))]
        statistics = statistics_in(TreeStorage(used.layout, here), names)
        head, *rows = str(statistics).splitlines()
        wide = max(map(len, (head, *rows)))
        yield f"{used.tree.name}, {statistics.bytes} bytes in use"
        yield f"  {head.ljust(wide)}  states; cost of its list"
        for k, row in enumerate(rows):
            node = statistics.nodes[k]
            looked_at = node.active if used.tree.nodes[k].has.directory else node.cells
            yield f"  {row.ljust(wide)}  {_states(problem, used, k, looked_at)}".rstrip()


def _states(problem: Problem, used: UsedTree, node: int, looked_at: int | None) -> str:
    """Returns the names of a node's states that the sequence uses, and the cost of building its list.

    `looked_at`: number of cells that building the list reads (for a hash node the cells with a slot); None if unknown.
    """
    states = ", ".join(f"{s}{node}" for s in _STATES if f"{s}{node}" in used.arrays)
    made = _made(problem, used, node)
    if not made:
        return states
    return f"{states}; {made} x " + (
        "its cells" if looked_at is None else f"{looked_at} cells looked at"
    )


def _needed(used: UsedTree) -> Iterator[str]:
    """Yields the names of those sections of a tree that determine its active cells."""
    for k, node in enumerate(used.tree.nodes):
        for kind, stem in (("pool", "table"), ("mask", "mask"), ("length", "length")):
            if getattr(node.has, kind):
                yield f"{stem}{k}"
        if node.has.directory:
            yield f"at{k}"


def _made(problem: Problem, used: UsedTree, node: int) -> int:
    """Returns the number of times that one run of the sequence rebuilds the list of a node, if its cells change."""
    array = used.arrays.get(f"list{node}")
    return sum(t.n_runs for t in problem.tasks if array in arrays_written(t))
