"""Loop ranges whose end is known only at run time."""

from __future__ import annotations

from ...kernels.ir.kernel import DType
from ..bodies.body_values import BodyValues
from ..loops.ir import Loop, Schedule
from ..text import csyntax as c
from .emission import Emission


def n_iterations(scene: Emission, node: Loop) -> c.CExpr:
    """Returns the number of iterations of a loop. Declares a variable for it if it is known only at run time."""
    extent = c.number(node.extent)
    if not node.ends:
        return extent
    w = scene.w
    values = BodyValues(w, scene.plan.problem, scene.global_array)
    found = [w.converted(values.evaluate(x), DType.i64).x for x in node.ends]
    n = c.Id(w.fresh(f"n_{node.members[0].loop}"))
    w.write(c.Declare("long", n.name, found[0]))
    for x in found[1:]:
        w.write(c.If(c.Bin(">", x, n), (c.Assign(n, x),)))
    w.write(c.If(c.Bin(">", n, extent), (c.Assign(n, extent),)))
    return n


def counted_range(scene: Emission, node: Loop, n: c.CExpr) -> tuple[c.CExpr, c.CExpr]:
    """Declares and returns begin and end of a thread's range of `n` iterations, counted in iterations."""
    if node.schedule is Schedule.SEQUENTIAL:
        return c.Num("0"), n
    tid, n_threads = c.Id("tid"), c.Id("n_threads")
    if node.is_cyclic:
        return tid, n
    ends = [c.Id(scene.w.fresh(stem)) for stem in ("part_begin", "part_end")]
    numbers: tuple[c.CExpr, ...] = (tid, c.Bin("+", tid, c.Num("1")))
    for name, k in zip(ends, numbers, strict=True):
        part = c.Bin("/", c.Bin("*", n, k), n_threads)
        scene.w.write(c.Declare("long", name.name, part, constant=True))
    return ends[0], ends[1]
