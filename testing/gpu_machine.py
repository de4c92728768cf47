"""A GPU that is simulated thread by thread, as fast as one can be: bounds of complete candidates are not above it."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np

from ..codegen.loops.ir import GridBarrier, paths
from ..codegen.passes.map_grid import blocks_along
from ..codegen.passes.pipeline import loops_of
from ..codegen.plan.candidates import plan_of
from ..codegen.plan.plan import LoopPlan, PlannedBody, PlannedNode, TaskPlan
from ..kernels.ir.access import Access, access_of, flat_strides
from ..search.bound.traffic import sure_loads
from ..search.bound.weights import expression_weight
from ..space.candidate import Candidate
from ..space.families.packing import rows_of_layout
from ..space.targets.gpu_facts import row_order
from ..space.targets.target import Target

WARP, SECTOR, SCHEDULERS = 32, 32, 4


def bodies(nodes: tuple[PlannedNode, ...]) -> list[int]:
    """The tasks of a launch."""
    found: list[int] = []
    for n in nodes:
        found += [n.task] if isinstance(n, PlannedBody) else bodies(n.children)
    return found


class SimulatedGpu:
    """Registers and L1 without end, blocks dealt out in turn, the threads of a block in the decided warps.

    `ns` is the time of a call, launch after launch; `busy` the ns of each resource.
    """

    def __init__(self, candidate: Candidate) -> None:
        self.plan = plan_of(candidate)
        self.target: Target = candidate.space.target
        self.busy: dict[str, float] = defaultdict(float)
        self.ns = 0.0
        n_launches = 0
        for nodes in self.plan.launches:
            tasks = [self.plan.tasks[t] for t in bodies(nodes)]
            # One block runs its tasks one after the other.
            together = [tasks] if any(t.is_parallel for t in tasks) else [[t] for t in tasks]
            if any(self.plan.stays(t.index) for t in tasks):
                together = self.between_barriers(nodes)
            self.ns += sum(self.run(group) for group in together)
            n_launches += 1 + sum(t.partials and not t.by_last_block for t in tasks)
        self.busy["launches"] = n_launches * self.target.launch_ns
        self.ns = max(self.ns, self.busy["launches"])

    def between_barriers(self, nodes: tuple[PlannedNode, ...]) -> list[list[TaskPlan]]:
        """Returns the tasks of a launch in groups, between which all of its blocks synchronise."""
        groups: list[list[TaskPlan]] = [[]]
        for node in loops_of(self.plan, nodes, self.target).nodes:
            if isinstance(node, GridBarrier):
                groups.append([])
            groups[-1] += (self.plan.tasks[t] for _, t in paths([node]))
        return groups

    def run(self, tasks: list[TaskPlan]) -> float:
        """ns of tasks that share blocks."""
        t = self.target
        self.cores: list[dict[str, Any]] = [defaultdict(float) for _ in range(t.cores)]
        self.read: list[set[tuple[str, int]]] = [set() for _ in range(t.cores)]
        self.pipes = [np.zeros(SCHEDULERS) for _ in range(t.cores)]
        self.slots = [np.zeros(SCHEDULERS) for _ in range(t.cores)]
        chain, apart = 0.0, 0.0
        for task in tasks:
            n_threads = max(x.n_threads for x in tasks)
            chain = max(chain, self.chain(task, self.resident(tasks, n_threads)))
            apart += self.task(task)
        worst = {name: max(core[name] for core in self.cores) for name in ("L1", "shared memory")}
        worst["operations"] = max(p.max() for p in self.pipes) + apart
        worst["issue"] = max(p.max() for p in self.slots)
        worst["latency"] = chain
        n_bytes = [SECTOR * len(found) for found in self.read]
        far = t.levels[-1].read_bytes_per_ns
        worst["L2"] = max(max(n_bytes) / t.core_read_bytes_per_ns, sum(n_bytes) / far)
        for name, ns in worst.items():
            self.busy[name] += ns
        return float(max(worst.values()))

    def resident(self, tasks: list[TaskPlan], n_threads: int) -> int:
        """Blocks that a multiprocessor has room for, by threads and by what they copy."""
        t = self.target
        most = min(t.max_blocks_per_core, t.max_threads_per_core // max(WARP, n_threads))
        n_bytes = 0
        for task in tasks:
            for operand in task.copies:
                array, site = operand.access.array, operand.site
                tile = prod(task.loop(name).tile for name in operand.loops)
                size = self.plan.problem.array(array).dtype.size_bytes
                n_bytes += tile * task.stages[site] * size
        return max(1, min(most, t.shared_bytes_per_core // n_bytes) if n_bytes else most)

    def chain(self, task: TaskPlan, resident: int) -> float:
        """ns of the waves of blocks, each with one load and its chain of additions."""
        t, steps = self.target, 1
        for p in task.loops:
            if p.loop.is_reduction:
                tiles = ceil(
                    ceil(p.loop.extent / p.tile) / (blocks_along(p) if p.is_parallel else 1)
                )
                steps *= tiles * (1 if p.is_thread else p.mid)
        blocks = prod(blocks_along(p) for p in task.loops if p.is_parallel)
        waves = ceil(blocks / (t.cores * resident))
        is_sum = task.task.is_reduction and task.task.dtype.is_float
        one = t.load_latency_ns + (steps * t.add_latency_ns if is_sum else 0.0)
        for operand in task.copies:
            along = [p for p in task.loops if p.loop.name in operand.loops and not p.is_parallel]
            one += t.barrier_ns * prod(ceil(p.loop.extent / p.tile) for p in along)
        return waves * one + t.far_load_latency_ns

    def task(self, task: TaskPlan) -> float:
        """Runs a task; ns of what another launch finishes and stores."""
        grid = [p for p in task.loops if p.is_parallel]
        tiles = [range(ceil(p.loop.extent / p.tile)) for p in grid]
        threads, numbered = numbered_threads(task)
        finish = expression_weight(task.task.finish)
        for number, block in enumerate(product(*tiles)):
            core = number % self.target.cores
            at = {p.loop.name: k for p, k in zip(grid, block, strict=True)}
            for first in range(0, len(numbered), WARP):
                lanes = []
                for digits in numbered[first : first + WARP]:
                    mine = {p.loop.name: d for p, d in zip(threads, digits, strict=True)}
                    width = self.target.lanes(task.task.lane_bytes)
                    lanes.append({p.loop.name: indices(p, at, mine, width) for p in task.loops})
                self.warp(task, core, first // WARP, lanes, 0.0 if task.partials else finish)
        if not task.partials:
            return 0.0
        outputs = prod(p.loop.extent for p in task.loops if not p.loop.is_reduction)
        n_bytes = SECTOR * ceil(outputs * task.task.dtype.size_bytes / SECTOR)
        self.cores[0]["L1"] += n_bytes / self.target.levels[0].read_bytes_per_ns
        return outputs * finish / self.flops_rate(task)

    def warp(
        self,
        task: TaskPlan,
        core: int,
        number: int,
        lanes: list[dict[str, list[int]]],
        finish: float,
    ) -> None:
        t = self.target
        each = expression_weight(task.task.value) + task.task.is_reduction
        points = max(prod(len(x) for x in lane.values()) for lane in lanes)
        free = [p.loop.name for p in task.loops if not p.loop.is_reduction]
        results = max(prod(len(lane[name]) for name in free) * all(lane.values()) for lane in lanes)
        flops = points * each + results * finish
        scheduler = number % SCHEDULERS
        self.pipes[core][scheduler] += flops * WARP * t.cores * SCHEDULERS / self.flops_rate(task)
        n = flops / 2
        loads = [access_of(x) for x in sure_loads(task.task.value)]
        for access in dict.fromkeys(loads):
            n += self.load(task, core, access, lanes)
        if task.is_stored and not task.partials:
            n += self.requests(task, core, task.task.target, lanes, "L1")
        self.slots[core][scheduler] += n / (t.instructions_per_ns / t.cores / SCHEDULERS)

    def flops_rate(self, task: TaskPlan) -> float:
        is_single = task.task.dtype.size_bytes == 4
        return self.target.f32_flops_per_ns if is_single else self.target.f64_flops_per_ns

    def load(
        self, task: TaskPlan, core: int, access: Access, lanes: list[dict[str, list[int]]]
    ) -> int:
        flows = [
            kind
            for producer in self.plan.tasks
            for kind, found in (("register", producer.registers), ("shared", producer.shared))
            for f in found
            if (f.consumer, f.array) == (task.index, access.array)
        ]
        if "register" in flows:
            return 0
        if task.copy_of(access) is not None:
            return self.requests(task, core, access, lanes, "copy")
        return self.requests(task, core, access, lanes, "shared memory" if flows else "L1")

    def requests(
        self,
        task: TaskPlan,
        core: int,
        access: Access,
        lanes: list[dict[str, list[int]]],
        where: str,
    ) -> int:
        """Requests of a warp, each element once a lane; its loops in step."""
        t = self.target
        array = self.plan.problem.array(access.array)
        strides, size = flat_strides(access, array), array.dtype.size_bytes
        start = sum(
            a.const * prod(array.shape[k + 1 :]) for k, a in enumerate(access.axes) if a is not None
        )
        widest = t.vector_bytes // size
        operand = task.copy_of(access)
        together: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for lane in lanes:
            if not all(lane.values()):
                continue
            loops = [p for p in task.loops if strides.get(p.loop.name)]
            nearest = min((abs(strides[p.loop.name]) for p in loops), default=0)
            if operand is not None and operand.loops:
                is_transposed, _ = rows_of_layout(task.layouts.get(operand.site, "PLAIN"))
                row = row_order(operand, array, is_transposed=is_transposed)[-1]
                nearest = abs(strides[row])
            wide = {p.loop.name: 1 for p in loops}
            for p in loops:
                is_vector = p.is_vector and strides[p.loop.name] == 1
                if is_vector or (where != "L1" and abs(strides[p.loop.name]) == nearest):
                    wide[p.loop.name] = widest
            for point in product(*(enumerate(lane[p.loop.name]) for p in loops)):
                step = tuple(k // wide[p.loop.name] for p, (k, _) in zip(loops, point, strict=True))
                offset = start + sum(
                    strides[p.loop.name] * i for p, (_, i) in zip(loops, point, strict=True)
                )
                together[step].add(offset)
        for offsets in together.values():
            sectors = {o * size // SECTOR for o in offsets}
            if where != "shared memory":
                self.read[core] |= {(access.array, s) for s in sectors}
            if where == "L1":
                rate = t.levels[0].read_bytes_per_ns / t.cores
                self.cores[core]["L1"] += SECTOR * len(sectors) / rate
            else:
                n_bytes = max(4 * WARP, size * len(offsets))
                self.cores[core]["shared memory"] += n_bytes / (t.shared_bytes_per_ns / t.cores)
        return len(together)


def numbered_threads(task: TaskPlan) -> tuple[list[LoopPlan], list[tuple[int, ...]]]:
    """The loops of a block's threads, the slowest first, and the index along each, by the number of a thread."""
    threads = [task.loop(name) for name in reversed(task.threads)]
    sizes = [task.warp_tile.get(p.loop.name, 1) for p in threads]

    def place(digits: tuple[int, ...]) -> list[tuple[int, ...]]:
        pairs = list(zip(digits, sizes, strict=True))
        return [tuple(k // n for k, n in pairs), tuple(k % n for k, n in pairs)]

    return threads, sorted(product(*(range(p.mid) for p in threads)), key=place)


def indices(p: LoopPlan, at: dict[str, int], mine: dict[str, int], lanes: int) -> list[int]:
    """Iterations of one thread along a loop."""
    n, name = p.loop.extent, p.loop.name
    tiles = [at[name]] if name in at else range(ceil(n / p.tile))
    if not p.is_thread:
        return [i for k in tiles for i in range(k * p.tile, min(n, (k + 1) * p.tile))]
    width = lanes if p.is_vector else 1
    while p.inner % width:
        width //= 2
    if p.has_neighbours:
        width = p.inner
    found = [
        k * p.tile + copy * p.mid * width + mine[name] * width + lane
        for k in tiles
        for copy in range(p.inner // width)
        for lane in range(width)
    ]
    return [i for i in found if i < n]
