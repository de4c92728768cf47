"""Data-flow facts (valid lists, active cells) along a sequence of kernels with repeats.

Each step of a repeat begins with the facts that hold at the begin of every step.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ..ir.kernel import KernelIR
from ..ir.repeats import Repeat
from ..ir.structure import StructureTree
from .redundancy import Derived, Facts


def derived_in_order(
    kernels: Sequence[KernelIR | None], repeats: tuple[Repeat, ...], facts: Facts
) -> tuple[Derived | None, ...]:
    """Returns the redundant operations of each kernel, None for kernels on plain arrays.

    `facts` become those after the last kernel.
    Precondition: outer `repeats` come first.
    """
    walk = _Walk(kernels)
    walk.run(0, len(kernels), repeats, facts)
    return tuple(walk.derived)


def carried(
    kernels: Sequence[KernelIR | None],
    trees: Mapping[str, StructureTree],
    unsure: Container[str] = (),
    repeats: tuple[Repeat, ...] = (),
    left_out: frozenset[str] = frozenset(),
) -> Facts:
    """Returns the facts that hold at the begin of each run of a sequence that runs many times, except the first.

    Preconditions: between two runs nothing changes active cells, except in the trees `unsure`; outer `repeats` come first. A fact
    is left out if no flag would record its end. `left_out`: as in `Facts`.
    """
    return _behind(kernels, repeats, Facts(trees, left_out=left_out)).noticed().without(unsure)


def settled(
    kernels: Sequence[KernelIR | None],
    trees: Mapping[str, StructureTree],
    unsure: Container[str] = (),
    most_runs: int = 1,
    repeats: tuple[Repeat, ...] = (),
    left_out: frozenset[str] = frozenset(),
) -> tuple[Facts, int]:
    """Returns the facts that hold at the begin of each run of a sequence, except the first ones, and the number of these.

    The number is at most `most_runs`, and the least one behind which nothing is gained: more facts before a run leave more facts
    behind it. Preconditions: those of `carried`.
    """
    facts = carried(kernels, trees, unsure, repeats, left_out)
    for n_runs in range(1, most_runs):
        behind = _behind(kernels, repeats, facts).noticed().without(unsure)
        if behind == facts:
            return facts, n_runs
        facts = behind
    return facts, most_runs


def held(kernels: Sequence[KernelIR | None], facts: Facts) -> Facts:
    """Returns those of `facts` that hold behind a run of a sequence if they hold before it: the greatest such set."""
    while True:
        both = facts.both(_behind(kernels, (), facts))
        if both == facts:
            return facts
        facts = both


def _behind(kernels: Sequence[KernelIR | None], repeats: tuple[Repeat, ...], facts: Facts) -> Facts:
    """Returns the facts behind a run of a sequence before which `facts` hold."""
    behind = facts.copy()
    derived_in_order(kernels, repeats, behind)
    return behind


class _Walk:
    def __init__(self, kernels: Sequence[KernelIR | None]) -> None:
        self._kernels = kernels
        self.derived: list[Derived | None] = [None] * len(kernels)

    def run(self, first: int, stop: int, repeats: tuple[Repeat, ...], facts: Facts) -> None:
        """Derives redundant operations of kernels `first` to `stop - 1` and their repeats, and updates `facts`."""
        for outer in repeats:
            if outer.first < first:  # inside of one that is done
                continue
            self._steps(first, outer.first, facts)
            self._repeat(outer, tuple(r for r in repeats if r.is_inside(outer)), facts)
            first = outer.stop
        self._steps(first, stop, facts)

    def _steps(self, first: int, stop: int, facts: Facts) -> None:
        for k in range(first, stop):
            ir = self._kernels[k]
            if ir is not None:
                self.derived[k] = facts.after(ir)

    def _repeat(self, r: Repeat, inside: tuple[Repeat, ...], facts: Facts) -> None:
        """Derives redundant operations of the kernels of a repeat, and updates `facts`.

        The facts at its begin are a greatest fixpoint: they hold before the repeat, and after each step.
        """
        while True:
            behind = facts.copy()
            self.run(r.first, r.stop, inside, behind)
            both = facts.both(behind)
            if both == facts:
                break
            facts.take(both)
        facts.take(behind)
