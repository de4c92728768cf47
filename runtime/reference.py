"""The reference result of a sequence: each kernel interpreted or compiled, whichever is sooner done.

The interpreter (kernels/interpret/kernel.py) says what is right; numba compiles the same loops from a text of their own
(kernels/interpret/python_text.py), with one thread, in order and without fast arithmetic.
Nothing of codegen/ is used. What may take long runs in a child, which a signal or a deadline ends.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import config as numba_config
from numpy.typing import NDArray

from ..kernels.interpret.kernel import run_kernel
from ..kernels.interpret.python_text import NAME, Printed, can_print, print_python
from ..kernels.interpret.reference import initial_arrays, run_calls, written_by
from ..kernels.interpret.work import n_nodes, work_of
from ..kernels.ir.kernel import KernelIR
from ..kernels.ir.walk import widened, written_in
from ..kernels.language.record import Recording
from ..space.engine.jit import own_folder
from .apart import Stopped, over_after, run_apart, run_together, shared_empty

Array = NDArray[Any]

# Of a kernel, the first time: 24 lines of a triangular product take 1.9 s, 433 lines of 27 unrolled updates 7 to 16 s.
# Most of it is numba's typing and lowering: lower levels of optimisation save nothing.
_COMPILE_NS = 1.5e9
_COMPILE_NODE_NS = 1.2e7  # and of each node of its expressions
_N_RUNS = 8  # of a kernel in one session: input sets, and the runs that measure conditioning
_N_RUNS_OF_TREES = 24  # of a sequence on sparse fields: three periods are input sets, too
_LONG_NS = 5e7  # what is expected to take longer runs in a child


_CONFIG: Any = numba_config  # its fields are set at run time, unknown to type checkers


@dataclass(frozen=True)
class _Way:
    """How a kernel is run, and the nanoseconds that this is expected to take. `printed` is None where it is interpreted."""

    printed: Printed | None
    ns: float


@dataclass(frozen=True)
class _Seen:
    """A recording, what is run for it, and how each of its kernels is, by identity."""

    given: Recording
    made: Recording
    ways: dict[int, _Way]


class Reference:
    """Computes references, until `is_over` says that the user or the clock wants no more of it."""

    def __init__(self, is_over: Callable[[], bool] = lambda: False) -> None:
        self.is_over = is_over
        self._seen: dict[tuple[int, bool], _Seen] = {}
        self._has_tried = False
        self._interpreted_ns = 0.0  # of a call, where all are interpreted

    def run(
        self,
        recording: Recording,
        arrays: Mapping[str, Array],
        scalars: Mapping[str, Any],
        *,
        wide: bool = True,
    ) -> dict[str, Array]:
        """All arrays of the sequence after its calls ran in order on copies (temporaries start as zeros): in float64 where `wide`,
        as `kernels.oracle.run_reference` with that dtype, else in the types of the sequence.

        Raises Stopped, and IndexError where an index leaves its array.
        """
        known = self._known(recording, wide)
        seen, ways = known.made, known.ways
        expected = zip(seen.calls, seen.n_made, strict=True)
        is_long = sum(n * ways[id(call.ir)].ns for call, n in expected) > _LONG_NS

        def run(ir: KernelIR, given: Mapping[str, Array], numbers: Mapping[str, Any]) -> None:
            printed = ways[id(ir)].printed
            if printed is None:
                run_kernel(ir, given, numbers)
            else:
                self._run_compiled(ir, printed, given, numbers)

        found = initial_arrays(seen, arrays, shared_empty if is_long else np.empty)
        if wide:  # numba reads no float16
            found = {
                n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in found.items()
            }
        self._load(_Needed.by(known, {n: a.dtype for n, a in found.items()}))
        if is_long:
            run_apart(lambda: run_calls(seen, found, scalars, run), self.is_over)
        else:
            run_calls(seen, found, scalars, run)
        return found

    def prepare(
        self, recordings: Sequence[tuple[Recording, bool]], dtypes: Mapping[str, np.dtype[Any]]
    ) -> None:
        """Compile what runs of recordings, each `wide` or not, on arrays of these dtypes will need, at once. Raises Stopped."""
        needed: list[_Needed] = []
        for recording, wide in recordings:
            known = self._known(recording, wide)
            written = {p.name: p.dtype.numpy for p in known.made.temps}
            changed = {n for c in known.made.calls for n in written_by(c)}
            written |= {p.name: p.dtype.numpy for p in known.made.arrays if p.name in changed}
            given = {
                n: np.dtype(np.float32) if wide and t == np.float16 else t
                for n, t in dtypes.items()
            }
            needed += _Needed.by(known, {**given, **written})
        self._load(needed)

    def try_interpreter(
        self, recording: Recording, arrays: Mapping[str, Array], scalars: Mapping[str, Any]
    ) -> None:
        """Interpret all from now on where one run shows that this is sooner done than compiling: loops over sparse fields, whose
        lengths data decide, are estimated as long as they can be. Raises what `run` does.
        """
        if self._has_tried or not recording.trees or not self.compiles(recording):
            return
        self._has_tried = True
        begin = time.monotonic()
        kernels = {id(call.ir): call.ir for call in recording.calls}.values()
        is_late = over_after(sum(map(_compile_ns, kernels)) / _N_RUNS_OF_TREES / 1e9)
        found = initial_arrays(recording, arrays, shared_empty)
        try:
            run_apart(
                lambda: run_calls(recording, found, scalars), lambda: is_late() or self.is_over()
            )
        except Stopped:
            if self.is_over():
                raise
        else:
            self._interpreted_ns = (time.monotonic() - begin) * 1e9 / sum(recording.n_made)

    def _known(self, recording: Recording, wide: bool) -> _Seen:
        known = self._seen.get((id(recording), wide))
        if known is None:
            made = widened(recording) if wide else recording
            ways = choose_ways(made)
            if self._interpreted_ns:
                ways = dict.fromkeys(ways, _Way(None, self._interpreted_ns))
            known = self._seen[id(recording), wide] = _Seen(recording, made, ways)
        return known

    def compiles(self, recording: Recording) -> bool:
        """Whether a kernel of the recording is compiled."""
        return any(way.printed is not None for way in choose_ways(recording).values())

    def expected_ns(self, recording: Recording) -> float:
        """About how long a run takes, once it is compiled."""
        ways = choose_ways(recording)
        calls = zip(recording.calls, recording.n_made, strict=True)
        return sum(n * ways[id(call.ir)].ns for call, n in calls)

    def _load(self, needed: Sequence[_Needed]) -> None:
        """Compile kernels; what was not before in children, one a core, since each takes a second or more."""
        missing = {n.place: n for n in needed if n.place not in _LOADED}
        n_cores = len(os.sched_getaffinity(0))
        works = [n.compile_once for n in missing.values() if not n.done.exists()]
        run_together(works, n_cores, self.is_over)
        for place, n in missing.items():
            _LOADED[place] = n.function()

    def _run_compiled(
        self,
        ir: KernelIR,
        printed: Printed,
        arrays: Mapping[str, Array],
        scalars: Mapping[str, Any],
    ) -> None:
        given = [_plain(arrays[p.name]).reshape(p.shape) for p in ir.arrays]
        function = _LOADED[_key(printed.text), _signature(ir, [a.dtype for a in given])]
        at = np.zeros(1, np.int64)
        numbers = [p.dtype.numpy.type(scalars[p.name]) for p in ir.scalars]
        place = int(function(*given, *numbers, at))
        if place:
            printed.places[place - 1].fail(int(at[0]))


@dataclass(frozen=True)
class _Needed:
    """A kernel that is to be compiled for these types of its arguments."""

    key: str
    text: str
    signature: tuple[Any, ...]

    @classmethod
    def by(cls, seen: _Seen, dtypes: Mapping[str, np.dtype[Any]]) -> list[_Needed]:
        """Those of a recording whose arrays have these dtypes."""
        made = []
        for call in seen.made.calls:
            printed = seen.ways[id(call.ir)].printed
            if printed is not None:
                signature = _signature(call.ir, [dtypes[name] for name in call.arrays])
                made.append(cls(_key(printed.text), printed.text, signature))
        return made

    @property
    def place(self) -> tuple[str, tuple[Any, ...]]:
        """Where it is among what is loaded."""
        return self.key, self.signature

    @property
    def path(self) -> Path:
        return _module_path(self.key, self.text)

    @property
    def done(self) -> Path:
        """Exists once numba has it on disk."""
        return self.path.with_suffix(f".{_key(str(self.signature))}.done")

    def compile_once(self) -> None:
        """Compile it to numba's cache."""
        self.function()
        self.done.touch()

    def function(self) -> Any:
        """The function, of numba's cache where it is there. It takes arrays that may be written where it only reads: without the
        last line numba would compile all of it again for those.
        """
        function = _compiled(self.path)
        function.compile(self.signature)
        function.disable_compile()
        return function


