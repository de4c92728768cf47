"""Register tiles that a loop ends inside of, and what compilers learn of arrays that nobody writes."""

from __future__ import annotations

import re

import pytest
from kernelscape.experiments import checking
from kernelscape.search.first import Style

from .test_sources import PROGRAMS, candidate_of

ROWS, COLUMNS = 61, 37  # neither in whole tiles of 4 rows by 16 columns


@pytest.fixture(scope="module")
def text():
    sizes = {"m": ROWS, "n": COLUMNS}
    return checking.source_of(candidate_of("bicgk", sizes, Style(vectors=1, rows=4))).text


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


@pytest.mark.parametrize("program", PROGRAMS)
def test_threads_know_what_nobody_writes(program):
    """`restrict` on an array that another thread writes too would let a compiler read it before the barrier between them."""
    source = checking.source_of(candidate_of(*PROGRAMS[program])).text
    functions = re.findall(
        r"static [^\n]*void launch_\d+_thread\((.*?)\) \{\n(.*?)\n\}\n", source, re.S
    )
    assert len(functions) == source.count("#pragma omp parallel")
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
