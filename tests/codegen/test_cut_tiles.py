"""Register tiles that a loop ends inside of, and what compilers learn of arrays that nobody writes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from kernelscape.search.starts.sketches import Packing, Sketch, Tile
from kernelscape.search.starts.tiles import Blocks
from kernelscape.testing import checking
from kernelscape.testing.checking import Way

from .packed_cases import decided, inputs_of, recorded
from .test_sources import PROGRAMS, candidate_of

ROWS, COLUMNS = 61, 37  # neither in whole tiles of 4 rows by 16 columns


@pytest.fixture(scope="module")
def text():
    sizes = {"m": ROWS, "n": COLUMNS}
    return checking.source_of(
        candidate_of("bicgk", sizes, Sketch(tile=Tile(rows=4, vectors=1)))
    ).text


def block(text: str, head: str) -> str:
    """What the first block whose head matches holds: its lines are further in than the head."""
    lines = text.splitlines()
    first = next(k for k, line in enumerate(lines) if re.search(head, line))
    depth = len(lines[first]) - len(lines[first].lstrip())
    held = []
    for line in lines[first + 1 :]:
        if len(line) - len(line.lstrip()) <= depth:
            break
        held.append(line)
    assert held
    return "\n".join(held)


def test_no_loop_tests_whether_its_tiles_are_whole(text):
    assert not re.search(rf"<= {ROWS}\b|<= {COLUMNS}\b", text)
    whole = block(text, r"for \(long i0 = ")
    assert re.search(r"for \(long j0 = 0; j0 < 32; j0 \+= 16\)", whole)
    assert "const long j0 = 32;" in whole


def test_rows_that_are_left_over_are_read_in_vectors(text):
    rest = block(text, r"if \(i0_whole < end\)")
    rows = block(rest, r"for \(long j0 = 0; j0 < 32; j0 \+= 16\)")
    assert rows.count("for (long i = i0;") == 2  # of each product
    assert rows.count("load_f32x16(&a[i * 37 + j0])") == 2
    # Nothing but the columns that are left over as well is read one by one.
    assert len(re.findall(r"= a\[", rest)) == len(re.findall(r"for \(long j = j0;", rest)) == 2


# Threads share out rows inside of blocks of what is summed, so that sums go to the result itself; both operands are packed.
IN_RESULT = Sketch(
    tile=Tile(rows=4, vectors=2, blocks=Blocks(16, 64, 8)),
    packing=Packing(every=True, depth_first=True),
)


def test_whole_tiles_are_computed_where_all_is_packed_and_a_part_is_added():
    sizes = {"m": ROWS, "n": COLUMNS, "k": 40}
    text = checking.apart_source_of(candidate_of("matmul", sizes, IN_RESULT)).text
    assert len(re.findall(r"c_acc_\d_\d \+= ", text)) == 4 * 2  # once, and no other version of it
    assert "c_acc[" not in text
    fits = block(text, rf"if \(i1 \+ 4 <= {ROWS} && j1 \+ 32 <= {COLUMNS}\)")
    assert fits.count("store_f32x16(&c[") == 4 * 2
    part = block(text[text.index(fits) :], r"\} else \{")
    assert "float c_part[128];" in part
    assert re.findall(r"^ *c\[i \* 37 \+ j\] = ", part, re.M)


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
    """Where rows, columns or both are cut."""
    made = []
    for extents in ((61, 37, 40), (64, 37, 9), (61, 64, 40), (27, 75, 33)):
        recording, args = recorded("matmul", dtype, **dict(zip("mnk", extents, strict=True)))
        source = checking.crowded_source_of(decided(recording, WAYS[way], 3))
        is_cut = (extents[0] % 4 and way != "only_b") or (extents[1] % 16 and way != "only_a")
        assert ("c_part[" in source.text) == bool(is_cut)
        made.append((source, recording, args))
    built = checking.build_all([source for source, _, _ in made], tmp_path, "parts")
    for one, (_, recording, args) in zip(built, made, strict=True):
        assert one.library is not None, one.log
        assert one.log == ""
        for called in (Way(), Way(repeats=2, thread_limit=1)):
            said = checking.check(one, inputs_of(recording, args), called)
            assert not said, f"{said}\n{one.source.text}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_threads_know_what_nobody_writes(program):
    """`restrict` on an array that another thread writes too would let a compiler read it before the barrier between them."""
    source = checking.apart_source_of(candidate_of(*PROGRAMS[program])).text
    functions = re.findall(
        r"static [^\n]*void launch_\d+_thread\((.*?)\) \{\n(.*?)\n\}\n", source, re.S
    )
    assert len(functions) == source.count("ks_team_run(launch_")
    for parameters, body in functions:
        pointers = [p for p in parameters.split(", ") if "*" in p]
        assert any(p.startswith("const ") for p in pointers)
        for p in pointers:
            name = re.split(r"[* ]", p)[-1]
            stored = re.search(
                rf"(store|stream)_\w+\(&{name}\[|^\s*{name}\[[^=]*\] \+?=", body, re.M
            )
            assert ("restrict" in p) == p.startswith("const ")
            assert not (stored and "restrict" in p)
