"""Statistics of a program with deferred calls or on a device, `ks.engine.stats()`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .planned_calls import PlannedCalls


@dataclass
class Stats:
    """Counts since `ks.init(async_mode=True)` or `ks.init(decisions=...)`; a launch is an outermost loop of a kernel.

    `wall_s`: seconds in which windows ran; `backend_s`: the part in compiled code.
    `n_calls`: deferred calls, in `n_windows` windows; `n_planned` of them ran by plans.
    `n_from_store`: runs of components of plans as the tuned store has them (`decisions=True`).
    `n_at_once`: calls that were not deferred.
    `n_launches`: launches of deferred calls; without plans there would have been `n_launches_without`.
    `n_lists`: lists of active cells that were built or tested. `n_activations`: places in kernels that activate cells.
    `n_compiled`: kernels that the engine has compiled in this process, those of plans included.
    `n_ahead`: kernels whose compilation began ahead of their first call; `n_ahead_used` of them have been called since.
    `n_wakes`: sleeping threads that launches of this process have woken.
    `ends`: number of windows by reason of their end.
    Sequences that ran as they were found (`decisions`) are windows that ran by plans; their launches and times do not count.
    `backend`: where the program runs, "cpu", "cuda" or "emulator"; on a device `runs` counts calls by kernel and backend.
    """

    wall_s: float = 0.0
    backend_s: float = 0.0
    n_windows: int = 0
    n_calls: int = 0
    n_planned: int = 0
    n_from_store: int = 0
    n_at_once: int = 0
    n_launches: int = 0
    n_launches_without: int = 0
    n_lists: int = 0
    n_lists_without: int = 0
    n_activations: int = 0
    n_activations_without: int = 0
    n_compiled: int = 0
    n_ahead: int = 0
    n_ahead_used: int = 0
    n_wakes: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    backend: str = "cpu"
    runs: dict[str, dict[str, int]] = field(default_factory=dict)

    def note_windows(self, n: int, n_calls: int, work: Sequence[int]) -> None:
        """Counts `n` runs of a window of `n_calls` calls, which have so many loops, lists and activations (`work`)."""
        self.n_windows += n
        self.n_calls += n * n_calls
        self.n_launches_without += n * work[0]
        self.n_lists_without += n * work[1]
        self.n_activations_without += n * work[2]

    def note_alone(self, n: int, work: Sequence[int]) -> None:
        """Counts `n` runs of such a window without its plan."""
        self.n_launches += n * work[0]
        self.n_lists += n * work[1]
        self.n_activations += n * work[2]

    def note_plan(self, n: int, n_calls: int, planned: PlannedCalls) -> None:
        """Counts `n` runs of a window of `n_calls` calls by its plan."""
        self.n_planned += n * n_calls
        self.n_from_store += n * len(planned.parts)
        self.n_launches += n * planned.n_loops
        self.n_lists += n * planned.kernels.n_lists
        self.n_activations += n * planned.kernels.n_activations

    def note_found(self, n_calls: int, work: tuple[int, int], alone: tuple[int, int]) -> None:
        """Counts a sequence of `n_calls` calls that ran as it was found.

        `work`: its numbers of lists and of activations; `alone`: those of its kernels.
        """
        self.n_windows += 1
        self.n_calls += n_calls
        self.n_planned += n_calls
        self.n_lists += work[0]
        self.n_activations += work[1]
        self.n_lists_without += alone[0]
        self.n_activations_without += alone[1]

    def plus(self, other: Stats) -> Stats:
        """Returns the sums of these counts and those of `other`, which has neither ends nor calls by backend."""
        names = [f.name for f in fields(self) if isinstance(f.default, int | float)]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(self, **sums)

    def note_end(self, why: str) -> None:
        """Counts the end of a window, by its reason `why`."""
        self.ends[why] = self.ends.get(why, 0) + 1

    def note_run(self, kernel: str, backend: str) -> None:
        """Counts a call of a kernel on a backend."""
        of_kernel = self.runs.setdefault(kernel, {})
        of_kernel[backend] = of_kernel.get(backend, 0) + 1
