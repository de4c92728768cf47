"""Grid of blocks of a GPU launch.

Choice `dim_kind` (tiling.py) puts a dim into the grid; its tiles determine the grid's size, or `grid_stride` does.
"""

from __future__ import annotations

from ..backbone import OUTER
from ..draft import Draft, Family, all_but, bits
from ..engine.declarations import Term
from ..targets.kind import GPU
from .fusion import SEPARATE
from .grid_stride import tiles_at_most
from .order import INSIDE, MERGED
from .team import staying
from .tiling import DIM_KIND, LOOP, PARALLEL, WITHOUT_LOOP

MAX_BLOCK_DIMS = 3
MAX_BLOCKS_PER_DIM = 65535  # of a grid's second and third dim
MAX_BLOCKS_ALONE = 1 << 20  # where a task has one loop, and a grid one dim


def blocks_outermost(outer: int, other: int, order: int) -> bool:
    """False if a dim of kind `outer` that is in the grid is inside a dim of kind `other` that is a loop.

    `order`: the relation of the first to the second dim.
    """
    return outer != PARALLEL or order != INSIDE or other in (PARALLEL, *WITHOUT_LOOP)


def results_outside(free: int, reduced: int, order: int) -> bool:
    """False if a loop over results is inside a reduction loop. `free`, `reduced`: kinds of these dims.

    `order`: the relation of the dim of the result to the reduced dim.
    """
    return not (free == reduced == LOOP) or order != INSIDE


def one_grid(s: Draft) -> None:
    """Coherence: all tasks of a launch have the same grid, and the same loops of it unless all of its blocks synchronise."""
    b, v, partners = s.b, s.v, s.backbone.partners
    for t, u in s.backbone.launch_pairs():
        for here, there in ((t, u), (u, t)):
            for d in s.dims_at(here, OUTER):
                own = [e for e in partners[d] if e.task == there]
                literals = [
                    (v.fused[t, u], bits(SEPARATE)),
                    (v.kind[d], all_but(DIM_KIND, PARALLEL)),
                    *((s.order(d, e), bits(MERGED)) for e in own),
                    *staying(s, t),
                ]
                b.clause("one grid a launch", literals)


def blocks(s: Draft) -> None:
    """Hardware: grid dims are around all other dims, and their number and sizes are limited.

    Accumulators are in registers, so no loop over results is inside a reduction loop.
    """
    b, v = s.b, s.v
    is_block = tuple(int(k == PARALLEL) for k in range(len(DIM_KIND)))
    for t, task in enumerate(s.problem.tasks):
        ordered, outer = s.ordered_dims(t), s.dims_at(t, OUTER)
        for d in outer:
            for e in (x for x in ordered if x.loop != d.loop):
                rule = blocks_outermost
                b.table3("blocks outermost", v.kind[d], v.kind[e], s.order(d, e), rule, share=rule)
            limit = MAX_BLOCKS_ALONE if len(task.loops) == 1 else MAX_BLOCKS_PER_DIM
            in_grid = (v.kind[d], all_but(DIM_KIND, PARALLEL))
            tiles_at_most(s, "size of the grid", in_grid, d, limit)
        if len(outer) > MAX_BLOCK_DIMS:
            terms = [Term(None, v.kind[d], is_block) for d in outer]
            b.sum_at_most(f"dims of the grid of {task.name}", terms, MAX_BLOCK_DIMS)
        for f in (d for d in ordered if not d.loop.is_reduction):
            for r in (d for d in ordered if d.loop.is_reduction):
                inside = results_outside
                kinds = (v.kind[f], v.kind[r])
                b.table3("sums in registers", *kinds, s.order(f, r), inside, share=inside)


FAMILY = Family("grid", {GPU: (one_grid, blocks)})
