"""Verifier of kernel IR: `check` runs after every stage that builds or changes IR."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from . import kernel
from .ops import COMPARISONS, OPS, is_reduction
from .text import show_expr, takes_format


class IRError(Exception):
    """Malformed IR: an error of the stage that made it.

    The text names the node and the position in the user's source.
    """


def check(ir: kernel.KernelIR) -> None:
    """Raises IRError unless the IR is well-formed.

    Names are unique and bound before use, and dtypes agree. Indices are integers, one per axis of the array. Constant extents are
    not negative. No Accumulator appears.
    """
    checker = _Checker(ir)
    checker.arguments()
    checker.block(ir.body, set(), {})


LOCAL_ARRAY_BYTES = 1 << 16  # on the stack of each thread


class _Checker:
    def __init__(self, ir: kernel.KernelIR) -> None:
        self._ir = ir
        self._arrays = {p.name: p for p in ir.arrays}
        self._scalars = {p.name: p for p in ir.scalars}
        self._loops: set[str] = set()  # all loops met, for uniqueness
        self._types: dict[str, kernel.DType] = {}  # of locals, over the whole kernel
        self._extents: dict[str, int] = {}  # of local arrays, over the whole kernel
        self._where = ir.where

    def arguments(self) -> None:
        names = [p.name for p in self._ir.arrays] + [p.name for p in self._ir.scalars]
        for name in names:
            if names.count(name) > 1:
                self._fail(f"the argument {name} appears twice")
        for p in self._ir.arrays:
            if p.dtype is kernel.DType.bool_ or any(n < 0 for n in p.shape):
                self._fail(f"the array {p.name} has dtype {p.dtype.name} and shape {p.shape}")

    def _fail(self, sentence: str) -> NoReturn:
        raise IRError(f"{self._where}: in kernel {self._ir.name}: {sentence}")

    # --- statements

    def block(
        self, body: Iterable[kernel.Stmt], loops: set[str], bound: dict[str, kernel.DType]
    ) -> None:
        """Checks the statements of a block. `loops` and `bound`: loop indices and locals that it may use.

        Locals that are first set in a block end with it.
        """
        bound = dict(bound)
        for s in body:
            self._where = s.where
            match s:
                case kernel.For():
                    self._for(s, loops, bound)
                case kernel.SetLocal(name=name, value=value):
                    self._expr(value, loops, bound)
                    self._same_type(name, value.dtype)
                    if name in self._extents:
                        self._fail(f"the local array {name} is set as a whole")
                    bound[name] = value.dtype
                case kernel.LocalArray(name=name, extent=extent, value=value):
                    self._expr(value, loops, bound)
                    if name in self._types and name not in self._extents:
                        self._fail(f"the local {name} becomes an array")
                    self._same_type(name, value.dtype)
                    if not 0 < extent * value.dtype.size_bytes <= LOCAL_ARRAY_BYTES:
                        self._fail(f"the local array {name} has {extent} elements")
                    if self._extents.setdefault(name, extent) != extent:
                        self._fail(f"the local array {name} has two extents")
                    bound[name] = value.dtype
                case kernel.SetElement(name=name, index=index, value=value):
                    self._expr(kernel.LocalElement(name, index, value.dtype), loops, bound)
                    self._expr(value, loops, bound)
                case kernel.UpdateLocal(name=name, op=op, value=value):
                    self._expr(value, loops, bound)
                    if name not in bound or name in self._extents:
                        self._fail(f"the local {name} is updated before it is set")
                    self._updates(name, op, bound[name], value)
                case kernel.Store(array=array, indices=indices, value=value):
                    self._written(array, indices, value, loops, bound)
                case kernel.Update(array=array, indices=indices, op=op, value=value):
                    self._written(array, indices, value, loops, bound)
                    self._updates(array, op, self._arrays[array].dtype, value)
                    if s.result:
                        self._same_type(s.result, value.dtype)
                        bound[s.result] = value.dtype
                case kernel.If(condition=condition, then=then, orelse=orelse):
                    self._expr(condition, loops, bound)
                    self._expect(condition, kernel.DType.bool_, "the condition")
                    self.block(then, loops, bound)
                    self.block(orelse, loops, bound)
                case kernel.While(condition=condition, body=inner):
                    self._expr(condition, loops, bound)
                    self._expect(condition, kernel.DType.bool_, "the condition")
                    self.block(inner, loops, bound)
                case kernel.ForActive(loops=names, body=inner):
                    self._node(s.tree, s.node, len(names))
                    for name in names:
                        self._new_loop(name)
                    self.block(inner, loops | set(names), bound)
                case kernel.Activate() | kernel.Deactivate() | kernel.Append():
                    self._cell(s, loops, bound)
                    if isinstance(s, kernel.Append):
                        self._same_type(s.result, kernel.DType.i32)
                        bound[s.result] = kernel.DType.i32
                case kernel.Print(parts=parts, formats=formats):
                    self._printed(parts, formats, loops, bound)
                case kernel.Assert(condition=condition, parts=parts, formats=formats):
                    self._expr(condition, loops, bound)
                    self._expect(condition, kernel.DType.bool_, "the condition")
                    self._printed(parts, formats, loops, bound)
                case _:
                    self._fail(f"{s!r} is no statement")

    def _printed(
        self,
        parts: tuple[kernel.Part, ...],
        formats: tuple[str, ...],
        loops: set[str],
        bound: dict[str, kernel.DType],
    ) -> None:
        values = [x for x in parts if not isinstance(x, str)]
        for x in values:
            self._expr(x, loops, bound)
        if formats and len(formats) != len(values):
            self._fail(f"{len(values)} values are printed in {len(formats)} formats")
        for x, wanted in zip(values, formats, strict=False):
            if wanted and not takes_format(x.dtype, wanted):
                self._fail(f"%{wanted} is no format of `{show_expr(x)}`, which is {x.dtype.name}")

    def _for(self, s: kernel.For, loops: set[str], bound: dict[str, kernel.DType]) -> None:
        self._new_loop(s.loop)
        self._expr(s.extent, loops, bound)
        if not s.extent.dtype.is_integer:
            self._fail(f"the extent of loop {s.loop} is {s.extent.dtype.name}")
        if isinstance(s.extent, kernel.Const) and s.extent.value < 0:
            self._fail(f"the extent of loop {s.loop} is {s.extent.value}")
        self.block(s.body, loops | {s.loop}, bound)

    def _new_loop(self, name: str) -> None:
        if name in self._loops or name in self._arrays or name in self._scalars:
            self._fail(f"the loop name {name} is used twice")
        self._loops.add(name)

    def _node(self, tree: str, node: int, n_indices: int, is_list: bool = False) -> None:
        """Checks that a node of a tree exists, and that it is indexed by `n_indices` indices.

        `is_list`: the indices are those of containers of a dynamic node.
        """
        found = next((t for t in self._ir.trees if t.name == tree), None)
        if found is None or not 0 <= node < len(found.nodes):
            self._fail(f"there is no node {node} in a tree {tree}")
        cell = found.nodes[node].parent if is_list else node
        if is_list and not found.nodes[node].has.length:
            self._fail(f"the node {node} of {tree} is {found.nodes[node].kind}, not dynamic")
        if n_indices != len(found.axes(cell) if cell >= 0 else ()):
            self._fail(f"the node {node} of {tree} is given {n_indices} indices")

    def _cell(
        self,
        x: kernel.Activate
        | kernel.Deactivate
        | kernel.Append
        | kernel.IsActive
        | kernel.Length
        | kernel.Item,
        loops: set[str],
        bound: dict[str, kernel.DType],
    ) -> None:
        is_list = isinstance(x, kernel.Append | kernel.Length)
        if isinstance(x, kernel.Deactivate):
            tree = next((t for t in self._ir.trees if t.name == x.tree), None)
            is_list = tree is not None and tree.nodes[x.node].has.length
        self._node(x.tree, x.node, len(x.indices), is_list)
        for i in x.indices:
            self._expr(i, loops, bound)
            if not i.dtype.is_integer:
                self._fail(f"the index `{show_expr(i)}` of a node of {x.tree} is {i.dtype.name}")

    def _same_type(self, name: str, dtype: kernel.DType) -> None:
        if name in self._arrays or name in self._scalars or name in self._loops:
            self._fail(f"the local {name} has the name of an argument or a loop")
        if self._types.setdefault(name, dtype) is not dtype:
            self._fail(f"the local {name} is {self._types[name].name} and is set to {dtype.name}")

    def _updates(self, name: str, op: str, dtype: kernel.DType, value: kernel.Expr) -> None:
        if not is_reduction(op):
            self._fail(f"{name} is updated with {op}, which is no reduction")
        if not OPS[op].accepts(dtype):
            self._fail(f"{name} is {dtype.name} and updated with {op}")
        self._expect(value, dtype, f"the value that updates {name}")

    def _written(
        self,
        array: str,
        indices: tuple[kernel.Expr, ...],
        value: kernel.Expr,
        loops: set[str],
        bound: dict[str, kernel.DType],
    ) -> None:
        param = self._element(array, indices, loops, bound)
        self._expr(value, loops, bound)
        self._expect(value, param.dtype, f"the value stored in {array}")

    # --- expressions

    def _expect(self, x: kernel.Expr, dtype: kernel.DType, what: str) -> None:
        if x.dtype is not dtype:
            self._fail(f"{what}, `{show_expr(x)}`, is {x.dtype.name} and should be {dtype.name}")

    def _element(
        self,
        array: str,
        indices: tuple[kernel.Expr, ...],
        loops: set[str],
        bound: dict[str, kernel.DType],
    ) -> kernel.ArrayParam:
        param = self._arrays.get(array)
        if param is None:
            self._fail(f"the array {array} is no argument")
        if len(indices) != len(param.shape):
            self._fail(f"{array} has {len(param.shape)} axes and {len(indices)} indices")
        for i in indices:
            self._expr(i, loops, bound)
            if not i.dtype.is_integer:
                self._fail(f"the index `{show_expr(i)}` of {array} is {i.dtype.name}")
        return param

    def _expr(self, x: kernel.Expr, loops: set[str], bound: dict[str, kernel.DType]) -> None:
        match x:
            case kernel.Const(value=value, dtype=dtype):
                kind = float if dtype.is_float else bool if dtype is kernel.DType.bool_ else int
                if type(value) is not kind:
                    self._fail(f"the constant {value!r} is no {dtype.name}")
            case kernel.LoopIndex(loop=loop):
                if loop not in loops:
                    self._fail(f"the index of loop {loop} is used outside it")
            case kernel.Param(name=name):
                if self._scalars.get(name) != x:
                    self._fail(f"{name}: {x.dtype.name} is no scalar argument")
            case kernel.LocalElement(name=name, index=index, dtype=dtype):
                if bound.get(name) is not dtype or name not in self._extents:
                    self._fail(f"the local array {name}: {dtype.name} has not begun here")
                self._expr(index, loops, bound)
                if not index.dtype.is_integer:
                    self._fail(f"the index `{show_expr(index)}` of {name} is {index.dtype.name}")
            case kernel.Local(name=name, dtype=dtype):
                if bound.get(name) is not dtype or name in self._extents:
                    self._fail(f"the local {name}: {dtype.name} is not set here")
            case kernel.Load(array=array, indices=indices, dtype=dtype):
                if self._element(array, indices, loops, bound).dtype is not dtype:
                    self._fail(f"`{show_expr(x)}` is loaded as {dtype.name}")
            case _:
                self._operation(x, loops, bound)

    def _operation(self, x: kernel.Expr, loops: set[str], bound: dict[str, kernel.DType]) -> None:
        match x:
            case kernel.Unary(op=op, x=y, dtype=dtype):
                self._expr(y, loops, bound)
                self._domain(op, y.dtype, x)
                if OPS[op].result(y.dtype) is not dtype:
                    self._fail(f"`{show_expr(x)}` is {dtype.name}")
            case kernel.Binary(op=op, a=a, b=b, dtype=dtype):
                self._expr(a, loops, bound)
                self._expr(b, loops, bound)
                self._expect(a, dtype, f"the first operand of {op}")
                self._expect(b, dtype, f"the second operand of {op}")
                self._domain(op, dtype, x)
                if OPS[op].result(dtype) is not dtype:
                    self._fail(f"`{show_expr(x)}` is {dtype.name}")
            case kernel.Compare(a=a, b=b, dtype=dtype):
                self._expr(a, loops, bound)
                self._expr(b, loops, bound)
                self._expect(b, a.dtype, "the second operand of a comparison")
                self._expect(x, kernel.DType.bool_, "a comparison")
            case kernel.Select(condition=condition, a=a, b=b, dtype=dtype):
                for part in (condition, a, b):
                    self._expr(part, loops, bound)
                self._expect(condition, kernel.DType.bool_, "the condition")
                self._expect(a, dtype, "one side of a selection")
                self._expect(b, dtype, "one side of a selection")
            case kernel.Cast(x=y):
                self._expr(y, loops, bound)
            case kernel.Bitcast(x=y, dtype=dtype):
                self._expr(y, loops, bound)
                if kernel.DType.bool_ in (y.dtype, dtype) or y.dtype.size_bytes != dtype.size_bytes:
                    self._fail(f"the bits of `{show_expr(y)}`, {y.dtype.name}, are no {dtype.name}")
            case kernel.IsActive() | kernel.Length() | kernel.Item():
                self._cell(x, loops, bound)
            case kernel.Accumulator():
                self._fail("an Accumulator appears outside Task.finish")
            case _:
                self._fail(f"{x!r} is no expression")

    def _domain(self, op: str, dtype: kernel.DType, x: kernel.Expr) -> None:
        row = OPS.get(op)
        if (
            row is None
            or op in COMPARISONS
            or row.arity != (1 if isinstance(x, kernel.Unary) else 2)
        ):
            self._fail(f"{op} is no operation of one dtype on so many operands")
        if not row.accepts(dtype):
            self._fail(f"`{show_expr(x)}`: {op} is not defined on {dtype.name}")
