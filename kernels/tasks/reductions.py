"""Construction of tasks from flat statements: definitions of locals are inlined or stored in temporaries.

Each reduction joins the one assignment that uses it, or is stored in a temporary, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..ir import kernel as ir
from ..ir.access import Access
from ..ir.body import Closure, Reason
from ..ir.domain import Loop
from ..ir.task import Task
from ..ir.walk import Renaming, coerced, joined, loads, locals_read, size, walk
from . import distribute
from .branches import applied, in_box, join_branches, may_run
from .guards import conjunction
from .legality import (
    AccessUse,
    affine_axes,
    carried,
    check_distribution,
    reduction_loops,
    writes_between,
)
from .narrowing import narrowed_task


@dataclass(frozen=True)
class Split:
    """Result of distributing one nest: its tasks in order, named after the array they write, and temporaries."""

    tasks: tuple[Task, ...]
    temps: tuple[ir.ArrayParam, ...]


def split(
    flat: tuple[distribute.Flat, ...],
    call: str,
    kernel: str,
    arrays: Mapping[str, ir.ArrayParam],
    fast_math: bool,
    branch: Reason | None = None,
) -> Split:
    """Returns the tasks of a flat nest. `call` prefixes the names of temporaries.

    Raises NotStructuredError, with the reason `branch` if a value would be computed speculatively and must not be.
    """
    if branch is not None:
        flat = join_branches(flat, arrays)
    check_distribution(flat, fast_math)
    work = _Splitter(list(flat), call, dict(arrays))
    work.place_definitions()
    work.place_reductions()
    tasks: list[Task] = []
    for k, s in enumerate(work.flat):
        if isinstance(s, distribute.ArrayAssignment):
            made = _task(s, work.merged.get(k), kernel, work.arrays, fast_math)
            if made is not None:
                if branch is not None and not may_run(made, work.arrays):
                    raise distribute.NotStructuredError(branch.kind, branch.text, branch.where)
                tasks.append(made)
    return Split(tuple(tasks), tuple(work.temps))


class _Splitter:
    def __init__(
        self, flat: list[distribute.Flat], call: str, arrays: dict[str, ir.ArrayParam]
    ) -> None:
        self.flat: list[distribute.Flat | None] = list(flat)
        self.call = call
        self.arrays = arrays
        self.temps: list[ir.ArrayParam] = []
        self.merged: dict[
            int, distribute.Reduce
        ] = {}  # position of an assignment -> the reduction it finishes

    def users(self, name: str) -> list[int]:
        return [
            k
            for k, s in enumerate(self.flat)
            if s is not None and any(name in locals_read(e) for e in distribute.reads_of(s))
        ]

    def substitute(self, name: str, value: ir.Expr) -> None:
        renaming = Renaming(locals={name: value})
        for k in self.users(name):
            s = self.flat[k]
            assert s is not None
            self.flat[k] = applied(renaming, s)
        for k, r in self.merged.items():
            self.merged[k] = replace(r, value=renaming.apply(r.value), init=renaming.apply(r.init))

    def is_movable(self, start: int, use: int, read: ir.Expr) -> bool:
        arrays = frozenset(x.array for x in loads(read))
        present = tuple(
            s if s is not None else distribute.Define("", (), ir.Const(0, ir.DType.i64))
            for s in self.flat
        )
        return not writes_between(present, start, use, arrays)

    def meets_own_write(self, user: int, read: ir.Expr) -> bool:
        """True if `read`, moved into assignment `user`, would conflict with writes of other iterations of it.

        A temporary avoids this: all values are read before the first write.
        """
        s = self.flat[user]
        if not isinstance(s, distribute.ArrayAssignment):
            return False
        own = [x for x in loads(read) if x.array == s.array]
        if not own or reduction_loops(s):
            return bool(own)
        write = AccessUse(s.array, affine_axes(s.indices), s.path, True, None, s.conditions)
        uses = (AccessUse(x.array, affine_axes(x.indices), s.path, False) for x in own)
        return any(carried(replace(u, conditions=s.conditions), write, s.path) for u in uses)

    def place_definitions(self) -> None:
        for k, s in enumerate(self.flat):
            if not isinstance(s, distribute.Define):
                continue
            if s.is_stored:
                self.store(k, s.name, s.path, s.value)
                continue
            users = self.users(s.name)
            n_reads = sum(_count(s.name, self.flat[u]) for u in users)
            fits = n_reads <= 1 or size(s.value) * n_reads <= distribute.MAX_INLINED_NODES
            movable = all(
                self.is_movable(k, u, s.value) and not self.meets_own_write(u, s.value)
                for u in users
            )
            if fits and movable:
                self.substitute(s.name, s.value)
                self.flat[k] = None
            else:
                self.store(k, s.name, s.path, s.value)

    def place_reductions(self) -> None:
        for k in reversed(range(len(self.flat))):
            s = self.flat[k]
            if not isinstance(s, distribute.Reduce):
                continue
            users = self.users(s.name)
            if not users and not self.is_merged_reader(s.name):
                self.flat[k] = None
            elif (
                len(users) == 1 and not self.is_merged_reader(s.name) and self.joins(k, s, users[0])
            ):
                self.merged[users[0]] = s
                self.flat[k] = None
            else:
                self.store(k, s.name, s.path, ir.Local(s.name, s.init.dtype))
                self.merged[k] = s

    def is_merged_reader(self, name: str) -> bool:
        return any(
            name in locals_read(e) for r in self.merged.values() for e in distribute.reads_of(r)
        )

    def joins(self, k: int, r: distribute.Reduce, user: int) -> bool:
        """True if assignment `user` can be the finish of reduction `r`, at position `k`, in one task."""
        s = self.flat[user]
        if not isinstance(s, distribute.ArrayAssignment) or user in self.merged or s.path != r.path:
            return False
        if reduction_loops(s) or any(r.name in locals_read(i) for i in s.indices):
            return False
        if self.arrays[s.array].dtype != r.init.dtype:
            return False
        if not self.is_movable(k, user, r.value) or not self.is_movable(k, user, r.init):
            return False
        path = distribute.full_path(r)
        write = AccessUse(s.array, affine_axes(s.indices), s.path, True)
        own = [x for e in (r.value, r.init) for x in loads(e) if x.array == s.array]
        reads = [AccessUse(x.array, affine_axes(x.indices), path, False) for x in own]
        return not any(carried(read, write, s.path) for read in reads)

    def store(self, k: int, name: str, path: distribute.Path, value: ir.Expr) -> None:
        """Replaces the definition of a local at position `k` by a store to a temporary, an axis for each loop."""
        array = self.temp_name(name)
        inner = [loop for loop in path if not loop.is_step]
        shape = tuple(loop.extent for loop in inner) or (1,)
        indices: tuple[ir.Expr, ...] = tuple(ir.LoopIndex(loop.name) for loop in inner)
        indices = indices or (ir.Const(0, ir.DType.i64),)
        dtype = ir.DType.i32 if value.dtype is ir.DType.bool_ else value.dtype
        self.arrays[array] = ir.ArrayParam(array, dtype, shape)
        self.temps.append(self.arrays[array])
        old = self.flat[k]
        assert old is not None
        self.flat[k] = None
        kept: ir.Expr = ir.Load(array, indices, value.dtype)
        if dtype is not value.dtype:  # as a number: arrays hold no conditions
            zero, one = ir.Const(0, dtype), ir.Const(1, dtype)
            value = ir.Select(value, one, zero, dtype)
            kept = ir.Compare("ne", ir.Load(array, indices, dtype), zero)
        self.substitute(name, kept)
        self.flat[k] = distribute.ArrayAssignment(array, indices, value, None, path, old.where)

    def temp_name(self, version: str) -> str:
        base = f"{self.call}.{version.split('#')[0]}"
        n, name = 1, base
        while name in self.arrays:
            n += 1
            name = f"{base}_{n}"
        return name


def _count(name: str, s: distribute.Flat | None) -> int:
    if s is None:
        return 0
    return sum(
        isinstance(x, ir.Local) and x.name == name for e in distribute.reads_of(s) for x in walk(e)
    )


def _task(
    s: distribute.ArrayAssignment,
    r: distribute.Reduce | None,
    kernel: str,
    arrays: Mapping[str, ir.ArrayParam],
    fast_math: bool,
) -> Task | None:
    """Returns the task of an assignment and its reduction; None if its conditions never hold."""
    if s.conditions and r is None:
        boxed = in_box(s)
        if boxed is None:
            return None
        s = boxed
    dtype = arrays[s.array].dtype
    target = Access(s.array, affine_axes(s.indices))
    old = ir.Load(s.array, s.indices, dtype)
    over = reduction_loops(s)
    value = coerced(s.value, dtype)
    steps = tuple(loop for loop in s.path if loop.is_step)
    path = s.path[len(steps) :]
    task = Task(s.array, kernel, path, target, dtype, value, fast_math=fast_math, where=s.where)
    task = replace(task, repeats=steps)
    if over:
        assert r is None
        assert s.op is not None
        loops = tuple(replace(loop, is_reduction=loop in over) for loop in path)
        finish = ir.Binary(s.op, old, ir.Accumulator(dtype), dtype)
        task = replace(task, loops=loops, op=s.op, finish=finish)
    else:
        if s.op is not None:
            value = ir.Binary(s.op, old, value, dtype)
        condition = conjunction(s.conditions)
        if condition is not None and r is not None:  # sums are finished in every iteration
            value = ir.Select(condition, value, old, dtype)
            condition = None
        task = replace(task, value=value, condition=condition)
        if r is not None:
            total = joined(r.op, coerced(r.init, dtype), ir.Accumulator(dtype), dtype)
            if r.init.dtype is ir.DType.bool_:
                total = ir.Compare("ne", total, ir.Const(0, dtype))
            finish_value = Renaming(locals={r.name: total}).apply(value)
            loops = (*path, *(replace(loop, is_reduction=True) for loop in r.over))
            task = replace(
                task, loops=loops, value=coerced(r.value, dtype), op=r.op, finish=finish_value
            )
    _check_affine(task)
    return _plain_loop_names(narrowed_task(task))


def _check_affine(task: Task) -> None:
    for e in (task.condition, task.value, task.finish):
        for x in loads(e) if e is not None else ():
            affine_axes(x.indices, task.where)
        if e is not None and locals_read(e):
            name = next(iter(locals_read(e))).split("#")[0]
            raise distribute.NotStructuredError(
                Closure.CARRIED,
                f"{name}, whose value goes from one iteration to the next",
                task.where,
            )


def _plain_loop_names(task: Task) -> Task:
    """Returns the task with the user's names of loops, numbered if a name occurs again."""
    names: dict[str, str] = {}
    for loop in task.loops:
        base = loop.name.split("@")[0]
        n, name = 1, base
        while name in names.values():
            n += 1
            name = f"{base}{n}"
        names[loop.name] = name
    return renamed(task, names)


def renamed(task: Task, names: Mapping[str, str]) -> Task:
    """Returns an affine task with its loops renamed. `names`: the new names by the old ones."""
    from ..ir.affine import rename

    renaming = Renaming(loops={old: ir.LoopIndex(new) for old, new in names.items()})
    axes = tuple(rename(a, names) if a is not None else None for a in task.target.axes)
    return replace(
        task,
        loops=tuple(Loop(names[x.name], x.extent, x.is_reduction) for x in task.loops),
        target=Access(task.target.array, axes),
        condition=renaming.apply(task.condition) if task.condition is not None else None,
        value=renaming.apply(task.value) if task.value is not None else None,
        finish=renaming.apply(task.finish) if task.finish is not None else None,
    )
