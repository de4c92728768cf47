"""Operands that all threads of a launch pack together: any shape computes the same, and nobody reads a block before it is there."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import restore
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.syntax import declared, loops, names_in, nodes, program_of, value

from .packed_cases import decided, inputs_of, random_copies, recorded

nd = types.ndarray()
CANDIDATES = 4
TEAM = {"staged": ch.COPY, "packed_by": ch.BY_TEAM}

# All threads pack blocks of 16 x 32 elements of B, then each goes through rows of its own.
PRODUCT = {
    "dim_kind(multiply0.i.outer)": "PARALLEL",
    "dim_kind(multiply0.k.outer)": "LOOP",
    "dim_kind(multiply0.j.outer)": "LOOP",
    "size(multiply0.i.mid)": "1",
    "size(multiply0.i.inner)": "4",
    "size(multiply0.j.mid)": "4",
    "size(multiply0.j.inner)": "8",
    "dim_kind(multiply0.j.inner)": "VECTOR",
    "size(multiply0.k.mid)": "16",
    "size(multiply0.k.inner)": "1",
    "staged(multiply0.a)": "DIRECT",
    "staged(multiply0.b)": "COPY",
    "packed_by(multiply0.b)": "TEAM",
    "order(multiply0.k.outer,multiply0.j.outer)": "OUTER",
    "order(multiply0.j.outer,multiply0.i.outer)": "OUTER",
    "order(multiply0.j.mid,multiply0.k.mid)": "OUTER",
}


def product(cores=2, more=None, **sizes):
    recording, args = recorded("matmul", np.float32, **sizes)
    return decided(recording, PRODUCT | (more or {}), cores), recording, args


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize(
    ("name", "sizes", "dtype", "cores"),
    [
        ("matmul", {"m": 61, "n": 130, "k": 9}, np.float32, 3),
        ("matmul", {"m": 64, "n": 96, "k": 128}, np.float64, 2),
        ("matmul_strided", {"m": 33, "n": 47, "k": 65}, np.float32, 2),
        ("matmul_strided", {"m": 33, "n": 47, "k": 65}, np.float32, 3),
    ],
)
def test_what_a_team_packs_computes_the_same(tmp_path, name, sizes, dtype, cores):
    """Partial tiles and blocks, more threads than tiles of a block, teams smaller than planned, called again and again."""
    recording, args = recorded(name, dtype, **sizes)
    candidates = random_copies(recording, TEAM, CANDIDATES, cores, sum(sizes.values()))
    assert len(candidates) == CANDIDATES
    for candidate in candidates:
        packed = [x for x in declared(program_of(candidate)) if x.name.endswith("_packed")]
        assert any("tid" not in names_in(x) for x in packed)
    sources = [checking.crowded_source_of(c) for c in candidates]
    flags = checking.PLAINLY if dtype is np.float32 else ()
    ways, inputs = (Way(), Way(repeats=2, thread_limit=1)), inputs_of(recording, args)
    assert not checking.fault(sources, inputs, tmp_path, *ways, more_flags=flags)


@pytest.mark.compiler
@pytest.mark.parametrize("more", [{}, {"size(multiply0.k.inner)": "3"}])
@pytest.mark.parametrize("sizes", [(64, 64, 48), (61, 67, 50), (5, 9, 33)])
def test_a_block_of_a_product_is_packed_by_all_threads(tmp_path, sizes, more):
    candidate, recording, args = product(3, more, **dict(zip("mnk", sizes, strict=True)))
    source = checking.crowded_source_of(candidate)
    (built,) = checking.build_all([source], tmp_path, "product")
    assert built.library is not None
    assert built.log == ""
    ways = Way(), Way(repeats=8, adapts=True)
    assert not checking.check(built, inputs_of(recording, args), *ways)


@pytest.mark.parametrize(("n", "cores"), [(64, 2), (67, 3), (9, 4), (130, 16)])
def test_each_register_tile_of_a_block_is_packed_by_one_thread(n, cores):
    """As the program says it: whole blocks, the last one that is cut, more threads than tiles."""
    candidate, _, _ = product(cores, m=64, n=n, k=64)
    program = program_of(candidate)
    first, last = (x for x in declared(program) if x.name.endswith(("_from", "_to")))
    loop = first.name[0]
    (step,) = {
        x.step for x in loops(program) if (x.lo, x.hi) == (c.Id(first.name), c.Id(last.name))
    }
    extent, tile = (n, 32) if loop == "j" else (64, 16)
    for start in range(0, extent, tile):
        end = min(start + tile, extent)
        names = {f"{loop}0": start, "n_threads": cores}
        parts = [
            range(*(value(x.init, names | {"tid": t}) for x in (first, last)), step)
            for t in range(cores)
        ]
        packed = [i for part in parts for i in part]
        assert packed == list(range(start, end, step))
        assert len(packed) < cores or all(parts)


@kernel
def halve(a: nd, out: nd):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = 0.5 * a[i, j]


def halve_and_multiply(b, a, c):
    t = ndarray(np.float32, b.shape, name="t")
    halve(b, t)
    multiply(a, t, c)


@pytest.mark.slow
@pytest.mark.compiler
def test_a_team_packs_what_others_of_the_launch_have_written(tmp_path):
    rng = np.random.default_rng(1)
    shapes = ((33, 47), (29, 33), (29, 47))
    args = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    recording = record_sequence(halve_and_multiply, args, "halve_and_multiply")
    candidates = random_copies(recording, TEAM, CANDIDATES, 3, 5)
    assert len(candidates) == CANDIDATES
    sources = [checking.crowded_source_of(c) for c in candidates]
    programs = map(program_of, candidates)
    assert any(len(p.calls) == 1 and declared(p, "t_packed") for p in programs)
    assert not checking.fault(sources, inputs_of(recording, args), tmp_path)


def test_threads_meet_before_a_block_is_used_and_before_the_next_is_packed():
    """And nowhere else: a loop that ends with such a meeting leaves nobody behind."""
    candidate, _, _ = product(m=64, n=64, k=48)
    found = list(nodes(program_of(candidate)))
    packing = next(k for k, x in enumerate(found) if c.Id("b_packed") in c.parts(x))
    begin = [k for k, x in enumerate(found) if isinstance(x, c.For) and x.lo == c.Id("begin")]
    use = next(k for k in begin if k > packing)
    parts = (found[:packing], found[packing:use], found[use:])
    assert [sum(isinstance(x, c.Barrier) for x in part) for part in parts] == [0, 1, 1]


def test_golden_words_of_what_a_team_packs(golden):
    candidate, _, _ = product(m=64, n=64, k=48)
    golden("\n".join((*program_of(candidate).decisions, "")), "team_copy.words.txt")


def test_the_buffer_is_of_all_threads_and_its_pointer_does_not_claim_to_be_the_only_one():
    candidate, _, _ = product(m=64, n=64, k=48)
    (pointer,) = declared(program_of(candidate), "b_packed")
    assert pointer.type == "float *"
    assert "tid" not in names_in(pointer)


def test_one_core_is_no_team():
    space = build_space(
        normalise(recorded("matmul", np.float32, m=64, n=64, k=64)[0]), checking.target(1, 32)
    )
    assert space.variables.staged
    assert not space.variables.packed_by


def test_all_threads_pack_one_block():
    """Who packs is a choice of copies of one block alone: nobody packs what is read where it lies, and each thread packs ahead."""
    recording, _ = recorded("matmul", np.float32, m=64, n=64, k=64)
    space = build_space(normalise(recording), checking.target(2, 32))
    for o, staged in space.variables.staged.items():
        packed_by, root = space.variables.packed_by[o], space.root()
        assert root.decide(packed_by, 1 << ch.BY_TEAM).values(staged) == (ch.COPY,)
        packers = {x: c.values(packed_by) for x, c in root.expand(staged)}
        alone, both = (ch.BY_THREAD,), (ch.BY_THREAD, ch.BY_TEAM)
        assert packers == {ch.DIRECT: alone, ch.COPY: both, ch.TWO_STAGES: alone}


def test_rows_of_threads_are_not_packed_by_all():
    """The rows of A are shared out: no place is the same for all threads where a block of them is packed."""
    recording, _ = recorded("matmul", np.float32, m=64, n=64, k=64)
    wanted = {k: x for k, x in PRODUCT.items() if not k.startswith(("staged", "packed_by"))}
    space = build_space(normalise(recording), checking.target(2, 32))
    found = restore(space, wanted.items())
    assert isinstance(found, Candidate), found
    packers = {o.access.array: found.values(x) for o, x in space.variables.packed_by.items()}
    assert packers == {"a": (ch.BY_THREAD,), "b": (ch.BY_THREAD, ch.BY_TEAM)}
