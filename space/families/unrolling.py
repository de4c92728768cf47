"""Loop unrolling: writes out loops over few rows (Allen and Kennedy, 2001, section 8.4).

The index of such a loop is constant in each copy, and so are its consequences, such as the leaf of the next row. Compilers then
vectorise the rows, which conditions in them prevent. CPUs only: compilers for GPUs unroll short loops themselves.

No term of the bound depends on it: copies save no guaranteed cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ...kernels.ir.body import Body
from ...kernels.ir.task import Task
from ...kernels.ir.unrolling import few_rows
from ..backbone import INNER
from ..draft import Draft, Family, Phrases, all_but, bits
from ..targets.kind import CPU
from .leaf_tiles import IN_ROWS, IN_TILE
from .tiling import DIM_KIND, VECTOR

ALL_COPIES, NO_COPIES = range(2)
UNROLLED = (
    "ALL",  # all iterations, one behind the other
    "NONE",  # a loop, of which the compiler decides
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        for loop in dict.fromkeys(x for body in bodies_of(task) for x in loops_of(body)):
            place = place_of(task, loop)
            s.v.of_places["unrolled"][t, place] = s.b.add("unrolled", (place,), UNROLLED)


def place_of(task: Task, loop: str) -> str:
    """The name of a loop in a task's body, for people and decisions."""
    return f"{task.name}.{loop}"


def bodies_of(task: Task) -> Iterator[Body]:
    """Yields the variants of a task's body, its own first."""
    if task.body is not None:
        yield task.body
        yield from (body for _, body in (*task.body.trees.others, *task.body.trees.forms))


def loops_of(body: Body) -> list[str]:
    """Returns the loops of a body that can be unrolled."""
    return [x.loop for x in few_rows(body.statements)]


def _has_loop(loop: str, body: Body) -> bool:
    return loop in loops_of(body)


def of_other_forms(
    s: Draft, t: int, has: Callable[[Body], bool]
) -> Iterator[list[tuple[int, int]]]:
    """Yields, for each variant of a task's body without the property `has`, the literals that select another variant."""
    body = s.problem.tasks[t].body
    for tiled, form in body.trees.forms if body is not None else ():
        if not has(form):
            assert body is not None
            yield [
                (s.v.of_places["staged"][t, x.name], bits(IN_ROWS if x.name in tiled else IN_TILE))
                for x in body.trees.tiles
            ]


def forms_have_them(s: Draft) -> None:
    """Coherence: variants without the loop, and vectorised iterations, unroll nothing, so the choice has its first value."""
    for (t, place), var in s.v.of_places["unrolled"].items():
        loop = place.removeprefix(place_of(s.problem.tasks[t], ""))
        for others in of_other_forms(s, t, partial(_has_loop, loop)):
            s.b.clause("rows of this form", [(var, bits(ALL_COPIES)), *others])
        for d in s.dims_at(t, INNER):
            alone = (s.v.kind[d], all_but(DIM_KIND, VECTOR))
            s.b.clause("rows of one iteration", [(var, bits(ALL_COPIES)), alone])


PHRASES = Phrases(
    "unrolled",
    "loops",
    {"NONE": "is a loop of which the compiler decides how often it is written out"},
    {"NONE": "not written out"},
)

FAMILY = Family("unrolling", {CPU: (forms_have_them,)}, declare, (PHRASES,))
