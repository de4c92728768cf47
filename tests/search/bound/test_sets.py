"""Sets in the bound: rows a power of two apart, of which a first cache holds as many lines as their sets have ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.sets import lines_in_sets
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER, MID, OUTER
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.targets.target import CacheLevel, Target
from kernelscape.testing.machines import IdealMachine, library_space, root_of, round_target
from numpy.typing import NDArray

KIB = 1 << 10
LINES, WAYS = 16, 2  # of the cache that is simulated
SIZES = {
    "sgemv": {"m": 24, "n": 64},
    "atax": {"m": 16, "n": 64},
    "matmul": {"m": 4, "n": 64, "k": 16},
}


def target_with(ways: int, own_bytes: int, **facts: float) -> Target:
    level = CacheLevel(name="L1", capacity_bytes=own_bytes, read_bytes_per_ns=1e9, ways=ways)
    rates = {"memory_read_bytes_per_ns": 1.0, "memory_mixed_bytes_per_ns": 1.0}
    machine = {"cores": 1, "levels": (level,), "vector_registers": 0, **rates}
    return round_target(**{**machine, **facts})


@cache
def simulated(name: str, ways: int) -> Bounder:
    target = target_with(ways, 64 * LINES, vector_bytes=16)
    return Bounder(library_space(name, target, **SIZES[name]))


def by_columns(space: Space, tile: int = 1) -> Candidate:
    """The product of a matrix and a vector with its columns outside, `tile` rows at a time."""
    b, v = space.backbone, space.variables
    rows, columns = (loop.name for loop in space.problem.tasks[0].loops)
    domains = root_of(space).domains.copy()
    for name in (rows, columns):
        kind = v.kind[b.dim(0, name, INNER)]
        domains[kind] = int(domains[kind]) & ~(1 << ch.VECTOR)
        for level, size in ((MID, 1), (INNER, tile if name == rows else 1)):
            d = b.dim(0, name, level)
            domains[v.size[d]] = 1 << v.universe[d].index(size)
    for x in (OUTER, MID):
        for y in (OUTER, MID):
            inner, outer = b.dim(0, rows, x), b.dim(0, columns, y)
            domains[space.model.order(inner.order_id, outer.order_id)] = 1 << ch.INSIDE
    found = space.candidate(domains)
    assert isinstance(found, Candidate)
    return found


@pytest.mark.parametrize(
    ("row", "ways", "n_held"),
    [
        (1024, 8, 16),  # two sets
        (512, 8, 32),
        (1024, 16, 16),  # one set
        (1040, 8, None),  # an odd number of lines apart: all sets
        (1000, 8, None),  # 62.5 lines apart
        (1024, 0, None),  # unknown
    ],
)
def test_columns_fetch_the_lines_that_their_sets_do_not_hold(
    row: int, ways: int, n_held: int | None
) -> None:
    """Kind: 256 lines that fit in a cache of 1024 if any line may be anywhere."""
    m, registers = 256, 4
    target = target_with(ways, 64 * KIB, vector_registers=registers)
    space = library_space("sgemv", target, m=m, n=row)
    found = float(Bounder(space).tiles_ns(by_columns(space)).max())
    wanted = 0 if n_held is None else 64 * row * (m - n_held - registers)
    assert found == wanted


def test_rows_that_share_a_set_less_often_fit() -> None:
    target = target_with(8, 64 * KIB)
    space = library_space("sgemv", target, m=16, n=1024)
    assert Bounder(space).tiles_ns(by_columns(space)).max() == 0


def test_each_core_has_its_own_sets() -> None:
    """Kind: the sets of all cores together, where a thread alone reads columns."""
    level = CacheLevel(name="L1", capacity_bytes=128 * KIB, read_bytes_per_ns=1e9, ways=8)
    two = round_target(levels=(level,), vector_registers=0)
    one = target_with(8, 64 * KIB)
    own = {"i": (4096, 256), "j": (4, 1024)}
    assert lines_in_sets(two, own) == lines_in_sets(one, own) == (("i",), 256 * 64.0, 16 * 64.0)


def descents(known: Bounder, seed: int, n: int) -> Iterator[tuple[Candidate, NDArray[np.float64]]]:
    """Yields the ends of random descents, with their terms; those of ancestors are no greater."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        at, before = root_of(known.space), known.tiles_ns(root_of(known.space)).copy()
        while not at.is_complete:
            var = int(rng.choice(at.open_choices()))
            children = [c for _, c in at.expand(var) if isinstance(c, Candidate)]
            if not children:
                break
            at = children[int(rng.integers(len(children)))]
            after = known.tiles_ns(at).copy()
            assert (after >= before * (1 - 1e-9)).all()
            before = after
        yield at, before


@pytest.mark.parametrize("name", SIZES)
def test_no_candidate_reads_fewer_bytes_on_a_machine_with_sets(name: str) -> None:
    """Ancestors' terms are no greater than those of what follows, and these no greater than the simulated bytes."""
    known, unknown = simulated(name, WAYS), simulated(name, 0)
    n_raised, nearest = 0, 0.0
    for at, terms in descents(known, 3, 12):
        if at.is_complete:
            read = IdealMachine(at, LINES, LINES // WAYS).traffic(calls=1)[0]
            assert terms.max() <= read
            n_raised += bool(terms.max() > unknown.tiles_ns(at).max())
            nearest = max(nearest, float(terms.max()) / max(read, 1.0))
    assert n_raised > 0
    assert nearest > 0.5


@pytest.mark.parametrize("name", SIZES)
def test_threads_that_share_a_cache_make_no_ancestor_dearer(name: str) -> None:
    """Kind: a loop that may still be shared out counts as one that is not, and its lines are brought in twice."""
    level = replace(target_with(WAYS, 64 * LINES).levels[0], shared_by=2)
    target = target_with(WAYS, 64 * LINES, levels=(level,), cores=2, vector_bytes=16)
    known = Bounder(library_space(name, target, **SIZES[name]))
    assert sum(at.is_complete for at, _ in descents(known, 5, 30)) > 0


def test_a_cache_without_sets_reads_less_than_the_term_counts() -> None:
    """A term that counted conflicts where all lines share one set would be too high: the judge sees it."""
    known = simulated("sgemv", WAYS)
    made = by_columns(known.space).random_completion(np.random.default_rng(1))
    assert isinstance(made, Candidate)
    n = known.tiles_ns(made).max()
    with_sets, without = (IdealMachine(made, LINES, k).traffic(calls=1)[0] for k in (8, 1))
    assert n <= with_sets
    assert simulated("sgemv", LINES).tiles_ns(made).max() <= without < with_sets
