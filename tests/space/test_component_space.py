"""Spaces of components: their candidates make up those of the sequence, and their bounds its bound."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from kernelscape.explorer.division import PartCandidates
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.components.fewest import fewest_launches
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.space import choices as ch
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.component_space import component_spaces
from kernelscape.space.components import coupling_of
from kernelscape.testing import checking
from kernelscape.tests.codegen.test_component_texts import root

__all__ = ["root"]  # a fixture


@pytest.fixture(scope="module")
def parts(root: Candidate) -> PartCandidates:
    default = sketched_candidates(root.space)[0][1]
    tied = np.array(sorted(coupling_of(root.space)), np.int64)
    return PartCandidates(default, component_spaces(root, default), tied)


def drawn(parts: PartCandidates, rng: np.random.Generator) -> list[Candidate]:
    found = []
    for same in parts.alike:
        part = checking.random_candidate(same.space.root(), rng)
        assert isinstance(part, Candidate)
        found.append(part)
    return found


def test_random_parts_make_up_a_candidate_of_the_sequence(
    root: Candidate, parts: PartCandidates
) -> None:
    """The kind: a constraint between two components, which none of their candidates would meet."""
    rng = np.random.default_rng(0)
    for _ in range(8):
        chosen = drawn(parts, rng)
        whole = parts.join(chosen)
        assert whole.is_complete and whole.space is root.space
        again = [parts.part(whole, k) for k in range(len(chosen))]
        assert [x.key for x in again if x is not None] == [x.key for x in chosen]


def test_bounds_of_parts_are_below_that_of_the_sequence(
    root: Candidate, parts: PartCandidates
) -> None:
    """The kind: a part that counts what another saves it, such as lines that are still in a cache, or a call of its own."""
    whole, own = Bounder(root.space), [Bounder(same.space) for same in parts.alike]
    rng = np.random.default_rng(1)
    for _ in range(8):
        chosen = drawn(parts, rng)
        pairs = zip(own, chosen, parts.alike, strict=True)
        ns = sum(b.ns(part) * len(same.places) for b, part, same in pairs)
        assert 0 < ns <= whole.ns(parts.join(chosen)) * (1 + 1e-9)
    for b, same in zip(own, parts.alike, strict=True):
        open_root = same.space.root()
        assert isinstance(open_root, Candidate)
        assert all(b.ns(open_root) <= b.ns(x) for x in (checking.random_candidate(open_root, rng),))


def test_the_first_candidate_of_fewest_launches_is_that_of_all_partitions(
    parts: PartCandidates,
) -> None:
    for same in parts.alike:
        at = same.space.root()
        assert isinstance(at, Candidate)
        near = parts.part(parts.default, parts.alike.index(same))
        assert near is not None
        found = fewest_launches(same.space, near)
        least = min(n for n in (legal(at, x) for x in partitions(4)) if n)
        assert (found is None and least == 4) or (
            found is not None and n_launches(same.space, found) == least
        )


def partitions(n: int) -> list[tuple[int, ...]]:
    return [
        p
        for p in product(range(n), repeat=n)
        if all(p[k] <= max((-1, *p[:k])) + 1 for k in range(n))
    ]


def legal(at: Candidate, partition: tuple[int, ...]) -> int:
    """The number of launches of a partition of the tasks, 0 where no implementation has it."""
    for pair in combinations(range(len(partition)), 2):
        v = at.space.variables.fused.get(pair)
        value = ch.SAME_LAUNCH if partition[pair[0]] == partition[pair[1]] else ch.SEPARATE
        if v is None:
            if value == ch.SAME_LAUNCH:
                return 0
            continue
        made = at.decide(v, 1 << value)
        if not isinstance(made, Candidate):
            return 0
        at = made
    return len(set(partition)) if isinstance(at.complete(), Candidate) else 0


def n_launches(space: Space, candidate: Candidate) -> int:
    second = {
        u for (_, u), v in space.variables.fused.items() if candidate.value(v) == ch.SAME_LAUNCH
    }
    return len(space.problem.tasks) - len(second)
