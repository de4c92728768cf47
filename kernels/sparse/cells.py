"""Index expressions of cells: from indices of a cell in a node to its position in plain arrays.

The arrays are the sections of a tree's memory layout.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ..ir import kernel as ir
from ..ir.affine import limits
from ..ir.simplify import binary, cast, compare, const, select
from ..ir.structure import StructureTree
from .layout import BUSY, CLAIMED, MIX, WINDOW, WORD, TreeLayout, n_places, nowhere, words

I64, U32, U64 = ir.DType.i64, ir.DType.u32, ir.DType.u64


def number(value: int) -> ir.Expr:
    """A constant index (i64)."""
    return const(value, I64)


def plus(*parts: ir.Expr) -> ir.Expr:
    """The sum of index expressions."""
    total = parts[0]
    for x in parts[1:]:
        total = binary("add", total, x)
    return total


def times(x: ir.Expr, n: int) -> ir.Expr:
    return binary("mul", x, number(n))


def quotient(x: ir.Expr, n: int) -> ir.Expr:
    """The expression x // n, for an index that is not negative."""
    if n & (n - 1) == 0:
        return binary("shr", x, number(n.bit_length() - 1))
    return binary("raw_div", x, number(n))


def remainder(x: ir.Expr, n: int) -> ir.Expr:
    """The expression x % n, for an index that is not negative."""
    if n == 1:
        return number(0)
    if n & (n - 1) == 0:
        return binary("bit_and", x, number(n - 1))
    return binary("raw_mod", x, number(n))


def starts_of(key: ir.Expr, n: int) -> tuple[ir.Expr, ...]:
    """The first positions of the windows in which a hash directory of `n` positions may have a key.

    `n` is a power of two.
    """
    shift = const(64 - (n.bit_length() - 1), U64)
    return tuple(cast(binary("shr", binary("mul", key, const(m, U64)), shift), I64) for m in MIX)


def place_of(
    seen: Callable[[ir.Expr], ir.Expr],
    starts: Sequence[ir.Expr],
    key: ir.Expr,
    nobody: ir.Expr,
    width: int = WINDOW,
) -> ir.Expr:
    """The position of a key in the windows of a hash directory that begin at `starts`, or `nobody`.

    `seen`: the key at a position. `width`: the number of positions of a window.
    """
    found = nobody
    for start in reversed(starts):
        for w in reversed(range(width)):
            place = plus(start, number(w))
            found = select(compare("eq", seen(place), key), place, found)
    return found


def looked_for(e: ir.Expr) -> tuple[str, ir.Expr] | None:
    """The array of keys and the key, if an expression is a search in a hash directory (`place_of`); else None."""
    first: tuple[str, ir.Expr] | None = None
    while isinstance(e, ir.Select):
        match e.condition:
            case ir.Compare(
                "eq", ir.Load(array) | ir.Binary("bit_and", ir.Load(array), ir.Const()), key
            ):
                here = array, key
            case _:
                return None
        if first not in (None, here):
            return None
        first, e = here, e.b
    return first if isinstance(e, ir.Const) else None


@dataclass(frozen=True)
class Found:
    """A cell that may not exist: its item (index in the arrays of its node), and the condition that it exists.

    If it does not exist, the item is any item. `reads_zero`: then it is an item of zeros.
    """

    item: ir.Expr
    is_there: ir.Expr
    reads_zero: bool


@dataclass
class CellNames:
    """Names of one kernel: fresh names, and the arrays that stand for sections of the trees it uses."""

    taken: set[str]
    arrays: dict[str, tuple[str, str]] = field(default_factory=dict)  # name -> (tree, key)
    by_key: dict[tuple[str, str], str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)  # last number behind each stem

    def fresh(self, stem: str) -> str:
        name, k = stem, self._numbers.get(stem, 0)
        while name in self.taken:
            k += 1
            name = f"{stem}_{k}"
        self.taken.add(name)
        self._numbers[stem] = k
        return name

    def section(self, tree: str, key: str) -> str:
        """The name of the kernel's array for a section (array of a tree's memory layout), made at the first use."""
        found = self.by_key.get((tree, key))
        if found is None:
            found = self.by_key[tree, key] = self.fresh(f"{tree}_{key}")
            self.arrays[found] = tree, key
        return found


