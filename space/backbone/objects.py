"""Backbone: the objects that all choices are about, the same for all candidates and machines.

Telamon (paper section 3.1) gives every instruction its own loop nest and orders the nests pairwise.
Here one perfect loop nest (band) per *task* suffices, because a task is one assignment. A reduction
is initialised and finished just outside its outermost reduction dim, so these statements need no
dims and no choices.

Every loop is strip-mined into three levels:

    outer   steps over tiles of mid*inner iterations; a loop, or distributed to threads
    mid     steps over register tiles inside that tile; absent if its size is 1
    inner   the register tile: unrolled or in vectors, no loop at all; absent if its size is 1

Only outer and mid dims and the bodies of tasks have an order. The register tiles of all loops of a
task form one grid of straight-line code at its body, so nothing can be ordered inside it.

Two tasks may share a launch if they are in one component and less than LAUNCH_TASKS apart, or in a
component with few objects (LAUNCH_OBJECTS). A component is a run of tasks, in program order, that
possible merges, on-chip values and common colourings of scatters connect. A sequence that fits into a launch is one component.
Tasks that cannot share a launch run in program order, which is no choice. So objects and
constraints grow linearly with the tasks.

A repeat (outer time loop) has its tasks once (kernels/ir/repeats.py). No component extends over the
begin or the end of a repeat. So each iteration of a repeat ends all of its launches, and a later
iteration reads its values from memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...kernels.analysis.alike_bodies import alike_bodies
from ...kernels.analysis.rescaling import Rescaling
from ...kernels.ir.access import Access, index_loops
from ...kernels.ir.affine import Affine
from ...kernels.ir.domain import Loop
from ...kernels.ir.task import Problem, Task
from ...kernels.tasks.dependence import Dependence

OUTER, MID, INNER = 0, 1, 2
LEVEL_NAMES = ("outer", "mid", "inner")
LAUNCH_TASKS = 8  # that follow one another in the program and may be in one launch
# A component with so many objects at most, twelve tasks of one loop, may be one launch however many tasks it has: what a space
# takes grows with the cube of the objects that may share a launch.
LAUNCH_OBJECTS = 36


@dataclass(frozen=True)
class Dim:
    """One tile level (outer, mid or inner) of one loop of a task.

    `order_id`: its object number in the order algebra; -1 for inner dims, which have no order.
    """

    task: int
    loop: Loop
    level: int
    name: str
    order_id: int


@dataclass(frozen=True)
class Flow:
    """Dataflow: a value that task `consumer` reads from the array that task `producer` wrote.

    `is_read`: the value is an input that `producer` read before.
    `pairs`: loops (of producer, of consumer) whose iterations the value maps one to one.
    `is_pointwise`: all loops that index the value are among `pairs`, so that it can stay in a
    register.
    `axes`: indices of the producer's element in terms of its loops.
    """

    producer: int
    consumer: int
    array: str
    pairs: tuple[tuple[str, str], ...]
    is_pointwise: bool
    name: str
    axes: tuple[Affine | None, ...] = ()
    is_read: bool = False

    @property
    def loops(self) -> set[str]:
        """Loops of the producer that index the array."""
        return index_loops(Access(self.array, self.axes))

    @property
    def index_pairs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of loops (of producer, of consumer) that index the array."""
        return tuple((p, c) for p, c in self.pairs if p in self.loops)


@dataclass(frozen=True)
class Operand:
    """A read with reuse, so that a packed copy of a block of its array can pay.

    Either some loop of the task does not index it, or several reads access neighbouring elements. A
    product of an array by itself has two operands.
    `access`: the read with the least constants. `halo`: by loop, the distance of the farthest other
    read beyond it.
    """

    task: int
    access: Access
    loops: tuple[str, ...]  # of the task, that index the array
    name: str  # of the task and the site
    site: str  # in the task: the array, and where the task reads that at other places as well, the index
    halo: tuple[tuple[str, int], ...] = ()

    @property
    def is_window(self) -> bool:
        """True if an iteration reads several neighbouring elements of the array: the operand's blocks have a border (halo)."""
        return bool(self.halo)

    def holds(self, access: Access) -> bool:
        """True if a block of this operand contains the elements of an access of its task."""
        here = self.access
        return access.array == here.array if self.is_window else access == here

    def reach(self, loop: str) -> int:
        """Returns the width of the halo along a loop: elements of a block beyond one per iteration."""
        return dict(self.halo).get(loop, 0)

    def inside(self, shape: tuple[int, ...]) -> dict[str, tuple[int, int]]:
        """Returns, by loop of a window, the range of loop indices at which its first read is inside the array.

        If a guard excludes reads, the halo may extend beyond the ends of the array.
        """
        return {
            loop: (-axis.const, n - axis.const)
            for axis, n in zip(self.access.axes, shape, strict=True)
            if axis is not None
            for loop, _ in axis.terms
        }

    def leaves(self, loop: Loop, shape: tuple[int, ...]) -> bool:
        """True if the halo along a loop extends beyond an end of the array."""
        first, end = self.inside(shape)[loop.name]
        return first > 0 or loop.extent + self.reach(loop.name) > end


@dataclass(frozen=True)
class Prefetch:
    """A read of an input that may be prefetched: contiguous along loop `along`.

    Loop `ahead` steps from row to row.
    """

    task: int
    access: Access
    along: str
    ahead: str
    stride: int  # elements from one iteration of `ahead` to the next


