"""Libraries that the search is compared with compute the sequences, and the table keeps what it measured."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from dataclasses import replace

import numba
import numpy as np
import pytest
from kernelscape.codegen.lower import lower, print_source
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.experiments import libraries, peers
from kernelscape.experiments.libraries.formulas import FORMULAS, places
from kernelscape.experiments.measuring import built
from kernelscape.experiments.peers import PeerOptions, summary
from kernelscape.experiments.peers_bars import (
    fusion_gain,
    missed_bars,
    ours_of,
    problems,
    share_of_unstrided,
)
from kernelscape.experiments.rows import Job, parse_jobs
from kernelscape.explorer.entry import library_workload
from kernelscape.kernels.library import load
from kernelscape.runtime.api.outcome import FINAL
from kernelscape.runtime.cpu.compiler import FEWER_PASSES
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.records.replay import dialect_of
from kernelscape.runtime.worker.inputs import make_input_sets
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from kernelscape.testing.calling import in_child
from numba.core import config as numba_config

MODULES = {
    "numpy_out": "numpy",
    "numba_fused": "numba",
    "torch_compiled": "torch",
    "jax_jit": "jax",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the libraries' own are not ours
@pytest.mark.parametrize("module", MODULES)
def test_a_library_computes_every_sequence(module):
    if importlib.util.find_spec(MODULES[module]) is None:
        pytest.skip(f"{MODULES[module]} is not installed")
    # A child that is forked from a process with a team of OpenMP threads hangs when it makes its own: the team stays in this one.
    assert in_child(lambda: library_says(module), 250) == ""


def library_says(module):
    """Raises where a library is wrong."""
    os.environ["NUMBA_OPT"] = "0"  # what it computes is looked at, not how fast
    numba_config.reload_config()
    if (
        module == "numba_fused"
    ):  # loops in parallel take as long again: the row below and those of threads have them
        compiled = numba.njit
        numba.njit = lambda *plain, **given: compiled(*plain, **given | {"parallel": False})
        sys.modules.pop(f"{libraries.__name__}.{module}", None)
    peers = importlib.import_module(f"{libraries.__name__}.{module}").peers
    for name in FORMULAS:
        entry = load(name)
        sizes = {k: 9 + 8 * i for i, k in enumerate(entry.sizes)}
        for dtype in types_for(name, module):
            args = entry.make_arguments(sizes, dtype, np.random.default_rng(1))
            want = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
            entry.reference(*want)
            got = getattr(peers, name)(*args)
            for k, result in zip(places(name)[1], got, strict=True):
                assert np.asarray(result).dtype == dtype, (name, dtype)
                np.testing.assert_allclose(result, want[k], rtol=1e-3, atol=1e-3, err_msg=name)
    return ""


def types_for(name, module):
    """Both; of numba, which compiles each program for seconds, one after the other."""
    types = (np.float32, np.float64)
    return types[sorted(FORMULAS).index(name) % 2 :][:1] if module == "numba_fused" else types


def row(name, level, ours, *, sizes=None, dtype="f32", rounds_ns=None, **others):
    """A row as far as the bars look at it; ours is the time over the expert's."""
    return {
        "status": "ok",
        "name": name,
        "sizes": sizes or {"n": 1000},
        "dtype": dtype,
        "level": level,
        "search": {"compiler": "gcc"},
        "ratio": {"ours gcc": ours, "expert gcc": 1.0, **others},
        "rounds_ns": rounds_ns or {},
    }


@pytest.mark.parametrize(
    ("name", "level", "met", "missed"),
    [
        ("axpydot", "memory", 1.03, 1.04),
        ("axpydot", "L2", 1.08, 1.10),
        ("gemver", "memory", 1.05, 1.06),
        ("gemver", "L3", 1.11, 1.12),
        ("matmul", "L2", 1.05, 1.06),
    ],
)
def test_the_share_of_the_expert_depends_on_the_work_and_on_where_it_is(name, level, met, missed):
    assert problems(row(name, level, met)) == []
    assert "of the expert" in problems(row(name, level, missed))[0]


def test_what_a_compiler_without_expert_programs_built_is_compared_as_others_build_it():
    found = row("axpydot", "memory", 1.03) | {"search": {"compiler": "clang"}}
    assert ours_of(found) == "ours gcc"
    assert problems(found) == []


def test_no_library_may_be_faster_and_numpy_a_little_in_products():
    assert problems(row("sgemv", "memory", 1.0, numpy=1.1, jax=3.0)) == []
    assert "slower than numba" in problems(row("sgemv", "memory", 1.0, numba=0.9))[0]
    large = {"m": 1024, "n": 1024, "k": 1024}
    assert problems(row("matmul", "L3", 1.0, sizes=large, numpy=0.91)) == []
    assert "slower than jax" in problems(row("matmul", "L3", 1.0, sizes=large, jax=0.9))[0]
    assert "of NumPy" in problems(row("matmul", "L3", 1.0, sizes=large, numpy_out=0.89))[0]
    small = {"m": 256, "n": 256, "k": 32}
    assert "of NumPy" in problems(row("matmul", "L2", 1.0, sizes=small, numpy=0.99))[0]


