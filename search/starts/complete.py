"""First candidates: the default implementation of each task by itself, and completions of sketches with fused tasks.

Guided completion makes a candidate from a `Sketch`, a partial description of an implementation: a
`preference` lists the preferred values of every choice, and propagation excludes the values that
are impossible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ...kernels.analysis.domain_bounds import cuts_of
from ...kernels.analysis.effects import task_reads
from ...kernels.ir.access import index_loops
from ...kernels.ir.on_trees import TileSite
from ...space import choices as ch
from ...space.backbone import INNER, MID, OUTER, Dim, Merge, Operand
from ...space.candidate import Candidate, Space
from ...space.draft import AS_IT_IS
from ...space.families.batch_layout import AS_STORED, INTERLEAVED
from ...space.families.block_order import BLOCK_ORDER
from ...space.families.compaction import BLOCK_SCAN, SERIAL
from ...space.families.fragments import ELEMENTS, IN_VECTORS
from ...space.families.grid_stride import BLOCKS_A_CORE, GRID_STRIDE
from ...space.families.lane_parts import FRONT, WHOLE_BODY
from ...space.families.local_arrays import IN_REGISTERS, ON_STACK
from ...space.families.materialisation import RECOMPUTED, STORED
from ...space.families.prefetch_distance import AHEAD_NONE, AHEAD_TWO, blocks_in
from ...space.families.register_stages import REGISTER_STAGES
from ...space.families.rescaling import RESCALED, WAITS
from ...space.families.row_lengths import UNSORTED
from ...space.families.row_stores import BY_ELEMENT, IN_ROWS
from ...space.families.scatter_colours import GENERATE, IF_CHANGED, REUSE
from ...space.families.scatter_sorts import SORT_ANEW, SORT_IF_CHANGED
from ...space.families.settling import ALL_BLOCKS, ONE_THREAD
from ...space.families.team import BLOCKS, WHOLE_GRID
from ...space.families.tiling import widest_vector
from ...space.families.warp_tile import LINEAR, WARP_TILE
from ...space.targets.gpu_facts import row_order
from ..tree.ordering import open_in_order
from .profitability import what_pays
from .proposals import default_sketch, greedy_sketch, has_gaps, sketches
from .roles import Roles, find_roles, is_panel, sweeps
from .sketches import Along, Axis, Sketch, Sums, ThreadBlock

__all__ = [
    "NO_VALUE",
    "complete_cpsat",
    "complete_sketch",
    "default_preference",
    "first_candidates",
    "greedy_preference",
    "preference",
    "sketched_candidates",
    "solved_candidates",
]

_OVER_BLOCKS = {Sums.ATOMIC: ch.ATOMIC, Sums.LAST_BLOCK: ch.LAST_BLOCK}

Preference = npt.NDArray[np.uint8]

NO_VALUE = 255  # fills a preference: matches no value
MAX_BACKTRACKS = 400
MAX_CPSAT_OBJECTS = 30  # a model with more order objects takes longer to build than it is worth
CPSAT_SECONDS = 2.0


def default_preference(space: Space) -> Preference:
    """Returns the preferred values of the baseline sketch: every task by itself."""
    return preference(space, default_sketch(space))


def greedy_preference(space: Space) -> Preference:
    """Returns the preferred values of the greedy sketch: as much fusion as is legal."""
    return preference(space, greedy_sketch(space))


def first_candidates(
    space: Space, *, limit: int = 24, cpsat_seconds: float = CPSAT_SECONDS
) -> list[tuple[str, Candidate]]:
    """Returns (text of its sketch, candidate) for the first complete candidates, ("default", ...) first.

    [] for an empty space.
    """
    found = sketched_candidates(space, limit=limit)
    solved = solved_candidates(space, found, limit=limit, seconds=cpsat_seconds)
    default = default_sketch(space)
    named = [("default" if sketch == default else str(sketch), made) for sketch, made in found]
    return [*named, *(("cpsat", made) for made in solved)]


def sketched_candidates(space: Space, *, limit: int = 24) -> list[tuple[Sketch, Candidate]]:
    """Returns (sketch, candidate) for distinct completions of sketches, the default's first.

    Of sketches with equal candidates the first counts. Each candidate takes milliseconds, so that
    compilers may start early.
    """
    root = space.root()
    if not isinstance(root, Candidate):
        return []
    found: list[tuple[Sketch, Candidate]] = []
    keys: set[bytes] = set()
    for sketch in dict.fromkeys((default_sketch(space), *sketches(space))):
        if len(found) == limit:
            break
        made = complete_sketch(root, sketch)
        if made is not None and made.key not in keys:
            keys.add(made.key)
            found.append((sketch, made))
    return found


def solved_candidates(
    space: Space,
    found: Sequence[tuple[Sketch, Candidate]],
    *,
    limit: int = 24,
    seconds: float = CPSAT_SECONDS,
) -> Iterator[Candidate]:
    """Yields a completion found by CP-SAT, in a small space in which sketches gave fewer than `limit` candidates.

    OR-tools are imported only here, which takes a second.
    """
    root = space.root()
    is_small = len(space.backbone.order_names) <= MAX_CPSAT_OBJECTS
    if not isinstance(root, Candidate) or len(found) >= limit or not is_small:
        return
    made = complete_cpsat(root, greedy_sketch(space), seconds)
    if made is not None and made.key not in {c.key for _, c in found}:
        yield made


def complete_sketch(root: Candidate, sketch: Sketch) -> Candidate | None:
    """Returns the completion of `root` that is closest to a sketch; None if guided completion gives up."""
    space = root.space
    wanted = _Wanted(space, sketch)
    made = root.complete(wanted.table, wanted.first_choices(), MAX_BACKTRACKS)
    return made if isinstance(made, Candidate) else None


def complete_cpsat(root: Candidate, sketch: Sketch, seconds: float) -> Candidate | None:
    """Returns the completion with the most preferred values that CP-SAT finds within `seconds`."""
    space = root.space
    wanted = preference(space, sketch)
    weights = {}
    for var in map(int, root.open_choices()):
        for value in root.values(var):
            ranks = np.flatnonzero(wanted[var] == value)
            weights[var, value] = float(ranks[0] if len(ranks) else wanted.shape[1])
    from ...space.engine.cpsat import complete  # imported here, since OR-tools are slow to load

    domains = complete(space.model, root.domains, weights, seconds)
    made = space.candidate(domains) if domains is not None else None
    return made if isinstance(made, Candidate) and made.is_complete else None


# --- from a sketch to values -------------------------------------------------------------------


def preference(space: Space, sketch: Sketch) -> Preference:
    """Returns [n_choices, 8]: values of each choice by preference, padded with NO_VALUE."""
    return _Wanted(space, sketch).table


class _Wanted:
    def __init__(self, space: Space, sketch: Sketch) -> None:
        self.space, self.sketch, self.v = space, sketch, space.variables
        self.fusion, self.tile, self.packing = sketch.fusion, sketch.tile, sketch.packing
        self.threads = sketch.threads if isinstance(sketch.threads, Along) else Along()
        self.block = sketch.threads if isinstance(sketch.threads, ThreadBlock) else ThreadBlock()
        self.is_in_blocks = isinstance(sketch.threads, ThreadBlock)
        self.roles: Roles = find_roles(
            space,
            merge=self.fusion.loops and not self.fusion.in_sweeps,
            sums_inside=self.fusion.sums_inside,
            columns=self.threads.axis is Axis.CONTIGUOUS,
            packed=self.packing is not None and self.packing.every,
        )
        self.sweeps = sweeps(space, self.roles)
        are_merged = self.fusion.loops
        self.paying = what_pays(space, are_merged=are_merged) if self.threads.where_pays else None
        self.by_blocks = frozenset(
            key[0]
            for key, var in self.v.scatter.items()
            if self.scatter(key) in ch.BY_BLOCKS
            and int(space.model.initial[var]) >> self.scatter(key) & 1
        )
        """Tasks whose iterations run in blocks of a scatter, in a loop of their own."""
        self.apart = [
            m
            for m in space.backbone.merges
            if (m.before_finish or m.rescales) and not self.are_together(m)
        ]
        self.table: Preference = np.full((space.n_choices, 8), NO_VALUE, np.uint8)
        self.orders()
        self.launches()
        self.kinds_and_sizes()
        self.thread_levels()
        self.values()

    def want(self, var: int, *values: int) -> None:
        self.table[var, : len(values)] = values

    def first_choices(self) -> npt.NDArray[np.int32]:
        """Order of the first decisions: launches, then loop fusions, outermost first.

        Any other order could forbid fusions.
        Tasks with equal bodies are fused before others: joined they have most in common, and
        another task between them would separate them.
        """
        b, model = self.space.backbone, self.space.model
        outer = []
        for m in b.merges:
            if not self.may_merge(m.a, m.b) or m in self.apart:
                continue
            place = self.roles.rank[m.a, m.loop_a] + self.roles.rank[m.b, m.loop_b]
            x, y = b.dim(m.a, m.loop_a, OUTER).order_id, b.dim(m.b, m.loop_b, OUTER).order_id
            is_unlike = (m.a, m.b) not in b.alike
            outer.append((place, is_unlike, m.b - m.a, model.order(x, y)))
        merges = [var for *_, var in sorted(outer)]
        # Loops that a third task shares with both would be one otherwise.
        rescaling = self.v.of_tasks["rescaling"].values()
        teams = self.v.of_tasks["team"].values()
        first = np.array([*self.v.fused.values(), *teams, *rescaling, *merges], np.int32)
        return np.concatenate([first, open_in_order(self.space)])

    def launches(self) -> None:
        first, second = ch.SEPARATE, ch.SAME_LAUNCH
        if self.fusion.launch:
            first, second = second, first
        for var in self.v.fused.values():
            self.want(var, first, second)

    def orders(self) -> None:
        """Sets the preferred loop order: loops of a task by their rank, outer dims around mid dims, tasks in program order."""
        b, apart = self.space.backbone, (ch.BEFORE, ch.OUTSIDE, ch.INSIDE, ch.AFTER)
        together = (ch.MERGED, *apart)
        task = np.array(b.order_tasks, np.intp)
        x, y = np.array(list(self.space.model.rows.pairs()), np.intp).reshape(-1, 2).T
        t, u = task[x], task[y]
        n_tasks = len(self.space.problem.tasks)
        allowed = [[self.may_merge(t, u) for u in range(n_tasks)] for t in range(n_tasks)]
        merges = np.array(allowed, bool).reshape(n_tasks, n_tasks)[t, u]
        merges &= ~self.in_turn()[x, y]
        for is_first, turned in ((t < u, tuple), (t > u, _inverse)):
            self.table[: len(x)][is_first & merges, : len(together)] = turned(together)
            self.table[: len(x)][is_first & ~merges, : len(apart)] = turned(apart)
        place = self.places()
        is_nest = (t == u) & (x != y) & (place[x] >= 0) & (place[y] >= 0)
        is_inside = place[x] > place[y]
        self.table[: len(x)][is_nest & is_inside, :2] = ch.INSIDE, ch.OUTSIDE
        self.table[: len(x)][is_nest & ~is_inside, :2] = ch.OUTSIDE, ch.INSIDE

    def in_turn(self) -> npt.NDArray[np.bool_]:
        """Returns [n_objects, n_objects]: true for dims of two tasks that run one after the other, although they may merge."""
        b = self.space.backbone
        pairs = [(m, level) for m in self.apart for level in (OUTER, MID)]
        # A tile of the maximum, then one of the sum: corrections are as many as tiles.
        pairs += [(m, MID) for m in b.merges if m.rescales]
        found = np.zeros((len(b.order_names), len(b.order_names)), bool)
        for m, level in pairs:
            x, y = b.dim(m.a, m.loop_a, level).order_id, b.dim(m.b, m.loop_b, level).order_id
            found[x, y] = found[y, x] = True
        return found

    def places(self) -> npt.NDArray[np.intp]:
        """Returns [n_objects]: the rank of each dim as one number; -1 for bodies."""
        b = self.space.backbone
        ranks = {d.order_id: self.rank(d) for d in b.dims if d.level != INNER}
        number = {rank: k for k, rank in enumerate(sorted(set(ranks.values())))}
        return np.array([number[ranks[x]] if x in ranks else -1 for x in range(len(b.order_names))])

    def are_together(self, m: Merge) -> bool:
        """True if the sketch wants the loops of `m`, of dependent reductions, to merge.

        All result loops are then around the shared loop. That excludes blocks of an operand and
        panels, and no threads divide the loop.
        """
        if m.rescales:
            return self.fusion.rescaled
        tasks, is_along = self.space.problem.tasks, self.threads.axis is Axis.CONTIGUOUS
        is_in_rows = not (is_along or self.tile.blocks or self.tile.block > 1)
        has_rows = all(not all(x.is_reduction for x in tasks[t].loops) for t in (m.a, m.b))
        return self.fusion.sums and is_in_rows and has_rows

    def may_merge(self, t: int, u: int) -> bool:
        """True if the sketch allows the loops of tasks `t` and `u` to merge."""
        in_one_pass = not self.fusion.in_sweeps or self.sweeps[t] == self.sweeps[u]
        return self.fusion.loops and in_one_pass and self.by_blocks.isdisjoint((t, u))

    def scatter(self, key: tuple[int, str]) -> int:
        """Returns the wanted method (value of `scatter`) for updates of an array by a task."""
        if self.paying is not None:
            return self.paying.scatters[key]
        return ch.BY_ATOMICS if self.is_in_blocks else self.threads.scatter

    def rank(self, d: Dim) -> tuple[int, int]:
        """Returns a dim's position in the loop nest: a smaller rank is further out."""
        loop = self.roles.rank[d.task, d.loop.name]
        if self.is_in_blocks:  # result loops are around reduction loops
            return d.level, loop + len(self.roles.rank) * d.loop.is_reduction
        # A panel keeps its outer dim outside and walks its mid dim innermost.
        is_panel = self.tile.panel > 1 and self.roles.vector.get(d.task) == d.loop.name
        if d.level == OUTER and is_panel and not (self.fusion.rescaled and d.loop.is_reduction):
            loop = -1 if self.roles.parallel.get(d.task) != d.loop.name else loop
        if d.level == MID and self.tile.blocks and self.roles.vector.get(d.task) == d.loop.name:
            loop = -1  # the rows of a tile pass by each panel
        if d.level == OUTER and self.packing is not None and self.packing.every:
            is_vector = self.roles.vector.get(d.task) == d.loop.name
            if self.packing.depth_first:
                loop = -2 if d.loop.is_reduction else -1 if is_vector else loop
            elif is_vector:
                loop = len(self.roles.rank)
        return d.level, loop

    def kinds_and_sizes(self) -> None:
        for d, var in self.v.kind.items():
            if d.level == OUTER:
                self.outer(d, var)
            elif d.level == MID:
                self.mid(d, var)
            else:
                self.inner(d, var)

    def outer(self, d: Dim, var: int) -> None:
        if self.is_in_blocks:
            task = self.space.problem.tasks[d.task]
            is_whole = all(loop.is_reduction or loop.extent == 1 for loop in task.loops)
            is_block = not d.loop.is_reduction or is_whole or self.block.sums is not Sums.WHOLE
            self.want(var, *((ch.PARALLEL, ch.LOOP) if is_block else (ch.LOOP, ch.PARALLEL)))
            return
        is_parallel = self.threads.team and self.roles.parallel.get(d.task) == d.loop.name
        if self.paying is not None:
            is_parallel = is_parallel and d.task in self.paying.tasks
        elif any(t == d.task for t, _ in self.v.scatter) and self.threads.scatter == ch.SERIAL:
            is_parallel = False
        self.want(var, *((ch.PARALLEL, ch.LOOP) if is_parallel else (ch.LOOP, ch.PARALLEL)))

    def mid(self, d: Dim, var: int) -> None:
        if self.is_in_blocks:
            self.mid_of_block(d, var)
            return
        n = self.tile_size(d) if self.tile.blocks else self.tile.block
        is_depth_first = self.packing is not None and self.packing.depth_first
        is_rows = self.roles.rows.get(d.task) == d.loop.name
        if self.tile.panel > 1 and self.roles.vector.get(d.task) == d.loop.name:
            n = self.tile.panel
        # The rows of a tile are chosen for a thread's part of them, which may be a little more than half.
        if not (self.tile.blocks and (is_depth_first or is_rows)):
            n = min(n, max(1, d.loop.extent // 2))
        self.want(var, *((ch.LOOP, ch.ABSENT) if n > 1 else (ch.ABSENT, ch.LOOP)))
        self.size(d, n // self.inner_size(d))

    def tile_size(self, d: Dim) -> int:
        """Returns the preferred number of iterations of a loop in a tile."""
        assert self.tile.blocks is not None
        rows, columns, depth = self.tile.blocks
        if self.roles.vector.get(d.task) == d.loop.name:
            return columns
        if self.roles.rows.get(d.task) == d.loop.name:
            return rows
        return depth if d.loop.is_reduction else 1

    def mid_of_block(self, d: Dim, var: int) -> None:
        """Prefers threads of a GPU block along two loops of each task; a reduction loop runs by tiles."""
        n, kind = 1, ch.THREAD
        if self.space.problem.tasks[d.task].body is not None:
            n = self.threads_of_body(d)
        elif self.roles.vector.get(d.task) == d.loop.name:
            n = self.block.contiguous
        elif self.roles.rows.get(d.task) == d.loop.name:
            n = self.block.rows
        elif d.loop.is_reduction:
            n, kind = self.tile.block // self.inner_size(d), ch.LOOP
        n = min(n, d.loop.extent)
        others = tuple(k for k in (ch.THREAD, ch.LOOP) if k != kind)
        self.want(var, *((kind, ch.ABSENT) if n > 1 else (ch.ABSENT, kind)), *others)
        self.size(d, n)

    def threads_of_body(self, d: Dim) -> int:
        """Returns the number of threads along a loop of a body: inner loops have as many as iterations, while there are."""
        left = self.block.contiguous * self.block.rows
        for loop in reversed(self.space.problem.tasks[d.task].loops):
            n = min(left, loop.extent)
            if loop == d.loop:
                break
            left //= n
        return n

    def thread_levels(self) -> None:
        """Prefers that neighbouring threads run along the contiguous loop, else along the last one."""
        for (d, _), var in self.v.thread_level.items():
            order = (ch.FASTER, ch.SLOWER)
            if self.roles.vector.get(d.task) != d.loop.name:
                order = (ch.SLOWER, ch.FASTER)
            self.want(var, *order, ch.NOT_THREADS)

    def inner(self, d: Dim, var: int) -> None:
        n = self.inner_size(d)
        if self.tile.ranges == ch.ALONG and any(t == d.task for t, _ in self.v.ranges):
            n = 1
        is_vector = self.roles.vector.get(d.task) == d.loop.name or self.is_in_lanes(d)
        if is_vector and n > 1:
            self.want(var, ch.VECTOR, ch.UNROLL, ch.ABSENT)
        elif n > 1:
            self.want(var, ch.UNROLL, ch.ABSENT, ch.VECTOR)
        else:
            self.want(var, ch.ABSENT, ch.UNROLL, ch.VECTOR)
        self.size(d, n)

    def is_in_lanes(self, d: Dim) -> bool:
        """True if the sketch vectorises the iterations of a body (SPMD)."""
        task = self.space.problem.tasks[d.task]
        is_last = task.body is not None and d.loop == task.loops[-1]
        shares = any(t == d.task for t, _ in self.v.scatter)
        return (shares or is_last) and not self.is_in_blocks and self.threads.lanes

    def inner_size(self, d: Dim) -> int:
        task = self.space.problem.tasks[d.task]
        if self.is_in_lanes(d):
            return int(self.space.target.lanes(task.lane_bytes))
        if self.roles.vector.get(d.task) == d.loop.name:
            if self.tile.vectors == 0:
                return 1
            lanes = widest_vector(d.loop.extent, int(self.space.target.lanes(task.lane_bytes)))
            return max(1, min(self.tile.vectors, d.loop.extent // lanes)) * lanes
        if self.roles.rows.get(d.task) == d.loop.name:
            return int(max(1, min(self.tile.rows, d.loop.extent)))
        along = next((x for x in task.loops if x.name == self.roles.vector.get(d.task)), None)
        if along is not None and along.is_reduction and not d.loop.is_reduction:
            return int(max(1, min(self.tile.columns, d.loop.extent)))
        return int(max(1, min(self.tile.depth, d.loop.extent))) if d.loop.is_reduction else 1

    def size(self, d: Dim, n: int) -> None:
        """Prefers the largest size of dim `d` up to `n`, then smaller ones."""
        part = self.space.backbone.dim(d.task, d.loop.name, d.level)
        universe = self.v.universe[part]
        fitting = [k for k, size in enumerate(universe) if size <= max(n, 1)]
        self.want(self.v.size[part], *reversed(fitting[-8:]))

    def values(self) -> None:
        """Sets the preferred memory spaces, kinds of stores and loads, guards, and prefetches."""
        sketch, launch = self.sketch, self.fusion.launch
        is_streamed = sketch.stores == ch.STREAM
        on_chip = (ch.REGISTER, ch.SHARED, ch.GLOBAL)
        for f, var in self.v.mem_space.items():
            near = sketch.reuse is not None if f.is_read else launch
            self.want(var, *(on_chip if near else on_chip[::-1]))
        for var in self.v.store.values():
            self.want(var, *((ch.ELIDED, ch.KEEP) if launch else (ch.KEEP, ch.ELIDED)))
        for var in self.v.cache.values():
            self.want(var, *_first_of(sketch.stores, ch.CACHED, ch.STREAM))
        for (t, array), var in self.v.load_cache.items():
            once = is_streamed and self.is_read_once(t, array)
            self.want(var, *((ch.STREAM_LOAD, ch.CA) if once else (ch.CA,)))
        for var in self.v.shift.values():
            self.want(var, *_first_of(sketch.shift, ch.IN_STEP, ch.LATE))
        for t, var in self.v.of_tasks["guard"].items():
            # What cannot be in vectors is in strides where it can, and leaves the rest out.
            in_vectors = t in self.roles.vector
            self.want(var, *_first_of(ch.BLEND if in_vectors else ch.STRIDE, ch.BRANCH, ch.BLEND))
        for var in self.v.of_tasks["rescaling"].values():
            self.want(var, *_first_of(RESCALED if self.fusion.rescaled else WAITS, WAITS, RESCALED))
        for var in self.v.of_tasks["rows"].values():
            self.want(var, ch.ROWS, ch.WALK)
        for var in self.v.of_tasks["gathers"].values():
            self.want(var, ch.TRANSPOSED, ch.ONE_BY_ONE)
        for var in self.v.of_tasks["row_stores"].values():
            self.want(var, IN_ROWS, BY_ELEMENT)
        for var in self.v.of_tasks["lane_parts"].values():
            self.want(var, WHOLE_BODY, FRONT)
        for var in self.v.of_tasks["batch_layout"].values():
            self.want(var, INTERLEAVED, AS_STORED)
        for var in self.v.of_tasks["local_arrays"].values():
            self.want(var, IN_REGISTERS, ON_STACK)
        for t, var in self.v.of_tasks["prefetch_distance"].items():
            self.want(var, *((AHEAD_TWO,) if self.blocks_pay(t) else ()), AHEAD_NONE)
        for sites in self.v.of_trees.values():
            for var in sites.values():
                self.want(var, AS_IT_IS)
        for var in self.v.of_tasks["settling"].values():
            self.want(var, *((ALL_BLOCKS,) if self.is_in_blocks else ()), ONE_THREAD)
        for var in self.v.of_tasks["compaction"].values():
            self.want(var, *((BLOCK_SCAN,) if self.is_in_blocks else ()), SERIAL)
        for d, var in self.v.of_dims["grid_stride"].items():
            # A list may be much shorter than its capacity. Eight blocks of 256 threads fill a multiprocessor.
            best = [BLOCKS_A_CORE.index(8)] if not d.loop.is_known else []
            if self.block.stays and d.task in self.v.of_tasks["team"]:
                # All are resident: four blocks of 256 threads leave each thread 64 registers.
                best = [BLOCKS_A_CORE.index(n) for n in (4, 2, 1)]
            self.want(var, *dict.fromkeys((*best, *range(len(GRID_STRIDE)))))
        for var in self.v.of_tasks["team"].values():
            self.want(var, *((WHOLE_GRID,) if self.block.stays else ()), BLOCKS)
        for var in self.v.of_tasks["block_order"].values():
            self.want(var, *range(len(BLOCK_ORDER)))
        for var in self.v.of_tasks["register_stages"].values():
            self.want(var, *range(len(REGISTER_STAGES)))
        for (d, e), var in self.v.warp_tile.items():
            self.want(var, *self.warp_tile(d, e), LINEAR)
        for var in self.v.of_operands["fragments"].values():
            self.want(var, IN_VECTORS, ELEMENTS)
        for key, var in self.v.scatter.items():
            self.want(var, *_first_of(self.scatter(key), ch.SERIAL, ch.BY_ATOMICS))
        for var in self.v.scatter_cells.values():
            sizes = [int(x) for x in self.space.choices[var].values]
            least = next((k for k, n in enumerate(sizes) if n >= self.threads.cells), 0)
            self.want(var, *range(least, len(sizes)), *range(least))
        for var in self.v.of_tasks["greedy_block"].values():
            sizes = [int(x) for x in self.space.choices[var].values]
            is_small = [n <= self.threads.cells for n in sizes]
            self.want(var, *reversed(range(sum(is_small))), *range(sum(is_small), len(sizes)))
        for var in self.v.of_tasks["colouring"].values():
            self.want(var, REUSE, IF_CHANGED, GENERATE)
        for var in self.v.of_tasks["sorting"].values():
            self.want(var, SORT_IF_CHANGED, SORT_ANEW)
        for var in self.v.of_tasks["length_window"].values():
            sizes = [int(x) for x in self.space.choices[var].values[1:]]
            fitting = [k + 1 for k, n in enumerate(sizes) if n <= self.threads.by_length]
            self.want(var, *reversed(fitting), UNSORTED)
        for var in self.v.of_tasks["length_sort"].values():
            self.want(var, SORT_IF_CHANGED, SORT_ANEW)
        for d, var in self.v.schedule.items():
            task = self.space.problem.tasks[d.task]
            is_cut = any(d.loop.name in cut.loops for cut in cuts_of(task))  # rows of a triangle
            schedule = ch.CYCLIC if is_cut else self.threads.schedule
            first = _first_of(schedule, ch.BLOCKED, ch.CYCLIC)
            is_uneven = not task.is_structured
            by_work = is_uneven and self.threads.by_work
            self.want(var, *((ch.BALANCED, ch.GUIDED) if by_work else ()), *first)
        # A thread alone gains by diagonals, too, where an iteration waits for the one before.
        in_waves = (ch.BY_DIAGONALS, ch.BY_ROWS) if self.threads.by_work else ()
        for var in self.v.waves.values():
            self.want(var, *in_waves, ch.IN_ORDER)
        for (_, k), var in self.v.wave_sizes.items():
            sizes = [int(x) for x in self.space.choices[var].values]
            fitting = [m for m, n in enumerate(sizes) if n <= (32, 256)[k]]
            self.want(var, *reversed(fitting))
        for var in self.v.ranges.values():
            self.want(var, *_first_of(sketch.tile.ranges, ch.IN_TURN, ch.ALONG))
        for var in self.v.prefetch.values():
            self.want(var, *_first_of(sketch.prefetch, ch.NO_PREFETCH))
        is_prefetched = self.packing is not None and self.packing.prefetched
        for var in self.v.prefetch_accumulators.values():
            asked = ch.SUMS_AHEAD if is_prefetched else ch.NO_SUMS_AHEAD
            self.want(var, asked, 1 - asked)
        for o, var in self.v.staged.items():
            self.want(var, *self.copies(o))
        for var in self.v.of_places["materialised"].values():
            stored = STORED if self.fusion.stores_values else RECOMPUTED
            self.want(var, *_first_of(stored, RECOMPUTED, STORED))
        for (t, name), var in self.v.of_places["staged"].items():
            # Each axis that a read may cross doubles the leaves that it may be in.
            crosses = self.tile_site(t, name).n_crossed > 1
            self.want(var, *((ch.IN_TILE, ch.IN_ROWS) if crosses else (ch.IN_ROWS, ch.IN_TILE)))
        by_team = self.packing is not None and self.packing.by_team
        packer = ch.BY_TEAM if by_team else ch.BY_THREAD
        for var in self.v.packed_by.values():
            self.want(var, *_first_of(packer, ch.BY_THREAD, ch.BY_TEAM))
        for o, var in self.v.layout.items():
            across = (ch.TRANSPOSED_PADDED,) if self.transposes(o) else ()
            self.want(var, *across, ch.PADDED, ch.PLAIN)
        for d, var in self.v.reduction.items():
            shared = ch.PARTIALS if d.level == OUTER else ch.LANES
            over_blocks = _OVER_BLOCKS.get(self.block.sums, shared)
            ways = tuple(dict.fromkeys((over_blocks, shared)))
            if (
                d.level == INNER and self.tile.depth > 1
            ):  # each copy's own sums would need registers
                self.want(var, ch.SEQUENTIAL, *ways)
            else:
                self.want(var, *ways, ch.SEQUENTIAL)

    def warp_tile(self, d: Dim, e: Dim) -> tuple[int, ...]:
        """Returns the preferred rectangle of threads in a warp, where operands are copied; () for none.

        Each of both operands is then read from shared memory at the speed of a request without distinct elements. Eight
        threads lie along the contiguous loop, whose vectors are a row of 128 bytes.
        """
        if self.packing is None or not self.is_in_blocks:
            return ()
        is_first = self.roles.vector.get(d.task) == d.loop.name
        return (WARP_TILE.index("8X4" if is_first else "4X8"),)

    def blocks_pay(self, t: int) -> bool:
        """True if prefetching the blocks that a task's index list names is likely to save time."""
        task = self.space.problem.tasks[t]
        assert task.body is not None
        found = blocks_in(self.space.problem, task, task.body)
        return found is not None and found.pay

    def copies(self, o: Operand) -> tuple[int, ...]:
        """Returns the preferred values for an operand, best first: packed copies, or direct access."""
        packing = self.packing
        if packing is None or not self.pays(o, packing.every):
            return (ch.DIRECT, ch.COPY)
        is_ahead = self.space.target.copies_asynchronously or has_gaps(self.space, o)
        return _first_of(packing.stages if is_ahead else ch.COPY, ch.COPY, ch.DIRECT)

    def transposes(self, o: Operand) -> bool:
        """True if the sketch transposes an operand's copy: in memory its rows go along a sum, and not along results."""
        row = row_order(o, self.space.problem.array(o.access.array))[-1]
        is_summed = {x.name: x.is_reduction for x in self.space.problem.tasks[o.task].loops}
        is_transposed = self.packing is not None and self.packing.transposed
        return is_transposed and is_summed[row] and not all(is_summed[x] for x in o.loops)

    def tile_site(self, t: int, name: str) -> TileSite:
        """Returns the record of tile site `name`: a sparse field whose neighbours a loop over leaf cells reads."""
        body = self.space.problem.tasks[t].body
        assert body is not None
        return next(x for x in body.trees.tiles if x.name == name)

    def is_read_once(self, t: int, array: str) -> bool:
        """True if a task reads each element of an array once: every loop occurs in the access."""
        task = self.space.problem.tasks[t]
        reads = [a for a, _ in task_reads(task) if a.array == array]
        loops = {loop.name for loop in task.loops}
        return len(reads) == 1 and index_loops(reads[0]) >= loops

    def pays(self, o: Operand, every: bool) -> bool:
        """True if packing the operand is expected to pay.

        It pays if the vectorised loop indexes the operand, and the other operand is read a scalar
        at a time. A vector, or an operand with neighbour reads, is in a cache as it is. `every`:
        any operand counts. The search finds out whether a copy is better.
        """
        return is_panel(o) and (every or self.roles.vector.get(o.task) in o.loops)


def _first_of(wanted: int, *values: int) -> tuple[int, ...]:
    """Returns the values 0 to `values` - 1, the preferred value `wanted` first."""
    return tuple(dict.fromkeys((wanted, *values)))


def _inverse(values: Iterable[int]) -> tuple[int, ...]:
    back: Mapping[int, int] = {
        ch.BEFORE: ch.AFTER,
        ch.AFTER: ch.BEFORE,
        ch.INSIDE: ch.OUTSIDE,
        ch.OUTSIDE: ch.INSIDE,
        ch.MERGED: ch.MERGED,
    }
    return tuple(back[v] for v in values)
