"""Description of the bodies of an implementation, in words: one phrase for each task that is no plain assignment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..kernels.tasks.non_affine import ClosedTask
from ..space.families.guard import PHRASES as GUARDS
from .describe import scatters_of_task
from .loops.ir import JoinedBodies, Launch, phases_of
from .plan.plan import Plan, TaskPlan

_SHAPES = {
    "straight": "statements that always run",
    "guarded": "statements in branches",
    "loops": "loops whose lengths only a run knows",
}


def body_words(plan: Plan, launches: Sequence[Launch]) -> Iterator[str]:
    """Yields one phrase for each task that assigns under a condition or has a body. The phrase gives its form, the reason why it is
    no plain assignment, and how it was opened.
    """
    for t in plan.tasks:
        if t.task.body is not None or t.task.is_guarded:
            yield f"{t.task.name}: {', '.join(_parts(plan, t, launches))}"


def _parts(plan: Plan, t: TaskPlan, launches: Sequence[Launch]) -> Iterator[str]:
    body = t.task.body
    if body is None:
        guard = plan.choice(GUARDS.kind, t.index)
        yield f"an assignment under a condition ({GUARDS.short.get(guard, guard)})"
    else:
        yield f"{_SHAPES[body.shape]} ({ClosedTask(t.task.name, body.reason)})"
    if t.wave is not None:
        yield f"wavefronts of tiles of {t.wave.rows} x {t.wave.columns}"
    elif t.is_parallel:
        shared = [p.loop.name for p in t.loops if p.is_parallel]
        yield f"{' and '.join(shared)} shared by threads"
    else:
        yield "on one thread"
    if t.vector is not None:
        masked = " with masks" if body is not None and body.shape != "straight" else ""
        yield f"{t.vector.loop.name} in {t.vector.inner} lanes{masked}"
    yield from (f"{loop} in {n} lanes along the range" for loop, n in t.ranges.items())
    if t.vector is None and not t.ranges:
        yield "one iteration at a time"
    yield from scatters_of_task(plan, t)
    for launch in launches:
        for joined in (x for node in launch.nodes for x in phases_of(node)):
            if isinstance(joined, JoinedBodies) and {t.index} < {*joined.tasks}:
                others = [plan.tasks[k].task.name for k in joined.tasks if k != t.index]
                yield f"one body with {' and '.join(others)}, equal values computed once"
