"""Must-execute analysis: statements whose results are used on every path, and their minimal execution counts.

A compiler or a pass may remove a value that is never used, and may move a value into the only branch that uses it. It can do
neither with the statements found here. Their values are stored, decide control flow, or are used by such a statement of the same
block or of one around.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..ir import kernel as ir
from ..ir.affine import to_affine
from ..ir.walk import children, local_changed, locals_read, nested_statements, walk


@dataclass(frozen=True)
class BasicBlock:
    """Basic block in structured form: a run of statements of a body, numbered in the order of the text.

    Block 0 is the body itself; an `If` has two blocks. `around` are the loops of the body around the block, outermost first.
    `times` is the number of runs of the block in each run of the block around it; None if values or indices decide that number.
    """

    number: int
    statements: tuple[ir.Stmt, ...]
    parent: int
    around: tuple[ir.For | ir.While, ...]
    times: int | None


@dataclass(frozen=True)
class Needed:
    """Must-execute statement: its needed expressions, its basic block, and its position in that block.

    Of an `If` the condition is needed, of a `For` the extent. The condition of a `While` is in the block that the loop runs, at
    position -1: it is evaluated once more than the block runs.

    `late`: the statement is needed if the innermost loop around it runs this number of further iterations, which use its value.
    """

    statement: ir.Stmt
    expressions: tuple[ir.Expr, ...]
    block: int
    place: int
    late: int = 0


@lru_cache(maxsize=64)  # asked for each array of a task
def blocks_of(body: tuple[ir.Stmt, ...]) -> tuple[BasicBlock, ...]:
    """Returns the basic blocks of a body, in the order of the text."""
    return tuple(block for block, _ in _blocks(body))


@lru_cache(maxsize=64)
def needed(body: tuple[ir.Stmt, ...]) -> tuple[Needed, ...]:
    """Returns the must-execute statements of a body, in the order of the text.

    Each is needed wherever control reaches it.
    """
    return _NeedReader(body).found()


def surely(e: ir.Expr) -> Iterator[ir.Expr]:
    """Yields the subexpressions that are evaluated whatever value each condition in `e` has, parents first."""
    yield e
    match e:
        case ir.Select():
            yield from surely(e.condition)
        case ir.Binary(op="and" | "or"):
            yield from surely(e.a)
        case _:
            for part in children(e):
                yield from surely(part)


def known_extent(s: ir.For) -> int | None:
    """Returns the number of iterations of a loop if it is a constant, else None."""
    affine = to_affine(s.extent)
    return max(0, affine.const) if affine is not None and not affine.terms else None


_LATEST = 4  # iterations

_Inside = tuple[BasicBlock, dict[int, tuple[int, ...]]]  # with the blocks that its statements have


def _blocks(body: tuple[ir.Stmt, ...]) -> list[_Inside]:
    found: list[_Inside] = []

    def add(
        statements: tuple[ir.Stmt, ...],
        parent: int,
        around: tuple[ir.For | ir.While, ...],
        times: int | None,
    ) -> int:
        block = BasicBlock(len(found), statements, parent, around, times)
        inside: dict[int, tuple[int, ...]] = {}
        found.append((block, inside))
        for k, s in enumerate(statements):
            match s:
                case ir.For():
                    inside[k] = (add(s.body, block.number, (*around, s), known_extent(s)),)
                case ir.While():
                    inside[k] = (add(s.body, block.number, (*around, s), None),)
                case ir.If():
                    inside[k] = tuple(
                        add(x, block.number, around, None) for x in (s.then, s.orelse)
                    )
        return block.number

    add(body, -1, (), 1)
    return found


class _NeedReader:
    """Backward fixpoint iteration that marks needed statements.

    Each gets the distance (`late`) in iterations of the nearest use of its value.
    """

    def __init__(self, body: tuple[ir.Stmt, ...]) -> None:
        self.inside = _blocks(body)
        self.late: dict[tuple[int, int], int] = {}  # block, place in it -> see `Needed`
        self.has_changed = True
        # By the same: locals that a statement itself surely reads, and that it or those nested in it change.
        self.reads: dict[tuple[int, int], frozenset[str]] = {}
        self.changes: dict[tuple[int, int], frozenset[str]] = {}
        # By block and local: places of statements that read it, change it, or run a loop that does.
        self.places: dict[tuple[int, str], list[int]] = {}
        self.looked_at = _looked_at(body)
        of_loops: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
        self.expressions: dict[tuple[int, int], tuple[ir.Expr, ...]] = {}  # that matter in each run
        for block, _ in self.inside:
            for k, s in enumerate(block.statements):
                at = block.number, k
                self.expressions[at] = children(s)
                if isinstance(s, ir.Store) and _only_last_counts(s, block.around, of_loops):
                    self.expressions[at] = s.indices
                own = (
                    x for e in self.expressions[at] for x in surely(e) if isinstance(x, ir.Local)
                )
                self.reads[at] = frozenset(x.name for x in own)
                if isinstance(s, ir.UpdateLocal):
                    self.reads[at] |= {s.name}
                every = tuple(nested_statements((s,)))
                self.changes[at] = frozenset(local_changed(x) for x in every)
                met = self.reads[at] | self.changes[at]
                if isinstance(s, ir.For):
                    met |= {name for x in every for e in children(x) for name in locals_read(e)}
                for name in met:
                    self.places.setdefault((block.number, name), []).append(k)

    def found(self) -> tuple[Needed, ...]:
        while self.has_changed:
            self.has_changed = False
            self.read(0, ())
        made: list[Needed] = []
        self.collect(0, made)
        return tuple(made)

    def collect(self, b: int, made: list[Needed]) -> None:
        block, inside = self.inside[b]
        for k, s in enumerate(block.statements):
            late = self.late.get((b, k))
            if late is not None and not isinstance(s, ir.While):
                made.append(Needed(s, self.expressions[b, k], b, k, late))
            for inner in inside.get(k, ()):
                if late is not None and isinstance(s, ir.While):
                    made.append(Needed(s, conjuncts(s.condition), inner, -1, 0))
                self.collect(inner, made)

    def read(self, b: int, after: tuple[tuple[int, int], ...]) -> None:
        """Marks the needed statements of block `b`.

        `after`: the positions (block, statement) behind the block at which control may continue, nearest first.
        """
        block, inside = self.inside[b]
        for k in reversed(range(len(block.statements))):
            s = block.statements[k]
            behind = ((b, k + 1), *after)
            for inner in inside.get(k, ()):
                self.read(inner, behind)
            late = self.wanted(b, k, s, behind)
            if late is not None and late < self.late.get((b, k), _LATEST + 1):
                self.late[b, k] = late
                self.has_changed = True

    def wanted(self, b: int, k: int, s: ir.Stmt, behind: tuple[tuple[int, int], ...]) -> int | None:
        match s:
            case ir.Store():
                return None if self.is_overwritten(s, behind) else 0
            case ir.Update():
                return 0
            case ir.If() | ir.For() | ir.While():
                # Control flow is needed if a statement inside is: as late as the earliest of these.
                inner = self.inside[b][1].get(k, ())
                every = (
                    self.late.get((n, i))
                    for n in inner
                    for i in range(len(self.inside[n][0].statements))
                )
                return min((x for x in every if x is not None), default=None)
            case ir.SetLocal() | ir.UpdateLocal():
                return self.uses(s.name, behind, isinstance(s, ir.UpdateLocal))
        return None

    def is_overwritten(self, s: ir.Store, behind: tuple[tuple[int, int], ...]) -> bool:
        """True if the stored value is dead.

        No statement reads the array, and a later one stores the element again.
        `behind`: the positions (block, statement) at which control may continue, nearest first.
        """
        if s.array in self.looked_at:
            return False
        return any(
            isinstance(x, ir.Store) and (x.array, x.indices) == (s.array, s.indices)
            for place, first in behind
            for x in self.inside[place][0].statements[first:]
        )

    def uses(self, name: str, behind: tuple[tuple[int, int], ...], goes_on: bool) -> int | None:
        """Returns the distance in iterations (`late`) of the nearest sure use of a local before it is set again.

        None without such a use.
        `behind`: the positions (block, statement) at which control may continue, nearest first.
        `goes_on`: uses behind the end of a loop count as well.
        """
        best: int | None = None
        is_near = True  # still in the innermost loop around where it is set
        for place, (b, first) in enumerate(behind):
            block, _ = self.inside[b]
            found, is_over = self.used_in(name, b, first, len(block.statements))
            best = _least(best, found)
            if is_over:
                return best
            is_last = place + 1 == len(behind)
            if not is_last and block.around != self.inside[behind[place + 1][0]][0].around:
                if is_near:
                    best = _least(best, self.in_next(name, b, block))
                is_near = False
                if not goes_on:
                    return best
        return best

    def in_next(self, name: str, b: int, block: BasicBlock) -> int | None:
        """Returns the distance in iterations of a use in the next iteration of the loop around `block`.

        None without such a use.
        """
        loop = block.around[-1]
        if isinstance(loop, ir.While) and any(_reads(e, name) for e in conjuncts(loop.condition)):
            return 1
        found, _ = self.used_in(name, b, 0, len(block.statements))
        return None if found is None or found >= _LATEST else found + 1

    def used_in(self, name: str, b: int, first: int, end: int) -> tuple[int | None, bool]:
        """Returns the distance of a sure use of a local in a part of a block, and a flag.

        The part is statements `first` to `end` of block `b`. The distance is in iterations, None without a use.
        The flag is True if uses behind these statements do not matter: the local is set again, or is used at once.
        """
        block, inside = self.inside[b]
        best: int | None = None
        places = self.places.get((b, name), [])
        for k in places[bisect_left(places, first) : bisect_left(places, end)]:
            s = block.statements[k]
            late = self.late.get((b, k))
            if late is not None:
                if name in self.reads[b, k]:
                    best = _least(best, late)
                if isinstance(s, ir.For) and (self.inside[inside[k][0]][0].times or 0) > 0:
                    inner = inside[k][0]
                    n = len(self.inside[inner][0].statements)
                    best = _least(best, self.used_in(name, inner, 0, n)[0])
                if best == 0:
                    return best, True  # no other use is nearer
            if name in self.changes[b, k]:
                return best, not (isinstance(s, ir.UpdateLocal) and s.name == name)
        return best, False


def conjuncts(e: ir.Expr) -> tuple[ir.Expr, ...]:
    """Returns the conditions of which `e` is the conjunction; `e` itself if it is no conjunction."""
    match e:
        case ir.Binary(op="and"):
            return (*conjuncts(e.a), *conjuncts(e.b))
    return (e,)


def _only_last_counts(
    s: ir.Store,
    around: Sequence[ir.For | ir.While],
    known: dict[int, tuple[frozenset[str], frozenset[str]]],
) -> bool:
    """True if a loop in `around` stores repeatedly to the element of `s` and does not read the array.

    Compilers keep only the last of such stores.

    `known`: cache from the identity of a loop to the locals that it changes and the arrays that it reads.
    """
    read = {x.name for i in s.indices for x in walk(i) if isinstance(x, ir.Local | ir.LocalElement)}
    loops = {x.loop for i in s.indices for x in walk(i) if isinstance(x, ir.LoopIndex)}
    for loop in around:
        if id(loop) not in known:
            changed = frozenset(local_changed(x) for x in nested_statements(loop.body))
            known[id(loop)] = changed, _looked_at((loop,))
        changed, looked_at = known[id(loop)]
        is_fixed = not (isinstance(loop, ir.For) and loop.loop in loops) and not read & changed
        if is_fixed and s.array not in looked_at:
            return True
    return False


def _looked_at(statements: tuple[ir.Stmt, ...]) -> frozenset[str]:
    """Returns the names of the arrays that statements read or update."""
    every = tuple(nested_statements(statements))
    loaded = {
        x.array for s in every for e in children(s) for x in walk(e) if isinstance(x, ir.Load)
    }
    return frozenset(loaded | {s.array for s in every if isinstance(s, ir.Update)})


def _least(a: int | None, b: int | None) -> int | None:
    known = [x for x in (a, b) if x is not None]
    return min(known, default=None)


def _reads(e: ir.Expr, name: str) -> bool:
    return any(isinstance(x, ir.Local) and x.name == name for x in surely(e))


def set_in(statements: Sequence[ir.Stmt]) -> dict[str, list[ir.Stmt]]:
    """Returns for each local the statements that change it, at any depth."""
    found: dict[str, list[ir.Stmt]] = {}
    for s in nested_statements(tuple(statements)):
        if name := local_changed(s):
            found.setdefault(name, []).append(s)
    return found
