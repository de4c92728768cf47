"""Wavefront sweep: runs the tiles of a skewed loop nest by diagonals; threads share the tiles of a diagonal.

A thread runs the same rows of tiles in every diagonal, so its caches hold its latest writes.
"""

from __future__ import annotations

from collections.abc import Callable

from ...kernels.ir import kernel as ir
from ...kernels.ir.affine import Affine
from ..plan.schedules import Wave
from ..text import csyntax as c
from .body_values import BodyValues
from .emitter import Builder
from .iteration_point import variable_of

Write = Callable[[tuple[ir.Stmt, ...]], tuple[c.CStmt, ...]]


def wavefront(w: Builder, v: BodyValues, wave: Wave, write: Write) -> tuple[c.CStmt, ...]:
    """Returns the statements of a wavefront sweep that each thread of a team runs.

    `write`: gives the statements of one iteration, with its locals, for the loop indices in `v`.
    """
    names = ("diagonal", "tile", "first", "last", "row_begin", "row_end", "begin", "end")
    diagonal, tile, first, last, row, row_end, begin, end = (c.Id(w.fresh(x)) for x in names)
    tid, n_threads, zero, one = c.Id("tid"), c.Id("n_threads"), c.Num("0"), c.Num("1")
    rows, columns = c.number(wave.rows), c.number(wave.columns)
    behind = c.Bin("-", diagonal, c.number(wave.n_columns - 1))
    # The first of this thread's rows of tiles that is not before the first of the diagonal.
    ahead = c.Bin("-", c.Bin("+", tid, n_threads), c.Bin("%", first, n_threads))
    own = c.Bin("+", first, c.Bin("%", ahead, n_threads))
    inside = _tile(w, v, wave, (row, row_end, begin, end), write)
    of_tile = (
        c.Declare("long", row.name, c.Bin("*", tile, rows), constant=True),
        c.Declare(
            "long",
            row_end.name,
            c.minimum(c.Bin("+", row, rows), c.number(wave.sweep.extent)),
            constant=True,
        ),
        c.Declare(
            "long", begin.name, c.Bin("*", c.Bin("-", diagonal, tile), columns), constant=True
        ),
        c.Declare("long", end.name, c.Bin("+", begin, columns), constant=True),
        *inside,
    )
    of_diagonal = (
        c.Declare("long", first.name, _larger(behind, zero), constant=True),
        c.Declare(
            "long",
            last.name,
            c.Bin("+", c.minimum(diagonal, c.number(wave.n_rows - 1)), one),
            constant=True,
        ),
        c.For(tile.name, own, last, n_threads, of_tile),
        c.Barrier(),
    )
    n_diagonals = c.number(wave.n_rows + wave.n_columns - 1)
    return (c.For(diagonal.name, zero, n_diagonals, 1, of_diagonal),)


def _tile(
    w: Builder,
    v: BodyValues,
    wave: Wave,
    ends: tuple[c.CExpr, c.CExpr, c.CExpr, c.CExpr],
    write: Write,
) -> tuple[c.CStmt, ...]:
    """Returns the loops over one tile. `ends`: begin and end of its rows, then of its skewed indices."""
    row, row_end, begin, end = ends
    sweep = wave.sweep
    i, j = c.Id(w.fresh(sweep.outer.partition("@")[0])), c.Id(w.fresh(sweep.inner.loop))
    v.loops[sweep.outer], v.loops[sweep.inner.loop] = i, j
    length = _value(sweep.inner_extent, {sweep.outer: i})
    body = write((*sweep.before, *sweep.inner.body))
    moved = c.linear(((i, sweep.skew),), 0)
    if wave.along_diagonals:
        skewed = c.Id(w.fresh(f"{sweep.inner.loop}_skewed"))
        here = c.Declare("long", j.name, c.minus(skewed, moved), constant=True)
        is_there = c.Bin("&&", c.Bin(">=", j, c.Num("0")), c.Bin("<", j, length))
        across = c.For(i.name, row, row_end, 1, (here, c.If(is_there, body)))
        return (c.For(skewed.name, begin, end, 1, (across,)),)
    lo, hi = c.minus(begin, moved), c.minus(end, moved)
    along = c.For(j.name, _larger(lo, c.Num("0")), c.minimum(hi, length), 1, body)
    return (c.For(i.name, row, row_end, 1, (along,)),)


def _larger(a: c.CExpr, b: c.CExpr) -> c.CExpr:
    return c.Cond(c.Bin(">", a, b), a, b)


def _value(x: Affine, loops: dict[str, c.Id]) -> c.CExpr:
    return c.linear(tuple((variable_of(loops, name), k) for name, k in x.terms), x.const)
