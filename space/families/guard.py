"""Guarded assignments: skips iterations whose condition is false, by a branch, a blend (if-conversion) or strides."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.analysis.effects import task_reads
from ...kernels.analysis.speculation import may_blend
from ...kernels.ir.access import flat_strides
from ...kernels.ir.domain import Residue
from ...kernels.ir.task import Problem, Task
from ..backbone import INNER
from ..draft import Draft, Family, Phrases, all_but, bits
from ..targets.kind import CPU, GPU
from .tiling import DIM_KIND, UNROLL, VECTOR

BRANCH, BLEND, STRIDE = range(3)
GUARD = (
    "BRANCH",  # a test around what an iteration does
    "BLEND",  # every iteration stores: the new value where the condition holds, else what the element held (if-conversion)
    "STRIDE",  # of a residue: register tiles have only the iterations that are in it
)


# --- sites -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stride:
    """A loop in which a guard selects one of every `residue.modulus` iterations, for any iteration of the other loops."""

    loop: str
    residue: Residue


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if task.is_guarded:
            name = (f"{task.name}.{task.target.array}",)
            s.v.of_tasks["guard"][t] = s.b.add("guard", name, GUARD, guards_of(s, task))


def guards_of(s: Draft, task: Task) -> int:
    """Returns the possible values (bit mask) of a guarded task alone.

    On a GPU strides would not help: idle threads wait for their neighbours anyway.
    """
    values = {BRANCH}
    if may_blend(task, s.problem) and (s.kind.has_teams or not _reads_others(task)):
        values.add(BLEND)
    if s.kind.has_teams and stride_of(s.problem, task) is not None:
        values.add(STRIDE)
    return bits(*values)


def _reads_others(task: Task) -> bool:
    """True if an iteration reads elements of the target array other than the one it stores.

    Another iteration may leave such an element unchanged. On a GPU, a blend in another thread would
    write it meanwhile.
    """
    target = task.target
    return any(x.array == target.array and x != target for x, _ in task_reads(task))


def stride_of(problem: Problem, task: Task) -> Stride | None:
    """Returns the loop in which the guard's remainder is a stride; None if there is none.

    A loop with contiguous elements is preferred.
    """
    strides = flat_strides(task.target, problem.array(task.target.array))
    own = {loop.name for loop in task.loops}
    found = [
        Stride(loop, part)
        for part in task.guard.residues
        for loop, step in part.affine.terms
        if step in (1, -1) and loop in own
    ]
    return min(found, key=lambda x: strides.get(x.loop, 0) or len(strides) << 40, default=None)


# --- predicates ------------------------------------------------------------------------------


@dataclass(frozen=True)
class WholePeriods:
    """Predicate: a register tile with strides has a multiple of `modulus` iterations."""

    sizes: tuple[int, ...]
    modulus: int

    def __call__(self, guard: int, size: int) -> bool:
        return guard != STRIDE or self.sizes[size] % self.modulus == 0


# --- constraints -----------------------------------------------------------------------------


def guarded_vectors(s: Draft) -> None:
    """Semantics: a vector stores all of its lanes, so a vectorised guarded task blends."""
    for t, var in s.v.of_tasks["guard"].items():
        for d in s.dims_at(t, INNER):
            scalar = (s.v.kind[d], all_but(DIM_KIND, VECTOR))
            s.b.clause("vectors blend", [(var, bits(BLEND)), scalar])


def strides(s: Draft) -> None:
    """Coherence: a register tile with strides consists of whole periods of the remainder, as copies of the body."""
    for t, var in s.v.of_tasks["guard"].items():
        stride = stride_of(s.problem, s.problem.tasks[t])
        if stride is None:
            continue
        d = s.backbone.dim(t, stride.loop, INNER)
        s.b.clause(
            "strides in copies", [(var, all_but(GUARD, STRIDE)), (s.v.kind[d], bits(UNROLL))]
        )
        whole = WholePeriods(s.v.universe[d], stride.residue.modulus)
        s.b.table2("whole periods", var, s.v.size[d], whole, share=whole)


# --- words -----------------------------------------------------------------------------------

PHRASES = Phrases(
    "guard",
    "branches",
    {
        "BRANCH": "tests its condition in each iteration",
        "BLEND": "stores in each iteration: where its condition does not hold, the old value",
        "STRIDE": "strides over the iterations that its guard leaves out",
    },
    {"BRANCH": "branches", "BLEND": "blends", "STRIDE": "in strides"},
)

FAMILY = Family(
    "guard", {CPU: (guarded_vectors, strides), GPU: (guarded_vectors,)}, declare, (PHRASES,)
)
