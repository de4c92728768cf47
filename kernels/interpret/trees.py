"""Reference interpreter for kernels on sparse fields.

It runs one iteration after the other, on the storage with its operations from Python. It shares only the layout with
kernels/sparse/lower.py, since it is the reference for lowered and compiled kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..fields.field_view import FieldView
from ..fields.storage import TreeStorage
from ..ir import kernel
from ..ir.errors import KernelRuntimeIndexError
from ..ir.ops import OPS
from .kernel import AbstractRun


def run_on_trees(
    ir: kernel.KernelIR,
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any],
    trees: Mapping[str, TreeStorage],
) -> None:
    """Runs a kernel on sparse fields in place; in `arrays`, sparse fields are `FieldView`s.

    Raises the errors of `run_kernel`, and IndexError if a cell outside is activated.
    """
    values = {p.name: p.dtype.numpy.type(scalars[p.name]) for p in ir.scalars}
    with np.errstate(all="ignore"):
        _TreeRun(dict(arrays), values, {}, trees=dict(trees)).block(ir.body)


class _TreeRun(AbstractRun):
    """Interpreter of a kernel on sparse fields and plain arrays."""

    def __init__(self, *args: Any, trees: dict[str, TreeStorage]) -> None:
        super().__init__(*args)
        self.trees = trees

    def block(self, body: tuple[kernel.Stmt, ...]) -> None:
        for s in body:
            match s:
                case kernel.ForActive():
                    before = set(self.local)
                    for cell in zip(*self.trees[s.tree].active(s.node), strict=True):
                        self.indices.update(zip(s.loops, map(int, cell), strict=True))
                        self.block(s.body)
                    for name in set(self.local) - before:
                        del self.local[name]
                case kernel.Activate():
                    self.trees[s.tree].activate(s.node, self.cell(s.tree, s.node, s.indices))
                case kernel.Deactivate():
                    tree = self.trees[s.tree].tree
                    at = tree.nodes[s.node].parent if tree.nodes[s.node].has.length else s.node
                    if self.is_inside(s.tree, at, s.indices):
                        found = [np.asarray([int(self.value(i))]) for i in s.indices]
                        self.trees[s.tree].deactivate(s.node, found)
                case kernel.Append():
                    above = self.trees[s.tree].tree.nodes[s.node].parent
                    found = self.cell(s.tree, above, s.indices)
                    self._set(s.result, np.int32(self.trees[s.tree].append(s.node, found)[1]))
                case _:
                    super().block((s,))

    def is_inside(self, tree: str, node: int, indices: tuple[kernel.Expr, ...]) -> bool:
        shape = self.trees[tree].tree.shape(node) if node >= 0 else ()
        return all(0 <= int(self.value(i)) < n for i, n in zip(indices, shape, strict=True))

    def cell(self, tree: str, node: int, indices: tuple[kernel.Expr, ...]) -> list[Any]:
        """Returns the values of a cell's indices, each as an array of one. IndexError if they are out of the node's range.

        The cell need not be active.
        """
        found = [int(self.value(i)) for i in indices]
        if not self.is_inside(tree, node, indices):
            raise KernelRuntimeIndexError(f"the cell {found} is outside of its node in {tree}")
        return [np.asarray([i]) for i in found]

    def value(self, x: kernel.Expr) -> Any:
        match x:
            case kernel.IsActive():
                if not self.is_inside(x.tree, x.node, x.indices):
                    return np.bool_(False)
                cell = self.cell(x.tree, x.node, x.indices)
                return self.trees[x.tree].find(x.node, cell)[1][0]
            case kernel.Item():
                inside = self.is_inside(x.tree, x.node, x.indices)
                cell = [np.asarray([int(self.value(i)) if inside else 0]) for i in x.indices]
                return np.int64(self.trees[x.tree].find(x.node, cell)[0][0])
            case kernel.Length():
                above = self.trees[x.tree].tree.nodes[x.node].parent
                if not self.is_inside(x.tree, above, x.indices):
                    return np.int32(0)
                return np.int32(
                    self.trees[x.tree].length(x.node, self.cell(x.tree, above, x.indices))
                )
        return super().value(x)

    def _load(self, x: kernel.Load) -> Any:
        view = self.arrays[x.array]
        if not isinstance(view, FieldView):
            return super()._load(x)
        indices = [int(self.value(i)) for i in x.indices]
        inside = all(0 <= i < n for i, n in zip(indices, view.shape, strict=True))
        return view.read(indices) if inside else view.dtype.type(0)

    def _change(self, s: kernel.Store | kernel.Update) -> None:
        view = self.arrays[s.array]
        if not isinstance(view, FieldView):
            super()._change(s)
            return
        value = self.value(s.value)
        indices = [int(self.value(i)) for i in s.indices]
        if all(0 <= i < n for i, n in zip(indices, view.shape, strict=True)):
            if isinstance(s, kernel.Update):
                value = OPS[s.op].numpy(view.read(indices), value)
            view.write(indices, value)
