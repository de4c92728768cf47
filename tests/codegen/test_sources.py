"""The text that people read: programs as golden files, and that they compile alone without a warning."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.cprint import expression
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import load
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts import sketches
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.tiles import BlockSizes
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.syntax import apart_program_of, calls, nodes, prefetches

GREEDY = sketches.Sketch(tile=sketches.TileSizes(rows=4, vectors=4))
PROGRAMS = {
    "axpydot_default": (
        "axpydot",
        {"n": 1000},
        sketches.Sketch(fusion=sketches.Fusion(launch=False, loops=False)),
    ),
    "waxpby_streamed": (
        "waxpby",
        {"n": 1000},
        sketches.Sketch(tile=sketches.TileSizes(vectors=2), stores=ch.STREAM),
    ),
    "bicgk_greedy": ("bicgk", {"m": 64, "n": 48}, GREEDY),
    "sgemvt_panel": (
        "sgemvt",
        {"m": 512, "n": 512},
        sketches.Sketch(
            tile=sketches.TileSizes(rows=4, panel=64),
            threads=sketches.Along(sketches.Axis.CONTIGUOUS),
            reuse=sketches.CopyInputs(),
            prefetch=ch.NEAR,
        ),
    ),
    "gemver_panel": (
        "gemver",
        {"m": 512, "n": 512},
        sketches.Sketch(
            tile=sketches.TileSizes(vectors=2, panel=128),
            threads=sketches.Along(sketches.Axis.CONTIGUOUS),
            prefetch=ch.NEAR,
        ),
    ),
    "atax_next": (
        "atax",
        {"m": 512, "n": 512},
        sketches.Sketch(tile=sketches.TileSizes(rows=2, vectors=2), prefetch=ch.NEXT),
    ),
    "gemver_late": (
        "gemver",
        {"m": 120, "n": 96},
        sketches.Sketch(
            tile=sketches.TileSizes(rows=2, vectors=2),
            threads=sketches.Along(sketches.Axis.CONTIGUOUS),
            reuse=sketches.CopyInputs(),
            shift=ch.LATE,
        ),
    ),
    # Blocks of A that are packed ahead, in strips; tiles that are cut.
    "matmul_strided_ahead": (
        "matmul_strided",
        {"m": 61, "n": 37, "k": 128},
        sketches.Sketch(
            tile=sketches.TileSizes(rows=4, blocks=BlockSizes(16, 64, 64)),
            packing=sketches.Packing(every=True, depth_first=True, stages=2),
        ),
    ),
}


def candidate_of(name, sizes, sketch):
    entry = load(name)
    args = entry.make_arguments(
        entry.complete(sizes), np.dtype(np.float32), np.random.default_rng(0)
    )
    recording = record_sequence(entry.sequence, args, name)
    root = build_space(normalise(recording), checking.target(4, 64)).root()
    assert isinstance(root, Candidate)
    made = complete_sketch(root, sketch)
    assert made is not None
    return made


def places(x, prefix, array):
    """The indices at which vectors of an array are loaded or stored, by the functions whose names begin so."""
    elements = (n.args[0].x for n in calls(x, prefix))
    return [expression(e.index) for e in elements if e.base == c.Id(array)]


def is_after_begin(condition):
    """True if there is a block of a thread's own before this one."""
    return isinstance(condition, c.Bin) and condition.op == ">" and condition.b == c.Id("begin")


@pytest.mark.parametrize("program", PROGRAMS)
def test_golden_programs(program, golden):
    golden(checking.source_of(candidate_of(*PROGRAMS[program])).text, f"{program}.c")


