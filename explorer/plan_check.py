"""Check of stored implementations in a running program: their first runs are compared with its kernels."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from ..kernels.frontend.dispatch import Executor
from ..runtime.engine.stored_components import N_CHECKED, disagreement
from ..runtime.engine.window import DeferralWindow
from .plan_replay import Follower, SequenceRun, StoredPlan, run_each


@dataclass
class CheckedPlan:
    """Checked runs of one stored implementation: its seconds, its kernels' seconds, the first disagreement."""

    plan_s: list[float] = field(default_factory=list)
    plain_s: list[float] = field(default_factory=list)  # of the kernels, one by one
    wrong: str = ""

    @property
    def plan_ns(self) -> float | None:
        """Median ns of the implementation's runs except the first; None with fewer than two runs."""
        return statistics.median(self.plan_s[1:]) * 1e9 if len(self.plan_s) > 1 else None

    @property
    def plain_ns(self) -> float | None:
        """Median ns of the original kernels' runs except the first; None with fewer than two runs."""
        return statistics.median(self.plain_s[1:]) * 1e9 if len(self.plain_s) > 1 else None


class PlanChecks:
    """Checks of stored implementations in a program. `found` has the results by name of the sequence.

    After a checked run the arrays hold the results of the original kernels.
    """

    def __init__(self, plans: Sequence[StoredPlan], behind: Executor) -> None:
        self._behind = behind
        self.found = {p.name: CheckedPlan() for p in plans}

    def execute(self, whole: SequenceRun) -> bool:
        """Runs a stored implementation; its first runs are repeated with the original kernels and compared.

        An implementation that was wrong is not run again: its kernels run instead. Returns False then.
        """
        row = self.found[whole.sequence.name]
        if row.wrong:
            run_each(whole.calls)
            self._behind.release()
            return False
        is_checked = len(row.plain_s) < N_CHECKED
        arrays = whole.arrays if is_checked else {}
        before = {name: x.copy() for name, x in arrays.items()}
        begin_s = perf_counter()
        whole.run()
        row.plan_s.append(perf_counter() - begin_s)
        if not is_checked:
            return True
        after = {name: x.copy() for name, x in arrays.items()}
        for name, x in arrays.items():
            x[...] = before[name]
        begin_s = perf_counter()
        run_each(whole.calls)
        self._behind.release()
        row.plain_s.append(perf_counter() - begin_s)
        row.wrong = disagreement(whole.sequence.trees, after, arrays)
        return True


def checked_follower(plans: Sequence[StoredPlan]) -> tuple[Follower, PlanChecks]:
    """Returns an executor that replays `plans` and checks the first runs of each, and the results of these checks."""
    behind = DeferralWindow()
    checks = PlanChecks(plans, behind)
    return Follower(plans, behind, checks.execute), checks
