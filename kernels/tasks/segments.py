"""Segments of a call: groups of top-level statements on the sequence's arrays; no two groups share a local."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir import walk
from ..ir.kernel import Assert, Expr, For, ForActive, KernelIR, SetLocal, Stmt
from .distribute import unique_loops

Statements = tuple[Stmt, ...]
_MOST_PARTS = 256  # of a value that is repeated where it is read


def in_terms_of_sequence(
    body: Sequence[Stmt], ir: KernelIR, arrays: Mapping[str, str], scalars: Mapping[str, Expr]
) -> Statements:
    """Returns statements of a kernel on the arrays and scalars of the sequence, with unique loops.

    Assertions are left out.
    """
    params: dict[str, Expr] = {p.name: walk.coerced(scalars[p.name], p.dtype) for p in ir.scalars}
    renaming = walk.Renaming(arrays=arrays, params=params)
    return unique_loops(tuple(renaming.apply_stmt(s) for s in walk.without(tuple(body), Assert)))


def segments_of(body: Statements) -> list[Statements]:
    """Returns statements in consecutive groups, so that no two groups share a local. Names of loops are unique.

    Locals that are set once from scalars are substituted, so they connect no groups.
    """
    body = _without_plain_locals(body)
    shared: set[str] = set()
    for s in body:
        if not isinstance(s, For | ForActive):
            shared |= _mentioned(s)
    last = {name: k for k, s in enumerate(body) for name in _mentioned(s) & shared}
    segments: list[Statements] = []
    first, end = 0, -1
    for k, s in enumerate(body):
        end = max([end, k, *(last[name] for name in _mentioned(s) & shared)])
        if end == k:
            segments.append(body[first : k + 1])
            first = k + 1
    return segments


def _without_plain_locals(body: Statements) -> Statements:
    """Returns statements with top-level locals substituted that are set once, from scalars alone.

    A value that would grow large is kept in its local: each read would repeat it.
    """
    every = list(walk.nested_statements(body))
    n_set: dict[str, int] = {}
    for s in every:
        n_set[walk.local_changed(s)] = n_set.get(walk.local_changed(s), 0) + 1
    result: list[Stmt] = []
    plain: dict[str, Expr] = {}
    for s in body:
        s = walk.Renaming(locals=plain).apply_stmt(s)
        if isinstance(s, SetLocal) and n_set[s.name] == 1 and _is_plain(s.value):
            plain[s.name] = s.value
        else:
            result.append(s)
    return tuple(result)


def _is_plain(value: Expr) -> bool:
    """True if a value is computed from scalars alone, by few operations."""
    return walk.size(value) <= _MOST_PARTS and not walk.loads(value) and not walk.locals_read(value)


def _mentioned(s: Stmt) -> set[str]:
    """Returns the locals that a statement, or one nested in it, sets, updates or reads."""
    names: set[str] = set()
    for x in walk.nested_statements((s,)):
        names |= {walk.local_changed(x)} - {""}
        for e in walk.children(x):
            names.update(walk.locals_read(e))
    return names
