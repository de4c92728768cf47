"""Loads of one element each in the bound: hand-worked values, monotone, and no more than a text makes."""

from __future__ import annotations

import math
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.codegen.lower import lower, print_source
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text.source import Source
from kernelscape.kernels.frontend.record import record_sequence
from kernelscape.kernels.library.heat import step
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER, MID
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.testing.machines import library_space, root_of, round_target

N = 256
RATE = 20.0
_FLAGS = ("-O1", "-march=native", "-Wno-psabi")


def space_of(name: str, **sizes: int) -> Space:
    return library_space(name, round_target(loads_per_ns=RATE), **sizes)


def loads_ns(
    space: Space, vector: str, inner: dict[str, int], mid: int = 1, copied: tuple[str, ...] = ()
) -> float:
    """The term of what is left when task 0 has vectors along a loop and these sizes; `copied` operands are packed."""
    v = space.variables
    domains = root_of(space).domains.copy()
    for loop in space.problem.tasks[0].loops:
        part = space.backbone.dim(0, loop.name, INNER)
        kinds = 1 << ch.VECTOR
        is_vector = loop.name == vector
        domains[v.kind[part]] = kinds if is_vector else int(domains[v.kind[part]]) & ~kinds
        for d, size in (
            (part, inner.get(loop.name, 1)),
            (space.backbone.dim(0, loop.name, MID), mid),
        ):
            domains[v.size[d]] = 1 << v.universe[d].index(size)
    for operand, var in v.staged.items():
        domains[var] = 1 << (ch.COPY if operand.access.array in copied else ch.DIRECT)
    return dict(Bounder(space).bound(domains).terms).get("loads", 0.0)


def test_one_operand_is_loaded_anew_in_every_iteration() -> None:
    space = space_of("matmul_strided", m=N, n=N, k=N)
    tile = {"i": 2, "j": 4, "k": 16}
    # With i innermost A is loaded for each of them, once for four columns; with j innermost B is, once for two rows.
    assert loads_ns(space, "k", tile) == pytest.approx(N**3 / 4 / RATE)
    assert loads_ns(space, "k", {**tile, "i": 8}) == pytest.approx(N**3 / 8 / RATE)


def test_what_is_packed_or_contiguous_takes_none() -> None:
    tile = {"i": 2, "j": 4, "k": 16}
    strided = space_of("matmul_strided", m=N, n=N, k=N)
    assert loads_ns(strided, "k", tile, copied=("b",)) == 0
    plain = space_of("matmul", m=N, n=N, k=N)
    assert loads_ns(plain, "k", tile) == 0  # A's row is one vector, and B may stay
    assert loads_ns(plain, "j", {"i": 2, "j": 16, "k": 2}) == 0


def test_a_compiler_may_unroll_short_loops() -> None:
    space = space_of("matmul_strided", m=N, n=N, k=N)
    tile = {"i": 2, "j": 2, "k": 16}
    assert loads_ns(space, "k", tile, mid=4) == pytest.approx(N**3 / (2 * 4) / RATE)
    # Two iterations are left of the outer loop.
    assert loads_ns(space, "k", tile, mid=64) == pytest.approx(N**3 / (2 * 2) / RATE)


def test_a_matrix_walked_across_its_rows_is_loaded_element_by_element() -> None:
    space = space_of("sgemv", m=N, n=N)
    row, column = (loop.name for loop in space.problem.tasks[0].loops)
    assert loads_ns(space, row, {row: 16, column: 4}) == pytest.approx(N * N / RATE)
    assert loads_ns(space, column, {row: 4, column: 16}) == 0


