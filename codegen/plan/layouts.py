"""Bodies of standalone kernels by the decisions about their batches and local arrays, which come before all others."""

from __future__ import annotations

from ...kernels.ir.task import Problem
from ...space.draft import Decisions
from ...space.targets.target import Target


def laid_out(problem: Problem, decisions: Decisions, target: Target) -> Problem:
    """Returns the problem of standalone kernels with interleaved blocks, and with local arrays in registers, as decided.

    Without such decisions it imports no passes: a standalone call waits for its code.
    """
    if decisions.keys().isdisjoint(("batch_layout", "local_arrays")):
        return problem
    from .problem_passes import Decided, decided_problem

    return decided_problem(problem, Decided(decisions, target))
