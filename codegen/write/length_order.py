"""Orders of iterations by length: each thread sorts those of its windows by classes of nearly equal length, the longest first.

A kept order is made again, window by window, where a length differs from the one that it was made for. Another order would be
right, too: each has all iterations once.
"""

from __future__ import annotations

from dataclasses import replace

from ...kernels.ir.kernel import DType
from ..bodies.bodies import BodyWriter
from ..passes.storage import Buffer, OrderMemory
from ..plan.plan import LengthOrder, TaskPlan
from ..text import csyntax as c
from .domain_cuts import maximum
from .emission import Emission
from .kept_memory import keeping
from .scatter import part

_LONGEST = 1 << 30  # longer ones are of the last class
# Lengths below 32 have a class each. There are eight classes from one power of two to the next: lanes of one class wait for the
# longest of them at most an eighth of its time.
SORT_BY_LENGTH = """\
static inline int length_class(int32_t length) {
    const uint32_t n = (uint32_t)length;
    if (n < 32u) return (int)n;
    const int power = 31 - __builtin_clz(n);
    return 32 + (power - 5) * 8 + (int)(n >> (power - 3) & 7u);
}
static inline void sort_by_length(int32_t *order, const int32_t *lengths, long begin, long end) {
    int32_t next[240] = {0}, behind = (int32_t)begin;
    for (long i = begin; i < end; ++i) ++next[length_class(lengths[i])];
    for (int k = 239; k >= 0; --k) {
        const int32_t here = next[k];
        next[k] = behind;
        behind += here;
    }
    for (long i = begin; i < end; ++i) order[next[length_class(lengths[i])]++] = (int32_t)i;
}"""


def place_length_order(scene: Emission, task: TaskPlan, x: LengthOrder) -> None:
    """Allocates the buffers of a task's order, one behind the other."""
    name, n = task.task.name, task.loops[0].loop.extent

    def of(stem: str) -> Buffer:
        return scene.buffer(f"{name}_{stem}", DType.i32, n, is_private=False)

    made = OrderMemory(of("lengths"), of("order"))
    if x.is_kept:
        made = replace(made, held=keeping(scene, f"{name}_order", (made.lengths, made.order)))
    scene.length_orders[task.index] = made


def write_length_order(scene: Emission, task: TaskPlan) -> None:
    """Writes the sort of a task's iterations, before its loop. Each window has one thread."""
    x, memory, loop = task.by_length, scene.length_orders[task.index], task.loops[0].loop
    assert x is not None
    w = scene.w
    scene.prelude.defined.setdefault("sort_by_length", SORT_BY_LENGTH)
    names = [w.fresh(s) for s in ("window", "window_begin", "window_end", "differs", loop.name)]
    window, begin, end, differs, i = map(c.Id, names)
    lengths, order = c.Id(memory.lengths.name), c.Id(memory.order.name)
    first_place = c.Un("&", c.Index(order, c.Num("0")))
    with w.scope() as measuring:
        found = _length(scene, x, loop.name, i)
        if memory.held is not None:
            changed = c.Bin("!=", c.Index(lengths, i), found)
            w.write(c.Assign(differs, changed, "|"))
        w.write(c.Assign(c.Index(lengths, i), found))
    sort: c.CStmt = c.Evaluate(c.Call("sort_by_length", (first_place, lengths, begin, end)))
    opening: tuple[c.CStmt, ...] = ()
    if memory.held is not None:
        is_valid = c.Index(c.Id(memory.held.is_valid.name), c.Num("0"))
        opening = (c.Declare("int", differs.name, c.Un("!", is_valid)),)
        sort = c.If(differs, (sort,))
    behind = c.minimum(c.linear(((begin, 1),), x.window), c.number(loop.extent))
    each = (
        c.Declare("long", begin.name, c.Bin("*", window, c.number(x.window)), constant=True),
        c.Declare("long", end.name, behind, constant=True),
        *opening,
        c.For(i.name, begin, end, 1, tuple(measuring.statements)),
        sort,
    )
    with w.scope() as body:
        first, last = part(scene, c.number(-(-loop.extent // x.window)), task.is_parallel)
        w.write(c.For(window.name, first, last, 1, each))
    w.used -= {*names}
    w.write(c.Scope(tuple(body.statements)))


def _length(scene: Emission, x: LengthOrder, loop: str, i: c.CExpr) -> c.CExpr:
    """Writes the length of iteration `i`, and returns it."""
    w = scene.w
    writer = BodyWriter(w, scene.plan.problem, scene.global_array)
    writer.v.plain_indices = True
    writer.v.loops = {loop: i}
    names = [w.fresh(s) for s in ("length", "found")]
    length, found = map(c.Id, names)
    w.used -= {*names}
    w.write(c.Declare("long", length.name, writer.v.evaluate(x.length).x, constant=True))
    clipped = maximum(c.minimum(length, c.number(_LONGEST)), c.Num("0"))
    w.write(c.Declare("int32_t", found.name, c.CastTo("int32_t", clipped), constant=True))
    return found
