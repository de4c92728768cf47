"""Errors planted in generated CUDA text: each is found when the candidate is evaluated, with its status and the kernel's name.

A barrier is taken away, an access moved out of its array, a barrier put where only some threads pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice
from math import prod

import numpy as np
import pytest
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.write.program_text import arguments
from kernelscape.runtime.api.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.worker.inputs import Arguments, make_input_sets
from kernelscape.runtime.worker.worker import Worker, WorkerOptions
from kernelscape.space.candidate import Candidate
from kernelscape.testing.cases import Case
from kernelscape.testing.checking import random_candidate
from kernelscape.testing.syntax import declared, nodes, program_of, rewritten

from .gpu_cases import BICGK, MATMUL, NEEDS_COMPILER, case_of, decided, gpu, root_of

pytestmark = NEEDS_COMPILER
QUICK = Protocol(sample_ns=1e3, min_samples=1, max_samples=1, budget_ns=1e3)
LONGEST = 20_000  # characters of a random text: others take seconds each
BARRIER = "__syncthreads();"  # as functions say it that kernels call, which are text
MISSED = c.If(
    c.Bin("==", c.Bin("%", c.Id("threadIdx.x"), c.Num("2")), c.Num("0")), (c.Barrier(),)
)  # by every other thread

TREE = {
    "dim_kind(gemv0.i.outer)": "PARALLEL",
    "dim_kind(gemv0.j.outer)": "LOOP",
    "dim_kind(gemv0.j.mid)": "THREAD",
    "size(gemv0.j.mid)": "128",
    "dim_kind(gemv0.i.mid)": "THREAD",
    "size(gemv0.i.mid)": "4",
}


# A value that a block hands on in shared memory, for a task with threads of its own.
SHARED = {
    "mem_space(gemv0->add_gemvt0.t)": "SHARED",
    "dim_kind(gemv0.i.mid)": "THREAD",
    "size(gemv0.i.mid)": "32",
    "dim_kind(add_gemvt0.j.mid)": "THREAD",
    "size(add_gemvt0.j.mid)": "32",
}
EXAMPLES = {
    "product": (("matmul", 5), MATMUL),
    "tree": (("sgemv", 6), TREE),
    "fused": (("bicgk", 4), BICGK),
    "shared": (("atax", 4), SHARED),
}
IN_SHARED = {"product": 2, "tree": 1, "fused": 0, "shared": 1}  # arrays


@cache
def example(name):
    """A case with the program of one of its candidates."""
    sequence, decisions = EXAMPLES[name]
    case = case_of(*sequence)
    return case, program_of(decided(case.problem, decisions))


def is_barrier(x):
    return isinstance(x, c.Barrier)


def with_barriers(program, planted):
    """The program with this in place of each barrier of its kernels, or without any."""
    return rewritten(program, lambda n: planted if is_barrier(n) else n)


def each_barrier(program, planted, text):
    """Programs in which one barrier is another statement, or none: those of kernels, then those of what they call, as `text`."""
    for barrier in filter(is_barrier, nodes(program)):
        yield rewritten(program, lambda n, barrier=barrier: planted if n is barrier else n)
    pieces = program.prelude.split(BARRIER)
    for k in range(1, len(pieces)):
        before, after = BARRIER.join(pieces[:k]), BARRIER.join(pieces[k:])
        yield replace(program, prelude=f"{before}{text}{after}")


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory):
    """Evaluates a program of a case as a search does: built, run in a worker's child, compared with the reference."""
    device = open_device("emulator", DeviceOptions(build_folder=tmp_path_factory.mktemp("planted")))
    workers: dict[str, Worker] = {}

    def evaluated(case: Case, program):
        if case.name not in workers:
            worker = workers[case.name] = Worker(device, WorkerOptions(run_timeout_s=60.0))
            first = Arguments(case.arrays, case.scalars)
            rng = np.random.default_rng(0)
            worker.prepare(make_input_sets(case.recording, case.problem, first, rng, 3))
        built = device.builder.build(gpu.printed(program))
        assert not isinstance(built, Failure), built
        return workers[case.name].evaluate(built, QUICK)

    yield evaluated
    for worker in workers.values():
        worker.close()


