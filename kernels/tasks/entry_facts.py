"""Facts at the entry of a recorded sequence: lists and active cells of its trees, as its runs before have left them.

A sequence that runs again and again may assume them (`Recording.assumed`): its tasks then make no such list, and activate no such
cell. Whoever runs it must know that it ran as often in a row as the facts need, and that between and since no active cell of these
trees has changed.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..ir.kernel import KernelIR
from ..ir.structure import StructureTree
from ..sparse.facts_in_order import derived_in_order, settled
from ..sparse.redundancy import Derived, Facts, work_on_trees

if TYPE_CHECKING:
    from ..frontend.recorder import Recording


class TreeWork(NamedTuple):
    """Work on sparse trees: the number of lists that are made or tested, and the number of activations in the text."""

    n_lists: int
    n_activations: int


def assuming(recording: Recording, unsure: Container[str], most_runs: int = 1) -> Recording:
    """Returns the recording with all facts at its entry that at most `most_runs` runs of it in a row leave behind.

    These are no more runs than its tasks gain from. `unsure`: names of trees without such facts, since their active cells may
    change between two runs.
    """
    without = {t.tree.name for t in recording.trees if "counters" not in t.arrays}
    without |= {t.tree.name for t in recording.trees if t.tree.name in unsure}
    once = _assuming(recording, without, 1)
    if most_runs == 1:
        return once
    more = _assuming(recording, without, most_runs)
    return once if derived_calls(more) == derived_calls(once) else more


def _assuming(recording: Recording, unsure: Container[str], most_runs: int) -> Recording:
    facts, n_runs = _settled(recording, unsure, most_runs)
    return replace(recording, assumed=tuple(sorted(facts.on)), n_assumed_runs=n_runs)


def _settled(recording: Recording, unsure: Container[str], most_runs: int) -> tuple[Facts, int]:
    kernels, trees, left_out = _kernels(recording), _trees(recording), frozenset(recording.left_out)
    return settled(kernels, trees, unsure, most_runs, recording.repeats, left_out)


def facts_at_entry(recording: Recording) -> Facts:
    """Returns the facts that hold before the first call of a recording."""
    trees = _trees(recording)
    if not recording.assumed:
        return Facts(trees, left_out=frozenset(recording.left_out))
    unsure = trees.keys() - set(recording.assumed)
    return _settled(recording, unsure, recording.n_assumed_runs)[0]


def derived_calls(recording: Recording) -> tuple[Derived | None, ...]:
    """Returns the redundant operations of each call of a recording, None for calls on plain arrays."""
    return derived_in_order(_kernels(recording), recording.repeats, facts_at_entry(recording))


def tree_work(recording: Recording) -> TreeWork:
    """Returns the work on lists and active cells that the facts leave to a run of a recording."""
    works = zip(_kernels(recording), derived_calls(recording), recording.n_made, strict=True)
    n_lists = n_activations = 0
    for kernel, derived, n_times in works:
        if kernel is not None and derived is not None:
            n_lists += n_times * (work_on_trees(kernel)[0] - sum(map(len, derived.kept)))
            n_activations += n_times * sum(derived.left)
    return TreeWork(n_lists, n_activations)


def tree_work_alone(recording: Recording) -> TreeWork:
    """Returns the work on lists and active cells of the kernels of a recording, each run by itself."""
    kernels = zip(_kernels(recording), recording.n_made, strict=True)
    works = [(work_on_trees(kernel), n) for kernel, n in kernels if kernel is not None]
    return TreeWork(*(sum(n * work[k] for work, n in works) for k in range(2)))


def _kernels(recording: Recording) -> list[KernelIR | None]:
    """Returns the kernel of each call before lowering, None for calls on plain arrays."""
    return [None if c.logical is None else c.logical.ir for c in recording.calls]


def _trees(recording: Recording) -> dict[str, StructureTree]:
    return {t.tree.name: t.tree for t in recording.trees}
