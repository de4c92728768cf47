"""Default decisions for a standalone kernel, by rules: values of choices about the loops of its body.

They decide which loops a team shares, the method of conflicting updates, wavefronts, vectors,
unrolling and prefetches. Nothing is searched or timed; kernels/tasks/work.py estimates the times of
loops. A loop of a body is the object (task, loop) of a choice, or (task, loop, level) of a choice
about a tile level.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import prod
from typing import Any

from ...kernels.analysis.conflicts import conflicting
from ...kernels.analysis.inner_ranges import is_uneven, row_starts, widest
from ...kernels.analysis.prefetch_sites import blocks_of
from ...kernels.ir import kernel as ir
from ...kernels.ir.task import Problem
from ...kernels.ir.unrolling import few_rows
from ...kernels.ir.walk import children, nested_statements, walk
from ...kernels.tasks import work
from ...kernels.tasks.batch_blocks import names_in
from ...space.backbone import INNER, MID, OUTER
from ...space.draft import Decisions
from ...space.families.batch_layout import BATCH_LAYOUT, INTERLEAVED
from ...space.families.lane_parts import FRONT, LANE_PARTS
from ...space.families.local_arrays import IN_REGISTERS, LOCAL_ARRAYS
from ...space.families.scatter import COLOUR, SCATTER
from ...space.families.schedule import BALANCED, BLOCKED, GUIDED, SCHEDULE
from ...space.families.tiling import DIM_KIND, LOOP, PARALLEL, VECTOR
from ...space.families.unrolling import ALL_COPIES, UNROLLED, place_of
from ...space.targets.target import Target
from ...space.values import PARTIALS, REDUCTION
from . import nest_facts
from .default_batches import batched_nest, is_short_in_locals
from .default_lanes import front_of, lanes_of, ranges_of
from .default_waves import wave_at
from .layouts import laid_out
from .nest_plan import ANY_ORDER, ONE_BY_ONE, SCALAR, Sum

_AHEAD = "TWO"  # iterations of a loop over a list: with one the lines come late, with more they gain nothing on Zen 3
_ROWS_FOR_EACH = 8  # outer iterations a thread from which on inner loops are left whole
_LEAST_SHARED = 64  # iterations a thread from which on threads get whole units of them
_UNIT = 16
_SCATTERED_NS = 20  # iterations up to which scattered parts of vectors take longer: 2.5 times at 12 ns, a third at 31 (Zen 4)


def defaults(
    problem: Problem,
    target: Target,
    independent: Container[str] = (),
    *,
    keeps_order: bool = False,
) -> Decisions:
    """Returns the default decisions for a standalone kernel (a problem made by kernels/tasks/standalone.py).

    Without vector registers (0 bytes) no loop is vectorised. `independent`: loops that the user
    declared parallel, by their names before they were made unique. `keeps_order`: an outermost loop whose iterations depend on
    their order is in order, as in a sequence; otherwise it is parallel by definition.
    """
    layouts = _Rules(problem, target, independent, keeps_order).layouts()
    rules = _Rules(laid_out(problem, layouts, target), target, independent, keeps_order, layouts)
    rules.decide_body()
    return rules.decided


class _Rules:
    """Rules that decide about the one task of a standalone kernel."""

    def __init__(
        self,
        problem: Problem,
        target: Target,
        independent: Container[str],
        keeps_order: bool,
        layouts: Decisions | None = None,
    ) -> None:
        self.problem, self.target, self.independent = problem, target, independent
        self.keeps_order = keeps_order
        self.batched = {loop for _, loop in (layouts or {}).get("batch_layout", {})}
        (self.task,) = problem.tasks
        assert self.task.body is not None
        self.body = self.task.body.statements
        self.shared = nest_facts.shared_locals(self.body)
        self.decided: dict[str, dict[Any, str]] = {k: {**v} for k, v in (layouts or {}).items()}

    def decide(self, kind: str, site: Any, value: str) -> None:
        self.decided.setdefault(kind, {})[site] = value

    def decide_body(self) -> None:
        self.decide("nests", 0, ONE_BY_ONE)
        behind = 0  # end of the statements that the last wavefronts run
        for k, s in enumerate(self.body):
            if k < behind:
                continue
            wave = wave_at(self.body, k, self.target.cores)
            if wave is not None:
                for kind, site, value in wave.decisions:
                    self.decide(kind, site, value)
                behind = k + wave.n_statements
            elif isinstance(s, ir.For) and self.may_reorder(s):
                self.decide_nest(s)

    def layouts(self) -> Decisions:
        """Returns the decisions about blocks of batches and local arrays."""
        found: dict[str, dict[Any, str]] = {}
        for s in self.body:
            if not isinstance(s, ir.For) or not self.may_reorder(s):
                continue
            nest, n_bytes = nest_facts.perfect_nest(s), self.target.vector_bytes
            batch = batched_nest(self.problem, self.task, nest, self.may_be_lanes, n_bytes)
            if not batch:
                continue
            site = 0, batch[-1].loop
            found.setdefault("batch_layout", {})[site] = BATCH_LAYOUT[INTERLEAVED]
            if is_short_in_locals(self.problem, self.task, batch, names_in(self.body)):
                found.setdefault("local_arrays", {})[site] = LOCAL_ARRAYS[IN_REGISTERS]
        return found

    def may_reorder(self, loop: ir.For) -> bool:
        """True if the iterations of an outermost loop may run in any order."""
        if self.is_bound_to_one_thread(loop):
            return False
        return not self.keeps_order or self.is_declared(loop) or nest_facts.in_any_order(loop)

    def is_declared(self, loop: ir.For) -> bool:
        """True if the user declared the loop parallel."""
        return loop.loop.partition("@")[0] in self.independent

    def is_bound_to_one_thread(self, loop: ir.For) -> bool:
        """True if the order of the loop's iterations is observable, so one thread must run them.

        Such iterations print, or change a local of the kernel other than by a reduction that may be
        reordered.
        """
        inside, shared = list(nested_statements(loop.body)), self.shared
        read = {
            x.name for s in inside for e in children(s) for x in walk(e) if isinstance(x, ir.Local)
        }
        changed = {
            s.name
            for s in inside
            if isinstance(s, ir.SetLocal | ir.UpdateLocal) and s.name in shared
        }
        ops = {(s.name, s.op) for s in inside if isinstance(s, ir.UpdateLocal) and s.name in shared}
        return (
            any(isinstance(s, ir.Print) for s in inside)
            or any(isinstance(s, ir.SetLocal) and s.name in shared for s in inside)
            or any(isinstance(s, ir.Update) and s.result in shared for s in inside)
            or bool(changed & read)
            or (bool(changed) and not self.task.fast_math)
            or len(ops) != len(changed)
        )

    def decide_nest(self, loop: ir.For) -> None:
        nest = nest_facts.perfect_nest(loop)
        levels, independent = nest_facts.independent_levels(nest)
        sums: tuple[Sum, ...] = ()
        if self.task.fast_math:
            sums = tuple(
                nest_facts.sums_of(self.problem, loop, self.shared, nest_facts.shared_updates(loop))
            )
        conflicts = nest_facts.scattered(loop, sums)
        self.decide("dim_kind", (0, loop.loop, OUTER), DIM_KIND[LOOP])
        if sums:
            self.decide("reduction", (0, loop.loop), REDUCTION[PARTIALS])
        for x in () if conflicts else independent:
            self.decide("iterations", (0, x), ANY_ORDER)
        inner = (s for s in nested_statements(loop.body) if isinstance(s, ir.For))
        for s in inner:
            # With updates a compiler would load elements before other iterations have added to them.
            if (
                self.is_declared(s)
                and not nest_facts.shared_updates(s)
                and not nest_facts.relaxes(s)
            ):
                is_slow = nest_facts.scatters_some(s) and work.iteration_ns(s.body) < _SCATTERED_NS
                self.decide("iterations", (0, s.loop), SCALAR if is_slow else ANY_ORDER)
        self.share(nest, levels, conflicts, has_sums=bool(sums))
        self.vectorise(nest, has_sums=bool(sums))
        for rows in few_rows(loop.body):
            self.decide("unrolled", (0, place_of(self.task, rows.loop)), UNROLLED[ALL_COPIES])
        self.prefetch(loop)

    # --- threads

    def share(
        self, nest: Sequence[ir.For], levels: int, conflicts: Sequence[ir.Update], *, has_sums: bool
    ) -> None:
        """Distributes the outer `levels` loops of a nest to a team, if that pays despite conflicting updates."""
        cores, loop = self.target.cores, nest[0]
        extents = [nest_facts.constant(x.extent) for x in nest]
        one_ns, whole = work.iteration_ns(loop.body), extents[0]
        if cores < 2 or (conflicts and not self.task.fast_math):
            return
        if whole is not None and not work.pays(whole * one_ns):
            return
        if conflicts:
            way = self.way_of(loop, conflicts, has_sums)
            if way == work.BY_ONE:
                return
            self.decide("scatter", (0, loop.loop), way)
        if whole is None or whole >= _ROWS_FOR_EACH * cores:
            levels = 1
        for x in nest[:levels]:
            self.decide("dim_kind", (0, x.loop, OUTER), DIM_KIND[PARALLEL])
        known = [x for x in extents[:levels] if x is not None]
        inside_ns = one_ns / max(1, prod(known[1:]))
        self.decide("threads_from", (0, loop.loop), str(work.first_that_pays(inside_ns)))
        is_whole = len(known) == levels == len(nest)
        if is_whole and prod(known) >= _LEAST_SHARED * cores:
            self.decide("size", (0, loop.loop, MID), str(_UNIT))
        self.decide("schedule", (0, loop.loop, OUTER), SCHEDULE[self.schedule(nest, levels)])

    def way_of(self, loop: ir.For, conflicts: Sequence[ir.Update], has_sums: bool) -> str:
        """Returns the method (a value of choice `scatter`) for updates of elements that several iterations share.

        If only nearby iterations conflict, each thread updates in place. The iterations at the ends
        of its part run last; parts are so long that these do not conflict.
        """
        cores, whole = self.target.cores, nest_facts.constant(loop.extent)
        is_plain = not has_sums and not is_uneven(loop.body)
        if is_plain and nest_facts.overlap_of(loop, conflicts, cores) is not None:
            return SCATTER[COLOUR]
        dtypes = {a.name: a.dtype for a in self.problem.arrays}
        copied = nest_facts.copyable(self.problem, loop, conflicts)
        beside = {u.array for u in conflicts} - {a.name for a in copied}
        n_bytes = sum(a.size_bytes for a in copied)
        updated = work.updates_of(loop.body, conflicts, dtypes, n_bytes, beside)
        return updated.way(work.iteration_ns(loop.body), whole, cores)

    @staticmethod
    def schedule(nest: Sequence[ir.For], levels: int) -> int:
        """Returns the schedule of a distributed loop.

        Uneven iterations that are the consecutive rows of an index array are balanced by rows. That
        costs each thread a bisection, and gives it the same rows in every call. Otherwise threads
        take part by part, at one atomic operation per part.
        """
        body = nest[levels - 1].body
        if not is_uneven(body):
            return BLOCKED
        has_rows = levels == 1 and row_starts(nest[0].loop, body) is not None
        return BALANCED if has_rows else GUIDED

    # --- bodies

    def vectorise(self, nest: Sequence[ir.For], *, has_sums: bool) -> None:
        """Vectorises loops of a nest that compilers leave scalar: loops inside its body, or one of its own loops.

        Of a body that cannot run in lanes as a whole, the front may.

        Loops inside the body are preferred if their extent is known only at run time and they load at indirect indices. Measured
        with AVX2, CSR rows of 4 to 100 elements take 0.75 of the scalar time. Vectors over rows take 2.5 to 15 times as long, since
        no accesses are contiguous then. Other loops inside are vectorised if none of the nest is.
        """
        body, fast_math, size = nest[0].body, self.task.fast_math, self.target.vector_bytes
        for x in nest:
            if x.loop in self.batched:
                self.decide("dim_kind", (0, x.loop, INNER), DIM_KIND[VECTOR])
                self.decide("size", (0, x.loop, INNER), str(size // widest(x.body)))
                return
        lanes = lanes_of(self.problem, nest, self.may_be_lanes, size)
        ranges = ranges_of(self.problem, body, fast_math, size, instead_of_lanes=lanes is not None)
        for loop, value in ranges.items():
            self.decide("ranges", (0, loop), value)
        if lanes is None and not ranges and not has_sums:
            lanes = front_of(self.problem, nest, self.shared, size)
            if lanes is not None:
                self.decide("lane_parts", (0, lanes[0]), LANE_PARTS[FRONT])
        if lanes is not None and not ranges:
            name, width = lanes
            self.decide("dim_kind", (0, name, INNER), DIM_KIND[VECTOR])
            self.decide("size", (0, name, INNER), str(width))

    def may_be_lanes(self, loops: Sequence[ir.For], body: tuple[ir.Stmt, ...]) -> bool:
        """True if iterations of the loops may run as lanes of vectors.

        Each lane makes conflicting updates by itself.
        """
        sites = nest_facts.sites_of(loops, body)
        seen = {s.state.name for s in sites if s.op != "update"}
        shared = conflicting(sites, nest_facts.loops_of(loops))
        return not shared or (self.task.fast_math and seen.isdisjoint(shared))

    def prefetch(self, loop: ir.For) -> None:
        """Prefetches the blocks that an index list names, if prefetching pays and an array of them exceeds a core's cache."""
        array, near = self.problem.array, self.target.own_cache_bytes
        found = blocks_of(loop.loop, loop.body, array)
        if found is None or not found.pay:
            return
        if any(array(x.array).size_bytes > near for x in found.rows):
            self.decide("prefetch_distance", (0, loop.loop), _AHEAD)
