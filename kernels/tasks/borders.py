"""Index set splitting at borders (Griebl, Feautrier and Lengauer, 2000): cuts a nest into interior and borders.

In the interior clamped, periodic and mirrored indices are affine. `(i + 1) % n` is `i + 1` but in the last iteration, and
`max(i - 1, 0)` or `i - (i > 0)` is `i - 1` but in the first. The border of each loop is a part of its own. The parts run one after
the other, so only loops without conflicts between their iterations are cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from ..analysis.effects import are_independent
from ..ir import kernel as ir
from ..ir.affine import Affine, combine, constant, expression, to_affine
from ..ir.ops import OPS
from ..ir.simplify import binary, unary
from ..ir.task import Task
from ..ir.walk import (
    Renaming,
    blocks,
    children,
    local_changed,
    mapped,
    nested_statements,
    size,
    walk,
    with_blocks,
)
from .distribute import constant_extent

_MOST_NODES = 32  # of the value of a local that stands for it
_MOST_PERIODS = 4  # of an index in one loop
_PIECEWISE = ("mod", "floordiv", "bit_and", "min", "max")
Range = tuple[int, int]  # first iteration, and the one behind the last
Ranges = Mapping[str, Range]


def split_at_borders(body: tuple[ir.Stmt, ...], task: Task) -> list[tuple[ir.Stmt, ...]]:
    """Returns the parts of a loop nest, the interior first; [] if the nest has no borders.

    `task`: the nest as one task.
    """
    nest, inside = _nest(body, task)
    inside = _Indices().substituted(inside)
    pairs = zip(nest, task.loops, strict=False)  # of which a task has names of its own
    free = [s.loop for s, x in pairs if x.extent > 1 and are_independent(task, x)]
    whole = {s.loop: (0, n) for s in nest if (n := constant_extent(s.extent)) is not None}
    extents = whole | _ranges(inside)
    interior = {n: _interior(inside, n, extents) for n in whole if n in free}
    interior = {n: x for n, x in interior.items() if x != whole[n]}
    if not interior:
        return []
    names = count()
    parts, outside = [_part(nest, inside, extents | interior, names)], dict[str, Range]()
    for name, (first, behind) in interior.items():
        around, (_, n) = extents | outside, whole[name]
        if first > 0 and behind < n:
            parts.append(_part(nest, inside, around, names, (name, (first, behind))))
        else:
            side = (behind, n) if first == 0 else (0, first)
            parts.append(_part(nest, inside, around | {name: side}, names))
        outside[name] = first, behind
    return parts


def _nest(body: tuple[ir.Stmt, ...], task: Task) -> tuple[list[ir.For], tuple[ir.Stmt, ...]]:
    """Returns the loops of a task in its statements, a perfect nest, and the statements inside of it."""
    nest: list[ir.For] = []
    while len(nest) < len(task.loops) and len(body) == 1 and isinstance(body[0], ir.For):
        nest.append(body[0])
        body = body[0].body
    return nest, body


def _ranges(body: tuple[ir.Stmt, ...]) -> dict[str, Range]:
    """Returns the range of iterations of each loop with constant extent, by name."""
    loops = (s for s in nested_statements(body) if isinstance(s, ir.For))
    return {s.loop: (0, n) for s in loops if (n := constant_extent(s.extent)) is not None}


def _part(
    nest: Sequence[ir.For],
    inside: tuple[ir.Stmt, ...],
    ranges: Ranges,
    names: Iterator[int],
    border: tuple[str, Range] | None = None,
) -> tuple[ir.Stmt, ...]:
    """Returns a part of a nest: its loops over `ranges` only, with new names.

    `border`: a loop that runs over all iterations of its range except those given here, inside of the other loops.
    `names`: numbers for the new names.
    """
    new: dict[str, ir.Expr] = {}
    loops: list[ir.For] = []
    inner: list[ir.For] = []
    for s in nest:
        name = f"{s.loop.split('@')[0]}@border{next(names)}"
        first, behind = ranges.get(s.loop, (0, 0))
        if border is not None and border[0] == s.loop:
            left_out = border[1]
            n_left = behind - first - (left_out[1] - left_out[0])
            new[s.loop] = _without(name, left_out)
            inner.append(ir.For(name, ir.Const(n_left, ir.DType.i64), (), s.where))
            continue
        extent = ir.Const(behind - first, ir.DType.i64) if s.loop in ranges else s.extent
        new[s.loop] = expression(Affine(first, ((name, 1),)), ir.DType.i64)
        loops.append(ir.For(name, extent, (), s.where))
    body = _folded_all(inside, ranges)
    for x in nested_statements(body):
        if isinstance(x, ir.For):
            new[x.loop] = ir.LoopIndex(f"{x.loop.split('@')[0]}@border{next(names)}")
    body = tuple(Renaming(loops=new).apply_stmt(s) for s in body)
    for s in reversed(loops + inner):
        body = (ir.For(s.loop, s.extent, body, s.where),)
    return body


def _without(name: str, left_out: Range) -> ir.Expr:
    """The old index of a loop as a function of its new index, if the loop skips the iterations `left_out`.

    `name`: the new loop.
    """
    first, behind = left_out
    here = expression(Affine(0, ((name, 1),)), ir.DType.i64)
    later = expression(Affine(behind - first, ((name, 1),)), ir.DType.i64)
    return ir.Select(
        ir.Compare("lt", here, ir.Const(first, ir.DType.i64)), here, later, ir.DType.i64
    )


# --- interiors ------------------------------------------------------------------------------------


def _interior(body: tuple[ir.Stmt, ...], loop: str, ranges: Ranges) -> Range:
    """Returns the iterations of a loop in which each piecewise affine index that depends on it is affine.

    These are all iterations if the interior is less than half of them.
    """
    whole = now = ranges[loop]
    while True:
        body = _folded_all(body, {**ranges, loop: now})
        found = next(_undecided(body, loop, {**ranges, loop: now}), None)
        if found is None:
            return now
        if found == now or 2 * (found[1] - found[0]) <= whole[1] - whole[0]:
            return whole
        now = found


def _undecided(body: tuple[ir.Stmt, ...], loop: str, ranges: Ranges) -> Iterator[Range]:
    """Yields for each piecewise affine index the longest range of a loop in which it is affine; (0, 0): none."""
    for s in nested_statements(body):
        for part in children(s):
            for index in walk(part):
                for e, form in _selectors(index):
                    if form.coefficient(loop):
                        yield _largest(e, form, loop, ranges)


def _selectors(e: ir.Expr) -> Iterator[tuple[ir.Expr, Affine]]:
    """Yields the expressions that select the piece of a piecewise affine index, each with the form whose value decides.

    The index itself is such an expression, or the comparisons in its condition are. Other expressions have none.
    """
    if not e.dtype.is_index or to_affine(e) is not None:
        return
    found: list[tuple[ir.Expr, Affine | None]]
    match e:
        case ir.Select(condition=condition) | ir.Cast(x=condition) if (
            condition.dtype is ir.DType.bool_
        ):
            inside = (x for x in walk(condition) if isinstance(x, ir.Compare))
            found = [(x, _difference(x.a, x.b)) for x in inside if x.a.dtype.is_index]
        case ir.Binary(op="min" | "max", a=a, b=b):
            found = [(e, _difference(a, b))]
        case ir.Unary(op="abs", x=x):
            found = [(e, to_affine(x))]
        case ir.Binary(a=a) if _period(e) is not None:
            found = [(e, to_affine(a))]
        case _:
            return
    yield from ((x, form) for x, form in found if form is not None and form.terms)


def _period(e: ir.Binary) -> int | None:
    """Returns m of an index `a % m`, `a // m` or `a & (m - 1)`, which is `a % m` if m is a power of two; None for others."""
    match e:
        case ir.Binary(op="mod" | "floordiv", b=ir.Const(value=int(m))) if m > 0:
            return m
        case ir.Binary(op="bit_and", b=ir.Const(value=int(m))) if m > 0 and not m & (m + 1):
            return m + 1
    return None


def _difference(a: ir.Expr, b: ir.Expr) -> Affine | None:
    x, y = to_affine(a), to_affine(b)
    return None if x is None or y is None else combine([(1, x), (-1, y)])


def _largest(e: ir.Expr, form: Affine, loop: str, ranges: Ranges) -> Range:
    """Returns the longest range of a loop's iterations in which one piece of `e` holds. `form`: see `_selectors`."""
    first, behind = ranges[loop]
    rest = _limits(Affine(form.const, tuple(t for t in form.terms if t[0] != loop)), ranges)
    if rest is None:
        return 0, 0
    step = form.coefficient(loop)
    found = [
        (max(first, a), min(behind, b))
        for low, high in _pieces(e, form, ranges)
        for a, b in [_solved(step, low - rest[0], high - rest[1])]
    ]
    return max(found, key=lambda x: x[1] - x[0], default=(0, 0))


