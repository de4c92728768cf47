"""Dependence test: may two accesses refer to the same element?

It solves bounded linear Diophantine systems over the loops around the accesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations_with_replacement

from ..ir.access import AccessSet, AxisMap, Guard, State
from ..ir.affine import BEYOND, Affine, Bounds, combine, constant, feasible, index_range, rename
from ..ir.body import Site
from ..ir.domain import BOX, Active, Loop


class _System:
    """Linear Diophantine system: feasible if two accesses, each in its own iteration, may touch one element."""

    def __init__(self) -> None:
        self.equations: list[Affine] = []
        self.bounds: Bounds = {}

    def side(self, prefix: str, x: AccessSet) -> list[Affine | None]:
        """Adds the loops and guards of an access, with loops renamed by `prefix`; returns its index per axis.

        The index of an axis is an affine expression, or None if it is not affine.
        The step loops of repeats keep their names: both accesses run in one step.
        """
        names = {loop.name: loop.name if loop.is_step else prefix + loop.name for loop in x.loops}
        for loop in x.loops:
            self.bounds[names[loop.name]] = (0, loop.extent - 1)
        for affine, low, high in x.guard.bounds:
            self.equal(rename(affine, names), self.fresh(prefix, low, high - 1))
        parts = x.domain.parts if isinstance(x.domain, Active) else ()
        for part in (*x.guard.residues, *parts):
            quotient = self.fresh(prefix, -BEYOND, BEYOND)
            multiple = combine([(part.modulus, quotient), (1, constant(part.remainder))])
            self.equal(rename(part.affine, names), multiple)
        return [self.axis(prefix, names, axis) for axis in x.index]

    def axis(self, prefix: str, names: dict[str, str], axis: AxisMap) -> Affine | None:
        if axis.affine is None or any(name not in names for name, _ in axis.affine.terms):
            return None
        affine = rename(axis.affine, names)
        if axis.divisor == 1:
            return affine
        extents = {name: self.bounds[name][1] + 1 for name, _ in affine.terms}
        low, high = index_range(affine, extents)
        quotient = self.fresh(prefix, low // axis.divisor, high // axis.divisor)
        rest = self.fresh(prefix, 0, axis.divisor - 1)
        self.equal(affine, combine([(axis.divisor, quotient), (1, rest)]))
        return quotient

    def fresh(self, prefix: str, low: int, high: int) -> Affine:
        name = f"{prefix}#{len(self.bounds)}"
        self.bounds[name] = (low, high)
        return Affine(0, ((name, 1),))

    def equal(self, a: Affine, b: Affine) -> None:
        self.equations.append(combine([(1, a), (-1, b)]))

    def is_feasible(self) -> bool:
        return feasible(self.equations, self.bounds)


@lru_cache(maxsize=1 << 14)  # long programs are made of few different tasks
def apart(a: AccessSet, b: AccessSet) -> bool:
    """True if two access sets (elements of one array) are proved disjoint; False without a proof."""
    system = _System()
    left, right = system.side("a:", a), system.side("b:", b)
    for x, y, one_list in zip(left, right, _through_one(a, b), strict=True):
        if x is not None and y is not None and one_list:
            system.equal(x, y)
    return not system.is_feasible()


def _through_one(a: AccessSet, b: AccessSet) -> list[bool]:
    """Returns for each axis True if both indices are elements of one index list, or neither is of any list.

    Only then are equal indices equal in memory, so only such axes give an equation.
    """
    return [x.through == y.through for x, y in zip(a.index, b.index, strict=True)]


def is_injective(
    index: tuple[AxisMap, ...], guard: Guard, loops: Sequence[Loop], around: Sequence[Loop]
) -> bool:
    """True if two iterations of `loops` are proved never to access one element; False without a proof.

    `around`: the loops inside the body around the access; each may be at any of its iterations.
    """
    here = AccessSet(BOX, (*loops, *around), index, guard)
    return not any(meet_at(here, here, loops, level) for level in _levels(loops))


def meet_in(a: AccessSet, b: AccessSet, loops: Sequence[Loop]) -> bool:
    """True if access `a` in one iteration of `loops` may touch an element of access `b` in another iteration."""
    return any(meet_at(x, y, loops, level) for level in _levels(loops) for x, y in ((a, b), (b, a)))


def elements(site: Site, loops: Sequence[Loop]) -> AccessSet:
    """Returns the elements that an access touches in all iterations of `loops` and of loops inside the body."""
    return AccessSet(BOX, (*loops, *site.loops), site.index, site.guard)


def conflicting(sites: Iterable[Site], loops: Sequence[Loop]) -> list[str]:
    """Returns names of arrays with a conflict between iterations of `loops`.

    One iteration writes an element that another one accesses.
    Both iterations are in one step of the repeats around the loops.
    """
    return in_conflict(((s.state, elements(s, loops), s.writes) for s in sites), loops)


def in_conflict(
    accesses: Iterable[tuple[State, AccessSet, bool]], loops: Sequence[Loop]
) -> list[str]:
    """Returns names of arrays with a conflict between iterations of `loops`, as `conflicting` does.

    `accesses`: triples of state (array version), access set, and True if the access writes.
    """
    by_state: dict[State, dict[tuple[AccessSet, bool], None]] = {}
    for state, touched, writes in accesses:
        by_state.setdefault(state, {})[touched, writes] = None
    return [
        state.name
        for state, found in by_state.items()
        if any(
            meet_in(a, b, loops)
            for (a, a_writes), (b, b_writes) in combinations_with_replacement(found, 2)
            if a_writes or b_writes
        )
    ]


def _levels(loops: Sequence[Loop]) -> list[int]:
    """Returns positions of the loops that have several iterations in one run: all but the step loops of repeats."""
    return [k for k, loop in enumerate(loops) if not loop.is_step]


def in_any_step(x: AccessSet) -> AccessSet:
    """Returns the elements that an access touches in any step of its repeats.

    The step may differ from that of other accesses.
    """
    names = {loop.name: f"any {loop.name}" for loop in x.loops if loop.is_step}
    if not names:
        return x
    guard = replace(
        x.guard,
        bounds=tuple((rename(a, names), low, high) for a, low, high in x.guard.bounds),
        residues=tuple(replace(r, affine=rename(r.affine, names)) for r in x.guard.residues),
    )
    return replace(
        x,
        loops=tuple(replace(loop, name=names.get(loop.name, loop.name)) for loop in x.loops),
        index=tuple(
            m if m.affine is None else replace(m, affine=rename(m.affine, names)) for m in x.index
        ),
        guard=guard,
    )


def meet_at(a: AccessSet, b: AccessSet, loops: Sequence[Loop], level: int) -> bool:
    """True if accesses `a` and `b` may touch one element with a dependence carried by the loop at `level`.

    In that loop b's index is the larger one. The indices of the common `loops` above `level` are equal.
    """
    return _meet_at(a, b, tuple(loops), level)


@lru_cache(maxsize=1 << 14)
def _meet_at(a: AccessSet, b: AccessSet, loops: tuple[Loop, ...], level: int) -> bool:
    distances = {}
    for k, loop in enumerate(loops):
        if loop.is_step:
            continue
        reach = loop.extent - 1
        distances[loop.name] = (
            (0, 0) if k < level else (1, reach) if k == level else (-reach, reach)
        )
    if _differ_in_an_axis(a, b, distances, loops[level].name):
        return False
    return _meet(a, b, distances, ())


def _differ_in_an_axis(
    a: AccessSet, b: AccessSet, distances: Mapping[str, tuple[int, int]], carrier: str
) -> bool:
    """True if an axis alone proves that two accesses touch no common element, as `x[i, k]` and `x[i, k - 1]` for loop `i`.

    Its indices are equal functions of the `carrier` and of loops at distance 0, but for a constant. Most pairs of accesses in
    long bodies are decided so, without a system of equations.
    """
    low, high = distances[carrier]
    for x, y in zip(a.index, b.index, strict=True):
        p, q = x.plain, y.plain
        if p is None or q is None or p.terms != q.terms:
            continue
        factor = p.coefficient(carrier)
        others = (name for name, _ in p.terms if name != carrier)
        if factor and all(distances.get(n) == (0, 0) for n in others):
            steps, rest = divmod(p.const - q.const, factor)
            if rest or not low <= steps <= high:
                return True
    return False


def crosses(a: AccessSet, b: AccessSet, loops: tuple[Loop, Loop], skew: int) -> bool:
    """True if a dependence from access `a` to access `b` may make skewed execution of two nested loops illegal.

    Then `a` touches an element in an earlier iteration of the outer loop than `b`. Its skewed inner index (the inner index plus
    `skew` times the outer index) is not smaller than that of `b`.
    """
    outer, inner = loops
    reach, across = outer.extent - 1, inner.extent - 1
    distances = {outer.name: (1, reach), inner.name: (-across, across)}
    # across + skew * along <= 0; no loop has the name of what is missing from 0
    terms = (("d:" + inner.name, 1), ("d:" + outer.name, skew), ("d#", 1))
    equation = combine([(k, Affine(0, ((name, 1),))) for name, k in terms])
    return reach > 0 and _meet(a, b, distances, (equation,), {"d#": (0, across)})


def _meet(
    a: AccessSet,
    b: AccessSet,
    distances: Mapping[str, tuple[int, int]],
    equations: Sequence[Affine],
    more: Mapping[str, tuple[int, int]] | None = None,
) -> bool:
    """True if two accesses may touch one element at these distances between their iterations.

    `distances`: for each common loop, the least and greatest distance. `equations` constrain the distances, variables `d:LOOP`.
    `more`: bounds of further variables.
    """
    system = _System()
    system.bounds.update(more or {})
    system.equations += equations
    steps = {}
    for name, bounds in distances.items():
        system.bounds["d:" + name] = bounds
        steps["b:" + name] = combine(
            [(1, Affine(0, (("a:" + name, 1),))), (1, Affine(0, (("d:" + name, 1),)))]
        )
    left, right = system.side("a:", a), system.side("b:", b)
    for name, step in steps.items():
        system.equal(Affine(0, ((name, 1),)), step)
    for x, y, one_list in zip(left, right, _through_one(a, b), strict=True):
        if x is not None and y is not None and one_list:
            system.equal(x, y)
            # Again with b's index written as a's plus the distance: sharper for interval propagation.
            system.equal(
                x,
                combine(
                    [
                        (1, constant(y.const)),
                        *((c, steps.get(n, Affine(0, ((n, 1),)))) for n, c in y.terms),
                    ]
                ),
            )
    return system.is_feasible()
