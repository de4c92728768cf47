"""Reasons to doubt a result, in words: too few candidates, or times that other work disturbed."""

from __future__ import annotations

_FEW = 24  # candidates: the first ones alone are as many
_MANY = 0.5  # share of the measurements
_COMPLETE = ("optimal", "optimal_open", "exhausted", "gap_limit", "infeasible")


def doubts_of(
    status: str,
    n_evaluations: int,
    n_disturbed: int,
    *,
    is_final_disturbed: bool,
    is_numpy_disturbed: bool,
    fault_as_one_text: str = "",
) -> tuple[str, ...]:
    """Returns one sentence per reason to doubt a result; () if there is none.

    `n_disturbed`: measurements of the session that dropped samples, since other work disturbed them.
    """
    found = []
    if n_evaluations < _FEW and status not in _COMPLETE:
        were = "candidate was" if n_evaluations == 1 else "candidates were"
        found.append(f"only {n_evaluations} {were} measured: give the search more time")
    if n_disturbed > _MANY * n_evaluations:
        found.append(
            f"other work disturbed {n_disturbed} of {n_evaluations} measurements: "
            "a serial candidate may seem better than it is"
        )
    if is_final_disturbed:
        found.append(
            "the final comparison was disturbed: times are those of the search, or longer ones"
        )
    if is_numpy_disturbed:
        found.append("other work disturbed NumPy as well: its time may be too long")
    if fault_as_one_text:
        found.append(
            f"built as one text, as a replay builds it, the best failed ({fault_as_one_text}): "
            "only its components, built apart, are verified and timed"
        )
    return tuple(found)
