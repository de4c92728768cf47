"""Plans of windows that several bindings share: each change of what a plan assumes builds it once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kernelscape.runtime.engine.plan_bank import WindowPlan


@pytest.mark.parametrize(
    "change", [WindowPlan.wait_less, lambda plan: plan.assume_less([2])], ids=["wait", "assume"]
)
def test_a_plan_is_built_once_for_all_of_its_bindings(change: Callable[[WindowPlan], Any]) -> None:
    """Kind: a binding of before that discards what another one has had built."""
    plan, built = WindowPlan(()), object()
    plan._planned = built  # type: ignore[assignment]
    change(plan)
    assert plan._planned is None
    plan._planned = built  # type: ignore[assignment]
    change(plan)
    assert plan._planned is built
