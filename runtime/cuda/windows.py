"""Windows of a program on a GPU: launches in order on one stream, as one CUDA graph where they come again.

Kernels read the lengths of lists themselves, so one graph serves while the active cells change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ..api.backend import AbstractWindows, RunError, WindowCall
from .driver import driver, explain
from .graph import CudaGraph, GraphError
from .module import CudaModule, PreparedLaunch

_MOST_GRAPHS = 16  # the driver holds memory for each; the one that ran longest ago goes first

_Launches = tuple[PreparedLaunch, ...]


class CudaWindows(AbstractWindows):
    """Windows on one stream. A window runs launch by launch at first, and is recorded when equal launches come again.

    Where the driver refuses to record them, they run launch by launch.
    """

    def __init__(self) -> None:
        self._stream: Any = None
        self._graphs: OrderedDict[_Launches, CudaGraph | None] = OrderedDict()  # None: ran once
        self._is_refused = False

    def run(self, calls: Sequence[WindowCall]) -> None:
        launches: list[PreparedLaunch] = []
        for call in calls:
            assert isinstance(call.module, CudaModule)
            launches += call.module.prepared(call.values)
        cuda = driver()
        try:
            if self._stream is None:
                self._stream = cuda.Stream()
            graph = self._graph(tuple(launches))
            if graph is None:
                self._launch(launches)
            else:
                graph.launch()
            self._stream.synchronize()
        except (cuda.Error, GraphError) as e:
            failure, is_lost = explain(e, ", ".join(dict.fromkeys(x.kernel for x in launches)))
            raise RunError(failure, is_lost=is_lost) from e

    def close(self) -> None:
        for graph in self._graphs.values():
            if graph is not None:
                graph.close()
        self._graphs.clear()

    def _launch(self, launches: Sequence[PreparedLaunch]) -> None:
        for launch in launches:
            launch(self._stream)

    def _graph(self, launches: _Launches) -> CudaGraph | None:
        """Returns the graph of launches that ran before; None at their first run, or where there is none."""
        graph = self._graphs.get(launches)
        if graph is None and launches in self._graphs and not self._is_refused:
            try:
                graph = CudaGraph(self._stream, lambda: self._launch(launches))
            except (GraphError, driver().Error):
                self._is_refused = True
        self._graphs[launches] = graph
        self._graphs.move_to_end(launches)
        if len(self._graphs) > _MOST_GRAPHS:
            oldest = self._graphs.popitem(last=False)[1]
            if oldest is not None:
                oldest.close()
        return graph
