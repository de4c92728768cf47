"""One indexed use of an array, and what of the array it touches over the loops around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .affine import Affine, drop_unit_loops, index_range, to_affine
from .kernel import Load

if TYPE_CHECKING:
    from .task import ArrayInfo


@dataclass(frozen=True)
class Access:
    """One indexed use of an array: an affine index per axis, or None where the index is not affine."""

    array: str
    axes: tuple[Affine | None, ...]


def access_of(load: Load) -> Access:
    """The access that a load makes."""
    return Access(load.array, tuple(to_affine(i) for i in load.indices))


def flat_strides(access: Access, array: ArrayInfo) -> dict[str, int]:
    """Distance in elements between neighbours along each loop of an access to a C-ordered array."""
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
    """A box that contains all elements touched (inclusive bounds per axis); `is_exact`: it
    contains no others.
    """

    bounds: tuple[tuple[int, int], ...]
    is_exact: bool

    def covers(self, other: Region) -> bool:
        """Whether every element of `other` is surely touched."""
        return self.is_exact and all(
            a[0] <= b[0] and b[1] <= a[1] for a, b in zip(self.bounds, other.bounds, strict=True)
        )

    def overlaps(self, other: Region) -> bool:
        return all(
            a[0] <= b[1] and b[0] <= a[1] for a, b in zip(self.bounds, other.bounds, strict=True)
        )


def whole(shape: tuple[int, ...]) -> Region:
    """All of an array."""
    return Region(tuple((0, n - 1) for n in shape), True)


def region(access: Access, extents: Mapping[str, int], shape: tuple[int, ...]) -> Region:
    """The region of `access` over loops of these extents; an axis that is not affine counts as all
    of it, inexactly.
    """
    bounds, exact, seen = [], True, set[str]()
    for axis, n in zip(access.axes, shape, strict=True):
        if axis is None:
            bounds.append((0, n - 1))
            exact = False
            continue
        axis = drop_unit_loops(axis, extents)
        bounds.append(index_range(axis, extents))
        names = {name for name, _ in axis.terms}
        exact = exact and _is_dense(axis, extents) and not (names & seen)
        seen |= names
    return Region(tuple(bounds), exact)


def _is_dense(axis: Affine, extents: Mapping[str, int]) -> bool:
    """Whether every integer between the bounds is reached (mixed radix without gaps)."""
    span = 1
    for coefficient, n in sorted((abs(c), extents[name]) for name, c in axis.terms):
        if coefficient > span:
            return False
        span += coefficient * (n - 1)
    return True
