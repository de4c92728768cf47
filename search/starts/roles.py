"""Roles of loops in first candidates: threads, vectors, rows of a register tile, and the position in the loop nest.

Loops that may be fused are judged together, so that tasks in one loop agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from ...kernels.analysis.effects import task_reads, task_writes
from ...kernels.ir.access import flat_strides, index_loops
from ...space import choices as ch
from ...space.backbone import INNER, OUTER, Operand
from ...space.candidate import Space
from ...space.families.tiling import least_vector

TaskLoop = tuple[int, str]
_Score = Callable[[TaskLoop], tuple[float, ...] | None]


@dataclass(frozen=True)
class Roles:
    """Loops with a role, by task; a task may lack each role.

    `rank`: position in the loop nest, counted from outside.
    """

    parallel: dict[int, str]
    vector: dict[int, str]
    rows: dict[int, str]
    rank: dict[TaskLoop, int]


def find_roles(
    space: Space,
    *,
    merge: bool,
    columns: bool = False,
    sums_inside: bool = False,
    packed: bool = False,
) -> Roles:
    """Returns the roles of all loops; with `merge`, loops that may be fused count as one.

    `columns`: threads prefer the vectorised loop, too. With `merge` or `sums_inside`, the reduction
    loops of products are innermost. If operand blocks are `packed`, the operands' layout in memory
    does not matter.
    """
    return _RoleFinder(space, merge, columns, merge or sums_inside, packed).roles()


def is_panel(o: Operand) -> bool:
    """True if products gain from packed blocks of an operand.

    Vectors and operands with neighbour reads are cached unpacked.
    """
    return len(o.loops) > 1 and not o.is_window


def sweeps(space: Space, roles: Roles) -> tuple[int, ...]:
    """Returns the pass of each task.

    A task that uses another's reduction over its outermost loop is in a later pass.
    """
    found: list[int] = []
    for t in range(len(space.problem.tasks)):
        sources = {f.producer for f in space.backbone.flows if f.consumer == t and not f.is_read}
        found.append(max((found[p] + _sums_outermost(space, roles, p) for p in sources), default=0))
    return tuple(found)


def _sums_outermost(space: Space, roles: Roles, t: int) -> bool:
    loops = space.problem.tasks[t].loops
    return bool(loops) and min(loops, key=lambda x: roles.rank[t, x.name]).is_reduction


class _RoleFinder:
    def __init__(
        self, space: Space, merge: bool, columns: bool, sums_inside: bool, packed: bool
    ) -> None:
        self.space, self.merge, self.columns = space, merge, columns
        self.sums_inside = sums_inside
        able = (o for o in space.variables.staged if packed and is_panel(o))
        self.packed = {(o.task, o.access) for o in able}
        self.tasks = space.problem.tasks
        self.loops = [(t, loop) for t, task in enumerate(self.tasks) for loop in task.loops]
        self.group: dict[TaskLoop, TaskLoop] = {(t, x.name): (t, x.name) for t, x in self.loops}
        for m in space.backbone.merges if merge else ():
            self._join((m.a, m.loop_a), (m.b, m.loop_b))

    def _join(self, a: TaskLoop, b: TaskLoop) -> None:
        low, high = sorted((self.group[a], self.group[b]))
        for key, leader in self.group.items():
            if leader == high:
                self.group[key] = low

    def members(self, key: TaskLoop) -> list[TaskLoop]:
        return [k for k, leader in self.group.items() if leader == self.group[key]]

    def roles(self) -> Roles:
        vector = self._best(self._vector_score)
        parallel = self._best(lambda key: self._parallel_score(key, vector))
        rows = self._best(lambda key: self._rows_score(key, vector, parallel))
        rank = {}
        for t in range(len(self.tasks)):
            names = [loop.name for loop in self.tasks[t].loops]
            placed = sorted(names, key=lambda n: self._place(t, n, vector, parallel))
            rank.update({(t, name): k for k, name in enumerate(placed)})
        return Roles(parallel, vector, rows, rank)

    def _best(self, score: _Score) -> dict[int, str]:
        """Returns, by task, the loop with the highest score; the first one among ties."""
        best = {}
        for t, task in enumerate(self.tasks):
            scored = [(score((t, loop.name)), loop.name) for loop in task.loops]
            able = [(s, name) for s, name in scored if s is not None]
            if able:
                best[t] = max(able, key=lambda pair: pair[0])[1]
        return best

    def _may(self, key: TaskLoop, level: int, kind: int) -> bool:
        d = self.space.backbone.dim(*key, level)
        return bool(int(self.space.model.initial[self.space.variables.kind[d]]) >> kind & 1)

    def _holds_a_vector(self, key: TaskLoop) -> bool:
        task = self.tasks[key[0]]
        (loop,) = (x for x in task.loops if x.name == key[1])
        return loop.extent >= least_vector(task, loop, self.space.target)

    def _loop(self, key: TaskLoop) -> tuple[bool, int, int]:
        """Returns (True for a reduction, extent, position in the source) of a loop."""
        names = [loop.name for loop in self.tasks[key[0]].loops]
        loop = self.tasks[key[0]].loops[names.index(key[1])]
        return loop.is_reduction, loop.extent, names.index(key[1])

    def _vector_score(self, key: TaskLoop) -> tuple[float, ...] | None:
        """Returns the number of contiguous accesses minus strided ones along a loop, over all tasks that share it."""
        if not self._may(key, INNER, ch.VECTOR) or not self._holds_a_vector(key):
            return None
        if self._loop(key)[0] and any(t == key[0] for t, _ in self.packed):
            return None  # packed blocks lie as vectors of results want them: no sum is taken out of lanes
        if self.tasks[key[0]].body is not None and self._contiguity(key) <= 0:
            return None  # lanes that gather all they read are left to the search
        return (sum(self._contiguity(k) for k in self.members(key)), self._loop(key)[2])

    def _contiguity(self, key: TaskLoop) -> float:
        """Returns a task's contiguous accesses along a loop minus strided ones, each as often as it is made.

        Results of reductions are stored once for all iterations of their loops.
        """
        task = self.tasks[key[0]]
        results = prod(x.extent for x in task.loops if not x.is_reduction)
        made = prod(x.extent for x in task.loops)
        reads = [a for a, _ in task_reads(task) if (key[0], a) not in self.packed]
        score = 0.0
        for access, n in (*((a, made) for a in reads), *((a, results) for a in task_writes(task))):
            array = self.space.problem.array(access.array)
            stride = flat_strides(access, array).get(key[1], 0)
            score += n * (0 if stride == 0 else 1 if stride == 1 else -1)
        return score

    def _parallel_score(self, key: TaskLoop, vector: dict[int, str]) -> tuple[float, ...] | None:
        members = self.members(key)
        if not all(self._may(k, OUTER, ch.PARALLEL) for k in members):
            return None
        _, _, place = self._loop(key)
        independent = sum(not self._loop(k)[0] for k in members)
        is_vector = vector.get(key[0]) == key[1]
        if self.columns:
            return (is_vector, -place)
        if not self.merge:
            # A reduction shared out row by row beats walking down the columns of a matrix.
            return (-is_vector, independent, -place)
        return (len({t for t, _ in members}), independent, -is_vector, -place)

    def _rows_score(
        self, key: TaskLoop, vector: dict[int, str], parallel: dict[int, str]
    ) -> tuple[float, ...] | None:
        is_reduction, extent, place = self._loop(key)
        if vector.get(key[0]) == key[1] or extent == 1 or not self._may(key, INNER, ch.UNROLL):
            return None
        return (self._reuses(key), parallel.get(key[0]) == key[1], not is_reduction, -place)

    def _reuses(self, key: TaskLoop) -> bool:
        """True if a task reads the same values in several iterations of a loop, so that register copies load them once."""
        accesses = [a for a, in_finish in task_reads(self.tasks[key[0]]) if not in_finish]
        return any(index_loops(a) and key[1] not in index_loops(a) for a in accesses)

    def _place(
        self, t: int, name: str, vector: dict[int, str], parallel: dict[int, str]
    ) -> tuple[int, ...]:
        is_reduction, _, place = self._loop((t, name))
        if parallel.get(t) == name:
            return (0, 0)
        # Of a product of three loops or more, the tile of results stays in registers.
        if self.sums_inside and is_reduction and len(self.tasks[t].loops) >= 3:
            return (3, place)
        return (2 if vector.get(t) == name else 1, self._earliest((t, name), place))

    def _earliest(self, key: TaskLoop, place: int) -> int:
        return min([place, *(self._loop(k)[2] for k in self.members(key))])
