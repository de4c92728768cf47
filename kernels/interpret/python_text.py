"""A kernel as the text of a module with one function of scalars and loops, in program order, for numba to compile.

What it computes is what the interpreter computes, but for the order in which lanes add up; it prints nothing. An index outside
its array ends the function: it returns the number of the place, 1 for the first of `Printed.places`, and leaves the index in
`at[0]`; 0 is well. So does an assertion that fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NoReturn

from ..ir.affine import limits
from ..ir.kernel import (
    Accumulator,
    Assert,
    Binary,
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
    LoopIndex,
    Param,
    Select,
    SetLocal,
    Stmt,
    Store,
    Unary,
    Update,
    UpdateLocal,
    While,
)
from ..ir.ops import OPS, functions
from ..ir.walk import walk
from .kernel import out_of_range

NAME = "run"
_TYPES = {
    DType.f32: "float32",
    DType.f64: "float64",
    DType.i32: "int32",
    DType.i64: "int64",
    DType.bool_: "bool_",
}
_DECORATOR = '@njit(error_model="numpy", cache=True)'  # a division by zero is none of an error
# What NumPy's minimum and maximum do with NaN, which Python's do not.
_HELPERS = {
    f"_{name}imum": f"def _{name}imum(a, b):\n    return a if a {sign} b or a != a else b"
    for name, sign in (("min", "<"), ("max", ">"))
}


@dataclass(frozen=True)
class Place:
    """An index that may leave its array: an axis of an array of `extent` elements along it."""

    array: str
    axis: int
    extent: int

    def fail(self, index: int) -> NoReturn:
        """Raises the IndexError of an index there."""
        out_of_range(self.array, self.axis, index, self.extent)


@dataclass(frozen=True)
class Claim:
    """An assertion."""

    text: str

    def fail(self, index: int) -> NoReturn:
        """Raises its AssertionError, without the values that it would name."""
        raise AssertionError(self.text)


@dataclass(frozen=True)
class Printed:
    """The text of a module with the function NAME: its arguments are the arrays, then the scalars of the kernel, then `at`, an
    array of one int64.
    """

    text: str
    places: tuple[Place | Claim, ...]


def print_python(ir: KernelIR) -> Printed:
    """The kernel as Python. Equal kernels that differ in names alone give equal texts."""
    printer = _Printer(ir)
    printer.block(ir.body, 1)
    arguments = ", ".join((*printer.arrays.values(), *printer.scalars.values(), "at"))
    body = "\n".join(printer.lines)
    functions = [text for name, text in _HELPERS.items() if name in body]
    functions.append(f"def {NAME}({arguments}):\n{body}\n    return 0")
    text = "\n\n\n".join((_imports(), *(f"{_DECORATOR}\n{f}" for f in functions)))
    return Printed(f"{text}\n", tuple(printer.places))


def _imports() -> str:
    """What the text of any kernel may use."""
    names = {m: [op.name for op in functions() if op.module == m] for m in ("math", "numpy")}
    of_math = ", ".join(sorted((*names["math"], "inf", "nan")))
    of_numpy = ", ".join(sorted((*names["numpy"], "float32", "float64", "int32", "int64")))
    return f"from math import {of_math}\n\nfrom numba import njit\nfrom numpy import {of_numpy}"


@dataclass
class _Printer:
    ir: KernelIR
    lines: list[str] = field(default_factory=list)
    places: list[Place | Claim] = field(default_factory=list)
    locals: dict[str, str] = field(default_factory=dict)
    loops: dict[str, str] = field(default_factory=dict)
    extents: dict[str, int | None] = field(default_factory=dict)  # of the loops around
    checked: set[tuple[str, int]] = field(default_factory=set)  # by the present statement

    def __post_init__(self) -> None:
        self.arrays = {p.name: f"a{k}" for k, p in enumerate(self.ir.arrays)}
        self.scalars = {p.name: f"s{k}" for k, p in enumerate(self.ir.scalars)}
        self.shapes = {p.name: p.shape for p in self.ir.arrays}
        self.dtypes = {p.name: p.dtype for p in self.ir.arrays}

    # --- statements

    def block(self, body: tuple[Stmt, ...], depth: int) -> None:
        if not body:
            self._line("pass", depth)
        for s in body:
            self.checked = set()
            match s:
                case For():
                    self._for(s, depth)
                case If(condition=condition, then=then, orelse=orelse):
                    self._check(condition, depth)
                    self._line(f"if {self.value(condition)}:", depth)
                    self.block(then, depth + 1)
                    if orelse:
                        self._line("else:", depth)
                        self.block(orelse, depth + 1)
                case SetLocal(name=name, value=value):
                    self._check(value, depth)
                    self._line(f"{self._local(name)} = {self.value(value)}", depth)
                case UpdateLocal(name=name, op=op, value=value):
                    self._check(value, depth)
                    local = self._local(name)
                    new = self._operation(op, local, self.value(value), value.dtype)
                    self._line(f"{local} = {new}", depth)
                case Store() | Update():
                    self._write(s, depth)
                case While():
                    self._while(s, depth)
                case Assert(condition=condition):
                    self._check(condition, depth)
                    self.places.append(Claim(f"{s.where}: {s.message}"))
                    self._line(f"if not {self.value(condition)}:", depth)
                    self._line(f"return {len(self.places)}", depth + 1)

    def _for(self, s: For, depth: int) -> None:
        self._check(s.extent, depth)
        index = self.loops.setdefault(s.loop, f"i{len(self.loops)}")
        self._line(f"for {index} in range(int64({self.value(s.extent)})):", depth)
        self.extents[s.loop] = s.extent.value if isinstance(s.extent, Const) else None  # type: ignore[assignment]
        self.block(s.body, depth + 1)
        del self.extents[s.loop]

    def _while(self, s: While, depth: int) -> None:
        self._line("while True:", depth)
        self._check(s.condition, depth + 1)
        self._line(f"if not {self.value(s.condition)}:", depth + 1)
        self._line("break", depth + 2)
        self.block(s.body, depth + 1)

    def _write(self, s: Store | Update, depth: int) -> None:
        for x in (s.value, *s.indices):
            self._check(x, depth)
        self._check_indices(s.array, s.indices, depth)
        target, value = self._element(s.array, s.indices), self.value(s.value)
        if isinstance(s, Update):
            value = self._operation(s.op, target, value, self.dtypes[s.array])
            if s.result:
                held = f"{_TYPES[self.dtypes[s.array]]}({target})"
                self._line(f"old, new = {held}, {value}", depth)
                self._line(f"{target} = new", depth)
                self._line(f"{self._local(s.result)} = old", depth)
                return
        self._line(f"{target} = {value}", depth)

    def _line(self, text: str, depth: int) -> None:
        self.lines.append("    " * depth + text)

    def _local(self, name: str) -> str:
        return self.locals.setdefault(name, f"v{len(self.locals)}")

    # --- indices

    def _check(self, x: Expr, depth: int) -> None:
        """Tests for every load of an expression, what is inside an index first."""
        for load in reversed([e for e in walk(x) if isinstance(e, Load)]):
            self._check_indices(load.array, load.indices, depth)

    def _check_indices(self, array: str, indices: tuple[Expr, ...], depth: int) -> None:
        for axis, (i, extent) in enumerate(zip(indices, self.shapes[array], strict=True)):
            known = limits(i, self.extents)
            if known is not None and known[0] >= 0 and known[1] < extent:
                continue
            if (self.value(i), extent) in self.checked:
                continue
            self.checked.add((self.value(i), extent))
            self.places.append(Place(array, axis, extent))
            self._line(f"k = {self.value(i)}", depth)
            self._line(f"if k < 0 or k >= {extent}:", depth)
            self._line("at[0] = k", depth + 1)
            self._line(f"return {len(self.places)}", depth + 1)

    def _element(self, array: str, indices: tuple[Expr, ...]) -> str:
        inside = ", ".join(self.value(i) for i in indices) or "()"
        return f"{self.arrays[array]}[{inside}]"

    # --- expressions

    def value(self, x: Expr) -> str:
        match x:
            case Const():
                return _constant(x)
            case LoopIndex(loop=loop, dtype=dtype):
                return _small(self.loops[loop], dtype)
            case Param(name=name):
                return self.scalars[name]
            case Local(name=name):
                return self._local(name)
            case Load(array=array, indices=indices, dtype=dtype):
                return f"{_TYPES[dtype]}({self._element(array, indices)})"
            case Unary(op=op, x=y):
                return self._unary(op, self.value(y), x.dtype)
            case Binary(op=op, a=a, b=b):
                return self._operation(op, self.value(a), self.value(b), x.dtype)
            case Compare(op=op, a=a, b=b):
                return f"({self.value(a)} {OPS[op].sign} {self.value(b)})"
            case Select(condition=c, a=a, b=b):
                return f"({self.value(a)} if {self.value(c)} else {self.value(b)})"
            case Cast(x=y, dtype=dtype):
                inner = self.value(y)
                return f"({inner} != 0)" if dtype is DType.bool_ else f"{_TYPES[dtype]}({inner})"
            case Accumulator():
                raise TypeError("a kernel has no Accumulator: it belongs to Task.finish")

    def _unary(self, op: str, x: str, dtype: DType) -> str:
        if op == "not":
            return f"(not {x})"
        return _small(f"(-{x})" if op == "neg" else f"{op}({x})", dtype)

    def _operation(self, op: str, a: str, b: str, dtype: DType) -> str:
        if op in ("and", "or"):
            return f"({a} {OPS[op].sign} {b})"
        if op in ("min", "max"):
            return f"_{op}imum({a}, {b})"
        return _small(f"({a} {OPS[op].sign} {b})", dtype)


def _small(text: str, dtype: DType) -> str:
    """An operation of two int32 is one of int64 to numba: it is made small again, and wraps around."""
    return f"{_TYPES[dtype]}({text})" if dtype in (DType.i32, DType.f32) else text


def _constant(x: Const) -> str:
    if x.dtype is DType.bool_:
        return str(bool(x.value))
    if isinstance(x.value, float) and not math.isfinite(x.value):
        text = "nan" if math.isnan(x.value) else ("inf" if x.value > 0 else "-inf")
        return f"{_TYPES[x.dtype]}({text})"
    if x.dtype in (DType.i64, DType.f64):
        return f"({x.value!r})"
    return f"{_TYPES[x.dtype]}({x.value!r})"
