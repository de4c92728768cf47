"""Errors planted in generated CUDA text: each is found when the candidate is evaluated, with its status and the kernel's name.

A barrier is taken away, an access moved out of its array, a barrier put where only some threads pass.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import islice
from math import prod

import numpy as np
import pytest
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.worker.inputs import Arguments, make_input_sets
from kernelscape.runtime.worker.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.worker.worker import Worker, WorkerOptions
from kernelscape.space.candidate import Candidate
from kernelscape.testing.cases import Case
from kernelscape.testing.checking import random_candidate

from .gpu_cases import BICGK, MATMUL, NEEDS_COMPILER, case_of, decided, gpu, root_of

pytestmark = NEEDS_COMPILER
QUICK = Protocol(sample_ns=1e3, min_samples=1, max_samples=1, budget_ns=1e3)
BARRIER = "__syncthreads();"
PARTIAL_TILE = re.compile(r"if \((\w+) \+ (\d+) <= (\d+)\)")

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
    """A case with the text of one of its candidates."""
    sequence, decisions = EXAMPLES[name]
    case = case_of(*sequence)
    return case, gpu.source_of(decided(case.problem, decisions))


def kernels(source):
    return source.text[source.text.index('extern "C"') :]


def with_kernels(source, text):
    head = source.text[: source.text.index('extern "C"')]
    return replace(source, text=head + text)


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory):
    """Evaluates a text of a case as a search does: built, run in a worker's child, compared with the reference."""
    device = open_device("emulator", DeviceOptions(build_folder=tmp_path_factory.mktemp("planted")))
    workers: dict[str, Worker] = {}

    def evaluated(case: Case, source):
        if case.name not in workers:
            worker = workers[case.name] = Worker(device, WorkerOptions(run_timeout_s=60.0))
            first = Arguments(case.arrays, case.scalars)
            rng = np.random.default_rng(0)
            worker.prepare(make_input_sets(case.recording, case.problem, first, rng, 3))
        built = device.builder.build(source)
        assert not isinstance(built, Failure), built
        return workers[case.name].evaluate(built, QUICK)

    yield evaluated
    for worker in workers.values():
        worker.close()


def assert_caught(found, *words):
    assert isinstance(found, Failure), "it was not found"
    assert found.kind == "crash"
    assert re.search(r"\blaunch_\d", found.advice), found.advice
    assert any(word in found.advice for word in words), found.advice


def places(pattern, text):
    return [m.start() for m in re.finditer(pattern, text)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_text_itself_is_right(name, evaluate):
    assert isinstance(evaluate(*example(name)), Measurement)


@pytest.mark.parametrize("name", ["product", "tree", "shared"])
def test_each_barrier_that_is_missing_is_named(name, evaluate):
    case, source = example(name)
    found = places(re.escape(BARRIER), source.text)
    assert found
    for at in found:
        text = source.text[:at] + source.text[at + len(BARRIER) :]
        if name == "tree" and at == found[-1]:
            continue  # keeps the next use of the array apart, and there is none here
        assert_caught(evaluate(case, replace(source, text=text)), "no barrier in between")


@pytest.mark.parametrize("name", ["product", "tree", "shared"])
def test_a_barrier_that_some_threads_miss_is_named(name, evaluate):
    case, source = example(name)
    for at in places(re.escape(BARRIER), source.text):
        text = f"{source.text[:at]}if (threadIdx.x % 2 == 0) {source.text[at:]}"
        assert_caught(evaluate(case, replace(source, text=text)), "barrier", "others wait for it")


@pytest.mark.parametrize("name", EXAMPLES)
def test_accesses_outside_an_array_are_named(name, evaluate):
    """Array by array, of the call and in shared memory: its accesses moved by its size."""
    case, source = example(name)
    text = kernels(source)
    shared = dict(re.findall(r"__shared__ __align__\(16\) \w+ (\w+)\[(\d+)\];", text))
    assert len(shared) == text.count("__shared__") == IN_SHARED[name]
    sizes = {a.name: prod(a.shape) for a in source.arguments if a.kind == "array"}
    sizes |= {array: int(n) for array, n in shared.items()}
    for array, n in sizes.items():
        moved, count = re.subn(rf"\b{array}\[(?!{n}\];)", f"{array}[{n} + ", text)
        moved, more = re.subn(rf"\*\){array}\b", f"*)({array} + {n})", moved)
        assert count + more, array
        found = evaluate(case, with_kernels(source, moved))
        assert_caught(found, "out of bounds", f"outside {array}", "no array")


def test_a_partial_tile_that_is_taken_for_a_whole_one_is_named(evaluate):
    """37 rows, four a block: the last block would run over the end."""
    case, source = example("fused")
    text = kernels(source)
    test = PARTIAL_TILE.search(text)
    assert test is not None
    whole = f"if ({test[1]} + {test[2]} <= {test[3]} + {test[2]})"
    found = evaluate(case, with_kernels(source, text.replace(test[0], whole, 1)))
    assert_caught(found, "outside", "beyond", "past", "bounds")


@pytest.mark.parametrize("planted", ["", f"if (threadIdx.x % 2 == 0) {BARRIER}"])
@pytest.mark.parametrize("name", ["sgemvt", "gemver", "matmul", "atax"])
def test_barriers_of_random_candidates(name, planted, evaluate):
    """Taken away, or missed by every other thread: where that matters it is named. It never ends in a wrong result.

    It need not matter: a thread may read what it wrote itself, and some loops do not run at these sizes.
    """
    case = case_of(name, 4)
    rng, root = np.random.default_rng(2), root_of(case.problem)
    drawn = (random_candidate(root, rng) for _ in range(200))
    sources = (gpu.source_of(c) for c in drawn if isinstance(c, Candidate))
    waiting = list(islice((s for s in sources if BARRIER in kernels(s)), 4))
    texts = [with_kernels(s, kernels(s).replace(BARRIER, planted)) for s in waiting]
    failures = [f for text in texts if isinstance(f := evaluate(case, text), Failure)]
    assert failures
    for found in failures:
        assert_caught(found, "no barrier in between", "divergent barrier", "others wait for it")
