"""Conversion tasks at the begin or end of a sequence: they convert arrays from one layout to another.

They convert block by block, so that threads share the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..analysis.accesses import analyse
from ..ir.body import Closure, Reason, access_at
from ..ir.domain import Loop
from ..ir.kernel import NOWHERE, DType, Expr, Load, Local, LoopIndex, SetLocal, Stmt
from ..ir.simplify import binary
from ..ir.task import Slots, Task
from .cells import I64, number, plus, times
from .layout import FREE, FRESH, TAKEN

SOME_PAGES = 4096  # items that a CPU thread converts at once: whole pages of each array, so that threads share none


def converting(
    verb: str,
    name: str,
    what: tuple[str, int, Expr],
    write: Callable[[Expr, Expr, Expr], Sequence[Stmt]],
    dtype: DType,
    at_once: int = SOME_PAGES,
) -> Task:
    """Returns a task that converts items (cells, records or table entries) in blocks of `at_once`.

    `what`: description of the items, their number, and the number of them in use. `write` returns the statements for a block from
    three values: its first item, the number of its items in use, and the number of its items.
    """
    noun, n_items, used = what
    block = Loop("block", -(-n_items // at_once), False)
    begin = times(LoopIndex("block", I64), at_once)
    room = binary("min", number(at_once), binary("sub", number(n_items), begin))
    left = binary("sub", used, begin)
    here = SetLocal("n_used", binary("max", number(0), binary("min", left, room)), NOWHERE)
    statements = (here, *write(begin, Local("n_used", I64), room))
    body = analyse(statements, (block,), Reason(Closure.RANGE, f"a conversion of {noun}", NOWHERE))
    first = next(site for site in body.sites if site.writes)
    target = access_at(first, (block,))
    return Task(f"{name}.{verb}", f"{verb} {name}", (block,), target, dtype, None, body=body)


def in_use(slots: Slots | None, n_items: int) -> Expr:
    """Returns how many of the first `n_items` items may be in use: those of all slots taken so far, freed ones too.

    Without `slots`, all of them.
    """
    if slots is None:
        return number(n_items)

    def counter(column: int) -> Expr:
        return Load(slots.counters, (number(slots.row), number(column)), I64)

    more = binary("max", binary("sub", counter(TAKEN), counter(FREE)), number(0))
    return binary("min", times(plus(counter(FRESH), more), slots.unit), number(n_items))
