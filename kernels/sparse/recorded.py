"""Kernels on sparse fields in recorded sequences: their form before lowering, and their trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..ir.kernel import Append, KernelIR
from ..ir.logical import FieldPlace
from ..ir.structure import StructureTree
from ..ir.walk import nested_statements
from .layout import TreeLayout, layout_of


@dataclass(frozen=True)
class Logical:
    """Kernel on sparse fields before lowering.

    `fields`: for each array of `ir.placed` the number of the field in its tree. `sections`: the arrays added by lowering, as (array
    of the lowered kernel, tree, key).
    """

    ir: KernelIR
    fields: tuple[int, ...]
    sections: tuple[tuple[str, str, str], ...] = ()

    @property
    def numbers(self) -> dict[str, int]:
        """Number of the field, in its tree, that each sparse array of the kernel stands for, by array."""
        return {p.array: n for p, n in zip(self.ir.placed, self.fields, strict=True)}


@dataclass(frozen=True, eq=False)
class WindowCall:
    """Call in a window of a program: its kernel on plain arrays, or on sparse fields before lowering.

    `logical`: the kernel before lowering, for sparse fields.
    `arrays`: number of the window's array for each array of `ir`. `trees`: number and layout of each tree.
    """

    ir: KernelIR
    arrays: tuple[int, ...]
    logical: Logical | None = None
    trees: tuple[tuple[int, TreeLayout], ...] = ()


@dataclass(frozen=True)
class UsedTree:
    """Tree that a sequence uses, with its fields.

    `sections`: (key, array of the sequence) of the tree's arrays that kernels access.
    `appended`: dynamic nodes that the sequence appends to, so that the order of their cells is free.
    """

    tree: StructureTree
    fields: tuple[FieldPlace, ...]
    sections: tuple[tuple[str, str], ...] = ()
    appended: tuple[int, ...] = ()

    @cached_property
    def layout(self) -> TreeLayout:
        """The memory layout of the tree. Raises LanguageError if it has too many cells."""
        return layout_of(self.tree, self.fields)

    @cached_property
    def arrays(self) -> Mapping[str, str]:
        """The sequence's array for each section (array of the tree's memory), by the section's key."""
        return dict(self.sections)

    def used_by(self, ir: KernelIR, logical: Logical, arrays: Sequence[str]) -> UsedTree:
        """Returns the tree with the sections and appends of one more call.

        `ir`: the call's kernel on plain arrays. `arrays`: the sequence's array for each array parameter of it.
        """
        name, given = self.tree.name, {p.name: x for p, x in zip(ir.arrays, arrays, strict=True)}
        here = ((key, given[array]) for array, tree, key in logical.sections if tree == name)
        more = {*self.appended, *appended_to(logical.ir, name)}
        sections = dict.fromkeys((*self.sections, *here))
        return replace(self, sections=tuple(sections), appended=tuple(sorted(more)))


def appended_to(ir: KernelIR, tree: str) -> tuple[int, ...]:
    """Returns the dynamic nodes of a tree that a kernel appends to."""
    found = {s.node for s in nested_statements(ir.body) if isinstance(s, Append) and s.tree == tree}
    return tuple(sorted(found))
