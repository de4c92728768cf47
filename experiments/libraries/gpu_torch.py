"""PyTorch: cuBLAS for products, kernels of its own for what goes element by element; short calls as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from .gpu import CALLS_A_GRAPH, AbstractGpuLibrary


class TorchLibrary(AbstractGpuLibrary):
    """PyTorch on the first GPU."""

    def __init__(self) -> None:
        torch.set_float32_matmul_precision("highest")  # no TF32
        self._scratch: dict[tuple[int, ...], Any] = {}

    def place(self, values: np.ndarray[Any, Any]) -> Any:
        return torch.from_numpy(np.array(values)).cuda()

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def scratch(self, shape: tuple[int, ...]) -> Any:
        if shape not in self._scratch:
            self._scratch[shape] = torch.empty(shape, dtype=torch.float32, device="cuda")
        return self._scratch[shape]

    def copy(self, x: Any, y: Any) -> None:
        y.copy_(x)

    def scal(self, alpha: float, x: Any) -> None:
        x.mul_(alpha)

    def axpy(self, alpha: float, x: Any, y: Any) -> None:
        y.add_(x, alpha=alpha)

    def dot(self, x: Any, y: Any, r: Any) -> None:
        r.copy_(torch.dot(x, y))

    def gemv(self, alpha: float, a: Any, x: Any, beta: float, y: Any, *, turned: bool) -> None:
        y.addmv_(a.t() if turned else a, x, beta=beta, alpha=alpha)

    def ger(self, alpha: float, x: Any, y: Any, a: Any) -> None:
        a.addr_(x, y, alpha=alpha)

    def gemm(self, a: Any, b: Any, c: Any) -> None:
        torch.mm(a, b, out=c)

    def clock(self, call: Callable[[], None]) -> Callable[[int], float]:
        stream = torch.cuda.Stream()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        @cache
        def graph() -> Any:
            recorded = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(recorded, stream=stream, capture_error_mode="thread_local"):
                    for _ in range(CALLS_A_GRAPH):
                        call()
            except RuntimeError:  # something in it cannot be recorded
                return None
            return recorded

        def run(n: int) -> float:
            recorded = graph() if n >= CALLS_A_GRAPH else None
            # Whole graphs only, as in runtime/cuda: calls left over would go at the host's pace.
            n_graphs = 0 if recorded is None else n // CALLS_A_GRAPH
            n_timed = n_graphs * CALLS_A_GRAPH or n
            with torch.cuda.stream(stream):
                start.record(stream)
                for _ in range(n_graphs):
                    recorded.replay()
                if recorded is None:
                    for _ in range(n):
                        call()
                end.record(stream)
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e6 * n / n_timed

        return run
