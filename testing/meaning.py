"""The meaning of tasks, run on symbols element by element: which task's value each read sees, and who writes each element last.

In plain Python, for judges: it shares no code with constraints, dependences or code generation. Only structured tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from zlib import crc32

from ..kernels.ir import kernel as ir
from ..kernels.ir.task import Problem, Task

Point = dict[str, int]


def loads(e: Any) -> list[ir.Load]:
    """Loads of an expression, in order."""
    if isinstance(e, ir.Load):
        return [e]
    parts = [getattr(e, name) for name in getattr(e, "__dataclass_fields__", {})]
    return [x for p in parts for x in (loads(p) if hasattr(p, "__dataclass_fields__") else [])]


def number(e: Any, at: Point) -> int:
    """The value of an index expression."""
    match e:
        case ir.Const(value=value):
            return int(value)
        case ir.LoopIndex(loop=loop):
            return at[loop]
        case ir.Cast(x=x):
            return number(x, at)
        case ir.Unary(op="neg", x=x):
            return -number(x, at)
        case ir.Binary(op=op, a=a, b=b):
            left, right = number(a, at), number(b, at)
            return {"add": left + right, "sub": left - right, "mul": left * right}[op]
    raise AssertionError(f"no index: {e}")


def read(load: ir.Load, at: Point) -> tuple[str, tuple[int, ...]]:
    return load.array, tuple(number(x, at) for x in load.indices)


def indexing(load: ir.Load) -> set[str]:
    """Loops that take part in the indices of a load."""
    found: set[str] = set()
    stack: list[Any] = list(load.indices)
    while stack:
        x = stack.pop()
        if isinstance(x, ir.LoopIndex):
            found.add(x.loop)
        stack += [getattr(x, name) for name in ("x", "a", "b") if hasattr(x, name)]
    return found


def written(task: Task, at: Point) -> tuple[str, tuple[int, ...]]:
    index = []
    for axis in task.target.axes:
        assert axis is not None, f"{task.name} is no structured task"
        index.append(axis.const + sum(k * at[loop] for loop, k in axis.terms))
    return task.target.array, tuple(index)


def points(task: Task) -> Iterator[Point]:
    for cell in product(*(range(loop.extent) for loop in task.loops)):
        yield dict(zip((loop.name for loop in task.loops), cell, strict=True))


_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def holds(task: Task, at: Point) -> bool:
    """True if a task assigns at a point. Conditions on values are drawn, the same at each call."""
    return task.condition is None or bool(_truth(task.condition, at))


def _truth(e: Any, at: Point) -> int:
    match e:
        case ir.Binary(op="and", a=a, b=b):
            return _truth(a, at) and _truth(b, at)
        case ir.Binary(op="or", a=a, b=b):
            return _truth(a, at) or _truth(b, at)
        case ir.Unary(op="not", x=x):
            return not _truth(x, at)
        case ir.Compare(op=op, a=a, b=b) if not loads(e):
            return _COMPARED[op](_truth(a, at), _truth(b, at))
        case ir.Binary(op="mod", a=a, b=b):
            return _truth(a, at) % _truth(b, at)
        case _ if loads(e):
            return crc32(repr([read(x, at) for x in loads(e)]).encode()) % 3 > 0
    return number(e, at)


def free_point(task: Task, at: Point) -> Point:
    return {loop.name: at[loop.name] for loop in task.loops if not loop.is_reduction}


def runs(problem: Problem) -> Iterator[tuple[range, Point]]:
    """Tasks that run one after the other with no step of a repeat between, as often as they do, with the numbers of the steps."""
    groups: list[range] = []
    for t, task in enumerate(problem.tasks):
        if groups and problem.tasks[t - 1].repeats == task.repeats:
            groups[-1] = range(groups[-1].start, t + 1)
        else:
            groups.append(range(t, t + 1))
    yield from _steps(problem, groups, 0, {})


def _steps(
    problem: Problem, groups: list[range], depth: int, at: Point
) -> Iterator[tuple[range, Point]]:
    around = [problem.tasks[g.start].repeats for g in groups]
    k = 0
    while k < len(groups):
        if len(around[k]) == depth:
            yield groups[k], at
            k += 1
            continue
        loop, first = around[k][depth], k
        while k < len(groups) and around[k][depth : depth + 1] == (loop,):
            k += 1
        for step in range(loop.extent):
            yield from _steps(problem, groups[first:k], depth + 1, {**at, loop.name: step})


def reference(problem: Problem) -> tuple[dict[Any, int | None], dict[Any, int]]:
    """For each read (task, place in the expression, point), the task whose value it sees; None: the value before the sequence.
    And the last writer of each element.

    Points have the numbers of steps, too. A writer is the number of its task, and so many times the number of tasks more as it has
    run before.
    """
    memory: dict[Any, int] = {}
    seen: dict[Any, int | None] = {}
    n_runs = [0] * len(problem.tasks)
    for tasks, steps in runs(problem):
        for t in tasks:
            _run(problem.tasks[t], t, t + n_runs[t] * len(problem.tasks), steps, memory, seen)
            n_runs[t] += 1
    return seen, memory


def _run(
    task: Task,
    t: int,
    writer: int,
    steps: Point,
    memory: dict[Any, int],
    seen: dict[Any, int | None],
) -> None:
    results: dict[Any, Point] = {}
    for point in points(task):
        at = {**steps, **point}
        for k, load in enumerate(loads(task.condition)):
            seen[t, "condition", k, tuple(at.items())] = memory.get(read(load, at))
        if not holds(task, at):
            continue
        for k, load in enumerate(loads(task.value)):
            seen[t, "value", k, tuple(at.items())] = memory.get(read(load, at))
        if task.is_reduction:
            results[written(task, at)] = {**steps, **free_point(task, at)}
        else:
            memory[written(task, at)] = writer
    for place, at in results.items():
        for k, load in enumerate(loads(task.finish)):
            seen[t, "finish", k, tuple(at.items())] = memory.get(read(load, at))
        memory[place] = writer