@dataclass(frozen=True)
class Shift:
    """Loop shifting: two reductions share two loops if the consumer runs one iteration behind in loop `shared`.

    The producer reduces along loop `inside`, so its result is complete only after that loop.
    Without a shift, the consumer would run that loop a second time in the same iteration. `shared`
    and `inside`: pairs of loops (of producer, of consumer).
    """

    producer: int
    consumer: int
    shared: tuple[str, str]
    inside: tuple[str, str]
    name: str


@dataclass(frozen=True)
class Merge:
    """Two loops, of tasks `a` and `b` (a < b in program order), whose dims of equal level may merge into one loop.

    `before_finish`: both are reduction loops, and task `b` needs the results of `a` only in its
    finish, not in its terms.
    `rescales`: task `b` corrects its sums whenever the results of `a` change.
    """

    a: int
    b: int
    loop_a: str
    loop_b: str
    before_finish: bool = False
    rescales: bool = False


@dataclass(frozen=True)
class Rescaled:
    """A reduction that may run before running results in its terms are final.

    It corrects its sums when they change.
    `flows`: the running results, at most one per producer. `pairs`: for each flow, the reduction
    loops (of producer, of consumer), which must merge.
    """

    flows: tuple[Flow, ...]
    pairs: tuple[tuple[tuple[str, str], ...], ...]
    action: Rescaling

    @property
    def task(self) -> int:
        return self.flows[0].consumer

    @property
    def bases(self) -> tuple[int, ...]:
        """Tasks that compute the running results in its terms."""
        return tuple(f.producer for f in self.flows)


@dataclass(frozen=True)
class Backbone:
    """All objects of a problem that choices are about.

    `order_names[k]`: name of object k of the order algebra, which belongs to task `order_tasks[k]`.
    The objects of a component are consecutive: the outer and mid dims task by task, then the
    bodies.
    """

    problem: Problem
    components: tuple[range, ...]  # tasks that choices connect; runs of the program
    dependences: tuple[Dependence, ...]
    dims: tuple[Dim, ...]
    flows: tuple[Flow, ...]
    carried: tuple[Flow, ...]  # from a step of a repeat to a later one
    rereads: tuple[Flow, ...]  # inputs that an earlier task has read
    operands: tuple[Operand, ...]
    prefetches: tuple[Prefetch, ...]
    merges: tuple[Merge, ...]
    rescaled: tuple[Rescaled, ...]
    shifts: tuple[Shift, ...]  # at most one a consumer
    order_names: tuple[str, ...]
    order_tasks: tuple[int, ...]
    body_ids: tuple[int, ...]  # order object of each task's body

    by_loop: dict[tuple[int, str, int], Dim] = field(repr=False, compare=False)

    def dim(self, task: int, loop: str, level: int) -> Dim:
        return self.by_loop[task, loop, level]

    def dims_of(self, task: int) -> list[Dim]:
        return self._by_task[task]

    @cached_property
    def _by_task(self) -> list[list[Dim]]:
        found: list[list[Dim]] = [[] for _ in self.problem.tasks]
        for d in self.dims:
            found[d.task].append(d)
        return found

    @cached_property
    def neighbours(self) -> tuple[range, ...]:
        """For each task, the range of tasks with which it may share a launch, itself included."""
        widths = [(c, launch_width(self.problem.tasks[c.start : c.stop])) for c in self.components]
        return tuple(
            range(max(c.start, t - width + 1), min(c.stop, t + width))
            for c, width in widths
            for t in c
        )

    def may_share_launch(self, t: int, u: int) -> bool:
        return u in self.neighbours[t]

    def launch_pairs(self) -> Iterator[tuple[int, int]]:
        """Yields the pairs of tasks t < u that may share a launch."""
        return ((t, u) for t, near in enumerate(self.neighbours) for u in near if u > t)

    @cached_property
    def partners(self) -> dict[Dim, list[Dim]]:
        """For each dim, the dims of other tasks with which it may merge."""
        found: dict[Dim, list[Dim]] = {d: [] for d in self.dims}
        for merge in self.merges:
            for level in (OUTER, MID):
                d, e = (
                    self.dim(merge.a, merge.loop_a, level),
                    self.dim(merge.b, merge.loop_b, level),
                )
                found[d].append(e)
                found[e].append(d)
        return found

    @cached_property
    def alike(self) -> frozenset[tuple[int, int]]:
        """Pairs of tasks whose bodies are equal up to array names."""
        return alike_bodies(self.problem.tasks)

    @cached_property
    def near_flows(self) -> tuple[Flow, ...]:
        """Flows between tasks that may share a launch; their memory space is a choice.

        Other values are in memory.
        """
        return tuple(f for f in self.flows if self.may_share_launch(f.producer, f.consumer))

    @cached_property
    def far_flows(self) -> tuple[Flow, ...]:
        """Flows between tasks that cannot share a launch, or from one iteration of a repeat to a later one."""
        apart = (f for f in self.flows if not self.may_share_launch(f.producer, f.consumer))
        return (*apart, *self.carried)

    @cached_property
    def flows_into(self) -> Counter[tuple[int, str]]:
        """Number of producers from which a task reads an array, by (task, array)."""
        return Counter((f.consumer, f.array) for f in (*self.flows, *self.carried))


def launch_width(tasks: Sequence[Task]) -> int:
    """Returns the number of consecutive tasks that may share a launch, if `tasks` are a component."""
    n_objects = sum(1 + 2 * len(t.loops) for t in tasks)
    return max(LAUNCH_TASKS, len(tasks)) if n_objects <= LAUNCH_OBJECTS else LAUNCH_TASKS
