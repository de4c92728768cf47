"""Emitter of straight-line code: a scope of C loads each element once, and forwards stored values to later loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import gcd
from typing import NamedTuple

from ...kernels.analysis.contraction import ALL, FREE, SUMS, is_step
from ...kernels.ir import kernel as ir
from ...kernels.ir.affine import to_affine
from ...kernels.ir.kernel import DType
from ...kernels.ir.ops import DIVISIONS
from ..text import csyntax as c
from ..text.constants import constant
from ..text.cprint import expression
from ..text.facts import PASSING_BY
from ..text.names import RESERVED, identifier
from ..text.types import mask_dtype, type_name
from .memory import Memory, Value
from .vectors import Prelude, math_function, operator

# Operators of indices, which do not overflow: they are at most as large as arrays.
_OF_INDICES = {"add": "+", "sub": "-", "mul": "*"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


_LOCALITY = {PASSING_BY: c.Num("0"), 1: c.Num("3"), 2: c.Num("2")}


class LineAhead(NamedTuple):
    """Prefetch target: the cache line `elements` elements behind a load's own.

    `cache`: level, as in `Builder.ask`.
    """

    elements: int
    cache: int


@dataclass
class Block:
    """One C scope: its statements, and by `known` the loaded or stored values that later loads of the scope may reuse."""

    statements: list[c.CStmt] = field(default_factory=list)
    known: dict[tuple[str, str, int], Value] = field(
        default_factory=dict
    )  # (array, index text, lanes)


class Builder:
    """Builder of C text: appends statements to nested scopes, translates expressions.

    All writers of a text share one.
    """

    def __init__(
        self,
        prelude: Prelude,
        names: Mapping[str, str],
        memory: Memory,
        knows_alignment: bool = False,
    ) -> None:
        """Starts a text with the helpers of `prelude` and the memory accesses of `memory`.

        `names`: C identifiers of arrays and scalars (see codegen/text/names.py).
        `knows_alignment`: the text defines ARE_ALIGNED.
        """
        self.knows_alignment, self.memory = knows_alignment, memory
        self.prelude, self.names = prelude, names
        self.blocks: list[Block] = [Block()]
        self.used = {*names, *names.values(), *RESERVED, *memory.reserved}
        self.counters: dict[str, int] = {}
        self.multiples: dict[str, int] = {}  # what variables are known to be multiples of
        # Arrays with stores that are told ARE_ALIGNED, and the bytes of the widest of their vectors.
        self.aligned: dict[str, int] = {}
        self.level = FREE  # of what is written: see kernels/analysis/contraction.py

    # --- scopes and names ---

    @property
    def block(self) -> Block:
        return self.blocks[-1]

    def write(self, statement: c.CStmt) -> None:
        self.block.statements.append(statement)

    @contextmanager
    def scope(self) -> Iterator[Block]:
        """Context of a nested C scope. Loads inside are not reused behind the scope."""
        self.blocks.append(Block())
        try:
            yield self.blocks[-1]
        finally:
            self.blocks.pop()

    @contextmanager
    def rounding(self, level: int) -> Iterator[None]:
        """Context in which results are rounded one by one: of sums (level SUMS), of sums and products (ALL), of none (FREE)."""
        before, self.level = self.level, max(self.level, level)
        yield
        self.level = before

    def exact(self, op: str, dtype: DType) -> str | None:
        """Returns the name of the helper that does `op` without contraction; None if `op` may be contracted."""
        is_one = self.level == ALL if op == "mul" else self.level and op in ("add", "sub")
        return f"exact_{op}" if is_one and dtype in (DType.f32, DType.f64) else None

    def fresh(self, stem: str) -> str:
        """Returns an unused C identifier: `stem`, or `stem` with the first free number."""
        name = stem = identifier(stem)
        while name in self.used:
            self.counters[stem] = self.counters.get(stem, 0) + 1
            name = (
                f"{stem}{self.counters[stem]}"
                if not stem[-1].isdigit()
                else f"{stem}_{self.counters[stem]}"
            )
        self.used.add(name)
        self.multiples.pop(name, None)
        return name

    def multiple_of(self, x: c.CExpr) -> int:
        """Returns the greatest known power of two that divides index `x`; 0 if `x` is 0."""
        match x:
            case c.Num(text):
                return int(text)
            case c.Id(name):
                return self.multiples.get(name, 1)
            case c.Bin("*", a, b):
                return self.multiple_of(a) * self.multiple_of(b)
            case c.Bin("+" | "-" | "^", a, b):
                return gcd(self.multiple_of(a), self.multiple_of(b))
            case c.Un("-", a):
                return self.multiple_of(a)
        return 1

    def is_multiple(self, x: c.CExpr, n: int) -> bool:
        """True if index `x` is surely a multiple of `n`, a power of two."""
        return self.multiple_of(x) % n == 0

    def fresh_family(self, stem: str) -> str:
        """Returns an unused C identifier x such that no used identifier begins with x and an underscore."""
        name = self.fresh(stem)
        while any(other.startswith(f"{name}_") for other in self.used):
            name = self.fresh(stem)
        return name

    def forget(self, array: str) -> None:
        """Discards all reusable loads of `array` in the open scopes, since a store may have made them stale."""
        for block in self.blocks:
            for key in [k for k in block.known if k[0] == array]:
                del block.known[key]

    def forget_all(self) -> None:
        """Discards all reusable loads in the open scopes, since other blocks may have stored anything."""
        for block in self.blocks:
            block.known.clear()

    # --- memory ---

    def load(
        self,
        array: str,
        base: c.CExpr,
        index: c.CExpr,
        dtype: DType,
        lanes: int,
        lane_stride: int,
        ahead: LineAhead | None = None,
        hint: str = "",
    ) -> Value:
        """Returns one element, or a vector of `lanes` elements with stride `lane_stride`.

        A scope loads each only once.
        `ahead`: the cache line to prefetch before the load.
        `hint`: a value of choice LOAD_CACHE other than the default.
        """
        if lane_stride == 0:
            lanes = 0
        key = (
            array,
            expression(index) + (f"/{lane_stride}" if lane_stride not in (0, 1) else ""),
            lanes,
        )
        known = self.block.known.get(key)
        if known is not None:
            return known
        if ahead is not None:
            self.ask(base, c.add(index, c.number(ahead.elements)), ahead.cache)
        if lanes == 0:
            x = self.memory.element(base, index, hint)
        elif lane_stride == 1:
            plain = f"load_{hint.lower()}" if hint else "load"
            operation = self.prelude.use(
                self.memory.access(self, plain, index, lanes), dtype, lanes
            )
            x = c.Call(operation, (c.Un("&", c.Index(base, index)),))
        else:
            x = self.memory.strided(self, base, index, dtype, lanes, lane_stride, hint)
        return self.remember(key, array, Value(x, dtype, lanes))

    def ask(self, base: c.CExpr, index: c.CExpr, cache: int, *, is_stored: bool = False) -> None:
        """Writes a prefetch of the cache line that holds element `base[index]`.

        `cache`: the level, 1 or 2, or PASSING_BY for data that caches need not retain.
        `is_stored`: the prefetch is for a store, so the line is taken from other cores.
        """
        place, kind = c.Un("&", c.Index(base, index)), c.Num(str(int(is_stored)))
        self.write(c.Evaluate(c.Call(c.PREFETCH, (place, kind, _LOCALITY[cache]))))

    def knows(self, array: str, index: c.CExpr, lanes: int) -> bool:
        """True if this scope already has the value of `lanes` contiguous elements at this index of an array."""
        return (array, expression(index), lanes) in self.block.known

    def remember(self, key: tuple[str, str, int], stem: str, value: Value) -> Value:
        named = self.name(value, stem)
        self.block.known[key] = named
        return named

    def name(self, value: Value, stem: str) -> Value:
        """Returns the value under a C variable of its own, which is declared if need be."""
        if isinstance(value.x, c.Id):
            return value
        name = self.fresh(f"{stem}_")
        if value.lanes:
            self.prelude.vector_type(value.dtype, value.lanes)
        self.write(c.Declare(type_name(value.dtype, value.lanes), name, value.x, constant=True))
        return Value(c.Id(name), value.dtype, value.lanes)

    def store(
        self, array: str, base: c.CExpr, index: c.CExpr, value: Value, dtype: DType, stream: bool
    ) -> None:
        """Stores a value at `base[index]`; with `stream` around the caches.

        A later load in this scope reuses the value.
        """
        value = self.name(self.converted(value, dtype), array)
        self.forget(array)
        place = c.Index(base, index)
        if value.lanes:
            plain = self.memory.access(self, "stream" if stream else "store", index, value.lanes)
            operation = self.prelude.use(plain, dtype, value.lanes)
            told = self.memory.alignment(self, base, index, value) if stream else ()
            self.write(c.Evaluate(c.Call(operation, (c.Un("&", place), value.x, *told))))
        else:
            self.write(self.memory.assignment(place, value.x, stream))
        self.block.known[array, expression(index), value.lanes] = value

    # --- values ---

    def splat(self, value: Value, lanes: int) -> Value:
        """Returns a vector with the scalar `value` in all lanes."""
        if value.lanes or not lanes:
            return value
        return Value(
            c.Call(self.prelude.use("splat", value.dtype, lanes), (value.x,)), value.dtype, lanes
        )

    def converted(self, value: Value, dtype: DType) -> Value:
        if value.dtype is dtype:
            return value
        if value.lanes:
            operation = self.prelude.use("convert", dtype, value.lanes, value.dtype)
            return Value(c.Call(operation, (value.x,)), dtype, value.lanes)
        return Value(c.CastTo(type_name(dtype, 0), value.x), dtype)

    def cast(self, value: Value, source: DType, dtype: DType) -> Value:
        """Returns `value`, of type `source`, converted to `dtype`."""
        if dtype is DType.bool_ and source is not DType.bool_:
            mask = mask_dtype(source) if value.lanes else DType.bool_
            zero = self.splat(Value(constant(0, source), source), value.lanes)
            return Value(c.Bin("!=", value.x, zero.x), mask, value.lanes)
        if source is DType.bool_ and value.lanes:  # a mask: -1 is true
            value = Value(c.Un("-", value.x), value.dtype, value.lanes)
        return self.converted(value, dtype)

    def bitcast(self, value: Value, dtype: DType) -> Value:
        operation = self.prelude.use("bitcast", dtype, value.lanes, value.dtype)
        return Value(c.Call(operation, (value.x,)), dtype, value.lanes)

    def combine(self, op: str, a: Value, b: Value) -> Value:
        """Returns `a op b`, with `op` an operator of reductions (add, mul, min, max and others)."""
        return self.binary(op, a, b, a.dtype)

    def evaluate(
        self, e: ir.Expr, leaf: Callable[[ir.Expr], Value], ulp: float | None = None
    ) -> Value:
        """Translates an IR expression to C; `leaf` translates loads, loop indices, locals and the accumulator.

        With `ulp` given, factors of a product may be multiplied in any order, and vector functions
        may err by `ulp` units in the last place.
        """
        if (level := self.level_of(e)) > self.level:
            with self.rounding(level):
                return self.evaluate(e, leaf, ulp)
        match e:
            case ir.Const(value, dtype):
                return Value(constant(value, dtype), dtype)
            case ir.Param(name, dtype):
                return Value(c.Id(self.names[name]), dtype)
            case ir.Unary(op, x, dtype):
                operand = self.evaluate(x, leaf, ulp)
                if op == "neg" and dtype.is_index and to_affine(e) is not None:
                    return Value(c.Un("-", operand.x), dtype, operand.lanes)
                return self.unary(op, operand, x.dtype, dtype, ulp)
            case ir.Binary("mul", _, _, dtype) if ulp is not None and dtype.is_float:
                # Scalars first: one multiplication for all lanes and copies that have them in common.
                factors = [self.evaluate(x, leaf, ulp) for x in _factors(e)]
                if len(factors) > 2:
                    factors.sort(key=lambda f: f.lanes > 0)
                product = factors[0]
                for factor in factors[1:]:
                    product = self.binary("mul", product, factor, dtype)
                return product
            case ir.Binary(op, a, ir.Const(value), dtype) if op in DIVISIONS and dtype.is_integer:
                return self.divided(op, self.evaluate(a, leaf, ulp), int(value), dtype)
            case ir.Binary(op, a, b, dtype):
                left, right = self.evaluate(a, leaf, ulp), self.evaluate(b, leaf, ulp)
                if op in _OF_INDICES and dtype.is_index and to_affine(e) is not None:
                    return Value(
                        c.Bin(_OF_INDICES[op], left.x, right.x), dtype, max(left.lanes, right.lanes)
                    )
                return self.binary(op, left, right, dtype, ulp)
            case ir.Compare(op, a, b):
                left, right = self.evaluate(a, leaf, ulp), self.evaluate(b, leaf, ulp)
                lanes = max(left.lanes, right.lanes)
                left, right = self.splat(left, lanes), self.splat(right, lanes)
                compared = c.Bin(_COMPARE[op], left.x, right.x)
                # The mask of a vector comparison has lanes as wide as what was compared.
                return Value(compared, mask_dtype(left.dtype) if lanes else DType.bool_, lanes)
            case ir.Select(condition, a, b, dtype):
                return self.select(
                    self.evaluate(condition, leaf, ulp),
                    self.evaluate(a, leaf, ulp),
                    self.evaluate(b, leaf, ulp),
                    dtype,
                )
            case ir.Cast(x, dtype):
                return self.cast(self.evaluate(x, leaf, ulp), x.dtype, dtype)
            case ir.Bitcast(x, dtype):
                return self.bitcast(self.evaluate(x, leaf, ulp), dtype)
        return leaf(e)

    def level_of(self, e: ir.Expr) -> int:
        """Returns the rounding level of expression `e`: ALL if `e` must not be contracted, SUMS for a step, else FREE.

        A step is a sum that must be rounded by itself (`is_step`).
        """
        if isinstance(e, ir.Binary) and self.exact(e.op, e.dtype):
            return ALL
        return SUMS if is_step(e) else FREE

    def unary(self, op: str, x: Value, of: DType, dtype: DType, ulp: float | None = None) -> Value:
        """Returns `op x`, where `x` has type `of` and the result `dtype`; `ulp` as in `evaluate`."""
        if op == "not":
            return Value(c.Un("~" if x.lanes else "!", x.x), x.dtype, x.lanes)
        if op == "neg" and operator("sub", dtype):
            return Value(c.Un("-", x.x), dtype, x.lanes)
        if op == "bit_not" and dtype.size_bytes >= 4:
            return Value(c.Un("~", x.x), dtype, x.lanes)
        if op == "abs" and not dtype.is_signed:
            return x
        result = mask_dtype(of) if dtype is DType.bool_ and x.lanes else dtype
        return Value(c.Call(self.function(op, of, x.lanes, ulp), (x.x,)), result, x.lanes)

    def function(self, op: str, dtype: DType, lanes: int, ulp: float | None) -> str:
        """Returns the name of the C function that computes `op` on scalars or vectors of `dtype`.

        `ulp` as in `evaluate`.
        """
        if not lanes:
            return math_function(op, dtype) or self.prelude.use(op, dtype, 0)
        if ulp is None:
            return self.prelude.use(op, dtype, lanes)
        return self.prelude.of_vectors(op, dtype, lanes, ulp)

    def binary(self, op: str, a: Value, b: Value, dtype: DType, ulp: float | None = None) -> Value:
        lanes = max(a.lanes, b.lanes)
        exact = self.exact(op, dtype)
        if exact is None and (sign := operator(op, dtype)) is not None:
            if op.startswith("bit_"):  # which not every target has of a vector and a number
                a, b = self.splat(a, lanes), self.splat(b, lanes)
            return Value(c.Bin(sign, a.x, b.x), dtype, lanes)
        if op in ("and", "or"):
            return self.logical(op, a, b)
        a, b = self.splat(a, lanes), self.splat(b, lanes)
        return Value(
            c.Call(self.function(exact or op, dtype, lanes, ulp), (a.x, b.x)), dtype, lanes
        )

    def divided(self, op: str, x: Value, by: int, dtype: DType) -> Value:
        """Returns `x op by`: the quotient or remainder of integers by the constant `by`."""
        name = self.prelude.divided(op, dtype, x.lanes, by) if x.lanes else None
        if name is None:
            return self.binary(op, x, Value(constant(by, dtype), dtype), dtype)
        return Value(c.Call(name, (x.x,)), dtype, x.lanes)

    def logical(self, op: str, a: Value, b: Value) -> Value:
        lanes = max(a.lanes, b.lanes)
        if not lanes:
            return Value(c.Bin("&&" if op == "and" else "||", a.x, b.x), DType.bool_)
        widest = max((v.dtype for v in (a, b) if v.lanes), key=lambda d: d.size_bytes)
        sides = [self.as_mask(v, widest, lanes) for v in (a, b)]
        return Value(c.Bin("&" if op == "and" else "|", sides[0].x, sides[1].x), widest, lanes)

    def as_mask(self, value: Value, dtype: DType, lanes: int) -> Value:
        """Returns condition `value` as a mask: a vector with lanes -1 (true) and 0, as wide as `dtype`."""
        if value.lanes:
            return self.converted(value, dtype)
        is_compared = isinstance(value.x, c.Bin) and value.x.op in _COMPARE.values()
        truth = value.x if is_compared else c.Bin("!=", value.x, c.Num("0"))
        whole = Value(c.Un("-", c.CastTo(type_name(dtype, 0), truth)), dtype)
        return self.splat(whole, lanes)

    def select(self, condition: Value, a: Value, b: Value, dtype: DType) -> Value:
        lanes = max(a.lanes, b.lanes, condition.lanes)
        if not condition.lanes:
            a, b = self.splat(a, lanes), self.splat(b, lanes)
            return Value(c.Cond(condition.x, a.x, b.x), dtype, lanes)
        mask = self.converted(condition, mask_dtype(dtype))
        a, b = self.splat(a, lanes), self.splat(b, lanes)
        return Value(
            c.Call(self.prelude.use("select", dtype, lanes), (mask.x, a.x, b.x)), dtype, lanes
        )


def _factors(e: ir.Expr) -> list[ir.Expr]:
    """Returns the factors of a product, from left to right."""
    if isinstance(e, ir.Binary) and e.op == "mul":
        return [
            x for side in (e.a, e.b) for x in (_factors(side) if _same_product(e, side) else [side])
        ]
    return [e]


def _same_product(e: ir.Binary, side: ir.Expr) -> bool:
    return isinstance(side, ir.Binary) and side.op == "mul" and side.dtype is e.dtype
