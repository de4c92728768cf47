"""Size of a space by Chen's heuristic sampling, which the estimator of the product is compared with (Telamon, section 5.3)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..search.candidate import SearchCandidate
from ..search.tree.estimate import SpaceEstimate, estimate_knuth, interval, live_children


def estimate_chen(
    root: SearchCandidate,
    *,
    next_choice: Callable[[SearchCandidate], int],
    rng: np.random.Generator,
    n_descents: int = 100,
    keep: Callable[[SearchCandidate], bool] | None = None,
) -> SpaceEstimate:
    """Heuristic sampling: one representative a stratum, weighted by how many subtrees it stands for
    (Chen 1992).

    The stratum is (depth, number of open choices), as in Telamon; the pass over all strata is one
    descent. The dead-end share comes from uniform descents of their own, one a pass.
    """
    totals = np.empty(n_descents)
    for descent in range(n_descents):
        totals[descent] = _chen_pass(root, next_choice, rng, keep)
    walks = estimate_knuth(root, next_choice=next_choice, rng=rng, n_descents=n_descents, keep=keep)
    return SpaceEstimate(
        "chen", n_descents, interval(totals), walks.dead_end_share, walks.mean_depth
    )


def _chen_pass(
    root: SearchCandidate,
    next_choice: Callable[[SearchCandidate], int],
    rng: np.random.Generator,
    keep: Callable[[SearchCandidate], bool] | None,
) -> float:
    level = {len(root.open_choices()): (1.0, root)}
    n_leaves = 0.0
    # All strata of one depth are met before any of the next, which is the order that the method
    # asks for.
    while level:
        below: dict[int, tuple[float, SearchCandidate]] = {}
        for n_open in sorted(level, reverse=True):
            weight, candidate = level[n_open]
            if candidate.is_complete:
                n_leaves += weight
                continue
            for child in live_children(candidate, next_choice(candidate), keep):
                stratum = 0 if child.is_complete else len(child.open_choices())
                total, representative = below.get(stratum, (0.0, child))
                total += weight
                if rng.random() * total < weight:
                    representative = child
                below[stratum] = (total, representative)
        level = below
    return n_leaves
