"""What the bound reads: the facts of a space and its target, flattened once into arrays."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...kernels.ir.effects import arrays_read, arrays_written
from ...kernels.ir.task import Task
from ...space.backbone import INNER, MID, OUTER
from ...space.engine.candidate import Space
from ...space.targets.target import Target
from .columns import Floats, Ints, Universes, int_rows
from .element_loads import element_loads
from .operations import SureOperations, expression_weight
from .streams import is_fresh, passes, stream_tables
from .traffic import read_bytes, written_bytes

# A compiler unrolls a loop of up to 16 iterations completely; one more may be cut and stands behind it (codegen/emit.py).
MAX_PEELED = 17


class BoundTables(NamedTuple):
    """Positions of variables, bytes and ns. A variable of -1 stands for "there is none"."""

    # the machine
    cores: float
    capacity: Floats  # [n_levels + 1] bytes in the registers and the caches inside level k
    rate: Floats  # [n_levels + 1] bytes per ns read from level k; the last one is the memory
    write_rate: float
    mixed_rate: float
    call_ns: float
    launch_ns: float
    barrier_ns: float
    # dims and pairs of tasks
    outer: Ints  # [n, 7] task, kind, extent; of mid and of inner: size, where its universe begins
    vector: Ints  # [n, 2] task, kind: inner dims that may be vectors
    universe: Ints  # all universes of sizes, one after the other
    merge: Ints  # [n, 3] task, task, order of their outer dims
    pair: Ints  # [n, 4] task, task, fused, 1 where one depends on the other
    # arrays: who touches them, in program order
    touch_start: Ints  # [n_arrays + 1]
    touch: Ints  # [n, 5] task, 1 where it may write, store, first and end of its flows
    touch_bytes: Floats  # [n, 2] surely read, surely written
    flow: Ints  # [n, 2] of the flows of touches: mem_space, task that the value comes from
    touch_fresh: Ints  # [n] 1 where it writes lines that no task of the call has read before
    passes: Ints  # [n_arrays] how it is gone through, see streams.py
    reused_bytes: float  # of arrays both written and read: keeping a dirty line can save two trips
    stream: Ints  # [n_kinds, 4] cores, 1 of updates in place, where its points begin and end
    stream_point: Floats  # [n, 4] bytes read and written; bytes a ns read and written
    after: Ints  # [n_tasks, n_tasks] 1 where the second depends on the first, whatever is between
    # arithmetic
    operations_ns: Floats  # [n_tasks] on all cores, in vectors
    lanes: Floats  # [n_tasks] by how much scalar code is slower
    chain_ns: Floats  # [n_tasks] of one accumulator; 0 where there is more than one result
    chain: Ints  # [n, 4] task, size, where its universe begins, largest size that counts
    load_group: Ints  # [n, 4] task, kind of its vector loop, first and end of its reads: those of one innermost loop
    load: Ints  # [n, 3] where it is read, first and end of the loops that it does not depend on
    load_ns: Floats  # of the loads, on all cores, if nothing was loaded once for several iterations
    load_spared: Ints  # [n, 5] of mid and of inner: size, where its universe begins; extent
    barrier: Ints  # [n, 3] kind of a reduced outer dim, task that reads the result, fused


def build_tables(space: Space, compiler_vectorises: bool) -> BoundTables:
    """The tables of a space made by `build_space`."""
    universe = Universes(space)
    return BoundTables(
        **_machine(space.target),
        **stream_tables(space.target),
        passes=passes(space.problem),
        after=_after(space),
        outer=_outer_dims(space, universe),
        vector=_vector_dims(space),
        merge=_merges(space),
        pair=_pairs(space),
        **_touches(space),
        **_operations(space, compiler_vectorises),
        **_chains(space, universe),
        **element_loads(space, universe),
        universe=universe.array(),
        barrier=_barriers(space),
    )


def _machine(target: Target) -> dict[str, Any]:
    registers = float(target.vector_registers * target.vector_bytes * target.cores)
    held = np.cumsum([registers, *(level.capacity_bytes for level in target.levels)])
    rates = [level.read_bytes_per_ns for level in target.levels]
    # Updates in place move as much out as in, and may write faster than pure writes were seen to.
    mixed = target.memory_mixed_bytes_per_ns
    read, write = target.memory_read_bytes_per_ns, target.memory_write_bytes_per_ns
    return {
        "cores": float(target.cores),
        "capacity": held.astype(np.float64),
        "rate": np.array([*rates, max(read, mixed / 2)], np.float64),
        "write_rate": float(max(write, mixed / 2)),
        "mixed_rate": float(max(mixed, read, write)),
        "call_ns": float(target.call_ns),
        "launch_ns": float(target.launch_ns),
        "barrier_ns": float(target.barrier_ns),
    }


def _outer_dims(space: Space, universe: Universes) -> Ints:
    v, rows = space.variables, []
    for d in space.backbone.dims:
        if d.level == OUTER:
            row = [d.task, v.kind[d], d.loop.extent]
            for level in (MID, INNER):
                part = space.backbone.dim(d.task, d.loop.name, level)
                row += [v.size[part], universe.at(part)]
            rows.append(tuple(row))
    return int_rows(rows, 7)


def _vector_dims(space: Space) -> Ints:
    kinds = space.variables.kind
    return int_rows(((d.task, kinds[d]) for d in space.backbone.dims if d.level == INNER), 2)


def _merges(space: Space) -> Ints:
    b = space.backbone
    rows = []
    for m in b.merges:
        a, c = b.dim(m.a, m.loop_a, OUTER), b.dim(m.b, m.loop_b, OUTER)
        rows.append((m.a, m.b, space.model.order(a.order_id, c.order_id)))
    return int_rows(rows, 3)


def _pairs(space: Space) -> Ints:
    bound = {(d.source, d.sink) for d in space.backbone.dependences}
    fused = space.variables.fused
    return int_rows(((a, b, var, int((a, b) in bound)) for (a, b), var in fused.items()), 4)


def _after(space: Space) -> Ints:
    n = len(space.problem.tasks)
    after = np.zeros((n, n), np.int64)
    for d in space.backbone.dependences:
        after[d.source, d.sink] = 1
    for between in range(n):
        after |= np.outer(after[:, between], after[between])
    return after


def _touches(space: Space) -> dict[str, Any]:
    v, problem = space.variables, space.problem
    rows: list[tuple[int, ...]] = []
    amounts: list[tuple[int, int]] = []
    fresh: list[int] = []
    start, flows, reused = [0], list[tuple[int, int]](), 0
    for array in problem.arrays:
        is_temp = array.role == "temp"
        readers = writers = False
        for t, task in enumerate(problem.tasks):
            reads, writes = array.name in arrays_read(task), array.name in arrays_written(task)
            readers, writers = readers or reads, writers or writes
            if not reads and not writes:
                continue
            first = len(flows)
            flows += [
                (var, f.producer)
                for f, var in v.mem_space.items()
                if (f.consumer, f.array) == (t, array.name)
            ]
            # Only a temporary has a store to leave away; what it may leave away and cannot is open.
            store = v.store.get(t, -1) if is_temp and writes else -1
            read = read_bytes(task, array, space.target.line_bytes)
            written = written_bytes(task, array)
            if is_temp:
                read = read if flows[first:] else 0
                written = written if store >= 0 else 0
            rows.append((t, int(writes), store, first, len(flows)))
            amounts.append((read, written))
            fresh.append(int(writes and is_fresh(problem, t, array.name)))
        start.append(len(rows))
        reused += array.size_bytes if readers and writers else 0
    return {
        "touch_start": np.array(start, np.int64),
        "touch": int_rows(rows, 5),
        "touch_bytes": np.array(amounts, np.float64).reshape(-1, 2),
        "touch_fresh": np.array(fresh, np.int64),
        "flow": int_rows(flows, 2),
        "reused_bytes": float(reused),
    }


def _operations(space: Space, compiler_vectorises: bool) -> dict[str, Any]:
    target: Target = space.target
    counter = SureOperations()
    ns, lanes = [], []
    for task in space.problem.tasks:
        f32, f64 = counter.count(task)
        ns.append(f32 / target.f32_flops_per_ns + f64 / target.f64_flops_per_ns)
        lanes.append(1.0 if compiler_vectorises else _scalar_slowdown(target, task, f32 + f64))
    return {"operations_ns": np.array(ns), "lanes": np.array(lanes)}


def _scalar_slowdown(target: Target, task: Task, operations: float) -> float:
    """How much longer the operations of a task take when nothing in it is a vector.

    What finishes a reduction does not count: loops over results in memory are written apart from the
    task's register tiles, and ask the compiler for vectors themselves.
    """
    outputs = prod(loop.extent for loop in task.loops if not loop.is_reduction)
    finishing = min(operations, outputs * expression_weight(task.finish))
    lanes = target.lanes(task.dtype.size_bytes)
    return ((operations - finishing) * lanes + finishing) / operations if operations else 1.0


def _chains(space: Space, universe: Universes) -> dict[str, Any]:
    ns, rows = [], []
    for t, task in enumerate(space.problem.tasks):
        steps = _chain_steps(task)
        ns.append(steps * space.target.add_latency_ns)
        for d in space.backbone.dims_of(t) if steps else ():
            if d.level != OUTER:
                # Copies in a row may be added up as a tree before they meet the accumulator.
                most = MAX_PEELED if d.level == MID else 1 << 30
                rows.append((t, space.variables.size[d], universe.at(d), most))
    return {"chain_ns": np.array(ns, np.float64), "chain": int_rows(rows, 4)}


def _chain_steps(task: Task) -> int:
    """Dependent steps of a task that reduces all to one number; others overlap their results."""
    if not task.is_structured or not task.is_reduction or not task.dtype.is_float:
        return 0
    if any(not loop.is_reduction and loop.extent > 1 for loop in task.loops):
        return 0
    return prod(loop.extent for loop in task.loops)


def _barriers(space: Space) -> Ints:
    v, rows = space.variables, []
    for f in space.backbone.flows:
        fused = v.fused[min(f.producer, f.consumer), max(f.producer, f.consumer)]
        for d in space.backbone.dims_of(f.producer):
            if d.level == OUTER and d.loop.is_reduction:
                rows.append((v.kind[d], f.consumer, fused))
    return int_rows(rows, 3)
