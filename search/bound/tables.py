"""Input tables of the bound: facts of a space and its target, as arrays that compiled functions read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import log2, prod
from typing import Any, NamedTuple

import numpy as np

from ...kernels.analysis.domain_bounds import cuts_of, points
from ...kernels.analysis.effects import arrays_read, arrays_written
from ...kernels.analysis.must_execute import surely
from ...kernels.ir.access import access_of, index_loops
from ...kernels.ir.domain import Loop
from ...kernels.ir.kernel import DType
from ...kernels.ir.task import Task
from ...kernels.ir.walk import loads, walk
from ...kernels.tasks.guarded_bodies import followed
from ...kernels.tasks.shared_values import spared_by
from ...space.backbone import INNER, MID, OUTER
from ...space.candidate import Space
from ...space.families.wavefronts import sweep_of
from ...space.targets.target import FunctionRate, Target
from .bodies import body_bytes, body_operations
from .columns import Floats, Ints, Table, Universes, table
from .gathers import gather_tables, single_gathers_ns
from .lists import list_tables
from .operations import SureOperations
from .ports import MAX_PEELED, may_overlap, ports, staged_at
from .streams import is_fresh, passes, stream_tables
from .tiles import tile_tables
from .traffic import read_bytes, written_bytes
from .weights import Amounts, calls_of, expression_weight, flops_of, products_of

APART = -2  # in place of the variable of a flow
NOT_WHOLE = -2  # in place of the variable of an operand
_SIZES = {"f32": 4, "f64": 8}  # of the types that functions have rates for


class BoundTables(NamedTuple):
    """Input tables of the bound: positions of variables, bytes and ns.

    A variable of -1 means that there is none.
    """

    # the machine
    cores: float
    capacity: Floats  # [n_levels + 1] bytes in the registers and the caches inside level k
    own: Floats  # [n_levels + 1] bytes of them that one core can reach, if none of them were shared by all
    sharers: Floats  # [n_levels + 1] cores (hardware threads) that share them
    rate: Floats  # [n_levels + 1] bytes per ns read from level k; the last one is the memory
    write_rate: float
    mixed_rate: float
    call_ns: float
    launch_ns: float
    barrier_ns: float
    # dims and pairs of tasks
    # task kind schedule (-1: in blocks); is_alike: iterations are as much work as others; extent; of mid and of inner: variable of
    # its size, where its universe begins
    outer: Table
    # of inner dims that may be vectors: task; variables of kind and size, where the universe begins; extent; staged: how an operand
    # is read that has to be packed where partial register tiles are computed whole, -1: none has to, NOT_WHOLE: they never are; ns
    # on all cores, in vectors, of operations that each iteration repeats; by how much elements one by one take longer
    vector: Table
    universe: Ints  # all universes of sizes, one after the other
    merge: Table  # a b, the tasks; order of their outer dims
    pair: Table  # a b, the tasks, in the order of b; fused; is_dependent: one depends on the other
    wave: Table  # task; waves, compaction: choice of serial order, except for values that threads share
    after: Ints  # [n_tasks, n_tasks] 1 where the second depends on the first, directly or not
    # repeats
    runs: Floats  # [n_tasks] how often a call runs each task
    step: (
        Ints  # [n_tasks] the least of the tasks around each between which no repeat begins or ends
    )
    # arrays: who touches them, in program order
    touch_start: Ints  # [n_arrays + 1]
    # task; is_written: it may be; store; first_flow end_flow; is_fresh: lines are written that no task of the call has read before;
    # read_bytes written_bytes: surely
    touch: Table
    # mem_space of the flows of touches, -1: surely memory, APART: memory where no loop is shared; producer of the value
    flow: Table
    passes: Ints  # [n_arrays] how it is gone through, see streams.py
    reused_bytes: float  # of arrays both written and read: keeping a dirty line can save two trips
    stream: Table  # cores; is_in_place: lines are updated; first end of its points
    stream_point: Table  # read_bytes written_bytes; read_rate written_rate in bytes a ns
    # arithmetic
    # operations_ns: on all cores, in vectors; starts_ns: of the least instructions of these; lanes: by how much scalar code is
    # slower; chain_ns: of one accumulator, 0 where there is more than one result; gathers_ns: on all cores, of loads that a body
    # surely makes one by one; sums_ns: on one core, of sums each of which waits for the one before
    task: Table
    # task; of an inner dim of a reduced loop: variables of kind and size, where its universe begins, extent; ns on all cores to
    # fold a vector of sums for each result
    fold: Table
    function: (
        Table  # kind: of a function and type; task; ns on all cores: in vectors, and one by one
    )
    chain: (
        Table  # task, dim_size, at: where its universe begins, most: the largest size that counts
    )
    # loads and stores, see ports.py
    # of each loop of a task: extent; is_reduced; of mid and of inner: variable of its size, where its universe begins
    port_loop: Table
    # task; kind of the dim in vectors, -1: none is; lanes of it; vector: its loop; loop and level: the innermost loop; its rows;
    # the other dims; ns on all cores to load and to store a vector of sums in each iteration, of all and in vectors alone
    port_group: Table
    port_other: Table  # order of another dim to the innermost loop; its loop and level
    # is_store; is_own: of an array that no earlier task reads; staged: where it is read; loops that it does not depend on; sources
    # from which it may come in registers; ns on all cores, one for each iteration: where it lies and packed, of all and in vectors
    # alone; what of that is spared; one for each element by itself, 0 where iterations may share it
    port: Table
    port_spared: Table  # loop; orders of its outer and mid dim to the innermost loop
    port_source: Table  # order of two loops: merged, the value may be in a register
    # task, staged; orders to its loops; ns on all cores to load and to store the elements of an operand once
    port_pack: Table
    port_around: Table  # order of an outer dim to one of a packed operand; its loop
    registers: float  # vectors of a core
    # tiles, see tiles.py: a task, store: variable of what it writes, -1: always written; its loops, arrays and segments; of a
    # product of two matrices its multiplications, results and bytes of an element
    tiled: Table
    tiled_loop: Table  # extent; is_reduced; kind of its outer dim; of its mid and inner dim: variable of its size, its universe
    # staged and space: where it is read; has_blocks: it may be packed in blocks without borders; its rows of sources; is_result:
    # sums; masks of loops: `depends` on them; `times`: elements are touched again in each of their tiles, lines in those of
    # `line_times` (0: no lines), those of conflicts in sets in those of `set_times` (sets.py); along: of neighbours; bytes of all
    # elements and lines, of lines in few sets (0: none), and of these what a first cache holds
    tiled_array: Table
    tiled_source: Table  # order of two loops: merged, the array may be written where it is read
    segment: Table  # loop, level; first of its orders
    segment_order: (
        Table  # orders of the outer and mid dim of each loop to that of the segment, -1: its own
    )
    most_loops: int  # of a task
    # task, listgen: when its list is made; ns on all cores, where it is made again, and where the profile has seen it made
    scan: Table
    # task; kind of a dim whose iterations may be lanes; loads: how lanes load neighbours, -1: one by one; ns on all cores of loads
    # at loaded indices, where lanes gather
    gather: Table
    atomic: Table  # task, scatter: how its updates are made; ns on all cores, where they are atomic
    sweep: Table  # task waves; of its tiles variables and universes of rows and columns; iterations, skewed inner indices
    barrier: Table  # kind of a reduced outer dim, reader of the result, fused
    # layout of leaves, lists or tables; order of the cells of leaves; -1: no such choice
    # launches that convert them, where one of both is not the program's
    converted: Table


def build_tables(space: Space, compiler_vectorises: bool) -> BoundTables:
    """Returns the tables of a space. `compiler_vectorises`: as in `Bounder`."""
    universe = Universes(space)
    return BoundTables(
        **_machine(space.target, is_part=space.part_of is not None),
        **stream_tables(space.target),
        passes=passes(space.problem, space.elsewhere),
        after=_after(space),
        runs=np.array([t.n_runs for t in space.problem.tasks], np.float64),
        step=_steps(space),
        outer=_outer_dims(space, universe),
        merge=_merges(space),
        pair=_pairs(space),
        wave=table(
            [*space.variables.waves.items(), *space.variables.of_tasks["compaction"].items()],
            "task waves",
        ),
        **_touches(space),
        **_tasks(space, universe, compiler_vectorises),
        fold=_folds(space, universe),
        chain=_chains(space, universe),
        **ports(space, universe),
        **tile_tables(space, universe),
        **list_tables(space),
        **gather_tables(space),
        atomic=_atomics(space),
        sweep=_sweeps(space, universe),
        universe=universe.array(),
        barrier=_barriers(space),
        converted=_converted(space),
    )


def _machine(target: Target, is_part: bool) -> dict[str, Any]:
    """Returns the tables of machine facts.

    `is_part`: the space is a component. Then no cost of a call counts: the bounds of all components
    are added up for one call.
    """
    registers = float(target.vector_registers * target.vector_bytes * target.cores)
    held = np.cumsum([registers, *(level.capacity_bytes for level in target.levels)])
    rates = [level.read_bytes_per_ns for level in target.levels]

    # Cores that share a cache of a level share all caches outside of it.
    sharers = np.maximum.accumulate(
        [1, *(min(level.shared_by, target.cores) for level in target.levels)]
    ).astype(np.float64)
    # Updates in place move as much out as in, and may write faster than pure writes were seen to.
    mixed = target.memory_mixed_bytes_per_ns
    read, write = target.memory_read_bytes_per_ns, target.memory_write_bytes_per_ns
    return {
        "cores": float(target.cores),
        "registers": float(target.vector_registers),
        "capacity": held.astype(np.float64),
        "sharers": sharers,
        "own": held * sharers / target.cores,
        "rate": np.array([*rates, max(read, mixed / 2)], np.float64),
        "write_rate": float(max(write, mixed / 2)),
        "mixed_rate": float(max(mixed, read, write)),
        "call_ns": 0.0 if is_part else float(target.call_ns),
        "launch_ns": float(target.launch_ns),
        "barrier_ns": float(target.barrier_ns),
    }


def _outer_dims(space: Space, universe: Universes) -> Table:
    v, rows = space.variables, []
    for d in space.backbone.dims:
        if d.level == OUTER:
            # Tiles of a triangle are not alike: threads with as many of them are not balanced.
            task = space.problem.tasks[d.task]
            is_even = not cuts_of(task)
            is_alike = is_even and task.is_structured and not task.is_guarded
            row = [d.task, v.kind[d], v.schedule.get(d, -1), int(is_alike)]
            row += [d.loop.extent if is_even else 0]
            for level in (MID, INNER):
                part = space.backbone.dim(d.task, d.loop.name, level)
                row += [v.size[part], universe.at(part)]
            rows.append(tuple(row))
    return table(rows, "task kind schedule is_alike extent mid_size mid_at inner_size inner_at")


def _converted(space: Space) -> Table:
    of_trees, parts = space.variables.of_trees, space.problem.parts
    if space.target.cores == 1:
        return table((), "layout order launches")  # what one thread converts takes no launch
    layouts, orders, records = (
        {site.name: var for site, var in of_trees[kind].items()}
        for kind in ("leaf_layout", "cell_order", "record")
    )
    rows = [
        (layouts.get(x.name, -1), orders.get(x.name, -1), 1 + x.is_written) for x in parts.leaves
    ]
    rows += [(records.get(x.name, -1), -1, 1 + x.is_written) for x in parts.lists]
    rows += [(var, -1, 2) for var in of_trees["directory"].values()]  # cleared, then made
    return table((row for row in rows if max(row[:2]) >= 0), "layout order launches")


def _merges(space: Space) -> Table:
    b = space.backbone
    rows = []
    for m in b.merges:
        a, c = b.dim(m.a, m.loop_a, OUTER), b.dim(m.b, m.loop_b, OUTER)
        rows.append((m.a, m.b, space.model.order(a.order_id, c.order_id)))
    return table(rows, "a b order")


def _pairs(space: Space) -> Table:
    bound = {(d.source, d.sink) for d in space.backbone.dependences}
    fused = space.variables.fused
    rows = sorted(
        ((a, b, var, int((a, b) in bound)) for (a, b), var in fused.items()),
        key=lambda row: (row[1], row[0]),
    )
    return table(rows, "a b fused is_dependent")


def _after(space: Space) -> Ints:
    n = len(space.problem.tasks)
    after = np.zeros((n, n), np.int64)
    for d in space.backbone.dependences:
        after[d.source, d.sink] = 1
    for between in range(n):
        after |= np.outer(after[:, between], after[between])
    return after


def _steps(space: Space) -> Ints:
    tasks = space.problem.tasks
    found: list[int] = []
    for t, task in enumerate(tasks):
        goes_on = t > 0 and tasks[t - 1].repeats == task.repeats
        found.append(found[-1] if goes_on else t)
    return np.array(found, np.int64)


def _touches(space: Space) -> dict[str, Any]:
    v, problem = space.variables, space.problem
    sources, spared = sources_of_reads(space), _spared(space)
    rows: list[tuple[float, ...]] = []
    start, flows, reused = [0], list[tuple[int, int]](), 0
    for array in problem.arrays:
        is_temp = array.role == "temp"
        readers = array.name in space.elsewhere.reads
        writers = array.name in space.elsewhere.writes
        for t, task in enumerate(problem.tasks):
            reads, writes = array.name in arrays_read(task), array.name in arrays_written(task)
            readers, writers = readers or reads, writers or writes
            if not reads and not writes:
                continue
            first = len(flows)
            flows += sources.get((t, array.name), [])
            # Only what does not outlive the sequence is a store to leave away.
            store = v.store.get(t, -1) if writes else -1
            shown = followed(task)
            # Lists, masks and tables have other forms: of these the profile has elements that are looked at (lists.py).
            profile = None if array.name in problem.parts.structure else space.profile
            if shown.is_structured:
                read = float(read_bytes(task, array, space.target.line_bytes))
                written = float(written_bytes(task, array))
            else:
                read, written = body_bytes(shown, array, profile, space.target.line_bytes)
            if (t, array.name) in spared:
                read = 0.0
            if is_temp:
                read = read if flows[first:] else 0
                written = written if store >= 0 else 0
            fresh = int(writes and is_fresh(problem, t, array.name))
            rows.append((t, int(writes), store, first, len(flows), fresh, read, written))
        start.append(len(rows))
        reused += array.size_bytes if readers and writers else 0
    return {
        "touch_start": np.array(start, np.int64),
        "touch": table(
            rows, "task is_written store first_flow end_flow is_fresh", "read_bytes written_bytes"
        ),
        "flow": table(flows, "mem_space producer"),
        "reused_bytes": float(reused),
    }


def sources_of_reads(space: Space) -> dict[tuple[int, str], list[tuple[int, int]]]:
    """Returns, by (task, array), the sources of its reads: (mem_space variable, producer) of each flow.

    The variable is -1 if the value comes through memory from another launch. It is APART if that
    holds whenever the two tasks surely have no loop in common.
    """
    found: dict[tuple[int, str], list[tuple[int, int]]] = {}
    tasks = space.problem.tasks
    for f, var in space.variables.mem_space.items():
        # Fused bodies pass values on without a choice for it.
        is_open = tasks[f.producer].is_structured and tasks[f.consumer].is_structured
        found.setdefault((f.consumer, f.array), []).append((var if is_open else APART, f.producer))
    for f in space.backbone.far_flows:
        found.setdefault((f.consumer, f.array), []).append((-1, f.producer))
    return found


def _spared(space: Space) -> frozenset[tuple[int, str]]:
    """The arrays from which a body loads less where it finds values that another one has stored, each with its task."""
    number = {task.name: t for t, task in enumerate(space.problem.tasks)}
    return frozenset(
        (consumer, array)
        for consumer, names in space.variables.of_places.get("materialised", {})
        for array in spared_by(space.problem, number[names.partition("->")[0]], consumer)
    )


def _tasks(space: Space, universe: Universes, compiler_vectorises: bool) -> dict[str, Any]:
    target: Target = space.target
    counter, vectors = SureOperations(space.profile), list[tuple[float, ...]]()
    rows, functions, spared = [], list[tuple[tuple[int, str], int, float, float]](), _spared(space)
    for t, task in enumerate(space.problem.tasks):
        along: dict[str, Amounts] = {}
        amounts = counter.amounts(task, along)
        f32, f64 = flops_of(amounts)
        ns, starts_ns = _arithmetic_ns(target, amounts)
        # Compilers may put bodies into vectors that no choice puts there (codegen/write/outlining.py).
        is_free = compiler_vectorises or not task.is_structured
        lanes = 1.0 if is_free else _scalar_slowdown(target, task, f32 + f64)
        vectors += _vector_dims(space, universe, t, {} if is_free else along, amounts)
        is_spared = any(t == u for u, _ in spared)
        gathers_ns = 0.0 if is_spared else single_gathers_ns(space, task)
        chain_ns = _chain_steps(task) * target.add_latency_ns
        sums = points(task) if task.is_structured and _has_slow_steps(task) else 0
        rows.append((ns, starts_ns, lanes, chain_ns, gathers_ns, sums * target.add_latency_ns))
        in_vectors = is_free or expression_weight(task.finish) > 0
        for key, n in calls_of(amounts).items():
            if rate := function_rates(target).get(key):
                alone = rate.vector_per_ns if in_vectors else rate.scalar_per_ns
                functions.append((key, t, n / rate.vector_per_ns, n / alone))
    return {
        "task": table(rows, "", "operations_ns starts_ns lanes chain_ns gathers_ns sums_ns"),
        "vector": table(vectors, "task kind dim_size at extent staged", "along_ns slower"),
        "function": _functions(functions),
    }


def function_rates(target: Target) -> dict[tuple[int, str], FunctionRate]:
    """Returns the known rates of functions by size of an element in bytes and name."""
    return {
        (_SIZES[x.dtype], x.op): x
        for x in target.functions
        if x.dtype in _SIZES and x.vector_per_ns >= x.scalar_per_ns > 0
    }


def _functions(rows: Iterable[tuple[tuple[int, str], int, float, float]]) -> Table:
    """Returns the table of functions: those of one name and type are one behind the other, and have one number."""
    ordered = sorted(rows)
    kinds = {key: k for k, key in enumerate(dict.fromkeys(key for key, *_ in ordered))}
    numbered = ((kinds[key], *rest) for key, *rest in ordered)
    return table(numbered, "kind task", "vector_ns scalar_ns")


def _vector_dims(
    space: Space, universe: Universes, t: int, along: Mapping[str, Amounts], amounts: Amounts
) -> Iterator[tuple[float, ...]]:
    """Yields a row for each inner dim of task `t`, of which `along` and `amounts` count the operations.

    A register tile that the end of a loop in vectors cuts is computed element by element, or whole
    (codegen/write/launch_writer.py). Flags forbid compilers to find vectors there. Bodies mask
    lanes, and guards, cuts and conditions leave out operations: nothing is known of their partial tiles.
    """
    task, kinds, sizes = space.problem.tasks[t], space.variables.kind, space.variables.size
    has_tails = task.is_structured and not (task.is_guarded or cuts_of(task) or _chooses(task))
    slower = _element_slowdown(space.target, task)
    every = _busy_ns(space.target, amounts)
    for d in space.backbone.dims_of(t):
        if d.level == INNER:
            # Of two kinds of units, those that all operations keep busy longer.
            own = _busy_ns(space.target, along.get(d.loop.name, {}) if has_tails else {})
            ns = own[every.index(max(every))]
            where = t, kinds[d], sizes[d], universe.at(d), d.loop.extent
            yield *where, _staged_along(space, t, d.loop), ns, slower


def _chooses(task: Task) -> bool:
    """True if an iteration may leave out a part of its value: elements behind the last vector may be those that do."""
    if task.value is None:
        return False
    return len(list(surely(task.value))) < len(list(walk(task.value)))


def _staged_along(space: Space, t: int, loop: Loop) -> int:
    """Returns how an operand is read that is packed wherever partial register tiles of a loop are computed whole.

    -1: nothing is known; NOT_WHOLE: they never are. Accumulators of a free loop may be padded, if
    all operands that the loop indexes are packed (`AccumulatorPlan.padded` of codegen/loops/ir.py).
    """
    task = space.problem.tasks[t]
    if task.value is None or may_overlap(space.target, task):
        return -1
    if loop.is_reduction or not task.is_reduction:
        return NOT_WHOLE
    reads = map(access_of, loads(task.value))
    along = [staged_at(space, t, x) for x in reads if loop.name in index_loops(x)]
    return NOT_WHOLE if -1 in along else min(along, default=-1)


def _arithmetic_ns(target: Target, amounts: Amounts) -> tuple[float, float]:
    """Returns the least ns of operations on all cores, and of their instructions alone; both in vectors.

    An instruction does two operations at most, and one multiplication.
    """
    counted = zip((4, 8), flops_of(amounts), products_of(amounts), strict=True)
    starts = sum(max(k, n / 2) / target.starts(size) for size, n, k in counted)
    return max(_busy_ns(target, amounts)), starts


def _busy_ns(target: Target, amounts: Amounts) -> tuple[float, float]:
    """Returns the ns in which operations in vectors keep units of multiply-adds busy, and all units of arithmetic.

    Only the units of multiply-adds multiply.
    """
    rates = (target.f32_flops_per_ns, target.f64_flops_per_ns)
    products = zip(products_of(amounts), rates, strict=True)
    operations = zip((4, 8), flops_of(amounts), strict=True)
    multiplied = sum(2 * n / fused for n, fused in products)
    return multiplied, sum(n / target.mixed_flops(size) for size, n in operations)


def _folds(space: Space, universe: Universes) -> Table:
    """Returns the table of reduced dims whose vectors of sums are folded.

    Each result is the sum of the lanes of at least one vector, by halving: log2(lanes) instructions
    on ever fewer elements (`fold` of codegen/bodies/c_vectors.py). Flags forbid compilers to join
    folds of several results (-fno-tree-slp-vectorize). Of two tasks that may have equal sums the
    first one counts.
    """
    rows, target, seen = [], space.target, set[object]()
    for t, task in enumerate(space.problem.tasks):
        lanes = target.lanes(task.lane_bytes)
        key = (task.op, frozenset(arrays_read(task)), tuple(x.extent for x in task.loops))
        if not _is_summed_whole(task) or lanes == 1 or key in seen:
            continue
        seen.add(key)
        size = task.dtype.size_bytes
        n_results = points(task, [x.name for x in task.loops if not x.is_reduction])
        ns = n_results * log2(lanes) * target.scalar_slowdown(size) / target.starts(size)
        for d in space.backbone.dims_of(t):
            if d.level == INNER and d.loop.is_reduction:
                v = space.variables
                rows.append((t, v.kind[d], v.size[d], universe.at(d), d.loop.extent, ns))
    return table(rows, "task kind dim_size at extent", "ns")


def _is_summed_whole(task: Task) -> bool:
    """True if each result of a task is a sum or a product of floats over all iterations of its loops."""
    is_plain = task.is_structured and not task.is_guarded and not cuts_of(task)
    return is_plain and _has_slow_steps(task)


def _has_slow_steps(task: Task) -> bool:
    """True for sums and products of floats. The least and the greatest of some have shorter latencies (one cycle on Zen)."""
    return task.is_reduction and task.dtype.is_float and task.op in ("add", "mul")


def _atomics(space: Space) -> Table:
    """Returns the table of atomic updates that several threads may make at once.

    It is empty unless the machine's least cost of an atomic update was measured.
    Updates that may be summed up in tiles are left out.
    """
    target, rows = space.target, []
    rates = {
        DType.f32: target.atomic_f32_per_ns,
        DType.f64: target.atomic_f64_per_ns,
        DType.i32: target.atomic_i32_per_ns,
    }
    for (t, name), var in space.variables.scatter.items():
        dtype, body = space.problem.array(name).dtype, space.problem.tasks[t].body
        in_tiles = {x.updated for x in body.trees.tiles} if body is not None else set()
        if rates.get(dtype) and name not in in_tiles:
            counter = body_operations(space.problem.tasks[t], space.profile)
            rows.append((t, var, counter.atomic_updates(name, dtype) / rates[dtype]))
    return table(rows, "task scatter", "ns")


def _scalar_slowdown(target: Target, task: Task, operations: float) -> float:
    """Returns the slowdown of a task's operations if none of them is vectorised.

    Operations of a reduction's finish do not count: loops over results in memory are outside the
    task's register tiles and are always vectors. With floats of two sizes, the least slowdown
    counts.
    """
    outputs = prod(loop.extent for loop in task.loops if not loop.is_reduction)
    finishing = min(operations, outputs * expression_weight(task.finish))
    slower = _element_slowdown(target, task)
    return ((operations - finishing) * slower + finishing) / operations if operations else 1.0


def _element_slowdown(target: Target, task: Task) -> float:
    """Returns the least slowdown of a task's operations on single elements."""
    floats = {x.dtype.size_bytes for x in task.numbers() if x.dtype.is_float} or {task.lane_bytes}
    return min(map(target.scalar_slowdown, floats))


