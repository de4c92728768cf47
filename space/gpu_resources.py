"""What a block takes of a multiprocessor, counted: shared memory in bytes, and registers as far as a space can know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..kernels.ir.task import Task
from . import choices as ch
from .backbone import INNER, OUTER, Flow, Operand, index_loops
from .constraints import SpaceBuilder
from .engine.model import Group, Literal, Term
from .offers import bits
from .targets.gpu_facts import row_order, tree_bytes

SLACK_BYTES = 80  # of an array in shared memory at most, so that it and its stages are aligned
VECTOR_BYTES = 16  # between padded rows
REGISTER_BYTES = 4
MAX_REGISTERS = 255  # of a thread
# How many times the registers that there are may be counted: by compilers' reports a count may be too high. With the last one
# nothing is cut: no block has so many copies in so many threads.
REGISTER_ROOMS = (1, 2, 4, 8)


class BlockResources(SpaceBuilder):
    """Declares that what the tasks of a launch keep in a block fits into what a block may have."""

    register_room = 1

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, without that in which its warps meet."""
        target = self.target
        most = max(target.shared_bytes_per_block, target.shared_bytes_per_block_most)
        return most - tree_bytes(target.max_threads_per_block)

    def shared_memory(self) -> None:
        """What the tasks of a launch keep and copy in shared memory fits there together."""
        users = list(self.shared_arrays())
        for t in dict.fromkeys(sorted(u for u, _ in users)):
            # The first task of a launch counts for all that follow.
            groups = [
                self.if_fused(t, u, group)
                for u, group in users
                if u >= t and self.backbone.may_share_launch(t, u)
            ]
            name = f"what {self.problem.tasks[t].name} and tasks with it have in shared memory"
            self.b.groups_at_most(name, groups, max(0, self.shared_bytes))

    def if_fused(self, t: int, u: int, group: Group) -> Group:
        if t == u:
            return group
        same = Term(None, self.v.fused[t, u], (1, 0))  # SAME_LAUNCH, SEPARATE
        return group._replace(terms=(same, *group.terms))

    def shared_arrays(self) -> Iterator[tuple[int, Group]]:
        """Bytes that tasks may have in shared memory, each with its task."""
        kept: dict[int, list[Flow]] = {}
        for f in self.v.mem_space:
            if self.spaces_of(f) >> ch.SHARED & 1 and self.problem.tasks[f.producer].is_structured:
                kept.setdefault(f.producer, []).append(f)
        for t, flows in kept.items():
            yield from ((t, group) for group in self.bytes_of_value(t, flows))
        for o in self.v.staged:
            yield from ((o.task, group) for group in self.bytes_of_copy(o))

    def bytes_of_value(self, t: int, flows: list[Flow]) -> Iterator[Group]:
        """A value has one array for all its readers: a tile, or all of it for a reader that does not share its loop.

        Where they share the loops inside the tile as well, the array has less, and what is counted is more than there is.
        """
        target = self.problem.tasks[t].target
        array, written = self.array(target.array), sorted(index_loops(target))
        any_of = tuple(Literal(self.v.mem_space[f], bits(ch.SHARED)) for f in flows)
        constant = Term(None, any_of[0].var, (1,) * len(ch.MEM_SPACE))
        yield Group(any_of, (weighed(constant, SLACK_BYTES),))
        is_plain = all(
            axis is not None and [step for _, step in axis.terms] == [1] for axis in target.axes
        )
        if not is_plain:  # the layout of a tile then has room for whole axes
            yield Group(any_of, (weighed(constant, array.size_bytes),))
            return
        tile = [
            Term(None, self.v.size[d], self.v.universe[d])
            for p in written
            for d in self.levels(t, p)[1:]
        ]
        sizes = (weighed(constant, array.dtype.size_bytes), *tile)
        if not self.is_small(t):
            yield Group(any_of, sizes)
            return
        if len(written) == 1 and all(written[0] in dict(f.pairs) for f in flows):
            yield from self.bytes_of_vector(t, flows, sizes)
        else:
            yield Group(any_of, (weighed(constant, array.size_bytes),))

    def bytes_of_vector(self, t: int, flows: list[Flow], tile: tuple[Term, ...]) -> Iterator[Group]:
        """A vector that fits as a whole: a tile is enough where all that read it in shared memory share the loop that writes it.

        The first reader that does not wants the whole, which is then there for all. A sum of products says so with one group for
        each way in which the readers before it may have a tile or nothing.
        """
        target = self.problem.tasks[t].target
        (loop,) = index_loops(target)
        outer, n_bytes = self.levels(t, loop)[OUTER], self.array(target.array).size_bytes
        earlier: list[tuple[Term, ...]] = [()]
        for f in flows:
            reader = self.levels(f.consumer, dict(f.pairs)[loop])[OUTER]
            order, space = self.b.order(outer.order_id, reader.order_id), self.v.mem_space[f]
            has_whole = where(order, len(ch.ORDER), ch.MERGED, 0, n_bytes)
            has_tile = (
                where(space, len(ch.MEM_SPACE), ch.SHARED, 1, 0),
                where(order, len(ch.ORDER), ch.MERGED, 1, 0),
            )
            has_nothing = (where(space, len(ch.MEM_SPACE), ch.SHARED, 0, 1),)
            for terms in earlier:
                yield Group((Literal(space, bits(ch.SHARED)),), (*terms, has_whole))
            earlier = [(*terms, *own) for terms in earlier for own in (has_nothing, has_tile)]
        any_of = tuple(Literal(self.v.mem_space[f], bits(ch.SHARED)) for f in flows)
        for terms in earlier[1:]:  # all but the one in which nobody has it
            yield Group(any_of, (*terms, *tile))

    def bytes_of_copy(self, o: Operand) -> Iterator[Group]:
        """Each stage has a block, and what its layout leaves free between rows."""
        v, array = self.v, self.array(o.access.array)
        any_of = (Literal(v.staged[o], bits(*range(1, len(ch.GPU_STAGED)))),)
        stages = Term(None, v.staged[o], tuple(range(len(ch.GPU_STAGED))))
        row = row_order(o, array)[-1]
        sizes = {
            name: [Term(None, v.size[d], v.universe[d]) for d in self.levels(o.task, name)[1:]]
            for name in o.loops
        }
        rows = [term for name, terms in sizes.items() if name != row for term in terms]
        between = Term(None, v.layout[o], (0, array.dtype.size_bytes, VECTOR_BYTES, 0))
        yield Group(any_of, (weighed(stages, array.dtype.size_bytes), *rows, *sizes[row]))
        yield Group(any_of, (stages, between, *rows))
        yield Group(any_of, (weighed(stages, SLACK_BYTES),))

    def is_small(self, t: int) -> bool:
        """Whether what a task computes fits into shared memory as a whole: a vector, or one value."""
        target = self.problem.tasks[t].target
        along = [axis for axis in target.axes if axis is not None and axis.terms]
        return len(along) <= 1 and self.array(target.array).size_bytes <= self.shared_bytes

    def registers(self, t: int, threads: Sequence[Term]) -> None:
        """The sums of a thread leave registers for other values, and those of a block are in one multiprocessor.

        This is an estimate: what a compiler needs besides is known when it has compiled, and its counts then say whether a launch
        fits (`runtime/cuda/resources.py`). It may also need less, as where no loop is around a sum: `register_room` is how many
        times the registers that there are may be counted.
        """
        v, task = self.v, self.problem.tasks[t]
        if not task.is_reduction or not self.target.registers_per_core:
            return
        words = register_words(task)
        inner = [d for d in self.backbone.dims_of(t) if d.level == INNER]
        has_own = {d: (v.reduction[d], bits(ch.LANES)) for d in inner if d in v.reduction}
        sums = [Term(has_own.get(d), v.size[d], v.universe[d]) for d in inner]
        if sums:
            most = MAX_REGISTERS * self.register_room // words
            self.b.product_at_most(f"sums of a thread of {task.name}", sums, most)
            limit = self.target.registers_per_core * self.register_room // words - 1
            self.b.product_at_most(f"sums of a block of {task.name}", [*sums, *threads], limit)


def where(var: int, n_values: int, value: int, there: int, elsewhere: int) -> Term:
    """Counts `there` where a choice of so many values has this one, else `elsewhere`."""
    return Term(None, var, tuple(there if k == value else elsewhere for k in range(n_values)))


def register_words(task: Task) -> int:
    """Registers of one sum of a task, 0 where nothing is summed up."""
    is_sum = task.is_structured and task.is_reduction
    return -(-task.dtype.size_bytes // REGISTER_BYTES) if is_sum else 0


def weighed(term: Term, factor: int) -> Term:
    """The term, counted `factor` times."""
    return term._replace(weights=tuple(factor * n for n in term.weights))
