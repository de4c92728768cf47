"""What does a call of a tuned function cost from Python, with and without a look at indices, and are calls from threads right?

    python -m kernelscape.experiments.calls [--rounds 15] [--calls 2000] [--rows 20000]

All ways are timed in turn, numba among them. Writes experiments/results/calls.md; takes a minute. The exit status is 1
where a call takes more than 1.5 times as long as numba's, or where a result of calls from several threads is wrong.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.frontend.kernel import kernel, types
from ..kernels.frontend.recorder import ndarray, record_sequence
from ..kernels.ir.kernel import DType
from ..kernels.library import Sizes, signed, zeros
from ..kernels.tasks.pipeline import normalise
from ..runtime.api.artifact import Artifact
from ..runtime.cpu.calling import PlainCaller, header_folders, rows_of
from ..runtime.cpu.device import CpuDevice
from ..runtime.cpu.runner import CpuModule
from ..runtime.records.replay import RebuiltRecord, Tuned, make_tuned
from ..runtime.records.signature import Signature
from ..runtime.records.stored import bind_arguments
from ..search.starts.complete import first_candidates
from ..space.build import build_space
from . import row
from .conditions import stamp, stamp_text
from .measuring import median
from .question import add_options, asked, options_of
from .writing import parser_of, table, time_text, write_results

LIMIT = 1.5  # times a call of numba's
N_ARRAYS = 8  # elements of each of the six arrays: the body takes nothing
N_MATRIX = 160
N_THREADS = 8
A_ROW = 16  # elements of each row of the sparse matrix

PROTOCOL = """Six arrays of eight floats: the body takes some nanoseconds, the rest is the call. "former" is what versions before
did: each pair of arrays compared by NumPy, pointers through ctypes, one workspace for all. All code is for one thread, as numba's
is. All ways are timed in turn in each round; a time is the median over rounds, a ratio the median of those of each round."""


@kernel
def add_five(
    a: types.ndarray(),
    b: types.ndarray(),
    c: types.ndarray(),
    d: types.ndarray(),
    e: types.ndarray(),
    out: types.ndarray(),
) -> None:
    for i in range(out.shape[0]):
        out[i] = a[i] + b[i] + c[i] + d[i] + e[i]


@kernel
def product(a: types.ndarray(), x: types.ndarray(), y: types.ndarray()) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = acc


def products(a: Any, x: Any, y: Any) -> None:
    """y = a a x, through a temporary in memory."""
    t = ndarray(DType.f32, (N_MATRIX,))
    product(a, x, t)
    product(a, t, y)


@kernel
def sparse_product(
    ptr: types.ndarray(),
    col: types.ndarray(),
    val: types.ndarray(),
    x: types.ndarray(),
    y: types.ndarray(),
) -> None:
    for i in range(y.shape[0]):
        acc = 0.0
        for k in range(ptr[i], ptr[i + 1]):
            acc += val[k] * x[col[k]]
        y[i] = acc


def sparse_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Arguments of `sparse_product`: an n x n matrix in compressed rows, with columns drawn at random."""
    n = sizes["n"]
    ptr = np.arange(0, A_ROW * n + 1, A_ROW, dtype=np.int32)
    col = rng.integers(0, n, A_ROW * n, np.int32)
    return ptr, col, signed(rng, dtype, A_ROW * n), signed(rng, dtype, n), zeros(dtype, n)


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int = asked(15)
    calls: int = asked(2000)
    rows: int = asked(20_000, "of the sparse matrix")


