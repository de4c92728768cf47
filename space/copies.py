"""Constraints of packed copies on a CPU: where a block is packed, ahead of its use, and by whom."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from . import choices as ch
from . import truths
from .backbone import INNER, MID, OUTER, Dim, Operand
from .engine.model import Term
from .offers import ChoiceBuilder, bits

# Values of `staged` on a CPU, for clauses.
_COPIED = bits(ch.COPY, ch.TWO_STAGES, ch.TEAM_COPY)
_NOT_AHEAD = bits(ch.DIRECT, ch.COPY, ch.TEAM_COPY)
_NOT_BY_TEAM = bits(ch.DIRECT, ch.COPY, ch.TWO_STAGES)


class CopyConstraints(ChoiceBuilder):
    """What `staged` needs; space/gpu.py says what is different on a GPU."""

    def staged_copies(self) -> None:
        """A copy holds the block of one outer tile: outer dims of its loops around all mid dims, some mid dim present.

        It is packed at the head of the innermost of these outer dims, from memory: what the task reads has to be there by then.
        Its next block can be packed ahead where each thread runs that dim for itself, all of it or a part shared out in blocks; all
        threads can pack a block together where they run that dim in step.
        """
        b, v = self.b, self.v
        for o, var in v.staged.items():
            loops = [self.levels(o.task, name) for name in o.loops]
            outside = truths.copy_outside
            for _, order in self.tiles_and_mids(o):
                b.table2("block of a copy", var, order, outside, share=outside)
            present = [(v.kind[x[MID]], bits(ch.LOOP)) for x in loops]
            b.clause("copy of a block", [(var, bits(ch.DIRECT)), *present])
            self.packed_ahead(o, var)
            self.packed_by_team(o, var)
            for f, space in v.mem_space.items():
                ends = (f.producer, f.consumer) if f.is_read else (f.consumer,)
                if o.task in ends and f.array == o.access.array:
                    if not f.is_read:
                        self.copy_of_finished_values(o, var, f.producer)
                    b.table2(
                        "copy from memory",
                        var,
                        space,
                        truths.copy_of_memory,
                        share=truths.copy_of_memory,
                    )
            element = self.array(o.access.array).dtype.size_bytes
            terms = [
                Term((var, _COPIED), v.size[x[level]], v.universe[x[level]])
                for x in loops
                for level in (MID, INNER)
            ]
            terms.append(Term(None, var, (1, 1, 2, 1)))
            b.product_at_most(
                f"copy of {o.name} in cache", terms, max(1, self.target.last_cache_bytes // element)
            )

    def tiles_and_mids(self, o: Operand) -> Iterator[tuple[Dim, int]]:
        """Mid dims of an operand's loops, each with the order of the outer dim of another of them against it."""
        loops = [self.levels(o.task, name) for name in o.loops]
        for x, y in permutations(loops, 2):
            yield y[MID], self.b.order(x[OUTER].order_id, y[MID].order_id)

    def copy_of_finished_values(self, o: Operand, staged: int, producer: int) -> None:
        """What is copied has been written before the outer tiles begin."""
        body = self.backbone.body_ids[producer]
        tiles = [self.levels(o.task, name)[OUTER] for name in o.loops]
        done = [(self.b.order(body, d.order_id), bits(ch.BEFORE)) for d in tiles]
        self.b.clause("copy of finished values", [(staged, bits(ch.DIRECT)), *done])

    def packed_ahead(self, o: Operand, staged: int) -> None:
        """Each thread goes from block to block by itself, and a slice is of one register tile along one of two loops."""
        b, v = self.b, self.v
        if len(o.loops) != 2:
            b.restrict(staged, _NOT_AHEAD)
            return
        blocks = [self.levels(o.task, name)[OUTER] for name in o.loops]
        for loop in self.problem.tasks[o.task].loops:
            outer = self.levels(o.task, loop.name)[OUTER]
            # A loop of the threads is around the one from block to block, or is that one and shared out in blocks, as all are that
            # have no choice of a schedule.
            if outer in blocks and outer not in v.schedule:
                continue
            around = [
                (b.order(outer.order_id, x.order_id), bits(ch.OUTSIDE))
                for x in blocks
                if x is not outer
            ]
            unshared = (v.kind[outer], bits(ch.LOOP))
            in_blocks = [(v.schedule[outer], bits(ch.BLOCKED))] if outer in blocks else []
            b.clause("packed ahead", [(staged, _NOT_AHEAD), unshared, *around, *in_blocks])

    def packed_by_team(self, o: Operand, staged: int) -> None:
        """All threads come to the place where a block is packed, as often as one another, and a loop inside of it is shared out."""
        b, v = self.b, self.v
        blocks = [self.levels(o.task, name)[OUTER] for name in o.loops]
        outer = [self.levels(o.task, loop.name)[OUTER] for loop in self.problem.tasks[o.task].loops]
        b.clause(
            "packed by a team",
            [(staged, _NOT_BY_TEAM), *((v.kind[d], bits(ch.PARALLEL)) for d in outer)],
        )
        for d in outer:
            in_step = [(staged, _NOT_BY_TEAM), (v.kind[d], bits(ch.LOOP))]
            if d in blocks:
                b.clause("packed in step", in_step)
                continue
            for x in blocks:
                inside = (b.order(d.order_id, x.order_id), bits(ch.INSIDE))
                b.clause("packed in step", [*in_step, inside])