class StatementBuilder:
    """Builder of statements: a list of statements, and methods that append to it."""

    def __init__(self, names: CellNames, where: ir.Location = ir.NOWHERE) -> None:
        self.names, self.where = names, where
        self.statements: list[ir.Stmt] = []

    def put(self, s: ir.Stmt) -> None:
        self.statements.append(s)

    def inner(self) -> StatementBuilder:
        """An empty builder for a block within this one."""
        return StatementBuilder(self.names, self.where)

    def hold(self, stem: str, value: ir.Expr) -> ir.Expr:
        """Appends the assignment of a value to a new local, and returns the local.

        Constants and locals are returned unchanged. `stem`: the begin of the local's name.
        """
        if (
            not isinstance(value, ir.Load | ir.Cast)
            and not hasattr(value, "op")
            and not hasattr(value, "condition")
        ):
            return value
        name = self.names.fresh(stem)
        self.put(ir.SetLocal(name, value, self.where))
        return ir.Local(name, value.dtype)

    def set(self, name: str, value: ir.Expr) -> ir.Local:
        self.put(ir.SetLocal(name, value, self.where))
        return ir.Local(name, value.dtype)

    def store(self, array: str, indices: Sequence[ir.Expr], value: ir.Expr) -> None:
        self.put(ir.Store(array, tuple(indices), value, self.where))

    def fetch(
        self, array: str, indices: Sequence[ir.Expr], op: ir.ReduceOp, value: ir.Expr
    ) -> ir.Local:
        """Appends an atomic update of an array element; returns a local with the element's old value."""
        name = self.names.fresh("old")
        self.put(ir.Update(array, tuple(indices), op, value, self.where, name))
        return ir.Local(name, value.dtype)

    def update_local(self, name: str, op: ir.ReduceOp, value: ir.Expr) -> None:
        self.put(ir.UpdateLocal(name, op, value, self.where))

    def branch(
        self, condition: ir.Expr, then: StatementBuilder, orelse: StatementBuilder | None = None
    ) -> None:
        other = tuple(orelse.statements) if orelse is not None else ()
        self.put(ir.If(condition, tuple(then.statements), other, self.where))

    def repeat(self, extent: int, write: Callable[[StatementBuilder, ir.Expr], None]) -> None:
        """Appends the statements of `write` for each index below `extent`: in a loop, unless the extent is 1."""
        inner, name = self.inner(), self.names.fresh("c")
        write(inner, ir.LoopIndex(name, I64) if extent > 1 else number(0))
        if extent > 1 and inner.statements:
            self.loop(name, number(extent), inner)
        elif extent == 1:
            self.statements += inner.statements

    def loop(self, name: str, extent: ir.Expr, body: StatementBuilder) -> None:
        self.put(ir.For(name, extent, tuple(body.statements), self.where))


