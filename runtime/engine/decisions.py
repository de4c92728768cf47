"""Default decisions for a kernel that is called by itself: which of its loops a team shares, how updates that meet are made.

Nothing is searched and nothing timed. The numbers are nanoseconds on one core, rough on purpose: they only have to tell a loop of
microseconds from one of milliseconds, and an update that waits for a lock from one that does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from math import inf, prod

from ...codegen.c.lanes import Lanes
from ...codegen.kernel_plan import KernelPlan, LoopStep, Share, Sum, WaveStep
from ...codegen.lower_kernel import problem_of
from ...kernels.ir.access import AccessSet
from ...kernels.ir.body import Closure, Reason, Site, analyse
from ...kernels.ir.domain import BOX, UNBOUNDED, Loop
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
    Select,
    SetLocal,
    Stmt,
    Store,
    Unary,
    Update,
    UpdateLocal,
    While,
)
from ...kernels.ir.meeting import meet_in
from ...kernels.ir.ranges import is_uneven, row_starts
from ...kernels.ir.walk import blocks, children, local_changed, nested_statements, walk
from ...kernels.offload.distribute import unique_loops
from .lanes import lanes_of, ranges_of
from .thread_copies import copies_bytes
from .waves import wave_at

# A team is awake within 1 us and asleep after 200; from then on it comes after 5 to 50 us (runtime/cpu/team.c).
_TEAM_PAYS_NS = 30_000.0
_NODE_NS = 0.25  # an operation or access, some of them in vectors
_FUNCTION_NS = 4.0  # sin, exp and the like
_UNKNOWN_TRIPS = 8.0  # of a loop whose extent is not known
# Measured on two cores: 27 x 4 adds a particle took 44 to 63 ns plain and 580 to 625 by compare and swap.
_PLAIN_UPDATE_NS = 0.5
_CAS_NS = 5.6
_FETCH_ADD_NS = 4.0
# A copy of an array is cleared, comes into a cache, and is added up: 1.3 ms for 4 MiB on two cores.
_COPY_NS_PER_BYTE = 0.3
_MOST_COPY_BYTES = 64 << 20  # of all copies of a loop
# Of the operations between such updates compilers leave a tenth: the same terms of several are computed once, and in vectors.
# A particle of mpm88 takes 25 ns on one core where its nodes say 478, one of mpm128 63 where they say 708.
_LEFT = 0.1
_MOST_COPIES = 8  # of a body that is written out, and of operations in all copies
_MOST_COPIED_NODES = 4096
_ROWS_FOR_EACH = 8  # outer iterations a thread from which on inner loops are left whole


def default_plan(ir: KernelIR, cores: int, vector_bytes: int = 0) -> KernelPlan:
    """The plan of a kernel on a machine with so many cores and registers of so many bytes; 0: no loop runs in lanes."""
    body = unique_loops(ir.body)
    shared = _shared_locals(body)
    steps: list[Stmt | LoopStep | WaveStep] = []
    behind = 0  # what the last wavefronts run
    for k, s in enumerate(body):
        if k < behind:
            continue
        wave = wave_at(body, k, cores, _work_ns, _TEAM_PAYS_NS)
        if wave is not None:
            steps.append(wave[0])
            behind = k + wave[1]
        elif isinstance(s, For) and not _is_bound_to_one_thread(ir, s, shared):
            step = _loop_step(ir, s, shared, cores)
            free = step.independent | _by_definition(ir, s)
            ranges = _ranges(ir, s, vector_bytes)
            lanes = None if ranges else _lanes(ir, s, vector_bytes)
            made = replace(step, independent=free, lanes=lanes, ranges=ranges, copies=_copies(s))
            steps.append(made)
        else:
            steps.append(s)
    return KernelPlan(ir, tuple(steps), cores)


def _copies(loop: For) -> dict[str, int]:
    """Loops over few rows are written out where their index decides something in the row: then it is decided before. The rows are
    not, as compilers make vectors of loops only.
    """
    found: dict[str, int] = {}
    for x in nested_statements(loop.body):
        n = _constant(x.extent) if isinstance(x, For) else None
        if not isinstance(x, For) or n is None or n > _MOST_COPIES:
            continue
        inside = list(nested_statements(x.body))
        rows = [s for s in inside if isinstance(s, For)]
        nodes = [e for s in inside for part in children(s) for e in walk(part)]
        asked = (k for e in nodes if isinstance(e, Select) for k in walk(e.condition))
        decides = any(isinstance(k, LoopIndex) and k.loop == x.loop for k in asked)
        if len(rows) == 1 and decides and n * len(nodes) <= _MOST_COPIED_NODES:
            found |= {x.loop: n, rows[0].loop: 1}
    return found


def _by_definition(ir: KernelIR, loop: For) -> frozenset[str]:
    """Loops in a loop whose iterations are as parallel as its own; they have numbers behind their names by now."""
    return frozenset(
        x.loop
        for x in nested_statements(loop.body)
        if isinstance(x, For) and x.loop.partition("@")[0] in ir.independent
    )


def _shared_locals(body: Sequence[Stmt]) -> dict[str, DType]:
    """Locals that are set outside of the loops, with their types."""
    return {
        x.name: x.value.dtype
        for s in body
        if not isinstance(s, For)
        for x in nested_statements((s,))
        if isinstance(x, SetLocal)
    }


def _is_bound_to_one_thread(ir: KernelIR, loop: For, shared: dict[str, DType]) -> bool:
    """Whether the order of iterations can be seen: they print, or pass a local of the kernel on in another way than as a sum that
    may be reordered.
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
    one_ns = _work_ns(nest[0].body)
    whole = extents[0]
    step = LoopStep(loop, independent=free, sums=sums)
    if cores < 2 or (scattered and not ir.fast_math):
        return step
    if whole is not None and whole * one_ns < _TEAM_PAYS_NS:
        return step
    atomics, copied = frozenset[Update](), tuple[str, ...]()
    if scattered:
        atomic_ns = sum(_times_ns(loop.body, u, _atomic_ns(ir, u)) for u in scattered)
        plain_ns = sum(_times_ns(loop.body, u, _PLAIN_UPDATE_NS) for u in scattered)
        between_ns = _LEFT * one_ns
        shared_ns = (between_ns + atomic_ns) / cores
        n_bytes = copies_bytes(ir, loop, scattered) * (cores - 1)
        own_ns = inf
        if whole and 0 < n_bytes <= _MOST_COPY_BYTES:
            own_ns = (between_ns + plain_ns) / cores + _COPY_NS_PER_BYTE * n_bytes / whole
        if min(shared_ns, own_ns) > between_ns + plain_ns:
            return step
        if own_ns < shared_ns:
            copied = tuple(dict.fromkeys(u.array for u in scattered))
        else:
            atomics = frozenset(scattered)
    if whole is None or whole >= _ROWS_FOR_EACH * cores:
        levels = 1
    known = [x for x in extents[:levels] if x is not None]
    inside_ns = one_ns / max(1, prod(known[1:]))
    first = max(2, int(_TEAM_PAYS_NS / max(inside_ns, 0.1)))
    unit = 16 if len(known) == levels and prod(known) >= 64 * cores and levels == len(nest) else 1
    share = _share(nest, levels, Share(first, unit, copied=copied))
    return LoopStep(loop, levels, True, share, free, sums, atomics)