class Ways:
    """The ways to call the default implementation of a sequence for one thread."""

    def __init__(
        self, device: CpuDevice, sequence: Callable[..., Any], args: Sequence[Any]
    ) -> None:
        recording = record_sequence(sequence, args, str(sequence.__name__))
        parameters, _ = bind_arguments(sequence, args, recording)
        problem = normalise(recording)
        space = build_space(problem, replace(device.machine.facts(), cores=1))
        [(_, candidate)] = first_candidates(space, limit=1)
        source = row.text_of(candidate, device)
        rebuilt = RebuiltRecord(recording, problem, space, candidate, source, ())
        built = device.builder.build(source)
        assert isinstance(built, Artifact)
        module = device.runner.load(built)
        assert isinstance(module, CpuModule)
        self.module = module
        self.signature = Signature(parameters, problem)
        self.tuned: Tuned = make_tuned(parameters, rebuilt, device)
        self.unchecked: Tuned = make_tuned(parameters, rebuilt, device, check_indices=False)
        workspaces = self.module if built.workspace_bytes else None
        self.plain = PlainCaller(self.module, rows_of(self.signature), workspaces)
        self._workspace = [self.module.make_workspace()] if built.workspace_bytes else []

    def former(self, *args: Any) -> None:
        """A call as it was made before."""
        for k, array in enumerate(args):
            for j in range(k):
                if np.may_share_memory(array, args[j]):
                    raise TypeError("arguments share memory")
        for array, wanted in zip(args, self.signature.arrays.values(), strict=True):
            if array.dtype != np.dtype(wanted.dtype.value) or array.shape != wanted.shape:
                raise TypeError("an argument does not fit")
            if not array.flags.c_contiguous or not array.flags.writeable:
                raise TypeError("an argument does not fit")
        kept = [*args, *self._workspace]
        self.module.entry((ctypes.c_void_p * len(kept))(*(k.ctypes.data for k in kept)))