def assert_caught(found, *words):
    assert isinstance(found, Failure), "it was not found"
    assert found.kind == "crash"
    assert "launch_" in found.advice, found.advice
    assert any(word in found.advice for word in words), found.advice


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_program_itself_is_right(name, evaluate):
    assert isinstance(evaluate(*example(name)), Measurement)


@pytest.mark.parametrize("name", ["product", "tree", "shared"])
def test_each_barrier_that_is_missing_is_named(name, evaluate):
    case, program = example(name)
    missing = list(each_barrier(program, None, ""))
    assert len(missing) == {"product": 2, "tree": 2, "shared": 1}[name]
    if name == "tree":
        missing.pop()  # keeps the next use of the array apart, and there is none here
    for one in missing:
        assert_caught(evaluate(case, one), "no barrier in between")


@pytest.mark.parametrize("name", ["product", "tree", "shared"])
def test_a_barrier_that_some_threads_miss_is_named(name, evaluate):
    case, program = example(name)
    missed = list(each_barrier(program, MISSED, f"if (threadIdx.x % 2 == 0) {BARRIER}"))
    assert missed
    for one in missed:
        assert_caught(evaluate(case, one), "barrier", "others wait for it")


def beyond(x, array, n):
    """An access of an array `n` elements further on: by an index, or from a pointer into it."""
    match x:
        case c.Index(c.Id(name), index) if name == array:
            return c.Index(c.Id(array), c.Bin("+", c.number(n), index))
        case c.CastTo(kind, c.Id(name)) if name == array:
            return c.CastTo(kind, c.Bin("+", c.Id(array), c.number(n)))
    return x


@pytest.mark.parametrize("name", EXAMPLES)
def test_accesses_outside_an_array_are_named(name, evaluate):
    """Array by array, of the call and in shared memory: its accesses moved by its size."""
    case, program = example(name)
    shared = {x.name: x.extent for x in declared(program) if x.is_shared}
    assert len(shared) == IN_SHARED[name]
    sizes = {a.name: prod(a.shape) for a in arguments(program) if a.kind == "array"}
    for array, n in (sizes | shared).items():
        moved = rewritten(program, lambda x, array=array, n=n: beyond(x, array, n))
        assert moved != program, array
        assert_caught(evaluate(case, moved), "out of bounds", f"outside {array}", "no array")


def test_a_partial_tile_that_is_taken_for_a_whole_one_is_named(evaluate):
    """37 rows, four a block: the last block would run over the end."""
    case, program = example("fused")
    test = next(n.condition for n in nodes(program) if isinstance(n, c.If))
    match test:
        case c.Bin("<=", c.Bin("+", c.Id(), c.Num() as rows) as end, c.Num() as extent):
            taken = c.Bin("<=", end, c.Bin("+", extent, rows))
    found = evaluate(case, rewritten(program, lambda n: taken if n is test else n))
    assert_caught(found, "outside", "beyond", "past", "bounds")


@cache
def waiting(name):
    """A case with the programs of two random candidates that have barriers."""
    case = case_of(name, 4)
    rng, root = np.random.default_rng(2), root_of(case.problem)
    drawn = (random_candidate(root, rng) for _ in range(200))
    programs = (program_of(one) for one in drawn if isinstance(one, Candidate))
    waiting = (p for p in programs if any(map(is_barrier, nodes(p))))
    found = list(islice((p for p in waiting if len(gpu.printed(p).text) <= LONGEST), 2))
    assert len(found) == 2
    return case, found


@pytest.mark.parametrize("planted", [None, MISSED], ids=["missing", "missed"])
@pytest.mark.parametrize("name", ["sgemvt", "gemver", "matmul", "atax"])
def test_barriers_of_random_candidates(name, planted, evaluate):
    """Taken away, or missed by every other thread: where that matters it is named. It never ends in a wrong result.

    It need not matter: a thread may read what it wrote itself, and some loops do not run at these sizes.
    """
    case, programs = waiting(name)
    changed = [with_barriers(p, planted) for p in programs]
    failures = [f for one in changed if isinstance(f := evaluate(case, one), Failure)]
    assert failures
    for found in failures:
        assert_caught(found, "no barrier in between", "divergent barrier", "others wait for it")
