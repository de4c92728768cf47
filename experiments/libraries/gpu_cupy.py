"""CuPy's bindings of cuBLAS. They cannot be recorded as a graph, so calls of a few microseconds show the host's pace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from cupy import cublas

from .gpu import AbstractGpuLibrary


class CupyLibrary(AbstractGpuLibrary):
    """CuPy on the first GPU."""

    def __init__(self) -> None:
        self._scratch: dict[tuple[int, ...], Any] = {}

    def place(self, values: np.ndarray[Any, Any]) -> Any:
        return cupy.asarray(values)

    def synchronize(self) -> None:
        cupy.cuda.Device().synchronize()

    def scratch(self, shape: tuple[int, ...]) -> Any:
        if shape not in self._scratch:
            self._scratch[shape] = cupy.empty(shape, np.float32)
        return self._scratch[shape]

    def copy(self, x: Any, y: Any) -> None:
        cupy.copyto(y, x)

    def scal(self, alpha: float, x: Any) -> None:
        cublas.scal(alpha, x)

    def axpy(self, alpha: float, x: Any, y: Any) -> None:
        cublas.axpy(alpha, x.reshape(-1), y.reshape(-1))

    def dot(self, x: Any, y: Any, r: Any) -> None:
        cublas.dot(x, y, out=r)

    def gemv(self, alpha: float, a: Any, x: Any, beta: float, y: Any, *, turned: bool) -> None:
        cublas.gemv("T" if turned else "N", alpha, a, x, beta, y)

    def ger(self, alpha: float, x: Any, y: Any, a: Any) -> None:
        cublas.ger(alpha, x, y, a)

    def gemm(self, a: Any, b: Any, c: Any) -> None:
        cublas.gemm("N", "N", a, b, out=c)

    def clock(self, call: Callable[[], None]) -> Callable[[int], float]:
        stream = cupy.cuda.Stream(non_blocking=True)
        start, end = cupy.cuda.Event(), cupy.cuda.Event()

        def run(n: int) -> float:
            with stream:
                start.record(stream)
                for _ in range(n):
                    call()
                end.record(stream)
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(start, end)) * 1e6

        return run