def _chains(space: Space, universe: Universes) -> Table:
    rows = []
    for t, task in enumerate(space.problem.tasks):
        for d in space.backbone.dims_of(t) if _chain_steps(task) else ():
            if d.level != OUTER:
                # Adjacent register copies may be added up as a tree before they reach the accumulator.
                most = MAX_PEELED if d.level == MID else 1 << 30
                rows.append((t, space.variables.size[d], universe.at(d), most))
    return table(rows, "task dim_size at most")


def _chain_steps(task: Task) -> int:
    """Returns the length of the dependence chain in a task that reduces everything to one number.

    Other tasks overlap.
    """
    if not task.is_structured or not _has_slow_steps(task):
        return 0
    if any(not loop.is_reduction and loop.extent > 1 for loop in task.loops):
        return 0
    return points(task)


def _sweeps(space: Space, universe: Universes) -> Table:
    v, rows = space.variables, []
    for t, waves in v.waves.items():
        sweep = sweep_of(space.problem.tasks[t])
        assert sweep is not None
        sizes = [v.wave_sizes[t, k] for k in range(2)]
        at = [universe.at_sizes(tuple(map(int, space.choices[x].values))) for x in sizes]
        rows.append((t, waves, *sizes, *at, sweep.extent, sweep.width))
    return table(rows, "task waves rows columns rows_at columns_at extent width")


def _barriers(space: Space) -> Table:
    v, rows = space.variables, []
    for f in space.backbone.near_flows:
        fused = v.fused[min(f.producer, f.consumer), max(f.producer, f.consumer)]
        for d in space.backbone.dims_of(f.producer):
            if d.level == OUTER and d.loop.is_reduction:
                rows.append((v.kind[d], f.consumer, fused))
    return table(rows, "kind reader fused")
