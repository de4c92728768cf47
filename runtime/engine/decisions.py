"""Default decisions for a standalone kernel: the loops that a team shares, and the method of conflicting updates.

Nothing is searched and nothing timed; kernels/tasks/work.py estimates the times of loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from ...codegen.bodies.lanes import Lanes
from ...codegen.lower_kernel import problem_of
from ...codegen.plan.kernel_plan import KernelPlan, LoopStep, Share, Sum, WaveStep
from ...codegen.plan.schedules import BlockPrefetch
from ...kernels.analysis.accesses import analyse
from ...kernels.analysis.conflicts import conflicting
from ...kernels.analysis.inner_ranges import is_uneven, row_starts
from ...kernels.analysis.prefetch_sites import blocks_of
from ...kernels.ir.body import Closure, Reason, Site
from ...kernels.ir.domain import UNBOUNDED, Loop
from ...kernels.ir.kernel import (
    NOWHERE,
    Assert,
    Const,
    DType,
    Expr,
    For,
    KernelIR,
    Load,
    Local,
    LoopIndex,
    Print,
    SetLocal,
    Stmt,
    Store,
    Update,
    UpdateLocal,
    While,
)
from ...kernels.ir.unrolling import copies_of, few_rows
from ...kernels.ir.walk import children, local_changed, nested_statements, walk
from ...kernels.tasks import work
from ...kernels.tasks.distribute import unique_loops
from .lanes import lanes_of, ranges_of
from .thread_copies import copies_bytes
from .waves import wave_at

_NEAR_BYTES = 1 << 18  # that a core has in its own cache, on any machine
_AHEAD = 2  # iterations of a loop over a list: with one the lines come late, with more they gain nothing on Zen 3
_ROWS_FOR_EACH = 8  # outer iterations a thread from which on inner loops are left whole


def default_plan(ir: KernelIR, cores: int, vector_bytes: int = 0) -> KernelPlan:
    """Returns the plan of a kernel for a machine with so many cores and registers of so many bytes; 0: no loop is vectorised."""
    body = unique_loops(ir.body)
    shared = _shared_locals(body)
    steps: list[Stmt | LoopStep | WaveStep] = []
    behind = 0  # end of the statements that the last wavefronts run
    for k, s in enumerate(body):
        if k < behind:
            continue
        wave = wave_at(body, k, cores)
        if wave is not None:
            steps.append(wave[0])
            behind = k + wave[1]
        elif isinstance(s, For) and not _is_bound_to_one_thread(ir, s, shared):
            step = _loop_step(ir, s, shared, cores)
            free = step.independent | _by_definition(ir, s)
            ranges = _ranges(ir, s, vector_bytes)
            lanes = None if ranges else _lanes(ir, s, vector_bytes)
            copies = copies_of(few_rows(s.body))
            made = replace(step, independent=free, lanes=lanes, ranges=ranges, copies=copies)
            steps.append(replace(made, prefetch=_prefetch(ir, s)))
        else:
            steps.append(s)
    return KernelPlan(ir, tuple(steps), cores)


def _prefetch(ir: KernelIR, loop: For) -> BlockPrefetch | None:
    """Returns the prefetch of the blocks that a list names, if it pays and some array of them is larger than a core's cache; else
    None.
    """
    problem = problem_of(ir)
    found = blocks_of(loop.loop, loop.body, problem.array)
    if (
        found is None
        or not found.pay
        or all(problem.array(x.array).size_bytes <= _NEAR_BYTES for x in found.rows)
    ):
        return None
    return BlockPrefetch(found, _AHEAD)


def _by_definition(ir: KernelIR, loop: For) -> frozenset[str]:
    """Returns the loops in a loop whose iterations are as parallel as its own. Their names end in numbers by now."""
    return frozenset(
        x.loop
        for x in nested_statements(loop.body)
        if isinstance(x, For) and x.loop.partition("@")[0] in ir.independent
    )


def _shared_locals(body: Sequence[Stmt]) -> dict[str, DType]:
    """Returns the locals that are set outside of the loops, with their types."""
    return {
        x.name: x.value.dtype
        for s in body
        if not isinstance(s, For)
        for x in nested_statements((s,))
        if isinstance(x, SetLocal)
    }


def _is_bound_to_one_thread(ir: KernelIR, loop: For, shared: dict[str, DType]) -> bool:
    """True if the order of iterations is observable. They print, or change a local of the kernel other than by a reduction that may
    be reordered.
    """
    inside = list(nested_statements(loop.body))
    read = {x.name for s in inside for e in children(s) for x in walk(e) if isinstance(x, Local)}
    changed = {s.name for s in inside if isinstance(s, SetLocal | UpdateLocal) and s.name in shared}
    ops = {(s.name, s.op) for s in inside if isinstance(s, UpdateLocal) and s.name in shared}
    return (
        any(isinstance(s, Print) for s in inside)
        or any(isinstance(s, SetLocal) and s.name in shared for s in inside)
        or any(isinstance(s, Update) and s.result in shared for s in inside)
        or bool(changed & read)
        or (bool(changed) and not ir.fast_math)
        or len(ops) != len(changed)
    )


def _loop_step(ir: KernelIR, loop: For, shared: dict[str, DType], cores: int) -> LoopStep:
    nest = _perfect_nest(loop)
    levels, independent = _independent(nest)
    updates = _shared_updates(loop)
    sums = tuple(_sums(ir, loop, shared, updates))
    summed = {(s.array, s.indices) for s in sums}
    scattered = [u for u in updates if (u.array, u.indices) not in summed]
    free = frozenset[str]() if scattered else independent
    extents = [_constant(x.extent) for x in nest]
    one_ns = work.iteration_ns(nest[0].body)
    whole = extents[0]
    step = LoopStep(loop, independent=free, sums=sums)
    if cores < 2 or (scattered and not ir.fast_math):
        return step
    if whole is not None and not work.pays(whole * one_ns):
        return step
    atomics, copied = frozenset[Update](), tuple[str, ...]()
    if scattered:
        dtypes = {a.name: a.dtype for a in ir.arrays}
        n_bytes = copies_bytes(ir, loop, scattered)
        updated = work.updates_of(loop.body, scattered, dtypes, n_bytes)
        way = updated.way(one_ns, whole, cores)
        if way == work.BY_ONE:
            return step
        if way == work.IN_COPIES:
            copied = tuple(dict.fromkeys(u.array for u in scattered))
        else:
            atomics = frozenset(scattered)
    if whole is None or whole >= _ROWS_FOR_EACH * cores:
        levels = 1
    known = [x for x in extents[:levels] if x is not None]
    inside_ns = one_ns / max(1, prod(known[1:]))
    first = work.first_that_pays(inside_ns)
    unit = 16 if len(known) == levels and prod(known) >= 64 * cores and levels == len(nest) else 1
    share = _share(nest, levels, Share(first, unit, copied=copied))
    return LoopStep(loop, levels, True, share, free, sums, atomics)


def _share(nest: Sequence[For], levels: int, share: Share) -> Share:
    """Returns the work partition of a loop with a schedule for uneven iterations; even ones leave it as it is.

    Iterations are divided by their rows where these follow one another. That costs a bisection a thread and leaves each thread the
    same rows in every call. Else threads take part by part, which costs an atomic operation a part.
    """
    body = nest[levels - 1].body
    if not is_uneven(body):
        return share
    rows = row_starts(nest[0].loop, body) if levels == 1 else None
    if rows is not None:
        return replace(share, schedule="BALANCED", rows=rows)
    return replace(share, schedule="GUIDED")


# --- independent iterations


def _perfect_nest(loop: For) -> tuple[For, ...]:
    """Returns the loop and the loops directly in one another, of constant extent."""
    loops = [loop]
    while len(loops[-1].body) == 1:
        (inner,) = loops[-1].body
        if not isinstance(inner, For) or not isinstance(inner.extent, Const):
            break
        loops.append(inner)
    return tuple(loops)


def _independent(nest: Sequence[For]) -> tuple[int, frozenset[str]]:
    """Returns the number of loops of the nest, from the outside, that are distributed as one, and the loops that a compiler may run
    at once.

    The outermost is parallel by definition, the others where no iteration accesses an element that another one stores. Only then is
    the outermost reported to the compiler too: in one thread an order that a program leaves open is preserved.
    """
    for levels in range(len(nest), 0, -1):
        if not all(isinstance(x.extent, Const) for x in nest[:levels]):
            continue
        if _are_apart(nest[:levels], nest[levels - 1].body):
            return levels, frozenset(x.loop for x in nest[:levels])
    return 1, frozenset()


def _are_apart(loops: Sequence[For], body: tuple[Stmt, ...]) -> bool:
    """True if no iteration of the loops accesses an element that another one stores or updates.

    False also for a body with a while loop, a print or an assertion.
    """
    if any(isinstance(s, While | Print | Assert) for s in nested_statements(body)):
        return False
    return not conflicting(_sites(loops, body), _loops_of(loops))


def _loops_of(loops: Sequence[For]) -> tuple[Loop, ...]:
    return tuple(Loop(x.loop, _constant(x.extent) or UNBOUNDED, False) for x in loops)


def _sites(loops: Sequence[For], body: tuple[Stmt, ...]) -> tuple[Site, ...]:
    return _analysed(_loops_of(loops), body)


@lru_cache(maxsize=16)  # several questions about one loop
def _analysed(loops: tuple[Loop, ...], body: tuple[Stmt, ...]) -> tuple[Site, ...]:
    return analyse(body, loops, Reason(Closure.ORDER, "", NOWHERE)).sites


def _lanes(ir: KernelIR, loop: For, vector_bytes: int) -> Lanes | None:
    """Returns the vectorised loop of a top-level loop's nest, if there is one. Each lane makes conflicting updates by itself."""

    def are_apart(loops: Sequence[For], body: tuple[Stmt, ...]) -> bool:
        sites = _sites(loops, body)
        seen = {s.state.name for s in sites if s.op != "update"}
        shared = conflicting(sites, _loops_of(loops))
        return not shared or (ir.fast_math and seen.isdisjoint(shared))

    return lanes_of(problem_of(ir), _perfect_nest(loop), are_apart, vector_bytes)


