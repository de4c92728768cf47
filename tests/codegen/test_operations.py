"""Every operation on every type, and random expressions of them: NumPy lanes, LLVM and compiled C give the same numbers.

What one rounding determines is equal to the last bit; functions of <math.h> are near.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.bodies.c_vectors import CHelpers
from kernelscape.codegen.bodies.cuda_memory import CudaMemory
from kernelscape.codegen.bodies.cuda_vectors import CudaHelpers
from kernelscape.codegen.bodies.emitter import Builder
from kernelscape.codegen.bodies.memory import CMemory, Value
from kernelscape.codegen.bodies.vectors import Prelude
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.cprint import expression
from kernelscape.codegen.text.types import type_name
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.interpret.llvm import can_print
from kernelscape.kernels.ir import kernel
from kernelscape.kernels.ir.ops import COMPARISONS, OPS
from kernelscape.kernels.ir.text import show_expr
from kernelscape.kernels.ir.verify import check
from kernelscape.kernels.ir.walk import walk
from kernelscape.runtime.cpu.compiler import find_compiler
from kernelscape.testing.in_llvm import run_in_llvm

N = 64
LANES = 8
NUMBERS = tuple(d for d in kernel.DType if d is not kernel.DType.bool_)
INTEGERS = tuple(d for d in NUMBERS if d.is_integer)
EXACT = ("neg", "abs", "sqrt", "floor", "ceil", "trunc", "rint", "round")
DIVISIONS = ("floordiv", "mod", "raw_div", "raw_mod")
SHIFTS = ("shl", "shr", "bit_shr")


def values(dtype: kernel.DType, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        special = [
            0.0,
            -0.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            0.7,
            1.0,
            -1.0,
            np.nan,
            np.inf,
            -np.inf,
            3.25,
            100.0,
            0.1,
        ]
        drawn = rng.standard_normal(N - len(special)) * 3
    else:
        least, most = dtype.range
        special = [0, 1, 2, 3, 7, 100, least, most, least + 1, most - 1, most // 2, most // 3]
        special += [-1, -2, -100, -3] if dtype.is_signed else [5, 6, 8, 9]
        drawn = rng.integers(least, most, N - len(special), dtype.numpy, endpoint=True)
    return np.array([*special, *drawn], dtype.numpy)


def load(dtype: kernel.DType, which: int = 0) -> kernel.Load:
    return kernel.Load(f"{dtype.name}_{which}", (kernel.LoopIndex("i"),), dtype)


def zero(dtype: kernel.DType) -> kernel.Const:
    return kernel.Const(0.0 if dtype.is_float else 0, dtype)


def odd(x: kernel.Expr) -> kernel.Expr:
    """A divisor from -7 to 7, or to 15 without a sign: never zero."""
    small: kernel.Expr = kernel.Binary("bit_and", x, kernel.Const(15, x.dtype), x.dtype)
    if x.dtype.is_signed:
        small = kernel.Binary("add", small, kernel.Const(-8, x.dtype), x.dtype)
    return kernel.Binary("bit_or", small, kernel.Const(1, x.dtype), x.dtype)


def amount(x: kernel.Expr) -> kernel.Expr:
    return kernel.Binary("bit_and", x, kernel.Const(8 * x.dtype.size_bytes - 1, x.dtype), x.dtype)


def operation(op: str, a: kernel.Expr, b: kernel.Expr) -> kernel.Expr:
    """`a op b` where the language defines it."""
    if op in DIVISIONS and a.dtype.is_integer:
        half = kernel.Binary(
            "shr", a, kernel.Const(1, a.dtype), a.dtype
        )  # not the least, which divides by -1
        return kernel.Binary(op, half, odd(b), a.dtype)  # type: ignore[arg-type]
    if op in SHIFTS:
        b = amount(b)
    if op in COMPARISONS:
        return kernel.Compare(op, a, b)  # type: ignore[arg-type]
    return kernel.Binary(op, a, b, a.dtype)  # type: ignore[arg-type]


def every_operation() -> Iterator[kernel.Expr]:
    for row in OPS.values():
        for dtype in NUMBERS:
            if not row.accepts(dtype) or (row.name in ("min", "max") and dtype.is_float):
                continue  # what C's minimum makes of NaN is not NumPy's
            a, b = load(dtype), load(dtype, 1)
            yield (
                kernel.Unary(row.name, a, row.result(dtype))
                if row.arity == 1
                else operation(row.name, a, b)
            )


class Draw:
    """Random expressions of which all arithmetic is exact or rounded once."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, dtype: kernel.DType, depth: int) -> kernel.Expr:
        r = self.random
        if depth == 0 or r.random() < 0.1:
            return load(dtype, r.randrange(2)) if r.random() < 0.8 else self.constant(dtype)
        kind = r.randrange(8)
        if kind == 0:
            return self.cast(dtype, depth)
        if kind == 1:
            sides = self.value(dtype, depth - 1), self.value(dtype, depth - 1)
            return kernel.Select(self.condition(depth - 1), *sides, dtype)
        if kind == 2:
            other = r.choice([d for d in NUMBERS if d.size_bytes == dtype.size_bytes])
            # Of what is no number the bits are not determined.
            x = load(other) if other.is_float else self.value(other, depth - 1)
            return kernel.Bitcast(x, dtype) if other is not dtype else x
        if kind == 3:
            ones = [
                op
                for op in (*EXACT, "bit_not", "popcnt", "clz", "ctz", "mix64")
                if self.fits(op, dtype)
            ]
            op = r.choice(ones)
            of = kernel.DType.u32 if OPS[op].gives else dtype
            return kernel.Unary(op, self.value(of, depth - 1), dtype)
        pairs = ["add", "sub", "mul", "div", *DIVISIONS, "bit_and", "bit_or", "bit_xor", *SHIFTS]
        pairs += ["min", "max"] if dtype.is_integer else []
        op = r.choice(
            [x for x in pairs if OPS[x].accepts(dtype) and not (x in DIVISIONS and dtype.is_float)]
        )
        return operation(op, self.value(dtype, depth - 1), self.value(dtype, depth - 1))

    @staticmethod
    def fits(op: str, dtype: kernel.DType) -> bool:
        return OPS[op].gives is dtype if OPS[op].gives else OPS[op].accepts(dtype)

    def constant(self, dtype: kernel.DType) -> kernel.Const:
        if dtype.is_float:
            return kernel.Const(self.random.choice([0.5, -1.5, 3.0, 0.1]), dtype)
        return kernel.Const(self.random.choice([*dtype.range, 1, 3, 77]), dtype)

    def condition(self, depth: int) -> kernel.Expr:
        dtype, op = self.random.choice(NUMBERS), self.random.choice(sorted(COMPARISONS))
        compared = kernel.Compare(op, self.value(dtype, depth), self.value(dtype, depth))  # type: ignore[arg-type]
        match self.random.randrange(4):
            case 0:
                return kernel.Unary("not", compared, kernel.DType.bool_)
            case 1:
                other = kernel.Cast(
                    self.value(self.random.choice(INTEGERS), depth), kernel.DType.bool_
                )
                return kernel.Binary(
                    self.random.choice(["and", "or"]), compared, other, kernel.DType.bool_
                )
            case 2:
                return kernel.Unary(
                    "isnan", self.value(kernel.DType.f32, depth), kernel.DType.bool_
                )
        return compared

    def cast(self, dtype: kernel.DType, depth: int) -> kernel.Expr:
        of = self.random.choice((*NUMBERS, kernel.DType.bool_))
        if of is kernel.DType.bool_:
            return kernel.Cast(self.condition(depth - 1), dtype)
        x = self.value(of, depth - 1)
        if (
            of.is_float and not dtype.is_float
        ):  # a float that the type does not hold gives any number
            held = kernel.Binary(
                "and",
                kernel.Compare("gt", x, kernel.Const(-1.0, of)),
                kernel.Compare("lt", x, kernel.Const(100.0, of)),
                kernel.DType.bool_,
            )
            x = kernel.Select(held, x, kernel.Const(0.0, of), of)
        return kernel.Cast(x, dtype)