def in_turn(ways: dict[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, list[float]]:
    """Nanoseconds of one call of each way in each round."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started_ns = time.perf_counter_ns()
            for _ in range(calls):
                way()
            found[name].append((time.perf_counter_ns() - started_ns) / calls)
    return found


def measure_calls(device: CpuDevice, effort: Effort) -> dict[str, list[float]]:
    """The six arrays."""
    from .libraries import numba_calls

    args = [np.ones(N_ARRAYS, np.float32) for _ in range(6)]
    ways = Ways(device, add_five, args)
    tuned, plain, theirs = ways.tuned, ways.plain, numba_calls.add_five
    a, b, c, d, e, out = args
    timed: dict[str, Callable[[], Any]] = {
        "numba": lambda: theirs(a, b, c, d, e, out),
        "numba, by name": lambda: theirs(a=a, b=b, c=c, d=d, e=e, out=out),
        "tuned": lambda: tuned(a, b, c, d, e, out),
        "tuned, by name": lambda: tuned(a=a, b=b, c=c, d=d, e=e, out=out),
        "tuned, output left out": lambda: tuned(a, b, c, d, e),
        "tuned, without Python.h": lambda: plain(a, b, c, d, e, out),
        "former": lambda: ways.former(a, b, c, d, e, out),
    }
    in_turn(timed, 1, 10)
    return in_turn(timed, effort.rounds, effort.calls)


def measure_sparse(device: CpuDevice, effort: Effort) -> dict[str, list[float]]:
    """A sparse product, whose column numbers are looked at before each call, or are not."""
    from .libraries import numba_calls

    given = sparse_arguments({"n": effort.rows}, np.float32, np.random.default_rng(1))
    ptr, col, val, x, y = given
    ways = Ways(device, sparse_product, given)
    timed: dict[str, Callable[[], Any]] = {
        "numba": lambda: numba_calls.sparse_product(ptr, col, val, x, y),
        "tuned": lambda: ways.tuned(ptr, col, val, x, y),
        "tuned, indices not looked at": lambda: ways.unchecked(ptr, col, val, x, y),
    }
    in_turn(timed, 1, 2)
    return in_turn(timed, effort.rounds, max(1, effort.calls // 100))


def wrong_results(call: Callable[..., Any], calls: int) -> int:
    """Of so many calls from each of several threads, each on arrays of its own, those whose result is not that of a call alone."""
    wrong = [0] * N_THREADS

    def arrays(seed: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(seed)
        a = rng.random((N_MATRIX, N_MATRIX), np.float32)
        return a, rng.random(N_MATRIX, np.float32), np.zeros(N_MATRIX, np.float32)

    def work(k: int, a: Any, x: Any, y: Any, right: Any) -> None:
        for _ in range(calls):
            y[:] = 0
            call(a, x, y)
            wrong[k] += not np.array_equal(y, right)

    given = [arrays(k) for k in range(N_THREADS)]
    for args in given:
        call(*args)
    threads = [
        threading.Thread(target=work, args=(k, a, x, y, y.copy()))
        for k, (a, x, y) in enumerate(given)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(wrong)


def measure_threads(device: CpuDevice, effort: Effort) -> dict[str, int]:
    """Wrong results of `N_THREADS` threads."""
    ways = Ways(device, products, wrong_arguments())
    calls = max(1, effort.calls // 2)
    return {
        "tuned": wrong_results(ways.tuned, calls),
        "tuned, without Python.h": wrong_results(ways.plain, calls),
        "former": wrong_results(ways.former, calls),
        "calls": N_THREADS * calls,
    }


def wrong_arguments() -> tuple[Any, ...]:
    """Arguments of `products`."""
    zeros = np.zeros(N_MATRIX, np.float32)
    return np.zeros((N_MATRIX, N_MATRIX), np.float32), zeros, zeros.copy()


def ratio(found: dict[str, list[float]], name: str) -> float:
    """How many times as long as numba's, in the same round."""
    return median([x / y for x, y in zip(found[name], found["numba"], strict=True)])


def times_table(found: dict[str, list[float]], heads: list[str]) -> str:
    rows = [
        [name, time_text(median(times)), f"{ratio(found, name):.2f}"]
        for name, times in found.items()
    ]
    return table([*heads, "x numba"], rows)


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    threads = values["threads"]
    counted = [[name, str(n)] for name, n in threads.items() if name != "calls"]
    return "\n".join(
        [
            "# Calls of tuned functions from Python",
            "",
            stamp_text(values["stamp"]),
            f"- {values['rounds']} rounds; " + PROTOCOL.replace("\n", " "),
            "",
            times_table(values["calls"], ["a call with six arrays", "time"]),
            "",
            "Where an output is left out an array is made for it, which numba's call is given.",
            "" if values["has_header"] else "Python.h is missing here: both rows are without it.",
            f"A sparse product of {values['rows']} rows with {A_ROW} elements each, in one thread, with and without"
            " a look at all indices before it runs:",
            "",
            times_table(values["sparse"], ["a sparse product", "time"]),
            "",
            f"{threads['calls']} calls from {N_THREADS} threads, of a sequence with a temporary in memory:",
            "",
            table(["way", "wrong results"], counted),
            "",
            f"Goals: a call takes at most {LIMIT:g} times as long as numba's, and no result is wrong: "
            + ("; ".join(values["missed"]) or "both are met")
            + ".",
            "",
        ]
    )


def run(effort: Effort, folder: Path | None) -> int:
    """Measure, write, check; the exit status."""
    device = row.cpu()
    values: dict[str, Any] = {
        "stamp": stamp(device),
        "rounds": effort.rounds,
        "rows": effort.rows,
        "has_header": bool(header_folders()),
        "calls": measure_calls(device, effort),
        "sparse": measure_sparse(device, effort),
        "threads": measure_threads(device, effort),
    }
    missed = []
    if ratio(values["calls"], "tuned") > LIMIT:
        missed.append(f"a call takes {ratio(values['calls'], 'tuned'):.2f} times numba's")
    if values["threads"]["tuned"] or values["threads"]["tuned, without Python.h"]:
        missed.append("results of calls from several threads are wrong")
    values["missed"] = missed
    print(write_results("calls", report, values, folder))
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    add_options(parser, Effort)
    given = parser.parse_args(arguments)
    return run(options_of(parser, given, Effort), given.results)


if __name__ == "__main__":
    sys.exit(main())
