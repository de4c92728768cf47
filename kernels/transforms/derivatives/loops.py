"""Sweeps of loops: the reverse sweep runs iterations one by one, the last first.

The locals that a loop carries are kept in local arrays, by number of the iteration; the rest of an iteration is computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...ir import kernel as ir
from ...ir.simplify import binary, cast, compare, const
from ...ir.verify import LOCAL_ARRAY_BYTES
from .body import SweepBody
from .flow import leaf
from .kept import changed_in, has_independent_iterations, only_added_to
from .pruning import read_by

Loop = ir.For | ir.ForActive | ir.While
SweepBlock = Callable[[SweepBody, tuple[ir.Stmt, ...]], None]
_ONE = const(1, ir.DType.i64)


@dataclass(frozen=True)
class _Swept:
    """Loop in a body that is swept.

    `extent`: the number of iterations; None for active cells. `sums`: locals that the loop only adds to. `carried`: other locals
    that the loop changes, and `kept`: the local array that keeps each of them. `sweep`: sweeps the statements in the loop.
    """

    body: SweepBody
    loop: Loop
    extent: ir.Expr | None
    sums: frozenset[str]
    carried: tuple[str, ...]
    kept: dict[str, str]
    sweep: SweepBlock


def sweep_loop(body: SweepBody, s: Loop, sweep: SweepBlock, *, is_top: bool) -> None:
    """Adds a loop to both sweeps of a body.

    `sweep`: adds the statements in the loop. `is_top`: the iterations are parallel.
    """
    all_changed = changed_in(s.body, body.versions)
    changed = [n for n in all_changed if n not in body.sums]
    tested = set(read_by(s)) if isinstance(s, ir.While) else set()
    sums = frozenset(n for n in changed if n not in tested and only_added_to(s.body, n))
    carried = tuple(n for n in changed if n not in sums)
    extent = _extent(body, s)
    for n in changed:
        if not body.is_array(n):
            _copy(body, n, s.where)
    kept = _keep(body, s, carried, extent, is_top) if body.has_reverse else {}
    swept = _Swept(body, s, extent, sums, carried, kept, sweep)
    if changed or isinstance(s, ir.While) or (all_changed and not body.has_reverse):
        body.forward += _again(swept)
    if body.has_reverse:
        body.then([_turned(swept, is_top)])


def _extent(body: SweepBody, s: Loop) -> ir.Expr | None:
    match s:
        case ir.For():
            return leaf(body, body.renamed(s.extent), s.where)
        case ir.While():
            count = ir.Local(body.version("n", ir.DType.i64), ir.DType.i64)
            body.forward.append(ir.SetLocal(count.name, const(0, ir.DType.i64), s.where))
            return count
    return None


def _copy(body: SweepBody, name: str, where: ir.Location) -> None:
    """Gives a local that a loop changes in place a new version, with the old value."""
    old, making = body.now(name), body.making
    version = body.version(name, old.dtype, name)
    body.forward.append(ir.SetLocal(version, old, where))
    if name in making.activity.active:
        making.active.add(version)
        if old.name in making.active:
            body.then([body.added(old.name, body.adjoint(version), where)])


def _keep(
    body: SweepBody, s: Loop, carried: tuple[str, ...], extent: ir.Expr | None, is_top: bool
) -> dict[str, str]:
    """Declares local arrays that keep each local of `carried` at the begin of an iteration; returns their names.

    `is_top`: the iterations are parallel, so that they cannot carry a local.
    """
    making, kept = body.making, dict[str, str]()
    for n in carried:
        version = body.versions[n]
        dtype, width = _kept_type(making.types[version]), making.extents.get(version, 1)
        array = kept[n] = making.names.fresh(f"kept_{n}")
        n_most = LOCAL_ARRAY_BYTES // (width * dtype.size_bytes)
        length = 1
        if is_top and not isinstance(s, ir.While):
            sentence = f"iterations of a parallel loop share the local {n}"
            making.unknown[array] = (sentence, s.where)
        elif not isinstance(extent, ir.Const):
            length = max(1, min(making.n_kept, n_most))
            guard = _guard(s, extent, length)
            making.guards[array] = replace(guard, uid=-1 - len(making.guards))
        elif extent.value > n_most:
            sentence = f"a loop of {extent.value} iterations carries the local {n}, which is kept {n_most} times at most"
            making.unknown[array] = (sentence, s.where)
        else:
            length = max(1, int(extent.value))
        body.start.append(ir.LocalArray(array, length * width, const(0, dtype), s.where))
    return kept


_TOO_LONG = "whose locals its adjoint keeps"


def is_guard(message: str) -> bool:
    """True for the message of an assertion that a local array can keep all iterations of a loop."""
    return _TOO_LONG in message


def _guard(s: Loop, extent: ir.Expr | None, length: int) -> ir.Assert:
    """Returns the assertion that a local array of `length` can keep the values of all iterations.

    In a while loop it is about the current iteration.
    """
    assert extent is not None
    text = (
        f"a loop has more than {length} iterations, {_TOO_LONG}:"
        " give ks.init(ad_stack_size=) their number"
    )
    most = const(length, extent.dtype)
    return ir.Assert(
        compare("lt" if isinstance(s, ir.While) else "le", extent, most), text, (), s.where
    )


def _again(x: _Swept) -> list[ir.Stmt]:
    """Returns the loop of the forward sweep, which changes locals in place."""
    body, s = x.body, x.loop
    inner = body.inside(has_reverse=False)
    inner.sums |= x.sums
    loops = _enter(inner, s, None)
    guards = [body.making.guards[a] for a in x.kept.values() if a in body.making.guards]
    at = x.extent if isinstance(s, ir.While) else ir.LoopIndex(loops[0])
    assert at is not None
    saved = [_saved(body, n, array, at, s.where) for n, array in x.kept.items()]
    x.sweep(inner, s.body)
    last = [
        ir.SetLocal(body.versions[n], inner.now(n), s.where)
        for n in x.carried
        if not body.is_array(n)
    ]
    if isinstance(s, ir.While):
        assert isinstance(x.extent, ir.Local)
        count = ir.UpdateLocal(x.extent.name, "add", _ONE, s.where)
        statements = (*guards, *saved, *inner.forward, *last, count)
        return [ir.While(body.renamed(s.condition), statements, s.where)]
    return [*guards, _like(s, loops, x.extent, [*saved, *inner.forward, *last])]


def _saved(body: SweepBody, name: str, kept: str, at: ir.Expr, where: ir.Location) -> ir.Stmt:
    """Returns the statement that keeps a local, or all elements of a local array, for iteration `at`."""
    now, making = body.now(name), body.making
    if now.name not in making.extents:
        return ir.SetElement(kept, at, _as_kept(now), where)
    loop = making.names.fresh("c")
    element = _as_kept(ir.LocalElement(now.name, ir.LoopIndex(loop), now.dtype))
    save = ir.SetElement(kept, _row(body, now.name, at, loop), element, where)
    return ir.For(loop, const(making.extents[now.name], ir.DType.i64), (save,), where)


def _row(body: SweepBody, version: str, at: ir.Expr, loop: str) -> ir.Expr:
    """Returns the index, in an array of kept values, of an element of a local array in iteration `at`.

    `loop`: the loop over elements.
    """
    width = const(body.making.extents[version], at.dtype)
    return binary("add", binary("mul", at, width), ir.LoopIndex(loop, at.dtype))


def _restored(body: SweepBody, name: str, kept: str, at: ir.Expr, where: ir.Location) -> ir.Stmt:
    """Returns the statement that sets a local array to its values at the begin of iteration `at`."""
    now, making = body.now(name), body.making
    loop = making.names.fresh("c")
    element = ir.LocalElement(kept, _row(body, now.name, at, loop), _kept_type(now.dtype))
    restore = ir.SetElement(now.name, ir.LoopIndex(loop), _from_kept(element, now.dtype), where)
    return ir.For(loop, const(making.extents[now.name], ir.DType.i64), (restore,), where)


def _turned(x: _Swept, is_top: bool) -> ir.Stmt:
    """Returns the loop of the reverse sweep: each iteration computes its values again, then sweeps its body backwards.

    The last iteration comes first, unless `_is_in_order`.
    """
    body, s, making = x.body, x.loop, x.body.making
    inner = body.inside()
    inner.sums |= x.sums
    last = None if _is_in_order(x, is_top) else _before(x.extent)
    loops = _enter(inner, s, last)
    at: ir.Expr = ir.LoopIndex(loops[0])
    at = at if last is None else binary("sub", last, at)
    begins: dict[str, ir.Local] = {}
    for n in x.carried:
        if body.is_array(n):
            inner.start.append(_restored(body, n, x.kept[n], at, s.where))
            continue
        dtype = body.now(n).dtype
        begins[n] = ir.Local(inner.version(n, dtype, n), dtype)
        if n in making.activity.active:
            making.active.add(begins[n].name)
        element = ir.LocalElement(x.kept[n], at, _kept_type(dtype))
        inner.start.append(ir.SetLocal(begins[n].name, _from_kept(element, dtype), s.where))
    x.sweep(inner, s.body)
    inner.reverse.append(_taken_over(body, inner, begins, s.where))
    inner.reverse.insert(0, _handed_on(body, inner, begins, s.where))
    return _like(s, loops, x.extent, inner.statements())


def _is_in_order(x: _Swept, is_top: bool) -> bool:
    """True if the iterations of the reverse sweep may run in the order of the loop, instead of the last first."""
    if isinstance(x.loop, ir.While):
        return False
    if isinstance(x.loop, ir.ForActive):
        return True
    is_free = is_top or not x.carried  # iterations of a parallel loop carry nothing
    return is_free and has_independent_iterations(
        x.loop.body, x.loop.loop, x.body.making.gradients, x.body.indices
    )


def _before(extent: ir.Expr | None) -> ir.Expr:
    """Returns the number of the last iteration of a loop with this extent."""
    assert extent is not None
    return binary("sub", extent, const(1, extent.dtype))


def _taken_over(
    body: SweepBody, inner: SweepBody, begins: dict[str, ir.Local], where: ir.Location
) -> list[ir.Stmt]:
    """Returns statements that begin the reverse sweep of an iteration with the adjoints of carried locals.

    They add the adjoints behind the iteration to those of the last versions in it.
    """
    active = body.making.active
    return [
        inner.added(inner.versions[n], body.adjoint(body.versions[n]), where)
        for n in begins
        if inner.versions[n] in active and body.versions[n] in active
    ]


def _handed_on(
    body: SweepBody, inner: SweepBody, begins: dict[str, ir.Local], where: ir.Location
) -> list[ir.Stmt]:
    """Returns statements that set the adjoints of carried locals to those at the begin of the iteration."""
    return [
        ir.SetLocal(body.adjoint(body.versions[n]).name, inner.adjoint(begin.name), where)
        for n, begin in begins.items()
        if begin.name in body.making.active
    ]


def _enter(inner: SweepBody, s: Loop, last: ir.Expr | None) -> tuple[str, ...]:
    """Renames the loop around the body `inner`, and returns its new names.

    With `last` the new loop counts down from there.
    """
    names: tuple[str, ...] = ("w",)
    if not isinstance(s, ir.While):
        names = (s.loop,) if isinstance(s, ir.For) else s.loops
    suffix = "again" if last is None else "back"
    new = tuple(inner.making.names.fresh(f"{n}_{suffix}") for n in names)
    if not isinstance(s, ir.While):
        inner.indices |= {n: (m, last) for n, m in zip(names, new, strict=True)}
    return new


def _like(s: Loop, loops: tuple[str, ...], extent: ir.Expr | None, body: list[ir.Stmt]) -> ir.Stmt:
    """Returns a loop over the iterations of `s` with other names and another body.

    A while loop becomes a loop over the number of iterations that it has counted.
    """
    if isinstance(s, ir.ForActive):
        return replace(s, loops=loops, body=tuple(body))
    assert extent is not None
    return ir.For(loops[0], extent, tuple(body), s.where)


def _kept_type(dtype: ir.DType) -> ir.DType:
    return ir.DType.i32 if dtype is ir.DType.bool_ else dtype


def _as_kept(e: ir.Expr) -> ir.Expr:
    return cast(e, _kept_type(e.dtype))


def _from_kept(e: ir.Expr, dtype: ir.DType) -> ir.Expr:
    return e if e.dtype is dtype else compare("ne", e, const(0, e.dtype))
