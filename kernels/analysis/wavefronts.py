"""Loop skewing for wavefronts: sweeps (nests of two sequential loops) and their legal reorderings.

Skewing adds `skew` times the outer index to the inner one (Wolf and Lam, A loop transformation theory and an algorithm to maximize
parallelism, IEEE TPDS 2, 1991). Afterwards no iteration depends on one with a larger index along either loop. So rectangular tiles
may run diagonal by diagonal, and all tiles of a diagonal at once. Inside of a tile, iterations run in the order of the skewed inner
index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir import kernel as ir
from ..ir.affine import Affine, combine, to_affine, unclamped
from ..ir.body import FAR, Closure, Reason
from ..ir.domain import Loop
from ..ir.walk import Renaming, children, local_changed, nested_statements, walk
from .accesses import analyse
from .conflicts import crosses, elements, meet_at
from .inner_ranges import sets_first

MOST_SKEW = 4  # tiles with a larger skew are hardly more than corners


@dataclass(frozen=True)
class Sweep:
    """Sweep: a nest of a counting loop `outer`, 0 <= i < `extent`, and a loop `inner`.

    An iteration of `outer` runs `before`, which sets locals, and then `inner`.
    `has_chain`: an iteration of `inner` depends on earlier iterations of the same run of `inner`.
    """

    outer: str
    extent: int
    before: tuple[ir.SetLocal, ...]
    inner: ir.For
    skew: int
    has_chain: bool

    @property
    def inner_extent(self) -> Affine:
        found = _inner_extent(self.before, self.inner)
        assert found is not None
        return found

    @property
    def width(self) -> int:
        """Number of distinct skewed inner indices."""
        x = self.inner_extent
        ends = (0, self.extent - 1)
        return max(0, *(x.const + (x.coefficient(self.outer) + self.skew) * i for i in ends))


def sweep_at(body: Sequence[ir.Stmt], k: int) -> tuple[Sweep, int] | None:
    """Returns the sweep that begins with statement `k`, and its number of statements; None if there is none.

    A sweep is a counting while loop around a `for` whose extent is affine in the counter. Its iterations may be reordered.
    """
    found = _counted(body, k)
    if found is None:
        return None
    outer, extent, inside, n = found
    *before, inner = inside or (None,)
    if not isinstance(inner, ir.For) or not all(isinstance(s, ir.SetLocal) for s in before):
        return None
    others = [s for j, s in enumerate(body) if not k <= j < k + n]
    sets = tuple(s for s in before if isinstance(s, ir.SetLocal))
    if not _is_private(sets, inner, others):
        return None
    length = _inner_extent(sets, inner)
    if length is None or extent < 2 or {name for name, _ in length.terms} - {outer}:
        return None
    made = _skewed(Sweep(outer, extent, sets, inner, 0, False), length)
    return None if made is None else (made, n)


def _counted(body: Sequence[ir.Stmt], k: int) -> tuple[str, int, tuple[ir.Stmt, ...], int] | None:
    """Returns the counting loop at statement `k`; None if there is no such loop.

    The loop is its index, extent, statements, and the number of statements that it replaces.
    """
    match tuple(body[k : k + 2]):
        case (
            ir.SetLocal(name, ir.Const(value=0, dtype=dtype)),
            ir.While(ir.Compare("lt", ir.Local(name=tested), ir.Const(value=most)), inside),
        ) if name == tested and inside and dtype.is_index:
            *rest, last = inside
            counts = isinstance(last, ir.UpdateLocal) and (last.name, last.op) == (name, "add")
            one = isinstance(last, ir.UpdateLocal) and isinstance(last.value, ir.Const)
            if not counts or not one or last.value.value != 1:  # type: ignore[union-attr]
                return None
            if any(local_changed(s) == name for s in nested_statements(tuple(rest))):
                return None
            behind = [s for s in body[k + 2 :] if name in _mentioned((s,))]
            if behind:
                return None
            index = ir.LoopIndex(f"{name}@sweep", ir.DType.i64)
            renaming = Renaming(locals={name: index})
            return index.loop, int(most), tuple(renaming.apply_stmt(s) for s in rest), 2
    return None


def _mentioned(body: tuple[ir.Stmt, ...]) -> set[str]:
    found = set[str]()
    for s in nested_statements(body):
        found.add(local_changed(s))
        for e in children(s):
            found |= {x.name for x in walk(e) if isinstance(x, ir.Local | ir.LocalElement)}
    return found - {""}


def _is_private(before: tuple[ir.SetLocal, ...], inner: ir.For, others: Sequence[ir.Stmt]) -> bool:
    """True if no local carries a value from one iteration of the nest to another, or out of the nest."""
    inside = list(nested_statements(inner.body))
    if any(isinstance(s, ir.Print | ir.Assert | ir.LocalArray | ir.SetElement) for s in inside):
        return False
    around = {s.name for s in before}
    own = {s.name for s in inner.body if isinstance(s, ir.SetLocal)}
    changed = {local_changed(s) for s in inside} - {""}
    elsewhere = _mentioned(tuple(others))
    if changed - own or own & around or (own | around) & elsewhere or len(around) != len(before):
        return False
    if any(isinstance(x, ir.Load) for s in before for x in walk(s.value)):
        return False
    known = set[str]()
    for s in before:
        if _mentioned((s,)) - {s.name} - known:
            return False
        known.add(s.name)
    return not (_mentioned((inner,)) - own - around) and sets_first(inner.body, own)


def _inner_extent(before: tuple[ir.SetLocal, ...], inner: ir.For) -> Affine | None:
    known: dict[str, ir.Expr] = {}
    for s in before:
        known[s.name] = Renaming(locals=known).apply(s.value)
    extent = unclamped(Renaming(locals=known).apply(inner.extent))
    return None if any(isinstance(x, ir.Param) for x in walk(extent)) else to_affine(extent)


def _skewed(sweep: Sweep, length: Affine) -> Sweep | None:
    """Returns the sweep with the least skew that makes tiling legal; None if no skew up to MOST_SKEW does."""
    ends = (length.const, length.const + length.coefficient(sweep.outer) * (sweep.extent - 1))
    loops = (
        Loop(sweep.outer, sweep.extent, False),
        Loop(sweep.inner.loop, max(1, *ends), False),
    )
    reason = Reason(Closure.ORDER, "", ir.NOWHERE)
    sites = analyse((*sweep.before, *sweep.inner.body), loops, reason).sites
    inside = combine([(1, Affine(0, ((sweep.inner.loop, 1),))), (-1, replace(length, const=0))])

    bound = (inside, -FAR, length.const)
    inner = [replace(s, guard=replace(s.guard, bounds=(*s.guard.bounds, bound))) for s in sites]
    pairs = list(
        dict.fromkeys(
            (elements(a, loops), elements(b, loops))
            for a in inner
            for b in inner
            if a.state == b.state and (a.writes or b.writes)
        )
    )
    for skew in range(MOST_SKEW + 1):
        if not any(crosses(a, b, loops, skew) for a, b in pairs):
            has_chain = any(meet_at(a, b, loops, 1) for a, b in pairs)
            return replace(sweep, skew=skew, has_chain=has_chain)
    return None
