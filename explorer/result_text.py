"""Text of a run's result, for logs and for `print(run)`."""

from __future__ import annotations

from ..search.events import gap_text
from ..space.decisions import fixed_count
from .stages import Ended

_STATUS = {
    "optimal": "optimal: the tree is exhausted under the bound",
    "optimal_open": "optimal, non-affine bodies as they are written",
    "gap_limit": "gap limit reached",
    "time_limit": "time limit reached",
    "eval_limit": "evaluation limit reached",
    "exhausted": "exhausted: nothing left to try, nothing proved",
    "infeasible": "infeasible: no implementation",
    "disagreement": "stopped: all candidates are wrong at the same element, with the same value",
    "interrupted": "interrupted",
}


class TimeUnit:
    """The time unit of one log, chosen at its first time, so that columns have the same unit."""

    def __init__(self, typical_ns: float) -> None:
        # With four decimals a hundredth of a unit still shows two digits of a percent.
        units = (("s", 1e9), ("ms", 1e6), ("us", 1e3))
        fitting = [unit for unit in units if typical_ns >= 0.02 * unit[1]]
        self.name, self._size_ns = fitting[0] if fitting else units[-1]

    def number(self, time_ns: float | None) -> str:
        return "-" if time_ns is None else f"{time_ns / self._size_ns:.4f}"

    def text(self, time_ns: float | None) -> str:
        return "-" if time_ns is None else f"{self.number(time_ns)} {self.name}"


def result_lines(e: Ended, unit: TimeUnit) -> list[str]:
    """Returns the lines of the result block."""
    non_affine = f"; {e.non_affine_tasks}" if e.non_affine else ""
    fixed = f"; with {fixed_count(e.fixed)} fixed" if e.fixed else ""
    status = _STATUS.get(e.status, e.status)
    lines = ["", f"Status       {status} after {e.elapsed_s:.1f}s{fixed}{non_affine}"]
    if e.best_ns is None:
        lines.append("Best         nothing valid was found")
        lines.append(f"Next         {next_step(e)}")
    else:
        verified = f"verified on {e.n_input_sets} input sets"
        built = f", built by {e.compiler}" if e.compiler else ""
        best = f"{unit.text(e.best_ns)} +/- {e.spread:.1%}"
        lines.append(f"Best         {best}, {verified}{built}")
    below = f"{e.alarms} of {e.evaluations} measurements below their bound"
    if e.alarms:
        lines.append(f"Bound        withdrawn: {below}")
    else:
        counted = "; non-affine bodies count with what they surely do" if e.non_affine else ""
        lines.append(f"Bound        {unit.text(e.bound_ns)} ({below}{counted}{fixed})")
        lines += _gap(e)
    lines.append(f"Speed-up     {_speed_up(e)}")
    failed = ", ".join(f"{n} {kind}" for kind, n in e.failures.items())
    lines.append(f"Failures     {failed or 'none'} of {e.evaluations} evaluations")
    lines += [f"Doubt        {doubt}" for doubt in e.doubts]
    lines.append(f"Saved        {e.run_dir}")
    return lines


_REMEDIES = {
    "compile": "explore doctor says which compilers work",
    "launch": "explore doctor says what the target needs",
    "crash": "indices may leave their arrays: ks.init(debug=True) checks them",
    "timeout": "take smaller sizes",
    "wrong": "compare one call of each kernel with NumPy; --undecided allows for branches that rounding decides",
    "memory": "take smaller sizes",
}


def next_step(e: Ended) -> str:
    """Returns a sentence of advice for a run without a result."""
    if e.status == "infeasible":
        return "fix fewer decisions" if e.fixed else "explore show says which choice has no value"
    if not e.failures:
        return "give it more time, or take smaller sizes"
    kind = max(e.failures, key=lambda k: e.failures[k])
    return f"{_REMEDIES[kind]}; explore explain {e.run_dir} shows the first failures"


def default_word(is_fixed: bool) -> str:
    """Returns the displayed name of the default: with fixed choices, the candidate closest to the unfused one."""
    return "default with the fixed decisions" if is_fixed else "unfused default"


def _gap(e: Ended) -> list[str]:
    """Returns a line of the proved gap and of the gap for the current machine state; none if times mean nothing."""
    if e.gap is None:
        return []
    if gap_text(e.gap) == "-":
        return ["Gap          none: the bound says next to nothing of this sequence"]
    now = f"; not known against the machine as it is now: {e.why_not_now}" * bool(e.why_not_now)
    if e.gap_now is not None:
        now = f", {gap_text(e.gap_now)} against the machine as it is now"
    return [f"Gap          {gap_text(e.gap)} proved{' for this input' * e.is_for_input}{now}"]


def _speed_up(e: Ended) -> str:
    if e.best_ns is None:
        return "-"
    parts = []
    if e.baseline_ns is not None:
        parts.append(f"{e.baseline_ns / e.best_ns:.2f}x {default_word(bool(e.fixed))}")
    if e.numpy_ns is not None:
        parts.append(f"{e.numpy_ns / e.best_ns:.2f}x NumPy")
    return ", ".join(parts) or "-"
