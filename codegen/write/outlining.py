"""Outlining of non-affine (closed) bodies: as functions of their own they can have compiler flags of their own.

Compilers must not change the width of written vectors, since the bound relies on it. Only bodies
that no decision vectorised are left to the compiler's vectoriser.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..loops.ir import Alone, Barrier, InBlocks, Late, Loop, Node, phases_of
from ..text import csyntax as c
from ..text.free_variables import identifiers, parameters, without_unused
from ..text.types import type_name
from .emission import Emission

_TEAM = (c.Id("tid"), c.Id("n_threads"))


def is_closed(scene: Emission, node: Node) -> bool:
    """True if a node consists of bodies of statements only, without a barrier."""
    phases = list(phases_of(node))
    return (
        bool(phases)
        and _is_plain(node)
        and all(not scene.plan.tasks[p.task].task.is_structured for p in phases)
        and not any(scene.plan.tasks[p.task].is_of_team for p in phases)
    )


def _is_plain(node: Node) -> bool:
    if isinstance(node, Loop):
        return all(map(_is_plain, node.children))
    return not isinstance(node, Barrier | Late | Alone | InBlocks)


def outlined(
    name: str, body: tuple[c.CStmt, ...], scene: Emission, around: Iterable[c.CExpr]
) -> tuple[c.Function, c.RunClosed]:
    """Returns a C function with this body, and its call; `around`: variables of the loops around the body.

    The body has no barrier, so pointers to its arrays are `restrict`.
    """
    body = without_unused(body)
    used, stored = identifiers(body)
    parts = (x for pair in scene.partitions.values() for x in pair)
    indices = dict.fromkeys(
        x.name for x in (*_TEAM, *parts, *around) if isinstance(x, c.Id) and x.name in used
    )
    named = (
        *parameters(scene.plan.problem, body, dict(scene.w.names)),
        *(
            c.Parameter(
                f"{'' if b.name in stored or b in scene.counters else 'const '}{type_name(b.dtype, 0)} *",
                b.name,
                "" if b in scene.counters else "restrict ",
            )
            for b in scene.opened
            if b.name in used
        ),
        *(c.Parameter("const long ", x) for x in indices),
    )
    arrays = tuple(p.name for p in named if p.restrict and p.name in stored)
    call = c.RunClosed(name, tuple(c.Id(p.name) for p in named), arrays)
    return c.Function(name, named, body, False, is_closed=True), call


def has_loop(body: tuple[c.CStmt, ...]) -> bool:
    """True if the statements contain a loop, which a compiler could vectorise."""
    for s in body:
        match s:
            case c.For():
                return True
            case c.Scope(inner) | c.While(_, inner) if has_loop(inner):
                return True
            case c.If(_, then, orelse) if has_loop((*then, *orelse)):
                return True
    return False
