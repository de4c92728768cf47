"""Pieces of a recorded call that become tasks.

For a kernel on sparse fields they are the reclaiming of its pools, the making of its lists, and its loops. Activations and lists
that earlier calls of the sequence make redundant are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..ir.domain import BOX, Domain
from ..ir.kernel import Activate, Expr, For, ForActive, KernelIR, Stmt
from ..ir.logical import LogicalCall, LogicalLoop
from ..ir.on_trees import EACH, NEEDED, ONCE, OnTrees, TileSite
from ..ir.structure import StructureTree
from ..ir.walk import nested_statements
from ..sparse.calls import logical_kernel, lower_call
from ..sparse.current_cell import active_cells, without_own_activations
from ..sparse.disjoint import activated, fields_apart
from ..sparse.hoisted_activation import once_a_leaf
from ..sparse.lowered import Lowered
from ..sparse.redundancy import Derived, tops_of

if TYPE_CHECKING:
    from ..frontend.recorder import Call, Recording


@dataclass(frozen=True)
class TakenList:
    """List of active cells that a loop of a call uses, by its array.

    `has_flag`: a flag records changes of cells since the list was made. `is_right`: the list of an earlier loop is still valid.
    """

    array: str
    has_flag: bool
    is_right: bool


@dataclass(frozen=True)
class TreeLoop:
    """Loop on sparse fields: its form before sparse lowering, its domain, and facts on the sequence's arrays."""

    logical: LogicalLoop
    domain: Domain
    facts: OnTrees


@dataclass(frozen=True)
class Parts:
    """Pieces of a call: its kernel, as it runs here, with the sequence's array and value of each parameter.

    `lists`: the lists in the order in which loops use them; `body` makes those that may be out of date. `loops`: the loops of
    `body` on sparse fields, by identity (`uid`).
    """

    call: Call
    ir: KernelIR
    arrays: Mapping[str, str]
    scalars: Mapping[str, Expr]
    settling: tuple[Stmt, ...]
    body: tuple[Stmt, ...]
    lists: tuple[TakenList, ...] = ()
    loops: Mapping[int, TreeLoop] = field(default_factory=dict)


def parts_of(call: Call, label: str, recording: Recording, derived: Derived | None) -> Parts:
    """Returns the pieces of a call.

    `label`: the call's name in the sequence. `derived`: the redundant operations of a kernel on sparse fields.
    """
    arrays = {p.name: name for p, name in zip(call.ir.arrays, call.arrays, strict=True)}
    scalars = {p.name: x for p, x in zip(call.ir.scalars, call.scalars, strict=True)}
    if call.logical is None or derived is None:
        return Parts(call, call.ir, arrays, scalars, (), call.ir.body)
    kernel = logical_kernel(call.logical, recording.trees)
    ir, trees = kernel.ir, {t.tree.name: t.tree for t in recording.trees}
    logical = LogicalCall(
        kernel,
        arrays,
        scalars,
        {(t.tree.name, key): array for t in recording.trees for key, array in t.sections},
        derived.kept,
        derived.demoted,
        _once(ir, trees, derived.demoted),
    )
    found = lower_call(logical)
    assert found is not None, "a sequence has the arrays of its own kernels"
    lists = tuple(
        TakenList(
            logical.sections[tree, f"list{n}"],
            trees[tree].nodes[n].has.is_listed,
            (tree, n) in derived.kept[top],
        )
        for _, top, tree, n in found.lowered.lists
    )
    loops = dict(_loops(logical, found.lowered, trees, label))
    ir = found.lowered.ir
    return Parts(call, ir, found.arrays, scalars, found.settling, found.body, lists, loops)


def _once(
    ir: KernelIR, trees: Mapping[str, StructureTree], demoted: frozenset[int]
) -> frozenset[int]:
    """Returns the activations to hoist, by number: those in loops of which no activation is redundant."""
    fewer = tops_of(ir, demoted)
    found = once_a_leaf(ir, trees).items()
    return frozenset(n for top, numbers in found if top not in fewer for n in numbers)


def _loops(
    call: LogicalCall, lowered: Lowered, trees: Mapping[str, StructureTree], label: str
) -> Iterator[tuple[int, TreeLoop]]:
    """Yields the loops of a kernel at top level, with their identities (`uid`).

    A field without conflicts between iterations is updated in no tile: the tiles of two leaves would have cells in common.
    """
    ir, fields = call.kernel.ir, call.kernel.fields
    array_of = {
        p.array: call.sections.get((p.tree, f"field{fields[p.array]}"), "") for p in ir.placed
    }
    used = {(tree, key) for _, tree, key in lowered.sections}
    tiles = _tiles(lowered, array_of, label)
    ways = dict.fromkeys(tops_of(ir, call.demoted), NEEDED)
    ways |= dict.fromkeys(tops_of(ir, call.once), ONCE)
    for top, s in enumerate(ir.body):
        if not isinstance(s, For | ForActive):
            continue
        apart = {array_of[a] for a in fields_apart(s, trees) if array_of.get(a)}
        changed = activated(s)
        states = {
            call.sections[tree, key]
            for tree, key in used
            if tree in changed and not key.startswith("field")
        }
        way = ways.get(top, EACH if _activates(s, trees) else "")
        sites = tuple(x for x in tiles.get(top, ()) if x.updated not in apart)
        facts = OnTrees((), way, frozenset(apart), frozenset(states), sites)
        domain = active_cells(s, trees[s.tree]) if isinstance(s, ForActive) else BOX
        yield s.uid, TreeLoop(LogicalLoop(call, top), domain, facts)


def _activates(s: For | ForActive, trees: Mapping[str, StructureTree]) -> bool:
    """True if a loop activates cells other than its current cell."""
    others = without_own_activations(s, trees[s.tree]) if isinstance(s, ForActive) else s
    return any(isinstance(x, Activate) for x in nested_statements((others,)))


def _tiles(
    lowered: Lowered, array_of: Mapping[str, str], label: str
) -> dict[int, tuple[TileSite, ...]]:
    """Returns by number of a loop the fields that it may access in tiles, with names made of call and array."""
    found: dict[int, tuple[TileSite, ...]] = {}
    n_named: dict[str, int] = {}
    for w in lowered.windows:
        array = array_of[w.field]
        n = n_named[array] = n_named.get(array, 0) + 1
        name = f"{label}.{array}" + (f"_{n}" if n > 1 else "")
        site = TileSite(name, w.n_bytes, w.n_crossed, w.field, array if w.is_updated else "")
        found[w.top] = (*found.get(w.top, ()), site)
    return found
