"""Redundancy elimination across kernels of a sequence: lists still valid, activations of cells already active.

A list is reused if no mask of its node and of those above has changed since it was made. A cell is surely active if an earlier
statement has surely activated it, over the same domain by the same index. No cell of its tree may be deactivated between, and the
domain may only grow by cells whose counterparts in the tree are active (`_leads_back`). Both only depend on earlier statements, and
each demotion leaves fewer changes: one walk in program order finds all of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir import kernel
from ..ir.per_object import per_object
from ..ir.rewrites import ACTIVATIONS, LISTS
from ..ir.simplify import unary
from ..ir.structure import StructureTree
from ..ir.walk import Renaming, loads, local_changed, nested_statements, walk
from .current_cell import lists_made, own_of, shrinks

Node = tuple[str, int]  # of a tree
PURE = ("Const", "LoopIndex", "Cast", "Unary", "Binary")


@dataclass(frozen=True)
class Derived:
    """Redundant operations of one kernel: activations of active cells, and lists that are still valid.

    `demoted`: the activations, by number in the order of the text. For each statement at top level, `kept` are the nodes whose
    lists are reused, `changed` the trees whose active cells it may still change, and `left` the number of activations that it still
    makes.
    """

    demoted: frozenset[int]
    kept: tuple[frozenset[Node], ...]
    changed: tuple[frozenset[str], ...]
    left: tuple[int, ...]


@dataclass(frozen=True)
class ActivationSite:
    """Activation in the text of a kernel, with the loops around it, outermost first.

    If `runs` is True, it is made in each of their iterations in which all `guards` hold, and nothing but the `indices` of these
    loops determines its cell. A loop over active cells may have no iteration.
    """

    number: int
    statement: kernel.Activate
    around: tuple[kernel.For | kernel.ForActive, ...]
    indices: tuple[kernel.Expr, ...]
    guards: tuple[kernel.Expr, ...]
    runs: bool

    @property
    def is_sure(self) -> bool:
        """True if the activation is made in all iterations of the loops around it."""
        return self.runs and not self.guards


@dataclass(frozen=True)
class _Cells:
    """Cells of an activation: equal objects are equal sets of cells while the lists of `over` do not change.

    `domain`: the loops around, as the node of a list or an extent. `indices`: those of the cells as functions of these loops, in
    the iterations in which all `guards` hold.
    """

    tree: str
    node: int
    domain: tuple[Node | int, ...]
    indices: tuple[kernel.Expr, ...]
    guards: tuple[kernel.Expr, ...] = ()

    @property
    def over(self) -> set[Node]:
        return {x for x in self.domain if not isinstance(x, int)}

    @property
    def trees(self) -> set[str]:
        return {self.tree, *(tree for tree, _ in self.over)}


@dataclass
class Facts:
    """Data-flow facts between two kernels: nodes whose lists are up to date, and surely active cells.

    `left_out`: names of derived rewrites (kernels/ir/rewrites.py) that are not made: nothing is known that only they use.
    """

    trees: Mapping[str, StructureTree]
    lists: frozenset[Node] = frozenset()
    active: frozenset[_Cells] = frozenset()
    left_out: frozenset[str] = frozenset()

    def copy(self) -> Facts:
        return replace(self)

    def take(self, other: Facts) -> None:
        """Replaces the facts by the facts of `other`."""
        self.lists, self.active = other.lists, other.active

    def both(self, other: Facts) -> Facts:
        """Returns the facts that hold both here and in `other`."""
        return replace(self, lists=self.lists & other.lists, active=self.active & other.active)

    def noticed(self) -> Facts:
        """Returns the facts whose end is recorded, also if it happens outside of kernels.

        It is recorded by flags of lists, which only pointer and hash nodes have.
        """

        def is_noticed(node: Node) -> bool:
            t = self.trees[node[0]]
            kinds = (t.nodes[n].has for n in t.path(node[1]))
            return all(has.is_listed for has in kinds if has.is_sparse)

        active = (x for x in self.active if all(map(is_noticed, {(x.tree, x.node), *x.over})))
        return replace(
            self, lists=frozenset(filter(is_noticed, self.lists)), active=frozenset(active)
        )

    def without(self, trees: Container[str]) -> Facts:
        """Returns the facts that concern none of these trees."""
        lists = (x for x in self.lists if x[0] not in trees)
        active = (x for x in self.active if not any(t in trees for t in x.trees))
        return replace(self, lists=frozenset(lists), active=frozenset(active))

    @property
    def on(self) -> frozenset[str]:
        """The trees that the facts concern."""
        of_cells = {tree for x in self.active for tree in x.trees}
        return frozenset(of_cells.union(tree for tree, _ in self.lists))

    def after(self, ir: kernel.KernelIR) -> Derived:
        """Returns the redundant operations of a kernel, and updates the facts to those after the kernel."""
        demoted: set[int] = set()
        kept: list[frozenset[Node]] = []
        changed: list[frozenset[str]] = []
        left: list[int] = []
        for s, sites in zip(ir.body, _sites_of(ir), strict=True):
            kept.append(self._lists(s))
            needless, trees = self._statement(s, sites)
            demoted |= needless
            changed.append(trees)
            left.append(n_activations(s, sites, self.trees) - len(needless))
        return Derived(frozenset(demoted), tuple(kept), tuple(changed), tuple(left))

    def _lists(self, s: kernel.Stmt) -> frozenset[Node]:
        """Returns the lists that a loop reuses, and records all lists of the loop as up to date."""
        if not isinstance(s, kernel.ForActive):
            return frozenset()
        t = self.trees[s.tree]
        nodes = {(s.tree, k) for k in lists_made(s, t) if t.nodes[k].has.is_listed}
        kept = self.lists & nodes
        if LISTS not in self.left_out:
            self.lists |= nodes
        return kept

    def _statement(
        self, s: kernel.Stmt, sites: Sequence[ActivationSite]
    ) -> tuple[set[int], frozenset[str]]:
        """Returns the redundant activations of a top-level statement, and the trees that it may change.

        A tree changes if cells become active or inactive.
        """
        inside = list(nested_statements((s,)))
        shrunk = {x.tree for x in inside if isinstance(x, kernel.Deactivate)}
        known: dict[int, tuple[_Cells, ...]] = {
            x.number: () if x.statement.tree in shrunk else _cells_of(x) for x in sites
        }
        nested = {x.number for x in sites if x.around}  # others happen once
        own = _own_sites(s, sites, self.trees)
        demoted = {n for n in nested - own if not self.active.isdisjoint(known[n])}
        left = [x for x in sites if x.number not in demoted | own]
        grown = [(x, self._grown(x.statement)) for x in left]
        others: set[Node] = set()  # changed by other than activations
        for y in inside:
            if isinstance(y, kernel.Append):
                others |= self._grown(y)
            elif isinstance(y, kernel.Deactivate):
                others |= self._changed(y.tree, self.trees[y.tree].below(y.node))
        changed = others.union(*(nodes for _, nodes in grown))
        made = {c for x in sites if x.runs for c in known[x.number] if c.guards or x.is_sure}
        active = {x for x in self.active if x.tree not in shrunk} | made

        def holds(x: _Cells) -> bool:
            growing = (site for site, nodes in grown if not nodes.isdisjoint(x.over))
            return others.isdisjoint(x.over) and all(self._leads_back(x, g) for g in growing)

        self.active = frozenset(() if ACTIVATIONS in self.left_out else filter(holds, active))
        self.lists -= changed
        return demoted, frozenset(tree for tree, _ in changed)

    def _leads_back(self, x: _Cells, growing: ActivationSite) -> bool:
        """True if `x` holds for all cells that an activation adds to its domain, if nothing of `x.tree` is deactivated.

        `x` says that cell f(s) of tree T is active for each active cell s of tree S. Let the activation be that of g(t) in S, in
        a loop over active cells t of T, and f(g(t)) = t. That alone is not enough: with g(t) its whole part of S becomes active,
        which is all cells in the same cell of the lowest sparse node above. A part is an aligned box of the same extents
        everywhere.

        Let f pick axes, so that f(s)[e] = s[d(e)], and let the extent of S's parts along d(e) divide that of T's along e. A new
        s lies in the part of g(t), so s[d(e)] and g(t)[d(e)] = t[e] lie in one interval of S's parts, and in one of T's. For all e
        this says that f(s) lies in the part of t, which is active as a whole: no new s lacks its f(s).

        Guards of `x`, and what decides whether the activation is made, only leave cells out.
        """
        if len(x.domain) != 1 or isinstance(x.domain[0], int):
            return False
        (name, node), at = x.domain[0], growing.statement
        t, s = self.trees[x.tree], self.trees[name]
        if at.tree != name or not _share_parts(s, at.node, node):
            return False
        if s.nodes[s.last(node, "is_sparse")].has.length:  # the cells before become active, too
            return False
        axes = {f"#1.{d}": d for d in range(len(s.axes(node)))}
        picked = [axes.get(i.loop) if isinstance(i, kernel.LoopIndex) else None for i in x.indices]
        extents, wholes = _part(s, node), _part(t, x.node)
        back: list[kernel.Expr] = []
        for d, whole in zip(picked, wholes, strict=True):
            if d is None or whole % extents[d]:
                return False
            back.append(_plain(growing.indices[d]))
        loops = (a for a in growing.around if isinstance(a, kernel.ForActive) and a.tree == t.name)
        return any(_share_parts(t, a.node, x.node) and _are_indices(back, a.loops) for a in loops)

    def _grown(self, s: kernel.Activate | kernel.Append) -> set[Node]:
        """Returns the nodes whose active cells may change by an activation."""
        return self._changed(s.tree, self.trees[s.tree].path(s.node))

    def _changed(self, tree: str, nodes: Iterable[int]) -> set[Node]:
        """Returns the nodes whose active cells may change if those of `nodes` do: these nodes and all below."""
        t = self.trees[tree]
        return {(tree, b) for n in nodes if t.nodes[n].has.is_sparse for b in t.below(n)}


@per_object
def _sites_of(ir: kernel.KernelIR) -> tuple[tuple[ActivationSite, ...], ...]:
    """Returns the activations of each top-level statement, numbered in the order of the text."""
    found: list[tuple[ActivationSite, ...]] = []
    first = 0
    for s in ir.body:
        found.append(tuple(activation_sites(s, first)))
        first += len(found[-1])
    return tuple(found)


def n_activations(
    s: kernel.Stmt, sites: Sequence[ActivationSite], trees: Mapping[str, StructureTree]
) -> int:
    """Returns the number of activations and appends in a top-level statement.

    Activations of the current cell of a loop do not count.
    """
    n_appends = sum(isinstance(x, kernel.Append) for x in nested_statements((s,)))
    return n_appends + len(sites) - len(_own_sites(s, sites, trees))


def work_on_trees(ir: kernel.KernelIR) -> tuple[int, int]:
    """Returns the number of lists that a kernel makes or tests, and the number of its activations.

    Both are without facts from kernels before.
    """
    trees = {t.name: t for t in ir.trees}
    n_lists = n_made = 0
    for s, sites in zip(ir.body, _sites_of(ir), strict=True):
        n_made += n_activations(s, sites, trees)
        if isinstance(s, kernel.ForActive):
            t = trees[s.tree]
            n_lists += sum(1 for _ in lists_made(s, t))
    return n_lists, n_made


def _cells_of(x: ActivationSite) -> tuple[_Cells, ...]:
    """Returns the cells of an activation, once without guards and once with them.

    A set that depends on data is left out.
    """
    found = [_cells(x, guards) for guards in dict.fromkeys(((), x.guards))]
    return tuple(c for c in found if c is not None)


def _cells(x: ActivationSite, guards: tuple[kernel.Expr, ...]) -> _Cells | None:
    """Returns the cells of an activation in the iterations in which `guards` hold; None if they depend on data."""
    names: dict[str, kernel.Expr] = {}
    domain: list[Node | int] = []
    used = _loops_in((*x.indices, *guards))
    for loop in x.around:
        loops = loop.loops if isinstance(loop, kernel.ForActive) else (loop.loop,)
        if not used.intersection(loops):
            continue
        if isinstance(loop, kernel.ForActive):
            node = loop.tree, loop.node
            domain.append(node)
        elif isinstance(loop.extent, kernel.Const):
            domain.append(int(loop.extent.value))
        else:
            return None
        names.update((n, kernel.LoopIndex(f"#{len(domain)}.{k}")) for k, n in enumerate(loops))
    parts = [e for i in x.indices for e in walk(i)]
    if any(type(e).__name__ not in PURE for e in parts):
        return None
    conditions = [e for g in guards for e in walk(g)]
    # Compiled code may round floats differently.
    if any(type(e).__name__ not in (*PURE, "Compare") or e.dtype.is_float for e in conditions):
        return None
    if not used <= set(names):
        return None
    renaming = Renaming(loops=names)
    indices = tuple(_plain(renaming.apply(i)) for i in x.indices)
    held = tuple(map(renaming.apply, guards))
    return _Cells(x.statement.tree, x.statement.node, tuple(domain), indices, held)


def tops_of(ir: kernel.KernelIR, activations: frozenset[int]) -> frozenset[int]:
    """Returns the numbers of the top-level statements that contain at least one of these activations."""
    found, first = set(), 0
    for top, s in enumerate(ir.body):
        n = sum(isinstance(x, kernel.Activate) for x in nested_statements((s,)))
        if activations.intersection(range(first, first + n)):
            found.add(top)
        first += n
    return frozenset(found)


def _plain(e: kernel.Expr) -> kernel.Expr:
    while isinstance(e, kernel.Cast) and e.x.dtype.is_index:
        e = e.x
    return e


def _share_parts(t: StructureTree, a: int, b: int) -> bool:
    """True if cells of nodes `a` and `b` have the same indices, and one sparse node decides whether those of `b` are active.

    A cell of `b` then is active wherever the cell of `a` with its indices is.
    """
    lowest = t.last(b, "is_sparse")
    return lowest in t.path(a) and (t.axes(a), t.shape(a)) == (t.axes(b), t.shape(b))


def _part(t: StructureTree, node: int) -> tuple[int, ...]:
    """Returns the extents of the parts of a node: its cells in one cell of the lowest sparse node of its path."""
    lowest = t.last(node, "is_sparse")
    cells = dict(zip(t.axes(lowest), t.shape(lowest), strict=True))
    return tuple(n // cells.get(a, 1) for a, n in zip(t.axes(node), t.shape(node), strict=True))


def _are_indices(indices: Sequence[kernel.Expr], loops: Sequence[str]) -> bool:
    """True if `indices` are those of a loop, in order."""
    names = [i.loop if isinstance(i, kernel.LoopIndex) else None for i in indices]
    return names == list(loops)


def _loops_in(indices: Iterable[kernel.Expr]) -> set[str]:
    return {e.loop for i in indices for e in walk(i) if isinstance(e, kernel.LoopIndex)}


def _own_sites(
    s: kernel.Stmt, sites: Sequence[ActivationSite], trees: Mapping[str, StructureTree]
) -> frozenset[int]:
    """Returns the sites that only activate the current cell of the loop around, which is active already."""
    if not isinstance(s, kernel.ForActive) or shrinks(s):
        return frozenset()
    own = own_of(s, trees[s.tree])
    found = (x for x in sites if own.item(x.statement.tree, x.statement.node, x.statement.indices))
    return frozenset(x.number for x in found)


def activation_sites(s: kernel.Stmt, first: int) -> Iterator[ActivationSite]:
    """Yields the activations of a statement in the order of the text, numbered from `first` on."""
    counted = iter(range(first, 1 << 30))
    changed = [local_changed(x) for x in nested_statements((s,))]
    once = {n for n in changed if n and changed.count(n) == 1}

    def block(
        body: Sequence[kernel.Stmt],
        around: tuple[kernel.For | kernel.ForActive, ...],
        guards: tuple[kernel.Expr, ...] | None,
        known: dict[str, kernel.Expr],
    ) -> Iterator[ActivationSite]:
        """Yields the activations of a block.

        `guards`: the conditions under which the block runs; None if it also depends on others. `known`: values of locals.
        """
        known = dict(known)
        for x in body:
            match x:
                case kernel.Activate():
                    indices = tuple(Renaming(locals=known).apply(i) for i in x.indices)
                    used = _loops_in(indices)
                    active = (a for a in around if isinstance(a, kernel.ForActive))
                    runs = guards is not None and all(used.intersection(a.loops) for a in active)
                    yield ActivationSite(next(counted), x, around, indices, guards or (), runs)
                case kernel.For():
                    runs = isinstance(x.extent, kernel.Const) and x.extent.value > 0
                    yield from block(x.body, (*around, x), guards if runs else None, known)
                case kernel.ForActive():
                    yield from block(x.body, (*around, x), guards, known)
                case kernel.If():
                    holds = Renaming(locals=known).apply(x.condition)
                    for inner, condition in ((x.then, holds), (x.orelse, unary("not", holds))):
                        further = None if guards is None else (*guards, condition)
                        yield from block(inner, around, further, known)
                case kernel.While():
                    yield from block(x.body, around, None, known)
                case kernel.SetLocal() if x.name in once and not any(loads(x.value)):
                    known[x.name] = Renaming(locals=known).apply(x.value)

    yield from block((s,), (), (), {})
