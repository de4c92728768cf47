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
class TakenList:
    """A list that a loop of a call takes, by its array; `is_right`: the list of an earlier loop is surely right."""

    array: str
    has_flag: bool
    is_right: bool


@dataclass(frozen=True)
class Parts:
    """A call, with the kernel that it runs here and the sequence's array for each of its arrays.

    `lists`, in the order in which loops take them: those that may be old are made in `body`.
    """

    call: Call
    ir: KernelIR
    arrays: Mapping[str, str]
    settling: tuple[Stmt, ...]
    body: tuple[Stmt, ...]
    lists: tuple[TakenList, ...] = ()


def parts_of(call: Call, recording: Recording, facts: Facts) -> Parts:
    """The parts of a call; `facts` are then those behind it."""
    arrays = {p.name: name for p, name in zip(call.ir.arrays, call.arrays, strict=True)}
    logical = call.logical
    if logical is None:
        return Parts(call, call.ir, arrays, (), call.ir.body)
    derived = facts.after(logical.ir)
    layouts = layouts_of(recording.trees)
    lowered = lower_trees(logical.ir, layouts, logical.numbers, derived.demoted)
    of_tree = {t.tree.name: t.arrays for t in recording.trees}
    arrays |= {name: of_tree[tree][key] for name, tree, key in lowered.sections}
    right = {k for k, top, tree, n in lowered.lists if (tree, n) in derived.kept[top]}
    lists = tuple(
        TakenList(of_tree[tree][f"list{n}"], layouts[tree].tree.nodes[n].has.is_listed, k in right)
        for k, _, tree, n in lowered.lists
    )
    body = lowered.ir.body
    first, end = lowered.n_settling, len(body) - lowered.n_claiming
    wanted = tuple(s for k, s in enumerate(body) if first <= k < end and k not in right)
    return Parts(call, lowered.ir, arrays, body[:first], wanted, lists)