class Cells:
    """Writer of index expressions that give positions of cells, for the trees of one kernel."""

    def __init__(self, layouts: Mapping[str, TreeLayout], names: CellNames) -> None:
        self.layouts, self.names = layouts, names
        self.extents: dict[str, int | None] = {}  # of loops around
        self.values: dict[str, tuple[int, int]] = {}  # limits of locals that one statement sets
        self.busy: set[tuple[str, int]] = set()  # pools with concurrent changes of the table

    def array(self, tree: str, key: str) -> str:
        return self.names.section(tree, key)

    def dtype(self, tree: str, key: str) -> ir.DType:
        return self.layouts[tree].sections[key].dtype

    def load(self, tree: str, key: str, *indices: ir.Expr) -> ir.Load:
        return ir.Load(self.array(tree, key), indices, self.dtype(tree, key))

    def counter(self, tree: str, node: int, column: int) -> ir.Load:
        """A load of a node's counter, the element of the tree's `counters` in row `node` and this column."""
        return self.load(tree, "counters", number(node), number(column))

    # --- indices

    def note_limits(self, name: str, value: ir.Expr) -> None:
        """Records the limits of a local that only one statement sets, to `value`.

        Before it is set, a local is 0.
        """
        found = limits(value, self.extents, self.values)
        if found is not None:
            self.values[name] = min(0, found[0]), max(0, found[1])

    def inside(
        self,
        tree: str,
        node: int,
        indices: Sequence[ir.Expr],
        block: StatementBuilder | None = None,
        sure: Collection[int] = (),
    ) -> tuple[ir.Expr, list[ir.Expr]]:
        """The condition that a cell is within its node, and its indices, replaced by 0 if it is not.

        `sure`: numbers of the indices that are surely inside. `block`: builder that holds the condition in a local.
        """
        ok: ir.Expr = const(True, ir.DType.bool_)
        for k, (x, n) in enumerate(zip(indices, self.layouts[tree].tree.shape(node), strict=True)):
            known = (0, n - 1) if k in sure else limits(x, self.extents, self.values)
            if known is None or known[0] < 0:
                ok = binary("and", ok, compare("ge", x, const(0, x.dtype)))
            if known is None or known[1] >= n:
                ok = binary("and", ok, compare("lt", x, const(n, x.dtype)))
        if block is not None:
            ok = block.hold("ok", ok)
        found = [cast(x, I64) for x in indices]
        return ok, [x if k in sure else select(ok, x, number(0)) for k, x in enumerate(found)]

    def cell(self, t: StructureTree, node: int, target: int, indices: Sequence[ir.Expr]) -> ir.Expr:
        """The number of a cell in its container of `node`, by `indices` of a cell of `target` at or below it."""
        axes, path, total = t.axes(target), t.path(target), number(0)
        at = path.index(node)
        for axis, extent in zip(t.nodes[node].axes, t.nodes[node].extents, strict=True):
            parts = t.split(target, axis)
            x = indices[axes.index(axis)]
            x = quotient(x, prod(parts[at + 1 :]))
            if prod(parts[:at]) > 1:
                x = remainder(x, extent)
            total = plus(times(total, extent), x)
        return total

    # --- items

    def slot(self, tree: str, node: int, entry: ir.Expr) -> ir.Expr:
        """The slot at an entry of a node's table; 0 if the entry has none."""
        x: ir.Expr = self.load(tree, f"table{node}", entry)
        if (tree, node) in self.busy:
            x = binary("bit_and", x, const(BUSY - 1, U32))
        return cast(x, I64)

    def entry(
        self,
        t: StructureTree,
        node: int,
        container: ir.Expr,
        cell: ir.Expr,
        block: StatementBuilder | None = None,
    ) -> ir.Expr:
        """The entry of a cell in the table of a node, by its container and its number there.

        For a hash node it is the position of the cell in the directory, or the common position of all cells without one.
        """
        n = t.nodes[node]
        if not n.has.directory:
            return plus(times(container, n.entries), quotient(cell, n.chunk))
        key = self.key(t, node, container, cell)
        key = key if block is None else block.hold("key", key)

        def seen(place: ir.Expr) -> ir.Expr:
            x = self.load(t.name, f"keys{node}", place)
            is_busy = (t.name, node) in self.busy
            return binary("bit_and", x, const(CLAIMED - 1, U64)) if is_busy else x

        starts = self.starts(t, node, key, block)
        return place_of(seen, starts, key, number(nowhere(self.layouts[t.name].slots[node])))

    def key(self, t: StructureTree, node: int, container: ir.Expr, cell: ir.Expr) -> ir.Expr:
        """The key of a cell of a hash node, by its container and its number there. It is not 0."""
        n = t.nodes[node]
        return cast(plus(times(container, n.entries), cell, number(1)), U64)

    def starts(
        self, t: StructureTree, node: int, key: ir.Expr, block: StatementBuilder | None
    ) -> tuple[ir.Expr, ...]:
        """The first positions of the windows in which the directory of a hash node may have a key."""
        found = starts_of(key, n_places(self.layouts[t.name].slots[node]))
        return found if block is None else tuple(block.hold("start", x) for x in found)

    def item(
        self, t: StructureTree, node: int, container: ir.Expr, cell: ir.Expr, slot: ir.Expr | None
    ) -> ir.Expr:
        """The item of a cell: its position in the arrays of its node.

        `slot`: the cell's slot in a node with a pool, else None.
        """
        n = t.nodes[node]
        if slot is None:
            return plus(times(container, n.cells), cell)
        return plus(times(slot, n.chunk), remainder(cell, n.chunk))

    def find(
        self,
        tree: str,
        node: int,
        indices: Sequence[ir.Expr],
        begin: tuple[int, ir.Expr] | None = None,
        block: StatementBuilder | None = None,
        sure: Collection[int] = (),
    ) -> Found:
        """Returns the cell at these indices of a node, with the condition that it exists.

        `begin`: a node above and the item of the cell there, if that is known. `sure`: numbers of the indices that are surely
        inside. `block`: builder that holds intermediate values in locals.
        """
        layout = self.layouts[tree]
        t = layout.tree
        ok, inside = self.inside(tree, node, indices, block, sure)
        path = t.path(node)
        container: ir.Expr = number(0)
        if begin is not None:
            path = path[path.index(begin[0]) + 1 :]
            container, ok, inside = (
                begin[1],
                const(True, ir.DType.bool_),
                [cast(x, I64) for x in indices],
            )
        last = max((n for n in path if t.nodes[n].has.pool), default=-1)
        for n in path:
            cell = self.cell(t, n, node, inside)
            slot: ir.Expr | None = None
            if t.nodes[n].has.pool:
                if block is not None:
                    cell = block.hold("cell", cell)
                slot = self.slot(tree, n, self.entry(t, n, container, cell, block))
                if n == last:
                    slot = select(ok, slot, number(0))
                if block is not None:
                    slot = block.hold("slot", slot)
            container = self.item(t, n, container, cell, slot)
        if block is not None and path:
            container = block.hold("item", container)
        return Found(container, ok, last >= 0 or ok == const(True, ir.DType.bool_))

    def active(
        self, b: StatementBuilder, tree: str, node: int, indices: Sequence[ir.Expr]
    ) -> Found:
        """Returns the cell at these indices of a node, which exists if it is inside: it is surely active then."""
        found = self.find(tree, node, indices, block=b)
        if self.layouts[tree].tree.last(node, "pool") < 0:
            return found
        return replace(found, is_there=compare("ne", found.item, number(0)))

    def bit(
        self, t: StructureTree, node: int, container: ir.Expr, cell: ir.Expr
    ) -> tuple[ir.Expr, ir.Expr]:
        """The word of a node's mask that contains a cell's bit, and that bit."""
        w = plus(times(container, words(t.nodes[node].cells)), quotient(cell, WORD))
        shift = cast(remainder(cell, WORD) if t.nodes[node].cells > WORD else cell, U64)
        return w, binary("shl", const(1, U64), shift)

    def has_bit(self, tree: str, node: int, container: ir.Expr, cell: ir.Expr) -> ir.Expr:
        w, bit = self.bit(self.layouts[tree].tree, node, container, cell)
        met = binary("bit_and", self.load(tree, f"mask{node}", w), bit)
        return compare("ne", met, const(0, U64))

    def is_active(
        self,
        tree: str,
        node: int,
        indices: Sequence[ir.Expr],
        block: StatementBuilder | None = None,
    ) -> ir.Expr:
        """The condition that the cell of a node at these indices, and all cells that contain it, are active."""
        t = self.layouts[tree].tree
        masked = t.last(node, "is_sparse")
        block = block if self.has_directory(tree, node) else None  # else it is one expression
        ok, inside = self.inside(tree, node, indices, block)
        if masked < 0:
            return ok
        # The cell of the masked node that contains this one.
        index = self.above(t, node, masked, inside)
        parent = t.nodes[masked].parent
        container: ir.Expr = number(0)
        if parent >= 0:
            at = self.above(t, masked, parent, index)
            container = self.find(tree, parent, at, block=block).item
        cell = self.cell(t, masked, masked, index)
        has = t.nodes[masked].has
        if has.length:
            n = cast(self.load(tree, f"length{masked}", container), I64)
            found = compare("lt", cell, n)
        elif has.mask:
            found = self.has_bit(tree, masked, container, cell)
        else:
            slot = self.slot(tree, masked, self.entry(t, masked, container, cell, block))
            found = compare("ne", slot, number(0))
        return binary("and", ok, found)

    def has_directory(self, tree: str, node: int) -> bool:
        """True if the walk down the tree to a cell of `node` searches for keys of hash nodes.

        As one expression such a walk would be long.
        """
        return self.layouts[tree].tree.last(node, "directory") >= 0

    def above(
        self, t: StructureTree, node: int, upper: int, indices: Sequence[ir.Expr]
    ) -> list[ir.Expr]:
        """The indices of the cell of node `upper` that contains the cell of `node` at `indices`.

        For a dynamic node, whose axis is missing above, they are those of its container.
        """
        found = []
        n_upper = len(t.path(upper))
        for axis in t.axes(upper):
            parts = t.split(node, axis)
            x = indices[t.axes(node).index(axis)]
            found.append(quotient(x, prod(parts[n_upper:])))
        return found

    def container(
        self,
        tree: str,
        node: int,
        indices: Sequence[ir.Expr],
        block: StatementBuilder | None = None,
    ) -> Found:
        """Returns the container of a node at these indices of the node above, with the condition that it exists."""
        parent = self.layouts[tree].tree.nodes[node].parent
        if parent < 0:
            return Found(number(0), const(True, ir.DType.bool_), True)
        return self.find(tree, parent, indices, block=block)
