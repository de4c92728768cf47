"""Statistics of a program with deferred calls or on a device, `ks.engine.stats()`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...kernels.tasks.window_kernels import WindowKernels


@dataclass
class Stats:
    """Counts since `ks.init(async_mode=True)`; a launch is an outermost loop of a kernel.

    `wall_s`: seconds in which windows ran; `backend_s`: the part in compiled code.
    `n_calls`: deferred calls, in `n_windows` windows; `n_planned` of them ran by plans.
    `n_at_once`: calls that were not deferred.
    `n_launches`: launches of deferred calls; without plans there would have been `n_launches_without`.
    `n_lists`: lists of active cells that were built or tested. `n_activations`: places in kernels that activate cells.
    `n_compiled`: kernels that the engine has compiled in this process, those of plans included.
    `ends`: number of windows by reason of their end.
    `backend`: where the program runs, "cpu", "cuda" or "emulator"; on a device `runs` counts calls by kernel and backend.
    """

    wall_s: float = 0.0
    backend_s: float = 0.0
    n_windows: int = 0
    n_calls: int = 0
    n_planned: int = 0
    n_at_once: int = 0
    n_launches: int = 0
    n_launches_without: int = 0
    n_lists: int = 0
    n_lists_without: int = 0
    n_activations: int = 0
    n_activations_without: int = 0
    n_compiled: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    backend: str = "cpu"
    runs: dict[str, dict[str, int]] = field(default_factory=dict)

    def note_plan(self, n_calls: int, kernels: WindowKernels) -> None:
        """Counts a window of `n_calls` calls that ran by its plan."""
        self.n_planned += n_calls
        self.n_launches += kernels.n_loops
        self.n_lists += kernels.n_lists
        self.n_activations += kernels.n_activations

    def note_end(self, why: str) -> None:
        """Counts the end of a window, by its reason `why`."""
        self.ends[why] = self.ends.get(why, 0) + 1

    def note_run(self, kernel: str, backend: str) -> None:
        """Counts a call of a kernel on a backend."""
        of_kernel = self.runs.setdefault(kernel, {})
        of_kernel[backend] = of_kernel.get(backend, 0) + 1