def _share(nest: Sequence[For], levels: int, share: Share) -> Share:
    """Uneven iterations are shared out by their rows where these follow one another, which costs a bisection a thread and leaves
    each thread the same rows in every call; else part by part, which costs an atomic operation a part.
    """
    body = nest[levels - 1].body
    if not is_uneven(body):
        return share
    rows = row_starts(nest[0].loop, body) if levels == 1 else None
    if rows is not None:
        return replace(share, schedule="BALANCED", rows=rows)
    return replace(share, schedule="GUIDED")


# --- which iterations are independent


def _perfect_nest(loop: For) -> tuple[For, ...]:
    """The loop and those directly in one another, of constant extent."""
    loops = [loop]
    while len(loops[-1].body) == 1:
        (inner,) = loops[-1].body
        if not isinstance(inner, For) or not isinstance(inner.extent, Const):
            break
        loops.append(inner)
    return tuple(loops)


def _independent(nest: Sequence[For]) -> tuple[int, frozenset[str]]:
    """How many loops of the nest, from the outside, are shared out as one, and which a compiler may run at once.

    The outermost is parallel by definition, the others where no iteration touches what another stores. A compiler is told so of
    the outermost too only then: in one thread an order that a program leaves open is kept.
    """
    for levels in range(len(nest), 0, -1):
        if not all(isinstance(x.extent, Const) for x in nest[:levels]):
            continue
        if _are_apart(nest[:levels], nest[levels - 1].body):
            return levels, frozenset(x.loop for x in nest[:levels])
    return 1, frozenset()


def _are_apart(loops: Sequence[For], body: tuple[Stmt, ...]) -> bool:
    """Whether no iteration of the loops touches an element that another one stores or updates."""
    if any(isinstance(s, While | Print | Assert) for s in nested_statements(body)):
        return False
    sites = _sites(loops, body)
    written = {s.state for s in sites if s.writes}
    return not any(
        _meet([s for s in sites if s.state == state], _loops_of(loops)) for state in written
    )


def _loops_of(loops: Sequence[For]) -> tuple[Loop, ...]:
    return tuple(Loop(x.loop, _constant(x.extent) or UNBOUNDED, False) for x in loops)


