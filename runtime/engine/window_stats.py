"""Statistics of a program whose calls wait or run on a device, `ks.engine.stats()`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...kernels.tasks.window_kernels import WindowKernels


@dataclass
class Stats:
    """Numbers since `ks.init(async_mode=True)`; a launch is an outermost loop of a kernel.

    `wall_s`: time in which windows ran, of which `backend_s` in compiled code.
    `n_calls`: calls that waited, in `n_windows`; `n_planned` of them ran by plans, `n_at_once` further calls could not wait.
    `n_launches`: launches made for calls that waited; without plans there would have been `n_launches_without`. `n_lists`: lists of
    active cells that were made or tested. `n_activations`: places in their kernels that activate cells.
    `n_compiled`: kernels that the engine has compiled in this process, those of plans included.
    `ends`: the number of windows by what ended them.
    `backend`: where the program runs, "cpu", "cuda" or "emulator"; with a device `runs` has for each kernel the number of its calls
    on each backend.
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
        """Counts a window that ran by its plan."""
        self.n_planned += n_calls
        self.n_launches += kernels.n_loops
        self.n_lists += kernels.n_lists
        self.n_activations += kernels.n_activations

    def note_end(self, why: str) -> None:
        """Counts the end of a window."""
        self.ends[why] = self.ends.get(why, 0) + 1

    def note_run(self, kernel: str, backend: str) -> None:
        """Counts a call of a kernel on a backend."""
        of_kernel = self.runs.setdefault(kernel, {})
        of_kernel[backend] = of_kernel.get(backend, 0) + 1