def _ranges(ir: KernelIR, loop: For, vector_bytes: int) -> tuple[Lanes, ...]:
    """Returns the loops inside a loop that are vectorised: their lengths are known only at run time, and they look indices up.

    The others are left to compilers, which vectorise plain sums. Measured with AVX2, CSR rows of 4 to 100 elements take 0.75 of the
    time of scalar ones. Vectors over rows take 2.5 to 15 times as long, since no accesses are contiguous then.
    """
    return ranges_of(problem_of(ir), loop.body, ir.fast_math, vector_bytes)


# --- updates of elements that iterations share


def _shared_updates(loop: For) -> list[Update]:
    """Returns updates of elements that several iterations may update, in the order of the text: all of an array, or none."""
    sites = [s for s in _sites((loop,), loop.body) if s.op == "update"]
    shared = conflicting(sites, _loops_of((loop,)))
    return [s for s in nested_statements(loop.body) if isinstance(s, Update) and s.array in shared]


def _sums(
    ir: KernelIR, loop: For, shared: dict[str, DType], updates: Sequence[Update]
) -> Iterable[Sum]:
    """Yields reductions into one element, or into a local of the kernel, that no iteration reads."""
    if not ir.fast_math:
        return
    inside = list(nested_statements(loop.body))
    loaded = {x.array for s in inside for e in children(s) for x in walk(e) if isinstance(x, Load)}
    stored = {s.array for s in inside if isinstance(s, Store)}
    kinds: dict[str, dict[tuple[Expr | float, ...], set[tuple[str, str]]]] = {}
    for s in inside:
        if isinstance(s, Update):
            kinds.setdefault(s.array, {}).setdefault(_place(s), set()).add((s.op, s.result))
    dtypes = {a.name: a.dtype for a in ir.arrays}
    found: dict[tuple[str, tuple[Expr, ...]], Sum] = {}
    changing = {local_changed(s) for s in inside} - {""}
    for u in updates:
        is_fixed = not any(
            isinstance(x, LoopIndex | Load) or (isinstance(x, Local) and x.name in changing)
            for e in u.indices
            for x in walk(e)
        )
        places = kinds[u.array]
        # Other places of the array are other elements only where all of them are constants.
        is_apart = len(places) == 1 or not any(isinstance(x, Expr) for i in places for x in i)
        is_plain = places[_place(u)] == {(u.op, "")}
        if is_fixed and is_apart and is_plain and u.array not in loaded | stored:
            found[u.array, u.indices] = Sum(u.op, dtypes[u.array], u.array, u.indices, "")
    yield from found.values()
    ops = {s.name: s.op for s in inside if isinstance(s, UpdateLocal) and s.name in shared}
    for name, op in ops.items():
        yield Sum(op, shared[name], "", (), name)


def _place(u: Update) -> tuple[Expr | float, ...]:
    """Returns the element of an update: equal constants of several types are one."""
    return tuple(x.value if isinstance(x, Const) else x for x in u.indices)


def _constant(extent: Expr) -> int | None:
    return max(0, int(extent.value)) if isinstance(extent, Const) else None
