"""Directories of hash nodes as plain IR: hash tables by open addressing in two windows of positions.

A cell that becomes active claims a position for its key, until its slot is reclaimed. So a node of 2^40 cells takes memory for its
active cells only, and a lookup reads at most two lines of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.kernel import DType, Expr, LoopIndex, While
from ..ir.simplify import binary, cast, compare, const, select
from .cells import I64, U32, U64, Cells, StatementBuilder, number, plus, quotient
from .layout import CLAIMED, FREE, FRESH, TAKEN, WINDOW


def claim(
    b: StatementBuilder,
    keys: str,
    starts: Sequence[Expr],
    key: Expr,
    place: str,
    width: int = WINDOW,
) -> None:
    """Appends statements that put a key at the first free position of its windows, and set local `place` to it.

    The local stays unchanged if no position is free. `keys`: the array of keys. `starts`: the first positions of the windows, each
    of `width` positions.
    All threads test the positions in one order, and none becomes free while kernels run: so no key has two positions.
    """
    names = b.names
    zero, claimed = const(0, U64), const(CLAIMED, U64)
    w, going = names.fresh("w"), names.fresh("going")
    at = b.set(w, number(0))
    is_going = b.set(going, const(True, DType.bool_))
    round_ = b.inner()
    near = plus(starts[0], at)
    for k, start in enumerate(starts[1:], 1):
        far = plus(start, binary("sub", at, number(k * width)))
        near = select(compare("lt", at, number(k * width)), near, far)
    p = round_.hold("p", near)
    seen = round_.fetch(keys, (p,), "bit_or", zero)
    has = round_.hold("has", binary("bit_and", seen, const(CLAIMED - 1, U64)))

    def stop(block: StatementBuilder) -> None:
        block.set(going, const(False, DType.bool_))

    free, mine, undo = round_.inner(), round_.inner(), round_.inner()
    old = free.fetch(keys, (p,), "bit_or", claimed)
    mine.store(keys, (p,), key)
    mine.set(place, p)
    stop(mine)
    undo.store(keys, (p,), old)  # another thread put a key there meanwhile
    other = free.inner()
    other.branch(compare("lt", old, claimed), undo)
    free.branch(compare("eq", old, zero), mine, other)
    own, next_, last = round_.inner(), round_.inner(), round_.inner()
    own.set(place, p)
    stop(own)
    next_.update_local(w, "add", number(1))
    stop(last)
    next_.branch(compare("ge", at, number(len(starts) * width)), last)
    behind, taken = round_.inner(), round_.inner()
    behind.branch(compare("ne", has, zero), next_)  # else spin until its claimer is done
    taken.branch(compare("eq", has, key), own, behind)
    round_.branch(compare("eq", seen, zero), free, taken)
    b.put(While(is_going, tuple(round_.statements), b.where))


def leave(b: StatementBuilder, cells: Cells, tree: str, n: int, slot: Expr) -> None:
    """Appends statements that free the directory position of a returned slot of node `n`.

    It is kept if the slot's cell has a new slot.
    """
    place = b.hold("place", cells.load(tree, f"at{n}", number(0), slot))
    leaving = b.inner()
    leaving.store(cells.array(tree, f"keys{n}"), (place,), const(0, U64))
    b.branch(compare("eq", cells.load(tree, f"table{n}", place), const(0, U32)), leaving)


def over_slots(
    b: StatementBuilder,
    cells: Cells,
    tree: str,
    n: int,
    write: Callable[[StatementBuilder, Expr], None],
) -> None:
    """Appends a loop over all slots of the pool of node `n` that were ever taken; `write` appends its body."""
    fresh, free, taken = (cells.counter(tree, n, c) for c in (FRESH, FREE, TAKEN))
    more = binary("max", binary("sub", taken, free), number(0))
    most = number(cells.layouts[tree].slots[n])
    count = binary("sub", binary("min", plus(fresh, more), most), number(1))
    name, inner = cells.names.fresh("s"), b.inner()
    write(inner, inner.hold("slot", plus(LoopIndex(name, I64), number(1))))
    b.loop(name, b.hold("n_slots", count), inner)


def clear(
    b: StatementBuilder,
    cells: Cells,
    tree: str,
    n: int,
    container: Expr,
    give_back: Callable[[StatementBuilder, str, int, Expr], None],
) -> None:
    """Appends statements that give back all slots of hash node `n` whose cells are in one container.

    They search all slots of the node, and call `give_back` for an entry.
    """
    entries = cells.layouts[tree].tree.nodes[n].entries

    def look(inner: StatementBuilder, slot: Expr) -> None:
        place = inner.hold("place", cells.load(tree, f"at{n}", number(0), slot))
        key = binary("bit_and", cells.load(tree, f"keys{n}", place), const(CLAIMED - 1, U64))
        own = quotient(binary("sub", cast(key, I64), number(1)), entries)
        mine = inner.inner()
        give_back(mine, tree, n, place)
        is_used = compare("eq", cells.slot(tree, n, place), slot)
        inner.branch(binary("and", is_used, compare("eq", own, container)), mine)

    over_slots(b, cells, tree, n, look)
