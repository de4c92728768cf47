"""What later iterations of a loop over a list touch: whole blocks of arrays, each at the number that its list has for an iteration.

A list may have the blocks in any order, so what follows a stream of addresses finds no next block; the list says where it is
(Ainsworth and Jones, Software prefetching for indirect memory accesses, CGO 2017). This is about rows that may be written out
(unrolling.py), of which an index decides where they read. Others are one stream from the block's begin to its end, whose loops
compilers make one of: asking for lines between its rows took y += 2 x on leaves of 8^3 from 0.16 to 0.47 ns a cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..ir.affine import Affine, to_affine
from ..ir.arrays import ArrayInfo
from ..ir.kernel import (
    Binary,
    Const,
    DType,
    Expr,
    For,
    If,
    Load,
    Local,
    LoopIndex,
    SetLocal,
    Stmt,
    Store,
    Update,
    While,
)
from ..ir.unrolling import few_rows
from ..ir.walk import Renaming, children, loads, local_changed, nested_statements, walk, written_in

# Of a block. In smaller ones it takes longer to find the blocks around than to wait for lines: a 7-point stencil took 0.70 of the
# time on leaves of 2 KiB (8^3), and 1.13 on leaves of 256 bytes (4^3), where no distance was better (Zen 3, 2.1 million cells).
_LEAST_BYTES = 1024
_MOST_LINES = 8  # of a row: more are a stream that a CPU follows by itself
LINE_BYTES = 64  # of every cache of a CPU
OWN = "own block"  # the term of an index with the number of the block


@dataclass(frozen=True)
class Row:
    """The elements that the loop `loop` touches of an array: `n_bytes` from the element on that is at `first` along its last axis,
    in terms of OWN and of the loops around; `before`: its other indices.

    The next row begins `step_bytes` further on (0: none does), the next block `block_bytes`.
    """

    loop: str
    array: str
    before: tuple[Const, ...]
    first: Affine
    n_bytes: int
    step_bytes: int
    block_bytes: int
    is_written: bool

    @property
    def n_lines(self) -> int:
        """Lines that it takes up, where it begins one."""
        return -(-self.n_bytes // LINE_BYTES)


@dataclass(frozen=True)
class Blocks:
    """The local `own` has the number of an iteration's block: `number`, an element of a list. `last`: of the list, whatever it has
    there.
    """

    loop: str
    own: str
    number: Expr
    last: int
    rows: tuple[Row, ...]

    @property
    def pay(self) -> bool:
        """Whether asking for them is likely to save time."""
        return max(x.block_bytes for x in self.rows) >= _LEAST_BYTES

    def later(self, distance: int) -> Expr:
        """The number of the block so many iterations on, or of one at the end of the list: any number, if it was never set."""

        def ahead(e: LoopIndex) -> Expr:
            there = Binary("add", e, Const(distance, e.dtype), e.dtype)
            return Binary("min", there, Const(self.last, e.dtype), e.dtype)

        found = next(x for x in walk(self.number) if isinstance(x, LoopIndex))
        return Renaming(loops={self.loop: ahead(found)}).apply(self.number)


def blocks_of(loop: str, body: Sequence[Stmt], array: Callable[[str], ArrayInfo]) -> Blocks | None:
    """The blocks that iterations of a loop touch, by the first list that names some; None where none does."""
    body = tuple(body)
    times = Counter(local_changed(s) for s in nested_statements(body))
    once = [s for s in nested_statements(body) if isinstance(s, SetLocal) and times[s.name] == 1]
    written = written_in(body)
    for s in once:
        last = _end_of_list(s.value, loop, written, array)
        if last is None:
            continue
        reader = _Reader(s.name, {x.name: x.value for x in once}, array)
        found = tuple(reader.rows(body, (), {x.row for x in few_rows(body)}))
        if found:
            return Blocks(loop, s.name, s.value, last, found)
    return None


def _end_of_list(
    e: Expr, loop: str, written: frozenset[str], array: Callable[[str], ArrayInfo]
) -> int | None:
    """The last index of a list that a number is an element of, the one at the loop's index; None where it is something else.

    The one load is at that index, so no other load depends on what lies behind the list's end.
    """
    found = loads(e)
    if len(found) != 1 or any(isinstance(x, Local) for x in walk(e)):
        return None
    (x,) = found
    index = to_affine(x.indices[-1])
    is_plain = index == Affine(0, ((loop, 1),)) and all(
        isinstance(i, Const) for i in x.indices[:-1]
    )
    n_loops = sum(isinstance(y, LoopIndex) for y in walk(e))
    if not is_plain or n_loops != 1 or x.array in written or x.dtype.is_float:
        return None
    return array(x.array).shape[-1] - 1


class _Reader:
    """Reads what rows touch. `known`: the locals that are set once, with what they are set to."""

    def __init__(
        self, own: str, known: Mapping[str, Expr], array: Callable[[str], ArrayInfo]
    ) -> None:
        self.own, self.array = own, array
        self.known: dict[str, Expr | None] = {own: LoopIndex(OWN, DType.i64)}
        self.values = known

    def rows(
        self, body: Sequence[Stmt], around: tuple[For, ...], names: Container[str]
    ) -> Iterator[Row]:
        """The rows of these names in statements inside of these loops, in the order of the text."""
        for s in body:
            match s:
                case For() if s.loop in names and _is_row(s):
                    yield from self.row(s, around)
                case For():
                    yield from self.rows(s.body, (*around, s), names)
                case If():
                    yield from self.rows((*s.then, *s.orelse), around, names)

    def row(self, s: For, around: tuple[For, ...]) -> Iterator[Row]:
        """What one loop touches: rows that differ in a constant are one, and one that is also stored is written."""
        found: dict[tuple[str, tuple[Const, ...], tuple[tuple[str, int], ...]], tuple[int, bool]]
        found = {}
        for name, indices, is_written in _touched(s.body):
            index = self.affine(indices[-1])
            before = tuple(i for i in indices[:-1] if isinstance(i, Const))
            if index is None or len(before) + 1 != len(indices):
                continue
            key = name, before, index.terms
            least, stored = found.get(key, (index.const, False))
            found[key] = min(least, index.const), stored or is_written
        assert isinstance(s.extent, Const)
        allowed = {x.loop for x in around}
        for (name, before, terms), (least, is_written) in found.items():
            size = self.array(name).dtype.size_bytes
            along = dict(terms)
            stride, block = along.pop(s.loop, 0), along.pop(OWN, 0)
            if stride < 1 or block * size < LINE_BYTES or not along.keys() <= allowed:
                continue
            first = Affine(max(0, least), tuple((k, n) for k, n in terms if k != s.loop))
            n_bytes = ((int(s.extent.value) - 1) * stride + 1) * size
            step = min((abs(n) * size for n in along.values()), default=0)
            made = Row(s.loop, name, before, first, n_bytes, step, block * size, is_written)
            if made.n_lines <= _MOST_LINES:
                yield made

    def affine(self, e: Expr) -> Affine | None:
        """An index, with the locals in it put in; None where some are unknown."""
        names = {x.name for x in walk(e) if isinstance(x, Local)}
        found = {name: self.value(name) for name in names}
        if any(x is None for x in found.values()):
            return None
        return to_affine(
            Renaming(locals={k: x for k, x in found.items() if x is not None}).apply(e)
        )

    def value(self, name: str) -> Expr | None:
        """What a local is set to, with the locals in that put in; None where it is not set once, or in turn."""
        if name not in self.known:
            self.known[name] = None
            e = self.values.get(name)
            names = () if e is None else {x.name for x in walk(e) if isinstance(x, Local)}
            found = {k: self.value(k) for k in names}
            if e is not None and not any(x is None for x in found.values()):
                renaming = Renaming(locals={k: x for k, x in found.items() if x is not None})
                self.known[name] = renaming.apply(e)
        return self.known[name]


def _is_row(s: For) -> bool:
    """Whether a loop is innermost, and some number of iterations."""
    inner = any(isinstance(x, For | While) for x in nested_statements(s.body))
    return isinstance(s.extent, Const) and s.extent.value > 0 and not inner


def _touched(body: tuple[Stmt, ...]) -> Iterator[tuple[str, tuple[Expr, ...], bool]]:
    """Arrays with indices, and whether elements there are written."""
    for s in nested_statements(body):
        if isinstance(s, Store | Update):
            yield s.array, s.indices, True
        for x in (x for e in children(s) for x in walk(e)):
            if isinstance(x, Load):
                yield x.array, x.indices, False