def _plain(array: Array) -> Array:
    """As numba's signatures say it is: in C's order and aligned."""
    found = np.ascontiguousarray(array)
    return found if found.flags.aligned else found.copy()


# Functions by the key of their text and the types of their arguments.
_LOADED: dict[tuple[str, tuple[Any, ...]], Any] = {}


def choose_ways(recording: Recording) -> dict[int, _Way]:
    """The way of each kernel of a recording, by identity."""
    n_made: dict[int, int] = {}
    for call, n in zip(recording.calls, recording.n_made, strict=True):
        n_made[id(call.ir)] = n_made.get(id(call.ir), 0) + n
    return {id(call.ir): choose_way(call.ir, n_made[id(call.ir)]) for call in recording.calls}


def _compile_ns(ir: KernelIR) -> float:
    return _COMPILE_NS + _COMPILE_NODE_NS * n_nodes(ir)


def choose_way(ir: KernelIR, n_calls: int = 1) -> _Way:
    """The way in which all runs of a session are sooner done, where each calls it so often."""
    work = work_of(ir)
    n = _N_RUNS * n_calls
    is_quick = work.interpreted_ns * n < _compile_ns(ir) + work.compiled_ns * n
    if _CONFIG.DISABLE_JIT or is_quick or not can_print(ir):
        return _Way(None, work.interpreted_ns)
    return _Way(print_python(ir), work.compiled_ns)


def _key(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _signature(ir: KernelIR, dtypes: list[np.dtype[Any]]) -> tuple[Any, ...]:
    """The types of numba of a call: what is not written may be read-only."""
    written = written_in(ir.body)
    of: Any = numba.from_dtype  # its stub knows booleans alone
    arrays = [
        numba.types.Array(of(dtype), len(p.shape), "C", readonly=p.name not in written)
        for p, dtype in zip(ir.arrays, dtypes, strict=True)
    ]
    numbers = [of(p.dtype.numpy) for p in ir.scalars]
    return (*arrays, *numbers, numba.int64[::1])


def _module_path(key: str, text: str) -> Path:
    """The module of a text, in a folder of this Python and this numba. It is written once: numba's cache goes by its date."""
    version = f"py{sys.version_info.major}{sys.version_info.minor}-numba{numba.__version__}"
    path = own_folder(f"reference-{version}") / f"reference_{key}.py"
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new", delete=False) as f:
            f.write(text)
        os.replace(f.name, path)
    return path


def _compiled(path: Path) -> Any:
    """The function of a module, which numba compiles when it is told for which types."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return getattr(module, NAME)
