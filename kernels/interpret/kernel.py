"""Reference interpreter: runs the IR of a kernel on NumPy arrays, in place. It is the oracle for generated code.

Every operation has the dtype of its node. Loops run one iteration after the other, or as NumPy lanes where that is provably
equivalent (lanes.py). Sums over lanes are then pairwise, so float results may differ by rounding from a loop in order.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ..ir.errors import KernelRuntimeIndexError, failed_assertion
from ..ir.kernel import (
    Accumulator,
    Assert,
    Binary,
    Bitcast,
    Cast,
    Compare,
    Const,
    DType,
    Expr,
    For,
    If,
    KernelIR,
    Load,
    Local,
    LocalArray,
    LocalElement,
    LoopIndex,
    Param,
    Part,
    Print,
    Select,
    SetElement,
    SetLocal,
    Stmt,
    Store,
    Unary,
    Update,
    UpdateLocal,
    While,
)
from ..ir.ops import OPS
from ..ir.simplify import scalar
from ..ir.text import default_format
from ..ir.walk import identified
from .arithmetic import AbstractArithmetic, NumpyArithmetic
from .contraction import contraction, factors
from .lanes import LanePlan, Plans, linear, plan_lanes, together

MAX_LANES = (
    1 << 21
)  # 16 MiB for a temporary of doubles: a few fit beside the arrays and mostly in cache
Array = np.ndarray[Any, Any]


def run_kernel(
    ir: KernelIR,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Any],
    arithmetic: AbstractArithmetic | None = None,
) -> None:
    """Runs a kernel in place.

    `arrays` has an array for each of `ir.arrays` (none overlapping), `scalars` a number for each of `ir.scalars`. IndexError if an
    index leaves its array, AssertionError if an assertion fails. The kernel prints to `sys.stdout`.

    A read-only array may have a narrower dtype than the kernel's: its elements are converted by each load. `arithmetic` defaults to
    NumPy's.
    """
    values = {p.name: p.dtype.numpy.type(scalars[p.name]) for p in ir.scalars}
    with np.errstate(all="ignore"):
        body, own = identified(ir.body), arithmetic or NumpyArithmetic()
        _Run(dict(arrays), values, plan_lanes(body), arithmetic=own).block(body)


def evaluate_scalar(x: Expr, scalars: Mapping[str, Any]) -> Any:
    """The value of an expression over constants and scalar arguments, as a NumPy scalar."""
    with np.errstate(all="ignore"):
        return _Run({}, dict(scalars), {}).value(x)


@dataclass(frozen=True)
class _Lane:
    """Loop that runs as NumPy lanes: iterations `start .. start + count`, excluding the last.

    The n-th lane loop from outside is the n-th axis from the end.
    """

    loop: str
    start: int
    count: int


@dataclass
class AbstractRun:
    """Interpreter of the statements of one kernel, with its arrays, scalars and locals."""

    arrays: dict[str, Array]
    scalars: dict[str, Any]
    plans: Plans
    lanes: list[_Lane] = field(default_factory=list)  # outermost first
    indices: dict[str, int] = field(default_factory=dict)  # of loops that run in order
    local: dict[str, Any] = field(default_factory=dict)
    depth: dict[str, int] = field(
        default_factory=dict
    )  # lanes around the declaration of each local
    mask: Any = None
    # Of a loop whose lanes count from the indices of others: these. Its lane is its index plus theirs.
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)
    arithmetic: AbstractArithmetic = field(default_factory=NumpyArithmetic)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(lane.count for lane in reversed(self.lanes))

    # --- statements

    def block(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            match s:
                case For():
                    self._for(s)
                case SetLocal(name=name, value=value):
                    self._set(name, self.value(value))
                case UpdateLocal():
                    self._update_local(s)
                case LocalArray():
                    self._begin_array(s)
                case SetElement():
                    self._set_element(s)
                case Store() | Update():
                    self._write(s)
                case If():
                    self._if(s)
                case While():
                    self._while(s)
                case Print():
                    sys.stdout.write(self._printed(s.parts, s.formats))
                case Assert():
                    if not self.value(s.condition):
                        text = s.message + self._printed(s.parts, s.formats)
                        raise failed_assertion(f"{s.where}: {text}")

    def _for(self, s: For) -> None:
        extents = self.value(s.extent)
        if np.ndim(extents):
            self._for_uneven(s, extents)
            return
        extent = int(extents)
        plan = self.plans.get(s.uid, LanePlan(False, 1))
        before = set(self.local)
        if plan.is_vector and extent > 1:
            used = int(np.prod(self.shape, dtype=np.int64)) if self.lanes else 1
            chunk = max(1, MAX_LANES // (used * plan.inner_lanes))
            loads = [x for pair in contraction(s) or () for x in pair]
            if loads and (self.mask is None or self._are_views(s, extent, loads)):
                chunk = max(1, MAX_LANES // max(map(self._width, loads)))
            for start in range(0, extent, chunk):
                self._lanes(s, start, min(chunk, extent - start))
                self._end_locals(before)  # the next lanes may be fewer
        else:
            for k in range(extent):
                self.indices[s.loop] = k
                self.block(s.body)
        self._end_locals(before)

    def _end_locals(self, before: set[str]) -> None:
        """Ends a block: removes all locals but those in `before`, which existed when the block began."""
        for name in set(self.local) - before:
            del self.local[name]

    def _for_uneven(self, s: For, extents: Array) -> None:
        """Runs a loop whose length differs from lane to lane, as lanes over a box.

        Lanes outside of their own iteration range are masked out. `extents`: the length of the loop in each lane.
        """
        before, outer = set(self.local), self.mask
        self.origins[s.loop] = together(s.extent, {lane.loop for lane in self.lanes})
        origin = sum((self._index(x) for x in self.origins[s.loop]), np.int64(0))
        first, end = int(np.min(origin)), int(np.max(origin + extents))
        inner = self.plans.get(s.uid, LanePlan(False, 1)).inner_lanes
        chunk = max(1, MAX_LANES // (int(np.prod(self.shape, dtype=np.int64)) * inner))
        for start in range(first, end, chunk):
            self.lanes.append(_Lane(s.loop, start, min(chunk, end - start)))
            index = self._index(s.loop)
            inside = (index >= 0) & (index < extents)
            self.mask = inside if outer is None else outer & inside
            if self.mask.any():
                self.block(s.body)
            self.lanes.pop()
            self._end_locals(before)
        self.mask = outer
        del self.origins[s.loop]

    def _are_views(self, s: For, extent: int, loads: list[Load]) -> bool:
        """True if loads are within their arrays in all lanes of a loop of this extent, including masked ones."""
        self.lanes.append(_Lane(s.loop, 0, extent))
        found = [self._view_of_all(x) for x in loads]
        self.lanes.pop()
        return all(view is not None for view in found)

    def _view_of_all(self, x: Load) -> Array | None:
        """The elements that all lanes would load, masked or not; None if some would leave the array."""
        try:
            return self._view(x.array, x.indices)
        except IndexError:
            return None

    def _lanes(self, s: For, start: int, count: int) -> None:
        if count == 1:
            self.indices[s.loop] = start
            self.block(s.body)
            return
        self.lanes.append(_Lane(s.loop, start, count))
        self.block(s.body)
        self.lanes.pop()

    def _width(self, x: Load) -> int:
        """The maximal number of elements that a load reads for one iteration of a loop inside the present lanes."""
        forms = [self._linear(i) for i in x.indices]
        loops = {loop for form in forms if form is not None for loop in form[1]}
        counts = [n.count for n in self.lanes if None in forms or n.loop in loops]
        return int(np.prod(counts, dtype=np.int64))

    def _if(self, s: If) -> None:
        condition = self.value(s.condition)
        if np.ndim(condition) == 0:
            self.block(s.then if condition else s.orelse)
            return
        outer = self.mask
        for branch, taken in ((s.then, condition), (s.orelse, ~condition)):
            self.mask = taken if outer is None else outer & taken
            if branch and self.mask.any():
                self.block(branch)
        self.mask = outer

    def _while(self, s: While) -> None:
        """Runs a loop until its condition is false in all lanes; lanes with a false condition are masked out."""
        outer, before = self.mask, set(self.local)
        while True:
            condition = self.value(s.condition)
            if np.ndim(condition) > 0:
                self.mask = condition if self.mask is None else self.mask & condition
                condition = self.mask.any()
            if not condition:
                break
            self.block(s.body)
        self.mask = outer
        self._end_locals(before)

    def _printed(self, parts: tuple[Part, ...], formats: tuple[str, ...]) -> str:
        left = iter(formats)
        return "".join(
            x if isinstance(x, str) else printed(self.value(x), x.dtype, next(left, ""))
            for x in parts
        )

    def _set(self, name: str, value: Any) -> None:
        if name not in self.local:
            self.depth[name] = len(self.lanes)
        if self.mask is not None:
            value = np.where(self.mask, value, self.local.get(name, value))
        elif isinstance(value, np.ndarray) and value.base is not None:
            value = value.copy()  # a view of an array would change when the array is written
        self.local[name] = value

    def _begin_array(self, s: LocalArray) -> None:
        """Creates a local array for each lane; its last axis is that of the elements."""
        value = np.expand_dims(np.asarray(self.value(s.value)), -1)
        new = np.array(np.broadcast_to(value, (*self.shape, s.extent)))
        if self.mask is not None and s.name in self.local:
            mask = np.expand_dims(np.asarray(self.mask), -1)
            new = np.where(mask, new, self.local[s.name])
        self.local[s.name], self.depth[s.name] = new, len(self.lanes)

    def _set_element(self, s: SetElement) -> None:
        array, value = self.local[s.name], self.value(s.value)
        at = self._element_at(s.name, s.index)
        if self.mask is not None:
            value = np.where(self.mask, value, array[at])
        array[at] = value

    def _element_at(self, name: str, index: Expr) -> tuple[Any, ...]:
        """The index of one element of a local array for each lane; lanes further inside share the array."""
        array = self.local[name]
        (at,) = self._checked_indices(name, (index,), array.shape[-1:])
        lanes = range(self.depth[name])
        own = [np.arange(self.lanes[k].count).reshape((-1,) + (1,) * k) for k in lanes]
        return (*reversed(own), at)

    def _update_local(self, s: UpdateLocal) -> None:
        name, op = s.name, s.op
        new_axes = len(self.lanes) - self.depth[name]
        old = self.local[name]
        total = self._sum_of_products(s, new_axes)
        if total is not None:
            self.local[name] = self.arithmetic.operation("add", old, total)
            return
        value = self.value(s.value)
        if self.mask is not None:
            value = np.where(self.mask, value, _identity(op, value.dtype))
        if new_axes:
            full = np.broadcast_to(value, self.shape)
            value = self.arithmetic.reduced(op, full, tuple(range(new_axes)))
        self.local[name] = self.arithmetic.operation(op, old, value)

    def _sum_of_products(self, s: UpdateLocal, new_axes: int) -> Array | None:
        """The sum of products that an update adds to a local; None for other terms.

        None also if the mask excludes only some of the terms.
        """
        pairs = factors(s) if new_axes else None
        if pairs is None or (self.mask is not None and np.ndim(self.mask) > self.depth[s.name]):
            return None
        total: Array | None = None
        for pair in pairs:
            found = [self._factor(x) for x in pair]
            if found[0] is None or found[1] is None:
                return None
            part = self.arithmetic.contracted(found[0], found[1], self.shape, new_axes)
            total = part if total is None else total + part
        if self.mask is not None and total is not None:
            total = np.where(self.mask, total, total.dtype.type(0))
        return total

    def _factor(self, x: Load) -> Array | None:
        if self.mask is None:
            return np.asarray(self.value(x))
        view = self._view_of_all(x)
        return None if view is None else view.astype(x.dtype.numpy, copy=False)

    # --- writing

    def _write(self, s: Store | Update) -> None:
        if not isinstance(s, Update) or not s.result:
            self._change(s)
            return
        old = np.array(self._load(Load(s.array, s.indices, s.value.dtype)))[()]
        self._change(s)
        self._set(s.result, old)

    def _change(self, s: Store | Update) -> None:
        array = self.arrays[s.array]
        value = self.value(s.value)
        view = self._view(s.array, s.indices) if self.lanes and self.mask is None else None
        if view is not None:
            self._write_view(s, view, value)
            return
        indices = self._gathered(s.array, s.indices)
        if not self.lanes:
            if isinstance(s, Update):
                value = self.arithmetic.operation(s.op, array[indices], value)
            array[indices] = value
            return
        full = [np.broadcast_to(i, self.shape) for i in indices]
        value = np.broadcast_to(value, self.shape)
        if self.mask is not None:
            mask = np.broadcast_to(self.mask, self.shape)
            full, value = [i[mask] for i in full], value[mask]
        if isinstance(s, Store):
            array[tuple(full)] = value
        else:
            self.arithmetic.scattered(s.op, array, tuple(full), value)

    def _write_view(self, s: Store | Update, view: Array, value: Any) -> None:
        if isinstance(s, Store):
            np.copyto(
                view, value
            )  # all lanes have an axis of the view, or the loop would not run as lanes
            return
        full = np.broadcast_to(value, self.shape)
        shared = tuple(
            k for k, (n, m) in enumerate(zip(self.shape, view.shape, strict=True)) if n != m
        )
        if shared:
            full = self.arithmetic.reduced(s.op, full, shared, keepdims=True)
        view[...] = self.arithmetic.operation(s.op, view, full)

    # --- reading

    def value(self, x: Expr) -> Any:
        match x:
            case Const():
                return scalar(x)
            case LoopIndex(loop=loop):
                return self._index(loop)
            case Param(name=name):
                return self.scalars[name]
            case Local(name=name):
                return self.local[name]
            case LocalElement(name=name, index=index):
                return self.local[name][self._element_at(name, index)]
            case Load():
                return self._load(x)
            case Unary(op=op, x=y):
                return self.arithmetic.operation(op, self.value(y))
            case Binary(op=op, a=a, b=b):
                return self.arithmetic.operation(op, self.value(a), self.value(b))
            case Compare(op=op, a=a, b=b):
                return OPS[op].numpy(self.value(a), self.value(b))
            case Select(condition=c, a=a, b=b):
                return np.where(self.value(c), self.value(a), self.value(b))[()]
            case Cast(x=y, dtype=dtype):
                return np.asarray(self.value(y)).astype(dtype.numpy)[()]
            case Bitcast(x=y, dtype=dtype):
                return np.asarray(self.value(y)).view(dtype.numpy)[()]
            case Accumulator():
                raise TypeError("a kernel has no Accumulator: it belongs to Task.finish")

    def _index(self, loop: str) -> Any:
        for k, lane in enumerate(self.lanes):
            if lane.loop == loop:
                values = np.arange(lane.start, lane.start + lane.count, dtype=np.int64)
                index = values.reshape((lane.count,) + (1,) * k)
                return index - sum(self._index(x) for x in self.origins.get(loop, ()))
        return np.int64(self.indices[loop])

    def _load(self, x: Load) -> Any:
        if self.lanes and self.mask is None:
            view = self._view(x.array, x.indices)
            if view is not None:
                return view.astype(x.dtype.numpy, copy=False)
        return self.arrays[x.array][self._gathered(x.array, x.indices)].astype(
            x.dtype.numpy, copy=False
        )

    def _gathered(self, name: str, indices: tuple[Expr, ...]) -> tuple[Any, ...]:
        """The indices of a load in all lanes, checked against the array's bounds; 0 in masked lanes.

        Each is an integer, or an array of indices.
        """
        return self._checked_indices(name, indices, self.arrays[name].shape)

    def _checked_indices(
        self, name: str, indices: tuple[Expr, ...], shape: tuple[int, ...]
    ) -> tuple[Any, ...]:
        found = []
        for axis, (i, extent) in enumerate(zip(indices, shape, strict=True)):
            value = self.value(i)
            if self.mask is not None:
                value = np.where(self.mask, value, 0)
            is_one = not (isinstance(value, np.ndarray) and value.ndim)
            low, high = (value, value) if is_one else (value.min(), value.max())
            if low < 0 or high >= extent:
                out_of_range(name, axis, low if low < 0 else high, extent)
            found.append(value)
        return tuple(found)

    def _linear(self, x: Expr) -> tuple[int, dict[str, int]] | None:
        """The linear form of an index expression (see `linear`), in terms of the positions in lanes."""
        form = linear(x)
        if form is None or not self.origins:
            return form
        terms = dict(form[1])
        for loop, others in reversed(self.origins.items()):
            for other in others:
                terms[other] = terms.get(other, 0) - terms.get(loop, 0)
        return form[0], {loop: c for loop, c in terms.items() if c}

    def _view(self, name: str, indices: tuple[Expr, ...]) -> Array | None:
        """The elements that all lanes load, as a strided view with one axis for each lane.

        An axis has length 1 for a lane loop that does not occur in the indices.
        None unless each index is linear, with at most one lane loop in each and none in two.
        """
        array = self.arrays[name]
        by_loop = {lane.loop: k for k, lane in enumerate(self.lanes)}
        parts: list[Any] = []
        order: list[int] = []  # lane of each axis that the slicing keeps
        for axis, (i, extent) in enumerate(zip(indices, array.shape, strict=True)):
            form = self._linear(i)
            if form is None:
                return None
            offset, lane_of_axis, step = form[0], None, 0
            for loop, coefficient in form[1].items():
                if loop not in by_loop:
                    offset += coefficient * self.indices[loop]
                elif lane_of_axis is None:
                    lane_of_axis, step = by_loop[loop], coefficient
                else:
                    return None
            if lane_of_axis is None:
                _check(name, axis, offset, offset, extent)
                parts.append(offset)
                continue
            if lane_of_axis in order:
                return None
            lane = self.lanes[lane_of_axis]
            first = offset + step * lane.start
            last = first + step * (lane.count - 1)
            _check(name, axis, min(first, last), max(first, last), extent)
            end = last + (1 if step > 0 else -1)
            parts.append(slice(first, end if end >= 0 else None, step))
            order.append(lane_of_axis)
        view: Array = array[(*parts, ...)]  # the ellipsis keeps a single element a view
        view = view.transpose(sorted(range(len(order)), key=lambda a: -order[a]))
        missing = tuple(len(self.lanes) - 1 - k for k in range(len(self.lanes)) if k not in order)
        return np.expand_dims(view, missing)


class _Run(AbstractRun):
    """Interpreter of a kernel on plain arrays."""


def printed(value: Any, dtype: DType, wanted: str) -> str:
    """A value formatted by C's printf in the format `wanted` (see `Print`), or in that of its type."""
    if dtype.is_float and np.isnan(value):
        return "-nan" if np.signbit(value) else "nan"
    wanted = wanted or default_format(dtype)
    if dtype.is_float:
        return f"%{wanted}" % float(value)
    number = int(value)
    return f"%{wanted}" % (number if wanted[-1] in "di" else number % (1 << 8 * dtype.size_bytes))


def _check(name: str, axis: int, low: int, high: int, extent: int) -> None:
    if low < 0 or high >= extent:
        out_of_range(name, axis, low if low < 0 else high, extent)


def out_of_range(name: str, axis: int, value: Any, extent: int) -> NoReturn:
    """Raises IndexError for an index `value` along an axis of an array that has `extent` elements there."""
    raise KernelRuntimeIndexError(
        f"index {axis} of {name} is {int(value)}, outside 0..{extent - 1}"
    )


def _identity(op: str, dtype: np.dtype[Any]) -> Any:
    """The neutral element of an operation, which masked lanes contribute to an update."""
    neutral = OPS[op].neutral
    assert neutral is not None
    if dtype.kind == "f" or np.isfinite(neutral):
        return np.asarray(neutral).astype(dtype)[()]
    return np.iinfo(dtype).max if op == "min" else np.iinfo(dtype).min


__all__ = ["DType", "evaluate_scalar", "run_kernel"]
