"""Sparse lowering of standalone kernels, with default decisions."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.kernel import KernelIR
from ..ir.verify import LOCAL_ARRAY_BYTES
from .hoisted_activation import once_a_leaf
from .layout import TreeLayout
from .lower import lower_trees
from .lowered import Lowered


def lower_by_default(
    ir: KernelIR,
    layouts: Mapping[str, TreeLayout],
    fields: Mapping[str, int],
    *,
    activates_once: bool = True,
) -> Lowered:
    """Lowers a kernel by `lower_trees`, with activations hoisted out of leaves (hoisted_activation.py) if `activates_once`.

    Leaves and their borders are copied to tiles if a read may leave a leaf along several axes at once: each such axis doubles the
    number of leaves in which the cell may be. All tiles of a loop together are at most as large as a local array may be.
    """
    trees = {name: layout.tree for name, layout in layouts.items()}
    found_once = once_a_leaf(ir, trees).values() if activates_once else ()
    once = frozenset(n for numbers in found_once for n in numbers)
    found = lower_trees(ir, layouts, fields, once=once)
    staged, n_bytes = set[tuple[int, str]](), dict[int, int]()
    for w in found.windows:
        n = n_bytes.get(w.top, 0) + w.n_bytes
        if w.n_crossed > 1 and n <= LOCAL_ARRAY_BYTES:
            staged.add((w.top, w.field))
            n_bytes[w.top] = n
    return lower_trees(ir, layouts, fields, staged=staged, once=once) if staged else found
