"""Forward and reverse sweep of statements, from which an adjoint kernel is made.

The forward sweep gives each value of a local a name of its own (a version), and names the values that the reverse sweep reads
again. Each version has an adjoint, which starts at zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...ir import kernel as ir
from ...ir.simplify import binary, const
from ...ir.walk import local_changed
from .activity import NeedsOldElementError
from .body import SweepBody, backwards
from .flow import define, flow, inlined, leaf
from .loops import sweep_loop
from .pruning import names_in


def sweep(body: SweepBody, statements: tuple[ir.Stmt, ...]) -> None:
    """Adds statements to both sweeps of a body."""
    for s in statements:
        _statement(body, s, is_top=False)


def sweep_kernel(body: SweepBody, statements: tuple[ir.Stmt, ...]) -> None:
    """Adds the statements of a kernel to both sweeps of its body. Its loops at top level are parallel."""
    for s in statements:
        _statement(body, s, is_top=True)


def _statement(body: SweepBody, s: ir.Stmt, *, is_top: bool) -> None:
    match s:
        case ir.SetLocal():
            define(body, s.name, body.renamed(s.value), s.where, s.name)
        case ir.UpdateLocal():
            _update_local(body, s)
        case ir.LocalArray():
            _local_array(body, s)
        case ir.SetElement():
            _set_element(body, s)
        case ir.Store() if body.making.activity.stores(s):
            _store(body, s)
        case ir.Update():
            _update(body, s)
        case ir.If():
            _if(body, s)
        case ir.For() | ir.ForActive() | ir.While():
            sweep_loop(body, s, sweep, is_top=is_top)
        case ir.Append():
            sentence = "the number of an appended cell is used"
            body.set_unknown(s.result, ir.DType.i32, sentence, s.where)


# --- locals


def _update_local(body: SweepBody, s: ir.UpdateLocal) -> None:
    value, now = body.renamed(s.value), body.now(s.name)
    if s.name not in body.sums:
        define(body, s.name, binary(s.op, now, value), s.where, s.name)
    elif not body.has_reverse:
        body.forward.append(ir.UpdateLocal(now.name, s.op, value, s.where))
    elif body.is_active(value) and now.name in body.making.active:
        value = inlined(body, value, s.where)
        body.then(flow(body, value, body.adjoint(now.name), s.where))


def _local_array(body: SweepBody, s: ir.LocalArray) -> None:
    """Adds the declaration of a local array to both sweeps.

    Its elements are changed in place, and the reverse sweep restores them.
    """
    making, value = body.making, body.renamed(s.value)
    is_active = s.name in making.activity.active
    value = inlined(body, value, s.where) if is_active else value
    version = body.version(s.name, value.dtype, s.name)
    making.extents[version] = s.extent
    body.forward.append(ir.LocalArray(version, s.extent, value, s.where))
    if not is_active:
        return
    making.active.add(version)
    if body.has_reverse and body.is_active(value):
        loop, total = making.names.fresh("c"), body.version("g", value.dtype)
        adjoint = ir.LocalElement(body.adjoint(version).name, ir.LoopIndex(loop), value.dtype)
        add = ir.UpdateLocal(total, "add", adjoint, s.where)
        zero = ir.SetLocal(total, const(0, value.dtype), s.where)
        summed = ir.For(loop, const(s.extent, ir.DType.i64), (add,), s.where)
        flowing = flow(body, value, ir.Local(total, value.dtype), s.where)
        body.then([zero, summed, *flowing])


def _set_element(body: SweepBody, s: ir.SetElement) -> None:
    version, value = body.versions[s.name], body.renamed(s.value)
    if not body.has_reverse:
        body.forward.append(ir.SetElement(version, body.renamed(s.index), value, s.where))
        return
    index, dtype = leaf(body, body.renamed(s.index), s.where), value.dtype
    is_active = version in body.making.active
    value = inlined(body, value, s.where) if is_active else value
    old = body.version("old", dtype)
    body.forward.append(ir.SetLocal(old, ir.LocalElement(version, index, dtype), s.where))
    body.forward.append(ir.SetElement(version, index, value, s.where))
    back: list[ir.Stmt] = [ir.SetElement(version, index, ir.Local(old, dtype), s.where)]
    if is_active:
        adjoint, taken = body.adjoint(version).name, body.version("t", dtype)
        back.append(ir.SetLocal(taken, ir.LocalElement(adjoint, index, dtype), s.where))
        back.append(ir.SetElement(adjoint, index, const(0, dtype), s.where))
        back += flow(body, value, ir.Local(taken, dtype), s.where)
    body.then(back)


# --- arrays


def _store(body: SweepBody, s: ir.Store) -> None:
    gradient, value = body.making.gradients[s.array], body.renamed(s.value)
    indices = tuple(map(body.renamed, s.indices))
    clear = ir.Store(gradient, indices, const(0, value.dtype), s.where)
    if not body.is_active(value):
        body.then([clear])
        return
    take, adding = _taken(body, s, value, indices)
    body.then([take, clear, *adding])


def _taken(
    body: SweepBody, s: ir.Store | ir.Update, value: ir.Expr, indices: tuple[ir.Expr, ...]
) -> tuple[ir.Stmt, list[ir.Stmt]]:
    """Returns the statement that reads the gradient of a written element, and those that pass it on.

    The first sets a local. The others add the local to the adjoints on which `value` depends.
    """
    value = inlined(body, value, s.where)
    taken = body.version("t", value.dtype)
    element = ir.Load(body.making.gradients[s.array], indices, value.dtype)
    adding = flow(body, value, ir.Local(taken, value.dtype), s.where)
    return ir.SetLocal(taken, element, s.where), adding


def _update(body: SweepBody, s: ir.Update) -> None:
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
        body.then([ir.Update(making.gradients[s.array], indices, "mul", value, s.where)])
    elif s.op != "add":
        raise NeedsOldElementError.of_update(s)
    elif body.is_active(value):
        take, adding = _taken(body, s, value, indices)
        body.then([take, *adding])


# --- branches


@dataclass(frozen=True)
class _Branch:
    """Sweeps of one side of a branch, and the versions of locals at its end."""

    forward: list[ir.Stmt]
    reverse: list[list[ir.Stmt]]
    versions: dict[str, str]


def _if(body: SweepBody, s: ir.If) -> None:
    condition = leaf(body, body.renamed(s.condition), s.where)
    before = dict(body.versions)
    branches = [_branch(body, block, before) for block in (s.then, s.orelse)]
    _merge(body, before, branches, s.where)
    for branch in branches:
        _hoist(body, branch)
    then, orelse = branches
    body.forward.append(ir.If(condition, tuple(then.forward), tuple(orelse.forward), s.where))
    back = tuple(backwards(then.reverse)), tuple(backwards(orelse.reverse))
    if any(back):
        body.then([ir.If(condition, *back, s.where)])


def _branch(body: SweepBody, block: tuple[ir.Stmt, ...], before: dict[str, str]) -> _Branch:
    body.versions = dict(before)
    with body.collected() as (forward, reverse):
        sweep(body, block)
    return _Branch(forward, reverse, body.versions)


def _merge(
    body: SweepBody, before: dict[str, str], branches: list[_Branch], where: ir.Location
) -> None:
    """Gives each local that a side of a branch changes one version behind the branch.

    `before`: the versions in front of the branch.
    """
    body.versions, making = dict(before), body.making
    ends: list[list[ir.Stmt]] = [[] for _ in branches]
    for name, old in before.items():
        last = [b.versions[name] for b in branches]
        if all(v == old for v in last):
            continue
        dtype = making.types[old]
        merged = ir.Local(body.version(name, dtype, name), dtype)
        body.forward.append(ir.SetLocal(merged.name, ir.Local(old, dtype), where))
        for v, branch, end in zip(last, branches, ends, strict=True):
            if v in making.unknown:
                making.unknown[merged.name] = making.unknown[v]
            if v != old:
                branch.forward.append(ir.SetLocal(merged.name, ir.Local(v, dtype), where))
            if v in making.active:
                making.active.add(merged.name)
                if body.has_reverse:
                    end.append(body.added(v, body.adjoint(merged.name), where))
    for branch, end in zip(branches, ends, strict=True):
        branch.reverse.append(end)


def _hoist(body: SweepBody, branch: _Branch) -> None:
    """Declares in front of the body the locals that a side of a branch sets and its reverse sweep reads."""
    read = names_in(backwards(branch.reverse))
    for s in _outside_loops(branch.forward):
        if isinstance(s, ir.SetLocal | ir.LocalArray) and local_changed(s) in read:
            body.hoist(local_changed(s))


def _outside_loops(statements: list[ir.Stmt]) -> Iterator[ir.Stmt]:
    for s in statements:
        yield s
        if isinstance(s, ir.If):
            yield from _outside_loops([*s.then, *s.orelse])
