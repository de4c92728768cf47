"""Normalisation: a recorded sequence of kernel calls as a Problem, a list of tasks in the normal form of kernels/ir/task.py.

Each call is rewritten to the sequence's arrays and scalars, and cut into nests that share no locals. Each nest is distributed into
structured tasks (distribute, legality, reductions) or becomes the body of one non-affine task. Then the tasks of the whole sequence
are cleaned up (initialisers).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..analysis.effects import are_independent, arrays_read, arrays_written, overwrites
from ..ir.affine import Affine, rename
from ..ir.arrays import ArrayInfo
from ..ir.body import Closure, Reason
from ..ir.domain import Loop
from ..ir.errors import LanguageError
from ..ir.kernel import ArrayParam, Expr, For, LoopIndex, Stmt
from ..ir.logical import LogicalLoop
from ..ir.task import Problem, Task, TreeParts
from ..ir.text import problem_key
from ..ir.walk import (
    Renaming,
    rewrite,
    written_in,
)
from ..sparse.leaves import leaves_of
from ..sparse.list_records import lists_of
from ..sparse.naming import shared_parts
from ..sparse.redundancy import Derived, Facts
from ..sparse.states import node_states
from ..sparse.tables import tables_of
from .borders import split_at_borders
from .distribute import (
    NotStructuredError,
    constant_extent,
    first_branch,
    flatten,
)
from .initialisers import (
    absorb_initialisers,
    drop_dead,
    first_unwritten,
    fix_orders,
    zero_temporaries,
)
from .interleaved_stores import in_turn
from .non_affine import LISTING, PRINTED, SETTLING, closed_task, with_trees
from .parts import Parts, TakenList, parts_of
from .reductions import Split, split
from .residues import by_residue
from .segments import in_terms_of_sequence, segments_of
from .splitting import split_at_steps
from .taken import TakenLists
from .triangles import boxed, first_range

if TYPE_CHECKING:
    from ..frontend.recorder import Recording

_MOST_STEPS = 1 << 16  # of a loop of a kernel: launches of a GPU are listed one by one


def normalise(recording: Recording, formula: str = "") -> Problem:
    """Returns the tasks of a recorded sequence. They have the same meaning, are machine-independent, and equal for equivalent
    spellings.

    Assertions are left to the reference, which runs them.
    """
    recording = by_residue(recording)
    known = {a.name: a for a in (*recording.arrays, *recording.temps, PRINTED)}
    lists = [array for t in recording.trees for key, array in t.sections if key.startswith("list")]
    known |= {name: replace(known[name], is_list=True) for name in lists}
    made: list[ArrayParam] = []
    tasks: list[Task] = []
    facts = Facts({t.tree.name: t.tree for t in recording.trees})
    taken = TakenLists()
    around, begins = _loops_around(recording), {r.first for r in recording.repeats}
    normalised: dict[_Key, _Normalised] = {}
    for k, (call, label) in enumerate(zip(recording.calls, _labels(recording), strict=True)):
        if k in begins:  # facts before the first step may not hold before the second
            facts = Facts(facts.trees)
        derived = None if call.logical is None else facts.after(call.logical.ir)
        key = id(call.ir), id(call.logical), call.arrays, call.scalars, derived, around[k]
        same = normalised.get(key)
        if same is None or not same.is_movable:
            parts = parts_of(call, label, recording, derived)
            new, temps = _call_tasks(parts, label, known, around[k])
            is_movable = not temps and all(t.repeats == around[k] for t in new)
            same = normalised[key] = _Normalised(label, new, temps, parts.lists, is_movable)
        tasks.extend(same.tasks_of(label))
        taken.add(tasks, len(same.tasks), same.lists, label)
        made.extend(same.temps)
        known |= {t.name: t for t in same.temps}
    temporaries = {t.name: t for t in (*recording.temps, *made)}
    _check_unseen(tasks, recording)
    done = zero_temporaries(tuple(tasks), recording.temps)
    done = fix_orders(absorb_initialisers(drop_dead(done, known, temporaries)), known)
    done = _named(drop_dead(done, known, temporaries))
    done = _named_steps(done, {*known, *(p.name for p in recording.scalars)})
    temporaries[PRINTED.name] = PRINTED
    arrays = (*_roles(recording.arrays, done), *_used_temporaries(temporaries, done))
    leaves = leaves_of(recording.trees, arrays, done)
    logical = [x.logical.ir for x in recording.calls if x.logical is not None]
    records = lists_of(recording.trees, logical, arrays, done)
    shared = tuple((x, n) for x, (n, _) in shared_parts(recording.trees).items())
    tables = tables_of(recording.trees, arrays, done)
    of_trees = TreeParts(leaves, records, tables, shared, node_states(recording.trees))
    problem = Problem(recording.name, arrays, recording.scalars, done, "", formula, of_trees)
    return replace(problem, key=problem_key(problem))


_Key = tuple[int, int, tuple[str, ...], tuple[Expr, ...], Derived | None, tuple[Loop, ...]]
"""Kernel before and after lowering, arguments, redundant operations and time loops of a call: what its tasks depend on."""


@dataclass(frozen=True)
class _Normalised:
    """A normalised call: its label, tasks and temporaries, and the lists that it uses.

    `is_movable`: no array and no loop is named after the call, so that equal calls have the same tasks.
    """

    label: str
    tasks: Sequence[Task]
    temps: Sequence[ArrayParam]
    lists: tuple[TakenList, ...]
    is_movable: bool

    def tasks_of(self, label: str) -> Iterator[Task]:
        """Yields the tasks of an equal call with this label."""
        for task in self.tasks:
            yield task if label == self.label else self._moved(task, label)

    def _moved(self, task: Task, label: str) -> Task:
        name = label + task.name.removeprefix(self.label)
        if task.body is None or not task.body.trees.tiles:
            return replace(task, name=name)
        trees = task.body.trees
        tiles = (replace(x, name=label + x.name.removeprefix(self.label)) for x in trees.tiles)
        body = replace(task.body, trees=replace(trees, tiles=tuple(tiles)))
        return replace(task, name=name, body=body)


def _check_unseen(tasks: list[Task], recording: Recording) -> None:
    """Raises LanguageError where the values of an unseen array before the sequence may matter."""
    for temp in recording.temps:
        if temp.name in recording.unseen and first_unwritten(tasks, temp) is not None:
            raise LanguageError(
                f"{temp.name} cannot be unseen: {recording.name} may read it before all of it is written"
            )


def _labels(recording: Recording) -> list[str]:
    """Label of each call: the kernel's name and the number of the call, such as `gemv0`, `gemv1`."""
    counts: dict[str, int] = {}
    labels = []
    for call in recording.calls:
        n = counts.get(call.ir.name, 0)
        counts[call.ir.name] = n + 1
        labels.append(f"{call.ir.name}{n}")
    return labels


