"""Facts about the top-level loops of a standalone kernel: independent iterations, and elements updated by several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ...kernels.analysis import wavefronts
from ...kernels.analysis.accesses import analyse
from ...kernels.analysis.conflicts import conflicting
from ...kernels.ir import kernel as ir
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.body import Closure, Reason, Site
from ...kernels.ir.domain import UNBOUNDED, Loop
from ...kernels.ir.task import Problem
from ...kernels.ir.walk import children, local_changed, nested_statements, walk
from ...kernels.tasks import lane_parts
from ...kernels.transforms.lane_fronts import Front
from .nest_plan import Sum


def constant(extent: ir.Expr) -> int | None:
    """Returns the value of a constant extent; None for an extent known only at run time."""
    return max(0, int(extent.value)) if isinstance(extent, ir.Const) else None


def shared_locals(body: Sequence[ir.Stmt]) -> dict[str, ir.DType]:
    """Returns the locals that are set outside of the top-level loops, with their types."""
    return {
        x.name: x.value.dtype
        for s in body
        if not isinstance(s, ir.For)
        for x in nested_statements((s,))
        if isinstance(x, ir.SetLocal)
    }


def sweep_at(body: tuple[ir.Stmt, ...], k: int) -> tuple[wavefronts.Sweep, int] | None:
    """Returns the wavefront sweep that begins at statement `k`, and its number of statements.

    It returns None if there is none.
    See kernels/analysis/wavefronts.py. The second statement of a sweep is a while loop.
    """
    may_be_sweep = k + 1 < len(body) and isinstance(body[k + 1], ir.While)
    return _sweep_at(body, k) if may_be_sweep else None


@lru_cache(maxsize=16)  # by the rules, and when their decisions are read
def _sweep_at(body: tuple[ir.Stmt, ...], k: int) -> tuple[wavefronts.Sweep, int] | None:
    return wavefronts.sweep_at(body, k)


# --- independent iterations


def perfect_nest(loop: ir.For) -> tuple[ir.For, ...]:
    """Returns `loop` and all loops of constant extent that are perfectly nested in it, outermost first."""
    loops = [loop]
    while len(loops[-1].body) == 1:
        (inner,) = loops[-1].body
        if not isinstance(inner, ir.For) or not isinstance(inner.extent, ir.Const):
            break
        loops.append(inner)
    return tuple(loops)


def nest_down_to(body: Sequence[ir.Stmt], loop: str) -> tuple[ir.For, ...]:
    """Returns the perfect nest that begins at a top-level loop of a body and ends with loop `loop`, outermost first."""
    for s in body:
        nest = perfect_nest(s) if isinstance(s, ir.For) else ()
        names = [x.loop for x in nest]
        if loop in names:
            return nest[: names.index(loop) + 1]
    raise ValueError(f"no nest of the body has a loop {loop}")


def independent_levels(nest: Sequence[ir.For]) -> tuple[int, frozenset[str]]:
    """Returns the number of outer loops to distribute as one, and the loops that a compiler may assume independent.

    The outermost loop is parallel by definition; an inner one is if no iteration accesses an
    element that another iteration stores. Only then is the outermost loop reported to the compiler
    too: in one thread an order that a program leaves open is preserved.
    """
    for levels in range(len(nest), 0, -1):
        if not all(isinstance(x.extent, ir.Const) for x in nest[:levels]):
            continue
        if _are_apart(nest[:levels], nest[levels - 1].body):
            return levels, frozenset(x.loop for x in nest[:levels])
    return 1, frozenset()


def _are_apart(loops: Sequence[ir.For], body: tuple[ir.Stmt, ...]) -> bool:
    """True if no iteration of the loops accesses an element that another iteration stores or updates.

    False also for a body with a while loop, a print or an assertion.
    """
    if any(isinstance(s, ir.While | ir.Print | ir.Assert) for s in nested_statements(body)):
        return False
    return not conflicting(sites_of(loops, body), loops_of(loops))


def scatters_some(loop: ir.For) -> bool:
    """True if a store under a condition has an index that the body computes: compilers would scatter with masks."""
    computed = {s.name for s in nested_statements(loop.body) if isinstance(s, ir.SetLocal)}
    guarded = (s for s in nested_statements(loop.body) if isinstance(s, ir.If) and not _is_there(s))
    stores = (x for s in guarded for x in nested_statements(s.then) if isinstance(x, ir.Store))
    places = (x.indices[-1] for x in stores if x.indices)
    return any(isinstance(x, ir.Local) and x.name in computed for x in places)


def relaxes(loop: ir.For) -> bool:
    """True if a loop stores elements under a condition, and loads other elements of the same array, as coloured sweeps do.

    Vectors would store with masks, and cores forward no masked store to the loads of the next row, which wait for it.
    """
    inside = list(nested_statements(loop.body))
    guarded = (s for s in inside if isinstance(s, ir.If) and not _is_there(s))
    stored = dict[str, set[tuple[ir.Expr, ...]]]()
    for s in guarded:
        for x in nested_statements((*s.then, *s.orelse)):
            if isinstance(x, ir.Store):
                stored.setdefault(x.array, set()).add(x.indices)
    loads = (x for s in inside for e in children(s) for x in walk(e) if isinstance(x, ir.Load))
    return any(x.array in stored and x.indices not in stored[x.array] for x in loads)


def _is_there(s: ir.If) -> bool:
    """True if an `if` statement tests whether a sparse cell is active."""
    c = s.condition
    return isinstance(c, ir.Compare) and c.op == "ne" and isinstance(c.b, ir.Const)


def loops_of(loops: Sequence[ir.For]) -> tuple[Loop, ...]:
    return tuple(Loop(x.loop, constant(x.extent) or UNBOUNDED, False) for x in loops)


def sites_of(loops: Sequence[ir.For], body: tuple[ir.Stmt, ...]) -> tuple[Site, ...]:
    return _analysed(loops_of(loops), body)


@lru_cache(maxsize=16)  # several questions about one loop
def _analysed(loops: tuple[Loop, ...], body: tuple[ir.Stmt, ...]) -> tuple[Site, ...]:
    return analyse(body, loops, Reason(Closure.ORDER, "", ir.NOWHERE)).sites


def in_any_order(loop: ir.For) -> bool:
    """True if a loop's iterations give the same values in any order.

    Then only updates of one kind access what several of them access.
    """
    inside = list(nested_statements(loop.body))
    updates = shared_updates(loop)
    names = {u.array for u in updates}
    accessed = {
        x.array for s in inside for e in children(s) for x in walk(e) if isinstance(x, ir.Load)
    }
    accessed |= {s.array for s in inside if isinstance(s, ir.Store)}
    ops = {(u.array, u.op) for u in updates}
    if names & accessed or len(ops) != len(names) or any(u.result for u in updates):
        return False
    shared = set(conflicting(sites_of((loop,), loop.body), loops_of((loop,))))
    return shared <= names


# --- bodies in two parts


def parts_of(problem: Problem, nest: Sequence[ir.For], outer: frozenset[str]) -> Front | None:
    """Returns the body of a perfect nest in two parts, of which the first may run in lanes of the innermost loop; None without.

    `outer`: locals that are declared outside of the nest.
    """
    return lane_parts.parts_of(problem, loops_of(nest), nest[-1].body, outer)


# --- updates of elements that iterations share


def shared_updates(loop: ir.For) -> list[ir.Update]:
    """Returns updates of arrays in which several iterations may update one element, in program order.

    The updates of one array are all returned, or none of them.
    """
    shared = _updated_by_several(loop)
    return [
        s for s in nested_statements(loop.body) if isinstance(s, ir.Update) and s.array in shared
    ]


@lru_cache(maxsize=16)  # by the rules, and when their decisions are read
def _updated_by_several(loop: ir.For) -> frozenset[str]:
    """Returns the arrays in which several iterations may update the same element."""
    sites = [s for s in sites_of((loop,), loop.body) if s.op == "update"]
    return frozenset(conflicting(sites, loops_of((loop,))))


def sums_of(
    problem: Problem, loop: ir.For, shared: dict[str, ir.DType], updates: Sequence[ir.Update]
) -> Iterator[Sum]:
    """Yields the loop's reductions into one element, or into a local of the kernel, that no iteration reads.

    The order of their terms is free.
    """
    inside = list(nested_statements(loop.body))
    loaded = {
        x.array for s in inside for e in children(s) for x in walk(e) if isinstance(x, ir.Load)
    }
    stored = {s.array for s in inside if isinstance(s, ir.Store)}
    kinds: dict[str, dict[tuple[ir.Expr | float, ...], set[tuple[str, str]]]] = {}
    for s in inside:
        if isinstance(s, ir.Update):
            kinds.setdefault(s.array, {}).setdefault(_place(s), set()).add((s.op, s.result))
    found: dict[tuple[str, tuple[ir.Expr, ...]], Sum] = {}
    changing = {local_changed(s) for s in inside} - {""}
    for u in updates:
        is_fixed = not any(
            isinstance(x, ir.LoopIndex | ir.Load)
            or (isinstance(x, ir.Local) and x.name in changing)
            for e in u.indices
            for x in walk(e)
        )
        places = kinds[u.array]
        # Other places of the array are other elements only where all of them are constants.
        is_apart = len(places) == 1 or not any(isinstance(x, ir.Expr) for i in places for x in i)
        is_plain = places[_place(u)] == {(u.op, "")}
        if is_fixed and is_apart and is_plain and u.array not in loaded | stored:
            dtype = problem.array(u.array).dtype
            found[u.array, u.indices] = Sum(u.op, dtype, u.array, u.indices, "")
    yield from found.values()
    ops = {s.name: s.op for s in inside if isinstance(s, ir.UpdateLocal) and s.name in shared}
    for name, op in ops.items():
        yield Sum(op, shared[name], "", (), name)


def scattered(loop: ir.For, sums: Sequence[Sum]) -> list[ir.Update]:
    """Returns the updates of shared elements that are not among the reductions `sums`."""
    summed = {(s.array, s.indices) for s in sums}
    return [u for u in shared_updates(loop) if (u.array, u.indices) not in summed]


def copyable(
    problem: Problem, loop: ir.For, scattered: Sequence[ir.Update]
) -> tuple[ArrayInfo, ...]:
    """Returns the arrays of `scattered` updates to which threads may add in private copies.

    That is allowed if nothing else in the loop accesses an array, and all of its updates are additions whose results are unused.
    """
    inside = list(nested_statements(loop.body))
    names = {u.array for u in scattered}
    names -= {
        x.array for s in inside for e in children(s) for x in walk(e) if isinstance(x, ir.Load)
    }
    names -= {s.array for s in inside if isinstance(s, ir.Store)}
    names -= {s.array for s in inside if isinstance(s, ir.Update) and (s.op != "add" or s.result)}
    lacking = (ir.DType.f16, ir.DType.bool_)
    return tuple(a for a in problem.arrays if a.name in names and a.dtype not in lacking)


def overlap_of(loop: ir.For, scattered: Sequence[ir.Update], cores: int) -> int | None:
    """Returns the greatest distance of two iterations that update one element.

    It returns None if it is unknown or too large.
    It is known if one axis of each array has an index within a window around the iteration number,
    and only such updates access the array. It is too large if equal parts of the loop for `cores`
    threads are not twice as long.
    """
    inside = list(nested_statements(loop.body))
    names = {u.array for u in scattered}
    seen = {x.array for s in inside for e in children(s) for x in walk(e) if isinstance(x, ir.Load)}
    seen |= {s.array for s in inside if isinstance(s, ir.Store)}
    if names & seen or any(u.result for u in scattered):
        return None
    found = [_overlap_in(loop, [u for u in scattered if u.array == name]) for name in names]
    known = [n for n in found if n is not None]
    if not known or len(known) < len(found):
        return None
    overlap, extent = max(known), constant(loop.extent)
    return overlap if extent is not None and extent >= 2 * cores * max(1, overlap) else None


def _overlap_in(loop: ir.For, updates: Sequence[ir.Update]) -> int | None:
    extent = constant(loop.extent)
    if extent is None:
        return None
    overlaps = []
    for axis in zip(*(u.indices for u in updates), strict=True):
        windows = [window_of(e, loop.loop, extent) for e in axis]
        known = [w for w in windows if w is not None]
        if len(known) == len(windows):
            overlaps.append(max(high for _, high in known) - min(low for low, _ in known))
    return min(overlaps, default=None)


def window_of(e: ir.Expr, loop: str, extent: int) -> tuple[int, int] | None:
    """Returns the least and the greatest value of (index `e` - iteration number of the loop); None if unbounded.

    The loop begins at 0. An index that is clamped to constants has the bounds of the unclamped
    index, widened by the constants' distances from the ends of the loop.
    """
    match e:
        case ir.LoopIndex() if e.loop == loop:
            return 0, 0
        case ir.Cast(x=x) if x.dtype.is_integer and e.dtype.is_index:
            return window_of(x, loop, extent)
        case ir.Select(a=a, b=b):
            sides = [window_of(x, loop, extent) for x in (a, b)]
            known = [w for w in sides if w is not None]
            return (min(known)[0], max(w[1] for w in known)) if len(known) == 2 else None
        case ir.Binary(op="add" | "sub" | "min" | "max", a=a, b=b):
            if isinstance(a, ir.Const) and e.op != "sub":
                a, b = b, a
            inner = window_of(a, loop, extent)
            if inner is not None and isinstance(b, ir.Const):
                return _with_constant(e.op, inner, int(b.value), extent)
    return None


def _with_constant(op: str, window: tuple[int, int], k: int, extent: int) -> tuple[int, int]:
    low, high = window
    match op:
        case "max":
            return low, max(high, k)
        case "min":
            return min(low, k - (extent - 1)), high
        case "sub":
            k = -k
    return low + k, high + k


def _place(u: ir.Update) -> tuple[ir.Expr | float, ...]:
    """Returns the indices of an update as a key, in which equal constants of different types are equal."""
    return tuple(x.value if isinstance(x, ir.Const) else x for x in u.indices)
