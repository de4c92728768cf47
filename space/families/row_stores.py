"""Neighbouring stores in vectorised loops: one scattered store per element, or stores of rows that registers transpose."""

from __future__ import annotations

from collections.abc import Callable

from ...kernels.analysis.write_rows import has_store_rows
from ...kernels.ir.kernel import DType
from ..backbone import INNER
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .tiling import VECTOR, runs_in_lanes

BY_ELEMENT, IN_ROWS = range(2)
ROW_STORES = (
    "BY_ELEMENT",  # all lanes scatter one element, then the next one
    "IN_ROWS",  # a transposition in registers, then each lane stores up to 16 bytes at once
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if task.body is None:
            continue
        for d in s.dims_at(t, INNER):
            in_lanes = runs_in_lanes(s, task, d)
            if in_lanes and has_store_rows(task.body.statements, d.loop.name, _dtype_in(s)):
                s.v.of_tasks["row_stores"][t] = s.b.add("row_stores", (task.name,), ROW_STORES)


def _dtype_in(s: Draft) -> Callable[[str], DType]:
    return lambda name: s.array(name).dtype


def lanes_store(s: Draft) -> None:
    """Coherence: a loop without vectors scatters nothing, so the choice has its first value."""
    for t, var in s.v.of_tasks["row_stores"].items():
        (d,) = (x for x in s.dims_at(t, INNER) if runs_in_lanes(s, s.problem.tasks[t], x))
        s.b.clause("lanes store", [(var, bits(BY_ELEMENT)), (s.v.kind[d], bits(VECTOR))])


PHRASES = Phrases(
    "row_stores",
    "stores",
    {"IN_ROWS": "transposes what it stores to neighbouring elements, and stores it at once"},
    {"IN_ROWS": "stores rows of lanes"},
)

FAMILY = Family("row_stores", {CPU: (lanes_store,)}, declare, (PHRASES,))
