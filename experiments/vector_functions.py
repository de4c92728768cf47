"""What are the errors of vector functions, and what does an element cost, beside libmvec and the C library lane by lane?

    python -m kernelscape.experiments.vector_functions [--points 10000000] [--only exp:f32 sin:f64] [--again]

f32 functions of one number are measured on every number, the others on `--points` and on special values. Rows that are in the
results already are kept unless --again is given. Writes experiments/results/vector_functions.md after every row.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codegen.bodies.vector_functions import POLYNOMIALS
from ..kernels.ir.kernel import DType
from ..kernels.ir.ops import OPS
from ..runtime.cpu.device import CpuDevice
from ..testing.vector_errors import Found, Function, VectorFunctions, points
from . import row
from .conditions import stamp, stamp_text
from .writing import parser_of, read_results, table, write_results

_MODULE = "vector_functions"
_BLOCK = 1 << 22  # numbers that are measured at once
_ROUNDS = 15
# Operands of the timed calls: where functions are used.
_RANGES = {"log": (0.01, 50.0), "log2": (0.01, 50.0), "pow": (0.1, 10.0)}
# The permitted errors: 0 is met by the functions of <math.h> alone.
_ULPS = {"polynomial": None, "libmvec": 4.0, "lane by lane": 0.0}

PROTOCOL = """"ulp" is the greatest error in units in the last place, beside the C library in double (for f32) or long double.
"wrong" counts infinities, NaNs and signs of zeros that are not those of the C library. "ns" is the least processor time of an
element in 15 rounds over 4,096 elements; the three implementations are timed in turn in each round. Vectors are as wide as the
registers of the processor."""


def make_row(op: str, dtype: DType, device: CpuDevice, n_points: int) -> dict[str, Any]:
    """Errors and times of one function by its implementations."""
    n_bytes = device.machine.facts().vector_bytes
    polynomial = POLYNOMIALS[op, dtype]
    ulps = {name: polynomial.error_ulp if u is None else u for name, u in _ULPS.items()}
    functions = {name: Function(op, dtype, n_bytes, u) for name, u in ulps.items()}
    compiler = device.builder.compiler
    with tempfile.TemporaryDirectory() as folder:
        made = VectorFunctions(
            list(functions.values()), (compiler.path, *compiler.flags), Path(folder)
        )
        errors = {
            name: _worst(made, functions[name], n_points) for name in ("polynomial", "libmvec")
        }
        times = _times(made, functions)
    return {
        "op": op,
        "dtype": dtype.name,
        "bytes": n_bytes,
        "stated": polynomial.error_ulp,
        "points": 1 << 32 if _is_exhaustive(op, dtype) else n_points,
        "ulp": {name: x.ulp for name, x in errors.items()},
        "at": {name: [v.hex() for v in x.at] for name, x in errors.items()},
        "wrong": {name: x.n_wrong for name, x in errors.items()},
        "ns": times,
    }


def _is_exhaustive(op: str, dtype: DType) -> bool:
    return dtype is DType.f32 and OPS[op].arity == 1


def _operands(op: str, dtype: DType, n_points: int) -> Iterator[tuple[NDArray[Any], ...]]:
    rng = np.random.default_rng(1)
    yield points(op, dtype, min(n_points, 1 << 16), rng)
    if _is_exhaustive(op, dtype):
        for first in range(0, 1 << 32, _BLOCK):
            yield (np.arange(first, first + _BLOCK, dtype=np.uint32).view(np.float32),)
        return
    for first in range(0, n_points, _BLOCK):
        yield points(op, dtype, min(_BLOCK, n_points - first) // 3, rng)


def _worst(made: VectorFunctions, f: Function, n_points: int) -> Found:
    """The greatest error over all points, measured on all cores."""
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda x: made.errors(f, *x), _operands(f.op, f.dtype, n_points)))
    worst = max(found, key=lambda x: x.ulp)
    return Found(worst.ulp, worst.at, sum(x.n_wrong for x in found))


def _times(made: VectorFunctions, functions: dict[str, Function]) -> dict[str, float]:
    """Nanoseconds an element by implementation."""
    f = next(iter(functions.values()))
    low, high = _RANGES.get(f.op, (-5.0, 5.0))
    rng = np.random.default_rng(1)
    x = rng.uniform(low, high, 4096).astype(f.dtype.value)
    operands, y = (x,) * OPS[f.op].arity, np.empty_like(x)
    least = dict.fromkeys(functions, np.inf)
    for _ in range(_ROUNDS):
        for name, function in functions.items():
            start = time.process_time_ns()
            for _ in range(50):
                made.run(function, *operands, y=y)
            least[name] = min(least[name], (time.process_time_ns() - start) / 50 / len(x))
    return least


def report(made: dict[str, Any]) -> str:
    """A line for each function and type."""
    heads = ["function", "type", "bytes", "points", "stated ulp", "ulp", "wrong"]
    heads += ["libmvec ulp", "libmvec wrong", *(f"{name} ns" for name in _ULPS)]
    cells = [
        [
            *(r["op"], r["dtype"], str(r["bytes"]), f"{r['points']:,}", f"{r['stated']:.1f}"),
            *(f"{r['ulp']['polynomial']:.3f}", str(r["wrong"]["polynomial"])),
            *(f"{r['ulp']['libmvec']:.3f}", str(r["wrong"]["libmvec"])),
            *(f"{r['ns'][name]:.2f}" for name in _ULPS),
        ]
        for r in made["rows"]
    ]
    parts = ["# Errors and costs of vector functions", "", PROTOCOL, "", stamp_text(made["stamp"])]
    return "\n".join([*parts, "", table(heads, cells), ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME:TYPE")
    parser.add_argument("--again", action="store_true", help="also rows that are there")
    given = parser.parse_args(arguments)
    known = {f"{op}:{dtype.name}": (op, dtype) for op, dtype in POLYNOMIALS}
    unknown = [name for name in given.only if name not in known]
    if unknown:
        parser.error(f"--only {unknown[0]}: the functions are {', '.join(known)}")
    if given.points < 64:
        parser.error(f"--points {given.points} must be 64 or more")
    device = row.cpu()
    kept = {} if given.again else read_results(_MODULE, given.results)
    rows = {f"{r['op']}:{r['dtype']}": r for r in kept.get("rows", [])}
    for name in given.only or known:
        if name not in rows:
            rows[name] = make_row(*known[name], device, given.points)
            print(name, rows[name]["ulp"], rows[name]["ns"], flush=True)
            values = {"stamp": stamp(device), "rows": [rows[n] for n in known if n in rows]}
            write_results(_MODULE, report, values, given.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
