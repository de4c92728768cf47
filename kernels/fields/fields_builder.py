"""Roots of trees: the root of the program, and builders, whose fields can be freed."""

from __future__ import annotations

from typing import Any

from ..ir.errors import ProgramRuntimeError
from . import quantised  # noqa: F401 - nodes below a root have quant_array
from .caller_location import fail
from .host_access import settle
from .program import Program, needed_program
from .tree import NodeTree, SNode


class _Root:
    """`ks.root`: proxy for the root node of the current program."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(needed_program("ks.root").root, name)

    def __eq__(self, other: object) -> bool:
        return other is self or other is needed_program("ks.root").root

    def __hash__(self) -> int:
        return id(_Root)

    def __repr__(self) -> str:
        return "ks.root"


root = _Root()


def deactivate_all_snodes() -> None:
    """Makes all cells of all sparse fields of the program inactive."""
    needed_program("ks.deactivate_all_snodes").deactivate_all()


class FieldTree:
    """Fields of a finalized builder, whose memory can be freed together."""

    def __init__(self, tree: NodeTree, program: Program) -> None:
        self._tree, self._program = tree, program

    def destroy(self) -> None:
        """Frees the memory of the fields; later uses of them raise an error. Deferred kernels run before."""
        settle()
        for leaf in self._tree.leaves:
            leaf.release("its tree was destroyed")
        self._tree.leaves.clear()
        self._tree.released = "its tree was destroyed"
        self._tree.tops.clear()
        self._program.outdate()


class FieldsBuilder:
    """Root of a tree of its own, with `dense` and `place` like `ks.root`; fields are usable once it is finalized."""

    def __init__(self) -> None:
        self._program = needed_program("ks.FieldsBuilder")
        tree = NodeTree(is_final=False, number=next(self._program.n_trees))
        self._root = SNode("root", None, tree)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._root, name)

    @property
    def finalized(self) -> bool:
        return self._root.tree.is_final

    def finalize(self, raise_warning: bool = True) -> FieldTree:
        """Allocates the fields, after which no node can be added.

        `raise_warning`: an argument of Taichi's, without effect here.
        """
        tree = self._root.tree
        if tree.is_closed:
            fail("this ks.FieldsBuilder is finalized already", ProgramRuntimeError)
        tree.is_final = tree.is_closed = True
        self._program.builders.append(tree)
        return FieldTree(tree, self._program)