@pytest.mark.compiler
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("flags", [("-O2", "-march=native"), ("-O0",)], ids=["native", "plain"])
def test_compiles_alone_without_a_warning(program, flags, tmp_path):
    file = tmp_path / "program.c"
    file.write_text(checking.source_of(candidate_of(*PROGRAMS[program])).text)
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]
    command = ["gcc", *strict, *flags, "-c", "-o", str(tmp_path / "p.o"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_next_rows_are_asked_for_into_the_first_cache():
    """ATAX uses two rows twice; the line in the same place of the two after them is asked for at each load of theirs."""
    program = apart_program_of(candidate_of(*PROGRAMS["atax_next"]))
    asked = [expression(x) for x in prefetches(program, cache=3)]
    loaded = places(program, "load_f32x16", "a")
    assert loaded
    assert asked == [f"&a[{x} + {2 * 512}]" for x in loaded]
    assert len(prefetches(program)) == len(asked)


def test_equal_candidates_give_equal_texts():
    program = PROGRAMS["bicgk_greedy"]
    first, second = (checking.source_of(candidate_of(*program)) for _ in range(2))
    assert first == second
    assert first.key == second.key


def test_loops_that_share_an_operand_load_it_once():
    """BiCGK walks its matrix in one loop nest: where a body is in vectors, each vector of it is loaded once for both products."""
    candidate = candidate_of(*PROGRAMS["bicgk_greedy"])
    matrix = next(a.name for a in candidate.space.problem.arrays if len(a.shape) == 2)
    program = apart_program_of(candidate)
    assert sum(f.is_parallel for f in program.functions) == 1
    loads = places(program, "load_", matrix)
    assert loads
    assert len(loads) == len(set(loads))


def test_each_line_of_a_panel_is_asked_for_once_and_ahead():
    """A vector is a line here: each load of the matrix in vectors is preceded by a request for the line 12 rows further down."""
    program = apart_program_of(candidate_of(*PROGRAMS["gemver_panel"]))
    loaded = places(program, "load_f32x16", "a")
    assert loaded
    asked = [expression(x) for x in prefetches(program)]
    assert asked == [f"&a[{x} + {12 * 512}]" for x in loaded]


def test_what_is_written_may_be_kept_as_well():
    """The second pass over B reads the panel that its thread kept; B itself is only written."""
    program = apart_program_of(candidate_of(*PROGRAMS["gemver_panel"]))
    assert places(program, "load_f32x16", "b_row")
    assert places(program, "store_f32x16", "b_row")
    assert places(program, "store_f32x16", "b")
    assert not places(program, "load_f32x16", "b")


def test_an_input_read_twice_may_be_read_from_memory_once():
    """The second product takes the panel that the first one read from the array in which its thread keeps it."""
    program = apart_program_of(candidate_of(*PROGRAMS["sgemvt_panel"]))
    n_read = len(places(program, "load_f32x16", "a"))
    assert n_read
    assert len(places(program, "store_f32x16", "a_kept")) == n_read
    assert len(places(program, "load_f32x16", "a_kept")) == n_read


def test_lanes_are_added_up_once_a_row():
    """A tile of two vectors along the sum: the vectors are added first, and then the lanes of one."""
    program = apart_program_of(candidate_of(*PROGRAMS["gemver_late"]))
    late = [n for n in nodes(program) if isinstance(n, c.If) and is_after_begin(n.condition)]
    assert late
    for branch in late:
        assert len(calls(branch.then, "fold_add_f32x16")) == 2  # rows
        assert len(places(branch.then, "load_f32x16", "b_row")) == 4


@pytest.mark.parametrize("name", ["matmul", "gemver", "sgemvt"])
def test_who_decides_to_ask_ahead_does_so(name):
    """Packed and kept operands are read from their copies: a prefetch would be in the comment of a text and nowhere in its code."""
    entry = load(name)
    args = entry.make_arguments(
        entry.complete({"n": 64}), np.dtype(np.float32), np.random.default_rng(0)
    )
    problem = normalise(record_sequence(entry.sequence, args, name))
    space = build_space(problem, checking.target(2, 32))
    rng = np.random.default_rng(5)
    n_asking = 0
    for _ in range(60):
        candidate = checking.random_candidate(space.root(), rng)
        if not isinstance(candidate, Candidate):
            continue
        asks = [candidate.value(x) != ch.NO_PREFETCH for x in space.variables.prefetch.values()]
        asks += [
            candidate.value(x) == ch.SUMS_AHEAD
            for x in space.variables.prefetch_accumulators.values()
        ]
        packs = any(candidate.value(x) == ch.TWO_STAGES for x in space.variables.staged.values())
        program = apart_program_of(candidate)
        assert any("prefetches" in line for line in program.decisions) == any(asks)
        assert packs or bool(prefetches(program)) == any(asks), program
        n_asking += any(asks)
    assert n_asking
