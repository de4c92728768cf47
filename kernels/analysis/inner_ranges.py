"""Loops inside of bodies: rows of a length that only a run determines (CSR), and loops whose iterations may be lanes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from ..ir import kernel as ir
from ..ir.affine import to_affine, unclamped
from ..ir.domain import Loop
from ..ir.simplify import cast
from ..ir.task import Problem
from ..ir.walk import (
    Renaming,
    blocks,
    children,
    local_changed,
    nested_statements,
    size,
    walk,
    written_in,
)
from .accesses import sites_of, with_invariant_indices
from .conflicts import conflicting
from .uniformity import Uniformity
from .vectorisable import refusal

_MOST_NODES = 32  # of the value of a local that stands in an extent


@dataclass(frozen=True)
class RowStarts:
    """Row pointers of a loop, as in CSR: iteration i has the row `array[i + offset]` to `array[i + offset + 1]`."""

    array: str
    offset: int


def is_uneven(body: Sequence[ir.Stmt]) -> bool:
    """True if an iteration with this body has an amount of work that is known only at run time."""
    return any(
        isinstance(s, ir.While) or (isinstance(s, ir.For) and not isinstance(s.extent, ir.Const))
        for s in nested_statements(tuple(body))
    )


def end_of(loop: Loop, body: Sequence[ir.Stmt]) -> ir.Expr | None:
    """Returns the number of iterations of a loop of which `extent` is only an upper bound; None for other loops.

    The number is known at run time. The loop's body is one branch, which is taken in the iterations before that end.
    """
    if loop.is_known or len(body) != 1:
        return None
    match body[0]:
        case ir.If(condition=ir.Compare("lt", ir.LoopIndex(name), end), orelse=()) if (
            name == loop.name
        ):
            return end
    return None


def row_starts(loop: str, body: tuple[ir.Stmt, ...]) -> RowStarts | None:
    """Returns the row pointers of `loop` if its body loops over rows of a CSR matrix; None if it does not.

    Each iteration reads the begin of its own row and that of the next one. Nothing in the body writes the array.
    """
    written = written_in(body)
    found = (_starts(loop, extent) for extent in _extents(body))
    return next((x for x in found if x is not None and x.array not in written), None)


def _extents(body: tuple[ir.Stmt, ...]) -> Iterator[ir.Expr]:
    """Yields the extents of a body's own inner loops, in terms of values before the body where its locals are set once.

    Locals of large values stay: written out, a chain of locals that are used twice grows exponentially.
    """
    once = [local_changed(s) for s in nested_statements(body)]
    known: dict[str, ir.Expr] = {}
    for s in body:
        if any(isinstance(x, ir.Assert) for x in nested_statements((s,))):
            return  # a call in which one failed reads nothing behind it
        if isinstance(s, ir.SetLocal) and once.count(s.name) == 1:
            value = Renaming(locals=known).apply(s.value)
            if size(value) <= _MOST_NODES:
                known[s.name] = value
        if isinstance(s, ir.For):
            yield Renaming(locals=known).apply(s.extent)


def run_time_length(loop: str, body: tuple[ir.Stmt, ...]) -> ir.Expr | None:
    """Returns the number of iterations (i64) of a body's inner loops whose extents are in arrays, as an expression of index `loop`.

    Extents that depend on the body, or are the same in all iterations, do not count. None if no other extent is left.
    """
    written = written_in(body)
    found = [x for x in _extents(body) if _is_looked_up(x, loop, written)]
    long = ir.DType.i64
    terms = (cast(x, long) for x in found)
    return reduce(lambda a, b: ir.Binary("add", a, b, long), terms) if found else None


def _is_looked_up(e: ir.Expr, loop: str, written: Collection[str]) -> bool:
    """True if an expression follows from integers, and from elements at index `loop` of arrays that are not among `written`."""
    inside = list(walk(e))
    allowed = (
        ir.Load, ir.Const, ir.Param, ir.LoopIndex, ir.Compare, ir.Select, ir.Cast, ir.Unary, ir.Binary,
    )  # fmt: skip
    if not all(isinstance(x, allowed) and not x.dtype.is_float for x in inside):
        return False
    if any(isinstance(x, ir.LoopIndex) and x.loop != loop for x in inside):
        return False
    loads = [x for x in inside if isinstance(x, ir.Load)]
    at_index = (y for x in loads for i in x.indices for y in walk(i))
    return any(isinstance(y, ir.LoopIndex) for y in at_index) and not any(
        x.array in written for x in loads
    )


def _starts(loop: str, extent: ir.Expr) -> RowStarts | None:
    match unclamped(extent):
        case ir.Binary("sub", a, b) | ir.Binary("add", a, ir.Unary("neg", b)):
            end, begin = _uncast(a), _uncast(b)
        case _:
            return None
    if not (isinstance(begin, ir.Load) and isinstance(end, ir.Load)) or begin.array != end.array:
        return None
    if len(begin.indices) != 1 or not begin.dtype.is_integer:
        return None
    first, behind = to_affine(begin.indices[0]), to_affine(end.indices[0])
    if first is None or behind is None or first.terms != ((loop, 1),):
        return None
    is_next = behind.terms == first.terms and behind.const == first.const + 1
    return RowStarts(begin.array, first.const) if is_next else None


def _uncast(e: ir.Expr) -> ir.Expr:
    while isinstance(e, ir.Cast) and e.dtype.is_integer and e.x.dtype.is_integer:
        e = e.x
    return e


def lane_ranges(body: tuple[ir.Stmt, ...], problem: Problem, fast_math: bool) -> tuple[ir.For, ...]:
    """Returns the loops inside of a body whose iterations may be lanes, in the order of the text; some may be inside of others.

    Their results are sums into locals of the iteration around them, and elements of arrays. The order of the sums is free, nothing
    in the loop reads them, and no iteration accesses an element that another one writes.
    """
    every = list(nested_statements(body))
    return tuple(
        s
        for s in every
        if isinstance(s, ir.For)
        and not any(isinstance(x, ir.While) for x in nested_statements(s.body))
        and _are_sums_apart(s, list(_outside(body, s)), fast_math)
        and not refusal(s.body, problem)
        and _are_elements_apart(s)
    )


def gathers(loop: ir.For, uniformity: Uniformity | None = None) -> bool:
    """True if an innermost loop loads elements whose places depend on values that differ between its iterations.

    Such values are elements of arrays, as in table look-ups, and floats that become indices, as in samples of a grid.
    """
    inside = list(nested_statements(loop.body))
    if any(isinstance(s, ir.For | ir.While) for s in inside):
        return False
    varies = (uniformity or Uniformity(loop.loop, loop.body, frozenset())).varies
    by_value = set[str]()

    def is_by_value(e: ir.Expr) -> bool:
        match e:
            case ir.Local(name):
                return name in by_value
            case ir.Load():
                return varies(e)
            case ir.Cast(x, dtype):
                return dtype.is_integer and x.dtype.is_float and varies(x)
        return False

    n_before = -1
    while len(by_value) != n_before:
        n_before = len(by_value)
        for s in inside:
            if isinstance(s, ir.SetLocal | ir.UpdateLocal) and any(map(is_by_value, walk(s.value))):
                by_value.add(s.name)
    every = (x for s in inside for e in children(s) for x in walk(e) if isinstance(x, ir.Load))
    return any(is_by_value(x) for load in every for i in load.indices for x in walk(i))


def _outside(body: tuple[ir.Stmt, ...], loop: ir.For) -> Iterator[ir.Stmt]:
    """Yields the statements of a body at any depth that are not inside of `loop`."""
    for s in body:
        yield s
        for block in blocks(s) if s is not loop else ():
            yield from _outside(block, loop)


def _are_sums_apart(loop: ir.For, around: Sequence[ir.Stmt], fast_math: bool) -> bool:
    """True if iterations of a loop have locals of their own, except for sums whose order is free; and if it has any result.

    `around`: the statements of the body outside of the loop.
    """
    inside = list(nested_statements(loop.body))
    if any(isinstance(s, ir.Update | ir.LocalArray | ir.SetElement) for s in inside):
        return False
    own = {s.name for s in loop.body if isinstance(s, ir.SetLocal)}
    of_floats = {s.name for s in around if isinstance(s, ir.SetLocal) and s.value.dtype.is_float}
    sums: dict[str, set[str]] = {}
    for s in inside:
        if isinstance(s, ir.SetLocal) and s.name not in own:
            return False
        if isinstance(s, ir.UpdateLocal) and s.name not in own:
            sums.setdefault(s.name, set()).add(s.op)
            is_float = s.value.dtype.is_float or s.name in of_floats
            if not (fast_math or s.op in ("min", "max") or not is_float):
                return False
    if any(len(ops) > 1 for ops in sums.values()):
        return False
    if not (sums or any(isinstance(s, ir.Store) for s in inside)):
        return False
    return (
        not any(sums.keys() & _read(s) for s in inside)
        and not any(own & ({local_changed(s)} | _read(s)) for s in around)
        and sets_first(loop.body, own)
    )


def _are_elements_apart(loop: ir.For) -> bool:
    """True if no iteration of a loop accesses an element that another one writes."""
    inside = list(nested_statements(loop.body))
    if not any(isinstance(s, ir.Store) for s in inside):
        return True
    changed = {local_changed(s) for s in inside} - {""}
    loops, statements = with_invariant_indices(loop, changed)
    return not conflicting(sites_of(statements, loops), loops)


def _read(s: ir.Stmt) -> set[str]:
    """Returns the locals that a statement reads, without statements nested in it."""
    return {x.name for e in children(s) for x in walk(e) if isinstance(x, ir.Local)}


def sets_first(body: tuple[ir.Stmt, ...], own: set[str]) -> bool:
    """True if the body sets each local in `own` at its top level before any other use of that local."""
    ready: set[str] = set()
    for s in body:
        touched = _read(s)
        for x in nested_statements(tuple(y for b in blocks(s) for y in b)):
            touched |= _read(x) | {local_changed(x)}
        if isinstance(s, ir.UpdateLocal):
            touched.add(s.name)
        if (touched & own) - ready:
            return False
        if isinstance(s, ir.SetLocal):
            ready.add(s.name)
    return True


def widest(body: Sequence[ir.Stmt]) -> int:
    """Returns the size in bytes of the widest type that the body computes with, at least 4.

    If the body computes with floats, only float types count.
    """
    sizes: dict[bool, int] = {}
    for s in nested_statements(tuple(body)):
        for e in children(s):
            for x in walk(e):
                if isinstance(x, ir.Binary | ir.Unary | ir.Load) and x.dtype is not ir.DType.bool_:
                    kind = x.dtype.is_float
                    sizes[kind] = max(sizes.get(kind, 0), x.dtype.size_bytes)
    return max(4, sizes.get(True, sizes.get(False, 4)))
