"""Rates of functions such as exp: each is computed in vectors, by every implementation, and one by one.

The bound needs the highest rate that any program reaches. So each implementation runs alone, on numbers from the first cache, on
numbers as programs have them, and on zeros and infinities, for which functions of <math.h> return early.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...codegen.bodies.c_vectors import CHelpers
from ...codegen.bodies.vector_functions import (
    POLYNOMIALS,
    ULP1,
    ULP4,
    has_vector_function,
    vector_function,
)
from ...codegen.bodies.vectors import Prelude, math_function
from ...codegen.text.types import SCALAR_TYPES
from ...kernels.ir.kernel import DType
from ...kernels.ir.ops import OPS
from ...space.targets.target import FunctionRate
from ..library import load_library
from ..measure.calibration import FUNCTION

_VECTOR, _SCALAR = "vector", "scalar"
_DTYPES = (DType.f32, DType.f64)
_N = 256  # elements: operands and results of f64 take 6 KiB, which every first cache holds
_ROUNDS, _SAMPLES = 4, 7
_OPERANDS = ("1.25 + 0.001 * i", "0.5 + 0.001 * i", "0", "INFINITY")
_HEAD = """\
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <time.h>
"""
_BEHIND = f"""\
static double now_ns(void) {{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}}
#define RATED(NAME, T, LANES, CALL)                                        \\
    double NAME(int kind) {{                                                \\
        static T x[{_N}] __attribute__((aligned(64))), y[{_N}] __attribute__((aligned(64))); \\
        for (int i = 0; i < {_N}; ++i) x[i] = (T)operand(kind, i);          \\
        const double start = now_ns();                                     \\
        for (int k = 0; k < {_ROUNDS}; ++k) {{                              \\
            for (int i = 0; i < {_N}; i += LANES) CALL;                     \\
            __asm__ volatile("" : : "r"(y) : "memory");                    \\
        }}                                                                  \\
        return now_ns() - start;                                           \\
    }}
"""


def functions_text(vector_bytes: int) -> str:
    """Returns the C file that measures all functions, in vectors of these bytes and of half as many."""
    prelude = Prelude(CHelpers())
    rated = [
        text
        for op, dtype in _functions()
        for text in _implementations(prelude, op, dtype, vector_bytes)
    ]
    cases = "".join(f"    if (kind == {k}) return {e};\n" for k, e in enumerate(_OPERANDS))
    operand = f"static double operand(int kind, int i) {{\n{cases}    return 0;\n}}\n"
    return "\n".join([_HEAD, prelude.text(), operand, _BEHIND, *rated, ""])


def function_samples(library: Path, n_threads: int) -> dict[str, list[float]]:
    """Returns samples of the rates, in elements a ns of `n_threads` cores, by name; `library` is built of `functions_text`."""
    functions, samples = load_library(library), dict[str, list[float]]()
    for name, symbols in _symbols(functions).items():
        for symbol in symbols:
            run = functions[symbol]
            run.restype, run.argtypes = ctypes.c_double, [ctypes.c_int]
            for kind in range(len(_OPERANDS)):
                run(kind)  # loads the function's tables
                least = min(run(kind) for _ in range(_SAMPLES))
                samples.setdefault(name, []).append(n_threads * _N * _ROUNDS / max(least, 1.0))
    return samples


def rates_from(best: Mapping[str, float]) -> tuple[FunctionRate, ...]:
    """Returns the rates of functions from the highest samples by name."""
    found = []
    for op, dtype in _functions():
        scalar = best.get(_name(op, dtype, _SCALAR), 0.0)
        if scalar > 0:
            vector = max(scalar, best.get(_name(op, dtype, _VECTOR), 0.0))
            found.append(
                FunctionRate(op=op, dtype=dtype.name, vector_per_ns=vector, scalar_per_ns=scalar)
            )
    return tuple(found)


def _functions() -> Iterator[tuple[str, DType]]:
    for op in OPS.values():
        for dtype in _DTYPES:
            if op.is_transcendental and math_function(op.name, dtype) is not None:
                yield op.name, dtype


def _name(op: str, dtype: DType, how: str) -> str:
    return f"{FUNCTION}{op}_{dtype.name}_{how}"


def _implementations(prelude: Prelude, op: str, dtype: DType, vector_bytes: int) -> Iterator[str]:
    c, operands = SCALAR_TYPES[dtype.name], OPS[op].arity
    one = f"y[i] = {math_function(op, dtype)}({', '.join(['x[i]'] * operands)})"
    yield f"RATED({_name(op, dtype, _SCALAR)}, {c}, 1, {one})"
    if not has_vector_function(op, dtype):
        return
    for n_bytes in (vector_bytes, vector_bytes // 2):
        lanes = n_bytes // dtype.size_bytes
        for k, ulp in enumerate(_accuracies(op, dtype)) if lanes > 1 else ():
            load, store = (prelude.use(x, dtype, lanes) for x in ("load", "store"))
            given = ", ".join([f"{load}(&x[i])"] * operands)
            call = f"{store}(&y[i], {vector_function(prelude, op, dtype, lanes, ulp)}({given}))"
            name = f"{_name(op, dtype, _VECTOR)}_{n_bytes}_{k}"
            yield f"RATED({name}, {c}, {lanes}, {call})"


def _accuracies(op: str, dtype: DType) -> Sequence[float]:
    """Returns the permitted errors with which each implementation of a function is chosen."""
    polynomial = POLYNOMIALS.get((op, dtype))
    own = [min(max(ULP1, polynomial.error_ulp), ULP4 - 1)] if polynomial is not None else []
    return [*own, ULP4]


def _symbols(library: ctypes.CDLL) -> dict[str, list[str]]:
    """Returns the functions of a library by the name of their samples."""
    found: dict[str, list[str]] = {}
    for op, dtype in _functions():
        scalar, vector = (_name(op, dtype, how) for how in (_SCALAR, _VECTOR))
        found[scalar] = [scalar]
        sizes = [f"{vector}_{n}_{k}" for n in (8, 16, 32, 64) for k in range(2)]
        found[vector] = [x for x in sizes if hasattr(library, x)]
    return found