def _sites(loops: Sequence[For], body: tuple[Stmt, ...]) -> tuple[Site, ...]:
    return _analysed(_loops_of(loops), body)


@lru_cache(maxsize=16)  # several questions about one loop
def _analysed(loops: tuple[Loop, ...], body: tuple[Stmt, ...]) -> tuple[Site, ...]:
    return analyse(body, loops, Reason(Closure.ORDER, "", NOWHERE)).sites


def _meet(sites: Sequence[Site], loops: tuple[Loop, ...]) -> bool:
    """Whether two iterations of the loops may touch one element of an array at these sites, one of them writing."""
    if not all(s.is_unique for s in sites if s.writes):
        return True
    sets = dict.fromkeys(
        (AccessSet(BOX, (*loops, *s.loops), s.index, s.guard), s.writes) for s in sites
    )
    return any(
        meet_in(a, b, loops)
        for (a, a_writes), (b, b_writes) in combinations(sets, 2)
        if a_writes or b_writes
    )


def _lanes(ir: KernelIR, loop: For, vector_bytes: int) -> Lanes | None:
    """How a top-level loop runs in lanes, if it does. Of updates that meet each lane makes its own."""

    def are_apart(loops: Sequence[For], body: tuple[Stmt, ...]) -> bool:
        sites = _sites(loops, body)
        seen = {s.state for s in sites if s.op != "update"}
        met = [
            state
            for state in {s.state for s in sites if s.writes}
            if _meet([s for s in sites if s.state == state], _loops_of(loops))
        ]
        return all(state not in seen and ir.fast_math for state in met)

    return lanes_of(problem_of(ir), _perfect_nest(loop), are_apart, vector_bytes)


def _ranges(ir: KernelIR, loop: For, vector_bytes: int) -> tuple[Lanes, ...]:
    """The loops inside a loop that run in lanes: those of which only a run knows the lengths, and that look things up.

    The others are left to compilers, which put plain sums into vectors. Measured with AVX2: CSR rows of 4 to 100 elements take
    0.75 of the time of scalar ones, and over rows 2.5 to 15 times as long, since nothing is side by side then.
    """
    return ranges_of(problem_of(ir), loop.body, ir.fast_math, vector_bytes)


# --- updates of what iterations share


def _shared_updates(loop: For) -> list[Update]:
    """Updates of elements that several iterations may update, in the order of the text: all of an array, or none."""
    sites = [s for s in _sites((loop,), loop.body) if s.op == "update"]
    arrays = {s.state.name: [x for x in sites if x.state == s.state] for s in sites}
    met = {name for name, found in arrays.items() if _meet(found, _loops_of((loop,)))}
    return [s for s in nested_statements(loop.body) if isinstance(s, Update) and s.array in met]


def _sums(
    ir: KernelIR, loop: For, shared: dict[str, DType], updates: Sequence[Update]
) -> Iterable[Sum]:
    """Reductions into one element, or into a local of the kernel, that no iteration looks at."""
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
    """The element of an update: equal constants of several types are one."""
    return tuple(x.value if isinstance(x, Const) else x for x in u.indices)


def _atomic_ns(ir: KernelIR, u: Update) -> float:
    dtype = next(a.dtype for a in ir.arrays if a.name == u.array)
    return _FETCH_ADD_NS if dtype.is_integer and u.op == "add" else _CAS_NS


# --- work


def _constant(extent: Expr) -> int | None:
    return max(0, int(extent.value)) if isinstance(extent, Const) else None


def _work_ns(body: Sequence[Stmt]) -> float:
    """About how long one iteration takes."""
    total = 0.0
    for s in body:
        total += sum(_expression_ns(e) for e in children(s))
        inside = sum(_work_ns(b) for b in blocks(s))
        if isinstance(s, For):
            n = _constant(s.extent)
            inside *= _UNKNOWN_TRIPS if n is None else n
        elif isinstance(s, While):
            inside *= _UNKNOWN_TRIPS
        total += inside + _NODE_NS
    return total


def _expression_ns(e: Expr) -> float:
    return sum(
        _FUNCTION_NS
        if isinstance(x, Unary) and x.dtype.is_float and x.op not in _CHEAP
        else _NODE_NS
        for x in walk(e)
    )


_CHEAP = ("neg", "abs", "floor")


def _times_ns(body: Sequence[Stmt], update: Update, each_ns: float) -> float:
    """What one update takes in an iteration of the body, if it took so long each time."""
    total = 0.0
    for s in body:
        if s is update:
            total += each_ns
        inside = sum(_times_ns(b, update, each_ns) for b in blocks(s))
        if isinstance(s, For):
            n = _constant(s.extent)
            inside *= _UNKNOWN_TRIPS if n is None else n
        total += inside
    return total
