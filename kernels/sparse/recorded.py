"""Kernels on sparse fields in recorded sequences: their form before lowering, and their trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ..ir.kernel import Append, KernelIR
from ..ir.logical import FieldPlace
from ..ir.structure import StructureTree
from ..ir.walk import nested_statements
from .layout import TreeLayout, layout_of


@dataclass(frozen=True)
class Logical:
    """A kernel on sparse fields before lowering. `fields` are the numbers, in their trees, of the arrays of `ir.placed`.

    `sections` are the arrays added by lowering: (array of the lowered kernel, tree, key).
    """

    ir: KernelIR
    fields: tuple[int, ...]
    sections: tuple[tuple[str, str, str], ...] = ()

    @property
    def numbers(self) -> dict[str, int]:
        """The field number of each array of the kernel."""
        return {p.array: n for p, n in zip(self.ir.placed, self.fields, strict=True)}


@dataclass(frozen=True, eq=False)
class WindowCall:
    """A call of a window: its kernel on plain arrays, and on sparse fields the kernel before lowering.

    `arrays` has the number of each array of `ir`, `trees` the number and the layout of each tree.
    """

    ir: KernelIR
    arrays: tuple[int, ...]
    logical: Logical | None = None
    trees: tuple[tuple[int, TreeLayout], ...] = ()


@dataclass(frozen=True)
class UsedTree:
    """A tree that a sequence uses, with its fields. `sections`: (key, array of the sequence) of the arrays that kernels access.

    `appended`: dynamic nodes that the sequence appends to, so that the order of their cells is free.
    """

    tree: StructureTree
    fields: tuple[FieldPlace, ...]
    sections: tuple[tuple[str, str], ...] = ()
    appended: tuple[int, ...] = ()

    @cached_property
    def layout(self) -> TreeLayout:
        """The memory layout of its states. Raises LanguageError."""
        return layout_of(self.tree, self.fields)

    @cached_property
    def arrays(self) -> Mapping[str, str]:
        """The array of the sequence for each section."""
        return dict(self.sections)


def appended_to(ir: KernelIR, tree: str) -> tuple[int, ...]:
    """The nodes of a tree that a kernel appends to."""
    found = {s.node for s in nested_statements(ir.body) if isinstance(s, Append) and s.tree == tree}
    return tuple(sorted(found))
