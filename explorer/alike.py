"""Detection of a fault outside the candidates: all of them have the same wrong value in the same output element."""

from __future__ import annotations

from ..runtime.api.outcome import Disagreement, Failure, Measurement
from .stages import Disagreed

_ENOUGH = 8  # first candidates that are wrong alike end a search


class EqualFailures:
    """Checks if all candidates that ran so far had the same wrong value in the same element of the same output."""

    def __init__(self) -> None:
        self.at: Disagreement | None = None  # of all of them; None: of none, or they differ
        self.n = 0
        self._is_over = False

    def see(self, found: Measurement | Failure) -> None:
        """Records the outcome of one candidate. Candidates that did not compile or run are ignored."""
        if isinstance(found, Failure) and found.kind != "wrong":
            return
        at = found.at if isinstance(found, Failure) else None
        is_like = at is not None and (self.at is None or _is_same(at, self.at))
        self._is_over |= not is_like
        self.at, self.n = (None, 0) if self._is_over else (at, self.n + 1)

    @property
    def are_enough(self) -> bool:
        """True if enough candidates had the same wrong value that the search should stop."""
        return self.n >= _ENOUGH


def _is_same(a: Disagreement, b: Disagreement) -> bool:
    return (a.input_set, a.array, a.index, a.got) == (b.input_set, b.array, b.index, b.got)


def disagreed(n: int, at: Disagreement) -> Disagreed:
    """Returns the event that the first `n` candidates were all wrong at `at`, with a sentence of advice for users."""
    place = f"{at.array}[{', '.join(map(str, at.index))}]"
    detail = (
        f"the first {n} candidates all have {at.got} in {place} on input set {at.input_set}, where the reference has"
        f" {at.want}: most likely the reference and the kernels disagree about what the program means there, or the tolerance"
        " is too tight, or all generated code has the same fault. Compute that element by hand or with NumPy; if the"
        " candidates are right, please report it with a source from failed/; if rounding decides there, allow it with --undecided"
    )
    return Disagreed(n, at.input_set, at.array, at.index, at.got, at.want, detail)
