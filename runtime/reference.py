"""Reference results of a sequence: each kernel is interpreted or compiled by LLVM, whichever is faster.

The interpreter (kernels/interpret/kernel.py) defines correct results. LLVM compiles the same loops from a separate text
(kernels/interpret/llvm.py), with one thread, in order and without fast arithmetic. Nothing of codegen/ is used. The duration of a
run is unknown: a caller that must not block runs it in a child (worker/forked_inputs.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.frontend.recorder import Recording
from ..kernels.interpret.kernel import run_kernel
from ..kernels.interpret.llvm import can_print
from ..kernels.interpret.moved import ArrayMover, mixed
from ..kernels.interpret.reference import initial_arrays, run_calls
from ..kernels.interpret.work import n_nodes, work_of
from ..kernels.ir.kernel import DType, KernelIR
from ..kernels.ir.walk import widened
from .forked import Forked, Stopped, over_after
from .llvm import CompiledKernel, compile_kernel, held_in, plain
from .stored_runs import StoredRuns

Array = NDArray[Any]

_COMPILE_NS = 1.5e7
_COMPILE_NODE_NS = 1e5  # and of each node of its expressions
_N_RUNS = 8  # of a kernel in one session: input sets, and the runs that measure conditioning
_LONG_NS = 5e7  # from here on products of matrices are left to BLAS, also with perturbed results
_MOVED = 4.0  # slowdown of a kernel with perturbed results
_OF_BLAS = 0.25  # of the time of compiled loops, which only sums of products fall below
# A run that measures rounding is stopped after these seconds and so many times its expected duration.
_LOST_S, _LOST = 5.0, 20.0


@dataclass(frozen=True)
class Way:
    """Execution mode of a kernel (interpreted or compiled), and its expected nanoseconds per call."""

    is_compiled: bool
    ns: float


@dataclass(frozen=True)
class RunApart:
    """A run of the reference in a child process. `result` or `end` must be called once."""

    child: Forked[dict[str, Array]]
    is_over: Callable[[], bool]

    def result(self) -> dict[str, Array]:
        """Waits, and returns the result or raises the exception of the run. Raises Stopped once `is_over`."""
        return self.child.result(self.is_over)

    def end(self) -> None:
        """Ends the run, whose result is not needed."""
        self.child.end()


@dataclass(eq=False)
class _SeenRecording:
    """A recording as given, as run (`made`), and the way in which each kernel runs, by `id` of its IR.

    `compile_s`: seconds that its kernels took to compile so far.
    """

    given: Recording
    made: Recording
    ways: dict[int, Way]
    is_moved: bool
    compile_s: float = 0.0

    @cached_property
    def stored(self) -> StoredRuns:
        """The stored runs of this recording."""
        return StoredRuns(self.made)

    @property
    def expected_ns(self) -> float:
        """Expected ns of all its calls, without compilation."""
        calls = zip(self.made.calls, self.made.n_made, strict=True)
        return sum(n * self.ways[id(call.ir)].ns for call, n in calls)


class Reference:
    """Computes reference results. `begins` is called before every call of the sequence."""

    def __init__(self, begins: Callable[[], None] = lambda: None) -> None:
        self._begins = begins
        self._seen: dict[tuple[int, bool, bool], _SeenRecording] = {}
        self._kernels: dict[tuple[int, tuple[DType, ...], bool], CompiledKernel] = {}

    def run(
        self,
        recording: Recording,
        arrays: Mapping[str, Array],
        scalars: Mapping[str, Any],
        *,
        wide: bool = True,
        seed: int | None = None,
    ) -> dict[str, Array]:
        """Runs the calls of the sequence in order, on copies, and returns all its arrays.

        Temporaries start as zeros. Results are in float64 if `wide`, as in `testing.interpreted.run_reference` with that dtype,
        else in the dtypes of the sequence. With a `seed` rounded results are perturbed (kernels/interpret/moved.py). Raises
        IndexError for an index out of range.
        """
        self._begins()
        known = self._known(recording, wide, is_moved=seed is not None)
        found = _initial(known, arrays, wide)
        if not known.stored.load(found, arrays, scalars, seed):
            self._computed(known, found, arrays, scalars, seed)
        return found

    def begin_apart(
        self,
        recording: Recording,
        arrays: Mapping[str, Array],
        scalars: Mapping[str, Any],
        seed: int | None,
        is_over: Callable[[], bool],
        finish: Callable[[dict[str, Array]], dict[str, Array]] = lambda found: found,
    ) -> RunApart:
        """Starts `run`, with the dtypes of the sequence, in a child process; `finish` is applied to its arrays there.

        A loop that ends when two numbers agree may not end when they are perturbed. The result raises Stopped once `is_over`, or
        if the run takes far longer than expected; so does compilation, which this process does before.
        """
        known = self._known(recording, False, is_moved=seed is not None)
        found = _initial(known, arrays, False)
        is_lost = over_after(_LOST_S + _LOST * 1e-9 * known.expected_ns)
        if known.stored.load(found, arrays, scalars, seed):
            return RunApart(Forked(lambda: finish(found)), lambda: is_over() or is_lost())
        for call in known.made.calls:  # here, since a child would keep it for itself
            if known.ways[id(call.ir)].is_compiled:
                if is_over():  # a long body takes seconds
                    raise Stopped
                held = held_in(found[name] for name in call.arrays)
                self._compiled(known, call.ir, held)

        def work() -> dict[str, Array]:
            self._computed(known, found, arrays, scalars, seed)
            return finish(found)

        is_lost = over_after(_LOST_S + _LOST * 1e-9 * known.expected_ns)
        return RunApart(Forked(work), lambda: is_over() or is_lost())

    def _computed(
        self,
        known: _SeenRecording,
        found: dict[str, Array],
        arrays: Mapping[str, Array],
        scalars: Mapping[str, Any],
        seed: int | None,
    ) -> None:
        """Runs the calls of the sequence on the arrays `found`, and stores the results of long runs."""
        compiled_s, began_s = known.compile_s, time.monotonic()
        self._calls(known, found, scalars, seed)
        took_s = time.monotonic() - began_s + compiled_s
        known.stored.store(found, arrays, scalars, seed, took_s)

    def _calls(
        self,
        known: _SeenRecording,
        found: dict[str, Array],
        scalars: Mapping[str, Any],
        seed: int | None,
    ) -> None:
        """Runs the calls of the sequence in order on the arrays `found`."""
        seeds = (mixed(seed or 0, k) for k in count())

        def run(ir: KernelIR, given: Mapping[str, Array], numbers: Mapping[str, Any]) -> None:
            if known.ways[id(ir)].is_compiled:
                arrays = [plain(given[p.name]) for p in ir.arrays]
                self._compiled(known, ir, held_in(arrays)).run(arrays, numbers, next(seeds))
            else:
                arithmetic = ArrayMover(next(seeds)) if known.is_moved else None
                run_kernel(ir, given, numbers, arithmetic)

        run_calls(known.made, found, scalars, run)

    def _known(self, recording: Recording, wide: bool, is_moved: bool) -> _SeenRecording:
        key = id(recording), wide, is_moved
        known = self._seen.get(key)
        if known is None:
            made = widened(recording) if wide else recording
            choose = choose_moved if is_moved else choose_ways
            known = self._seen[key] = _SeenRecording(recording, made, choose(made), is_moved, wide)
        return known

    def compiles(self, recording: Recording) -> bool:
        """True if any kernel of the recording is compiled, not interpreted."""
        return any(way.is_compiled for way in choose_ways(recording).values())

    def expected_ns(self, recording: Recording) -> float:
        """Returns the expected ns of a run, without compilation."""
        ways = choose_ways(recording)
        calls = zip(recording.calls, recording.n_made, strict=True)
        return sum(n * ways[id(call.ir)].ns for call, n in calls)

    def _compiled(
        self, known: _SeenRecording, ir: KernelIR, held: Sequence[DType]
    ) -> CompiledKernel:
        """Returns a kernel of a recording, compiled for arrays with these dtypes."""
        key = (id(ir), tuple(held), known.is_moved)  # of a recording that is kept
        if key not in self._kernels:
            began_s = time.monotonic()
            self._kernels[key] = compile_kernel(ir, held, is_moved=known.is_moved)
            known.compile_s += time.monotonic() - began_s
        return self._kernels[key]


def _initial(known: _SeenRecording, arrays: Mapping[str, Array], wide: bool) -> dict[str, Array]:
    """Returns copies of the arrays with their contents before the first call; if `wide`, float16 becomes float32."""
    found = initial_arrays(known.made, arrays)
    if wide:  # no machine computes with float16
        found = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in found.items()}
    return found


def choose_ways(recording: Recording) -> dict[int, Way]:
    """Returns the execution mode of each kernel of a recording, by identity of its IR."""
    n_made: dict[int, int] = {}
    for call, n in zip(recording.calls, recording.n_made, strict=True):
        n_made[id(call.ir)] = n_made.get(id(call.ir), 0) + n
    kernels = {id(call.ir): call.ir for call in recording.calls}
    return {k: choose_way(ir, n_made[k]) for k, ir in kernels.items()}


def choose_moved(recording: Recording) -> dict[int, Way]:
    """Returns the execution modes for perturbed rounding, by identity: compiled, except large matrix products."""
    found = {}
    for k, ir in {id(call.ir): call.ir for call in recording.calls}.items():
        work = work_of(ir)
        compiled_ns = _MOVED * work.compiled_ns
        is_for_blas = compiled_ns > _LONG_NS and work.interpreted_ns < _OF_BLAS * compiled_ns
        is_compiled = can_print(ir) and not is_for_blas
        found[k] = Way(is_compiled, compiled_ns if is_compiled else _MOVED * work.interpreted_ns)
    return found


def choose_way(ir: KernelIR, n_calls: int = 1) -> Way:
    """Returns the faster execution mode of a kernel over all runs of a session, compilation included.

    Each run has `n_calls` calls of it.
    """
    work = work_of(ir)
    n = _N_RUNS * n_calls
    compile_ns = _COMPILE_NS + _COMPILE_NODE_NS * n_nodes(ir)
    is_quick = work.interpreted_ns * n < compile_ns + work.compiled_ns * n
    if is_quick or not can_print(ir):
        return Way(False, work.interpreted_ns)
    return Way(True, work.compiled_ns)
