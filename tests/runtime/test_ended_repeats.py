"""Repeats that an array ends: their code tests it behind each step, in one text and in a table of units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.by_component import EvaluatedSources
from kernelscape.codegen.text.source import Source
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.frontend.repeat import repeat
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.api.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.worker.input_sets import InputSet, InputSets
from kernelscape.runtime.worker.verify import Expected
from kernelscape.runtime.worker.worker import Worker
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.legality import illegal

nd = types.ndarray()
LIMIT, CANDIDATES = 30, 3
QUICK = Protocol(sample_ns=2e4, min_samples=3, max_samples=5, budget_ns=5e6, times_components=True)


@kernel
def start(x: nd, n: nd):
    n[0] = 0
    for i in range(x.shape[0]):
        x[i] = 1.0 + i


@kernel
def relax(x: nd, b: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = b[i] + 0.5 * x[i]


@kernel
def compare(x: nd, y: nd, n: nd, done: nd):
    n[0] += 1
    change = 0.0
    for i in range(x.shape[0]):
        change = max(change, abs(y[i] - x[i]))
    done[0] = change < 0.01


@kernel
def move(y: nd, x: nd):
    for i in range(x.shape[0]):
        x[i] = y[i]


@kernel
def clear(done: nd):
    done[0] = 0


def relaxed(b, x, y, n, done):
    start(x, n)
    for _ in repeat(LIMIT, until=done):
        relax(x, b, y)
        compare(x, y, n, done)
        move(y, x)
    clear(done)


def twice(b, x, y, n, done):
    """Two of them, the second with a fixed repeat inside, in all more tasks than a component has."""
    start(x, n)
    for _ in repeat(3, until=done):
        relax(x, b, y)
        compare(x, y, n, done)
        move(y, x)
    for _ in repeat(LIMIT, until=done):
        for _ in range(20):
            relax(x, b, y)
            relax(y, b, x)
        relax(x, b, y)
        compare(x, y, n, done)


SEQUENCES = (relaxed, twice)


def recorded(fn, flag, n=37):
    rng = np.random.default_rng(3)
    arrays = {"b": rng.random(n), "x": np.zeros(n), "y": np.zeros(n)}
    arrays |= {"n": np.zeros(1, np.int32), "done": np.ones(1, flag)}
    return record_sequence(fn, list(arrays.values())), arrays


def root_of(recording):
    root = build_space(normalise(recording), checking.target(2, 32)).root()
    assert isinstance(root, Candidate)
    return root


@pytest.mark.compiler
@pytest.mark.parametrize("flag", [np.int32, np.uint8, np.int64])
def test_candidates_run_as_many_steps_as_the_interpreter(tmp_path, flag):
    works = []
    for k, fn in enumerate(SEQUENCES):
        recording, arrays = recorded(fn, flag)
        root, rng = root_of(recording), np.random.default_rng(k)
        given = checking.make_inputs(recording, root.space.problem, arrays, {})
        assert 3 < run_reference(recording, arrays, {})["n"][0] < LIMIT
        made = [checking.random_candidate(root, rng) for _ in range(2 * CANDIDATES)]
        complete = [c for c in made if isinstance(c, Candidate)][:CANDIDATES]
        assert complete
        unsplit = tuple(root.space.apart(complete[0]))  # its calls as they are written
        assert unsplit
        works += [(checking.source_of(c), given) for c in (*complete, *unsplit)]
    assert not checking.fault_of_any(works, tmp_path, Way(repeats=2))


@pytest.mark.compiler
def test_a_table_of_units_ends_as_one_text_does(cpu):
    recording, arrays = recorded(twice, np.int32)
    root = root_of(recording)
    problem = root.space.problem
    made = checking.random_candidate(root, np.random.default_rng(2))
    assert isinstance(made, Candidate)
    source = EvaluatedSources(C_TEAM).source(made)
    assert source.table is not None
    assert [t is not None for t in source.table.tests] == [True, True, False]
    roles = {a.name: a.role for a in problem.arrays if a.role != "temp"}
    want = {name: Expected(x) for name, x in run_reference(recording, arrays, {}).items()}
    alone = Source(source.file_text, source.entry, source.arguments, source.n_threads)
    endless = replace(source, table=replace(source.table, tests=(None,) * 3), text="endless")
    with Worker(cpu) as worker:
        worker.prepare(InputSets(roles, (InputSet(arrays, {}, want),)))
        for one in (source, alone):
            found = worker.evaluate(cpu.builder.build(one), QUICK)
            assert isinstance(found, Measurement), found
        found = worker.evaluate(cpu.builder.build(endless), QUICK)
        assert isinstance(found, Failure)
        assert found.kind == "wrong"


def test_every_read_sees_the_value_that_it_should():
    recording, _ = recorded(twice, np.int32, n=4)
    root = root_of(recording)
    made = checking.random_candidate(root, np.random.default_rng(1))
    assert isinstance(made, Candidate)
    assert illegal(made) == ""


def test_the_bound_counts_steps_that_surely_run():
    ended, _ = recorded(relaxed, np.int32)
    root = root_of(ended)
    assert set(Bounder(root.space).tables.runs) == {1.0}
