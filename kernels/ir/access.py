"""Memory accesses of tasks: states, index maps, guards, and bounding boxes of the elements that are touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .affine import Affine, to_affine
from .domain import Domain, Loop, Residue
from .kernel import Load

if TYPE_CHECKING:
    from .arrays import ArrayInfo

StateKind = Literal["value", "mask", "list", "allocator"]


@dataclass(frozen=True, order=True)
class State:
    """State that tasks read and write: values of an array, or the mask, list or allocator of a sparse node."""

    kind: StateKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}({self.name})"

    @property
    def label(self) -> str:
        """Name of the state in drawings: the array's name for values of an array, else kind and node."""
        return self.name if self.kind == "value" else str(self)


@dataclass(frozen=True)
class AxisMap:
    """Index map of an access along one axis of the array: `floor(affine / divisor)`.

    `affine` is None if the index depends on data. Then `window` may bound the index by a local of the body plus a constant from
    least to largest: (local, least, largest).

    `through`: an index list, if the index is computed from an element of the list's first row. In `affine`, the loop over the list
    stands for that element. No two elements are equal. So two indices through one list are equal if their affine parts are.
    """

    affine: Affine | None
    divisor: int = 1
    window: tuple[str, int, int] | None = None
    through: str = ""

    @property
    def plain(self) -> Affine | None:
        """The affine expression, if it is the index in memory (not divided, not through a list); else None."""
        return self.affine if self.divisor == 1 and not self.through else None


@dataclass(frozen=True)
class Guard:
    """Guard of an access: a condition that bounds the iterations in which the access is made.

    They are the iterations within `bounds` (triples low <= affine < high) and `residues`.
    `data`: numbers of the accesses whose values the condition depends on. `is_exact`: the access is made in all of these
    iterations.
    """

    bounds: tuple[tuple[Affine, int, int], ...] = ()
    residues: tuple[Residue, ...] = ()
    data: tuple[int, ...] = ()
    is_exact: bool = True


ALWAYS = Guard()


@dataclass(frozen=True)
class AccessSet:
    """Access set: the elements of one state that an access touches while `loops` run over `domain`.

    `index` maps each iteration within `guard` to an element.
    """

    domain: Domain
    loops: tuple[Loop, ...]
    index: tuple[AxisMap, ...]
    guard: Guard = ALWAYS

    @property
    def moves(self) -> bool:
        """True if the touched elements depend on the step of a repeat."""
        steps = {loop.name for loop in self.loops if loop.is_step}
        affine = [x.affine for x in self.index if x.affine is not None]
        affine += [x for x, _, _ in self.guard.bounds] + [r.affine for r in self.guard.residues]
        return bool(steps) and any(steps & {n for n, _ in x.terms} for x in affine)


@dataclass(frozen=True)
class Access:
    """Access of an affine task to an array: an affine index per axis, None for an axis with another index."""

    array: str
    axes: tuple[Affine | None, ...]


def access_of(load: Load) -> Access:
    """Returns the access (affine index per axis) of a load."""
    return Access(load.array, tuple(to_affine(i) for i in load.indices))


def index_loops(access: Access) -> set[str]:
    """Returns names of the loops whose indices occur in an access."""
    return {loop for axis in access.axes if axis is not None for loop, _ in axis.terms}


def maps_of(axes: tuple[Affine | None, ...]) -> tuple[AxisMap, ...]:
    """Returns the index map of each axis from its affine index; an axis is None if its index is not affine."""
    return tuple(map(AxisMap, axes))


def flat_strides(access: Access, array: ArrayInfo) -> dict[str, int]:
    """Distance in memory, in elements, by which one iteration of each loop moves an access to a C-ordered array."""
    strides: dict[str, int] = {}
    step = 1
    for axis, extent in zip(reversed(access.axes), reversed(array.shape), strict=True):
        for loop, coefficient in axis.terms if axis is not None else ():
            strides[loop] = strides.get(loop, 0) + coefficient * step
        step *= extent
    return strides


# --- regions: what part of an array an access touches ---------------------------------------------


@dataclass(frozen=True)
class Region:
    """Bounding box of touched elements of an array, with inclusive bounds per axis.

    `is_exact`: the box contains no other elements.
    """

    bounds: tuple[tuple[int, int], ...]
    is_exact: bool

    def covers(self, other: Region) -> bool:
        """True if this region surely contains every element of region `other`."""
        return self.is_exact and all(
            a[0] <= b[0] and b[1] <= a[1] for a, b in zip(self.bounds, other.bounds, strict=True)
        )


def whole(shape: tuple[int, ...]) -> Region:
    """Returns the region of all elements of an array of this shape."""
    return Region(tuple((0, n - 1) for n in shape), True)


def hull(regions: Sequence[Region]) -> Region | None:
    """Returns a bounding box of several regions; None for no regions.

    It is exact only for a single exact region: a union of boxes may have gaps.
    """
    if len(regions) <= 1:
        return regions[0] if regions else None
    axes = zip(*(r.bounds for r in regions), strict=True)
    return Region(tuple((min(b[0] for b in a), max(b[1] for b in a)) for a in axes), False)


def is_dense(axis: Affine, extents: Mapping[str, int]) -> bool:
    """True if the affine index takes every integer between its bounds (mixed radix without gaps)."""
    span = 1
    for coefficient, n in sorted((abs(c), extents[name]) for name, c in axis.terms):
        if coefficient > span:
            return False
        span += coefficient * (n - 1)
    return True