def kernel_of(found: list[kernel.Expr]) -> kernel.KernelIR:
    """One loop that stores the expression number k in row k of the output of its type."""
    types = [
        d for d in NUMBERS if d in {y.dtype for x in found for y in walk(x)} | {kernel.DType.i32}
    ]
    inputs = [kernel.ArrayParam(f"{d.name}_{k}", d, (N,)) for d in types for k in (0, 1)]
    numeric = [
        x if x.dtype is not kernel.DType.bool_ else kernel.Cast(x, kernel.DType.i32) for x in found
    ]
    outputs = [kernel.ArrayParam(f"out_{d.name}", d, (len(found), N)) for d in types]
    stores = tuple(
        kernel.Store(
            f"out_{x.dtype.name}",
            (kernel.Const(k, kernel.DType.i64), kernel.LoopIndex("i")),
            x,
            kernel.NOWHERE,
        )
        for k, x in enumerate(numeric)
    )
    body = (kernel.For("i", kernel.Const(N, kernel.DType.i64), stores, kernel.NOWHERE),)
    ir = kernel.KernelIR("all", (*inputs, *outputs), (), body, kernel.NOWHERE)
    check(ir)
    return ir


def arrays_of(ir: kernel.KernelIR) -> dict[str, np.ndarray[Any, Any]]:
    found = {f"{d.name}_{k}": values(d, 2 * n + k) for n, d in enumerate(NUMBERS) for k in (0, 1)}
    return {
        p.name: found[p.name] if p.name in found else np.zeros(p.shape, p.dtype.numpy)
        for p in ir.arrays
    }