def _loops_around(recording: Recording) -> list[tuple[Loop, ...]]:
    """The time loops (repeats) around each call, outermost first."""
    loops = [
        (r, Loop(r.index or f"/{n}", r.count, False, is_step=True))
        for n, r in enumerate(recording.repeats)
    ]
    return [tuple(loop for r, loop in loops if k in r.members) for k in range(len(recording.calls))]


def _named_steps(tasks: tuple[Task, ...], taken: set[str]) -> tuple[Task, ...]:
    """Renames the time loops of tasks to t, t2 and so on, different from the names `taken` and from their loops."""
    every = dict.fromkeys(loop.name for t in tasks for loop in t.repeats)
    taken = taken | {loop.name for t in tasks for loop in t.loops}
    taken |= {
        site.name for t in tasks if t.body is not None for s in t.body.sites for site in s.loops
    }
    free = (n for k in itertools.count(1) if (n := f"t{k}" if k > 1 else "t") not in taken)
    names = dict(zip(every, free, strict=False))
    return tuple(_with_steps(t, names) for t in tasks)


def _with_steps(task: Task, names: Mapping[str, str]) -> Task:
    """Returns the task with its time loops renamed."""

    def change(x: Any) -> Any:
        match x:
            case Loop(name=name) if x.is_step:
                return replace(x, name=names.get(name, name))
            case LoopIndex(loop=name):
                return replace(x, loop=names.get(name, name))
            case Affine():
                return rename(x, names)
        return x

    repeats = tuple(map(change, task.repeats))
    named = replace(task, logical=None)
    named = replace(rewrite(named, change) if task.steps else named, repeats=repeats)
    return named if task.logical is None else replace(named, logical=_renamed(task.logical, change))


def _renamed(loop: LogicalLoop, change: Callable[[Any], Any]) -> LogicalLoop:
    """Returns a loop whose call has other values for its scalars."""
    scalars = {name: rewrite(x, change) for name, x in loop.call.scalars.items()}
    if scalars == loop.call.scalars:
        return loop  # tasks of one call share its lowerings
    return replace(loop, call=replace(loop.call, scalars=scalars))


