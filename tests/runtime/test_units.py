"""Sequences in units: the libraries of components and the table of their calls compute what the sequence does, and take its time.

The kind: work that is repeated for all of a program where a part of it changed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from kernelscape.codegen.by_component import EvaluatedSources
from kernelscape.codegen.text.source import Source
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.api.artifact import Artifact
from kernelscape.runtime.api.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.building.queue import BuildQueue
from kernelscape.runtime.cpu import compiler
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.worker.input_sets import InputSet, InputSets
from kernelscape.runtime.worker.verify import Expected
from kernelscape.runtime.worker.worker import Worker
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix
from kernelscape.testing import checking
from kernelscape.testing.components import exchanged, scale, turn, two_candidates

pytestmark = [pytest.mark.compiler]
nd = types.ndarray()
N, STEPS = 67, 20
QUICK = Protocol(sample_ns=2e4, min_samples=3, max_samples=5, budget_ns=5e6, times_components=True)


@kernel
def add_turned(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] += 0.25 * x[x.shape[0] - 1 - i]


@kernel
def add_up(x: nd, s: nd):
    acc = 0.0
    for i in range(x.shape[0]):
        acc += x[i]
    s[0] = acc


def steps(w, x, s):
    """Two repeats that differ in names, with a temporary between them, and a sum with partial results behind."""
    t = ndarray(w.dtype, w.shape, name="t")
    for _ in range(STEPS):
        scale(w, w)
    turn(w, t)
    for _ in range(STEPS):
        scale(x, x)
        add_turned(t, x)
    add_up(x, s)


def computed(w, x):
    for _ in range(STEPS):
        w = 0.5 * w + 1.0
    for _ in range(STEPS):
        x = 0.5 * x + 1.0 + 0.25 * 0.25 * w
    return {"w": w, "x": x, "s": np.array([x.sum()])}


@pytest.fixture(scope="module")
def inputs() -> InputSets:
    rng = np.random.default_rng(7)
    w, x = (rng.uniform(-1, 1, N).astype(np.float32) for _ in range(2))
    want = computed(w.astype(np.float64), x.astype(np.float64))
    arrays = {"w": w, "x": x, "s": np.zeros(1, np.float32)}
    expected = {name: Expected(x) for name, x in want.items()}
    roles = {"w": "inout", "x": "inout", "s": "output"}
    return InputSets(roles, (InputSet(arrays, {}, expected),))


@pytest.fixture(scope="module")
def candidates(inputs: InputSets) -> tuple[Candidate, Candidate]:
    problem = normalise(record_sequence(steps, [*inputs.sets[0].arrays.values()], "steps"))
    assert {a.name: a.role for a in problem.arrays if a.role != "temp"} == inputs.roles
    root = build_space(problem, checking.target(2, 32)).root()
    assert isinstance(root, Candidate)
    return two_candidates(root)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that compilers are run on, while this is there."""
    run, found = compiler.run_compiler, list[str]()

    def noted(command, *rest):
        found.append(next(x for x in command if str(x).endswith(".c")))
        return run(command, *rest)

    monkeypatch.setattr(compiler, "run_compiler", noted)
    return found


def test_units_compute_the_sequence_and_are_timed(cpu, inputs, candidates) -> None:
    """Also where the same unit is called at two places, and over a temporary and partial results in the workspace."""
    sources = EvaluatedSources(C_TEAM)
    with Worker(cpu) as worker:
        worker.prepare(inputs)
        for candidate in candidates:
            source = sources.source(candidate)
            artifact = cpu.builder.build(source)
            assert isinstance(artifact, Artifact)
            found = worker.evaluate(artifact, QUICK)
            assert isinstance(found, Measurement), found
            assert len(found.component_ns) == len(found.component_spread) == len(source.components)
            assert all(x > 0 for x in found.component_ns)
        plain = worker.evaluate(artifact, Protocol(max_samples=3))
        assert isinstance(plain, Measurement) and plain.component_ns == ()


@kernel
def add_at_ends(edge: nd, w: nd, f: nd):
    for e in range(edge.shape[0]):
        f[edge[e, 0]] += w[e]
        f[edge[e, 1]] -= w[e]


def forces(edge, w, f, g, *x):
    """Two loops over a mesh, in one component, between others."""
    for a, b in pairwise(x[:7]):
        turn(a, b)
    add_at_ends(edge, w, f)
    add_at_ends(edge, w, g)
    for a, b in pairwise(x[6:]):
        turn(a, b)


