"""Options of a search, in three records: batches, limits, and strategy."""

from __future__ import annotations

from dataclasses import dataclass

from ..plugins import plugins

STRATEGIES = ("mcts", "random", "beam", "bound", "exhaustive")  # by name; run.py makes them


def strategies() -> tuple[str, ...]:
    """Returns the names of all strategies: those of this package, and those of installed plugins."""
    return (*STRATEGIES, *sorted(set(plugins("strategies")) - set(STRATEGIES)))


def _check_positive(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} is not positive")


@dataclass(frozen=True, kw_only=True, slots=True)
class Batches:
    """Batch sizes: numbers of distinct implementations that are measured at once."""

    first: int | None = None  # the very first: it shows something sooner; None: as others
    size: int = 1  # at first
    largest: int | None = None  # it grows with what was measured to this; None: not at all
    in_flight: int = 0  # measured at any time, by several machines, in place of a batch; 0: batches

    def __post_init__(self) -> None:
        _check_positive(self, "size")
        if self.first is not None and not 1 <= self.first <= self.size:
            raise ValueError(f"a first batch of {self.first} is not in 1..{self.size}")
        if self.largest is not None and self.largest < self.size:
            raise ValueError(f"a largest batch of {self.largest} is less than one of {self.size}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits on the effort and memory of the search strategies."""

    rollout_siblings: int | None = None  # values tried at a rollout step; None: all of them
    rollout_retries: int = 4  # dead ends a rollout backs out of before it gives up
    beam_width: int = 4  # of the first pass; every pass doubles it
    random_patience: int = 1000  # draws without a new implementation after which random gives up
    max_held: int = 5_000  # candidates kept in memory

    def __post_init__(self) -> None:
        _check_positive(self, "rollout_siblings", "beam_width", "random_patience", "max_held")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions:
    """Options of `search`; the defaults suit a search in which measurements take most of the time."""

    strategy: str = "mcts"  # a name in STRATEGIES
    policy: str = "threshold_ascent"  # a name in POLICIES; mcts only
    focus: str = "balanced"  # best, bound or balanced: how much mcts works on the bound
    prune: bool = True  # False: the cut stays infinite
    cut_at_gap: bool = False  # cut at (1 - gap of the budget) x best: prove that gap, no more
    n_top: int = 8  # best implementations that the last event has
    batches: Batches = Batches()
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        _check_positive(self, "n_top")
