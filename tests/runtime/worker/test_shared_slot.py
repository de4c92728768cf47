"""Stores to what inactive cells of sparse fields share: seen where the value is zero, too, and named by pool and field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.text.source import Source
from kernelscape.kernels.frontend.recorder import Recording, record_program
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.api.artifact import Artifact
from kernelscape.runtime.api.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.worker.inputs import Arguments, make_input_sets
from kernelscape.runtime.worker.worker import Worker
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking, gpu_checking

QUICK = Protocol(sample_ns=2e4, min_samples=3, max_samples=5, budget_ns=5e6)


@pytest.fixture(scope="module")
def sequence() -> tuple[Recording, dict[str, Any]]:
    """Leaves of 24 bytes, whose rows are no multiple of a page."""
    ks.init(arch=ks.cpu)
    x, v = ks.field(ks.f32), ks.Vector.field(9, ks.f32)
    top = ks.root.pointer(ks.i, 5)
    top.bitmasked(ks.i, 3).dense(ks.i, 2).place(x, v)

    @ks.kernel
    def fill() -> None:
        for i in range(9):
            x[i] += i + 1.0

    @ks.kernel
    def step() -> None:
        for i in x:
            for k in ks.static(range(9)):
                v[i][k] += x[i] + k

    with ks.interpret():
        fill()
    recording, arrays = record_program(lambda: (fill(), step()), ())
    before = {name: np.array(a) for name, a in arrays.items()}
    ks.reset()
    return recording, before


@pytest.fixture(scope="module", params=["cpu", "emulator"])
def prepared(
    request: pytest.FixtureRequest,
    sequence: tuple[Recording, dict[str, Any]],
    tmp_path_factory: Any,
) -> Iterator[tuple[Any, Worker, Source, dict[str, str]]]:
    recording, before = sequence
    folder = tmp_path_factory.mktemp("built")
    device = open_device(request.param, DeviceOptions(build_folder=folder))
    problem = normalise(recording)
    on_gpu = request.param == "emulator"
    target = gpu_checking.target() if on_gpu else checking.target(1, 32)
    root = build_space(problem, target).root()
    assert isinstance(root, Candidate)
    candidate = checking.random_candidate(root, np.random.default_rng(1))
    assert isinstance(candidate, Candidate)
    source = (gpu_checking if on_gpu else checking).source_of(candidate)
    rng = np.random.default_rng(0)
    with Worker(device) as worker:
        worker.prepare(make_input_sets(recording, problem, Arguments(before, {}), rng, n_sets=2))
        yield device, worker, source, dict(recording.trees[0].arrays)


def planted(source: Source, array: str, element: int, unless: range = range(0)) -> Source:
    """The text with a store of zero, by the first thread of the first launch, where all of some elements are zero before."""
    dtype = next(a.dtype for a in source.arguments if a.name == array)
    c = {"float32": "float", "uint64": "unsigned long"}[dtype]
    pattern, place = rf"\(.*\*\s*(__restrict__ )?{array}\b.*{{\n", array
    if not source.launches:
        pattern = rf"void {source.entry}\(void \*\*(\w+)\) {{\n"
    head = re.search(pattern, source.text)
    assert head is not None
    if not source.launches:
        place = f"{head[1]}[{[a.name for a in source.arguments].index(array)}]"
    who = "threadIdx.x + blockIdx.x == 0" if source.launches else "1"
    store = (
        f"    if ({who}) {{ volatile {c} *at = (volatile {c} *){place}; int n = 0;\n"
        f"    for (int i = {unless.start}; i < {unless.stop}; i++) n += at[i] != 0;\n"
        f"    if (n == 0) at[{element}] = 0; }}\n"
    )
    text = source.text[: head.end()] + store + source.text[head.end() :]
    return replace(source, text=text)


def test_what_is_right_is_measured(prepared: Any) -> None:
    device, worker, source, _ = prepared
    built = device.builder.build(source)
    assert isinstance(built, Artifact), built
    assert isinstance(worker.evaluate(built, QUICK), Measurement)


@pytest.mark.parametrize(("key", "row"), [("field0", 0), ("field1", 7), ("mask1", 0)])
def test_a_store_of_zero_is_seen_and_named(prepared: Any, key: str, row: int) -> None:
    device, worker, source, arrays = prepared
    name = arrays[key]
    shape = next(a.shape for a in source.arguments if a.name == name)
    built = device.builder.build(planted(source, name, row * shape[-1]))
    assert isinstance(built, Artifact), built
    outcome = worker.evaluate(built, QUICK)
    assert isinstance(outcome, Failure)
    assert name in outcome.advice and "pointer 5 (node 0 of" in outcome.advice, outcome
    assert "not active were written" in outcome.advice or "read-only" in outcome.advice, outcome


def test_it_is_seen_where_only_the_timed_set_leads_to_it(prepared: Any) -> None:
    """There v is zero in the active cells, elsewhere it is not."""
    device, worker, source, arrays = prepared
    built = device.builder.build(planted(source, arrays["field1"], 0, range(6, 15)))
    assert isinstance(built, Artifact), built
    outcome = worker.evaluate(built, QUICK)
    assert isinstance(outcome, Failure) and arrays["field1"] in outcome.advice, outcome


def test_what_a_row_ends_with_may_be_written(prepared: Any) -> None:
    """It lies on a page with what the next row begins with."""
    device, worker, source, arrays = prepared
    name = arrays["field1"]
    shape = next(a.shape for a in source.arguments if a.name == name)
    built = device.builder.build(planted(source, name, 2 * shape[-1] - 2))
    assert isinstance(built, Artifact), built
    assert isinstance(worker.evaluate(built, QUICK), Measurement)


def test_a_tree_that_fills_up_is_timed_by_as_many_calls_as_it_has_room_for(tmp_path: Any) -> None:
    ks.init(arch=ks.cpu)
    x = ks.field(ks.i32)
    items = ks.root.pointer(ks.i, 2).dynamic(ks.j, 40, chunk_size=8)
    items.place(x)

    @ks.kernel
    def collect() -> None:
        for i in range(6):
            ks.append(items, 1, i)

    recording, arrays = record_program(collect, ())
    given = Arguments({name: np.array(a) for name, a in arrays.items()}, {})
    ks.reset()
    problem = normalise(recording)
    device = open_device("cpu", DeviceOptions(build_folder=tmp_path))
    candidate = None
    while not isinstance(candidate, Candidate):
        root = build_space(problem, checking.target(1, 32)).root()
        candidate = checking.random_candidate(root, np.random.default_rng(1))
    built = device.builder.build(checking.source_of(candidate))
    assert isinstance(built, Artifact), built
    with Worker(device) as worker:
        rng = np.random.default_rng(0)
        worker.prepare(make_input_sets(recording, problem, given, rng, n_sets=1))
        found = worker.evaluate(built, QUICK)
    assert isinstance(found, Measurement) and found.n_calls <= 5  # and one before, of 6 of 40 cells
