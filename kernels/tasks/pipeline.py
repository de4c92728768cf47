"""Normalisation: a recorded sequence of kernel calls becomes a Problem, a list of tasks in normal form.

The normal form is that of kernels/ir/task.py.
Calls become tasks one by one (recorded_calls). Then the tasks of the whole sequence are cleaned up (cleaned_calls).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..analysis.effects import arrays_read, arrays_written, overwrites
from ..ir.arrays import ArrayInfo
from ..ir.errors import LanguageError
from ..ir.kernel import ArrayParam
from ..ir.task import Problem, Task, TreeParts, Unsplit
from ..ir.text import problem_key
from ..sparse.leaves import leaves_of
from ..sparse.list_records import lists_of
from ..sparse.naming import shared_parts
from ..sparse.states import node_states
from ..sparse.tables import tables_of
from .cleaned_calls import cleaned_calls
from .ends import check_ends
from .initialisers import first_unwritten
from .non_affine import PRINTED
from .recorded_calls import RecordedCalls
from .steps import named_steps, with_own_sites

if TYPE_CHECKING:
    from ..frontend.recorder import Recording


def normalise(recording: Recording, formula: str = "") -> Problem:
    """Returns the problem (tasks in normal form) of a recorded sequence.

    The tasks have the same meaning, are machine-independent, and equal for equivalent spellings.
    Assertions are left to the reference, which runs them.
    """
    cleaned = cleaned_calls(recording)
    recording, calls, temporaries = cleaned.recording, cleaned.calls, dict(cleaned.temporaries)
    known = calls.known
    _check_unseen(calls.tasks, recording)
    taken = {*known, *(p.name for p in recording.scalars)}
    done = with_own_sites(named_steps(_named(cleaned.tasks), taken))
    temporaries[PRINTED.name] = PRINTED
    arrays = (*_roles(recording.arrays, done), *_used_temporaries(temporaries, done))
    leaves = leaves_of(recording.trees, arrays, done)
    logical = [x.logical.ir for x in recording.calls if x.logical is not None]
    records = lists_of(recording.trees, logical, arrays, done)
    shared = tuple((x, n) for x, (n, _) in shared_parts(recording.trees).items())
    tables = tables_of(recording.trees, arrays, done)
    of_trees = TreeParts(leaves, records, tables, shared, node_states(recording.trees))
    problem = Problem(recording.name, arrays, recording.scalars, done, "", formula, of_trees)
    check_ends(problem)
    unsplit = _unsplit(calls, recording, problem, taken)
    return replace(problem, key=problem_key(problem), unsplit=unsplit)


def _unsplit(
    calls: RecordedCalls, recording: Recording, problem: Problem, taken: set[str]
) -> Unsplit | None:
    """Returns the sequence without splitting, with time loops named as those of tasks; None without such a form.

    It has none if calls store to arrays that tasks only read, as copies of an array to itself do.
    """
    whole = calls.as_written()
    tasks = named_steps(tuple(x.task for x in whole), taken)
    own = tuple(a for a in problem.arrays if a.role != "temp")
    arrays = (*own, *_used_temporaries({t.name: t for t in recording.temps}, tasks))
    changed = {a.name for a in arrays if a.role != "input"}
    if not whole or any(not changed.issuperset(arrays_written(t)) for t in tasks):
        return None
    made = (replace(x, task=task) for x, task in zip(whole, tasks, strict=True))
    return Unsplit(arrays, tuple(made))


def _check_unseen(tasks: list[Task], recording: Recording) -> None:
    """Raises LanguageError if results may depend on values that an unseen array had before the sequence."""
    for temp in recording.temps:
        if temp.name in recording.unseen and first_unwritten(tasks, temp) is not None:
            raise LanguageError(
                f"{temp.name} cannot be unseen: {recording.name} may read it before all of it is written"
            )


def _named(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """Returns tasks named by their call's label, and by the array they write if the call has several tasks."""
    n_of_call: dict[str, int] = {}
    for task in tasks:
        call = task.name.split("/")[0]
        n_of_call[call] = n_of_call.get(call, 0) + 1
    names: set[str] = set()
    result = []
    for task in tasks:
        call, _, written = task.name.partition("/")
        base = call if n_of_call[call] == 1 else f"{call}.{written}"
        n, name = 1, base
        while name in names:
            n += 1
            name = f"{base}_{n}"
        names.add(name)
        result.append(replace(task, name=name))
    return tuple(result)


def _roles(arrays: tuple[ArrayParam, ...], tasks: tuple[Task, ...]) -> tuple[ArrayInfo, ...]:
    """Returns the arrays with their roles.

    input: never written. output: wholly written before any read. inout: all others.
    """
    result = []
    first: dict[str, Task] = {}  # that touches an array
    written: set[str] = set()
    for t in tasks:
        written.update(arrays_written(t))
        for name in (*arrays_read(t), *arrays_written(t)):
            first.setdefault(name, t)
    for a in arrays:
        if a.name not in written:
            role = "input"
        elif a.name not in arrays_read(first[a.name]) and overwrites(
            first[a.name], a.name, a.shape
        ):
            role = "output"
        else:
            role = "inout"
        result.append(ArrayInfo(a.name, a.dtype, a.shape, role))
    return tuple(result)


def _used_temporaries(
    temps: Mapping[str, ArrayParam], tasks: tuple[Task, ...]
) -> tuple[ArrayInfo, ...]:
    """Returns the temporaries that tasks access, in order of first use."""
    used = dict.fromkeys(
        name for t in tasks for name in (*arrays_read(t), *arrays_written(t)) if name in temps
    )
    return tuple(ArrayInfo(n, temps[n].dtype, temps[n].shape, "temp") for n in used)
