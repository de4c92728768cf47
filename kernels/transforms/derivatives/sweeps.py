"""Forward and reverse sweep of statements.

The forward sweep gives each value of a local a name of its own (a version), and names what the reverse sweep reads again. Each
version has an adjoint, which starts at zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...ir.kernel import (
    Append,
    DType,
    Expr,
    For,
    ForActive,
    If,
    Load,
    Local,
    LocalArray,
    LocalElement,
    Location,
    LoopIndex,
    SetElement,
    SetLocal,
    Stmt,
    Store,
    Update,
    UpdateLocal,
    While,
)
from ...ir.simplify import binary, const
from ...ir.walk import local_changed
from .activity import NeedsOldElementError
from .body import SweepBody, backwards
from .flow import define, flow, inlined, leaf
from .loops import sweep_loop
from .pruning import names_in


def sweep(body: SweepBody, statements: tuple[Stmt, ...]) -> None:
    """Adds statements to both sweeps of a body."""
    for s in statements:
        _statement(body, s, is_top=False)


def sweep_kernel(body: SweepBody, statements: tuple[Stmt, ...]) -> None:
    """Adds the statements of a kernel, whose loops at top level are parallel, to both sweeps of its body."""
    for s in statements:
        _statement(body, s, is_top=True)


def _statement(body: SweepBody, s: Stmt, *, is_top: bool) -> None:
    match s:
        case SetLocal():
            define(body, s.name, body.renamed(s.value), s.where, s.name)
        case UpdateLocal():
            _update_local(body, s)
        case LocalArray():
            _local_array(body, s)
        case SetElement():
            _set_element(body, s)
        case Store() if body.making.activity.stores(s):
            _store(body, s)
        case Update():
            _update(body, s)
        case If():
            _if(body, s)
        case For() | ForActive() | While():
            sweep_loop(body, s, sweep, is_top=is_top)
        case Append():
            sentence = "the number of an appended cell is used"
            body.set_unknown(s.result, DType.i32, sentence, s.where)


# --- locals


def _update_local(body: SweepBody, s: UpdateLocal) -> None:
    value, now = body.renamed(s.value), body.now(s.name)
    if s.name not in body.sums:
        define(body, s.name, binary(s.op, now, value), s.where, s.name)
    elif not body.has_reverse:
        body.forward.append(UpdateLocal(now.name, s.op, value, s.where))
    elif body.is_active(value) and now.name in body.making.active:
        value = inlined(body, value, s.where)
        body.then(flow(body, value, body.adjoint(now.name), s.where))


def _local_array(body: SweepBody, s: LocalArray) -> None:
    """Adds a local array. Its elements are changed in place, and the reverse sweep restores them."""
    making, value = body.making, body.renamed(s.value)
    is_active = s.name in making.activity.active
    value = inlined(body, value, s.where) if is_active else value
    version = body.version(s.name, value.dtype, s.name)
    making.extents[version] = s.extent
    body.forward.append(LocalArray(version, s.extent, value, s.where))
    if not is_active:
        return
    making.active.add(version)
    if body.has_reverse and body.is_active(value):
        loop, total = making.names.fresh("c"), body.version("g", value.dtype)
        adjoint = LocalElement(body.adjoint(version).name, LoopIndex(loop), value.dtype)
        add = UpdateLocal(total, "add", adjoint, s.where)
        zero = SetLocal(total, const(0, value.dtype), s.where)
        summed = For(loop, const(s.extent, DType.i64), (add,), s.where)
        flowing = flow(body, value, Local(total, value.dtype), s.where)
        body.then([zero, summed, *flowing])


def _set_element(body: SweepBody, s: SetElement) -> None:
    version, value = body.versions[s.name], body.renamed(s.value)
    if not body.has_reverse:
        body.forward.append(SetElement(version, body.renamed(s.index), value, s.where))
        return
    index, dtype = leaf(body, body.renamed(s.index), s.where), value.dtype
    is_active = version in body.making.active
    value = inlined(body, value, s.where) if is_active else value
    old = body.version("old", dtype)
    body.forward.append(SetLocal(old, LocalElement(version, index, dtype), s.where))
    body.forward.append(SetElement(version, index, value, s.where))
    back: list[Stmt] = [SetElement(version, index, Local(old, dtype), s.where)]
    if is_active:
        adjoint, taken = body.adjoint(version).name, body.version("t", dtype)
        back.append(SetLocal(taken, LocalElement(adjoint, index, dtype), s.where))
        back.append(SetElement(adjoint, index, const(0, dtype), s.where))
        back += flow(body, value, Local(taken, dtype), s.where)
    body.then(back)


# --- arrays


def _store(body: SweepBody, s: Store) -> None:
    gradient, value = body.making.gradients[s.array], body.renamed(s.value)
    indices = tuple(map(body.renamed, s.indices))
    clear = Store(gradient, indices, const(0, value.dtype), s.where)
    if not body.is_active(value):
        body.then([clear])
        return
    take, adding = _taken(body, s, value, indices)
    body.then([take, clear, *adding])


def _taken(
    body: SweepBody, s: Store | Update, value: Expr, indices: tuple[Expr, ...]
) -> tuple[Stmt, list[Stmt]]:
    """Reads the gradient of an element into a local, and adds it to what a value depends on."""
    value = inlined(body, value, s.where)
    taken = body.version("t", value.dtype)
    element = Load(body.making.gradients[s.array], indices, value.dtype)
    adding = flow(body, value, Local(taken, value.dtype), s.where)
    return SetLocal(taken, element, s.where), adding


def _update(body: SweepBody, s: Update) -> None:
    value, making = body.renamed(s.value), body.making
    if s.result:
        sentence = f"the old value of an update of {s.array} is used"
        body.set_unknown(s.result, value.dtype, sentence, s.where)
        if s.result in making.activity.active:
            raise NeedsOldElementError.of_old_value(s)
    if not making.activity.stores(s) or not body.has_reverse:
        return
    indices = tuple(map(body.renamed, s.indices))
    if s.op == "mul" and not body.is_active(value):
        body.then([Update(making.gradients[s.array], indices, "mul", value, s.where)])
    elif s.op != "add":
        raise NeedsOldElementError.of_update(s)
    elif body.is_active(value):
        take, adding = _taken(body, s, value, indices)
        body.then([take, *adding])


# --- branches


@dataclass(frozen=True)
class _Branch:
    """The sweeps of a branch, and the versions of locals at its end."""

    forward: list[Stmt]
    reverse: list[list[Stmt]]
    versions: dict[str, str]


def _if(body: SweepBody, s: If) -> None:
    condition = leaf(body, body.renamed(s.condition), s.where)
    before = dict(body.versions)
    branches = [_branch(body, block, before) for block in (s.then, s.orelse)]
    _merge(body, before, branches, s.where)
    for branch in branches:
        _hoist(body, branch)
    then, orelse = branches
    body.forward.append(If(condition, tuple(then.forward), tuple(orelse.forward), s.where))
    back = tuple(backwards(then.reverse)), tuple(backwards(orelse.reverse))
    if any(back):
        body.then([If(condition, *back, s.where)])


def _branch(body: SweepBody, block: tuple[Stmt, ...], before: dict[str, str]) -> _Branch:
    body.versions = dict(before)
    with body.collected() as (forward, reverse):
        sweep(body, block)
    return _Branch(forward, reverse, body.versions)


def _merge(
    body: SweepBody, before: dict[str, str], branches: list[_Branch], where: Location
) -> None:
    """Gives locals that a branch changes a version behind both."""
    body.versions, making = dict(before), body.making
    ends: list[list[Stmt]] = [[] for _ in branches]
    for name, old in before.items():
        last = [b.versions[name] for b in branches]
        if all(v == old for v in last):
            continue
        dtype = making.types[old]
        merged = Local(body.version(name, dtype, name), dtype)
        body.forward.append(SetLocal(merged.name, Local(old, dtype), where))
        for v, branch, end in zip(last, branches, ends, strict=True):
            if v in making.unknown:
                making.unknown[merged.name] = making.unknown[v]
            if v != old:
                branch.forward.append(SetLocal(merged.name, Local(v, dtype), where))
            if v in making.active:
                making.active.add(merged.name)
                if body.has_reverse:
                    end.append(body.added(v, body.adjoint(merged.name), where))
    for branch, end in zip(branches, ends, strict=True):
        branch.reverse.append(end)


def _hoist(body: SweepBody, branch: _Branch) -> None:
    """Declares in front of the body what a branch sets and its reverse sweep reads."""
    read = names_in(backwards(branch.reverse))
    for s in _outside_loops(branch.forward):
        if isinstance(s, SetLocal | LocalArray) and local_changed(s) in read:
            body.hoist(local_changed(s))


def _outside_loops(statements: list[Stmt]) -> Iterator[Stmt]:
    for s in statements:
        yield s
        if isinstance(s, If):
            yield from _outside_loops([*s.then, *s.orelse])
