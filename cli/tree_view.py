"""The trees of sparse fields of a sequence, for `explore show`: nodes, states, how full they are, and what their lists cost."""

from __future__ import annotations

from collections.abc import Iterator

from ..kernels.fields.statistics import statistics_in
from ..kernels.fields.storage import TreeStorage
from ..kernels.ir.task import Problem
from ..kernels.language.record import Recording
from ..kernels.sparse.recorded import UsedTree
from ..runtime.worker.inputs import Arguments

_STATES = ("table", "mask", "length", "list", "keys")


def tree_lines(recording: Recording, problem: Problem, arguments: Arguments) -> Iterator[str]:
    """A table for each tree, of its nodes as the sequence finds them."""
    for used in recording.trees:
        if any(key not in used.arrays for key in _needed(used)):
            yield f"{used.tree.name}: the kernels do not touch all of its states"
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
            states = [f"{s}{k}" for s in _STATES if f"{s}{k}" in used.arrays]
            made = _made(problem, used, k)
            cost = f"{made} x {node.cells} cells looked at" if made else ""
            shared = f"{', '.join(states)}; {cost}".strip("; ")
            yield f"  {row.ljust(wide)}  {shared}".rstrip()


def _needed(used: UsedTree) -> Iterator[str]:
    """The sections that say which cells are active."""
    for k, node in enumerate(used.tree.nodes):
        for kind, stem in (("pool", "table"), ("mask", "mask"), ("length", "length")):
            if getattr(node.has, kind):
                yield f"{stem}{k}"
        if node.has.directory:
            yield f"at{k}"


def _made(problem: Problem, used: UsedTree, node: int) -> int:
    """How often a run of the sequence makes the list of a node, where its cells have changed."""
    array = used.arrays.get(f"list{node}")
    return sum(t.target.array == array for t in problem.tasks)
