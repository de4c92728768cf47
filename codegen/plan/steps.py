"""Reads the decisions about a standalone kernel's body into the plans of its statements (nest_plan.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...kernels.analysis.inner_ranges import row_starts
from ...kernels.analysis.prefetch_sites import blocks_of
from ...kernels.ir.kernel import For
from ...kernels.ir.task import Problem, Task
from ...kernels.ir.unrolling import copies_of, few_rows
from ...kernels.ir.walk import nested_statements
from ...kernels.transforms.lane_fronts import Front
from ...space.backbone import INNER, MID, OUTER
from ...space.draft import Decisions
from ...space.families.lane_parts import FRONT, LANE_PARTS
from ...space.families.prefetch_distance import DISTANCES
from ...space.families.ranges import N_VECTORS
from ...space.families.scatter import COLOUR, PRIVATE, SCATTER
from ...space.families.schedule import BALANCED, BLOCKED, SCHEDULE
from ...space.families.tiling import DIM_KIND, PARALLEL, VECTOR
from ...space.families.unrolling import ALL_COPIES, UNROLLED, place_of
from ...space.families.wavefronts import BY_DIAGONALS, WAVES
from ...space.targets.target import Target
from . import nest_facts
from .nest_plan import ANY_ORDER, SCALAR, NestPlan, Partition, Step, Sum, WavePlan
from .schedules import BlockPrefetch, Lanes, Wave, range_lanes


def steps_of(problem: Problem, t: int, decisions: Decisions, target: Target) -> tuple[Step, ...]:
    """Returns the statements of a task's body in order, with a plan in place of each one that has decisions."""
    reader = _Steps(problem, t, decisions, target)
    made: list[Step] = []
    k = 0
    while k < len(reader.body):
        step, n = reader.step(k)
        made.append(step)
        k += n
    return tuple(made)


class _Steps:
    def __init__(self, problem: Problem, t: int, decisions: Decisions, target: Target) -> None:
        self.problem, self.t, self.decisions, self.target = problem, t, decisions, target
        self.task: Task = problem.tasks[t]
        assert self.task.body is not None
        self.body = self.task.body.statements
        self.shared = nest_facts.shared_locals(self.body)

    def value(self, kind: str, *place: Any) -> str:
        """Returns the name of the decided value of a choice about a place in the body; "" if there is none."""
        return self.decisions.get(kind, {}).get((self.t, *place), "")

    def step(self, k: int) -> tuple[Step, int]:
        """Returns the plan of statement `k`, and the number of statements that the plan covers."""
        s = self.body[k]
        found = nest_facts.sweep_at(self.body, k) if "waves" in self.decisions else None
        if found is not None and (order := self.value("waves", found[0].outer)):
            sweep, n = found
            rows, columns = (
                int(self.value(kind, sweep.outer)) for kind in ("wave_rows", "wave_columns")
            )
            wave = Wave(sweep, rows, columns, order == WAVES[BY_DIAGONALS])
            threads = self.target.cores if self.is_parallel(sweep.outer) else 1
            return WavePlan(wave, threads, sweep.inner.where), n
        if isinstance(s, For) and self.value("dim_kind", s.loop, OUTER):
            return self.nest(s), 1
        return s, 1

    def is_parallel(self, loop: str) -> bool:
        return self.value("dim_kind", loop, OUTER) == DIM_KIND[PARALLEL]

    def nest(self, loop: For) -> NestPlan:
        inside = [loop, *(s for s in nested_statements(loop.body) if isinstance(s, For))]
        sums: tuple[Sum, ...] = ()
        if self.value("reduction", loop.loop):
            sums = tuple(
                nest_facts.sums_of(self.problem, loop, self.shared, nest_facts.shared_updates(loop))
            )
        how = self.value("scatter", loop.loop)
        conflicts = nest_facts.scattered(loop, sums) if how else []
        is_private = how == SCATTER[PRIVATE]
        levels = sum(self.is_parallel(x.loop) for x in nest_facts.perfect_nest(loop))
        found = nest_facts.copyable(self.problem, loop, conflicts) if is_private else ()
        copied = tuple(a.name for a in found)
        partition = self.partition(loop, copied)
        # Elsewhere threads would run iterations twice, or conflict: there updates are atomic.
        is_plain = partition.schedule == SCHEDULE[BLOCKED] and levels < 2 and not sums
        overlap = None
        if how == SCATTER[COLOUR] and is_plain:
            overlap = nest_facts.overlap_of(loop, conflicts, self.target.cores)
        return NestPlan(
            loop,
            levels=max(1, levels),
            is_shared=levels > 0,
            partition=replace(partition, overlap=overlap or 0),
            independent=frozenset(
                x.loop for x in inside if self.value("iterations", x.loop) == ANY_ORDER
            ),
            scalar=frozenset(x.loop for x in inside if self.value("iterations", x.loop) == SCALAR),
            sums=sums,
            atomics=frozenset(u for u in conflicts if overlap is None and u.array not in copied),
            lanes=self.lanes(loop, inside),
            copies=copies_of(
                [
                    x
                    for x in few_rows(loop.body)
                    if self.value("unrolled", place_of(self.task, x.loop)) == UNROLLED[ALL_COPIES]
                ]
            ),
            ranges=self.ranges(inside),
            prefetch=self.prefetch(loop),
        )

    def partition(self, loop: For, copied: tuple[str, ...]) -> Partition:
        schedule = self.value("schedule", loop.loop, OUTER) or SCHEDULE[BLOCKED]
        is_balanced = schedule == SCHEDULE[BALANCED]
        return Partition(
            threads_from=int(self.value("threads_from", loop.loop) or 0),
            unit=int(self.value("size", loop.loop, MID) or 1),
            schedule=schedule,
            rows=row_starts(loop.loop, loop.body) if is_balanced else None,
            copied=copied,
        )

    def lanes(self, loop: For, inside: list[For]) -> Lanes | None:
        size = self.target.vector_bytes
        for x in inside:
            if self.value("dim_kind", x.loop, INNER) != DIM_KIND[VECTOR]:
                continue
            parts, width = None, int(self.value("size", x.loop, INNER))
            if self.value("lane_parts", x.loop) == LANE_PARTS[FRONT]:
                nest = nest_facts.nest_down_to((loop,), x.loop)
                found = nest_facts.parts_of(self.problem, nest, frozenset(self.shared))
                parts = found or Front((), nest[-1].body, ())
            return Lanes(x.loop, width, size, parts=parts)
        return None

    def ranges(self, inside: list[For]) -> tuple[Lanes, ...]:
        how = ((x, self.value("ranges", x.loop)) for x in inside)
        return tuple(
            range_lanes(
                x, value, self.value("remainders", place_of(self.task, x.loop)), self.target
            )
            for x, value in how
            if value in N_VECTORS
        )

    def prefetch(self, loop: For) -> BlockPrefetch | None:
        distance = DISTANCES[self.value("prefetch_distance", loop.loop) or "NONE"]
        if not distance:
            return None
        found = blocks_of(loop.loop, loop.body, self.problem.array)
        return BlockPrefetch(found, distance) if found is not None else None
