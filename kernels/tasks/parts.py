"""Pieces of a recorded call that become tasks.

For a kernel on sparse fields: the reclaiming of its pools, the generation of its lists, and its loops. Activations and lists that
earlier calls of the sequence make redundant are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING

from ..ir.kernel import Activate, For, ForActive, KernelIR, Stmt
from ..ir.on_trees import TileSite
from ..ir.walk import nested_statements
from ..sparse.current_cell import without_own_activations
from ..sparse.disjoint import activated, fields_apart
from ..sparse.hoisted_activation import once_a_leaf
from ..sparse.layout import Layout
from ..sparse.lower import lower_trees
from ..sparse.lowered import Lowered, Window
from ..sparse.recorded import Logical, layouts_of
from ..sparse.redundancy import Facts, tops_of

if TYPE_CHECKING:
    from ..frontend.record import Call, Recording


@dataclass(frozen=True)
class TakenList:
    """A list that a loop of a call uses, by its array. `is_right`: the list of an earlier loop is still valid."""

    array: str
    has_flag: bool
    is_right: bool


@dataclass(frozen=True)
class TreeLoop:
    """A loop on sparse fields.

    `whole`: the same loop with all of its activations, where redundant ones are left out or (`is_once`) hoisted out of the leaf.
    `apart` and `shared` are those of OnTrees, as arrays of the sequence.
    """

    activates: bool
    whole: Stmt | None
    apart: frozenset[str]
    shared: frozenset[str]
    is_once: bool = False


@dataclass(frozen=True)
class TiledForm:
    """Variant of `Parts.body` in which a loop reads these windows out of tiles.

    Each window has the number of the loop, the array of the field, and the tile.
    """

    windows: tuple[tuple[int, str, TileSite], ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class Parts:
    """A call, with the kernel that it runs here and the sequence's array for each of its arrays.

    `lists`, in the order in which loops use them: `body` makes those that may be out of date. `loops`: of loops of `body`, by
    place.
    """

    call: Call
    ir: KernelIR
    arrays: Mapping[str, str]
    settling: tuple[Stmt, ...]
    body: tuple[Stmt, ...]
    lists: tuple[TakenList, ...] = ()
    loops: Mapping[int, TreeLoop] = field(default_factory=dict)
    forms: tuple[TiledForm, ...] = ()


def parts_of(call: Call, recording: Recording, facts: Facts) -> Parts:
    """The pieces of a call. Updates `facts` to those after the call."""
    arrays = {p.name: name for p, name in zip(call.ir.arrays, call.arrays, strict=True)}
    logical = call.logical
    if logical is None:
        return Parts(call, call.ir, arrays, (), call.ir.body)
    derived = facts.after(logical.ir)
    layouts = layouts_of(recording.trees)
    once = _once(logical, layouts, derived.demoted)
    lowered = lower_trees(logical.ir, layouts, logical.numbers, derived.demoted, once=once)
    of_tree = {t.tree.name: t.arrays for t in recording.trees}
    arrays |= {name: of_tree[tree][key] for name, tree, key in lowered.sections}
    right = {k for k, top, tree, n in lowered.lists if (tree, n) in derived.kept[top]}
    lists = tuple(
        TakenList(of_tree[tree][f"list{n}"], layouts[tree].tree.nodes[n].has.is_listed, k in right)
        for k, _, tree, n in lowered.lists
    )
    body = lowered.ir.body
    first, end = lowered.n_settling, len(body) - lowered.n_claiming
    kept = [k for k in range(first, end) if k not in right]
    found = dict(_loops(logical, lowered, layouts, arrays))
    if derived.demoted or once:
        whole = lower_trees(logical.ir, layouts, logical.numbers)
        arrays |= {name: of_tree[tree][key] for name, tree, key in whole.sections}
        fewer, of_once = (tops_of(logical.ir, x) for x in (derived.demoted | once, once))
        at = {top: whole.ir.body[k] for k, top in whole.loops if top in fewer}
        for k, top in lowered.loops:
            if top in at:
                found[k] = replace(found[k], activates=True, whole=at[top], is_once=top in of_once)
    loops = {place: found[k] for place, k in enumerate(kept) if k in found}
    wanted = tuple(body[k] for k in kept)
    forms, numbers = [], logical.numbers
    tree_of = {p.array: of_tree[p.tree] for p in logical.ir.placed}
    for windows in _sets_of_windows(lowered):
        staged = {(w.top, w.field) for w in windows}
        made = lower_trees(logical.ir, layouts, logical.numbers, derived.demoted, staged, once)
        arrays |= {name: of_tree[tree][key] for name, tree, key in made.sections}
        named = tuple(
            (
                w.top,
                tree_of[w.field][f"field{numbers[w.field]}"],
                TileSite("", w.n_bytes, w.n_crossed),
            )
            for w in windows
        )
        forms.append(TiledForm(named, tuple(made.ir.body[k] for k in kept)))
    return Parts(call, lowered.ir, arrays, body[:first], wanted, lists, loops, tuple(forms))


def _once(
    logical: Logical, layouts: Mapping[str, Layout], demoted: frozenset[int]
) -> frozenset[int]:
    """The hoisted activations, in loops that need all of their activations."""
    trees = {name: layout.tree for name, layout in layouts.items()}
    fewer = tops_of(logical.ir, demoted)
    found = once_a_leaf(logical.ir, trees).items()
    return frozenset(n for top, numbers in found if top not in fewer for n in numbers)


def _loops(
    logical: Logical, lowered: Lowered, layouts: Mapping[str, Layout], arrays: Mapping[str, str]
) -> Iterator[tuple[int, TreeLoop]]:
    """The loops of a kernel by their places in its lowered body."""
    trees = {name: layout.tree for name, layout in layouts.items()}
    of_tree = {(tree, key): arrays[name] for name, tree, key in lowered.sections}
    numbers = logical.numbers
    placed = {
        p.array: of_tree.get((p.tree, f"field{numbers[p.array]}"), "") for p in logical.ir.placed
    }
    for k, top in lowered.loops:
        s = logical.ir.body[top]
        assert isinstance(s, For | ForActive)
        apart = {placed[a] for a in fields_apart(s, trees) if placed.get(a)}
        states = {
            name
            for (tree, key), name in of_tree.items()
            if tree in activated(s) and not key.startswith("field")
        }
        others = without_own_activations(s, trees[s.tree]) if isinstance(s, ForActive) else s
        activates = any(isinstance(x, Activate) for x in nested_statements((others,)))
        yield k, TreeLoop(activates, None, frozenset(apart), frozenset(states))


def _sets_of_windows(lowered: Lowered) -> Iterator[tuple[Window, ...]]:
    """The non-empty sets of windows of each loop."""
    for top in dict.fromkeys(w.top for w in lowered.windows):
        found = [w for w in lowered.windows if w.top == top]
        for n in range(len(found)):
            yield from combinations(found, n + 1)
