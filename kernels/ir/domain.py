"""Iteration domains of tasks: loops, and sets of iterations (a box, or the active cells of a sparse field)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .affine import Affine

UNBOUNDED = 1 << 40  # an unknown extent: longer than any array


@dataclass(frozen=True)
class Count:
    """Source of a number of iterations that is known only at run time.

    `kind`: number of elements of a list, length of a dynamic node, argument of the kernel, or value computed where the loop begins.
    `name`: that of the node, of the argument, or of the loop whose extent is computed.
    """

    kind: Literal["list", "length", "argument", "value"]
    name: str


@dataclass(frozen=True)
class Loop:
    """Loop of a task, 0 <= index < extent. `name` is unique within the task; LoopIndex refers to it.

    With a `count`, `extent` is the count's maximum. `is_step`: an outer (time) loop, a repeat around the task. Its index is the
    number of the step. It has one value in a run of the task, the same for all tasks of the step. `until`: the array that ends the
    repeat before its last step (`Repeat`), "" if none does.
    """

    name: str
    extent: int
    is_reduction: bool
    count: Count | None = None
    is_step: bool = False
    until: str = ""

    @property
    def is_known(self) -> bool:
        """True if the loop runs exactly `extent` iterations."""
        return self.count is None


@dataclass(frozen=True)
class Residue:
    """Set of the iterations with `affine mod modulus == remainder`."""

    affine: Affine
    modulus: int
    remainder: int


@dataclass(frozen=True)
class Box:
    """Rectangular domain: all iterations of the loops."""


@dataclass(frozen=True)
class Active:
    """Domain of a struct-for (loop over active cells): the active cells below a node that has a list.

    The outermost loop counts the elements of the node's list, the others the cells of one element. `leaf`: number of cells of an
    element along each axis. `tests_cells`: cells inside an element may be inactive. `parts`: only elements or cells of these
    residue classes (colours).
    """

    tree: str
    node: int
    leaf: tuple[int, ...]
    tests_cells: bool
    parts: tuple[Residue, ...] = ()


Domain = Box | Active
BOX = Box()
