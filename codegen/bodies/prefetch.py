"""Software prefetch for loops over lists: each row of the current block prefetches one row of a later block.

All prefetches at once exceed the misses that a core can have in flight. On Zen 3 a 7-point stencil
on leaves of 8^3 (2.1 million cells) took 0.46 to 0.53 ns a cell without prefetches, and as long
with all of them first. Row by row it took 0.34 to 0.40 ns.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...kernels.analysis.prefetch_sites import LINE_BYTES, OWN, PrefetchRow
from ..plan.schedules import BlockPrefetch
from ..text import csyntax as c
from .body_values import BodyValues
from .iteration_point import row_strides

_LATER = "later block"  # no local of a program has such a name


def declare(prefetch: BlockPrefetch, v: BodyValues, local: str) -> None:
    """Declares a variable for the number of the block to prefetch, if `local` is the number of the current block."""
    if local == prefetch.blocks.own and _LATER not in v.locals:
        v.declare(_LATER, prefetch.blocks.number.dtype, f"{local}_later")


def advance(prefetch: BlockPrefetch, v: BodyValues, local: str) -> Iterator[c.CStmt]:
    """Yields the assignment of the later block's number, if `local` is the number of the current block."""
    if local == prefetch.blocks.own and _LATER in v.locals:
        held = v.locals[_LATER]
        later = v.evaluate(prefetch.blocks.later(prefetch.distance))
        yield c.Assign(held.x, v.w.converted(later, held.dtype).x)


def before(prefetch: BlockPrefetch, v: BodyValues, loop: str) -> Iterator[c.CStmt]:
    """Yields the prefetches in front of `loop` over a row of a block.

    There are no prefetches if the block's number differs from lane to lane.
    """
    for row in prefetch.blocks.rows:
        if row.loop == loop and _LATER in v.locals:
            yield from _lines(v, row)


def _lines(v: BodyValues, row: PrefetchRow) -> Iterator[c.CStmt]:
    """Yields prefetches of the cache lines that begin in a row.

    They assume blocks that begin at line boundaries. For any other array a row prefetches the line
    before its own.
    """
    info = v.problem.array(row.array)
    size = info.dtype.size_bytes
    of_line = LINE_BYTES // size
    const, terms = row.first.const, list[tuple[c.CExpr, int]]()
    inside = dict[str, int]()  # of rows in lines
    for name, step in row.first.terms:
        if name == OWN:
            continue
        x = v.loops[name]
        if isinstance(x, c.Num):  # written out
            const += int(x.text) * step
        else:
            terms.append((x, step))
            if step % of_line:
                inside[name] = step
    calls = tuple(_calls(v, row, terms, const))
    if not 0 < row.step_bytes < LINE_BYTES:
        yield from calls
    elif inside:
        along = c.linear(tuple((v.loops[name], step) for name, step in inside.items()), const)
        begun = c.Bin("%", along, c.number(of_line))
        yield c.If(c.Bin("<", begun, c.number(row.step_bytes // size)), calls)
    elif const % of_line * size < row.step_bytes:
        yield from calls


def _calls(
    v: BodyValues, row: PrefetchRow, terms: list[tuple[c.CExpr, int]], const: int
) -> Iterator[c.CStmt]:
    info = v.problem.array(row.array)
    strides = row_strides(info.shape)
    const += sum(int(x.value) * n for x, n in zip(row.before, strides, strict=False))
    block = (v.locals[_LATER].x, dict(row.first.terms)[OWN])
    for k in range(row.n_lines):
        first = c.linear((block, *terms), const + k * LINE_BYTES // info.dtype.size_bytes)
        place = c.Un("&", c.Index(v.array_of(row.array), first))
        yield c.Evaluate(c.Call(c.PREFETCH, (place, c.number(int(row.is_written)))))
