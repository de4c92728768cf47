"""Lowering of kernels on sparse fields, and of recorded calls of them, to kernels on plain arrays.

Callers give the decisions about loops. Lowered kernels are kept and shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ..ir.kernel import KernelIR, Stmt
from ..ir.logical import LogicalCall, LogicalKernel
from ..ir.walk import identified
from .layout import TreeLayout, layout_of
from .lower import lower_trees
from .lowered import Lowered
from .recorded import Logical, UsedTree

_MOST_KEPT = 256  # lowered kernels: a search lowers the same ones for many candidates


@dataclass(frozen=True)
class LoweredCall:
    """Result of sparse lowering of a call: a lowered kernel, and the sequence's array for each of its arrays.

    Its statements are the `settling` of pools (reclaiming returned slots) and the `body`, without the making of lists that are
    reused.
    """

    lowered: Lowered
    arrays: Mapping[str, str]
    settling: tuple[Stmt, ...]
    body: tuple[Stmt, ...]


_kernels: dict[int, tuple[KernelIR, LogicalKernel]] = {}  # by identity of the kernel as it is given


def logical_kernel(logical: Logical, trees: Iterable[TreeLayout | UsedTree]) -> LogicalKernel:
    """Returns a kernel on sparse fields before lowering, with identities of its statements.

    `trees`: the trees of the sequence. The result is one object for all callers that lower the kernel, in standalone calls or in
    sequences: they share its lowered forms.
    """
    ir, fields, used = logical.ir, logical.numbers, {t.name for t in logical.ir.trees}
    known = tuple((t.tree, t.fields) for t in trees if t.tree.name in used)
    given, found = _kernels.get(id(ir), (None, None))
    if given is ir and found is not None and (found.fields, found.trees) == (fields, known):
        return found
    made = LogicalKernel(replace(ir, body=identified(ir.body)), fields, known)
    _kernels.pop(id(ir), None)
    for oldest in tuple(_kernels)[: max(0, len(_kernels) - _MOST_KEPT + 1)]:
        _kernels.pop(oldest, None)
    _kernels[id(ir)] = ir, made
    return made


def lower_call(
    call: LogicalCall, staged: frozenset[tuple[int, str]] = frozenset(), *, in_each: bool = False
) -> LoweredCall | None:
    """Returns the lowered kernel of a call; None if it needs an array that the sequence does not have.

    `staged`: pairs of a loop's number at top level and a field that the loop reads out of tiles. `in_each`: all activations are
    made, in each iteration.
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


def lower_kernel(
    kernel: LogicalKernel,
    demoted: frozenset[int] = frozenset(),
    staged: frozenset[tuple[int, str]] = frozenset(),
    once: frozenset[int] = frozenset(),
) -> Lowered:
    """Returns a lowered kernel, with decisions about its loops as in `lower_trees`."""
    return _lowered(kernel, demoted, staged, once)


@lru_cache(maxsize=_MOST_KEPT)
def _lowered(
    kernel: LogicalKernel,
    demoted: frozenset[int],
    staged: frozenset[tuple[int, str]],
    once: frozenset[int],
) -> Lowered:
    layouts = {tree.name: layout_of(tree, fields) for tree, fields in kernel.trees}
    return lower_trees(kernel.ir, layouts, kernel.fields, demoted, staged, once)
