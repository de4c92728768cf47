"""Sparse lowering by default decisions, for standalone calls and for references."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..frontend.instance import Instance
from ..ir.logical import LogicalKernel
from ..ir.verify import LOCAL_ARRAY_BYTES
from ..sparse.calls import logical_kernel, lower_kernel
from ..sparse.hoisted_activation import hoistable
from ..sparse.lowered import HaloWindow, Lowered
from ..sparse.recorded import Logical


def lower_instance(x: Instance) -> Instance:
    """Returns an instance of a kernel on sparse fields, lowered to the arrays of their trees.

    Raises LanguageError.
    """
    structures = dict(x.structures)
    trees = [s.layout for s in structures.values()]
    numbers = tuple(x.numbers[p.array] for p in x.ir.placed)
    found = lower_by_default(logical_kernel(Logical(x.ir, numbers), trees))
    sections = [(name, structures[tree].section(key)) for name, tree, key in found.sections]
    return replace(
        x,
        ir=found.ir,
        fields=(*x.fields, *sections),
        views=(),
        logical=Logical(x.ir, numbers, found.sections),
    )


def lower_by_default(
    kernel: LogicalKernel, demoted: frozenset[int] = frozenset(), *, activates_once: bool = True
) -> Lowered:
    """Returns a kernel lowered by default decisions.

    `demoted`: activations of surely active cells, by number in the order of the text. `activates_once`: activations are hoisted out
    of leaves.
    """
    once = hoistable(kernel.ir) - demoted if activates_once else frozenset[int]()
    found = lower_kernel(kernel, demoted, once=once)
    staged = _in_tiles(found.windows)
    return lower_kernel(kernel, demoted, staged, once) if staged else found


def _in_tiles(windows: Iterable[HaloWindow]) -> frozenset[tuple[int, str]]:
    """Returns pairs of a loop's number and a field to read out of tiles (copies of a leaf with its border).

    These are the fields with a read that may leave a leaf along several axes at once: each such axis doubles the number of leaves
    in which the cell may be. All tiles of a loop together are at most as large as a local array may be. Updates stay in place.
    """
    staged, n_bytes = set[tuple[int, str]](), dict[int, int]()
    for w in windows:
        n = n_bytes.get(w.top, 0) + w.n_bytes
        if w.n_crossed > 1 and n <= LOCAL_ARRAY_BYTES and not w.is_updated:
            staged.add((w.top, w.field))
            n_bytes[w.top] = n
    return frozenset(staged)
