"""Options of a search, in one record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of `search`; the defaults suit a search whose evaluations dominate."""

    batch: int = 1  # distinct implementations handed to one call of `evaluate`, at first
    first_batch: int | None = None  # of the very first: it shows something sooner; None: as others
    largest_batch: int | None = None  # it grows with what was measured to this; None: not at all
    policy: str = "threshold_ascent"  # a name in POLICIES; mcts only
    focus: str = "balanced"  # best, bound or balanced: how much mcts works on the bound
    prune: bool = True  # False: the cut stays infinite
    cut_at_gap: bool = False  # cut at (1 - gap of the budget) x best: prove that gap, no more
    rollout_siblings: int | None = None  # values tried at a rollout step; None: all of them
    rollout_retries: int = 4  # dead ends a rollout backs out of before it gives up
    beam_width: int = 4  # of the first pass; every pass doubles it
    random_patience: int = 1000  # draws without a new implementation after which random gives up
    n_top: int = 8
    row_every_s: float = 1.0
    max_held: int = 5_000  # candidates kept in memory

    def __post_init__(self) -> None:
        for name in ("batch", "beam_width", "random_patience", "n_top", "max_held"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is not positive")
        if self.first_batch is not None and not 1 <= self.first_batch <= self.batch:
            raise ValueError(f"first_batch={self.first_batch} is not in 1..{self.batch}")
        if self.largest_batch is not None and self.largest_batch < self.batch:
            raise ValueError(f"largest_batch={self.largest_batch} is less than batch={self.batch}")
        if self.rollout_siblings is not None and self.rollout_siblings < 1:
            raise ValueError(f"rollout_siblings={self.rollout_siblings} is not positive")
