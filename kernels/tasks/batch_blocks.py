"""Interleaved batches: blocks of arrays that belong to one iteration, copied to a local array while the iteration runs.

An iteration of a batch loop works on a small matrix or a short signal, its block. Equal elements of consecutive blocks are a whole
block apart in memory. Lanes (codegen/bodies/lanes.py) have a vector for each element of a local array: elements of all lanes are
side by side. This is the interleaved layout of batched linear algebra (Dongarra et al., Optimized Batched Linear Algebra for Modern
Architectures, Euro-Par 2017), an array of structures of arrays (AoSoA).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ..analysis.accesses import analyse
from ..analysis.effects import arrays_written
from ..analysis.neighbour_loads import row_length
from ..analysis.scatters import scatters
from ..analysis.vectorisable import MOST_ELEMENTS
from ..ir import kernel as ir
from ..ir.affine import Affine
from ..ir.arrays import ArrayInfo
from ..ir.body import Body, Site
from ..ir.domain import BOX
from ..ir.on_trees import NO_TREES
from ..ir.simplify import binary, const
from ..ir.task import Problem, Task
from ..ir.walk import coerced, identified, local_changed, mapped, nested_statements
from ..sparse.leaf_layout import fresh_name

_WRITTEN_OUT = 16  # elements of a row that are copied by statements of their own: registers transpose some of them at once
_INDEX = ir.DType.i64

Statements = tuple[ir.Stmt, ...]


@dataclass(frozen=True)
class BatchBlock:
    """Block of an array: all elements that one iteration of a task's loops may access.

    `loops`: for each axis the loop whose index all accesses have there; "" for the axes of the block.
    """

    array: ArrayInfo
    loops: tuple[str, ...]
    is_written: bool

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the array along which the block lies."""
        return tuple(k for k, loop in enumerate(self.loops) if not loop)

    @property
    def n_elements(self) -> int:
        return prod(self.array.shape[k] for k in self.axes)

    def place(self, indices: Sequence[ir.Expr]) -> ir.Expr:
        """Returns the number of an element in the block (row-major order)."""
        number: ir.Expr = const(0, _INDEX)
        for k in self.axes:
            row = binary("mul", number, const(self.array.shape[k], _INDEX))
            number = binary("add", row, coerced(indices[k], _INDEX))
        return number


def batch_blocks(problem: Problem, task: Task) -> tuple[BatchBlock, ...]:
    """Returns the blocks of a task's iterations that local arrays can hold, where its innermost loop runs in lanes.

    Elements of a block are apart from lane to lane, and some loop of the body goes through them. A block that is written back
    belongs to one iteration alone. Then no other task may write the array: it could do so meanwhile.
    """
    if not _is_plain(problem, task):
        return ()
    assert task.body is not None
    sites: dict[str, list[Site]] = {}
    for site in task.body.sites:
        sites.setdefault(site.state.name, []).append(site)
    declared = (s for s in nested_statements(task.body.statements) if isinstance(s, ir.LocalArray))
    room = MOST_ELEMENTS - sum(s.extent for s in declared)
    found: list[BatchBlock] = []
    for name, accesses in sites.items():
        block = _block(problem, task, name, accesses)
        if block is not None and block.n_elements <= room:
            room -= block.n_elements
            found.append(block)
    return tuple(found)


def interleaved(problem: Problem, task: Task, used: frozenset[str] = frozenset()) -> Body:
    """Returns the body of a task that copies its blocks to local arrays first, and those that it writes back last.

    `used`: further names that the local arrays do not get.
    """
    assert task.body is not None
    statements = task.body.statements
    taken = {*names_in(statements), *(loop.name for loop in task.scope), *used}
    blocks = {
        x.array.name: (x, fresh_name(f"{x.array.name}_block", taken))
        for x in batch_blocks(problem, task)
    }
    before: list[ir.Stmt] = []
    behind: list[ir.Stmt] = []
    for block, name in blocks.values():
        zero = const(0, block.array.dtype)
        before.append(ir.LocalArray(name, block.n_elements, zero, ir.NOWHERE))
        before += _Copy(block, name, taken, is_back=False).statements()
        if block.is_written:
            behind += _Copy(block, name, taken, is_back=True).statements()
    inside = _InBlocks(blocks)
    every = (*before, *map(inside.statement, statements), *behind)
    return analyse(identified(every), task.scope, task.body.reason)


# --- which arrays


def _is_plain(problem: Problem, task: Task) -> bool:
    """True for a body over known loops that touches no trees, and whose iterations update nothing in common."""
    if task.body is None or not task.loops or task.domain != BOX or not task.has_known_extents:
        return False
    if task.body.trees != NO_TREES or task.logical is not None:
        return False
    return not scatters(task, problem)


def _block(problem: Problem, task: Task, name: str, accesses: Sequence[Site]) -> BatchBlock | None:
    """Returns the block of one array; None where a local array is impossible, or saves nothing."""
    array = problem.array(name)
    loops = tuple(_loop_along(task, array, k, accesses) for k in range(len(array.shape)))
    block = BatchBlock(array, loops, any(x.writes for x in accesses))
    lane = task.loops[-1].name
    is_apart = loops.count(lane) == 1 and not loops[-1]
    if not is_apart or not any(x.loops for x in accesses) or row_length(array.dtype) < 2:
        return None
    if block.is_written and not _is_own(problem, task, block):
        return None
    return block if _is_always_the_element(task, name, array) else None


