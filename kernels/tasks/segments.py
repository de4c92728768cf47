"""Segments of a call: top-level statements in terms of the sequence, grouped so that no two groups share a local."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.kernel import Assert, Expr, For, KernelIR, SetLocal, Stmt
from ..ir.walk import (
    Renaming,
    children,
    coerced,
    loads,
    local_changed,
    locals_read,
    nested_statements,
    without,
)
from .distribute import constant_extent, unique_loops


@dataclass(frozen=True)
class Segment:
    """Consecutive statements that share no locals with others. `places`: the number of each in the body that it is part of."""

    statements: tuple[Stmt, ...]
    places: tuple[int, ...]


def in_terms_of_sequence(
    body: Sequence[Stmt], ir: KernelIR, arrays: Mapping[str, str], scalars: Mapping[str, Expr]
) -> Segment:
    """Returns statements of a kernel on the arrays and scalars of the sequence, with unique loops.

    Assertions and loops that never run are left out.
    """
    params: dict[str, Expr] = {p.name: coerced(scalars[p.name], p.dtype) for p in ir.scalars}
    renaming = Renaming(arrays=arrays, params=params)
    renamed = [renaming.apply_stmt(s) for s in body]
    places = tuple(k for k, s in enumerate(renamed) if not isinstance(s, Assert) and _runs(s))
    return Segment(unique_loops(without(tuple(renamed), Assert)), places)


def _runs(s: Stmt) -> bool:
    return not isinstance(s, For) or constant_extent(s.extent) != 0


def segments_of(body: tuple[Stmt, ...]) -> list[Segment]:
    """Returns the segments of statements with unique loops."""
    return segments_in(Segment(body, tuple(range(len(body)))))


def segments_in(whole: Segment) -> list[Segment]:
    """Returns the segments of a part of a body. Locals that are set once from scalars are substituted, so they connect none."""
    kept = _without_plain_locals(whole)
    shared: set[str] = set()
    for s in kept.statements:
        if not isinstance(s, For):
            shared |= _mentioned(s)
    last = {name: k for k, s in enumerate(kept.statements) for name in _mentioned(s) & shared}
    segments: list[Segment] = []
    first, end = 0, -1
    for k, s in enumerate(kept.statements):
        end = max([end, k, *(last[name] for name in _mentioned(s) & shared)])
        if end == k:
            here = slice(first, k + 1)
            segments.append(Segment(kept.statements[here], kept.places[here]))
            first = k + 1
    return segments


def _without_plain_locals(whole: Segment) -> Segment:
    """Substitutes top-level locals that are set once, from scalars alone."""
    every = list(nested_statements(whole.statements))
    n_set: dict[str, int] = {}
    for s in every:
        n_set[local_changed(s)] = n_set.get(local_changed(s), 0) + 1
    result: list[tuple[Stmt, int]] = []
    plain: dict[str, Expr] = {}
    for s, place in zip(whole.statements, whole.places, strict=True):
        s = Renaming(locals=plain).apply_stmt(s)
        once = isinstance(s, SetLocal) and n_set[s.name] == 1
        if once and isinstance(s, SetLocal) and not loads(s.value) and not locals_read(s.value):
            plain[s.name] = s.value
        else:
            result.append((s, place))
    return Segment(tuple(s for s, _ in result), tuple(place for _, place in result))


def _mentioned(s: Stmt) -> set[str]:
    """Locals that a statement, or one nested in it, sets, updates or reads."""
    names: set[str] = set()
    for x in nested_statements((s,)):
        names |= {local_changed(x)} - {""}
        for e in children(x):
            names.update(locals_read(e))
    return names
