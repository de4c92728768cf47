"""What of a recorded call becomes tasks. Of a kernel on sparse fields: the settling of its pools, what lists it makes, its loops,
without what earlier calls of the sequence make needless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.kernel import KernelIR, Stmt
from ..sparse.derived import Facts
from ..sparse.lower import lower_trees
from ..sparse.recorded import layouts_of

if TYPE_CHECKING:
    from ..language.record import Call, Recording


@dataclass(frozen=True)
class Parts:
    """A call, with the kernel that it runs here and the sequence's array for each of its arrays."""

    call: Call
    ir: KernelIR
    arrays: Mapping[str, str]
    settling: tuple[Stmt, ...]
    body: tuple[Stmt, ...]


def parts_of(call: Call, recording: Recording, facts: Facts) -> Parts:
    """The parts of a call; `facts` are then those behind it."""
    arrays = {p.name: name for p, name in zip(call.ir.arrays, call.arrays, strict=True)}
    logical = call.logical
    if logical is None:
        return Parts(call, call.ir, arrays, (), call.ir.body)
    derived = facts.after(logical.ir)
    lowered = lower_trees(logical.ir, layouts_of(recording.trees), logical.numbers, derived.demoted)
    of_tree = {t.tree.name: t.arrays for t in recording.trees}
    arrays |= {name: of_tree[tree][key] for name, tree, key in lowered.sections}
    kept = {k for k, top, tree, n in lowered.lists if (tree, n) in derived.kept[top]}
    body = lowered.ir.body
    first, end = lowered.n_settling, len(body) - lowered.n_claiming
    wanted = tuple(s for k, s in enumerate(body) if first <= k < end and k not in kept)
    return Parts(call, lowered.ir, arrays, body[:first], wanted)
