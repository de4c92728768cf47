"""Loads and stores that a candidate's loop IR asks for, on a machine that is better than any: the judge of search/bound/ports.py.

The loops of complete candidates are run, iteration by iteration. Loops of few iterations are unrolled completely, up to a number of
copies that no compiler makes. All that one iteration of the innermost remaining loop touches stays in registers, of which there are
enough, until the next iteration of it has begun; but of vectors of sums only as many as the target has registers. A packed block is
loaded and stored in whole vectors. In plain Python; it knows nothing of the bound, and takes elements of reads from
testing/meaning.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from ..codegen.loops.ir import (
    Alone,
    Barrier,
    Late,
    Launch,
    Loop,
    Node,
    OpenBlock,
    PackBlock,
    TileBody,
)
from ..codegen.passes.pipeline import launches_of
from ..codegen.plan.candidates import plan_of
from ..codegen.plan.plan import LoopPlan, Plan, TaskPlan
from ..kernels.ir.kernel import Binary
from ..kernels.ir.task import Task
from ..kernels.ir.walk import walk
from ..space.backbone import MID, OUTER
from ..space.candidate import Candidate
from ..space.families.tiling import vector_width
from ..space.targets.target import Target
from . import meaning

# Whole iterations of a loop, of all tasks in it few operations, which compilers may replace by copies, whatever the text says.
_UNROLLED, _FEW = 2, 4
_CLOCK = 1.3  # by how much a core's clock may be higher without vectors
_COPIES = 1024  # operations of all loops that are unrolled, one inside the other

# A vector, or an element: the place, and the indices of its first lane.
Piece = tuple[str, tuple[int, ...]]
Starts = dict[tuple[int, str, int], int]


@dataclass
class PortCounts:
    """Loads, stores, executions of register tiles, and folds: vectors of sums whose lanes become one number.

    `added_ns`: by which partial register tiles of tasks in vectors take longer than their elements
    in whole vectors, if a multiplication takes 1 ns an element there, or two operations. `is_whole`
    is false where nodes were met that are not counted.
    """

    loads: int = 0
    stores: int = 0
    tiles: int = 0
    folds: int = 0
    added_ns: float = 0.0
    is_whole: bool = True


def count_ports(candidate: Candidate) -> PortCounts:
    """Returns what all launches of a complete candidate of structured tasks load and store."""
    plan = plan_of(candidate)
    lanes = _lanes(plan, candidate.space.target)
    total = PortCounts()
    for launch in launches_of(plan, candidate.space.target):
        machine = _Machine(plan, launch, lanes, total, candidate.space.target)
        machine.run(launch.nodes, {})
        machine.end()
    return total


def _lanes(plan: Plan, target: Target) -> list[int]:
    """Returns the number of elements in a vector of each task; of short rows they are fewer than a register holds."""
    every = [target.lanes(p.task.lane_bytes) for p in plan.tasks]
    return [
        n if p.vector is None else vector_width(p.vector.inner, n)
        for p, n in zip(plan.tasks, every, strict=True)
    ]


def count_barriers(candidate: Candidate) -> int:
    """Returns how often the team of each launch of a complete candidate synchronises in its loops."""
    plan = plan_of(candidate)
    lanes = _lanes(plan, candidate.space.target)
    total = 0
    for launch in launches_of(plan, candidate.space.target):
        machine = _Machine(plan, launch, lanes, PortCounts(), candidate.space.target)
        total += machine.barriers(launch.nodes, {})
    return total


@dataclass
class _Machine:
    plan: Plan
    launch: Launch
    lanes: list[int]  # of each task
    counts: PortCounts
    target: Target
    # By the nodes of an iteration: what is in registers, and of it the sums.
    held: dict[int, set[Piece]] = field(default_factory=dict)
    sums: dict[int, set[Piece]] = field(default_factory=dict)
    known: set[Piece] = field(default_factory=set)  # sums that memory has

    def run(self, nodes: Sequence[Node], at: Starts) -> None:
        """Runs nodes in order: each run of nodes without a loop that remains is one iteration."""
        flat: list[Node] = []
        for node in nodes:
            if isinstance(node, Alone):
                self.run(node.children, at)
            elif isinstance(node, Late):
                self.counts.is_whole = False
            elif isinstance(node, Loop) and self.remains(node, at):
                self.iteration(flat, at)
                flat = []
                for inside in self.starts(node, at):
                    self.run(node.children, inside)
            else:
                flat.append(node)
        self.iteration(flat, at)

    def barriers(self, nodes: Sequence[Node], at: Starts) -> int:
        """Returns the number of barriers in nodes and in all iterations of their loops."""
        total = 0
        for node in nodes:
            if isinstance(node, Barrier):
                total += 1
            elif isinstance(node, Loop) and _has_barrier(node):
                total += sum(self.barriers(node.children, x) for x in self.starts(node, at))
            elif isinstance(node, Alone | Late):
                total += self.barriers(node.children, at)
        return total

    def remains(self, node: Loop, at: Starts) -> bool:
        """True if a loop that begins here, or one inside of it, has too many iterations to be unrolled."""
        inside = (x for x in node.children if isinstance(x, Loop))
        lo, hi = self.ends(node, at)
        most = _UNROLLED if self.tiles_of(node) <= _FEW else 1
        is_long = (hi - lo) // node.step > most or self.copies(node) > _COPIES
        return is_long or any(self.remains(x, at) for x in inside)

    def trips(self, node: Loop) -> int:
        p = self.plan.tasks[node.members[0].task].loop(node.members[0].loop)
        return -(-node.extent // node.step) if node.level == OUTER else p.mid

    def copies(self, node: Node) -> int:
        """Operations of a node, written out."""
        match node:
            case Loop():
                return self.trips(node) * sum(map(self.copies, node.children))
            case Alone():
                return sum(map(self.copies, node.children))
            case TileBody(t):
                task = self.plan.tasks[t]
                tile = prod(p.inner for p in task.loops)
                return tile // self.lanes[t] if task.vector is not None else tile
        return 0

    def tiles_of(self, node: Node) -> int:
        """The operations of one register tile of each task in a node."""
        if isinstance(node, Loop | Alone):
            return sum(map(self.tiles_of, node.children))
        return self.copies(node)

    def starts(self, node: Loop, at: Starts) -> Iterator[Starts]:
        """Yields the first indices of all loops, for each iteration of a loop."""
        for x in range(*self.ends(node, at), node.step):
            yield {**at, **{(m.task, m.loop, m.level): x for m in node.members}}

    def ends(self, node: Loop, at: Starts) -> tuple[int, int]:
        """Returns the first index of a loop, and the one behind its last."""
        first = node.members[0]
        if node.level == OUTER:
            return 0, node.extent
        lo = at.get((first.task, first.loop, OUTER), 0)
        return lo, min(node.extent, lo + self.plan.tasks[first.task].loop(first.loop).tile)

    def iteration(self, nodes: Sequence[Node], at: Starts) -> None:
        """Counts what nodes touch whose loops are unrolled."""
        read: set[Piece] = set()
        summed: set[Piece] = set()
        made: set[Piece] = set()
        self.pack(nodes, at)
        for task, where in self.bodies(nodes, at):
            self.counts.tiles += 1
            self.counts.added_ns += self.added_ns(task, where)
            self.touch(task, where, read, summed, made)
        if read or summed or made:
            self.unit(id(nodes[0]), read, summed, made)

    def added_ns(self, task: TaskPlan, at: Starts) -> float:
        """Returns the ns by which the end of a loop makes a register tile longer than its elements in vectors."""
        if task.vector is None:
            return 0.0
        padded = self.padded(task)
        lengths = {p.loop.name: len(self.tile(task, p, at)) for p in task.loops}
        n = prod(lengths.values())
        if not self.in_vectors(task, at):
            slower = self.target.scalar_slowdown(task.task.dtype.size_bytes) / _CLOCK
            return n * _element_ns(task.task) * max(0.0, slower - 1)
        whole = prod(p.inner if p.loop.name in padded else lengths[p.loop.name] for p in task.loops)
        return (whole - n) * _element_ns(task.task)

    def padded(self, task: TaskPlan) -> frozenset[str]:
        """Returns the loops of which a partial register tile of a task is computed whole."""
        sums = self.launch.accumulators.get(task.index)
        return sums.padded if sums is not None else frozenset()

    def in_vectors(self, task: TaskPlan, at: Starts) -> bool:
        """True if a register tile is computed in vectors: no loop's end cuts it along them."""
        p = task.vector
        if p is None:
            return False
        return len(self.tile(task, p, at)) == p.inner or p.loop.name in self.padded(task)

    def bodies(self, nodes: Sequence[Node], at: Starts) -> Iterator[tuple[TaskPlan, Starts]]:
        for node in nodes:
            match node:
                case TileBody(t):
                    yield self.plan.tasks[t], at
                case Alone(children=children):
                    yield from self.bodies(children, at)
                case Loop():
                    for inside in self.starts(node, at):
                        yield from self.bodies(node.children, inside)

    def pack(self, nodes: Sequence[Node], at: Starts) -> None:
        """Counts the blocks of operands that nodes pack, each where it is packed or first used."""
        for node in nodes:
            match node:
                case PackBlock(t, operand) | OpenBlock(t, operand):
                    plans = [self.plan.tasks[t].loop(name) for name in operand.loops]
                    starts = [at.get((t, p.loop.name, OUTER), 0) for p in plans]
                    n = prod(
                        min(p.tile, p.loop.extent - x) for p, x in zip(plans, starts, strict=True)
                    )
                    size = self.plan.problem.array(operand.access.array).dtype.size_bytes
                    vectors = -(-n * size // self.target.vector_bytes)
                    self.counts.loads += vectors
                    self.counts.stores += vectors
                case Alone(children=children):
                    self.pack(children, at)
                case Loop():
                    for inside in self.starts(node, at):
                        self.pack(node.children, inside)

    def unit(self, at: int, read: set[Piece], summed: set[Piece], made: set[Piece]) -> None:
        """Loads what registers do not hold; stores what is made, and sums that leave them."""
        held, sums = self.held.get(at, set()), self.sums.get(at, set())
        self.counts.loads += len(read - held) + len((summed - sums) & self.known)
        spilled = max(0, sum(map(self.is_vector, sums & summed)) - self.target.vector_registers)
        self.counts.loads += spilled
        self.counts.stores += spilled
        left = sums - summed
        self.counts.stores += len(left) + len(made)
        self.counts.folds += sum(map(self.is_folded, left))
        self.known |= left
        self.held[at], self.sums[at] = read | made | left, summed

    def is_vector(self, sums: Piece) -> bool:
        """True if a piece of sums is a vector."""
        return self.plan.tasks[int(sums[0].split()[-1])].vector is not None

    def is_folded(self, sums: Piece) -> bool:
        """True if a piece of sums is a vector whose lanes belong to one result."""
        vector = self.plan.tasks[int(sums[0].split()[-1])].vector
        return vector is not None and vector.loop.is_reduction

    def end(self) -> None:
        """Stores the last sums."""
        for sums in self.sums.values():
            self.counts.stores += len(sums)
            self.counts.folds += sum(map(self.is_folded, sums))

    def touch(
        self,
        task: TaskPlan,
        at: Starts,
        read: set[Piece],
        summed: set[Piece],
        made: set[Piece],
    ) -> None:
        """Adds what one register tile of a task touches."""
        t, is_sum = task.index, task.task.is_reduction
        assert task.task.value is not None
        loads = meaning.loads(task.task.value)
        in_registers = {f.array for p in self.plan.tasks for f in p.registers if f.consumer == t}
        loads = [x for x in loads if x.array not in in_registers]
        vector = task.vector if self.in_vectors(task, at) else None
        for point in product(*(self.tile(task, p, at) for p in task.loops)):
            index = dict(zip((p.loop.name for p in task.loops), point, strict=True))
            first = dict(index)
            if vector is not None:
                name, n = vector.loop.name, min(vector.inner, self.lanes[t])
                start = self.start(task, vector, at)
                first[name] = start + (index[name] - start) // n * n
            for load in loads:
                read.add(
                    self.piece(
                        task, load.array, meaning.read(load, index)[1], meaning.read(load, first)[1]
                    )
                )
            place = meaning.written(task.task, index)[1]
            here = meaning.written(task.task, first)[1]
            if is_sum:
                summed.add(self.piece(task, f"sums of {t}", place, here))
            elif task.is_stored:
                made.add(self.piece(task, task.task.target.array, place, here))

    def piece(
        self, task: TaskPlan, array: str, place: tuple[int, ...], first: tuple[int, ...]
    ) -> Piece:
        """Returns the vector with an element, where its lanes lie side by side; else the element."""
        copied = any(o.access.array == array for o in task.copies)
        beside = place[:-1] == first[:-1] and 0 <= place[-1] - first[-1] < self.lanes[task.index]
        return array, first if copied or beside else place

    def start(self, task: TaskPlan, p: LoopPlan, at: Starts) -> int:
        level = MID if p.has_mid_loop else OUTER
        return at.get((task.index, p.loop.name, level), 0)

    def tile(self, task: TaskPlan, p: LoopPlan, at: Starts) -> range:
        """Iterations of a loop in a register tile."""
        start = self.start(task, p, at)
        end = min(start + p.inner, p.loop.extent)
        return range(start, min(end, at.get((task.index, p.loop.name, OUTER), 0) + p.tile))


def _element_ns(task: Task) -> float:
    """Returns the ns of all operations of one iteration in vectors: one a multiplication, half a one any other."""
    assert task.value is not None
    made = [x for x in walk(task.value) if isinstance(x, Binary)]
    return max(sum(x.op == "mul" for x in made), (len(made) + task.is_reduction) / 2)


def _has_barrier(node: Node) -> bool:
    inside = node.children if isinstance(node, Loop | Alone | Late) else ()
    return isinstance(node, Barrier) or any(map(_has_barrier, inside))
