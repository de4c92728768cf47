"""Register tiles that a loop ends inside of, and what compilers learn of arrays that nobody writes."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.codegen.lower import lower
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.cprint import expression
from kernelscape.search.starts.sketches import Packing, Sketch, TileSizes
from kernelscape.search.starts.tiles import BlockSizes
from kernelscape.testing import checking, syntax
from kernelscape.testing.checking import Way

from .packed_cases import decided, inputs_of, recorded
from .test_sources import PROGRAMS, candidate_of

ROWS, COLUMNS = 61, 37  # neither in whole tiles of 4 rows by 16 columns


@pytest.fixture(scope="module")
def program():
    sizes = {"m": ROWS, "n": COLUMNS}
    return lower(plan_of(candidate_of("bicgk", sizes, Sketch(tile=TileSizes(rows=4, vectors=1)))))


def branch(x, condition):
    """The one branch on a condition, as C writes it."""
    (found,) = (
        n for n in syntax.nodes(x) if isinstance(n, c.If) and expression(n.condition) == condition
    )
    return found


def test_no_loop_tests_whether_its_tiles_are_whole(program):
    ends = {c.Num(str(ROWS)), c.Num(str(COLUMNS))}
    assert not [
        n for n in syntax.nodes(program) if isinstance(n, c.Bin) and n.op == "<=" and n.b in ends
    ]
    whole = next(x for x in syntax.loops(program) if x.var == "i0")
    assert [
        (x.lo, x.hi) for x in syntax.loops(whole) if (x.var, x.step) == ("j0", c.Num("16"))
    ] == [(c.Num("0"), c.Num("32"))]
    assert [x.init for x in syntax.declared(whole, "j0")] == [c.Num("32")]


def test_rows_that_are_left_over_are_read_in_vectors(program):
    rest = branch(program, "i0_whole < end").then
    (rows,) = (
        x for x in syntax.loops(rest) if (x.var, x.lo, x.step) == ("j0", c.Num("0"), c.Num("16"))
    )
    assert rows.hi == c.Num("32")
    assert [x.lo for x in syntax.loops(rows) if x.var == "i"] == [c.Id("i0")] * 2  # of each product
    read = [expression(x.args[0]) for x in syntax.calls(rows, "load_f32x16")]
    assert read.count("&a[i * 37 + j0]") == 2
    # Nothing but the columns that are left over as well is read one by one.
    vectors = {id(n) for x in syntax.calls(rest, "load_") for n in syntax.nodes(x)}
    alone = [n for n in syntax.nodes(rest) if is_element(n, "a") and id(n) not in vectors]
    assert (
        len(alone)
        == len([x for x in syntax.loops(rest) if (x.var, x.lo) == ("j", c.Id("j0"))])
        == 2
    )


def is_element(x, array):
    return isinstance(x, c.Index) and x.base == c.Id(array)


# Threads share out rows inside of blocks of what is summed, so that sums go to the result itself; both operands are packed.
IN_RESULT = Sketch(
    tile=TileSizes(rows=4, vectors=2, blocks=BlockSizes(16, 64, 8)),
    packing=Packing(every=True, depth_first=True),
)


def test_whole_tiles_are_computed_where_all_is_packed_and_a_part_is_added():
    sizes = {"m": ROWS, "n": COLUMNS, "k": 40}
    candidate = candidate_of("matmul", sizes, IN_RESULT)
    program = syntax.apart_program_of(candidate)
    assert len(syntax.sums(program, "c_acc_")) == 4 * 2  # once, and no other version of it
    assert not [n for n in syntax.nodes(program) if is_element(n, "c_acc")]
    fits = branch(program, f"i1 + 4 <= {ROWS} && j1 + 32 <= {COLUMNS}")
    stores = [syntax.array_of(x.args[0]) for x in syntax.calls(fits.then, "store_f32x16")]
    assert stores.count("c") == 4 * 2
    (part,) = syntax.declared(fits.orelse, "c_part")
    assert (part.type, part.extent) == ("float", 128)
    assigned = [n.target for n in syntax.nodes(fits.orelse) if isinstance(n, c.Assign)]
    assert "c[i * 37 + j]" in [expression(x) for x in assigned]


# Decisions of products whose sums of cut tiles leave registers in parts; what threads share out, and what is packed, differ.
TILE = {
    "size(multiply0.i.mid)": "2",
    "size(multiply0.i.inner)": "4",
    "size(multiply0.j.mid)": "2",
    "size(multiply0.j.inner)": "16",
    "dim_kind(multiply0.j.inner)": "VECTOR",
    "size(multiply0.k.mid)": "8",
    "size(multiply0.k.inner)": "1",
    "staged(multiply0.a)": "COPY",
    "staged(multiply0.b)": "COPY",
    "order(multiply0.k.outer,multiply0.i.outer)": "OUTER",
    "order(multiply0.k.outer,multiply0.j.outer)": "OUTER",
    "order(multiply0.i.mid,multiply0.k.mid)": "OUTER",
    "order(multiply0.j.mid,multiply0.k.mid)": "OUTER",
}
ROWS_OF_THREADS = {**TILE, "dim_kind(multiply0.i.outer)": "PARALLEL"}
WAYS = {
    "rows": ROWS_OF_THREADS,
    "columns": {**TILE, "dim_kind(multiply0.j.outer)": "PARALLEL"},
    "partials": {**TILE, "dim_kind(multiply0.k.outer)": "PARALLEL"},
    "only_b": {**ROWS_OF_THREADS, "staged(multiply0.a)": "DIRECT"},
    "only_a": {**ROWS_OF_THREADS, "staged(multiply0.b)": "DIRECT"},
    "unrolled": {**ROWS_OF_THREADS, "size(multiply0.k.inner)": "3"},
}


@pytest.mark.compiler
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_of_tiles_are_added_where_they_belong(tmp_path, way, dtype):
    """Tiles that are cut along rows, columns or both."""
    made = []
    for extents in ((61, 37, 40), (64, 37, 9), (61, 64, 40), (27, 75, 33)):
        recording, args = recorded("matmul", dtype, **dict(zip("mnk", extents, strict=True)))
        candidate = decided(recording, WAYS[way], 3)
        source = checking.crowded_source_of(candidate)
        is_cut = (extents[0] % 4 and way != "only_b") or (extents[1] % 16 and way != "only_a")
        assert bool(syntax.declared(syntax.program_of(candidate), "c_part")) == bool(is_cut)
        made.append((source, inputs_of(recording, args)))
    ways = Way(), Way(repeats=2, thread_limit=1)
    assert not checking.fault_of_any(made, tmp_path, *ways)


@pytest.mark.parametrize("program", PROGRAMS)
def test_threads_know_what_nobody_writes(program):
    """`restrict` on an array that another thread writes too would let a compiler read it before the barrier between them."""
    program = syntax.apart_program_of(candidate_of(*PROGRAMS[program]))
    functions = [f for f in program.functions if f.is_parallel]
    assert functions
    for f in functions:
        pointers = [p for p in f.thread_parameters if p.type.endswith("*")]
        assert any(p.restrict for p in pointers)
        places = [n.args[0].x for n in (*syntax.calls(f, "store_"), *syntax.calls(f, "stream_"))]
        places += [n.target for n in syntax.nodes(f) if isinstance(n, c.Assign)]
        stored = {
            name for x in places if isinstance(x, c.Index) for name in syntax.names_in(x.base)
        }
        assert stored
        for p in pointers:
            assert bool(p.restrict) == p.type.startswith("const ")
            assert not (p.name in stored and p.restrict)