@pytest.mark.parametrize("kept", ["GENERATE", "IF_CHANGED"])
def test_a_launch_of_a_unit_finds_the_colours_of_an_earlier_one(cpu, kept: str) -> None:
    rng = np.random.default_rng(3)
    edge, w = rng.integers(0, 40, (N, 2), np.int32), rng.integers(1, 9, N).astype(np.float32)
    f, g, *x = (np.arange(40, dtype=np.float32) for _ in range(15))
    arrays = {"edge": edge, "w": w, "f": f, "g": g, **{f"x{k}": x[k] for k in range(len(x))}}
    problem = normalise(record_sequence(forces, [*arrays.values()], "forces"))
    want = f.copy()
    np.add.at(want, edge[:, 0], w)
    np.subtract.at(want, edge[:, 1], w)
    turned = {f"x{k + 1}": 0.25 ** (k + 1) * f[:: (-1) ** (k + 1)] for k in range(len(x) - 1)}
    roles = {a.name: a.role for a in problem.arrays}
    expected = {"f": want, "g": want} | turned
    inputs = InputSet(arrays, {}, {name: Expected(x) for name, x in expected.items()})
    colours = (("colouring(add_at_ends0)", kept), ("colouring(add_at_ends1)", "REUSE"))
    fixed = (("scatter", "GREEDY"), ("fused(add_at_ends0,add_at_ends1)", "SEPARATE"), *colours)
    space = fix(build_space(problem, checking.target(2, 32)), fixed)
    made = checking.random_candidate(space.root(), rng)
    source = EvaluatedSources(C_TEAM).source(made)
    assert len(source.components) > 1
    with Worker(cpu) as worker:
        worker.prepare(InputSets(roles, (inputs,)))
        found = worker.evaluate(cpu.builder.build(source), QUICK)
        assert isinstance(found, Measurement), found


def test_the_file_of_a_source_compiles_alone(cpu, inputs, candidates) -> None:
    """With all units and their table in it, it computes what the libraries of the units do."""
    made = EvaluatedSources(C_TEAM).source(candidates[0])
    source = Source(made.file_text, made.entry, made.arguments, made.n_threads)
    with Worker(cpu) as worker:
        worker.prepare(inputs)
        found = worker.evaluate(cpu.builder.build(source), QUICK)
    assert isinstance(found, Measurement), found


def test_a_table_without_its_last_call_computes_something_else(cpu, inputs, candidates) -> None:
    source = EvaluatedSources(C_TEAM).source(candidates[0])
    assert source.table is not None
    calls = source.table.calls
    wrong = replace(source.table, calls=calls[:-1])
    with Worker(cpu) as worker:
        worker.prepare(inputs)
        built = cpu.builder.build(replace(source, table=wrong, text="fewer"))
        found = worker.evaluate(built, QUICK)
    assert isinstance(found, Failure) and found.kind == "wrong"


def test_a_changed_decision_compiles_its_unit_alone(tmp_path, candidates, compiled) -> None:
    """Counted, not timed: one run of a compiler, on the text of one component. A known combination needs none."""
    builder = open_device("cpu", DeviceOptions(build_folder=tmp_path / "build")).builder
    sources, queue = EvaluatedSources(C_TEAM), BuildQueue(builder, 2)
    first, other = candidates
    _ = builder.compiler
    before = sources.source(first)
    assert isinstance(queue.take([before])[0], Artifact)
    compiled.clear()
    after = sources.source(exchanged(first, other, 1))
    (new,) = {unit.key for unit in after.units} - {unit.key for unit in before.units}
    n_compiled = builder.units.n_compiled
    assert isinstance(queue.take([after])[0], Artifact)
    assert len(compiled) == 1 and builder.units.n_compiled == n_compiled + 1
    text = (tmp_path / "build" / f"{new}.c").read_text()
    assert text == next(unit.text for unit in after.units if unit.key == new)
    compiled.clear()
    again = queue.take([before, after])
    again += open_device(
        "cpu", DeviceOptions(build_folder=tmp_path / "build")
    ).builder.build_together([after])
    assert all(isinstance(x, Artifact) and x.build_ns == 0 for x in again)
    assert compiled == []


def test_a_torn_library_is_replaced(tmp_path, candidates) -> None:
    """Also under the names of its units, which other libraries have in common with it."""
    source = EvaluatedSources(C_TEAM).source(candidates[0])
    n_compiled = []
    for is_torn in (False, True, False):
        if is_torn:
            for library in tmp_path.glob("*.so"):
                library.write_bytes(b"")
        builder = open_device("cpu", DeviceOptions(build_folder=tmp_path)).builder
        assert isinstance(builder.build(source), Artifact)
        n_compiled.append(builder.units.n_compiled)
    assert n_compiled == [len(source.units), len(source.units), 0]


def test_a_unit_that_does_not_compile_fails_each_source_of_it(tmp_path, candidates) -> None:
    builder = open_device("cpu", DeviceOptions(build_folder=tmp_path)).builder
    good = EvaluatedSources(C_TEAM).source(candidates[0])
    units = list(good.units)
    units[1] = replace(units[1], text="#error no\n" + units[1].text)
    bad = replace(good, units=tuple(units), text="bad")
    queue = BuildQueue(builder, 2)
    for _ in range(2):
        failed, built = queue.take([bad, good])
        assert (
            isinstance(failed, Failure) and failed.kind == "compile" and "#error no" in failed.log
        )
        assert isinstance(built, Artifact)


def test_a_failure_that_passes_is_not_kept(tmp_path, candidates, monkeypatch) -> None:
    """Kind: a compiler that was ended once, and a unit that no candidate has ever again."""
    builder = open_device("cpu", DeviceOptions(build_folder=tmp_path)).builder
    source = EvaluatedSources(C_TEAM).source(candidates[0])
    queue = BuildQueue(builder, 1)
    with monkeypatch.context() as patched:
        ended = Failure("compile", "it was ended")
        patched.setattr(builder, "build_together", lambda sources: [ended for _ in sources])
        assert queue.take([source]) == [ended]
    assert isinstance(queue.take([source])[0], Artifact)
