"""Implementations that must be in the space of a GPU, and some that must not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import gcd

import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.analysis.effects import arrays_written, task_reads
from kernelscape.kernels.ir.access import index_loops
from kernelscape.kernels.library import names
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import restore
from kernelscape.space.engine import cpsat
from kernelscape.testing.checking import random_candidate
from kernelscape.testing.violations import violations

from .gpu_target import GPU, LARGE, problem_of


@pytest.mark.parametrize(
    ("name", "decisions"),
    [
        (
            "axpy",
            {
                "dim_kind(add_scaled0.i.outer)": "PARALLEL",
                "size(add_scaled0.i.mid)": "32",
                "dim_kind(add_scaled0.i.mid)": "THREAD",
                "dim_kind(add_scaled0.i.inner)": "VECTOR",
                "cache(add_scaled0.z)": "STREAM",
                "load_cache(x->add_scaled0)": "STREAM",
                "load_cache(y->add_scaled0)": "READ_ONLY",
            },
        ),
        (
            "bicgk",
            {
                "fused(gemv0,add_gemvt0)": "SAME_LAUNCH",
                "reduction(gemv0.j.mid)": "TREE",
                "reduction(add_gemvt0.i.outer)": "PARTIALS",
            },
        ),
        (
            "axpydot",
            {
                "fused(subtract_scaled0,dot0)": "SAME_LAUNCH",
                "mem_space(subtract_scaled0->dot0.z)": "REGISTER",
                "reduction(dot0.i.outer)": "PARTIALS",
                "reduction(dot0.i.mid)": "TREE",
            },
        ),
        (
            "axpydot",
            {
                "fused(subtract_scaled0,dot0)": "SAME_LAUNCH",
                "reduction(dot0.i.outer)": "ATOMIC",
                "reduction(dot0.i.mid)": "TREE",
            },
        ),
        (
            "gemver",
            {
                "dim_kind(add_two_outer0.i.mid)": "THREAD",
                "dim_kind(add_two_outer0.j.mid)": "THREAD",
                "thread_level(add_two_outer0.i.mid,add_two_outer0.j.mid)": "OUTER",
                "thread_level(add_scaled_gemvt0.i.mid,add_scaled_gemvt0.j.mid)": "INNER",
                "fused(add_two_outer0,add_scaled_gemvt0)": "SAME_LAUNCH",
                "order(add_two_outer0.i.outer,add_scaled_gemvt0.i.outer)": "MERGED",
                "order(add_two_outer0.j.outer,add_scaled_gemvt0.j.outer)": "MERGED",
            },
        ),
        (
            "matmul",
            {
                "staged(multiply0.a)": "COPY",
                "staged(multiply0.b)": "THREE_STAGES",
                "dim_kind(multiply0.i.mid)": "THREAD",
                "dim_kind(multiply0.j.mid)": "THREAD",
                "dim_kind(multiply0.k.mid)": "LOOP",
            },
        ),
    ],
)
def test_known_implementations_are_in_the_space(name, decisions):
    made = restore(build_space(problem_of(name, LARGE), GPU), decisions.items())
    assert isinstance(made, Candidate), made
    assert isinstance(made.complete(), Candidate)


@pytest.mark.parametrize(
    ("name", "decisions"),
    [
        (
            "axpydot",
            {
                "mem_space(subtract_scaled0->dot0.z)": "REGISTER",
                "dim_kind(dot0.i.mid)": "THREAD",
                "dim_kind(subtract_scaled0.i.mid)": "LOOP",
            },
        ),
        (
            "gemver",
            {
                "mem_space(add_two_outer0->add_scaled_gemvt0.b)": "REGISTER",
                "thread_level(add_two_outer0.i.mid,add_two_outer0.j.mid)": "OUTER",
                "thread_level(add_scaled_gemvt0.i.mid,add_scaled_gemvt0.j.mid)": "INNER",
            },
        ),
        (
            "atax",
            {"fused(gemv0,add_gemvt0)": "SAME_LAUNCH", "reduction(gemv0.j.outer)": "PARTIALS"},
        ),
        (
            "matmul",
            {
                "staged(multiply0.a)": "TWO_STAGES",
                "dim_kind(multiply0.i.outer)": "PARALLEL",
                "dim_kind(multiply0.k.outer)": "PARALLEL",
            },
        ),
        (
            "matmul",
            {"staged(multiply0.b)": "TWO_STAGES", "load_cache(b->multiply0)": "STREAM"},
        ),
        (
            "matmul",
            {
                "dim_kind(multiply0.k.outer)": "LOOP",
                "dim_kind(multiply0.i.outer)": "PARALLEL",
                "order(multiply0.i.outer,multiply0.k.outer)": "INNER",
            },
        ),
    ],
)
def test_wrong_implementations_are_not(name, decisions):
    assert isinstance(restore(build_space(problem_of(name), GPU), decisions.items()), DeadEnd)


@pytest.mark.parametrize(
    ("name", "wanted", "forbidden"),
    [
        (
            "matmul",
            {
                "staged(multiply0.a)": "THREE_STAGES",
                "layout(multiply0.a)": "SWIZZLED",
                "reduction(multiply0.k.mid)": "TREE",
                "thread_level(multiply0.i.mid,multiply0.k.mid)": "INNER",
            },
            {"load_cache(a->multiply0)": "CG"},
        ),
        (
            "axpydot",
            {
                "reduction(dot0.i.outer)": "ATOMIC",
                "fused(subtract_scaled0,dot0)": "SAME_LAUNCH",
                "load_cache(z->dot0)": "READ_ONLY",
            },
            None,
        ),
    ],
)
def test_the_solver_knows_the_same_rules(name, wanted, forbidden):
    """CP-SAT, made from the same declarations, completes what is possible and refuses what is not."""
    space = build_space(problem_of(name, LARGE), GPU)
    domains = space.model.initial.copy()

    def decide(decisions):
        for choice, value in decisions.items():
            var = space.model.positions[choice]
            space.model.narrow(domains, var, 1 << space.choices[var].values.index(value))

    decide(wanted)
    if forbidden is None:  # what a task of the launch writes is not read-only
        assert cpsat.complete(space.model, domains) is None
        return
    found = cpsat.complete(space.model, domains, {}, 20.0)
    assert found is not None
    made = space.candidate(found)
    assert isinstance(made, Candidate) and not violations(space.model, made.assignment())
    decide(forbidden)
    assert cpsat.complete(space.model, domains) is None


@pytest.mark.parametrize("name", names())
def test_what_a_sequence_can_use_is_drawn(name):
    """Each way to reduce, stage, load and hint, for every task of the library that has any use for it."""
    space = build_space(problem_of(name, LARGE), replace(GPU, shared_bytes_per_block=64 << 10))
    root = space.root()
    assert isinstance(root, Candidate)
    v, rng = space.variables, np.random.default_rng(4)
    seen = Counter()
    for _ in range(80):
        made = random_candidate(root, rng)
        for t in plan_of(made).tasks if isinstance(made, Candidate) else ():
            seen["TREE"] += t.has_tree
            seen["PARTIALS"] += t.partials
            seen["ATOMIC"] += t.is_atomic
            seen["LAST_BLOCK"] += t.by_last_block
            seen.update(t.stages[o.access.array] for o in t.copies)
            seen.update(t.load_hints.values())
            lanes = GPU.lanes(t.task.lane_bytes)
            seen.update(f"vectors of {gcd(p.inner, lanes)}" for p in t.loops if p.is_vector)
    written = {array for t in space.problem.tasks for array in arrays_written(t)}
    wanted = ["CG", "STREAM", "vectors of 2"] if v.load_cache else []
    wanted += ["READ_ONLY"] if any(array not in written for _, array in v.load_cache) else []
    tasks = [t for t in space.problem.tasks if t.is_structured]
    if any(t.is_reduction and t.fast_math for t in tasks):
        wanted += ["TREE", "PARTIALS", "ATOMIC", "LAST_BLOCK"]
    if any(t.dtype.size_bytes == 4 for t in tasks):
        wanted.append("vectors of 4")
    reused = any(
        len(index_loops(access)) in range(1, len(t.loops))
        for t in tasks
        for access, in_finish in task_reads(t)
        if not in_finish and t.is_reduction and access.array not in arrays_written(t)
    )
    assert not reused or v.staged
    wanted += [1] if v.staged else []  # a block, or one with its border
    wanted += [2, 3] if any(not o.is_window for o in v.staged) else []
    assert not [x for x in wanted if not seen[x]], seen
