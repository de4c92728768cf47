"""Check of stored implementations in a running program: the first runs of each are repeated kernel by kernel, and compared."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from ..kernels.fields.canonical_state import Array, canonical, unsound
from ..kernels.frontend.dispatch import Executor
from ..kernels.sparse.recorded import UsedTree
from ..runtime.engine.window import DeferralWindow
from ..runtime.worker.verify import Expected, find_mismatch
from .plan_replay import Follower, SequenceRun, StoredPlan, run_each

_CHECKED = 3  # runs of each
_FACTOR = 1024.0  # units in the last place of an array's largest value: either result was rounded on another way


@dataclass
class CheckedPlan:
    """Checked runs of a stored implementation: their seconds, and the first disagreement, a sentence."""

    plan_s: list[float] = field(default_factory=list)
    plain_s: list[float] = field(default_factory=list)  # of the kernels, one by one
    wrong: str = ""

    @property
    def plan_ns(self) -> float | None:
        """The median of all runs but the first; None where there is one at most."""
        return statistics.median(self.plan_s[1:]) * 1e9 if len(self.plan_s) > 1 else None

    @property
    def plain_ns(self) -> float | None:
        """The median of all runs of its kernels but the first; None where there is one at most."""
        return statistics.median(self.plain_s[1:]) * 1e9 if len(self.plain_s) > 1 else None


class PlanChecks:
    """Checks of plans in a program, which goes on with what its kernels computed. `found` has a row for each plan, by its name."""

    def __init__(self, plans: Sequence[StoredPlan], behind: Executor) -> None:
        self._behind = behind
        self.found = {p.name: CheckedPlan() for p in plans}

    def execute(self, whole: SequenceRun) -> None:
        """Runs a plan, and in its first runs its kernels in its place; one that was wrong does not run again."""
        row = self.found[whole.sequence.name]
        if row.wrong:
            run_each(whole.calls)
            return
        is_checked = len(row.plain_s) < _CHECKED
        arrays = _arrays_of(whole) if is_checked else {}
        before = {name: x.copy() for name, x in arrays.items()}
        begin_s = perf_counter()
        whole.run()
        row.plan_s.append(perf_counter() - begin_s)
        if not is_checked:
            return
        after = {name: x.copy() for name, x in arrays.items()}
        for name, x in arrays.items():
            x[...] = before[name]
        begin_s = perf_counter()
        run_each(whole.calls)
        self._behind.release()
        row.plain_s.append(perf_counter() - begin_s)
        row.wrong = _disagreement(whole.sequence.trees, after, arrays)


def checked_follower(plans: Sequence[StoredPlan]) -> tuple[Follower, PlanChecks]:
    """Returns an executor that runs plans and checks the first runs of each, and its checks."""
    behind = DeferralWindow()
    checks = PlanChecks(plans, behind)
    return Follower(plans, behind, checks.execute), checks


def _arrays_of(whole: SequenceRun) -> dict[str, Array]:
    """The arrays that the calls of a sequence take, by their names in it."""
    return {
        name: x
        for call, (_, values) in zip(whole.sequence.calls, whole.calls, strict=True)
        for name, x in zip(call.arrays, values, strict=False)
    }


def _disagreement(
    trees: Sequence[UsedTree], got: Mapping[str, Array], wanted: Mapping[str, Array]
) -> str:
    """Returns a sentence about the first array that is another one; "" where all agree."""
    wrong = unsound(trees, got)
    if wrong:
        return wrong
    found, expected = canonical(trees, got), canonical(trees, wanted)
    for name, want in expected.items():
        x = found[name]
        if x.shape != want.shape:
            return f"{name}: {x.shape[-1]} cells are active, {want.shape[-1]} should be"
        exact = want.astype(np.float64) if want.dtype.kind == "f" else want
        mismatch = find_mismatch(x, Expected(exact, factor=_FACTOR))
        if mismatch is not None:
            return f"{name}{mismatch}"
    return ""
