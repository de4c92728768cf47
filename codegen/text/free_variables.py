"""Free variables of a launch's function: its identifiers, the parameters that they need, and its unused constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...kernels.ir.task import Problem
from . import csyntax as c
from .types import SCALAR_TYPES


def parameters(
    problem: Problem,
    body: tuple[c.CStmt, ...],
    named: dict[str, str],
    restrict: str = "restrict ",
) -> tuple[c.Parameter, ...]:
    """Returns the parameters that a launch's body names: arrays, scalars, workspace, and outer (time) steps.

    Arrays that the body does not write are const. `named`: C identifiers by name.
    """
    names, stored = identifiers(body)
    found = []
    for a in problem.arrays:
        name = named[a.name]
        if name in names:
            const = "" if name in stored else "const "
            found.append(c.Parameter(f"{const}{SCALAR_TYPES[a.dtype.name]} *", name, restrict))
    found += [
        c.Parameter(f"{SCALAR_TYPES[s.dtype.name]} ", named[s.name])
        for s in problem.scalars
        if named[s.name] in names
    ]
    if "workspace" in names:
        found.append(c.Parameter("char *", "workspace", restrict))
    steps = (named.get(r.index, "") for r in problem.repeats)
    found += [c.Parameter("long ", name) for name in steps if name in names]
    return tuple(found)


def thread_parameters(
    problem: Problem,
    body: tuple[c.CStmt, ...],
    named: dict[str, str],
    restrict: str = "restrict ",
) -> tuple[c.Parameter, ...]:
    """Returns the parameters that the code of each thread names.

    Only arrays that no thread writes are `restrict`.
    So compilers learn that stores elsewhere do not change these arrays, and hoist loads that every iteration makes. In other arrays
    a thread reads values that other threads wrote. A function of its own is needed: compilers do not pass facts on a function's
    pointers to a region of threads in it.
    """
    return tuple(
        p if p.type.startswith("const ") else replace(p, restrict="")
        for p in parameters(problem, body, named, restrict)
    )


def threads_meet(body: tuple[c.CStmt | c.CExpr | int, ...]) -> bool:
    """True if the threads synchronise in a body, so that later code may read values that other threads wrote."""
    waiting: list[Any] = [body]
    while waiting:
        x = waiting.pop()
        if isinstance(x, c.Barrier | c.While):
            return True
        waiting += x if isinstance(x, tuple) else c.parts(x)
    return False


def identifiers(body: tuple[c.CStmt | c.CExpr | int, ...]) -> tuple[set[str], set[str]]:
    """Returns the identifiers that occur in a body, and the arrays among them that are stored to."""
    seen: set[str] = set()
    stored: set[str] = set()
    waiting: list[Any] = [body]
    while waiting:
        x = waiting.pop()
        kind = type(x)
        if kind is c.Id:
            seen.add(x.name)
        elif kind is tuple:
            waiting += x
        else:
            if kind is c.Assign or kind is c.Evaluate or kind is c.RunClosed:
                stored |= _stored(x)
            waiting += c.parts(x)
    return seen, stored


def _stored(x: c.Assign | c.Evaluate | c.RunClosed) -> set[str]:
    """Returns the arrays that a statement itself stores to, not the statements inside it."""
    match x:
        case c.RunClosed(stores=stores):
            return set(stores)
        case c.Assign(c.Index(c.Id(name))):
            return {name}
        case c.Assign(_, c.Call(_, (c.Un("&", c.Index(c.Id(name))), *_))):
            return {name}  # an atomic update that gives the old value
        case c.Evaluate(c.Call(f, (c.Un("&", c.Index(c.Id(name))), *_))) if f != c.PREFETCH:
            return {name}
    return set()


def without_unused(body: tuple[c.CStmt, ...]) -> tuple[c.CStmt, ...]:
    """Returns the body without unused constants: values in registers need no index, and compilers warn.

    A constant that calls a function stays, since the call may have side effects.
    """
    return _kept_and_used(body)[0]


def _kept_and_used(body: tuple[c.CStmt, ...]) -> tuple[tuple[c.CStmt, ...], set[str]]:
    """Returns the body without unused constants, and the identifiers that occur in the rest.

    It visits each statement once, at any depth.
    """
    kept: list[c.CStmt] = []
    used: set[str] = set()
    for statement in reversed(body):
        match statement:
            case c.Declare(_, name, init, None, True) if name not in used and not _calls(init):
                continue
            case c.For(_, lo, hi, step, inner):
                inner, names = _kept_and_used(inner)
                statement = replace(statement, body=inner)
                used |= names | identifiers((lo, hi, step))[0]
            case c.Scope(inner):
                inner, names = _kept_and_used(inner)
                statement = c.Scope(inner)
                used |= names
            case c.While(condition, inner):
                inner, names = _kept_and_used(inner)
                statement = c.While(condition, inner)
                used |= names | identifiers((condition,))[0]
            case c.If(condition, then, orelse):
                then, names = _kept_and_used(then)
                orelse, others = _kept_and_used(orelse)
                statement = c.If(condition, then, orelse)
                used |= names | others | identifiers((condition,))[0]
            case _:
                used |= identifiers((statement,))[0]
        kept.append(statement)
    return tuple(reversed(kept)), used


def _calls(x: Any) -> bool:
    if isinstance(x, tuple):
        return any(map(_calls, x))
    return isinstance(x, c.Call) or any(map(_calls, c.parts(x)))
