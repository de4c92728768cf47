"""Errors of vector functions (codegen/bodies/vector_functions.py) in units in the last place, against a wider type."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..codegen.bodies.c_vectors import CHelpers
from ..codegen.bodies.vector_functions import POLYNOMIALS, vector_function
from ..codegen.bodies.vectors import Prelude
from ..codegen.text.types import SCALAR_TYPES
from ..kernels.ir.kernel import DType
from ..kernels.ir.ops import OPS
from ..runtime.library import load_library

_WIDER = {DType.f32: ("double", ""), DType.f64: ("long double", "l")}
_GREATEST = """\
/* The greatest error of n values, where it is, and how many special values are wrong. */
static double greatest_{name}({parameters}, const {type} *y, long n, long *at, long *wrong) {{
    double worst = 0;
    for (long i = 0; i < n; ++i) {{
        const {wide} exact = {function}({given});
        const {type} near = ({type})exact;
        if (!isfinite(near) || !isfinite(y[i])) {{
            *wrong += !(isnan(near) && isnan(y[i])) && near != y[i];
            continue;
        }}
        *wrong += near == 0 && y[i] == 0 && !signbit(near) != !signbit(y[i]);
        const {type} size = fabs{f}(near), unit = nextafter{f}(size, INFINITY) - size;
        const double error = (double)(fabs{long}((({wide})y[i] - exact)) / unit);
        if (error > worst) worst = error, *at = i;
    }}
    return worst;
}}
double errors_{name}({arrays}, {type} *y, long n, long *at, long *wrong) {{
    for (long i = 0; i < n; i += {lanes}) {store}(&y[i], {name}({loads}));
    return greatest_{name}({passed}, y, n, at, wrong);
}}
void run_{name}({arrays}, {type} *y, long n) {{
    for (long i = 0; i < n; i += {lanes}) {store}(&y[i], {name}({loads}));
}}
"""


@dataclass(frozen=True)
class Function:
    """A vector function of `n_bytes`, permitted to err by `ulp`."""

    op: str
    dtype: DType
    n_bytes: int
    ulp: float

    @property
    def lanes(self) -> int:
        return self.n_bytes // self.dtype.size_bytes


@dataclass(frozen=True)
class Found:
    """The greatest error, its operands, and how many infinities, NaNs and signs of zero are wrong."""

    ulp: float
    at: tuple[float, ...]
    n_wrong: int


class VectorFunctions:
    """Vector functions, compiled."""

    def __init__(
        self, functions: Sequence[Function], compiler: Sequence[str], folder: Path
    ) -> None:
        prelude = Prelude(CHelpers())
        self.names = {f: vector_function(prelude, f.op, f.dtype, f.lanes, f.ulp) for f in functions}
        harness = [_harness(prelude, f, name) for f, name in self.names.items()]
        source, library = folder / "functions.c", folder / "functions.so"
        heads = "#include <math.h>\n#include <stdint.h>\n"
        source.write_text("\n".join([heads, prelude.text(), *dict.fromkeys(harness)]))
        subprocess.run(
            [*compiler, "-w", "-shared", "-fPIC", "-o", library, source, "-lm"], check=True
        )
        self.library = load_library(library)

    def errors(self, f: Function, *operands: NDArray[np.floating]) -> Found:
        """The errors of a function on arrays of its type whose length is a multiple of its lanes."""
        call = self.library[f"errors_{self.names[f]}"]
        call.restype = ctypes.c_double
        y, at, wrong = np.empty_like(operands[0]), ctypes.c_long(), ctypes.c_long()
        n = ctypes.c_long(len(y))
        worst = call(*map(_address, (*operands, y)), n, ctypes.byref(at), ctypes.byref(wrong))
        return Found(worst, tuple(float(x[at.value]) for x in operands), wrong.value)

    def run(self, f: Function, *operands: NDArray[np.floating], y: NDArray[np.floating]) -> None:
        """The function on arrays."""
        call = self.library[f"run_{self.names[f]}"]
        call(*map(_address, (*operands, y)), ctypes.c_long(len(y)))


def polynomials(sizes: Sequence[int]) -> Iterator[Function]:
    """Each polynomial of ours on vectors of these sizes in bytes."""
    for (op, dtype), polynomial in POLYNOMIALS.items():
        for n_bytes in sizes:
            yield Function(op, dtype, n_bytes, min(polynomial.error_ulp, 3.9))


def points(
    op: str, dtype: DType, n: int, rng: np.random.Generator
) -> tuple[NDArray[np.floating], ...]:
    """Operands, about 3n: special values, any bits, numbers with finite results, and numbers where results cancel."""
    t = np.dtype(dtype.value).type
    info = np.finfo(t)
    edges = [0.0, np.inf, np.nan, 1.0, info.tiny, info.smallest_subnormal, info.max, 0.5, 2.0, 1.5]
    special = np.array([*edges, *(-np.array(edges))], t)
    if OPS[op].arity == 2:
        x, y = (v.ravel() for v in np.meshgrid(special, special))
        size = np.log(float(info.max)) * rng.uniform(-1.1, 1.1, n)
        base = np.exp(rng.uniform(-60, 60, n))
        near = rng.uniform(0.9, 1.1, n)
        x = np.concatenate([x, base, near, rng.uniform(0, 4, n)]).astype(t)
        powers = [size / np.log(base), size / np.log(near), rng.uniform(-8, 8, n)]
        y = np.concatenate([y, *powers]).astype(t)
        return _whole(x), _whole(y)
    bits = np.frombuffer(rng.bytes(n * info.bits // 8), t)
    far = float(np.log(info.max)) * 1.1 * rng.uniform(-1, 1, n)
    if op in ("log", "log2"):
        far = np.exp(far * 0.8)
    quarter = rng.integers(-1000, 1000, n) * (np.pi / 2) + rng.normal(size=n) * 1e-3
    near = quarter if op in ("sin", "cos") else 1 + rng.uniform(-0.5, 0.5, n)
    return (_whole(np.concatenate([special, bits, far.astype(t), near.astype(t)])),)


def _whole(x: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.concatenate([x, np.ones(-len(x) % 64, x.dtype)])


def _harness(prelude: Prelude, f: Function, name: str) -> str:
    wide, suffix = _WIDER[f.dtype]
    c, operands = SCALAR_TYPES[f.dtype.name], "ab"[: OPS[f.op].arity]
    load, store = (prelude.use(x, f.dtype, f.lanes) for x in ("load", "store"))
    arrays = ", ".join(f"const {c} *{x}" for x in operands)
    return _GREATEST.format(
        name=name,
        type=c,
        wide=wide,
        long=suffix,
        f="f" if f.dtype is DType.f32 else "",
        function=OPS[f.op].c + suffix,
        parameters=arrays,
        arrays=arrays,
        passed=", ".join(operands),
        given=", ".join(f"({wide}){x}[i]" for x in operands),
        loads=", ".join(f"{load}(&{x}[i])" for x in operands),
        lanes=f.lanes,
        store=store,
    )


def _address(x: NDArray[np.floating]) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)
