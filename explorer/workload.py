"""Workload of a session: the explored problem with its arguments. Also the options of a session."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

from ..kernels.fields.program import current_program
from ..kernels.frontend.errors import LanguageError
from ..kernels.frontend.recorder import Recording, record_program
from ..kernels.ir.task import Problem
from ..kernels.tasks.entry_facts import assuming
from ..kernels.tasks.pipeline import normalise
from ..runtime.api.outcome import UNDECIDED
from ..runtime.records.stored import StoredSequence, bind_arguments, store_sequence
from ..runtime.worker.inputs import Arguments
from ..search.options import strategies
from ..space.build import build_space
from ..space.candidate import Space
from ..space.decisions import fix
from ..space.targets.target import Target
from ..space.thread_order import ordered
from .user_reference import UserReference


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a session."""

    time_limit_s: float | None = 60.0
    max_evals: int | None = None
    gap: float = 0.0
    seed: int = 1
    strategy: str = "mcts"
    target: str = "cpu"
    compiler: str | None = None
    compile_timeout_s: float = 10.0
    final_top: int = 8
    input_sets: int = 3
    threads: int = 0  # of an implementation, at most; 0: as many as there are cores
    store: bool = True
    undecided: float = UNDECIDED  # share of the elements of an array that may lie on a branch
    deterministic: bool = False  # nothing may depend on the order of threads
    fixed: tuple[tuple[str, str], ...] = ()  # decisions that every implementation has
    given: tuple[tuple[str, str], ...] = ()  # what was set, but for the seed, as text for the log

    def __post_init__(self) -> None:
        """Raises ValueError, one sentence, for invalid options."""
        if self.strategy not in strategies():
            known = ", ".join(strategies())
            raise ValueError(f"there is no strategy {self.strategy!r}; there are {known}")
        # They come from programs and from files that people edit: their types are not sure.
        numbers: tuple[tuple[str, object, type, str], ...] = (
            ("time_limit", self.time_limit_s, Real, "number of seconds"),
            ("gap", self.gap, Real, "number"),
            ("max_evals", self.max_evals, Integral, "whole number"),
            ("seed", self.seed, Integral, "whole number"),
            ("compile_timeout", self.compile_timeout_s, Real, "number of seconds"),
            ("final_top", self.final_top, Integral, "whole number"),
            ("input_sets", self.input_sets, Integral, "whole number"),
            ("threads", self.threads, Integral, "whole number"),
            ("target", self.target, str, "text"),
            ("compiler", self.compiler, str, "text"),
            ("store", self.store, bool, "truth value"),
            ("deterministic", self.deterministic, bool, "truth value"),
            ("undecided", self.undecided, Real, "number"),
        )
        optional = ("time_limit", "max_evals", "compiler")
        for name, given, kind, words in numbers:
            is_number = isinstance(given, kind) and (kind is bool or not isinstance(given, bool))
            if not is_number and not (given is None and name in optional):
                raise ValueError(f"{name} must be a {words}, not {given!r:.60}")
        if not 0 < self.compile_timeout_s < math.inf:
            raise ValueError(f"compile_timeout must be above 0 s, not {self.compile_timeout_s:g}")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise ValueError(f"a time limit of {self.time_limit_s:g} s leaves no time")
        if not 0 <= self.gap < 1:
            raise ValueError(f"a gap is a share from 0 to less than 1, not {self.gap:g}")
        if not 0 <= self.undecided < 1:
            raise ValueError(f"undecided is a share from 0 to less than 1, not {self.undecided:g}")
        least = {"max_evals": 1, "seed": 0, "final_top": 1, "input_sets": 1, "threads": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ValueError(f"{name} must be at least {low}, not {value}")
        most = {"final_top": 1000, "input_sets": 100, "threads": 1 << 16, "seed": (1 << 128) - 1}
        for name, high in most.items():
            if getattr(self, name) > high:
                raise ValueError(f"{name} must be at most {high}, not {getattr(self, name):.3g}")


def space_for(problem: Problem, target: Target, options: Options) -> Space:
    """Returns the space that a session searches, without values that its options exclude. Raises DecisionError."""
    return without_excluded(build_space(problem, target), options)


def without_excluded(space: Space, options: Options) -> Space:
    """Returns a space without the values that options exclude. Raises DecisionError."""
    if options.deterministic:
        space = fix(space, ordered(space))
    return fix(space, options.fixed) if options.fixed else space


def threads_of_program() -> int:
    """Returns the program's maximum number of threads per kernel (`cpu_max_num_threads`); 0: one per core."""
    program = current_program()
    return 0 if program is None else program.config.cpu_max_num_threads


def as_in_program(options: Options) -> Options:
    """Returns the options, with the running program's thread limit if they have none, deterministic if the program is."""
    program = current_program()
    is_ordered = options.deterministic or (program is not None and program.config.deterministic)
    return replace(
        options, threads=options.threads or threads_of_program(), deterministic=is_ordered
    )


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A problem with the arguments to measure it on; `more` are further arguments to verify on.

    `reference` names a NumPy function to time for comparison, by module and attribute; `user_reference` is the user's own
    function, which is also checked.
    """

    sequence: str  # the library's name, or "module:function"
    sizes: dict[str, int]
    dtype: str
    recording: Recording
    problem: Problem
    stored: StoredSequence
    arguments: Arguments
    more: tuple[Arguments, ...] = ()
    reference: tuple[str, str] | None = None
    user_reference: UserReference | None = None
    fields: frozenset[str] = frozenset()  # arrays that the program owns

    @property
    def begins_with_zeros(self) -> bool:
        """True if all fields that the sequence reads hold zeros only: the program has probably not filled them yet."""
        read = [
            a.name
            for a in self.problem.arrays
            if a.name in self.fields and a.role in ("input", "inout")
        ]
        return bool(read) and not any(self.arguments.arrays[name].any() for name in read)


def make_workload(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    sequence: str,
    name: str,
    sizes: dict[str, int] | None = None,
    formula: str = "",
    reference: tuple[str, str] | Callable[..., Any] | None = None,
    more: Sequence[Sequence[Any]] = (),
    unseen: Sequence[str] = (),
    without: Sequence[str] = (),
    unsure: Container[str] | None = None,
    most_runs: int = 1,
) -> Workload:
    """Records a function's calls on `args`, and returns the workload.

    `more` are other arguments of the same shapes and types, to verify on. `unseen` are names of arrays and fields that nobody
    reads after the sequence. `without`: names of derived rewrites that are not made.
    `unsure`: of a sequence that runs again and again, the trees whose active cells may change between two runs; the others, and
    their lists, are now as `most_runs` runs in a row have left them. None: nothing is known of any. Raises
    LanguageError.
    """
    recording, fields = record_program(fn, args, name)
    if unseen:
        recording = recording.with_unseen(unseen)
    if without:
        recording = recording.leaving_out(without)
    if unsure is not None:
        recording = assuming(recording, unsure, most_runs)
    parameters, arguments = bind_arguments(fn, args, recording, fields)
    problem = normalise(recording, formula)
    if not problem.tasks:
        raise LanguageError(
            f"the sequence {recording.name} computes nothing that lasts: no kernel stores to an array in a loop that runs",
            recording.calls[0].where,
        )
    return Workload(
        sequence=sequence,
        sizes=sizes_of(recording) if sizes is None else sizes,
        dtype=dtype_of(recording),
        recording=recording,
        problem=problem,
        stored=store_sequence(
            recording, formula, parameters, arguments, {a.name: a.role for a in problem.arrays}
        ),
        arguments=arguments,
        more=tuple(_further(fn, other, recording) for other in more),
        reference=reference if isinstance(reference, tuple) else None,
        user_reference=UserReference(reference, tuple(args)) if callable(reference) else None,
        fields=frozenset(fields),
    )


def _further(fn: Callable[..., Any], args: Sequence[Any], recording: Recording) -> Arguments:
    """Returns other arguments of a recorded sequence.

    Raises LanguageError if calls on them differ from the recording.
    """
    other, fields = record_program(fn, args, recording.name)
    if recording.unseen:
        other = other.with_unseen(recording.unseen)
    other = replace(other, assumed=recording.assumed, left_out=recording.left_out)
    if replace(other, n_assumed_runs=recording.n_assumed_runs) != recording:
        raise LanguageError(
            f"a further set of arguments of {recording.name} makes another sequence of calls than the first: all sets need"
            " the same shapes, types and constants"
        )
    return bind_arguments(fn, args, recording, fields)[1]


def sizes_of(recording: Recording) -> dict[str, int]:
    """Returns the extents of the largest array by name, used in names of the run and in the tuned store."""
    shapes = [p.shape for p in recording.arrays]
    largest = max(shapes, key=lambda shape: (len(shape), shape), default=())
    return {f"d{axis}": extent for axis, extent in enumerate(largest)}


def dtype_of(recording: Recording) -> str:
    """Returns the types of floats of a recording's arrays, used in the tuned store."""
    floats = sorted({p.dtype.name for p in recording.arrays if p.dtype.is_float})
    return "+".join(floats) or "i64"