# CUDA C++ for a C++ compiler.
HOST = [
    "#define __device__",
    "#define __forceinline__ inline",
    "#include <math.h>",
    "#include <stdint.h>",
    *(
        f"#define __{kind}{name}_rn(a, b) ((a) {sign} (b))"
        for kind in "fd"
        for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))
    ),
]


def text_in_c(ir: kernel.KernelIR, lanes: int, is_cuda: bool = False) -> str:
    """A function of the arrays; with lanes all is computed in vectors of so many."""
    names = {p.name: p.name for p in ir.arrays}
    helpers, memory = (CudaHelpers(), CudaMemory()) if is_cuda else (CHelpers(), CMemory())
    w = Builder(Prelude(helpers), names, memory)
    (loop,) = ir.body
    assert isinstance(loop, kernel.For)

    def leaf(x: kernel.Expr) -> Value:
        assert isinstance(x, kernel.Load)
        place = c.Index(c.Id(x.array), c.Id("i"))
        if not lanes:
            return Value(place, x.dtype)
        return Value(
            c.Call(w.prelude.use("load", x.dtype, lanes), (c.Un("&", place),)), x.dtype, lanes
        )

    lines = []
    for s in loop.body:
        assert isinstance(s, kernel.Store) and isinstance(s.indices[0], kernel.Const)
        place = c.Index(c.Id(s.array), c.add(c.Num(str(s.indices[0].value * N)), c.Id("i")))
        value = w.evaluate(s.value, leaf)
        if lanes:
            value = w.splat(value, lanes)
            store = w.prelude.use("store", value.dtype, lanes)
            lines.append(f"{expression(c.Call(store, (c.Un('&', place), value.x)))};")
        else:
            lines.append(f"{expression(place)} = {expression(value.x)};")
    held = [
        f"{kind} *{p.name} = ({kind} *)args[{k}];"
        for k, p in enumerate(ir.arrays)
        if (kind := type_name(p.dtype, 0))
    ]
    loop_text = f"for (long i = 0; i < {N}; i += {lanes or 1}) {{"
    head = ["#include <immintrin.h>", "#include <math.h>", "#include <stdint.h>"]
    opening = "void run(void **args) {"
    if is_cuda:
        head, opening = HOST, f'extern "C" {opening}'
    return "\n".join((*head, w.prelude.text(), opening, *held, loop_text, *lines, "}", "}", ""))


# Products and sums rounded one by one, as NumPy does.
FLAGS = ("-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC")


