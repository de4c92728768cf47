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
    Bitcast,
    Cast,
    Compare,
    Const,
    DType,
    Expr,
    For,
    If,
    IsActive,
    KernelIR,
    Length,
    Load,
    Local,
    LocalArray,
    LocalElement,
    LoopIndex,
    Param,
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
from ..ir.meanings import MIX_FACTORS, MIX_SHIFTS
from ..ir.ops import OPS, functions
from ..ir.walk import children, nested_statements, walk
from .kernel import out_of_range

NAME = "run"
_TYPES: dict[DType, str] = {d: "bool_" if d is DType.bool_ else d.value for d in DType}
_DECORATOR = '@njit(error_model="numpy", cache=True)'  # a division by zero is none of an error
# What NumPy's minimum and maximum do with NaN, which Python's do not.
_HELPERS = {
    f"_{name}imum": f"def _{name}imum(a, b):\n    return a if a {sign} b or a != a else b"
    for name, sign in (("min", "<"), ("max", ">"))
}
_ONE, _FIRST, _SECOND, _LAST = (f"uint64({n})" for n in (1, *MIX_SHIFTS))
_HELPERS |= {
    "_round": """\
def _round(x):
    whole = trunc(x)
    if abs(x - whole) < 0.5:
        return float64(whole)
    return whole + copysign(1.0, float64(x))""",
    # Of signed integers.
    "_raw_div": """\
def _raw_div(a, b):
    if b != 0 and (a < 0) != (b < 0) and a % b != 0:
        return a // b + 1
    return a // b""",
    "_raw_mod": """\
def _raw_mod(a, b):
    if b != 0 and (a < 0) != (b < 0) and a % b != 0:
        return a % b - b
    return a % b""",
    # Of uint64.
    "_popcnt": f"""\
def _popcnt(x):
    n = 0
    while x != uint64(0):
        x = x & (x - {_ONE})
        n += 1
    return n""",
    "_clz": f"""\
def _clz(x):
    n = 64
    while x != uint64(0):
        x = x >> {_ONE}
        n -= 1
    return n""",
    "_mix64": f"""\
def _mix64(x):
    x = (x ^ (x >> {_FIRST})) * uint64({MIX_FACTORS[0]})
    x = (x ^ (x >> {_SECOND})) * uint64({MIX_FACTORS[1]})
    return x ^ (x >> {_LAST})""",
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
    more = ["full"] if " = full(" in body else []
    functions = [text for name, text in _HELPERS.items() if f"{name}(" in body]
    functions.append(f"def {NAME}({arguments}):\n{body}\n    return 0")
    text = "\n\n\n".join((_imports(more), *(f"{_DECORATOR}\n{f}" for f in functions)))
    return Printed(f"{text}\n", tuple(printer.places))


def _imports(more: list[str]) -> str:
    """What the text of any kernel may use."""
    called = [op for op in functions() if op.c and f"_{op.name}" not in _HELPERS]
    names = {m: [op.text for op in called if op.module == m] for m in ("math", "numpy")}
    of_math = ", ".join(sorted((*names["math"], "copysign", "inf", "isinf", "isnan", "nan")))
    of_numpy = ", ".join(
        sorted(
            (*names["numpy"], *more, *(t for t in _TYPES.values() if t not in ("bool_", "float16")))
        )
    )
    return f"from math import {of_math}\n\nfrom numba import njit\nfrom numpy import {of_numpy}"


def can_print(ir: KernelIR) -> bool:
    """Whether numba has all types of a kernel: it has no arithmetic on f16."""
    types = [p.dtype for p in ir.arrays] + [p.dtype for p in ir.scalars]
    for s in nested_statements(ir.body):
        for e in children(s):
            types += [x.dtype for x in walk(e)]
    return DType.f16 not in types


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
                case LocalArray(name=name, extent=extent, value=value):
                    self._check(value, depth)
                    dtype = value.dtype
                    self.shapes[name], self.dtypes[name] = (extent,), dtype
                    self._line(f"{self._local(name)} = full({extent}, {self.value(value)})", depth)
                case SetElement(name=name, index=index, value=value):
                    for x in (value, index):
                        self._check(x, depth)
                    self._check_indices(name, (index,), depth)
                    place = f"{self._local(name)}[{self.value(index)}]"
                    self._line(f"{place} = {self.value(value)}", depth)
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
        for load in reversed([e for e in walk(x) if isinstance(e, Load | LocalElement)]):
            if isinstance(load, Load):
                self._check_indices(load.array, load.indices, depth)
            else:
                self._check_indices(load.name, (load.index,), depth)

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
            case LocalElement(name=name, index=index, dtype=dtype):
                return f"{_TYPES[dtype]}({self._local(name)}[{self.value(index)}])"
            case Load(array=array, indices=indices, dtype=dtype):
                return f"{_TYPES[dtype]}({self._element(array, indices)})"
            case Unary(op=op, x=y):
                return self._unary(op, self.value(y), y.dtype, x.dtype)
            case Binary(op=op, a=a, b=b):
                return self._operation(op, self.value(a), self.value(b), x.dtype)
            case Compare(op=op, a=a, b=b):
                return f"({self.value(a)} {OPS[op].sign} {self.value(b)})"
            case Select(condition=c, a=a, b=b):
                return f"({self.value(a)} if {self.value(c)} else {self.value(b)})"
            case Cast(x=y, dtype=dtype):
                inner = self.value(y)
                return f"({inner} != 0)" if dtype is DType.bool_ else f"{_TYPES[dtype]}({inner})"
            case Bitcast(x=y, dtype=dtype):
                return f"{_TYPES[y.dtype]}({self.value(y)}).view({_TYPES[dtype]})"
            case Accumulator():
                raise TypeError("a kernel has no Accumulator: it belongs to Task.finish")
            case IsActive() | Length():
                raise TypeError("a kernel on sparse fields is lowered first")

    def _unary(self, op: str, x: str, of: DType, dtype: DType) -> str:
        match op:
            case "not":
                return f"(not {x})"
            case "neg" | "bit_not":
                return _small(f"({OPS[op].sign}{x})", dtype)
            case "exp2" | "log2" if of is DType.f32:
                # numba calls both types by one name, and cannot have both in one module.
                return f"float32({OPS[op].text}(float64({x})))"
            case "abs" if not of.is_signed:
                return x
            case "rsqrt":
                return f"({_TYPES[dtype]}(1) / sqrt({x}))"
            case "popcnt" | "clz":
                spare = f" - {64 - 8 * of.size_bytes}" if op == "clz" else ""
                return f"int32(_{op}(uint64({_unsigned(of)}({x}))){spare})"
        name = f"_{op}" if f"_{op}" in _HELPERS else OPS[op].text
        return _small(f"{name}({x})", dtype)

    def _operation(self, op: str, a: str, b: str, dtype: DType) -> str:
        if op in ("and", "or"):
            return f"({a} {OPS[op].sign} {b})"
        if op in ("min", "max"):
            return f"_{op}imum({a}, {b})"
        if op == "bit_shr":
            kind = _unsigned(dtype)
            return f"{_TYPES[dtype]}({kind}({a}) >> {kind}({b}))"
        if op in ("raw_div", "raw_mod"):
            sign = "//" if op == "raw_div" else "%"
            text = f"_{op}({a}, {b})" if dtype.is_signed else f"({a} {sign} {b})"
            return _small(text, dtype)
        sign = OPS[op].sign
        if op in ("floordiv", "mod") and dtype is DType.f32:  # numba has them of float64 alone
            a, b = f"float64({a})", f"float64({b})"
        return _small(f"({a} {sign} {b})" if sign else f"{OPS[op].text}({a}, {b})", dtype)


def _small(text: str, dtype: DType) -> str:
    """An operation of two int32 is one of int64 to numba: it is made small again, and wraps around."""
    return text if dtype in (DType.i64, DType.f64, DType.bool_) else f"{_TYPES[dtype]}({text})"


def _unsigned(dtype: DType) -> str:
    """The type without sign that is as wide."""
    return f"uint{8 * dtype.size_bytes}"


def _constant(x: Const) -> str:
    if x.dtype is DType.bool_:
        return str(bool(x.value))
    if isinstance(x.value, float) and not math.isfinite(x.value):
        text = "nan" if math.isnan(x.value) else ("inf" if x.value > 0 else "-inf")
        return f"{_TYPES[x.dtype]}({text})"
    if x.dtype in (DType.i64, DType.f64):
        return f"({x.value!r})"
    return f"{_TYPES[x.dtype]}({x.value!r})"