def test_a_strided_product_is_compared_with_the_unstrided_one():
    """Round by round: the machine of the third one was twice as slow."""
    rounds = {"ours gcc": [100.0, 100.0, 200.0], "unstrided": [91.0, 91.0, 182.0]}
    met = row("matmul_strided", "L2", 1.0, rounds_ns=rounds, unstrided=0.91)
    assert problems(met) == []
    assert share_of_unstrided(met) == pytest.approx((0.91, 0.0))
    rounds = rounds | {"unstrided": [89.0, 89.0, 200.0]}
    missed = row("matmul_strided", "L2", 1.0, rounds_ns=rounds, unstrided=0.91)
    assert problems(missed) == ["0.89 of the unstrided product, not 0.90"]
    assert "was not timed" in problems(row("matmul_strided", "L2", 1.0))[0]
    assert share_of_unstrided(row("matmul", "L2", 1.0)) is None


def test_fusion_must_gain_over_the_best_unfused_calls():
    rows = [row("axpydot", "memory", 1.0, numpy=4.0, numpy_out=3.0)]
    rows += [row("atax", "memory", 1.0, numpy=1.2), row("vadd", "L2", 1.0, numpy=9.0)]
    assert fusion_gain(rows) == pytest.approx(3.6**0.5)
    assert any("fusion gains 1.90" in line for line in missed_bars(rows))
    assert fusion_gain([]) is None


def test_ratios_are_formed_inside_each_round():
    times = {"expert gcc": [10.0, 20.0, 40.0], "expert clang": [90.0] * 3, "ours gcc": [11.0, 22.0, 44.0]}  # fmt: skip
    made = summary(times)
    assert made["expert"] == "expert gcc"
    assert made["ratio"]["ours gcc"] == pytest.approx(1.1)
    assert made["ratio_spread"]["ours gcc"] == pytest.approx(0.0)


def test_every_row_can_be_asked_for_by_its_name():
    known = {"known": peers.names(), "dtypes": peers.DTYPES}
    assert all(parse_jobs(job.key, **known) == [job] for job in peers.all_jobs())
    assert Job("sgemv", {"m": 1009, "n": 4093}) in parse_jobs("sgemv", peers.all_jobs(), **known)


@pytest.mark.parametrize(
    ("row", "said"), [("heat", "no sequence 'heat'"), ("axpy:n=4:f16", "'f16' is not f32 or f64")]
)
def test_a_row_that_cannot_be_compared_is_a_usage_error(row, said, capfd):
    with pytest.raises(SystemExit) as caught:
        peers.main(["--only", row])
    assert caught.value.code == 2
    assert said in capfd.readouterr().err


@pytest.mark.compiler
def test_no_pass_of_the_compiler_is_spared_for_the_expert(monkeypatch):
    device = open_device("cpu", DeviceOptions(compiler="gcc"))
    workload = library_workload(load("axpy"), {"n": 1009}, "f64", 1)
    default = first_candidates(build_space(workload.problem, device.machine.facts()))[0][1]
    ours = print_source(lower(plan_of(default)), dialect_of(device))
    input_sets = make_input_sets(
        workload.recording, workload.problem, workload.arguments, np.random.default_rng(1), 2
    )
    spared = {}

    def noted(by, source):
        spared[source.entry] = set(by.builder.compiler.flags) & set(FEWER_PASSES)
        return built(by, source)

    monkeypatch.setattr(peers, "built", noted)
    peers.choose(device, workload, input_sets, ours, replace(FINAL, budget_ns=1e6))
    assert spared == {ours.entry: set(FEWER_PASSES), "axpy": set()}


@pytest.mark.compiler
def test_the_best_may_be_built_by_a_compiler_that_builds_no_expert_program():
    gcc = open_device("cpu", DeviceOptions(compiler="gcc"))
    assert peers.built_by(gcc.reporter.version(), {"clang": gcc}) == ("clang", gcc)
    key, device = peers.built_by(gcc.reporter.version(), {})
    assert (key, device.builder.compiler.version) == ("gcc", gcc.builder.compiler.version)
    with pytest.raises(RuntimeError, match="'tcc 1', which is not here"):
        peers.built_by("tcc 1", {"gcc": gcc})


@pytest.mark.compiler
@pytest.mark.slow
def test_a_row_is_made_kept_and_written(tmp_path, machine, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")  # taken away from what is timed
    options = PeerOptions(rounds=1, budget_ms=2.0, calibrate=False, evaluations=2)
    wanted = [Job("waxpby", {"n": 1009}, "f64"), Job("waxpby", {"nosuch": 1})]
    first = peers.QUESTION.table(wanted, options, folder=tmp_path)
    assert [r["status"] for r in first] == ["ok", "failed"], first
    assert {len(ns) for ns in first[0]["rounds_ns"].values()} == {1}
    assert {"ours gcc", "expert gcc", "numpy", "numpy_out", "numba"} <= first[0]["ratio"].keys()
    assert peers.QUESTION.table(wanted[:1], options, folder=tmp_path)[0] == first[0]
    text = (tmp_path / "peers.md").read_text()
    assert "| waxpby 1009 | f64 |" in text
    assert "failed: " in text