def _call_tasks(
    parts: Parts, label: str, known: Mapping[str, ArrayParam], steps: tuple[Loop, ...]
) -> tuple[list[Task], list[ArrayParam]]:
    """Tasks of one call inside of the time loops, and their temporaries."""
    ir, arrays = parts.ir, parts.arrays
    tasks: list[Task] = []
    temps: list[ArrayParam] = []
    if parts.settling:
        settled = in_terms_of_sequence(parts.settling, ir, arrays, parts.scalars)
        reason = Reason(Closure.CARRIED, SETTLING, ir.where)
        settling = closed_task(
            settled, ir.name, known, ir.fast_math, reason, serial=True, steps=steps
        )
        tasks += [settling] if settling is not None else []
    for body in segments_of(in_terms_of_sequence(parts.body, ir, arrays, parts.scalars)):
        here = {**known, **{t.name: t for t in temps}}
        if any(here[name].is_list for name in written_in(body) if name in here):
            reason = Reason(Closure.CARRIED, LISTING, ir.where)
            listing = closed_task(
                body, ir.name, known, ir.fast_math, reason, serial=True, steps=steps
            )
            tasks += [listing] if listing is not None else []
            continue
        loops = [parts.loops[s.uid] for s in body if s.uid in parts.loops]
        found = _segment_tasks(
            body, label, ir.name, here, ir.fast_math, steps, has_borders=not loops
        )
        if len(loops) == len(found.tasks) == 1:
            tasks.append(with_trees(found.tasks[0], loops[0], steps, is_alone=len(body) == 1))
        else:
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
    steps: tuple[Loop, ...],
    *,
    has_borders: bool = True,
) -> Split:
    """Returns the tasks of statements that share no locals with others. With `has_borders` a nest may be split into several."""
    try:
        flat = flatten(boxed(body, steps), fast_math, steps)
        branch = first_branch(body) or first_range(body)
        found = split(flat, label, kernel, known, fast_math, branch)
        reason = None if found.temps else in_turn(found.tasks)
        if reason is not None:
            raise NotStructuredError(reason.kind, reason.text, reason.where)
        return replace(found, tasks=tuple(replace(t, repeats=steps) for t in found.tasks))
    except NotStructuredError as e:
        parts = split_at_steps(boxed(body, steps), steps) if steps else None
        if parts is not None and e.reason.kind is Closure.CARRIED:
            apart = [_segment_tasks(x, label, kernel, known, fast_math, steps) for x in parts]
            tasks = tuple(t for found in apart for t in found.tasks)
            if all(t.is_structured for t in tasks) and not any(found.temps for found in apart):
                return Split(tasks, ())
        task = closed_task(body, kernel, known, fast_math, e.reason, steps=steps)
        stepped = _steps(body, task, label, kernel, known, fast_math, steps)
        whole = stepped or Split((task,) if task is not None else (), ())
        if stepped is not None or task is None or not has_borders:
            return whole
        made: list[Task] = []
        temps: dict[str, ArrayParam] = {}
        for part in split_at_borders(body, task):
            here = {**known, **temps}
            found = _segment_tasks(part, label, kernel, here, fast_math, steps, has_borders=False)
            if not made and not all(t.is_structured for t in found.tasks):
                break  # not even the interior
            made += found.tasks
            temps |= {t.name: t for t in found.temps}
        if made:
            return Split(tuple(made), tuple(temps.values()))
        return whole


def _steps(
    body: tuple[Stmt, ...],
    closed: Task | None,
    label: str,
    kernel: str,
    known: Mapping[str, ArrayParam],
    fast_math: bool,
    steps: tuple[Loop, ...],
) -> Split | None:
    """Makes a time loop (repeat) of a loop with dependent iterations around loops with independent ones.

    Returns its tasks, or None if there is no such loop. `closed`: the task of the loop otherwise.
    """
    loop = body[0] if len(body) == 1 else None
    if (
        closed is None
        or not isinstance(loop, For)
        or not any(isinstance(s, For) for s in loop.body)
    ):
        return None
    count = constant_extent(loop.extent) or 0
    if not 1 < count <= _MOST_STEPS or _has_independent(closed):
        return None
    tasks: list[Task] = []
    temps: list[ArrayParam] = []
    # A loop per call: equal loops around neighbours would be merged.
    around = Loop(f"{label}/{loop.loop}", count, False, is_step=True)
    inside = Renaming(loops={loop.loop: LoopIndex(around.name)})
    body = tuple(inside.apply_stmt(s) for s in loop.body)
    for segment in segments_of(body):
        here = {**known, **{t.name: t for t in temps}}
        found = _segment_tasks(segment, label, kernel, here, fast_math, (*steps, around))
        tasks.extend(found.tasks)
        temps.extend(found.temps)
    if not any(map(_has_independent, tasks)):
        return None
    return Split(tuple(tasks), tuple(temps))


def _has_independent(task: Task) -> bool:
    return any(not x.is_reduction and are_independent(task, x) for x in task.loops if x.extent > 1)


def _marked(task: Task, label: str, shown: Mapping[str, str]) -> Task:
    """Returns the task named `call/written array`, until all tasks of the call are known."""
    array = task.target.array
    written = array.removeprefix(label + ".") if array not in shown else shown[array]
    return replace(task, name=f"{label}/{written}")


def _named(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """Names each task by its call's label, and by the array that it writes if its call has several tasks."""
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
    """Roles of arrays. input: never written; output: wholly written before any read; inout: everything else."""
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
    """The used temporaries, in order of first use."""
    used = dict.fromkeys(
        name for t in tasks for name in (*arrays_read(t), *arrays_written(t)) if name in temps
    )
    return tuple(ArrayInfo(n, temps[n].dtype, temps[n].shape, "temp") for n in used)
