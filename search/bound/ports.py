"""Ports: the loads and stores that a core surely starts, whatever the compiler does with registers.

A core starts only so many loads and stores in a cycle. A task loads a value once for all register
copies that share it, outside of those innermost loops that do not change it. Any loop that
compilers do not unroll may be innermost, as far as the order is open. So each is assumed to be
innermost in turn, and reads that depend on it are repeated in each of its iterations. The loop that
needs the least time gives the bound.

Along vectors a read of contiguous elements takes one load a vector, a read with a large stride one
load a lane. A sum whose result changes in the innermost loop is loaded and stored there (an
accumulator in memory). Each iteration of a reduced loop adds to all sums of a register tile. So at
its end those that no register holds are stored, and the next one loads them (spills).

A packed operand is loaded and stored once more for each iteration of the loops around its blocks.

A temporary is stored where that is decided, and where no other task writes it: of two stores a
compiler may leave the first one away.

Values that a compiler may find in another read's registers do not count: results of tasks that may
share a loop, and all but one of the reads of neighbouring elements in one array.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...kernels.analysis.domain_bounds import cuts_of, points
from ...kernels.analysis.effects import arrays_read, arrays_written, task_reads
from ...kernels.ir.access import Access, access_of, flat_strides
from ...kernels.ir.kernel import Binary, Expr, Select, Unary
from ...kernels.ir.task import Task
from ...space.backbone import INNER, MID, OUTER, Dim
from ...space.candidate import Space
from ...space.families.tiling import widest_vector
from ...space.targets.target import Target
from .columns import Universes, table
from .traffic import sure_loads

_MANY_LANES = 16  # of vectors, above which the last register tile may begin earlier

# Compilers leave loops of register tiles as they are, by their flags (KEEPS_LOOPS of runtime/cpu/compiler.py), but for those of two
# iterations with few operations each. One more may be cut, and stands behind the loop.
MAX_PEELED = 2
FEW_OPERATIONS = 4
# Operations of a task of which a compiler may leave no loop at all: gcc ends at 200 instructions, clang at some hundreds.
_MOST_UNROLLED = 1024


@dataclass(frozen=True)
class _Moved:
    """Elements that a task loads or stores: one for each combination of `loops`, without the first `spared` ones."""

    access: Access
    size_bytes: int
    loops: frozenset[str]
    n: float  # iterations
    spared: float = 0.0
    is_store: bool = False
    staged: int = -1  # variable of its staging; -1: not staged
    store: int = -1  # variable that leaves the stores away; -1: they are made
    sources: tuple[int, ...] = ()  # orders of loops: once merged, the value may be in a register
    is_own: bool = True  # no earlier task that may share a loop reads the array
    is_wide: bool = False  # vectors of another task may hold it
    is_shared: bool = False  # another task that may share a loop touches the array


def ports(space: Space, universe: Universes) -> dict[str, Any]:
    """Returns the tables of `BoundTables` for loads and stores; empty if their rates are unknown."""
    made = _Tables(space, universe)
    for t, task in enumerate(space.problem.tasks) if space.target.loads_per_ns else ():
        moved = list(_moved(space, t))
        if moved:
            made.add(t, task, moved)
    return made.tables()


class _Tables:
    """Rows of the port tables, added task by task."""

    def __init__(self, space: Space, universe: Universes) -> None:
        self.space, self.universe = space, universe
        self.loops: list[tuple[int, ...]] = []
        self.groups: list[tuple[float, ...]] = []
        self.others: list[tuple[int, ...]] = []
        self.rows: list[tuple[float, ...]] = []
        self.spared: list[tuple[int, ...]] = []
        self.sources: list[tuple[int, ...]] = []
        self.packs: list[tuple[float, ...]] = []
        self.around: list[tuple[int, ...]] = []

    def tables(self) -> dict[str, Any]:
        return {
            "port_loop": table(self.loops, "extent is_reduced mid_size mid_at inner_size inner_at"),
            "port_group": table(
                self.groups,
                "task kind lanes vector loop level first end other other_end",
                "spill_load spill_load_wide spill_store spill_store_wide",
            ),
            "port_other": table(self.others, "order loop level"),
            "port": table(
                self.rows,
                "is_store is_own staged store first end source source_end",
                "direct direct_wide packed packed_wide spared spared_wide single",
            ),
            "port_spared": table(self.spared, "loop outer mid"),
            "port_source": table(self.sources, "order"),
            "port_pack": table(
                self.packs, "task staged first end", "load load_wide store store_wide"
            ),
            "port_around": table(self.around, "order loop"),
        }

    def add(self, t: int, task: Task, moved: list[_Moved]) -> None:
        """Adds a group of rows for each combination of a vectorised loop of task `t` (or none) and an innermost loop."""
        space, v = self.space, self.space.variables
        place = {loop.name: len(self.loops) + k for k, loop in enumerate(task.loops)}
        for loop in task.loops:
            mid, inner = (space.backbone.dim(t, loop.name, k) for k in (MID, INNER))
            at = (self.universe.at(mid), self.universe.at(inner))
            sizes = (v.size[mid], at[0], v.size[inner], at[1])
            self.loops.append((loop.extent, int(loop.is_reduction), *sizes))
        dims = [d for d in space.backbone.dims_of(t) if d.level != INNER]
        for vector in ("", *(loop.name for loop in task.loops)):
            kind = v.kind[space.backbone.dim(t, vector, INNER)] if vector else -1
            for d in dims:
                first, other = len(self.rows), len(self.others)
                for e in (e for e in dims if e != d):
                    order = space.model.order(e.order_id, d.order_id)
                    self.others.append((order, place[e.loop.name], e.level))
                for x in (x for x in moved if d.loop.name in x.loops):
                    self._row(t, task, x, vector, d, place)
                ends = (first, len(self.rows), other, len(self.others))
                lanes = space.target.lanes(task.lane_bytes)
                lanes = widest_vector(_extent(task, vector), lanes) if vector else 1
                spills = self._spills(task, moved, d) if vector else (0.0,) * 4
                where = (place.get(vector, -1), place[d.loop.name], d.level)
                self.groups.append((t, kind, lanes, *where, *ends, *spills))
        self._add_packs(t, task, place)

    def _spills(self, task: Task, moved: list[_Moved], inside: Dim) -> tuple[float, ...]:
        """Returns the ns of a load and a store of a vector of sums an iteration; 0 unless the innermost loop is reduced."""
        sums = [x for x in moved if task.is_reduction and x.is_store]
        if not sums or not inside.loop.is_reduction:
            return (0.0,) * 4
        sides = (_rates(self.space.target, is_store) for is_store in (False, True))
        return tuple(sums[0].n / rate if rate else 0.0 for side in sides for rate in side)

    def _add_packs(self, t: int, task: Task, place: dict[str, int]) -> None:
        """Adds a row for each operand of task `t` that may be packed, with the loops that may be around its blocks."""
        space = self.space
        for o, staged in space.variables.staged.items():
            if o.task != t or o.is_window:
                continue
            first = len(self.around)
            for loop in (loop for loop in task.loops if loop.name not in o.loops):
                outer = space.backbone.dim(t, loop.name, OUTER)
                for own in (space.backbone.dim(t, name, OUTER) for name in o.loops):
                    order = space.model.order(outer.order_id, own.order_id)
                    self.around.append((order, place[loop.name]))
            size = space.problem.array(o.access.array).dtype.size_bytes
            n, wide = float(points(task, list(o.loops))), space.target.vector_bytes // size
            sides = (_rates(space.target, is_store) for is_store in (False, True))
            ns = (x for rates in sides for x in _ns(n, max(1, wide), rates))
            self.packs.append((t, staged, first, len(self.around), *ns))

    def _row(
        self, t: int, task: Task, x: _Moved, vector: str, inside: Dim, place: dict[str, int]
    ) -> None:
        space, target = self.space, self.space.target
        first, source = len(self.spared), len(self.sources)
        for loop in (loop for loop in task.loops if loop.name not in x.loops):
            levels = (space.backbone.dim(t, loop.name, k) for k in (OUTER, MID))
            orders = (space.model.order(d.order_id, inside.order_id) for d in levels)
            self.spared.append((place[loop.name], *orders))
        self.sources += [(order,) for order in x.sources]
        wide = max(1, target.vector_bytes // x.size_bytes)
        along = widest_vector(_extent(task, vector), wide) if vector else 1
        lanes = wide if x.is_wide else _lanes(space, x, vector, along)
        most = wide if vector in x.loops or x.is_wide else 1
        rates = _rates(target, x.is_store)
        sides = ((x.n, lanes), (x.n, max(lanes, most)), (x.spared, lanes))
        # Behind the last whole register tile each element is loaded or stored by itself.
        is_apart = len(x.loops) == len(task.loops) and not (x.is_shared or cuts_of(task))
        is_apart = is_apart and not may_overlap(target, task)
        single = x.n / rates[0] if is_apart and vector and rates[0] else 0.0
        self.rows.append(
            (
                *(int(x.is_store), int(x.is_own), x.staged, x.store),
                *(first, len(self.spared), source, len(self.sources)),
                *(ns for n, k in sides for ns in _ns(n, k, rates)),
                single,
            )
        )


def may_overlap(target: Target, task: Task) -> bool:
    """True if the last register tile may begin earlier, so that it is whole (codegen/write/last_tiles.py)."""
    return target.lanes(task.lane_bytes) > _MANY_LANES


def _ns(n: float, lanes: int, rates: tuple[float, float]) -> tuple[float, float]:
    """Returns the ns of `n` elements at the rate of loads or stores, and at that of vector ones (0 if `lanes` is 1)."""
    rate, wide = rates
    return n / lanes / rate if rate else 0.0, n / lanes / wide if wide and lanes > 1 else 0.0


def _rates(target: Target, is_store: bool) -> tuple[float, float]:
    if is_store:
        return target.stores_per_ns, target.vector_stores_per_ns
    return target.loads_per_ns, target.vector_loads_per_ns


def _extent(task: Task, name: str) -> int:
    return next(x.extent for x in task.loops if x.name == name)


def _lanes(space: Space, x: _Moved, vector: str, wide: int) -> int:
    """Returns the greatest number of elements that one load or store covers, if loop `vector` is vectorised ("": none is).

    `wide`: elements of a vector.
    """
    if vector not in x.loops:
        return 1
    apart = abs(flat_strides(x.access, space.problem.array(x.access.array)).get(vector, 0))
    return max(1, -(-wide // max(1, apart)))


def _moved(space: Space, t: int) -> Iterator[_Moved]:
    """Yields the elements that task `t` surely loads and stores."""
    task = space.problem.tasks[t]
    if not task.is_structured or task.is_guarded or task.value is None or _is_copy(task):
        return
    n = float(points(task))
    if n <= _MOST_UNROLLED * space.target.lanes(task.lane_bytes):
        return
    for access in sure_reads(task):
        yield _load(space, t, access, n)
    target = task.target
    results = frozenset(_own_loops(task, target))
    free = {loop.name for loop in task.loops if not loop.is_reduction and loop.extent > 1}
    if not is_plain(target) or not free <= results:
        return
    n_results = float(points(task, [x.name for x in task.loops if not x.is_reduction]))
    is_stored = t not in space.variables.store
    size = min(task.dtype.size_bytes, space.problem.array(target.array).dtype.size_bytes)
    if task.is_reduction:
        yield _Moved(target, size, results, n, n_results)
    if task.is_reduction or is_stored:
        yield _Moved(target, size, results, n, 0.0 if is_stored else n_results, is_store=True)
    elif _has_one_writer(space, target.array):
        store = space.variables.store[t]
        yield _Moved(target, size, results, n, is_store=True, store=store)


def _has_one_writer(space: Space, array: str) -> bool:
    """True if one task of the sequence writes an array: then no later store lets compilers leave an earlier one away."""
    n_here = sum(array in arrays_written(task) for task in space.problem.tasks)
    return n_here == 1 and array not in space.elsewhere.writes


def _is_copy(task: Task) -> bool:
    """True if compilers may replace the task's loop by a call that copies or fills memory."""
    return not task.is_reduction and not isinstance(task.value, Binary | Unary | Select)


