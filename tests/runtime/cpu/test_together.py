"""Several texts in one run of the compiler: each has its own entry, and means there what it means alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.lower import lower, print_source
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.explorer.entry import library_workload
from kernelscape.explorer.workload import make_workload
from kernelscape.kernels.library import load, names
from kernelscape.runtime.api.artifact import Artifact
from kernelscape.runtime.api.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.building.queue import build_many
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.records.replay import dialect_of
from kernelscape.runtime.worker.inputs import make_input_sets
from kernelscape.runtime.worker.worker import Worker
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing.checking import random_candidate

pytestmark = pytest.mark.compiler
EXTENTS = (5, 16, 23, 48, 67)
QUICK = Protocol(min_samples=3, max_samples=3, budget_ns=1e5)


@pytest.fixture(scope="module", params=["gcc", "clang"])
def compiler(request):
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.fixture
def device(compiler, tmp_path):
    return open_device("cpu", DeviceOptions(compiler=compiler, build_folder=tmp_path))


@pytest.fixture(scope="module")
def worker(compiler, tmp_path_factory):
    """One process for all sequences: it takes as long to start as they take to run."""
    folder = tmp_path_factory.mktemp("worker")
    with Worker(open_device("cpu", DeviceOptions(compiler=compiler, build_folder=folder))) as made:
        yield made


@cache
def workload_of(name):
    rng = np.random.default_rng(names().index(name))
    entry = load(name)
    return library_workload(entry, {k: int(rng.choice(EXTENTS)) for k in entry.sizes}, "f32", 1)


@cache
def sources_of(name, n):
    """Texts of first and of random candidates, for whatever compiler."""
    device = open_device("cpu")
    space = build_space(workload_of(name).problem, device.machine.facts())
    rng = np.random.default_rng(n)
    firsts = [c for _, c in first_candidates(space)]
    drawn = (random_candidate(space.root(), rng) for _ in range(4 * n))
    candidates = [*firsts[:n], *(c for c in drawn if isinstance(c, Candidate))]
    texts = {
        s.key: s for s in (print_source(lower(plan_of(c)), dialect_of(device)) for c in candidates)
    }
    return list(texts.values())[: 2 * n]


# Sequences take turns with compilers.
TURNS = [(("gcc", "clang")[k % 2], name) for k, name in enumerate(names())]


@pytest.mark.parametrize(("compiler", "name"), TURNS, indirect=["compiler"])
def test_what_is_built_together_computes_what_it_computes_alone(name, device, worker):
    workload = workload_of(name)
    sources = sources_of(name, 2)
    built = device.builder.build_together(sources)
    assert len({a.path for a in built}) == 1  # none was built alone
    assert len({a.entry for a in built}) == len({a.key for a in built}) == len(sources)
    assert [a.source_key for a in built] == [s.key for s in sources]
    rng = np.random.default_rng(1)
    input_sets = make_input_sets(workload.recording, workload.problem, workload.arguments, rng, 2)
    worker.prepare(input_sets)
    assert all(isinstance(worker.evaluate(a, QUICK), Measurement) for a in built)


nd = ks.types.ndarray()


@ks.kernel
def heavy(x: nd, y: nd):
    for i in range(x.shape[0]):
        a = x[i]
        total = ks.exp(-a) + ks.log(1.0 + a) + ks.tanh(a) + ks.pow(1.0 + a, 0.3)
        n = 0
        while total > 1.5 and n < 9:
            total = total * 0.7 + ks.sin(a)
            n += 1
        y[i] = total + ks.exp(a * 0.5)


@ks.kernel
def row_maximum(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = y[i] + ks.exp(x[i]) * ks.cos(x[i])


def functions(x, y):
    heavy(x, y)
    row_maximum(x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_texts_that_compute_functions_of_vectors_are_built_together(dtype, device):
    """The kind: a name of a text that is not renamed, or a macro that is. Then each text of a batch is built alone."""
    x = np.linspace(0.0, 1.0, 300, dtype=dtype)
    given = make_workload(functions, (x, np.zeros_like(x)), sequence="functions", name="functions")
    space = build_space(given.problem, device.machine.facts())
    texts = [
        print_source(lower(plan_of(c)), dialect_of(device)) for _, c in first_candidates(space)
    ]
    sources = list({s.key: s for s in texts}.values())[:4]
    assert any("static inline" in s.text and "IN_ORDER" in s.text for s in sources)
    assert any("LANES_AVX512" in s.text for s in sources)
    built = device.builder.build_together(sources)
    assert len({a.path for a in built}) == 1
    for s in sources:  # what `#if defined` asks is as it is alone
        assert not [n for n in s.names if f"#define {n}\n" in s.text or f"#define {n} " in s.text]


@pytest.fixture
def sources():
    return sources_of("axpydot", 3)


def test_one_that_is_refused_leaves_the_others_what_they_are(device, sources):
    wrong = replace(sources[1], text=sources[1].text + "void run_sequence(int);\n")
    found = device.builder.build_together([sources[0], wrong, *sources[2:]])
    assert isinstance(found[1], Failure)
    assert found[1].kind == "compile"
    assert "run_sequence" in found[1].log
    assert [a.entry for a in found if isinstance(a, Artifact)] == ["run_sequence"] * (
        len(sources) - 1
    )


def test_equal_groups_are_built_once_and_texts_lie_beside(device, sources, tmp_path):
    first, again = device.builder.build_together(sources), device.builder.build_together(sources)
    assert [a.key for a in first] == [a.key for a in again]
    assert all(a.build_ns == 0 for a in again)
    assert {s.text for s in sources} <= {path.read_text() for path in tmp_path.glob("*.c")}


def test_a_text_without_names_or_with_other_flags_is_built_alone(device, sources):
    for other in (replace(sources[0], names=()), replace(sources[0], flags=("-DX=1",))):
        built = device.builder.build_together([other, *sources[1:3]])
        assert len({a.path for a in built}) == 3


def test_groups_are_as_large_as_the_device_and_the_compilers_let_them(device, sources):
    def files(jobs):
        return len({a.path for a in build_many(device.builder, sources, jobs)})

    assert len(sources) == 6
    assert (files(1), files(2), files(4), files(6)) == (1, 2, 4, 6)
    device.builder.most_together = 2
    assert files(1) == 3


def test_compilers_get_as_much_text_each(device, sources, monkeypatch):
    longer = [replace(s, text=s.text + "//" + "." * 4000 * k) for k, s in enumerate(sources)]
    groups = []

    def note(group):
        groups.append(sum(len(s.text) for s in group))
        return [Failure("compile", s.text) for s in group]

    monkeypatch.setattr(device.builder, "build_together", note)
    built = build_many(device.builder, longer, 2)
    assert [f.advice for f in built] == [s.text for s in longer]  # in their order
    assert max(groups) < 1.2 * min(groups)
    assert sum(len(s.text) for s in longer[3:]) > 2 * sum(len(s.text) for s in longer[:3])
