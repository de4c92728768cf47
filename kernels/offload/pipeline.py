"""Normalisation: a recorded sequence of kernel calls as a Problem, a list of tasks in the normal
form of kernels/ir/task.py.

Each call is put in terms of the sequence's arrays and scalars, cut into nests that share no
locals, and each nest is distributed into structured tasks (distribute, legality, reductions) or
kept as the body of one closed task. Then the tasks of the whole sequence are cleaned up (absorb).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..ir.body import Closure, Reason
from ..ir.domain import Loop
from ..ir.effects import arrays_read, arrays_written, overwrites
from ..ir.kernel import ArrayParam, Assert, Expr, For, SetLocal, Stmt
from ..ir.task import ArrayInfo, Problem, Task
from ..ir.text import problem_key
from ..ir.walk import (
    Renaming,
    children,
    coerced,
    loads,
    local_changed,
    locals_read,
    nested_statements,
    without,
)
from ..sparse.derived import Facts
from .closed import PRINTED, closed_task
from .distribute import NotStructuredError, first_branch, flatten, unique_loops
from .initialisers import absorb_initialisers, drop_dead, fix_orders, zero_temporaries
from .parts import Parts, parts_of
from .reductions import Split, split
from .triangles import boxed, first_range

if TYPE_CHECKING:
    from ..language.record import Recording


def normalise(recording: Recording, formula: str = "") -> Problem:
    """The tasks of a recorded sequence: meaning kept, machine-independent,
    equal for equal spellings. Assertions are left to the reference, which runs them.
    """
    known = {a.name: a for a in (*recording.arrays, *recording.temps, PRINTED)}
    lists = [array for t in recording.trees for key, array in t.sections if key.startswith("list")]
    known |= {name: replace(known[name], is_list=True) for name in lists}
    made: list[ArrayParam] = []
    tasks: list[Task] = []
    facts = Facts({t.tree.name: t.tree for t in recording.trees})
    around, begins = _loops_around(recording), {r.first for r in recording.repeats}
    for k, (call, label) in enumerate(zip(recording.calls, _labels(recording), strict=True)):
        if k in begins:  # what holds before the first step may not before the second
            facts = Facts(facts.trees)
        parts = parts_of(call, recording, facts)
        new, temps = _call_tasks(parts, label, known)
        tasks.extend(replace(t, repeats=around[k]) for t in new)
        made.extend(temps)
        known |= {t.name: t for t in temps}
    temporaries = {t.name: t for t in (*recording.temps, *made)}
    done = zero_temporaries(tuple(tasks), recording.temps)
    done = fix_orders(absorb_initialisers(drop_dead(done, known, temporaries)), known)
    done = _named(drop_dead(done, known, temporaries))
    temporaries[PRINTED.name] = PRINTED
    arrays = (*_roles(recording.arrays, done), *_used_temporaries(temporaries, done))
    problem = Problem(recording.name, arrays, recording.scalars, done, "", formula)
    return replace(problem, key=problem_key(problem))


def _labels(recording: Recording) -> list[str]:
    """`gemv0`, `gemv1`: the kernel's name and which call of it this is."""
    counts: dict[str, int] = {}
    labels = []
    for call in recording.calls:
        n = counts.get(call.ir.name, 0)
        counts[call.ir.name] = n + 1
        labels.append(f"{call.ir.name}{n}")
    return labels


def _loops_around(recording: Recording) -> list[tuple[Loop, ...]]:
    """Of each call the loops that repeat it, outermost first. Nothing else has their names."""
    taken = {a.name for a in (*recording.arrays, *recording.temps)}
    taken |= {p.name for p in recording.scalars}
    for c in recording.calls:
        taken |= {s.loop for s in nested_statements(c.ir.body) if isinstance(s, For)}
    names = (n for k in itertools.count(1) if (n := f"t{k}" if k > 1 else "t") not in taken)
    loops = [(r, Loop(next(names), r.count, False)) for r in recording.repeats]
    return [tuple(loop for r, loop in loops if k in r.members) for k in range(len(recording.calls))]