def _solved(step: int, low: int, high: int) -> Range:
    """Returns the range of the integers k with low <= step * k <= high."""
    if step < 0:
        step, low, high = -step, -high, -low
    return -(-low // step), high // step + 1


def _pieces(e: ir.Expr, form: Affine, ranges: Ranges) -> Iterator[tuple[int, int]]:
    """Yields the least and the greatest value of `form` in each piece of `e`."""
    reach = _limits(form, ranges)
    if reach is None:
        return
    low, high = reach
    match e:
        case ir.Binary() if (m := _period(e)) is not None:
            periods = range(low // m, high // m + 1)
            if len(periods) <= _MOST_PERIODS:
                yield from ((q * m, q * m + m - 1) for q in periods)
        case ir.Compare(op="eq" | "ne"):
            yield from ((low, -1), (0, 0), (1, high))
        case ir.Compare(op="le" | "gt"):
            yield from ((low, 0), (1, high))
        case ir.Compare():
            yield from ((low, -1), (0, high))
        case _:
            yield from ((low, 0), (0, high))


def _limits(form: Affine, ranges: Ranges) -> tuple[int, int] | None:
    """Returns the least and the greatest value of an affine expression; None if a loop has no known range."""
    if any(name not in ranges for name, _ in form.terms):
        return None
    ends = [sorted((k * ranges[name][0], k * (ranges[name][1] - 1))) for name, k in form.terms]
    return form.const + sum(a for a, _ in ends), form.const + sum(b for _, b in ends)


class _Indices:
    """Substitution of locals that are integers computed from loop indices by their values."""

    def __init__(self) -> None:
        self._values: dict[str, ir.Expr] = {}

    def substituted(self, body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        return tuple(self._statement(s) for s in body)

    def _statement(self, s: ir.Stmt) -> ir.Stmt:
        is_loop = bool(blocks(s)) and not isinstance(s, ir.If)
        if is_loop:
            self._forget_changed(s)
        known = Renaming(locals=self._values)
        if not blocks(s):
            s = known.apply_stmt(s)
            self._assign(s)
            return s
        s = mapped(s, known.apply, lambda x: x)
        if is_loop:
            s = with_blocks(s, self.substituted)
            self._forget_changed(s)  # it may run no iteration
            return s
        assert isinstance(s, ir.If)
        before = self._values
        sides = []
        for block in (s.then, s.orelse):
            self._values = dict(before)
            sides.append((self.substituted(block), self._values))
        (then, x), (orelse, y) = sides
        both = {n: _joined(s.condition, x[n], y[n]) for n in x.keys() & y.keys()}
        self._values = {n: e for n, e in both.items() if _stands_for_a_local(e)}
        return replace(s, then=then, orelse=orelse)

    def _assign(self, s: ir.Stmt) -> None:
        if isinstance(s, ir.SetLocal) and s.value.dtype.is_index and _stands_for_a_local(s.value):
            self._values[s.name] = s.value
        else:
            self._values.pop(local_changed(s), None)

    def _forget_changed(self, loop: ir.Stmt) -> None:
        for x in nested_statements(blocks(loop)[0]):
            self._values.pop(local_changed(x), None)


def _joined(condition: ir.Expr, a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return a if a == b else ir.Select(condition, a, b, a.dtype)


def _stands_for_a_local(e: ir.Expr) -> bool:
    """True if an expression, small and of loop indices and constants alone, may replace a local."""
    pure = ir.Binary | ir.Cast | ir.Compare | ir.Const | ir.LoopIndex | ir.Select | ir.Unary
    return size(e) <= _MOST_NODES and all(isinstance(x, pure) for x in walk(e))


# --- folding --------------------------------------------------------------------------------------


def _folded_all(body: tuple[ir.Stmt, ...], ranges: Ranges) -> tuple[ir.Stmt, ...]:
    """Returns the statements with each index replaced by its affine piece if only one piece occurs in `ranges`."""

    def expr(e: ir.Expr) -> ir.Expr:
        return _folded(mapped(e, expr, stmt), ranges)

    def stmt(s: ir.Stmt) -> ir.Stmt:
        return mapped(s, expr, stmt)

    return tuple(_taken(tuple(map(stmt, body))))


def _folded(e: ir.Expr, ranges: Ranges) -> ir.Expr:
    match e:
        case ir.Binary(op=op, a=a, b=b) if op in _PIECEWISE and e.dtype.is_index:
            made = _piece(e, ranges)
            return e if made is None else expression(made, e.dtype)
        case ir.Unary(op="abs", x=x) if e.dtype.is_index:
            form = to_affine(x)
            reach = None if form is None else _limits(form, ranges)
            if form is not None and reach is not None and not reach[0] < 0 < reach[1]:
                return expression(form if reach[0] >= 0 else combine([(-1, form)]), e.dtype)
        case ir.Compare(op=op, a=a, b=b) if a.dtype.is_index:
            form = _difference(a, b)
            reach = None if form is None or not form.terms else _limits(form, ranges)
            if reach is not None:
                truths = {bool(OPS[op].numpy(x, 0)) for x in reach}
                is_sure = len(truths) == 1 and (
                    op not in ("eq", "ne") or not reach[0] <= 0 <= reach[1]
                )
                return ir.Const(truths.pop(), ir.DType.bool_) if is_sure else e
        case ir.Binary(op="and" | "or", a=a, b=b):
            return binary(e.op, a, b)
        case ir.Unary(op="not", x=x):
            return unary("not", x)
        case ir.Select(condition=ir.Const(value=value), a=a, b=b):
            return a if value else b
    return e


def _piece(e: ir.Binary, ranges: Ranges) -> Affine | None:
    """Returns the affine value of an index `a op b` within `ranges`; None if several pieces occur."""
    x, y = to_affine(e.a), to_affine(e.b)
    if x is None or y is None:
        return None
    if e.op in ("min", "max"):
        reach = _limits(combine([(1, x), (-1, y)]), ranges)
        if reach is None or reach[0] < 0 < reach[1]:
            return None
        return x if (reach[1] <= 0) == (e.op == "min") else y
    m, reach = _period(e), _limits(x, ranges)
    if reach is None or m is None or reach[0] // m != reach[1] // m:
        return None
    period = reach[0] // m
    return constant(period) if e.op == "floordiv" else combine([(1, x), (1, constant(-period * m))])


def _taken(body: tuple[ir.Stmt, ...]) -> Iterator[ir.Stmt]:
    """Yields the statements without branches that are never taken and loops that never run."""
    for s in body:
        if isinstance(s, ir.For) and constant_extent(s.extent) == 0:
            continue
        if isinstance(s, ir.If) and isinstance(s.condition, ir.Const):
            yield from _taken(s.then if s.condition.value else s.orelse)
        elif blocks(s):
            yield with_blocks(s, lambda inner: tuple(_taken(inner)))
        else:
            yield s