def in_c(
    ir: kernel.KernelIR, folder: Path, lanes: int = 0, is_cuda: bool = False
) -> dict[str, np.ndarray[Any, Any]]:
    compiler = find_compiler()
    text, library = folder / f"all.{'cpp' if is_cuda else 'c'}", folder / "all.so"
    text.write_text(text_in_c(ir, lanes, is_cuda))
    command = ["g++"] if is_cuda else [compiler.path, *compiler.flags]
    done = subprocess.run(
        [*command, *FLAGS, "-o", library, text, "-lm"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:4000]
    found = arrays_of(ir)
    pointers = (ctypes.c_void_p * len(found))(*(found[p.name].ctypes.data for p in ir.arrays))
    ctypes.CDLL(str(library)).run(pointers)
    return found


def in_numpy(ir: kernel.KernelIR) -> dict[str, np.ndarray[Any, Any]]:
    found = arrays_of(ir)
    run_kernel(ir, found, {})
    return found


def in_llvm(ir: kernel.KernelIR) -> dict[str, np.ndarray[Any, Any]]:
    assert can_print(ir) == all(p.dtype is not kernel.DType.f16 for p in ir.arrays)
    found = arrays_of(ir)
    run_in_llvm(ir, found)
    return found


def agree(ir: kernel.KernelIR, got: dict[str, Any], want: dict[str, Any], near: bool) -> None:
    (loop,) = ir.body
    assert isinstance(loop, kernel.For)
    wrong = []
    for s in loop.body:
        assert isinstance(s, kernel.Store) and isinstance(s.indices[0], kernel.Const)
        ours, theirs = (x[s.array][int(s.indices[0].value)] for x in (got, want))
        # Python's own gamma functions err by hundreds of units beside their zeros.
        units = 512 if "gamma" in show_expr(s.value) else 8
        rtol = units * float(np.finfo(ours.dtype).eps) if near and s.value.dtype.is_float else 0.0
        same = (
            np.isclose(ours, theirs, rtol=rtol, atol=0, equal_nan=True) if rtol else ours == theirs
        )
        same |= (ours != ours) & (theirs != theirs)
        if not same.all():
            k = int(np.argmin(same))
            wrong.append(
                f"{show_expr(s.value)} [{s.value.dtype.name}] is {ours[k]} and not {theirs[k]} at {k}"
            )
    assert not wrong, "\n".join(wrong)


def without_halves(found: list[kernel.Expr]) -> list[kernel.Expr]:
    return [x for x in found if all(y.dtype is not kernel.DType.f16 for y in walk(x))]


def test_every_operation_on_every_type(tmp_path: Path) -> None:
    ir = kernel_of(list(every_operation()))
    agree(ir, in_c(ir, tmp_path), in_numpy(ir), near=True)


def test_every_operation_in_vectors(tmp_path: Path) -> None:
    ir = kernel_of(without_halves(list(every_operation())))
    agree(ir, in_c(ir, tmp_path, LANES), in_numpy(ir), near=True)


def test_every_operation_in_llvm() -> None:
    ir = kernel_of(without_halves(list(every_operation())))
    agree(ir, in_llvm(ir), in_numpy(ir), near=True)


def random_expressions(seed: int, count: int, depth: int = 4) -> list[kernel.Expr]:
    draw = Draw(seed)
    return [draw.value(NUMBERS[k % len(NUMBERS)], depth) for k in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions(tmp_path: Path, seed: int) -> None:
    ir = kernel_of(random_expressions(seed, 120))
    agree(ir, in_c(ir, tmp_path), in_numpy(ir), near=False)


def test_random_expressions_in_vectors(tmp_path: Path) -> None:
    ir = kernel_of(without_halves(random_expressions(9, 200, 3)))
    agree(ir, in_c(ir, tmp_path, LANES), in_numpy(ir), near=False)


def test_random_expressions_in_llvm() -> None:
    ir = kernel_of(without_halves(random_expressions(5, 100, 3)))
    agree(ir, in_llvm(ir), in_numpy(ir), near=False)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("lanes", [0, LANES])
def test_every_operation_in_cuda(tmp_path: Path, lanes: int) -> None:
    found = without_halves(list(every_operation()))
    # Types of one size and sign have one text.
    known = (
        kernel.DType.f32,
        kernel.DType.f64,
        kernel.DType.i8,
        kernel.DType.u16,
        kernel.DType.i32,
        kernel.DType.u64,
        kernel.DType.bool_,
    )
    ir = kernel_of([x for x in found if not lanes or all(y.dtype in known for y in walk(x))])
    agree(ir, in_c(ir, tmp_path, lanes, is_cuda=True), in_numpy(ir), near=True)
