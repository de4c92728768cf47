"""Parts of the reclaiming of pools: counters that change behind all loops, and loops that must not wait for them."""

from dataclasses import replace

import pytest
from kernelscape.kernels.ir import kernel as ir
from kernelscape.kernels.ir.settlements import Settlement, settlements
from kernelscape.kernels.tasks.non_affine import SETTLING
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing import sparse_emulation
from kernelscape.testing.sparse_emulation import Shape

DEEP = Shape((("pointer", (2, 2)), ("pointer", (2, 2)), ("hash", (2, 2))), 2, 1)


def reclaimed() -> tuple[ir.Stmt, ...]:
    """Statements that reclaim a chain of four pools."""
    recording, _ = sparse_emulation.recorded(DEEP, [("drop", 3)])
    tasks = (t.body for t in normalise(recording).tasks if t.body is not None)
    return next(b.statements for b in tasks if b.reason.text == SETTLING)


def test_pools_of_a_tree_have_a_loop_and_stores_each() -> None:
    statements = reclaimed()
    found = settlements(statements)
    assert len(found) == 4
    assert tuple(s for x in found for s in _in_order(x)) == statements


def _in_order(x: Settlement) -> tuple[ir.Stmt, ...]:
    """The statements of a pool as they are written: two stores before the loop."""
    return (*x.held, *x.stores[:2], x.loop, *x.stores[2:])


def _with_first(statements: tuple[ir.Stmt, ...], added: ir.Stmt) -> tuple[ir.Stmt, ...]:
    """The statements, with one more at the begin of the first loop."""
    k = next(k for k, s in enumerate(statements) if isinstance(s, ir.For))
    loop = statements[k]
    assert isinstance(loop, ir.For)
    return (*statements[:k], replace(loop, body=(added, *loop.body)), *statements[k + 1 :])


@pytest.mark.parametrize("column", range(4))
def test_loops_that_read_or_change_their_own_counters_wait(column: int) -> None:
    statements = reclaimed()
    x = settlements(statements)[0]
    stored = next(s for s in x.stores if s.indices[1].value == column)
    again = ir.SetLocal("seen", ir.Load(stored.array, stored.indices, ir.DType.i64), stored.where)
    assert settlements(_with_first(statements, again)) == ()
    assert settlements(_with_first(statements, stored)) == ()


def test_other_statements_are_no_reclaiming() -> None:
    statements = reclaimed()
    assert settlements(statements[:3]) == ()
    assert settlements((*statements, *(s for s in statements if isinstance(s, ir.For)))) == ()
