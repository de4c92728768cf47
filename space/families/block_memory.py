"""Limits of a GPU block on a multiprocessor: shared memory in bytes, and registers as far as a space can count them."""

from __future__ import annotations

from collections.abc import Iterator

from ...kernels.ir.access import index_loops
from ...kernels.ir.task import Task
from ..backbone import INNER, OUTER, Flow, Operand
from ..draft import Draft, Family, all_but, bits
from ..engine.declarations import Group, Literal, Term
from ..targets.gpu_facts import VECTOR_BYTES, is_small, row_order, shared_bytes
from ..targets.kind import GPU
from ..values import LANES
from .memory import MEM_SPACE, SHARED, spaces_of
from .order import MERGED, ORDER
from .packing import DIRECT, N_GAPS, STAGED, elements_of_window
from .team import blocks_of_a_core, staying
from .threads import threads_of

SLACK_BYTES = 80  # of an array in shared memory at most, so that it and its stages are aligned
REGISTER_BYTES = 4
MAX_REGISTERS = 255  # of a thread


def shared_memory(s: Draft) -> None:
    """Hardware: the values and operand blocks of a launch's tasks fit into shared memory together."""
    users = list(_shared_arrays(s))
    for t in dict.fromkeys(sorted(u for u, _ in users)):
        # The first task of a launch counts for all that follow.
        groups = [
            _if_fused(s, t, u, group)
            for u, group in users
            if u >= t and s.backbone.may_share_launch(t, u)
        ]
        name = f"what {s.problem.tasks[t].name} and tasks with it have in shared memory"
        s.b.groups_at_most(name, groups, max(0, shared_bytes(s.target)))
        if staying(s, t) and s.target.shared_bytes_per_core:
            blocks = _resident(s, t)
            groups = [g._replace(terms=(*blocks, *g.terms)) for g in groups]
            most = s.target.shared_bytes_per_core
            s.b.groups_at_most(f"{name}, in all resident blocks", groups, most)


def _if_fused(s: Draft, t: int, u: int, group: Group) -> Group:
    if t == u:
        return group
    same = Term(None, s.v.fused[t, u], (1, 0))  # SAME_LAUNCH, SEPARATE
    return group._replace(terms=(same, *group.terms))


def _resident(s: Draft, t: int) -> list[Term]:
    """Returns factors whose product is the number of resident blocks of a multiprocessor, or 0 if the grid does not stay."""
    stays = Term(None, s.v.of_tasks["team"][t], (0, 1))
    return [stays, *(x._replace(condition=None) for x in blocks_of_a_core(s, t))]


def _shared_arrays(s: Draft) -> Iterator[tuple[int, Group]]:
    """Yields (task, group that counts bytes) for each array that the task may have in shared memory."""
    kept: dict[int, list[Flow]] = {}
    for f in s.v.mem_space:
        if spaces_of(s, f) & bits(SHARED) and s.problem.tasks[f.producer].is_structured:
            kept.setdefault(f.producer, []).append(f)
    for t, flows in kept.items():
        yield from ((t, group) for group in _bytes_of_value(s, t, flows))
    for o in s.v.staged:
        yield from ((o.task, group) for group in _bytes_of_copy(s, o))


def _bytes_of_value(s: Draft, t: int, flows: list[Flow]) -> Iterator[Group]:
    """Yields groups that count the bytes of a task's value in shared memory: one array for all its readers.

    The array is a tile, or the whole value for a reader that does not share its loop. If readers
    also share the loops inside the tile, the array is smaller, and this count is too high.
    """
    target = s.problem.tasks[t].target
    array, written = (
        s.array(target.array),
        sorted(index_loops(target) & {x.name for x in s.problem.tasks[t].loops}),
    )
    any_of = tuple(Literal(s.v.mem_space[f], bits(SHARED)) for f in flows)
    constant = Term(None, any_of[0].var, (1,) * len(MEM_SPACE))
    yield Group(any_of, (_weighed(constant, SLACK_BYTES),))
    is_plain = all(
        axis is not None and [step for _, step in axis.terms] == [1] for axis in target.axes
    )
    if not is_plain:  # the layout of a tile then has room for whole axes
        yield Group(any_of, (_weighed(constant, array.size_bytes),))
        return
    tile = [Term(None, s.v.size[d], s.v.universe[d]) for p in written for d in s.levels(t, p)[1:]]
    sizes = (_weighed(constant, array.dtype.size_bytes), *tile)
    if not is_small(s.problem, s.target, s.problem.tasks[t]):
        yield Group(any_of, sizes)
        return
    if len(written) == 1 and all(written[0] in dict(f.pairs) for f in flows):
        yield from _bytes_of_vector(s, t, flows, sizes)
    else:
        yield Group(any_of, (_weighed(constant, array.size_bytes),))


