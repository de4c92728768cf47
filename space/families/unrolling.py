"""Loop unrolling: writes out loops over few rows (Allen and Kennedy, 2001, section 8.4).

The index of such a loop is constant in each copy, and so are values derived from it, such as the
leaf of the next row. Compilers then vectorise the rows, which conditions in them prevent. CPUs
only: compilers for GPUs unroll short loops themselves. The bound does not depend on the choice:
copies save no guaranteed cost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from ...kernels.ir.body import Body
from ...kernels.ir.task import Problem, Task
from ...kernels.ir.unrolling import few_rows
from ...kernels.tasks.variants import in_each, staged
from ..backbone import INNER
from ..draft import Draft, Family, Phrases, all_but, bits
from ..targets.kind import CPU
from .leaf_tiles import IN_ROWS
from .tiling import DIM_KIND, VECTOR

ALL_COPIES, NO_COPIES = range(2)
UNROLLED = (
    "ALL",  # all iterations, one behind the other
    "NONE",  # a loop, of which the compiler decides
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        for loop in dict.fromkeys(x for body in bodies_of(s.problem, task) for x in loops_of(body)):
            place = place_of(task, loop)
            s.v.of_places["unrolled"][t, place] = s.b.add("unrolled", (place,), UNROLLED)


def place_of(task: Task, loop: str) -> str:
    """Name of a loop in a task's body, for people and for decisions."""
    return f"{task.name}.{loop}"


def bodies_of(problem: Problem, task: Task) -> Iterator[Body]:
    """Yields the variants of a task's body without staged tiles, the task's own first."""
    if task.body is not None:
        yield task.body
        other = in_each(problem, task)
        yield from () if other is None else (other,)


def loops_of(body: Body) -> list[str]:
    """Returns the loops of a body that can be unrolled, by their names in decisions."""
    return [body.trees.name_of(x.loop) for x in few_rows(body.statements)]


def _has_loop(loop: str, body: Body) -> bool:
    return loop in loops_of(body)


def keeping(s: Draft, t: int, has: Callable[[Body], bool]) -> Iterator[list[tuple[int, int]]]:
    """Yields the conditions for a body to have the property `has`: of each list, one field is not staged in tiles.

    Precondition: staging more fields never restores the property. So few variants decide: each
    field staged alone, and the others together.
    """
    task = s.problem.tasks[t]
    sites = [x.name for x in task.body.trees.tiles] if task.body is not None else []

    def with_tiles(names: Collection[str]) -> bool:
        return has(staged(s.problem, task, names))

    def one_of(names: Collection[str]) -> list[tuple[int, int]]:
        return [(s.v.of_places["staged"][t, name], bits(IN_ROWS)) for name in names]

    alone = [name for name in sites if not with_tiles({name})]
    yield from (one_of({name}) for name in alone)
    rest = [name for name in sites if name not in alone]
    if rest and not with_tiles(rest):
        deciding = [name for name in rest if with_tiles(set(rest) - {name})]
        yield one_of(deciding or rest)


def variants_have_them(s: Draft) -> None:
    """Coherence: variants without the loop, and vectorised iterations, unroll nothing.

    So the choice has its first value.
    """
    for (t, place), var in s.v.of_places["unrolled"].items():
        loop = place.removeprefix(place_of(s.problem.tasks[t], ""))
        for rows in keeping(s, t, partial(_has_loop, loop)):
            s.b.clause("rows of this form", [(var, bits(ALL_COPIES)), *rows])
        for d in s.dims_at(t, INNER):
            alone = (s.v.kind[d], all_but(DIM_KIND, VECTOR))
            s.b.clause("rows of one iteration", [(var, bits(ALL_COPIES)), alone])


PHRASES = Phrases(
    "unrolled",
    "loops",
    {"NONE": "is a loop that only the compiler unrolls"},
    {"NONE": "not written out"},
)

FAMILY = Family("unrolling", {CPU: (variants_have_them,)}, declare, (PHRASES,))
