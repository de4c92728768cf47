"""Data layout of records in a list of active cells while a sequence runs: slot and coordinates, or the cell's place.

The program has slot and coordinates of each cell. Copies convert lists of places when the sequence
begins, and back when it ends. These copies are part of the sequence.
"""

from __future__ import annotations

from ...kernels.analysis.effects import arrays_read, arrays_written
from ...kernels.ir.task import ListRecords
from ..draft import Draft, Family, Phrases, SequencePart
from ..targets.kind import CPU, GPU
from .leaf_layout import MOST_BYTES

ITEM_AND_COORDINATES, CELL = range(2)
RECORD = (
    "SLOT_AND_COORDINATES",  # as the program has them: a number of 32 bits for the slot, and one an axis
    "CELL",  # the cell's place in its node, in 32 bits: the coordinates are divisions, and the slot is looked up in tables
)


def declare(s: Draft) -> None:
    for x in s.problem.parts.lists:
        if s.array(x.array).size_bytes <= MOST_BYTES:
            site = SequencePart(x.name, _first(s, x))
            s.v.of_trees["record"][site] = s.b.add("record", (x.name,), RECORD)


def _first(s: Draft, x: ListRecords) -> int:
    touched = ({*arrays_read(t), *arrays_written(t)} for t in s.problem.tasks)
    return next(t for t, here in enumerate(touched) if x.array in here)


PHRASES = Phrases(
    "record",
    "lists",
    {"CELL": "lists places of cells alone, converted on entry and back on exit"},
    {"CELL": "a list of places"},
)

FAMILY = Family("record", {CPU: (), GPU: ()}, declare, (PHRASES,))
