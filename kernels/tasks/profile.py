"""What a run of a sequence on given arguments shows of its bodies: how often each block of statements runs, and how many elements
and lines of cache of each array a task surely touches there (counting.py).

Values that nobody uses do not count (kernels/analysis/must_execute.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from ..analysis.must_execute import blocks_of
from ..ir.task import Problem, Task
from .guarded_bodies import followed

LINE_BYTES = 64  # of what is counted as lines
MOST_COUNTED = 1 << 60


@dataclass(frozen=True)
class Touched:
    """Of an array what a task touches in one run on average: elements and lines that it reads before it writes them, and that it
    writes.
    """

    array: str
    read_elements: float = 0.0
    read_lines: float = 0.0
    written_elements: float = 0.0
    written_lines: float = 0.0

    def least(self, other: Touched) -> Touched:
        """Of one array what two runs both touch, by number."""
        reads = (self.read_elements, other.read_elements), (self.read_lines, other.read_lines)
        writes = (
            (self.written_elements, other.written_elements),
            (self.written_lines, other.written_lines),
        )
        return Touched(self.array, *(min(pair) for pair in (*reads, *writes)))


@dataclass(frozen=True)
class TaskProfile:
    """How often each block of a task's body runs in one run of the task on average (numbered as in `blocks_of`), and what it
    touches. `holds`: in every call on these arguments; else in the first.
    """

    task: str
    entered: tuple[float, ...]
    touched: tuple[Touched, ...] = ()
    holds: bool = field(default=True, repr=False)  # keys are as before it was there

    def least(self, other: TaskProfile) -> TaskProfile:
        """What two runs of one task both do, and later ones as the second."""
        entered = tuple(map(min, self.entered, other.entered))
        touched = tuple(map(Touched.least, self.touched, other.touched))
        return TaskProfile(self.task, entered, touched, other.holds)


@dataclass(frozen=True)
class Profile:
    """What was counted of the tasks of a problem whose values decide what they do; for these arguments only."""

    tasks: tuple[TaskProfile, ...]

    @property
    def key(self) -> str:
        """Equal for equal counts."""
        text = repr(self) + "".join(f" not {t.task}" for t in self.tasks if not t.holds)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def is_sure(self) -> bool:
        """Whether something of it holds in every call."""
        return any(t.holds for t in self.tasks)

    def keyed(self, key: str) -> str:
        """The key of something that this profile is part of, as long as its key without it."""
        joined = hashlib.blake2b(f"{key} {self.key}".encode(), digest_size=32).hexdigest()
        return joined[: len(key)]

    @property
    def is_settled(self) -> bool:
        """Whether all of it holds in every call."""
        return all(t.holds for t in self.tasks)

    def why_wrong(self, problem: Problem) -> str:
        """What a profile of the problem cannot hold, in words; "" where nothing is wrong."""
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
        """What holds of a task in every call."""
        found = self.about(task)
        return found if found is not None and found.holds else None

    def and_then(self, later: Profile) -> Profile:
        """The profile of a call, after which another one was counted: where that goes as all later ones do, the least of both."""
        then = {t.task: t for t in later.tasks}
        return Profile(
            tuple(
                t if t.holds or not then[t.task].holds else t.least(then[t.task])
                for t in self.tasks
            )
        )

    def about(self, task: Task) -> TaskProfile | None:
        """What a task did in the first call, for estimates."""
        return next((t for t in self.tasks if t.task == task.name), None)
