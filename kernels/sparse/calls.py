"""Sparse lowering of kernels and of their recorded calls, with the decisions about their loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ..ir.kernel import Stmt
from ..ir.logical import LogicalCall, LogicalKernel
from ..ir.walk import identified
from .layout import layout_of
from .lower import lower_trees
from .lowered import Lowered
from .recorded import Logical, UsedTree

_MOST_KEPT = 256  # lowered kernels: a search lowers the same ones for many candidates


@dataclass(frozen=True)
class LoweredCall:
    """A lowered kernel, with the array of the sequence for each of its arrays.

    Its statements are the `settling` of pools and the `body`, without lists that are reused.
    """

    lowered: Lowered
    arrays: Mapping[str, str]
    settling: tuple[Stmt, ...]
    body: tuple[Stmt, ...]


class Kernels:
    """Kernels of a sequence before sparse lowering: one object for all calls of a kernel, whose lowered forms they share."""

    def __init__(self, trees: Iterable[UsedTree]) -> None:
        self._trees = tuple((t.tree, t.fields) for t in trees)
        self._found: dict[int, tuple[Logical, LogicalKernel]] = {}  # by identity of the kernel

    def of(self, logical: Logical) -> LogicalKernel:
        """Returns a recorded kernel, with identities of its statements."""
        if id(logical.ir) not in self._found:
            ir = replace(logical.ir, body=identified(logical.ir.body))
            made = LogicalKernel(ir, logical.numbers, self._trees)
            self._found[id(logical.ir)] = logical, made
        return self._found[id(logical.ir)][1]


def lower_call(
    call: LogicalCall, staged: frozenset[tuple[int, str]] = frozenset(), *, in_each: bool = False
) -> LoweredCall | None:
    """Lowers the kernel of a call. None if it needs an array that the sequence does not have.

    `staged`: fields that a loop reads out of tiles, with the loop's number at top level. `in_each`: all activations are made, in
    each iteration.
    """
    none = frozenset[int]()
    demoted, once = (none, none) if in_each else (call.demoted, call.once)
    lowered = lower_kernel(call.kernel, demoted, staged, once)
    added = {name: (tree, key) for name, tree, key in lowered.sections}
    if not set(added.values()) <= call.sections.keys():
        return None
    arrays = {name: call.sections[section] for name, section in added.items()}
    reused = {k for k, top, tree, n in lowered.lists if (tree, n) in call.reused[top]}
    body, first = lowered.ir.body, lowered.n_settling
    kept = (k for k in range(first, len(body) - lowered.n_claiming) if k not in reused)
    return LoweredCall(
        lowered, {**call.arrays, **arrays}, body[:first], tuple(body[k] for k in kept)
    )


@lru_cache(maxsize=_MOST_KEPT)
def lower_kernel(
    kernel: LogicalKernel,
    demoted: frozenset[int] = frozenset(),
    staged: frozenset[tuple[int, str]] = frozenset(),
    once: frozenset[int] = frozenset(),
) -> Lowered:
    """Lowers a kernel with decisions about its loops: see `lower_trees`."""
    layouts = {tree.name: layout_of(tree, fields) for tree, fields in kernel.trees}
    return lower_trees(kernel.ir, layouts, kernel.fields, demoted, staged, once)