def _bytes_of_vector(
    s: Draft, t: int, flows: list[Flow], tile: tuple[Term, ...]
) -> Iterator[Group]:
    """Yields groups that count the bytes of a vector small enough to be in shared memory as a whole.

    A tile suffices if all its readers in shared memory share the loop that writes it. The first
    reader that does not share it needs the whole, which then serves all. For a sum of products
    there is one group for each combination of earlier readers with a tile or without.
    """
    target = s.problem.tasks[t].target
    (loop,) = index_loops(target) & {x.name for x in s.problem.tasks[t].loops}
    outer, n_bytes = s.levels(t, loop)[OUTER], s.array(target.array).size_bytes
    earlier: list[tuple[Term, ...]] = [()]
    for f in flows:
        reader = s.levels(f.consumer, dict(f.pairs)[loop])[OUTER]
        order, space = s.order(outer, reader), s.v.mem_space[f]
        has_whole = _where(order, len(ORDER), MERGED, 0, n_bytes)
        has_tile = (
            _where(space, len(MEM_SPACE), SHARED, 1, 0),
            _where(order, len(ORDER), MERGED, 1, 0),
        )
        has_nothing = (_where(space, len(MEM_SPACE), SHARED, 0, 1),)
        for terms in earlier:
            yield Group((Literal(space, bits(SHARED)),), (*terms, has_whole))
        earlier = [(*terms, *own) for terms in earlier for own in (has_nothing, has_tile)]
    any_of = tuple(Literal(s.v.mem_space[f], bits(SHARED)) for f in flows)
    for terms in earlier[1:]:  # all but the one in which nobody has it
        yield Group(any_of, (*terms, *tile))


def _bytes_of_copy(s: Draft, o: Operand) -> Iterator[Group]:
    """Yields groups that count the bytes of an operand's copy: one block per stage, and gaps of its layout between rows."""
    v, array = s.v, s.array(o.access.array)
    if o.is_window:
        for group in elements_of_window(s, o):
            constant, *tiles = group.terms
            yield group._replace(terms=(_weighed(constant, array.dtype.size_bytes), *tiles))
        yield Group(group.any_of, (constant._replace(weights=(SLACK_BYTES,) * 2),))
        return
    any_of = (Literal(v.staged[o], all_but(STAGED, DIRECT)),)
    stages = Term(None, v.staged[o], tuple(range(len(STAGED))))
    sizes = {
        name: [Term(None, v.size[d], v.universe[d]) for d in s.levels(o.task, name)[1:]]
        for name in o.loops
    }
    every = [term for terms in sizes.values() for term in terms]
    yield Group(any_of, (_weighed(stages, array.dtype.size_bytes), *every))
    gaps, none = (0, array.dtype.size_bytes, VECTOR_BYTES, 0), (0,) * N_GAPS
    for is_transposed, between in ((False, (*gaps, *none)), (True, (*none, *gaps))):
        row = row_order(o, array, is_transposed=is_transposed)[-1]
        rows = [term for name, terms in sizes.items() if name != row for term in terms]
        yield Group(any_of, (stages, Term(None, v.layout[o], between), *rows))
    yield Group(any_of, (_weighed(stages, SLACK_BYTES),))


def registers(s: Draft) -> None:
    """Hardware: a thread's accumulators leave registers for other values, and those of a block fit into a multiprocessor.

    Those of all resident blocks do, in a grid that stays.

    This is an estimate. A compiler's other needs are known only after compiling, and its counts
    then decide if a launch fits (`runtime/cuda/resources.py`). It may also need fewer, for instance
    if no loop is around a reduction. `register_room` is the factor by which the available registers
    are multiplied.
    """
    v = s.v
    for t, task in enumerate(s.problem.tasks):
        if not task.is_reduction or not s.target.registers_per_core:
            continue
        words = register_words(task)
        inner = s.dims_at(t, INNER)
        has_own = {d: (v.reduction[d], bits(LANES)) for d in inner if d in v.reduction}
        sums = [Term(has_own.get(d), v.size[d], v.universe[d]) for d in inner]
        if sums:
            most = MAX_REGISTERS * s.register_room // words
            s.b.product_at_most(f"sums of a thread of {task.name}", sums, most)
            limit = s.target.registers_per_core * s.register_room // words - 1
            terms = [*sums, *threads_of(s, t)]
            s.b.product_at_most(f"sums of a block of {task.name}", terms, limit)
            if staying(s, t):
                terms += blocks_of_a_core(s, t)
                s.b.product_at_most(f"sums of all resident blocks of {task.name}", terms, limit)


def _where(var: int, n_values: int, value: int, there: int, elsewhere: int) -> Term:
    """Returns a term that counts `there` if choice `var` has `value`, else `elsewhere`.

    `n_values`: size of its domain.
    """
    return Term(None, var, tuple(there if k == value else elsewhere for k in range(n_values)))


def register_words(task: Task) -> int:
    """Number of 4-byte registers of one accumulator of a task; 0 if the task is no reduction."""
    is_sum = task.is_structured and task.is_reduction
    return -(-task.dtype.size_bytes // REGISTER_BYTES) if is_sum else 0


def _weighed(term: Term, factor: int) -> Term:
    """Returns the term with its weights multiplied by `factor`."""
    return term._replace(weights=tuple(factor * n for n in term.weights))


FAMILY = Family("block_memory", {GPU: (shared_memory, registers)})
