"""Sparse lowering: kernels on sparse fields become kernels on the arrays of their trees, in plain IR.

The result is the same for all targets and tools.
A loop over active cells becomes one over the list of the lowest pointer node on its path, and constant loops over the cells below
an element of the list. Accesses to the current cell use items known from there. All other accesses walk down the tree. Lists are
made again after changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..ir import kernel
from ..ir.simplify import binary, cast, const, select
from ..ir.structure import StructureTree
from ..ir.walk import (
    loads,
    local_changed,
    mapped,
    nested_statements,
    walk,
)
from .active_cells import still_active, without_activations
from .cells import I64, CellNames, Cells, Found, StatementBuilder, number
from .current_cell import Own, lists_made, shrinks, without_own_activations, written
from .halo import Staged, reads_around, updates_around, windows
from .hoisted_activation import Leaves, chosen, first_indices, hoistable, made_once
from .layout import TreeLayout, n_shared, pools_below
from .lowered import Lowered
from .neighbour_cells import Leaf, offsets
from .pools import Pools
from .reclaiming import settle, settle_between
from .redundancy import ActivationSite
from .struct_for import CellLoops


def lower_trees(
    ir: kernel.KernelIR,
    layouts: Mapping[str, TreeLayout],
    fields: Mapping[str, int],
    demoted: frozenset[int] = frozenset(),
    staged: Collection[tuple[int, str]] = (),
    once: frozenset[int] = frozenset(),
) -> Lowered:
    """Returns a kernel on sparse fields, lowered to plain arrays.

    `fields`: for each array of `ir.placed`, the number of its field in its layout.
    `demoted`: activations of surely active cells, by number in the order of the text. `staged`: pairs of a loop's number at top
    level and an array that it accesses in tiles. `once`: hoisted activations, made once per element (hoisted_activation.py).
    """
    lowering = _Lowering(ir, layouts, fields, demoted, staged)
    lowering.searched = demoted & hoistable(ir) if demoted else demoted
    lowering.once = {top: (s, sites) for top, s, sites in chosen(ir, once | lowering.searched)}
    return lowering.run()


class _Lowering:
    def __init__(
        self,
        ir: kernel.KernelIR,
        layouts: Mapping[str, TreeLayout],
        fields: Mapping[str, int],
        demoted: frozenset[int],
        staged: Collection[tuple[int, str]],
    ) -> None:
        self.wanted, self.staged = staged, Staged({}, {}, frozenset())
        self.made: list[tuple[int, Staged]] = []  # loops over lists, by number at top level
        self.ir, self.layouts, self.fields = ir, layouts, fields
        self.top = 0  # the number of the statement at top level
        body, self.sure = without_activations(ir.body, demoted)
        self.ir = replace(ir, body=body)
        self.placed = {p.array: p for p in ir.placed}
        taken = {p.name for p in ir.arrays} | {p.name for p in ir.scalars}
        for s in nested_statements(ir.body):
            taken |= {local_changed(s)} | set(s.loops if isinstance(s, kernel.ForActive) else ())
            if isinstance(s, kernel.For):
                taken.add(s.loop)
        self.names = CellNames(taken)
        self.cells = Cells(layouts, self.names)
        self.pools = Pools(self.cells)
        self.cell_loops = CellLoops(self.cells, self.pools)
        self.makers: list[tuple[int, int, str, int]] = []
        self.own: Own | None = None
        self.once: dict[int, tuple[kernel.ForActive, Sequence[ActivationSite]]] = {}
        self.searched = frozenset[int]()  # hoisted sites of certainly active cells
        self.leaves: Leaves = {}  # cells of hoisted activations for the element around
        self.loops: dict[str, kernel.Expr] = {}  # indices of loops over active cells
        self.active: dict[tuple[str, int, tuple[kernel.Expr, ...]], Found] = {}
        changed = Counter(map(local_changed, nested_statements(ir.body)))
        self.set_once = {name for name, n in changed.items() if n == 1}
        self.only_own: frozenset[str] = frozenset()  # fields updated only in the current cell
        self.elsewhere: frozenset[str] = frozenset()  # fields that the loop writes in other cells

    def run(self) -> Lowered:
        body = [
            without_own_activations(s, self.tree(s.tree)) if isinstance(s, kernel.ForActive) else s
            for s in self.ir.body
        ]
        self.ir = replace(self.ir, body=tuple(body))
        changed = [
            s
            for s in nested_statements(self.ir.body)
            if isinstance(s, kernel.Activate | kernel.Append | kernel.Deactivate)
        ]
        self.cells.busy = {(s.tree, n) for s in changed for n in self._touched(s)}
        first = StatementBuilder(self.names, self.ir.where)
        for tree in dict.fromkeys(s.tree for s in changed):
            t = self.layouts[tree].tree
            upper = {t.path(s.node)[0] for s in changed if s.tree == tree}
            for n in pools_below(t, upper):
                settle(first, self.pools, tree, n)
        made = self.block(self.ir.body, is_top=True)
        last = StatementBuilder(self.names, self.ir.where)
        self.pools.check(last, self.ir.name)
        added = tuple(
            kernel.ArrayParam(
                name, self.layouts[tree].sections[key].dtype, self.layouts[tree].sections[key].shape
            )
            for name, (tree, key) in self.names.arrays.items()
        )
        lowered = replace(
            self.ir,
            arrays=(*(p for p in self.ir.arrays if p.name not in self.placed), *added),
            body=(*first.statements, *made, *last.statements),
            trees=(),
            placed=(),
            independent=tuple(self.cell_loops.independent),
            trusted=tuple(p.name for p in added),
            shared=self._shared(),
        )
        sections = tuple((name, tree, key) for name, (tree, key) in self.names.arrays.items())
        n = len(first.statements)
        lists = tuple((n + k, top, tree, node) for k, top, tree, node in self.makers)
        ends = n, len(last.statements)
        return Lowered(lowered, sections, *ends, lists, windows(self.made))

    def _shared(self) -> tuple[tuple[str, int], ...]:
        """Pairs of an array and a number n: inactive cells share the first n elements of each row of the array."""
        every = self.names.arrays.items()
        counts = ((name, n_shared(self.layouts[tree], key)) for name, (tree, key) in every)
        return tuple((name, n) for name, n in counts if n)

    def _touched(self, s: kernel.Activate | kernel.Append | kernel.Deactivate) -> tuple[int, ...]:
        """Returns the nodes whose active cells a statement may change."""
        t = self.tree(s.tree)
        return t.below(s.node) if isinstance(s, kernel.Deactivate) else t.path(s.node)

    # --- statements

    def block(self, body: tuple[kernel.Stmt, ...], is_top: bool = False) -> list[kernel.Stmt]:
        kept = dict(self.active)
        b = StatementBuilder(self.names, self.ir.where)
        for k, s in enumerate(body):
            b.where = s.where
            self.top = k if is_top else self.top
            if is_top:
                settle_between(b, self.pools, s)
            self.statement(b, s, is_top)
            if is_top and isinstance(s, kernel.For | kernel.ForActive):
                b.statements[-1] = replace(b.statements[-1], uid=s.uid)
            self.active = still_active(self.active, s)
        self.active = kept
        return b.statements

    def statement(self, b: StatementBuilder, s: kernel.Stmt, is_top: bool) -> None:
        match s:
            case kernel.ForActive():
                assert is_top, "see check_loops"
                self.loop(b, s)
            case kernel.For():
                self.active = still_active(
                    self.active, s
                )  # changes of an iteration hold when the next one begins
                extent = self.expr(s.extent, b)
                self.cells.extents[s.loop] = (
                    int(extent.value) if isinstance(extent, kernel.Const) else None
                )
                outer, self.only_own = self.only_own, frozenset() if is_top else self.only_own
                b.put(kernel.For(s.loop, extent, tuple(self.block(s.body)), s.where))
                self.only_own = outer
            case kernel.While():
                self.active = still_active(self.active, s)
                self.repeat(b, s)
            case kernel.If():
                condition = self.expr(s.condition, b)
                b.put(
                    kernel.If(
                        condition, tuple(self.block(s.then)), tuple(self.block(s.orelse)), s.where
                    )
                )
            case kernel.Activate():
                self.activate(b, s)
            case kernel.Append():
                indices = [self.expr(i, b) for i in s.indices]
                found = self.pools.append(b, s.tree, s.node, indices, s.result)
                parent_axes = self.tree(s.tree).axes(self.tree(s.tree).nodes[s.node].parent)
                (own,) = self.tree(s.tree).nodes[s.node].axes
                at = dict(zip(parent_axes, s.indices, strict=True))
                if own not in at:
                    at[own] = cast(kernel.Local(s.result, kernel.DType.i32), I64)
                    key = tuple(at[a] for a in self.tree(s.tree).axes(s.node))
                    self.active[s.tree, s.node, key] = found
            case kernel.Deactivate():
                self.pools.deactivate(b, s.tree, s.node, [self.expr(i, b) for i in s.indices])
            case kernel.Store() | kernel.Update() if s.array in self.placed:
                self.write(b, s)
            case kernel.SetLocal(name, value):
                b.put(replace(s, value=self.expr(value, b)))
                if name in self.set_once:
                    self.cells.note_limits(name, value)
            case _:
                b.put(mapped(s, lambda e: self.expr(e, b), lambda x: x))

    def repeat(self, b: StatementBuilder, s: kernel.While) -> None:
        """Appends a lowered `while`.

        If its condition searches for keys of hash nodes, it is computed at the end of each iteration.
        """
        used = {
            x.tree
            for x in walk(s.condition)
            if isinstance(x, kernel.IsActive | kernel.Length | kernel.Item)
        }
        used |= {self.placed[x.array].tree for x in loads(s.condition) if x.array in self.placed}
        if not any(n.has.directory for tree in used for n in self.tree(tree).nodes):
            b.put(kernel.While(self.expr(s.condition, None), tuple(self.block(s.body)), s.where))
            return
        name = self.names.fresh("going")
        going = b.set(name, const(True, kernel.DType.bool_))
        round_, body = b.inner(), b.inner()
        round_.set(name, self.expr(s.condition, round_))
        body.statements += self.block(s.body)
        round_.branch(going, body)
        b.put(kernel.While(going, tuple(round_.statements), s.where))

    def tree(self, name: str) -> StructureTree:
        return self.layouts[name].tree

    def activate(self, b: StatementBuilder, s: kernel.Activate) -> None:
        key = s.tree, s.node, s.indices
        is_own = self._own_item(*key) is not None
        if key in self.active or key in self.leaves or is_own:
            return
        indices = self.held(s.indices, b)
        self.active[key] = self.pools.activate(b, s.tree, s.node, indices)

    def write(self, b: StatementBuilder, s: kernel.Store | kernel.Update) -> None:
        """Appends a lowered write to a field.

        It is a write to the current cell, to a just activated cell, or to one that must be active.
        """
        p = self.placed[s.array]
        n = len(s.indices) - len(self.tree(p.tree).axes(p.node))
        components = tuple(self.expr(i, b) for i in s.indices[:n])
        key = p.tree, p.node, s.indices[n:]
        value = self.expr(s.value, b)
        if isinstance(s, kernel.Update) and self._in_tile(b, replace(s, value=value), components):
            return
        own = self._own_item(*key)
        guard: kernel.Expr = const(True, kernel.DType.bool_)
        if own is not None:
            item = own
        elif key in self.active:
            item, guard = self.active[key].item, self.active[key].is_there
        elif key in self.leaves:
            node, found = self.leaves[key]
            indices = self.held(s.indices[n:], b)
            below = self.cells.find(p.tree, p.node, indices, begin=(node, found.item), block=b)
            item, guard = below.item, found.is_there
        elif (self.top, *key) in self.sure:
            active = self.cells.active(b, p.tree, p.node, self.held(s.indices[n:], b))
            item, guard = active.item, active.is_there
        else:
            indices = self.held(s.indices[n:], b)
            guard = self.cells.is_active(p.tree, p.node, indices, b)
            item = self.cells.find(p.tree, p.node, indices, block=b).item
        place = (*components, item)
        array = self.array_of(s.array)
        made: list[kernel.Stmt] = []
        if isinstance(s, kernel.Update) and own is not None and s.array in self.only_own:
            old: kernel.Expr = kernel.Load(array, place, s.value.dtype)
            if s.result:
                old = b.set(s.result, old)
            made = [kernel.Store(array, place, binary(s.op, old, value), s.where)]
        else:
            made = [replace(s, array=array, indices=place, value=value)]
        if guard != const(True, kernel.DType.bool_):
            if isinstance(s, kernel.Update) and s.result:
                b.set(s.result, const(0, s.value.dtype))
            made = [kernel.If(guard, tuple(made), (), s.where)]
        b.statements += made

    def _in_tile(
        self, b: StatementBuilder, s: kernel.Update, components: tuple[kernel.Expr, ...]
    ) -> bool:
        """Appends an update of a field to its tile. Returns False if the loop has none for the field."""
        p, leaf = self.placed[s.array], None if self.own is None else self.own.leaf
        if leaf is None or leaf.tree != p.tree or not leaf.is_like(self.cells, p.node):
            return False
        assert self.own is not None
        beside = offsets(s.indices[len(components) :], self.own.loops)
        plain = replace(s, array=self.array_of(s.array), indices=components)
        return beside is not None and self.staged.update(
            self.cells, leaf, b, s.array, plain, beside
        )

    def array_of(self, field: str) -> str:
        return self.cells.array(self.placed[field].tree, f"field{self.fields[field]}")

    # --- expressions

    def held(self, indices: Sequence[kernel.Expr], b: StatementBuilder) -> list[kernel.Expr]:
        """Returns the lowered indices as constants, or as locals with known limits that are set in block `b`."""
        found = []
        for i in indices:
            x = self.expr(i, b)
            found.append(x if isinstance(x, kernel.Const) else b.hold("i", x))
            if isinstance(found[-1], kernel.Local) and found[-1] is not x:
                self.cells.note_limits(found[-1].name, x)
        return found

    def expr(self, e: kernel.Expr, b: StatementBuilder | None) -> kernel.Expr:
        """Returns an expression lowered to plain arrays.

        Positions of cells are computed in block `b` before, or inline if `b` is None.
        """
        match e:
            case kernel.LoopIndex(loop) if loop in self.loops:
                return cast(self.loops[loop], e.dtype)
            case kernel.Load(array) if array in self.placed:
                return self.load(e, b)
            case kernel.IsActive():
                indices = [self.expr(i, b) for i in e.indices]
                return self.cells.is_active(e.tree, e.node, indices, b)
            case kernel.Item():
                own = self._own_item(e.tree, e.node, e.indices)
                if own is not None:
                    return own
                held = self.held(e.indices, b) if b else [self.expr(i, b) for i in e.indices]
                return self.cells.find(e.tree, e.node, held, block=b).item
            case kernel.Length():
                indices = [self.expr(i, b) for i in e.indices]
                is_long = self.cells.has_directory(e.tree, e.node)
                found = self.cells.container(e.tree, e.node, indices, b if is_long else None)
                n = self.cells.load(e.tree, f"length{e.node}", found.item)
                return (
                    n if found.reads_zero else select(found.is_there, n, const(0, kernel.DType.i32))
                )
        return mapped(e, lambda x: self.expr(x, b), lambda s: s)

    def load(self, e: kernel.Load, b: StatementBuilder | None) -> kernel.Expr:
        p = self.placed[e.array]
        n = len(e.indices) - len(self.tree(p.tree).axes(p.node))
        components = tuple(self.expr(i, b) for i in e.indices[:n])
        array = self.array_of(e.array)
        own = self._own_item(p.tree, p.node, e.indices[n:])
        if own is not None:
            return kernel.Load(array, (*components, own), e.dtype)
        leaf = None if self.own is None else self.own.leaf
        if (
            leaf is not None
            and b is not None
            and e.array not in self.elsewhere
            and all(
                isinstance(i, kernel.Const) for i in components
            )  # others are set further inside
            and leaf.tree == p.tree
            and leaf.is_like(self.cells, p.node)
        ):
            assert self.own is not None
            beside = offsets(e.indices[n:], self.own.loops)
            plain = kernel.Load(array, components, e.dtype)
            found_near = None
            if beside is not None:
                found_near = self.staged.read(self.cells, leaf, b, e.array, plain, beside)
            if found_near is not None:
                return found_near
        at = e.indices[n:]
        indices = self.held(at, b) if b else [self.expr(i, b) for i in at]
        found = self.cells.find(p.tree, p.node, indices, block=b)
        value = kernel.Load(array, (*components, found.item), e.dtype)
        return value if found.reads_zero else select(found.is_there, value, const(0, e.dtype))

    def _own_item(
        self, tree: str, node: int, indices: tuple[kernel.Expr, ...]
    ) -> kernel.Expr | None:
        return None if self.own is None else self.own.item(tree, node, indices)

    # --- loops over active cells

    def activated_once(self, b: StatementBuilder, at: Mapping[int, kernel.Expr]) -> Leaves:
        """Appends the hoisted activations of an element; returns the activated cells.

        `at`: the coordinates of the element, by axis.
        """
        if self.top not in self.once:
            return {}
        s, sites = self.once[self.top]
        before, self.loops = self.loops, first_indices(s, self.tree(s.tree), at)
        made = made_once(b, sites, self.pools, lambda e: self.expr(e, b), self.searched)
        self.loops = before
        return made

    def loop(self, b: StatementBuilder, s: kernel.ForActive) -> None:
        t = self.tree(s.tree)
        path = t.path(s.node)
        listed = next(lists_made(s, t), -1)
        if listed >= 0:
            n_made = len(self.cell_loops.made)
            self.cell_loops.make_list(b, s.tree, listed)
            made = self.cell_loops.made[n_made:]
            self.makers += [(k, self.top, tree, node) for k, tree, node in made]
        by_field = written(s, t, self.placed)
        self.only_own = frozenset(name for name, is_own in by_field.items() if is_own)
        self.elsewhere = frozenset(by_field) - self.only_own
        wanted = frozenset(f for top, f in self.wanted if top == self.top)
        reads = reads_around(s, t, self.placed, by_field)
        dtypes = {p.name: p.dtype for p in self.ir.arrays}
        updates = updates_around(s, t, self.placed, dtypes, may_reorder=self.ir.fast_math)
        self.staged, loses_cells = Staged(reads, updates, wanted), shrinks(s)
        coordinates: dict[int, kernel.Expr] = {a: number(0) for a in t.axes(s.node)}

        def inside(
            inner: StatementBuilder, items: dict[int, kernel.Expr], found: dict[int, kernel.Expr]
        ) -> None:
            before = self.own, dict(self.loops), dict(self.cells.extents)
            own = {} if loses_cells else items
            self.own = Own(t, s.node, s.loops, own, leaf_at(found) if own else None)
            for loop, axis, n in zip(s.loops, t.axes(s.node), t.shape(s.node), strict=True):
                self.loops[loop] = found[axis]
                self.cells.extents[loop] = n
            inner.statements += self.block(s.body)
            self.own, self.loops, self.cells.extents = before

        elements: list[tuple[StatementBuilder, kernel.Expr, dict[int, kernel.Expr]]] = []

        def leaf_at(found: dict[int, kernel.Expr]) -> Leaf | None:
            """The leaf around the current cell, if it is the one dense node below a list of fixed slots.

            Else None.
            """
            parent, node = t.nodes[s.node].parent, t.nodes[s.node]
            is_fixed = (s.tree, listed) not in self.cells.busy
            if not elements or node.has.is_sparse or parent != listed or not is_fixed:
                return None
            if t.axes(listed) != t.axes(s.node):
                return None
            block, slot, at = elements[-1]
            extents = dict(zip(node.axes, node.extents, strict=True))
            local = {
                a: self.cell_loops.inner[a] if a in extents else number(0) for a in t.axes(s.node)
            }
            near = {(0,) * len(local): slot}
            return Leaf(s.tree, listed, s.node, block, self.cell_loops.row, at, local, near)

        def over_element(
            inner: StatementBuilder, item: kernel.Expr, found: dict[int, kernel.Expr]
        ) -> None:
            elements.append((inner, item, found))
            rest = path[path.index(listed) + 1 :]
            at = {**coordinates, **found}
            self.leaves = self.activated_once(inner, at)
            self.cell_loops.nest(
                inner, s.tree, rest, item, {listed: item}, at, inside, is_leaf=True
            )
            self.staged.add_up(self.cells)
            self.leaves = {}

        if listed < 0:
            self.cell_loops.nest(b, s.tree, path, number(0), {}, coordinates, inside)
        else:
            self.cell_loops.over_list(b, s.tree, listed, over_element)
            self.made.append((self.top, self.staged))
        self.only_own = self.elsewhere = frozenset()