def _loop_along(task: Task, array: ArrayInfo, axis: int, accesses: Sequence[Site]) -> str:
    """Returns the loop of the task whose index every access has along an axis; "" if there is none."""
    for loop in task.loops:
        index = Affine(0, ((loop.name, 1),))
        if all(x.index[axis].plain == index for x in accesses):
            return loop.name if loop.extent <= array.shape[axis] else ""
    return ""


def _is_own(problem: Problem, task: Task, block: BatchBlock) -> bool:
    """True if a written block is that of one iteration, and of no other task that writes."""
    others = (x for x in problem.tasks if x is not task)
    is_alone = not any(block.array.name in arrays_written(x) for x in others)
    return is_alone and {loop.name for loop in task.loops} <= set(block.loops)


def _is_always_the_element(task: Task, name: str, array: ArrayInfo) -> bool:
    """True if all accesses are loads in the array's type, stores, and updates whose old values nobody reads."""
    assert task.body is not None
    for s in nested_statements(task.body.statements):
        if isinstance(s, ir.Update) and s.array == name and s.result:
            return False
    return array.dtype.is_float or array.dtype.is_integer


def names_in(statements: Statements) -> frozenset[str]:
    """Returns the names of loops and locals in statements."""
    inside = nested_statements(statements)
    return frozenset(s.loop if isinstance(s, ir.For) else local_changed(s) for s in inside)


# --- the body


class _InBlocks:
    """Rewriting of a body: accesses to arrays become accesses to the local arrays with their blocks."""

    def __init__(self, blocks: Mapping[str, tuple[BatchBlock, str]]) -> None:
        self.blocks = blocks

    def expression(self, e: ir.Expr) -> ir.Expr:
        e = mapped(e, self.expression, self.statement)
        if isinstance(e, ir.Load) and e.array in self.blocks:
            block, name = self.blocks[e.array]
            return ir.LocalElement(name, block.place(e.indices), e.dtype)
        return e

    def statement(self, s: ir.Stmt) -> ir.Stmt:
        s = mapped(s, self.expression, self.statement)
        if not isinstance(s, ir.Store | ir.Update) or s.array not in self.blocks:
            return s
        block, name = self.blocks[s.array]
        place, dtype = block.place(s.indices), block.array.dtype
        value = coerced(s.value, dtype)
        if isinstance(s, ir.Update):
            value = ir.Binary(s.op, ir.LocalElement(name, place, dtype), value, dtype)
        return ir.SetElement(name, place, value, s.where)


class _Copy:
    """Copy between a block and the local array `name`, in the order of memory; `is_back`: into the block."""

    def __init__(self, block: BatchBlock, name: str, taken: set[str], *, is_back: bool) -> None:
        self.block, self.name, self.taken, self.is_back = block, name, taken, is_back

    def statements(self) -> Statements:
        index: dict[int, ir.Expr] = {
            k: ir.LoopIndex(loop) for k, loop in enumerate(self.block.loops) if loop
        }
        return tuple(self.along(self.block.axes, index))

    def along(self, axes: tuple[int, ...], index: Mapping[int, ir.Expr]) -> Iterator[ir.Stmt]:
        """Yields the copies of all elements along `axes`; `index`: the indices along the other axes."""
        k, *inner = axes
        n = self.block.array.shape[k]
        if inner:
            i = self.loop()
            body = tuple(self.along(tuple(inner), {**index, k: i}))
            yield ir.For(i.loop, const(n, _INDEX), body, ir.NOWHERE)
            return
        n_rows = n // _WRITTEN_OUT if n > _WRITTEN_OUT else 0
        if n_rows:
            i = self.loop()
            first = binary("mul", i, const(_WRITTEN_OUT, _INDEX))
            row = tuple(self.row(k, index, first, _WRITTEN_OUT))
            yield ir.For(i.loop, const(n_rows, _INDEX), row, ir.NOWHERE)
        done = n_rows * _WRITTEN_OUT
        yield from self.row(k, index, const(done, _INDEX), n - done)

    def loop(self) -> ir.LoopIndex:
        return ir.LoopIndex(fresh_name(f"{self.name}_at", self.taken))

    def row(
        self, axis: int, index: Mapping[int, ir.Expr], first: ir.Expr, n: int
    ) -> Iterator[ir.Stmt]:
        """Yields the copies of `n` neighbouring elements from the one at index `first` on."""
        for k in range(n):
            at = {**index, axis: binary("add", first, const(k, _INDEX))}
            indices = tuple(at[axis] for axis in range(len(self.block.loops)))
            yield self.element(indices)

    def element(self, indices: tuple[ir.Expr, ...]) -> ir.Stmt:
        array, place = self.block.array, self.block.place(indices)
        if self.is_back:
            value = ir.LocalElement(self.name, place, array.dtype)
            return ir.Store(array.name, indices, value, ir.NOWHERE)
        return ir.SetElement(
            self.name, place, ir.Load(array.name, indices, array.dtype), ir.NOWHERE
        )
