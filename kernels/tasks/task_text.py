"""Tasks as text in terms of the program: loops on sparse fields before lowering, and states of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ..ir.access import State
from ..ir.kernel import ForActive, Stmt
from ..ir.logical import LogicalLoop
from ..ir.task import Problem, Task
from ..ir.text import show_statements, show_task, show_tasks
from ..ir.walk import Renaming
from ..sparse.current_cell import without_own_activations
from ..sparse.states import named_effects
from .non_affine import LISTING, SETTLING


def stated_tasks(problem: Problem) -> str:
    """Returns the whole problem as text, like `show_tasks`, without the arrays of trees in tasks."""
    return show_tasks(problem, partial(_stated, problem))


def _stated(problem: Problem, task: Task) -> str:
    reads, writes = named_effects(task, problem.parts)
    if task.body is None or all(s.kind == "value" for s in reads | writes):
        return show_task(task)
    touched = f"reads {_labels(reads)} writes {_labels(writes)}"
    if task.body.reason.text in (SETTLING, LISTING):
        return f"{task.body.reason.text}: {touched}"
    is_loop = bool(task.loops) or len(task.body.statements) == 1
    if task.logical is None or not is_loop:
        return show_task(task)
    return f"{touched}\n{show_statements((_in_sequence(task.logical),))}"


def _labels(states: Iterable[State]) -> str:
    return ", ".join(s.label for s in sorted(states)) or "-"


def _in_sequence(loop: LogicalLoop) -> Stmt:
    """Returns a loop before lowering on the arrays of the sequence, in which a field is the array of its values."""
    call = loop.call
    s: Stmt = loop.statement
    trees = {tree.name: tree for tree, _ in call.kernel.trees}
    if isinstance(s, ForActive):  # the frontend activates each cell that is written
        s = without_own_activations(s, trees[s.tree])
    placed = {
        p.array: (p.tree, f"field{call.kernel.fields[p.array]}") for p in call.kernel.ir.placed
    }
    fields = {name: call.sections.get(key, name) for name, key in placed.items()}
    renaming = Renaming(arrays={**call.arrays, **fields}, params=call.scalars)
    return renaming.apply_stmt(s)
