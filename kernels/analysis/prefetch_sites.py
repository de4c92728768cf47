"""Prefetch candidates: blocks of arrays that a loop over an index list will access in later iterations.

A list may have the blocks in any order, so hardware prefetchers, which follow streams of addresses, miss the next block. The list
gives its address (Ainsworth and Jones, Software prefetching for indirect memory accesses, CGO 2017).

Candidates are only rows of loops that may be unrolled (unrolling.py), where an index decides the addresses. Other rows are one
stream from the block's begin to its end, whose loops compilers collapse. Prefetching between those rows slowed down y += 2 x on
leaves of 8^3 from 0.16 to 0.47 ns a cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..ir import kernel as ir
from ..ir.affine import Affine, to_affine
from ..ir.arrays import ArrayInfo
from ..ir.unrolling import few_rows
from ..ir.walk import Renaming, children, loads, local_changed, nested_statements, walk, written_in

# Of a block. In smaller ones it takes longer to find the blocks around than to wait for lines: a 7-point stencil took 0.70 of the
# time on leaves of 2 KiB (8^3), and 1.13 on leaves of 256 bytes (4^3), where no distance was better (Zen 3, 2.1 million cells).
_LEAST_BYTES = 1024
_MOST_LINES = 8  # of a row: more are a stream that a CPU follows by itself
LINE_BYTES = 64  # of every cache of a CPU
OWN = "own block"  # the term of an index with the number of the block


@dataclass(frozen=True)
class PrefetchRow:
    """Row of a block: contiguous elements of an array that the loop `loop` touches.

    `first` is the index of the first element along the array's last axis, in terms of OWN and of the loops around; the row has
    `n_bytes`. `before` are the indices along the other axes. The next row begins `step_bytes` further on (0: there is no next row).
    The next block begins `block_bytes` further on.
    """

    loop: str
    array: str
    before: tuple[ir.Const, ...]
    first: Affine
    n_bytes: int
    step_bytes: int
    block_bytes: int
    is_written: bool

    @property
    def n_lines(self) -> int:
        """Number of cache lines of the row, if it begins at the start of a line."""
        return -(-self.n_bytes // LINE_BYTES)


@dataclass(frozen=True)
class PrefetchCandidates:
    """Prefetch candidates of a loop over an index list: rows of the block that each iteration accesses.

    The local `own` holds the block number of an iteration; its value is `number`, an element of the list.
    `last` is the last index of the list; its element there may be unused.
    """

    loop: str
    own: str
    number: ir.Expr
    last: int
    rows: tuple[PrefetchRow, ...]

    @property
    def pay(self) -> bool:
        """True if prefetching the blocks is likely to save time."""
        return max(x.block_bytes for x in self.rows) >= _LEAST_BYTES

    def later(self, distance: int) -> ir.Expr:
        """Returns the block number for the iteration `distance` ahead, clamped to the end of the list.

        The number is arbitrary if that element of the list was never set.
        """

        def ahead(e: ir.LoopIndex) -> ir.Expr:
            there = ir.Binary("add", e, ir.Const(distance, e.dtype), e.dtype)
            return ir.Binary("min", there, ir.Const(self.last, e.dtype), e.dtype)

        found = next(x for x in walk(self.number) if isinstance(x, ir.LoopIndex))
        return Renaming(loops={self.loop: ahead(found)}).apply(self.number)


def blocks_of(
    loop: str, body: Sequence[ir.Stmt], array: Callable[[str], ArrayInfo]
) -> PrefetchCandidates | None:
    """Returns the prefetch candidates of `loop`, from the first index list that gives block numbers.

    None without such a list. `array`: shape and type of an array by name.
    """
    body = tuple(body)
    times = Counter(local_changed(s) for s in nested_statements(body))
    once = [s for s in nested_statements(body) if isinstance(s, ir.SetLocal) and times[s.name] == 1]
    written = written_in(body)
    for s in once:
        last = _end_of_list(s.value, loop, written, array)
        if last is None:
            continue
        reader = _RowReader(s.name, {x.name: x.value for x in once}, array)
        found = tuple(reader.rows(body, (), {x.row for x in few_rows(body)}))
        if found:
            return PrefetchCandidates(loop, s.name, s.value, last, found)
    return None


def _end_of_list(
    e: ir.Expr, loop: str, written: frozenset[str], array: Callable[[str], ArrayInfo]
) -> int | None:
    """Returns the last index of the list if `e`, a block number, is the list's element at the index of `loop`.

    None if it is not.
    The only load is at that index, so no other load depends on elements behind the list's end.
    """
    found = loads(e)
    if len(found) != 1 or not found[0].indices or any(isinstance(x, ir.Local) for x in walk(e)):
        return None
    (x,) = found
    index = to_affine(x.indices[-1])
    is_plain = index == Affine(0, ((loop, 1),)) and all(
        isinstance(i, ir.Const) for i in x.indices[:-1]
    )
    n_loops = sum(isinstance(y, ir.LoopIndex) for y in walk(e))
    if not is_plain or n_loops != 1 or x.array in written or x.dtype.is_float:
        return None
    return array(x.array).shape[-1] - 1


class _RowReader:
    """Finds the rows of a block that can be prefetched: contiguous elements of an array that an inner loop accesses.

    `known`: values of the locals that are set exactly once.
    """

    def __init__(
        self, own: str, known: Mapping[str, ir.Expr], array: Callable[[str], ArrayInfo]
    ) -> None:
        self.own, self.array = own, array
        self.known: dict[str, ir.Expr | None] = {own: ir.LoopIndex(OWN, ir.DType.i64)}
        self.values = known

    def rows(
        self, body: Sequence[ir.Stmt], around: tuple[ir.For, ...], names: Container[str]
    ) -> Iterator[PrefetchRow]:
        """Yields the rows that statements inside of the loops `around` touch, in the order of the text.

        `names`: names of the loops over rows.
        """
        for s in body:
            match s:
                case ir.For() if s.loop in names and _is_row(s):
                    yield from self.row(s, around)
                case ir.For():
                    yield from self.rows(s.body, (*around, s), names)
                case ir.If():
                    yield from self.rows((*s.then, *s.orelse), around, names)

    def row(self, s: ir.For, around: tuple[ir.For, ...]) -> Iterator[PrefetchRow]:
        """Yields the rows that one loop touches, one for each array and index.

        Rows that differ in a constant are one row. A row that is also stored counts as written.
        """
        found: dict[tuple[str, tuple[ir.Const, ...], tuple[tuple[str, int], ...]], tuple[int, bool]]
        found = {}
        for name, indices, is_written in _touched(s.body):
            index = self.affine(indices[-1]) if indices else None
            before = tuple(i for i in indices[:-1] if isinstance(i, ir.Const))
            if index is None or len(before) + 1 != len(indices):
                continue
            key = name, before, index.terms
            least, stored = found.get(key, (index.const, False))
            found[key] = min(least, index.const), stored or is_written
        assert isinstance(s.extent, ir.Const)
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
            made = PrefetchRow(s.loop, name, before, first, n_bytes, step, block * size, is_written)
            if made.n_lines <= _MOST_LINES:
                yield made

    def affine(self, e: ir.Expr) -> Affine | None:
        """Returns an index as an affine expression, with values for its locals; None if a value is unknown."""
        names = {x.name for x in walk(e) if isinstance(x, ir.Local)}
        found = {name: self.value(name) for name in names}
        if any(x is None for x in found.values()):
            return None
        return to_affine(
            Renaming(locals={k: x for k, x in found.items() if x is not None}).apply(e)
        )

    def value(self, name: str) -> ir.Expr | None:
        """Returns the value of a local in which all other locals are replaced by their values.

        None unless the local, and in turn each local in its value, is set exactly once.
        """
        if name not in self.known:
            self.known[name] = None
            e = self.values.get(name)
            names = () if e is None else {x.name for x in walk(e) if isinstance(x, ir.Local)}
            found = {k: self.value(k) for k in names}
            if e is not None and not any(x is None for x in found.values()):
                renaming = Renaming(locals={k: x for k, x in found.items() if x is not None})
                self.known[name] = renaming.apply(e)
        return self.known[name]


def _is_row(s: ir.For) -> bool:
    """True if a loop is innermost and has a positive constant extent."""
    inner = any(isinstance(x, ir.For | ir.While) for x in nested_statements(s.body))
    return isinstance(s.extent, ir.Const) and s.extent.value > 0 and not inner


def _touched(body: tuple[ir.Stmt, ...]) -> Iterator[tuple[str, tuple[ir.Expr, ...], bool]]:
    """Yields the accesses of a body as triples: array, indices, and True if the access writes."""
    for s in nested_statements(body):
        if isinstance(s, ir.Store | ir.Update):
            yield s.array, s.indices, True
        for x in (x for e in children(s) for x in walk(e)):
            if isinstance(x, ir.Load):
                yield x.array, x.indices, False
