"""Clean-up between the tasks of a sequence: initialisers join their reductions, dead code is removed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from ..analysis.conflicts import apart, in_any_step
from ..analysis.effects import (
    arrays_read,
    arrays_written,
    effects,
    read_region,
    written_region,
)
from ..ir.access import Access, State, access_of
from ..ir.affine import Affine, drop_unit_loops
from ..ir.domain import Loop
from ..ir.kernel import Accumulator, ArrayParam, Binary, Const, DType, Expr, Load, LoopIndex
from ..ir.repeats import Repeat, repeats_of
from ..ir.task import Task, extents
from ..ir.walk import Renaming, children, is_neutral, joined, loads, rebuild
from .body_stores import may_lose_stores, without_stores
from .coverage import ActiveStores
from .non_affine import with_fixed_order


def absorb_initialisers(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """Returns tasks in which reductions start from the value of the map task that initialises their target.

    The initialising task is no longer needed for them.
    """
    work = list(tasks)
    k = 0
    while k < len(work):
        found = _initialiser(work, k)
        if found is None:
            k += 1
            continue
        position, value = found
        work[k] = _with_old_value(work[k], value)
        del work[position]
        k -= 1  # the same task again: its finish may read a still older value
    return tuple(work)


def _initialiser(tasks: list[Task], k: int) -> tuple[int, Expr] | None:
    """Returns the position of the map task that initialises task `k`, and its value; None if there is none.

    The value is in terms of task k's loops.
    """
    task = tasks[k]
    array = task.target.array
    if task.op is None or task.finish is None or task.value is None:
        return None
    own = [x for x in loads(task.finish) if x.array == array]
    if not own or any(access_of(x) != task.target for x in own):
        return None
    if any(x.array == array for x in loads(task.value)):
        return None
    for position in range(k - 1, -1, -1):
        other = tasks[position]
        if array not in arrays_read(other) and array not in arrays_written(other):
            continue
        is_map = other.is_structured and other.op is None and not other.is_guarded
        if not is_map or other.target.array != array or other.repeats != task.repeats:
            return None
        names = _same_elements(other, task)
        if names is None or other.value is None or other.dtype != task.dtype:
            return None
        between = tasks[position + 1 : k]
        if any(x in arrays_written(t) for t in between for x in arrays_read(other)):
            return None
        exact = task.fast_math or not task.dtype.is_float or task.op in ("min", "max")
        if not exact and not is_neutral(task.op, other.value):
            return None
        return position, Renaming(loops=names).apply(other.value)
    return None


def _same_elements(init: Task, task: Task) -> dict[str, Expr] | None:
    """Returns the loops of `init` as indices of `task`, if both targets are one index map over one domain.

    None if they are not.
    """
    old, new = extents(init), extents(task)
    steps = {loop.name for loop in init.steps}
    names: dict[str, Expr] = {x.name: Const(0, DType.i64) for x in init.loops if x.extent == 1}
    for a, b in zip(init.target.axes, task.target.axes, strict=True):
        if a is None or b is None:
            return None
        if any(a.coefficient(n) != b.coefficient(n) for n in steps):
            return None
        a, b = drop_unit_loops(a, old), drop_unit_loops(b, new)
        if a.const != b.const or len(a.terms) != len(b.terms):
            return None
        by_coefficient = {c: name for name, c in b.terms}
        if len(by_coefficient) != len(b.terms):
            return None
        for name, c in a.terms:
            other = by_coefficient.get(c)
            if other is None or old[name] != new[other]:
                return None
            if names.setdefault(name, LoopIndex(other)) != LoopIndex(other):
                return None
    return names if len(names) == len(init.loops) else None


def _with_old_value(task: Task, value: Expr) -> Task:
    """Returns `task` with `value` in `finish` instead of the loads of its own target."""
    assert task.finish is not None
    return replace(task, finish=_replaced(task.finish, task.target.array, value))


def _replaced(e: Expr, array: str, value: Expr) -> Expr:
    if isinstance(e, Load) and e.array == array:
        return value
    new = rebuild(e, tuple(_replaced(part, array, value) for part in children(e)))
    if isinstance(new, Binary) and new.op in ("add", "mul", "min", "max") and new != e:
        return joined(new.op, new.a, new.b, new.dtype)
    return new


def fix_orders(tasks: tuple[Task, ...], arrays: Mapping[str, ArrayParam]) -> tuple[Task, ...]:
    """Returns tasks in which float reductions that must keep their order are bodies.

    They are of kernels without fast_math, and start from an old value: the first term is to be added to the old value first.
    """

    def fixed(task: Task) -> Task:
        if task.fast_math or task.op in (None, "min", "max") or not task.dtype.is_float:
            return task
        f = task.finish
        own = isinstance(f, Binary) and isinstance(f.a, Load) and access_of(f.a) == task.target
        if own and isinstance(f, Binary) and isinstance(f.b, Accumulator) and f.op == task.op:
            return with_fixed_order(task, arrays)
        return task

    return tuple(fixed(t) for t in tasks)


def zero_temporaries(tasks: tuple[Task, ...], temps: tuple[ArrayParam, ...]) -> tuple[Task, ...]:
    """Returns tasks with one more for each temporary that may be read before it is written: it stores zeros.

    It is before the first use of the temporary.
    """
    work = list(tasks)
    for temp in temps:
        first = first_unwritten(work, temp)
        if first is not None:
            while (
                first > 0
                and work[first].repeats
                and work[first - 1].repeats[:1] == work[first].repeats[:1]
            ):
                first -= 1  # before the repeat, not in each of its steps
            work.insert(first, _zero_task(temp))
    return tuple(work)


def first_unwritten(tasks: Sequence[Task], temp: ArrayParam) -> int | None:
    """Returns the position of the first task that accesses `temp`; None if it is written before any read.

    None as well if no task accesses it.
    """
    touching = [
        k for k, t in enumerate(tasks) if temp.name in (*arrays_read(t), *arrays_written(t))
    ]
    if not touching or _written_before_read([tasks[k] for k in touching], temp):
        return None
    return touching[0]


def _written_before_read(touching: list[Task], temp: ArrayParam) -> bool:
    first = touching[0]
    written = written_region(first, temp.name, temp.shape)
    if temp.name in arrays_read(first) or written is None or not written.is_exact:
        return False
    regions = (read_region(t, temp.name, temp.shape) for t in touching[1:])
    return all(r is None or written.covers(r) for r in regions)


def _zero_task(temp: ArrayParam) -> Task:
    names = [f"i{k}" for k in range(len(temp.shape))]
    loops = tuple(Loop(n, extent, False) for n, extent in zip(names, temp.shape, strict=True))
    target = Access(temp.name, tuple(Affine(0, ((n, 1),)) for n in names))
    zero = Const(temp.dtype.numpy.type(0).item(), temp.dtype)
    return Task(f"zero_{temp.name}", "ndarray", loops, target, temp.dtype, zero)


def drop_dead(
    tasks: tuple[Task, ...],
    known: Mapping[str, ArrayParam],
    temps: Collection[str],
    stores: ActiveStores,
) -> tuple[Task, ...]:
    """Returns the tasks without dead ones, and without dead stores of bodies.

    No later task reads the results of a dead task, which are overwritten or lie in a temporary. If that is so for some of the
    arrays that a body stores to, these stores are removed.

    `known`: all arrays. `temps`: the temporaries. `stores`: the stores to fields of trees. Tasks of a repeat that run before it in
    a step are later, too: in the next step.
    """
    kept = list(tasks)
    n_before = -1
    while len(kept) != n_before:  # removing a reader may make its source dead
        n_before = len(kept)
        for k in reversed(range(n_before)):
            if not _is_needed(kept, k, known, temps, stores):
                del kept[k]
    for k in reversed(range(len(kept))):
        _drop_stores(kept, k, known, temps, stores)
    return tuple(kept)


def _drop_stores(
    tasks: list[Task],
    k: int,
    known: Mapping[str, ArrayParam],
    temps: Collection[str],
    stores: ActiveStores,
) -> None:
    """Removes the dead stores of task `k`, a body that writes several arrays, in the list of tasks."""
    for array in arrays_written(tasks[k]):
        if array in temps or not may_lose_stores(tasks[k], array):
            continue
        ways = _ways_on(tasks, k)
        if not any(_is_seen(tasks[k], array, way, known, temps, stores) for way in ways):
            tasks[k] = without_stores(tasks[k], array, known)


def _is_needed(
    tasks: list[Task],
    k: int,
    known: Mapping[str, ArrayParam],
    temps: Collection[str],
    stores: ActiveStores,
) -> bool:
    written = arrays_written(tasks[k])
    if _writes_nothing(tasks[k]):
        return False
    others = [t for t in tasks if t is not tasks[k]]
    for array in (x for x in written if x in temps):
        # A reader may run in no iteration, but its text still names the array.
        is_read = any(array in arrays_read(t) for t in others)
        if is_read and not any(array in arrays_written(t) for t in others):
            return True
    return any(
        _is_seen(tasks[k], array, later, known, temps, stores)
        for later in _ways_on(tasks, k)
        for array in written
    )


def _writes_nothing(task: Task) -> bool:
    """True if the conditions of an assignment hold in no iteration."""
    if not task.is_guarded:
        return False
    return all(apart(x, x) for _, x, _ in effects(task).writes)


def is_overwritten_next(
    tasks: Sequence[Task],
    k: int,
    r: Repeat,
    known: Mapping[str, ArrayParam],
    temps: Collection[str],
    stores: ActiveStores,
) -> bool:
    """True if an array that task `k` writes is dead wherever repeat `r` around the task runs one more step."""
    return any(
        not any(
            _is_seen(tasks[k], array, way, known, temps, stores)
            for way in _ways_on(tasks, k, goes_on=r)
        )
        for array in arrays_written(tasks[k])
    )


def _ways_on(tasks: Sequence[Task], k: int, goes_on: Repeat | None = None) -> Iterator[list[Task]]:
    """Yields possible sequences of tasks after task `k`, in reverse order.

    Each time loop (repeat) around the task may run one more step or none; repeat `goes_on` runs one more.
    """
    around = [r for r in repeats_of([t.repeats for t in tasks]) if k in r.members]
    ways = [(True,) if r == goes_on else (False, True) for r in reversed(around)]
    for again in product(*ways):
        at, later = k + 1, list[Task]()
        for r, is_again in zip(reversed(around), again, strict=True):
            later += tasks[at : r.stop]
            later += tasks[r.first : r.stop] if is_again else []
            at = r.stop
        yield [*later, *tasks[at:]][::-1]


def _is_seen(
    task: Task,
    array: str,
    later: list[Task],
    known: Mapping[str, ArrayParam],
    temps: Collection[str],
    stores: ActiveStores,
) -> bool:
    """True if the writes of a task to `array` are live: a later task reads them, or they outlive the sequence.

    `later`: the later tasks in reverse order. An array that ends a repeat is read there.
    """
    if any(loop.until == array for t in (task, *later) for loop in t.repeats):
        return True
    state = State("value", array)
    writes = [x for s, x, _ in effects(task).writes if s == state]
    are_active = stores.are_to_active(task)
    for other in reversed(later):
        is_read = array in arrays_read(other)
        reads = [x for s, x in effects(other).reads if s == state] if is_read else []
        if any(not apart(a, in_any_step(b)) for a in writes for b in reads):
            return True
        are_active = are_active and not stores.may_shrink(other)
        if stores.covers(other, task, known[array], are_active=are_active):
            return False
    return array not in temps
