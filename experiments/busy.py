"""Works that are called beside busy processes, call by call in turn: tuned, kernel by kernel, and by serial numba.

`threads.py` has the command and writes the page.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import numba
import numpy as np

from ..kernels.frontend.kernel import Kernel, kernel, types
from ..kernels.library import LibrarySequence, Sizes, load
from .measuring import busy_processes, median
from .polybench_kernels import five_points
from .rows import Row
from .writing import table, time_text

nd: Any = types.ndarray()
Call = Callable[[], float]
"""Makes one call; its nanoseconds."""

LOADS = (0, 2, 4, 14)
TUNED, PLAIN, SERIAL = "tuned", "kernel by kernel", "numba, one thread"
# Times serial numba: the sum of all calls, and what a twentieth of them takes longer than.
MOST, MOST_LATE = 1.3, 3.0
PROTOCOL = f"""Works of parallel launches: 80 launches of a stencil of 2^13; five kernels of 2^18; eight stencils of 256^2, between
which threads meet; and two products with one matrix of 512^2, whose sums threads add up. All are in f64.
A row is a process of its own, and one of three runs. "{TUNED}" is the fastest first candidate for all cores, "{PLAIN}" calls
each kernel from Python with default decisions, and "{SERIAL}" has the whole sequence as one function.
The three take turns call by call, beside as many processes as "load" says that do nothing but compute.
"x" is the sum of the times of all calls over that of serial numba, at most {MOST:g} wanted; "late" the same of the time that a
twentieth of the calls takes longer than, at most {MOST_LATE:g}."""
PROTOCOL_FORMER = """"now / former": the tuned work with the team of this version, over that with the team of an earlier one, in the
same process, in blocks of calls by turns, beside nothing: medians of calls."""


@kernel
def smooth(a: nd, b: nd) -> None:
    for i in range(1, a.shape[0] - 1):
        b[i] = 0.25 * a[i - 1] + 0.5 * a[i] + 0.25 * a[i + 1]


@kernel
def blend(x: nd, y: nd, z: nd) -> None:
    for i in range(x.shape[0]):
        z[i] = 0.5 * x[i] + 0.5 * y[i]


def launches(a: Any, b: Any) -> None:
    """80 launches."""
    for _ in range(40):
        smooth(a, b)
        smooth(b, a)


def updates(x: Any, y: Any, z: Any, w: Any) -> None:
    """Five kernels."""
    blend(x, y, z)
    smooth(z, w)
    blend(w, x, z)
    smooth(z, w)
    blend(w, y, z)


def steps(a: Any, b: Any) -> None:
    """Eight stencils, each of what all threads have made."""
    five_points(a, b)
    five_points(b, a)
    five_points(a, b)
    five_points(b, a)
    five_points(a, b)
    five_points(b, a)
    five_points(a, b)
    five_points(b, a)


def _work(
    sequence: Callable[..., None], n_arrays: int, n_axes: int, n: int, formula: str
) -> LibrarySequence:
    def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
        shape = (sizes["n"],) * n_axes
        return tuple(rng.uniform(0.5, 1.0, shape).astype(dtype) for _ in range(n_arrays))

    return LibrarySequence(
        name=sequence.__name__,
        formula=formula,
        sequence=sequence,
        sizes={"n": n, "run": 1},
        benchmark_sizes=(),
        make_arguments=make_arguments,
        reference=sequence,
        flops=lambda sizes: sizes["n"] ** n_axes,
    )


def _products() -> LibrarySequence:
    entry = load("bicgk")
    return LibrarySequence(
        name="products",
        formula=entry.formula,
        sequence=entry.sequence,
        sizes={"m": 512, "n": 512, "run": 1},
        benchmark_sizes=(),
        make_arguments=entry.make_arguments,
        reference=entry.reference,
        flops=entry.flops,
    )


WORKS = {
    work.name: work
    for work in (
        _work(launches, 2, 1, 1 << 13, "80 stencils"),
        _work(updates, 4, 1, 1 << 18, "five kernels"),
        _work(steps, 2, 2, 256, "eight stencils of two axes"),
        _products(),
    )
}


def serial_numba(sequence: Callable[..., None]) -> Callable[..., None]:
    """The sequence and its kernels as functions of numba for one thread."""
    assert isinstance(sequence, FunctionType)
    jit = numba.njit(fastmath=True)
    known = {k: jit(v.fn) if isinstance(v, Kernel) else v for k, v in sequence.__globals__.items()}
    compiled: Callable[..., None] = jit(FunctionType(sequence.__code__, known))
    return compiled


def timed(function: Callable[..., None], arguments: Sequence[Any]) -> Call:
    def call() -> float:
        started_ns = time.perf_counter_ns()
        function(*arguments)
        return float(time.perf_counter_ns() - started_ns)

    return call


def beside_loads(calls: Mapping[str, Call], n_calls: int) -> dict[str, dict[str, Any]]:
    """Times of calls by turns, by load and way."""
    found = {}
    for n in LOADS:
        with busy_processes(n):
            found[str(n)] = {way: _summary(ns) for way, ns in _turns(calls, n_calls).items()}
    return found


def _turns(calls: Mapping[str, Call], n_calls: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {way: [] for way in calls}
    order = list(calls)
    for call in calls.values():
        call()
    for _ in range(n_calls):
        for way in order:
            taken[way].append(calls[way]())
        order.append(order.pop(0))  # nobody is always behind the same one
    return taken


def _summary(ns: Sequence[float]) -> dict[str, float]:
    every = np.asarray(ns)
    late = float(np.quantile(every, 0.95))
    return {"sum": float(every.sum()), "median": median(every), "late": late, "calls": len(every)}


BLOCK, BLOCKS, FIRST = 40, 60, 10


def against_former(now: Call, former: Call) -> float:
    """The median of calls now over that of a former version, in blocks by turns: the threads of one are asleep before the calls of
    the other count.
    """
    taken: list[list[float]] = [[], []]
    for _ in range(BLOCKS):
        for call, ns in zip((now, former), taken, strict=True):
            ns += [call() for _ in range(BLOCK)][FIRST:]
    return median(taken[0]) / median(taken[1])


def is_busy_row(row: Row) -> bool:
    return row["name"] in WORKS


def cells(row: Row) -> Iterator[list[str]]:
    """A line for each load and way."""
    for n, by in row["loads"].items():
        serial = by[SERIAL]
        for way in (TUNED, PLAIN, SERIAL):
            x = by[way]
            yield [
                *(row["name"], str(row["sizes"]["run"]), n, way, str(x["calls"])),
                *(time_text(x["median"]), time_text(x["sum"] / x["calls"]), time_text(x["late"])),
                *(f"{x['sum'] / serial['sum']:.2f}", f"{x['late'] / serial['late']:.2f}"),
            ]


def missed(row: Row) -> list[str]:
    """Loads and ways that took longer than is wanted."""
    found = []
    for n, by in row["loads"].items():
        serial = by[SERIAL]
        for way in (TUNED, PLAIN):
            x, late = by[way]["sum"] / serial["sum"], by[way]["late"] / serial["late"]
            if x > MOST or late > MOST_LATE:
                found.append(f"{row['name']} run {row['sizes']['run']}, load {n}, {way}")
    return found


def report(rows: Sequence[Row]) -> list[str]:
    """The part of the page that is about works beside busy processes."""
    if not rows:
        return []
    heads = ["work", "run", "load", "who", "calls", "median", "mean", "slowest twentieth"]
    parts = ["", "## By turns with serial numba", "", PROTOCOL, ""]
    parts += [table([*heads, "x", "late"], [line for r in rows for line in cells(r)]), ""]
    above = [text for r in rows for text in missed(r)]
    parts += ["More than wanted: " + ("; ".join(above) if above else "nowhere") + "."]
    former = [r for r in rows if r.get("former") is not None]
    if former:
        said = [[r["name"], str(r["sizes"]["run"]), f"{r['former']:.3f}"] for r in former]
        parts += ["", PROTOCOL_FORMER, "", table(["work", "run", "now / former"], said)]
    return parts