def test_what_another_read_may_have_in_registers_does_not_count() -> None:
    def one_step(u: Any, v: Any) -> None:
        step(u, v, 0.125)  # a point's neighbours are points of the next ones

    target = round_target(loads_per_ns=RATE)
    fields = np.zeros((N, N), np.float32), np.zeros((N, N), np.float32)
    stencil = build_space(normalise(record_sequence(one_step, fields)), target)
    both_read_a = space_of("bicgk", m=N, n=N)  # maybe in one loop
    for space in (stencil, both_read_a):
        for loop in space.problem.tasks[0].loops:
            assert loads_ns(space, loop.name, {loop.name: 16}) == 0


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(("matmul_strided", "sgemv", "gesummv")), st.integers(0, 2**31))
def test_loads_grow_along_descents(name: str, seed: int) -> None:
    space = descended(name)
    bounder, rng = Bounder(space), np.random.default_rng(seed)
    at, before = root_of(space), 0.0
    while not at.is_complete:
        var = int(rng.choice(at.open_choices()))
        children = [c for _, c in at.expand(var) if isinstance(c, Candidate)]
        if not children:
            return
        at = children[int(rng.integers(len(children)))]
        after = dict(bounder.bound(at).terms).get("loads", 0.0)
        assert after >= before
        before = after


@cache
def descended(name: str) -> Space:
    return space_of(name, **({"m": N, "n": N, "k": N} if name == "matmul_strided" else {"n": N}))


def test_nothing_follows_where_the_rate_is_not_known() -> None:
    space = library_space("sgemv", m=N, n=N)
    row = space.problem.tasks[0].loops[0].name
    assert loads_ns(space, row, {row: 16}) == 0


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["matmul_strided", "sgemv", "gesummv"])
def test_the_bound_counts_no_more_than_a_text_loads(name: str, tmp_path: Path) -> None:
    sizes = {"n": 128} if name == "gesummv" else {"m": 128, "n": 128}
    if name == "matmul_strided":
        sizes["k"] = 128
    space = library_space(name, round_target(loads_per_ns=RATE, cores=1), **sizes)
    bounder, rng = Bounder(space), np.random.default_rng(5)
    seen = []
    for _ in range(4000):
        made = root_of(space).random_completion(rng)
        if not isinstance(made, Candidate) or not has_whole_vectors(made):
            continue
        ns = dict(bounder.bound(made).terms).get("loads", 0.0)
        if ns:
            source = print_source(lower(plan_of(made)), C_TEAM)
            counted = lanes_loaded(source, tmp_path / f"program{len(seen)}")
            assert ns * RATE <= counted, source.text
            seen.append(ns * RATE / counted)
        if len(seen) >= 4 and max(seen) > 0.2:
            break
    assert seen
    assert max(seen) > 0.2  # and does not count next to nothing


def has_whole_vectors(made: Candidate) -> bool:
    """Whether all is in vectors: what is left over at the ends of loops is not counted below."""
    v = made.space.variables
    vectors = (
        d
        for d in made.space.backbone.dims
        if d.level == INNER and made.value(v.kind[d]) == ch.VECTOR
    )
    return all(d.loop.extent % v.universe[d][made.value(v.size[d])] == 0 for d in vectors)


def lanes_loaded(source: Source, program: Path) -> int:
    """Lanes that one call gathers, before a compiler has left any out."""
    lines = ["#include <stdio.h>", "static long lanes_loaded;"]
    for line in source.text.splitlines():
        if line.startswith("static inline") and " gather_" in line:
            lanes = line.count("* stride]")
            line = line.replace("{ return", f"{{ lanes_loaded += {lanes}; return", 1)
        lines.append(line)
    sizes = [math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in source.arguments]
    arrays = [f"static _Alignas(64) char x{k}[{n}];" for k, n in enumerate(sizes)]
    names = ", ".join(f"x{k}" for k in range(len(sizes)))
    call = f"void *args[] = {{{names}}}; {source.entry}(args);"
    lines += [*arrays, f'int main(void) {{ {call} printf("%ld", lanes_loaded); }}']
    text = program.with_suffix(".c")
    text.write_text("\n".join(lines) + "\n")
    subprocess.run(["gcc", text, *_FLAGS, "-o", program, "-lm"], check=True)
    return int(subprocess.run([program], check=True, capture_output=True).stdout)
