"""Changes of active cells in a kernel: which statements may change the cells of a node, and how."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.affine import Affine, to_affine
from ..ir.kernel import Activate, Append, Deactivate, Expr, ForActive, KernelIR, Stmt
from ..ir.walk import nested_statements

_Change = Activate | Append | Deactivate
_Cells = tuple[str, int, tuple[str, ...]]  # tree, node, loops


@dataclass(frozen=True)
class CellChanges:
    """Statements of a kernel that may change active cells, with the numbers of their statements at top level.

    A statement that activates the own cell of a loop over active cells changes none.
    """

    ir: KernelIR
    statements: tuple[tuple[int, _Change], ...]

    @classmethod
    def of(cls, ir: KernelIR) -> CellChanges:
        """Returns the changes in a kernel on trees before lowering."""
        every = tuple((k, s) for k, top in enumerate(ir.body) for s in nested_statements((top,)))
        own = {(s.tree, s.node, s.loops) for _, s in every if isinstance(s, ForActive)}
        return cls(
            ir,
            tuple(
                (k, s)
                for k, s in every
                if isinstance(s, Activate | Append | Deactivate) and not _is_own(s, own)
            ),
        )

    def of_node(self, tree: str, node: int) -> CellChanges:
        """Returns the changes that may change the active cells of one node."""
        return CellChanges(
            self.ir, tuple((k, s) for k, s in self.statements if self._reaches(s, tree, node))
        )

    def _reaches(self, s: _Change, tree: str, node: int) -> bool:
        if s.tree != tree:
            return False
        (found,) = (t for t in self.ir.trees if t.name == tree)
        if isinstance(s, Deactivate):
            return s.node in found.path(node)
        common = set(found.path(s.node)) & set(found.path(node))
        return any(found.nodes[k].has.is_sparse for k in common)

    @property
    def deactivates(self) -> bool:
        """True if cells may become inactive."""
        return any(isinstance(s, Deactivate) for _, s in self.statements)

    @property
    def activates(self) -> bool:
        """True if cells may become active."""
        return any(not isinstance(s, Deactivate) for _, s in self.statements)

    def before(self, top: int) -> bool:
        """True if a change comes before the statement of this number at top level."""
        return any(k < top for k, _ in self.statements)

    def from_on(self, top: int) -> bool:
        """True if a change is in the statement of this number at top level, or behind it."""
        return any(k >= top for k, _ in self.statements)


def _is_own(s: Stmt, own: set[_Cells]) -> bool:
    return isinstance(s, Activate) and (s.tree, s.node, tuple(map(loop_of, s.indices))) in own


def loop_of(index: Expr) -> str:
    """Returns the name of the loop whose index an expression is, "" for another one."""
    match to_affine(index):
        case Affine(const=0, terms=((loop, 1),)):
            return loop
    return ""