def sure_reads(task: Task) -> Iterator[Access]:
    """Yields one access of each array that a task surely loads in every iteration, and has not written before."""
    surely: dict[str, list[Access]] = {}
    for x in sure_loads(_value(task)):
        surely.setdefault(x.array, []).append(access_of(x))
    every = [access for access, _ in task_reads(task)]
    for array, accesses in surely.items():
        first = accesses[0]
        alike = all(
            _without_constants(x) == _without_constants(first) for x in every if x.array == array
        )
        own = array not in arrays_written(task) or _in_place(task, every)
        if alike and own and is_plain(first):
            yield first


def _value(task: Task) -> Expr:
    assert task.value is not None
    return task.value


def _in_place(task: Task, reads: list[Access]) -> bool:
    """True if each iteration of a task updates a different element."""
    own = [x for x in reads if x.array == task.target.array]
    return not task.is_reduction and all(x == task.target for x in own) and is_plain(task.target)


def is_plain(access: Access) -> bool:
    """True if every index contains at most one loop, and no loop occurs in two indices."""
    named = [axis.terms for axis in access.axes if axis is not None and axis.terms]
    names = [name for terms in named for name, _ in terms]
    return (
        None not in access.axes
        and all(len(x) == 1 for x in named)
        and len(set(names)) == len(names)
    )


