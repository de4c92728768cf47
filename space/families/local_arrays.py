"""Elements of local arrays: on the stack, or one local each, for which loops over them are written out.

See kernels/transforms/local_elements.py. CPUs only: compilers for GPUs write out short loops themselves. The bound has no term for
it: what a body surely does stays the same.
"""

from __future__ import annotations

from ...kernels.ir.kernel import For, Stmt
from ...kernels.ir.on_trees import NO_TREES
from ...kernels.ir.walk import nested_statements
from ...kernels.tasks.batch_blocks import interleaved
from ...kernels.transforms.local_elements import in_locals
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .batch_layout import AS_STORED, INTERLEAVED
from .ranges import IN_TURN

ON_STACK, IN_REGISTERS = range(2)
LOCAL_ARRAYS = (
    "ON_STACK",  # an array, and loops as the program has them
    "IN_REGISTERS",  # a local an element: compilers keep as many as there are registers
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if any(_is_possible(s, t, layout) for layout in (AS_STORED, INTERLEAVED)):
            s.v.of_tasks["local_arrays"][t] = s.b.add("local_arrays", (task.name,), LOCAL_ARRAYS)


def _is_possible(s: Draft, t: int, layout: int) -> bool:
    """True if the body of a task with this layout of its batch has local arrays whose elements can be locals."""
    task = s.problem.tasks[t]
    if (
        task.body is None
        or not task.loops
        or task.body.trees != NO_TREES
        or task.logical is not None
    ):
        return False
    if layout == AS_STORED:
        return in_locals(task.body.statements) is not None
    has_blocks = t in s.v.of_tasks["batch_layout"]
    return has_blocks and in_locals(interleaved(s.problem, task).statements) is not None


def arrays_are_there(s: Draft) -> None:
    """Coherence: the choice has its first value where a body has no such array, and loops that are gone have no vectors."""
    for t, var in s.v.of_tasks["local_arrays"].items():
        on_stack = (var, bits(ON_STACK))
        layout = s.v.of_tasks["batch_layout"].get(t)
        if layout is not None:
            possible = [x for x in (AS_STORED, INTERLEAVED) if _is_possible(s, t, x)]
            s.b.clause("arrays in registers", [on_stack, (layout, bits(*possible))])
        gone = _gone(s, t)
        for (u, loop), ranges in s.v.ranges.items():
            if u == t and loop in gone:
                s.b.clause("loops written out", [on_stack, (ranges, bits(IN_TURN))])


def _gone(s: Draft, t: int) -> set[str]:
    """Returns the loops of a body that are written out for its local arrays, with one layout of its batch or another."""
    task = s.problem.tasks[t]
    assert task.body is not None
    found: set[str] = set()
    for layout in (x for x in (AS_STORED, INTERLEAVED) if _is_possible(s, t, x)):
        body = task.body if layout == AS_STORED else interleaved(s.problem, task)
        found |= _loops(task.body.statements) - _loops(in_locals(body.statements) or ())
    return found


def _loops(body: tuple[Stmt, ...]) -> set[str]:
    return {x.loop for x in nested_statements(body) if isinstance(x, For)}


PHRASES = Phrases(
    "local_arrays",
    "loops",
    {
        "IN_REGISTERS": "has the elements of its local arrays in registers, and loops over them written out"
    },
    {"IN_REGISTERS": "local arrays in registers"},
)

FAMILY = Family("local_arrays", {CPU: (arrays_are_there,)}, declare, (PHRASES,))
