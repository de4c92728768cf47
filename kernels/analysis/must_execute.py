"""What of a body is surely done: the statements whose values are used wherever control reaches them, and how often it does.

A compiler, or a pass, may leave away what nobody uses, and may move a value into the branch that alone uses it. What is found
here it cannot: a value is stored, decides where control goes, or is used by such a statement of the same block or of one around.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..ir.affine import to_affine
from ..ir.kernel import (
    Binary,
    Expr,
    For,
    If,
    Load,
    Local,
    LocalElement,
    LoopIndex,
    Select,
    SetLocal,
    Stmt,
    Store,
    Update,
    UpdateLocal,
    While,
)
from ..ir.walk import children, local_changed, nested_statements, walk


@dataclass(frozen=True)
class Block:
    """A run of statements of a body. They are numbered in the order of the text: 0 is the body itself, an `If` has two.

    `around` are the loops of the body around it, outermost first. `times`: how often it runs in each run of the block around it;
    None where values or indices decide.
    """

    number: int
    statements: tuple[Stmt, ...]
    parent: int
    around: tuple[For | While, ...]
    times: int | None


@dataclass(frozen=True)
class Needed:
    """A statement, what of its expressions is needed, the number of its block, and its place there. Of an `If` and of a loop: the
    condition or extent; that of a `While` is in the block that it runs, at -1: it is looked at once more than the block runs.

    `late`: it is needed where the innermost loop around it goes on for so many more iterations, which use its value.
    """

    statement: Stmt
    expressions: tuple[Expr, ...]
    block: int
    place: int
    late: int = 0


@lru_cache(maxsize=64)  # asked for each array of a task
def blocks_of(body: tuple[Stmt, ...]) -> tuple[Block, ...]:
    """The blocks of a body."""
    return tuple(block for block, _ in _blocks(body))


@lru_cache(maxsize=64)
def needed(body: tuple[Stmt, ...]) -> tuple[Needed, ...]:
    """The statements of a body that are needed wherever control reaches them, in the order of the text."""
    return _Reader(body).found()


def surely(e: Expr) -> Iterator[Expr]:
    """The parts of an expression that are evaluated whatever its conditions turn out to be, parents first."""
    yield e
    match e:
        case Select():
            yield from surely(e.condition)
        case Binary(op="and" | "or"):
            yield from surely(e.a)
        case _:
            for part in children(e):
                yield from surely(part)


def known_extent(s: For) -> int | None:
    """How often a loop runs each time, where that is always the same."""
    affine = to_affine(s.extent)
    return max(0, affine.const) if affine is not None and not affine.terms else None


_LATEST = 4  # iterations

_Inside = tuple[Block, dict[int, tuple[int, ...]]]  # with the blocks that its statements have


def _blocks(body: tuple[Stmt, ...]) -> list[_Inside]:
    found: list[_Inside] = []

    def add(
        statements: tuple[Stmt, ...],
        parent: int,
        around: tuple[For | While, ...],
        times: int | None,
    ) -> int:
        block = Block(len(found), statements, parent, around, times)
        inside: dict[int, tuple[int, ...]] = {}
        found.append((block, inside))
        for k, s in enumerate(statements):
            match s:
                case For():
                    inside[k] = (add(s.body, block.number, (*around, s), known_extent(s)),)
                case While():
                    inside[k] = (add(s.body, block.number, (*around, s), None),)
                case If():
                    inside[k] = tuple(
                        add(x, block.number, around, None) for x in (s.then, s.orelse)
                    )
        return block.number

    add(body, -1, (), 1)
    return found


class _Reader:
    """Marks what is needed, each statement with how late the nearest use of its value is, until nothing changes."""

    def __init__(self, body: tuple[Stmt, ...]) -> None:
        self.inside = _blocks(body)
        self.late: dict[tuple[int, int], int] = {}  # block, place in it -> see `Needed`
        self.has_changed = True
        # By the same: locals that a statement itself surely reads, and that it or those nested in it change.
        self.reads: dict[tuple[int, int], frozenset[str]] = {}
        self.changes: dict[tuple[int, int], frozenset[str]] = {}
        self.looked_at = _looked_at(body)
        of_loops: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
        self.expressions: dict[tuple[int, int], tuple[Expr, ...]] = {}  # that matter in each run
        for block, _ in self.inside:
            for k, s in enumerate(block.statements):
                at = block.number, k
                self.expressions[at] = children(s)
                if isinstance(s, Store) and _only_last_counts(s, block.around, of_loops):
                    self.expressions[at] = s.indices
                own = (x for e in self.expressions[at] for x in surely(e) if isinstance(x, Local))
                self.reads[at] = frozenset(x.name for x in own)
                if isinstance(s, UpdateLocal):
                    self.reads[at] |= {s.name}
                self.changes[at] = frozenset(local_changed(x) for x in nested_statements((s,)))

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
            if late is not None and not isinstance(s, While):
                made.append(Needed(s, self.expressions[b, k], b, k, late))
            for inner in inside.get(k, ()):
                if late is not None and isinstance(s, While):
                    made.append(Needed(s, conjuncts(s.condition), inner, -1, 0))
                self.collect(inner, made)

    def read(self, b: int, after: tuple[tuple[int, int], ...]) -> None:
        """Marks the statements of a block; `after` are places behind it, nearest first, where control goes on."""
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

    def wanted(self, b: int, k: int, s: Stmt, behind: tuple[tuple[int, int], ...]) -> int | None:
        match s:
            case Store():
                return None if self.is_overwritten(s, behind) else 0
            case Update():
                return 0
            case If() | For() | While():
                # Where control goes matters for what is done there; how late that is used, it says itself.
                inner = self.inside[b][1].get(k, ())
                every = (
                    self.late.get((n, i))
                    for n in inner
                    for i in range(len(self.inside[n][0].statements))
                )
                return min((x for x in every if x is not None), default=None)
            case SetLocal() | UpdateLocal():
                return self.uses(s.name, behind, isinstance(s, UpdateLocal))
        return None

    def is_overwritten(self, s: Store, behind: tuple[tuple[int, int], ...]) -> bool:
        """Whether nobody sees what a statement stores, as the element is stored again behind it."""
        if s.array in self.looked_at:
            return False
        return any(
            isinstance(x, Store) and (x.array, x.indices) == (s.array, s.indices)
            for place, first in behind
            for x in self.inside[place][0].statements[first:]
        )

    def uses(self, name: str, behind: tuple[tuple[int, int], ...], goes_on: bool) -> int | None:
        """How late a local is surely used where control goes on before it is set again; `goes_on`: also behind loops that end."""
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

    def in_next(self, name: str, b: int, block: Block) -> int | None:
        """How late it is used in the next iteration of the loop that runs a block."""
        loop = block.around[-1]
        if isinstance(loop, While) and any(_reads(e, name) for e in conjuncts(loop.condition)):
            return 1
        found, _ = self.used_in(name, b, 0, len(block.statements))
        return None if found is None or found >= _LATEST else found + 1

    def used_in(self, name: str, b: int, first: int, end: int) -> tuple[int | None, bool]:
        """The same in a part of one block, and whether it is set again there."""
        block, inside = self.inside[b]
        best: int | None = None
        for k in range(first, end):
            s = block.statements[k]
            late = self.late.get((b, k))
            if late is not None:
                if name in self.reads[b, k]:
                    best = _least(best, late)
                if isinstance(s, For) and (self.inside[inside[k][0]][0].times or 0) > 0:
                    inner = inside[k][0]
                    n = len(self.inside[inner][0].statements)
                    best = _least(best, self.used_in(name, inner, 0, n)[0])
            if name in self.changes[b, k]:
                return best, not (isinstance(s, UpdateLocal) and s.name == name)
        return best, False


def conjuncts(e: Expr) -> tuple[Expr, ...]:
    """The conditions that all hold where `e` does."""
    match e:
        case Binary(op="and"):
            return (*conjuncts(e.a), *conjuncts(e.b))
    return (e,)


def _only_last_counts(
    s: Store,
    around: Sequence[For | While],
    known: dict[int, tuple[frozenset[str], frozenset[str]]],
) -> bool:
    """Whether a loop stores to one place all the time, and does not look there: compilers leave the last of these stores.

    `known`, by identity: of loops that were asked for the locals that they change, and what they look at.
    """
    read = {x.name for i in s.indices for x in walk(i) if isinstance(x, Local | LocalElement)}
    loops = {x.loop for i in s.indices for x in walk(i) if isinstance(x, LoopIndex)}
    for loop in around:
        if id(loop) not in known:
            changed = frozenset(local_changed(x) for x in nested_statements(loop.body))
            known[id(loop)] = changed, _looked_at((loop,))
        changed, looked_at = known[id(loop)]
        is_fixed = not (isinstance(loop, For) and loop.loop in loops) and not read & changed
        if is_fixed and s.array not in looked_at:
            return True
    return False


def _looked_at(statements: tuple[Stmt, ...]) -> frozenset[str]:
    """Arrays of which statements see what they hold."""
    every = tuple(nested_statements(statements))
    loaded = {x.array for s in every for e in children(s) for x in walk(e) if isinstance(x, Load)}
    return frozenset(loaded | {s.array for s in every if isinstance(s, Update)})


def _least(a: int | None, b: int | None) -> int | None:
    known = [x for x in (a, b) if x is not None]
    return min(known, default=None)


def _reads(e: Expr, name: str) -> bool:
    return any(isinstance(x, Local) and x.name == name for x in surely(e))


def set_in(statements: Sequence[Stmt]) -> dict[str, list[Stmt]]:
    """Of each local the statements that change it, at any depth."""
    found: dict[str, list[Stmt]] = {}
    for s in nested_statements(tuple(statements)):
        if name := local_changed(s):
            found.setdefault(name, []).append(s)
    return found
