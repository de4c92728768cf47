"""Dependence test: may two accesses refer to the same element? Solves bounded linear Diophantine systems over their loops."""

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
    """Equations that say that two accesses touch one element, each in an iteration of its own."""

    def __init__(self) -> None:
        self.equations: list[Affine] = []
        self.bounds: Bounds = {}

    def side(self, prefix: str, x: AccessSet) -> list[Affine | None]:
        """Adds the loops and guards of one access, renamed by `prefix`; its index, an affine expression an axis.

        The steps of repeats keep their names: both accesses are made in one step.
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
    """Whether no element is in both sets, of one state; False where that is not decided."""
    system = _System()
    left, right = system.side("a:", a), system.side("b:", b)
    for x, y, one_list in zip(left, right, _through_one(a, b), strict=True):
        if x is not None and y is not None and one_list:
            system.equal(x, y)
    return not system.is_feasible()


def _through_one(a: AccessSet, b: AccessSet) -> list[bool]:
    """Of each axis, whether what stands for the index says whether the indices are equal: not where they go through other lists."""
    return [x.through == y.through for x, y in zip(a.index, b.index, strict=True)]


def is_injective(
    index: tuple[AxisMap, ...], guard: Guard, loops: Sequence[Loop], around: Sequence[Loop]
) -> bool:
    """Whether no two iterations of `loops` touch one element, whatever those `around` the access inside of them do."""
    here = AccessSet(BOX, (*loops, *around), index, guard)
    return not any(meet_at(here, here, loops, level) for level in _levels(loops))


def meet_in(a: AccessSet, b: AccessSet, loops: Sequence[Loop]) -> bool:
    """Whether `a` in one iteration of the common `loops` and `b` in another may touch one element."""
    return any(meet_at(x, y, loops, level) for level in _levels(loops) for x, y in ((a, b), (b, a)))


def elements(site: Site, loops: Sequence[Loop]) -> AccessSet:
    """The elements that an access of a body touches over all iterations of the task's `loops` and of those inside the body."""
    return AccessSet(BOX, (*loops, *site.loops), site.index, site.guard)


def conflicting(sites: Iterable[Site], loops: Sequence[Loop]) -> list[str]:
    """The arrays of which one iteration of `loops`, in one step of those around, writes an element that another one accesses."""
    return in_conflict(((s.state, elements(s, loops), s.writes) for s in sites), loops)


def in_conflict(
    accesses: Iterable[tuple[State, AccessSet, bool]], loops: Sequence[Loop]
) -> list[str]:
    """The same of accesses that are given as state, elements, and whether they write."""
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
    """The places of loops that have several values in a run."""
    return [k for k, loop in enumerate(loops) if not loop.is_step]


def in_any_step(x: AccessSet) -> AccessSet:
    """The elements that an access touches in some step, which need not be the one that others are made in."""
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
    """Whether they may touch one element where the common `loops` above `level` agree, and b's index there is the larger one."""
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
    return _meet(a, b, distances, ())


def crosses(a: AccessSet, b: AccessSet, loops: tuple[Loop, Loop], skew: int) -> bool:
    """Whether `a` may touch an element in an earlier iteration of the first of two loops than `b` does, and yet at an index of the
    second one that, with `skew` times that of the first added to both, is not smaller.
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
    """Whether they may touch one element in iterations of common loops so far apart, where equations hold of the distances."""
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
