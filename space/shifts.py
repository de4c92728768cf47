"""Constraints of loop shifting: a task that runs one iteration late, inside the loop that it would have waited for."""

from __future__ import annotations

from . import choices as ch
from . import truths
from .backbone import INNER, MID, OUTER, Dim, Flow, Shift
from .offers import ChoiceBuilder, bits


class ShiftConstraints(ChoiceBuilder):
    """What `shift` needs."""

    def shifts(self) -> None:
        """A late task runs inside the loop of its producer, one iteration of their shared loop behind it, on the same thread.

        In each of its iterations it comes first, so what that iteration of the shared loop writes over is still what it
        wants: rows of a panel that its producer's loop fills row by row, and whatever is written after that loop.
        """
        for s, var in self.v.shift.items():
            self.late_loops(s, var)
            self.late_neighbours(s, var)
            self.late_values(s, var)

    def late_loops(self, s: Shift, var: int) -> None:
        b, v = self.b, self.v
        in_step = (var, bits(ch.IN_STEP))
        shared = [
            self.levels(t, x) for t, x in zip((s.producer, s.consumer), s.shared, strict=True)
        ]
        inside = [
            self.levels(t, x) for t, x in zip((s.producer, s.consumer), s.inside, strict=True)
        ]

        def related(d: Dim, e: Dim, value: int) -> tuple[int, int]:
            return b.order(d.order_id, e.order_id), bits(value)

        b.clause(
            "late in one loop", [in_step, related(shared[0][OUTER], shared[1][OUTER], ch.MERGED)]
        )
        b.clause("late on one thread", [in_step, (v.kind[shared[0][OUTER]], bits(ch.PARALLEL))])
        for x, y in zip(shared, inside, strict=True):
            b.clause("late loops are nested", [in_step, related(x[OUTER], y[OUTER], ch.OUTSIDE)])
            b.clause("late in every tile", [in_step, (v.kind[y[MID]], bits(ch.ABSENT))])
            absent = (v.kind[x[MID]], bits(ch.ABSENT))
            between = related(x[MID], y[OUTER], ch.INSIDE)
            b.clause("late loops touch", [in_step, absent, between])
        a, c = inside[0][INNER], inside[1][INNER]
        b.table3(
            "late tiles agree",
            var,
            v.size[a],
            v.size[c],
            truths.LateSizes(v.universe[a], v.universe[c]),
        )

    def late_neighbours(self, s: Shift, var: int) -> None:
        """Nothing else is in the loop that moves, and nothing is packed for it."""
        in_step = (var, bits(ch.IN_STEP))
        moved = self.levels(s.consumer, s.inside[1])[OUTER]
        for e in self.backbone.partners[moved]:
            order = self.b.order(moved.order_id, e.order_id)
            self.b.clause("late alone", [in_step, (order, bits(*range(4)))])
        for o, staged in self.v.staged.items():
            if o.task == s.consumer:
                self.b.clause("late from where it is", [in_step, (staged, bits(ch.DIRECT))])

    def late_values(self, s: Shift, var: int) -> None:
        """What a thread keeps for a late task is filled row by row in the loop that the task runs in, or after that loop."""
        in_step = (var, bits(ch.IN_STEP))
        for f, space in self.v.mem_space.items():
            if s.consumer not in (f.producer, f.consumer):
                continue
            allowed = bits(ch.GLOBAL)
            if f.consumer == s.consumer and self.is_row_by_row(s, f):
                allowed |= bits(ch.SHARED)
            self.b.clause(f"late values of {f.name}", [in_step, (space, allowed)])
            mapped = {c: p for p, c in f.pairs}
            if allowed & bits(ch.SHARED) and f.producer != s.producer:
                filled = self.backbone.dim(f.producer, mapped[s.inside[1]], OUTER)
                runs = self.backbone.dim(s.producer, s.inside[0], OUTER)
                together = (self.b.order(filled.order_id, runs.order_id), bits(ch.MERGED))
                self.b.clause(
                    f"late rows of {f.name}",
                    [in_step, (space, bits(ch.REGISTER, ch.GLOBAL)), together],
                )

    @staticmethod
    def is_row_by_row(s: Shift, f: Flow) -> bool:
        """Whether a flow's rows are the iterations of the loop that a late task runs in, or its values are finished after it."""
        if f.producer == s.producer and not f.is_read:
            return True
        row = {c: p for p, c in f.pairs}.get(s.inside[1])
        return row is not None and (f.producer != s.producer or row == s.inside[0])
