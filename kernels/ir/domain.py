"""What a task runs over: its loops, and the domain that their iterations are taken from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .affine import Affine

UNBOUNDED = 1 << 40  # stands for an extent of which nothing is known: longer than any array


@dataclass(frozen=True)
class Count:
    """Where a number of iterations stands that only a run knows: with the elements of a list, as the length of a dynamic node,
    as an argument of the kernel, or as a value computed where the loop begins.

    `name` is of the node, of the argument, or of the loop whose extent is computed.
    """

    kind: Literal["list", "length", "argument", "value"]
    name: str


@dataclass(frozen=True)
class Loop:
    """A loop of a task, 0 <= index < extent. `name` is unique within the task and is what LoopIndex names.

    With a `count`, `extent` is the most that the count can be. `is_step`: of a repeat around a task, whose index is the number of
    the step: it has one value in a run of the task, the same for all tasks of the step.
    """

    name: str
    extent: int
    is_reduction: bool
    count: Count | None = None
    is_step: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it runs exactly `extent` times."""
        return self.count is None


@dataclass(frozen=True)
class Residue:
    """The iterations where `affine mod modulus == remainder`."""

    affine: Affine
    modulus: int
    remainder: int


@dataclass(frozen=True)
class Box:
    """Every iteration of the loops."""


@dataclass(frozen=True)
class Active:
    """The active cells below a listed node, of a struct-for: the outermost loop counts the elements of its list, the others the
    cells of one element.

    `leaf` is the cells along each axis of an element. `tests_cells`: cells inside an element may be inactive. `parts`: only
    the elements or cells of these colours.
    """

    tree: str
    node: int
    leaf: tuple[int, ...]
    tests_cells: bool
    parts: tuple[Residue, ...] = ()


Domain = Box | Active
BOX = Box()