def _call_tasks(
    parts: Parts, label: str, known: Mapping[str, ArrayParam]
) -> tuple[list[Task], list[ArrayParam]]:
    """Tasks of one call and the temporaries they brought."""
    ir, call, arrays = parts.ir, parts.call, parts.arrays
    params: dict[str, Expr] = {
        p.name: coerced(e, p.dtype) for p, e in zip(ir.scalars, call.scalars, strict=True)
    }
    renaming = Renaming(arrays=arrays, params=params)

    def in_terms_of_sequence(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return unique_loops(tuple(renaming.apply_stmt(s) for s in without(body, Assert)))

    tasks: list[Task] = []
    temps: list[ArrayParam] = []
    if parts.settling:
        settled = in_terms_of_sequence(parts.settling)
        reason = Reason(Closure.CARRIED, "the settling of pools", ir.where)
        settling = closed_task(settled, ir.name, known, ir.fast_math, reason, serial=True)
        tasks += [settling] if settling is not None else []
    for segment in _segments(_without_plain_locals(in_terms_of_sequence(parts.body))):
        here = {**known, **{t.name: t for t in temps}}
        found = _segment_tasks(segment, label, ir.name, here, ir.fast_math)
        tasks.extend(found.tasks)
        temps.extend(found.temps)
    shown = {name: param for param, name in arrays.items()}
    return [_marked(t, label, shown) for t in tasks], temps


def _segment_tasks(
    body: tuple[Stmt, ...],
    label: str,
    kernel: str,
    known: Mapping[str, ArrayParam],
    fast_math: bool,
) -> Split:
    try:
        flat = flatten(boxed(body), fast_math)
        branch = first_branch(body) or first_range(body)
        return split(flat, label, kernel, known, fast_math, branch)
    except NotStructuredError as e:
        task = closed_task(body, kernel, known, fast_math, e.reason)
        return Split((task,) if task is not None else (), ())


def _marked(task: Task, label: str, shown: Mapping[str, str]) -> Task:
    """The task with `call/what it writes` for a name, until all tasks of the call are known."""
    array = task.target.array
    written = array.removeprefix(label + ".") if array not in shown else shown[array]
    return replace(task, name=f"{label}/{written}")


def _named(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """The call's label alone, or with what the task writes where its call has several tasks."""
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


def _without_plain_locals(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Put top-level locals that are set once, from scalars alone, in place, so that they tie no
    nests together.
    """
    every = list(nested_statements(body))
    n_set: dict[str, int] = {}
    for s in every:
        n_set[local_changed(s)] = n_set.get(local_changed(s), 0) + 1
    result: list[Stmt] = []
    plain: dict[str, Expr] = {}
    for s in body:
        s = Renaming(locals=plain).apply_stmt(s)
        once = isinstance(s, SetLocal) and n_set[s.name] == 1
        if once and isinstance(s, SetLocal) and not loads(s.value) and not locals_read(s.value):
            plain[s.name] = s.value
        else:
            result.append(s)
    return tuple(result)


def _segments(body: tuple[Stmt, ...]) -> list[tuple[Stmt, ...]]:
    """Runs of top-level statements that share no locals with one another."""
    shared: set[str] = set()
    for s in body:
        if not isinstance(s, For):
            shared |= _mentioned(s)
    last = {name: k for k, s in enumerate(body) for name in _mentioned(s) & shared}
    segments: list[tuple[Stmt, ...]] = []
    current: list[Stmt] = []
    end = -1
    for k, s in enumerate(body):
        current.append(s)
        end = max([end, k, *(last[name] for name in _mentioned(s) & shared)])
        if end == k:
            segments.append(tuple(current))
            current = []
    return segments


def _mentioned(s: Stmt) -> set[str]:
    """Locals that a statement or those nested in it set, update or read."""
    names: set[str] = set()
    for x in nested_statements((s,)):
        names |= {local_changed(x)} - {""}
        for e in children(x):
            names.update(locals_read(e))
    return names


def _roles(arrays: tuple[ArrayParam, ...], tasks: tuple[Task, ...]) -> tuple[ArrayInfo, ...]:
    """input: never written; output: wholly written before any read; inout: everything else."""
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
    """Temporaries that are left, in order of first use."""
    used = dict.fromkeys(
        name for t in tasks for name in (*arrays_read(t), *arrays_written(t)) if name in temps
    )
    return tuple(ArrayInfo(n, temps[n].dtype, temps[n].shape, "temp") for n in used)
