"""Loops on sparse fields in terms of trees and cells, before sparse lowering to plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import LanguageError
from .kernel import DType, Expr, For, ForActive, KernelIR
from .structure import StructureTree
from .walk import blocks, nested_statements


@dataclass(frozen=True)
class FieldPlace:
    """A field in a tree: its type, the shape of its components, and the node at whose cells it has values."""

    dtype: DType
    components: tuple[int, ...]
    node: int


@dataclass(frozen=True, eq=False)
class LogicalKernel:
    """Kernel on sparse fields before sparse lowering; its statements have identities.

    `fields`: for each array of `ir.placed`, the field's number in its tree. `trees`: the trees of the sequence with their fields.
    """

    ir: KernelIR
    fields: Mapping[str, int]
    trees: tuple[tuple[StructureTree, tuple[FieldPlace, ...]], ...]


@dataclass(frozen=True, eq=False)
class LogicalCall:
    """Call of a kernel before sparse lowering.

    `arrays` and `scalars`: the sequence's array and the value of each parameter.
    `sections`: the sequence's array that holds each state of a tree, by tree and key. `reused`: for each statement at top level,
    the nodes whose lists remain valid from earlier loops.
    `demoted`: the activations of surely active cells, which do nothing. `once`: the hoisted activations. Both are numbers of
    activations in the order of the text.
    """

    kernel: LogicalKernel
    arrays: Mapping[str, str]
    scalars: Mapping[str, Expr]
    sections: Mapping[tuple[str, str], str]
    reused: tuple[frozenset[tuple[str, int]], ...]
    demoted: frozenset[int] = frozenset()
    once: frozenset[int] = frozenset()


@dataclass(frozen=True)
class LogicalLoop:
    """Loop of a call before sparse lowering: statement number `top` at the top level of the call's kernel."""

    call: LogicalCall
    top: int

    @property
    def statement(self) -> For | ForActive:
        s = self.call.kernel.ir.body[self.top]
        assert isinstance(s, For | ForActive)
        return s


def check_loops(ir: KernelIR) -> None:
    """Raises LanguageError if a loop over active cells is nested in another statement."""
    for s in nested_statements(tuple(x for top in ir.body for block in blocks(top) for x in block)):
        if isinstance(s, ForActive):
            raise LanguageError(
                "a loop over a sparse field stands in no other loop and no branch: put it into a kernel of its own",
                s.where,
            )
