"""Detection of a common fault: where all candidates are wrong at one element in the same way, the fault is not theirs."""

from __future__ import annotations

from ..runtime.api.outcome import Disagreement, Failure, Measurement
from .stages import Disagreed

_ENOUGH = 8  # first candidates that are wrong alike end a search


class EqualFailures:
    """Checks whether all candidates that ran so far were wrong at the same element, with the same value."""

    def __init__(self) -> None:
        self.at: Disagreement | None = None  # of all of them; None: of none, or they differ
        self.n = 0
        self._is_over = False

    def see(self, found: Measurement | Failure) -> None:
        """Records an outcome. A candidate that did not run counts for nothing."""
        if isinstance(found, Failure) and found.kind != "wrong":
            return
        at = found.at if isinstance(found, Failure) else None
        is_like = at is not None and (self.at is None or _is_same(at, self.at))
        self._is_over |= not is_like
        self.at, self.n = (None, 0) if self._is_over else (at, self.n + 1)

    @property
    def are_enough(self) -> bool:
        """True if enough candidates were wrong alike: others will be, too."""
        return self.n >= _ENOUGH


def _is_same(a: Disagreement, b: Disagreement) -> bool:
    return (a.input_set, a.array, a.index, a.got) == (b.input_set, b.array, b.index, b.got)


def disagreed(n: int, at: Disagreement) -> Disagreed:
    """Returns the event that the first `n` candidates were all wrong alike, with its meaning in words for people."""
    place = f"{at.array}[{', '.join(map(str, at.index))}]"
    detail = (
        f"the first {n} candidates all have {at.got} in {place} on input set {at.input_set}, where the reference has"
        f" {at.want}: most likely the reference and the kernels disagree about what the program means there, or the tolerance"
        " is too tight, or all generated code has the same fault. Compute that element by hand or with NumPy; if the"
        " candidates are right, please report it with a source from failed/; if rounding decides there, allow it with --undecided"
    )
    return Disagreed(n, at.input_set, at.array, at.index, at.got, at.want, detail)
