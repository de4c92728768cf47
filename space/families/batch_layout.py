"""Layout of the blocks of a batch that a vectorised loop works on: as they lie in memory, or interleaved in the workspace of lanes.

See kernels/tasks/batch_blocks.py. The bound has no term for it: a copy spares no load that is sure.
"""

from __future__ import annotations

from ...kernels.tasks.batch_blocks import batch_blocks
from ..backbone import INNER
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .gathers import TRANSPOSED
from .memory import GLOBAL
from .row_stores import IN_ROWS
from .rows import WALK
from .tiling import VECTOR, runs_in_lanes

AS_STORED, INTERLEAVED = range(2)
BATCH_LAYOUT = (
    "AS_STORED",  # lanes gather what they load from their blocks, and scatter what they store
    "INTERLEAVED",  # the blocks of all lanes are copied first, element by element side by side (AoSoA), and back last
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if task.body is None or not any(runs_in_lanes(s, task, d) for d in s.dims_at(t, INNER)):
            continue
        if batch_blocks(s.problem, task):
            s.v.of_tasks["batch_layout"][t] = s.b.add("batch_layout", (task.name,), BATCH_LAYOUT)


def lanes_have_blocks(s: Draft) -> None:
    """Coherence: a loop without vectors has no lanes to interleave. Registers transpose what is copied."""
    for t, var in s.v.of_tasks["batch_layout"].items():
        (d,) = (x for x in s.dims_at(t, INNER) if runs_in_lanes(s, s.problem.tasks[t], x))
        as_stored = (var, bits(AS_STORED))
        s.b.clause("lanes have blocks", [as_stored, (s.v.kind[d], bits(VECTOR))])
        for kind, value in (("gathers", TRANSPOSED), ("row_stores", IN_ROWS)):
            if t in s.v.of_tasks[kind]:
                s.b.clause("blocks in rows", [as_stored, (s.v.of_tasks[kind][t], bits(value))])


def blocks_of_memory(s: Draft) -> None:
    """Semantics: blocks are copied from the array itself, and back to it: no value of it is on chip."""
    for t, var in s.v.of_tasks["batch_layout"].items():
        arrays = {x.array.name for x in batch_blocks(s.problem, s.problem.tasks[t])}
        as_stored = (var, bits(AS_STORED))
        for o, staged in s.v.staged.items():
            if o.task == t and o.access.array in arrays:
                s.b.clause("blocks of memory", [as_stored, (staged, bits(WALK))])
        for f, space in s.v.mem_space.items():
            if t in (f.producer, f.consumer) and f.array in arrays:
                s.b.clause("blocks of memory", [as_stored, (space, bits(GLOBAL))])


PHRASES = Phrases(
    "batch_layout",
    "layouts",
    {
        "INTERLEAVED": "copies the blocks of a vector of iterations first, element by element side by side (AoSoA)"
    },
    {"INTERLEAVED": "interleaved blocks"},
)

FAMILY = Family("batch_layout", {CPU: (lanes_have_blocks, blocks_of_memory)}, declare, (PHRASES,))
