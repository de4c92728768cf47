"""What a function of a launch uses: identifiers, the parameters that they make, and constants that nothing uses."""

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
    """What a launch names: arrays of the sequence, scalars, workspace, and the steps around it; arrays that it does not write are
    const.
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
    """What each thread of a launch names.

    Of arrays that no thread writes, compilers learn that stores elsewhere do not change them, and load before a loop what it reads
    in every iteration; in others a thread finds what other threads wrote. In a function of its own, since they do not pass on
    what they know of a function's pointers to a region of threads in it.
    """
    return tuple(
        p if p.type.startswith("const ") else replace(p, restrict="")
        for p in parameters(problem, body, named, restrict)
    )


def threads_meet(body: tuple[c.CStmt | c.CExpr | int, ...]) -> bool:
    """Whether threads wait for one another in a body: behind it a thread reads what others wrote."""
    waiting: list[Any] = [body]
    while waiting:
        x = waiting.pop()
        if isinstance(x, c.Barrier | c.While):
            return True
        waiting += x if isinstance(x, tuple) else c.parts(x)
    return False


def identifiers(body: tuple[c.CStmt | c.CExpr | int, ...]) -> tuple[set[str], set[str]]:
    """Identifiers that occur in a body, and those of arrays that are stored to."""
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
    """The arrays that a statement itself stores to."""
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
    """The body without constants that nothing uses: what stays in registers is indexed by nothing, and compilers warn.

    Constants that call something stay: a call may do more than give a value.
    """
    return _kept_and_used(body)[0]


def _kept_and_used(body: tuple[c.CStmt, ...]) -> tuple[tuple[c.CStmt, ...], set[str]]:
    """The same, and the identifiers that occur in what is kept: each statement is looked through once, however deep it lies."""
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
