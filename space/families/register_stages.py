"""Register stages: how many steps of a sum a thread of a GPU has the operands of in registers.

With two the operands of a step are loaded from shared memory while the step before multiplies, so that nothing waits for a load.
CUTLASS calls this double buffering of register fragments. It takes registers, which only the compiler counts. The bound has no
term: a load ahead is one that would be made later, but for one at the end of a tile.
"""

from __future__ import annotations

from ..backbone import INNER, MID, Dim, Operand
from ..draft import Draft, Family, Phrases, all_but, bits
from ..targets.kind import GPU
from .order import APART
from .packing import DIRECT, STAGED
from .tiling import LOOP, sizes_of

ONE, TWO = range(2)
REGISTER_STAGES = (
    "ONE",  # a step's operands, which it loads itself
    "TWO",  # those of the next step, too
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if step_of(s, t) is not None and _operands(s, t):
            name = (task.name,)
            s.v.of_tasks["register_stages"][t] = s.b.add("register_stages", name, REGISTER_STAGES)


def step_of(s: Draft, t: int) -> Dim | None:
    """Returns the mid dim whose iterations are the steps of a task's sum; None if the task has none, or tests, or several."""
    task = s.problem.tasks[t]
    summed = [loop.name for loop in task.loops if loop.is_reduction]
    if not task.is_structured or task.is_guarded or len(summed) != 1:
        return None
    return s.backbone.dim(t, summed[0], MID)


def _operands(s: Draft, t: int) -> list[Operand]:
    """Returns the operands of a task that may be copied, and have other elements in each step of its sum."""
    step = step_of(s, t)
    assert step is not None
    own = (o for o in s.backbone.operands if o.task == t and not o.is_window)
    return [o for o in own if step.loop.name in o.loops]


def steps(s: Draft) -> None:
    """Constraints of operands loaded ahead: steps are whole, and iterations of a loop that is one task's.

    Some operand is read in shared memory. What other operands read in memory is loaded in its own
    step. Loops over results are around the sum on every GPU, so the loop of steps is innermost.
    """
    b, v = s.b, s.v
    for t, var in v.of_tasks["register_stages"].items():
        step, at_once = step_of(s, t), (var, bits(ONE))
        assert step is not None
        name = step.loop.name
        copied = [(v.staged[o], all_but(STAGED, DIRECT)) for o in _operands(s, t)]
        b.clause("operands in shared memory", [at_once, *copied])
        b.clause("steps of a loop", [at_once, (v.kind[step], bits(LOOP))])
        inner = s.backbone.dim(t, name, INNER)
        whole = (k for k, n in enumerate(sizes_of(s, inner)) if step.loop.extent % n == 0)
        b.clause("whole steps", [at_once, (v.size[inner], bits(*whole))])
        for e in s.backbone.partners[step]:
            b.clause("steps of one task", [at_once, (s.order(step, e), APART)])


PHRASES = Phrases(
    "register_stages",
    "threads",
    {"TWO": "loads the operands of a step from shared memory while the step before multiplies"},
    {"TWO": "loads operands a step ahead"},
)

FAMILY = Family("register_stages", {GPU: (steps,)}, declare, (PHRASES,))
