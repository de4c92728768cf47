"""Index set splitting (Griebl, Feautrier and Lengauer, 2000): cuts loops at the element that a step accesses.

A loop over the elements of an array is cut before and behind the element that a step of a repeat reads.
In each part either all iterations access it or none does.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.affine import Affine, combine, constant, expression, index_range, rename, to_affine
from ..ir.domain import Loop
from ..ir.kernel import DType, Expr, For, Load, LoopIndex, Stmt, Store, Update
from ..ir.walk import Renaming, children, loads, nested_statements, with_blocks, written_in
from .distribute import constant_extent

MOST_PARTS = 9  # of a nest: of two loops, each in three


def split_at_steps(
    body: tuple[Stmt, ...], steps: tuple[Loop, ...]
) -> tuple[tuple[Stmt, ...], ...] | None:
    """Returns the parts of a nest in their order; None if no loop is to be cut.

    The loops of the nest have unique names and constant extents. `steps`: the time loops around the nest.
    """
    if len(body) != 1 or not isinstance(body[0], For):
        return None
    splitting = _Splitting(steps)
    parts = tuple((s,) for s in splitting.loop(body[0]))
    n_leaves = sum(isinstance(s, Store | Update) for part in parts for s in nested_statements(part))
    n_before = sum(isinstance(s, Store | Update) for s in nested_statements(body))
    return parts if len(parts) > 1 and n_leaves <= MOST_PARTS * n_before else None


class _Splitting:
    def __init__(self, steps: tuple[Loop, ...]) -> None:
        self.steps = {loop.name: loop.extent for loop in steps}
        self.n_names = 0

    def loop(self, s: For) -> Iterator[Stmt]:
        """Yields the parts of a loop, in which the loops inside are cut, too."""
        n, at = constant_extent(s.extent), self.place(s)
        if n is None or at is None or not self.is_within(at, n):
            yield self.inside(s)
            return
        index = Affine(0, ((s.loop, 1),))
        before = expression(at, DType.i64)
        behind = expression(combine([(1, constant(n - 1)), (-1, at)]), DType.i64)
        moved = combine([(1, index), (1, at), (1, constant(1))])
        yield self.inside(self.named(For(s.loop, before, s.body, s.where)))
        here = Renaming(loops={s.loop: before})
        for x in s.body:
            yield from self.statement(self.renamed(here.apply_stmt(x)))
        named = self.named(For(s.loop, behind, s.body, s.where))
        shift = expression(rename(moved, {s.loop: named.loop}), DType.i64)
        later = Renaming(loops={named.loop: shift})
        shifted = tuple(later.apply_stmt(x) for x in named.body)
        yield self.inside(For(named.loop, behind, shifted, s.where))

    def statement(self, s: Stmt) -> Iterator[Stmt]:
        if isinstance(s, For):
            yield from self.loop(s)
        else:
            yield s

    def inside(self, s: Stmt) -> Stmt:
        return with_blocks(s, lambda block: tuple(y for x in block for y in self.statement(x)))

    def is_within(self, at: Affine, n: int) -> bool:
        low, high = index_range(at, self.steps)
        return low >= 0 and high < n

    def place(self, s: For) -> Affine | None:
        """Returns the iteration of a loop that accesses the element at an index given by a time loop's step.

        The index is along one axis of a written array. None if there is no such iteration, or several.
        """
        written, own, fixed = written_in(s.body), set[Affine](), set[Affine]()
        for array, indices in _accesses(s.body):
            for axis, index in enumerate(indices if array in written else ()):
                x = to_affine(index)
                names = {n for n, _ in x.terms} if x is not None else set()
                if x is None:
                    continue
                if names == {s.loop} and x.coefficient(s.loop) == 1:
                    own.add(Affine(x.const, ((f"{array} {axis}", 1),)))
                elif names and names <= self.steps.keys():
                    fixed.add(Affine(x.const, (*x.terms, (f"{array} {axis}", 1))))
        places = set()
        for x in own:
            ((key, _),) = x.terms
            for y in fixed:
                if y.terms[-1][0] == key:
                    places.add(Affine(y.const - x.const, y.terms[:-1]))
        return places.pop() if len(places) == 1 else None

    def named(self, s: For) -> For:
        made = self.renamed(s)
        assert isinstance(made, For)
        return made

    def renamed(self, s: Stmt) -> Stmt:
        """Returns the statement with each of its loops renamed to a new name."""
        names: dict[str, Expr] = {}
        for x in nested_statements((s,)):
            if isinstance(x, For):
                self.n_names += 1
                names[x.loop] = LoopIndex(f"{x.loop.split('@')[0]}@part{self.n_names}")
        return Renaming(loops=names).apply_stmt(s)


def _accesses(body: tuple[Stmt, ...]) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    for s in nested_statements(body):
        for e in children(s):
            yield from ((x.array, x.indices) for x in loads(e) if isinstance(x, Load))
        if isinstance(s, Store | Update):
            yield s.array, s.indices
