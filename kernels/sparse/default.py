"""How a kernel on sparse fields is lowered that is called by itself."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.kernel import KernelIR
from ..ir.verify import LOCAL_ARRAY_BYTES
from .hoisted_activation import once_a_leaf
from .layout import Layout
from .lower import lower_trees
from .lowered import Lowered


def lower_by_default(
    ir: KernelIR,
    layouts: Mapping[str, Layout],
    fields: Mapping[str, int],
    *,
    activates_once: bool = True,
) -> Lowered:
    """As `lower_trees`. What all cells of an element activate is made active once, before them (once.py), where `activates_once`.

    Where a read may leave a leaf along several axes at once, leaves and their borders are copied to tiles: each such axis doubles
    the leaves that it may be in. All tiles of a loop are together as large as a local array may be.
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
