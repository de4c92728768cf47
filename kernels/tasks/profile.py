"""Profile of a sequence on given arguments: executions of blocks, accessed elements and cache lines.

Only sure accesses count (execution_counts.py): dead values do not (kernels/analysis/must_execute.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from math import prod

from ..analysis.must_execute import blocks_of
from ..ir.task import Problem, Task
from .guarded_bodies import followed

LINE_BYTES = 64  # of a counted cache line
MOST_COUNTED = 1 << 60


@dataclass(frozen=True)
class Touched:
    """Average number per run of elements and cache lines of one array that a task accesses.

    `read_elements` and `read_lines`: those that are read before they are written.
    """

    array: str
    read_elements: float = 0.0
    read_lines: float = 0.0
    written_elements: float = 0.0
    written_lines: float = 0.0

    def least(self, other: Touched) -> Touched:
        """Returns the minimum of each count of two runs for one array."""
        reads = (self.read_elements, other.read_elements), (self.read_lines, other.read_lines)
        writes = (
            (self.written_elements, other.written_elements),
            (self.written_lines, other.written_lines),
        )
        return Touched(self.array, *(min(pair) for pair in (*reads, *writes)))


@dataclass(frozen=True)
class TaskProfile:
    """Counts of one task per run: average executions of each block of its body, and accesses to arrays.

    Blocks are numbered as in `blocks_of`. `holds`: the counts hold in every call on these arguments; else only in the first.
    """

    task: str
    entered: tuple[float, ...]
    touched: tuple[Touched, ...] = ()
    holds: bool = field(default=True, repr=False)  # not in repr: keys of older profiles stay valid

    def least(self, other: TaskProfile) -> TaskProfile:
        """Returns the minimum of each count of two runs for one task. `holds` is that of the second run."""
        entered = tuple(map(min, self.entered, other.entered))
        touched = tuple(map(Touched.least, self.touched, other.touched))
        return TaskProfile(self.task, entered, touched, other.holds)


@dataclass(frozen=True)
class Profile:
    """Profile of a problem: counts of the tasks whose control flow depends on data.

    It is valid for these arguments only.
    """

    tasks: tuple[TaskProfile, ...]

    @property
    def key(self) -> str:
        """Hash of the profile."""
        text = repr(self) + "".join(f" not {t.task}" for t in self.tasks if not t.holds)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def is_sure(self) -> bool:
        """True if the counts of some task hold in every call."""
        return any(t.holds for t in self.tasks)

    def keyed(self, key: str) -> str:
        """Returns `key`, the key of an object without this profile, combined with the profile's key.

        The result is as long as `key`.
        """
        joined = hashlib.blake2b(f"{key} {self.key}".encode(), digest_size=32).hexdigest()
        return joined[: len(key)]

    @property
    def is_settled(self) -> bool:
        """True if the counts of all tasks hold in every call."""
        return all(t.holds for t in self.tasks)

    def why_wrong(self, problem: Problem) -> str:
        """Message on the first entry of the profile that is invalid for the problem; "" if there is none."""
        arrays, tasks = {a.name for a in problem.arrays}, {t.name: t for t in problem.tasks}
        for known in self.tasks:
            task = tasks.get(known.task)
            task = None if task is None else followed(task)
            if task is None or task.body is None:
                return f"there is no task {known.task} in which values decide"
            if len(known.entered) != len(blocks_of(task.body.statements)):
                return f"the body of {known.task} has another number of blocks"
            if any(x.array not in arrays for x in known.touched):
                return f"{known.task} touches an array that is none of the sequence"
            counts = (c for x in known.touched for c in (x.read_elements, x.read_lines))
            more = (c for x in known.touched for c in (x.written_elements, x.written_lines))
            if not all(0 <= c < MOST_COUNTED for c in (*known.entered, *counts, *more)):
                return f"a count of {known.task} is none"
        return ""

    def of(self, task: Task) -> TaskProfile | None:
        """Returns the counts of a task if they hold in every call, else None."""
        found = self.about(task)
        return found if found is not None and found.holds else None

    def and_then(self, later: Profile) -> Profile:
        """Returns the profile of a call, combined with that of a later one.

        It has the minimum of both for a task whose counts hold in every call by the later one only, else the counts of this call.
        """
        then = {t.task: t for t in later.tasks}
        return Profile(
            tuple(
                t if t.holds or not then[t.task].holds else t.least(then[t.task])
                for t in self.tasks
            )
        )

    def about(self, task: Task) -> TaskProfile | None:
        """Returns the counts of a task in the first call, for estimates; None if it has none."""
        known = next((t for t in self.tasks if t.task == task.name), None)
        return known if known is None else _over_cells(known, task)


def _over_cells(known: TaskProfile, task: Task) -> TaskProfile:
    """Returns counts of a task whose loops over cells are its own, from those of a body around these loops.

    The blocks of these loops join the blocks around them, and all statements run in each cell. The
    loops are last in their blocks, so each block around them has the number before.
    """
    hoisted = task.body.trees.cell_blocks if task.body is not None else ()
    if not hoisted:
        return known
    extents = [loop.extent for loop in task.loops[-len(hoisted) :]]
    inside = dict(zip(hoisted, extents, strict=True))
    left, entered = prod(extents), list[float]()
    for block, count in enumerate(known.entered):
        if block in inside:
            left //= inside[block]
            entered.pop()
        entered.append(count * left)
    return replace(known, entered=tuple(entered))