def _without_constants(access: Access) -> tuple[object, ...]:
    return tuple(None if axis is None else axis.terms for axis in access.axes)


def _own_loops(task: Task, access: Access) -> Iterator[str]:
    own = {loop.name for loop in task.loops}
    return (n for axis in access.axes if axis for n, _ in axis.terms if n in own)


def _load(space: Space, t: int, access: Access, n: float) -> _Moved:
    tasks, array = space.problem.tasks, space.problem.array(access.array)
    producers, is_own, is_shared = _producers(space, t, array.name), True, False
    for m in space.backbone.merges:
        other = m.a if m.b == t else m.b
        if t not in (m.a, m.b) or other in producers:
            continue
        if array.name in (*arrays_read(tasks[other]), *arrays_written(tasks[other])):
            is_shared, is_own = True, is_own and other > t
    wide = max(1, space.target.vector_bytes // array.dtype.size_bytes)
    along = flat_strides(access, array)
    short = any(x.extent <= MAX_PEELED * wide for x in tasks[t].loops if along.get(x.name))
    return _Moved(
        access,
        array.dtype.size_bytes,
        frozenset(_own_loops(tasks[t], access)),
        n,
        staged=staged_at(space, t, access),
        sources=orders_to_producers(space, t, array.name),
        is_own=is_own,
        is_wide=is_shared and short,
        is_shared=is_shared,
    )


def _producers(space: Space, t: int, array: str) -> set[int]:
    """Returns the tasks that compute the values of `array` which task `t` reads, and may share its launch."""
    flows = (f for f in space.variables.mem_space if (f.consumer, f.array) == (t, array))
    return {f.producer for f in flows if not f.is_read}


def orders_to_producers(space: Space, t: int, array: str) -> tuple[int, ...]:
    """Returns the positions of orders of the loops that task `t` and the producers of `array` may share."""
    b, producers, found = space.backbone, _producers(space, t, array), []
    for m in b.merges:
        if t in (m.a, m.b) and (m.a if m.b == t else m.b) in producers:
            first, second = b.dim(m.a, m.loop_a, OUTER), b.dim(m.b, m.loop_b, OUTER)
            found.append(space.model.order(first.order_id, second.order_id))
    return tuple(dict.fromkeys(found))


def staged_at(space: Space, t: int, access: Access) -> int:
    """Returns the position of the `staged` choice of a read; -1 if it has none."""
    staged = space.variables.staged.items()
    return next((var for o, var in staged if o.task == t and o.holds(access)), -1)
