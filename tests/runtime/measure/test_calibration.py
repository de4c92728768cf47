"""Machine facts: merging, storing, guessing, and one real calibration."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from itertools import count, pairwise
from math import inf
from statistics import median

import msgspec
import pytest
from kernelscape.runtime.api.calibration import Calibration
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.cpu import probe as probing
from kernelscape.runtime.cpu import streams
from kernelscape.runtime.cpu.builder import CpuBuilder
from kernelscape.runtime.cpu.compiler import Library, build_library, find_compiler
from kernelscape.runtime.cpu.probe import (
    guess_target,
    load_target,
    probed_bytes,
    target_from_samples,
)
from kernelscape.runtime.cpu.streams import footprints, open_probe
from kernelscape.runtime.host import read_machine
from kernelscape.runtime.measure.calibration import (
    OTHER_WORK,
    SCHEMA,
    fresh_calibration,
    keep_factors,
    keep_latencies,
    load_calibration,
    merge,
    store_calibration,
)
from kernelscape.runtime.worker.worker import Worker
from kernelscape.space.targets.target import FunctionRate, StreamCurve


def calibration(**changes):
    return Calibration(
        SCHEMA, read_machine().key, replace(guess_target(), **changes), {"a": 0.1}, 1
    )


def test_merge_keeps_the_optimistic_end():
    old = calibration(memory_read_bytes_per_ns=100.0, f32_flops_per_ns=5.0, launch_ns=300.0)
    new = calibration(memory_read_bytes_per_ns=60.0, f32_flops_per_ns=6.0, launch_ns=400.0)
    merged = merge(old, new)
    t = merged.target
    assert (t.memory_read_bytes_per_ns, t.f32_flops_per_ns, t.launch_ns) == (100.0, 6.0, 300.0)
    assert merged.n_calibrations == 2


def test_merge_keeps_the_highest_rate_of_each_function():
    def rate(op, vector, scalar):
        return FunctionRate(op=op, dtype="f32", vector_per_ns=vector, scalar_per_ns=scalar)

    old = calibration(functions=(rate("exp", 2.0, 1.0), rate("sin", 1.0, 0.5)))
    new = calibration(functions=(rate("exp", 1.5, 1.2), rate("log", 3.0, 2.0)))
    found = {x.op: (x.vector_per_ns, x.scalar_per_ns) for x in merge(old, new).target.functions}
    assert found == {"exp": (2.0, 1.2), "sin": (1.0, 0.5), "log": (3.0, 2.0)}


def test_only_latencies_that_are_less_are_kept(tmp_path):
    key = read_machine().key
    keep_latencies(key, {"launch_ns": 1.0}, tmp_path)
    assert not list(tmp_path.iterdir())
    store_calibration(calibration(launch_ns=123.0, barrier_ns=40.0), tmp_path)
    keep_latencies(key, {"launch_ns": 100.0, "barrier_ns": 50.0}, tmp_path)
    found = load_target(tmp_path)
    assert (found.launch_ns, found.barrier_ns) == (100.0, 40.0)


@pytest.mark.parametrize(
    ("name", "found", "is_sure"),
    [
        ("loads", [9.0, 5.0, 5.0, 9.1, 5.0, 5.0], True),
        ("loads", [9.0, 9.1, 5.0, 5.0, 5.0, 5.0], False),  # in one round only
        ("loads", [9.0, 8.0, 8.0, 8.0, 8.5, 8.0], False),
        ("launch_ns", [9.0, 5.0, 9.0, 9.0, 5.1, 9.0], True),
        ("launch_ns", [9.0, 5.0, 9.0, 9.0, 9.0, 9.0], False),
        ("vector_bytes", [64.0], True),
    ],
)
def test_a_best_value_that_was_seen_once_is_not_sure(name, found, is_sure):
    """Kind: rates of a calibration beside other work, which bounds then take for the best of the machine."""
    fresh = fresh_calibration("m", guess_target(), {name: found, OTHER_WORK: [0.3, 0.1]})
    assert (fresh.unsure, fresh.other_work) == (() if is_sure else (name,), 0.1)
    sure = fresh_calibration("m", guess_target(), {name: [1.0] * 3})
    assert merge(fresh, sure).unsure == merge(sure, fresh).unsure == ()
    assert merge(fresh, fresh).unsure == fresh.unsure


def test_levels_merge_by_name():
    first = guess_target().levels
    if not first:
        pytest.skip("the system tells no cache sizes")
    slower = tuple(replace(x, read_bytes_per_ns=1.0) for x in first)
    merged = merge(calibration(levels=slower), calibration(levels=first))
    assert merged.target.levels == first


def test_curves_merge_point_by_point():
    def target(sizes, rates):
        none = tuple(0 for _ in sizes)
        curve = StreamCurve(
            kind="read", cores=2, read_bytes=sizes, written_bytes=none, bytes_per_ns=rates
        )
        return calibration(streams=(curve,))

    merged = merge(target((100, 200), (9.0, 4.0)), target((200, 400), (5.0, 3.0)))
    [curve] = merged.target.streams
    assert (curve.read_bytes, curve.bytes_per_ns) == ((100, 200, 400), (9.0, 5.0, 3.0))


def test_a_calibration_of_an_older_version_is_read(tmp_path):
    """Bounds hold without curves, and credit the caches; of atomic updates nothing is known until the machine is asked again."""
    store_calibration(calibration(launch_ns=123.0), tmp_path)
    [path] = tmp_path.iterdir()
    content = json.loads(path.read_text())
    for name in (
        "streams",
        "functions",
        "atomic_f32_per_ns",
        "atomic_f64_per_ns",
        "atomic_i32_per_ns",
    ):
        del content["target"][name]
    names = ("vector_loads", "stores", "vector_stores", "scalar_f32_flops", "scalar_f64_flops")
    names += ("f32_mixed_flops", "f64_mixed_flops", "gathers")
    for name in names:
        del content["target"][f"{name}_per_ns"]
    for name in ("factors", "alarms", "unsure", "other_work"):
        del content[name]
    path.write_text(json.dumps(content))
    found = load_target(tmp_path)
    unknown = {f"{name}_per_ns": 0.0 for name in names}
    assert found == replace(guess_target(), launch_ns=123.0, **unknown)
    again = merge(calibration(), calibration(atomic_f32_per_ns=0.25))
    assert (found.atomic_f32_per_ns, again.target.atomic_f32_per_ns) == (0.0, 0.25)


def test_factors_of_the_prediction_stand_with_the_calibration(tmp_path):
    """Later sessions move them half way, and a new calibration keeps them."""
    keep_factors("m", (4.0, 1.0), tmp_path)
    assert not list(tmp_path.iterdir())  # without a calibration nothing is stored
    stored = calibration()
    store_calibration(stored, tmp_path)
    keep_factors(stored.machine, (4.0, 1.0), tmp_path)
    keep_factors(stored.machine, (1.0, 1.0), tmp_path)
    found = load_calibration(stored.machine, tmp_path)
    assert found is not None and found.factors == (2.0, 1.0)
    assert merge(found, calibration()).factors == (2.0, 1.0)


@pytest.mark.parametrize("factor", ["0.0", "-2.0", "1e300", "1e999", "NaN", "null"])
def test_a_calibration_with_impossible_factors_is_not_read(tmp_path, factor):
    """Kind: numbers of a file whose logarithm a search takes."""
    stored = calibration()
    store_calibration(msgspec.structs.replace(stored, factors=(3.515625,)), tmp_path)
    [path] = tmp_path.iterdir()
    path.write_text(path.read_text().replace("3.515625", factor))
    assert load_calibration(stored.machine, tmp_path) is None


def test_footprints_are_dense_where_the_last_cache_ends():
    sizes = footprints(2 << 20, 32 << 20, 1 << 30)
    assert sizes[0] == 1 << 20
    assert 100 << 20 < sizes[-1] <= 192 << 20
    steps = {b / a for a, b in pairwise(sizes) if 24 << 20 < a < 120 << 20}
    assert max(steps) < 1.2


def test_a_disturbed_look_at_memory_counts_only_where_there_is_no_other(cpu, monkeypatch):
    waited = count(0, 10**9)
    assert cpu.runner.harness is not None  # the probe needs the team of threads that it brings
    probe = streams.NowProbe(cpu.machine.probe_libraries()[0], 1, 2e6, 0.0)
    try:
        monkeypatch.setattr(streams, "waited_ns", lambda: next(waited))
        for _ in range(6):  # every second one is of reads
            probe.step()
        disturbed = probe.samples["read"]
        monkeypatch.setattr(streams, "waited_ns", lambda: 0)
        for _ in range(4):
            probe.step()
        assert (len(disturbed), len(probe.samples["read"])) == (1, 2)
    finally:
        probe.close()


def test_stored_calibration_is_loaded_and_a_torn_one_is_not(tmp_path):
    assert load_target(tmp_path) is None
    store_calibration(calibration(launch_ns=123.0), tmp_path)
    found = load_target(tmp_path)
    assert found is not None
    assert found.launch_ns == 123.0
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert load_target(tmp_path) is None


@pytest.mark.parametrize(
    ("cache_mib", "quick_mib", "whole_mib"), [(32, 96, 256), (260, 520, 520), (1024, 2048, 2048)]
)
def test_a_look_at_memory_goes_through_more_than_the_caches_and_not_for_seconds(
    cache_mib, quick_mib, whole_mib
):
    assert probed_bytes(cache_mib << 20, False) == quick_mib << 20
    assert probed_bytes(cache_mib << 20, True) == whole_mib << 20


def test_the_device_builds_what_measures_functions_and_does_without_where_it_cannot(
    cpu, monkeypatch
):
    """The kind: a child knows no options, and would build with another compiler than programs have."""
    probe, functions = cpu.machine.probe_libraries(every=True)
    assert (probe,) == cpu.machine.probe_libraries()
    assert functions.is_file()
    build = CpuBuilder.build_own_text

    def refusing(builder, name, text):
        if name == "functions.c":
            raise DeviceError("no compiler")
        return build(builder, name, text)

    monkeypatch.setattr(CpuBuilder, "build_own_text", refusing)
    assert cpu.machine.probe_libraries(every=True) == (probe,)
    monkeypatch.setattr(probing, "run_probe", lambda library, n_threads: {"launch_ns": [1.0]})
    assert cpu.machine.take_samples([probe], 1) == {"launch_ns": [1.0]}


def test_guess_is_faster_than_what_is_measured(cpu):
    worker = Worker(cpu)
    try:
        measured = target_from_samples(read_machine(), worker.calibrate())
        assert worker.probe() > 0
    finally:
        worker.close()
    guess = guess_target()
    assert not guess.calibrated
    assert measured.calibrated
    kinds = {(curve.kind, curve.cores) for curve in measured.streams}
    assert {("read", 1), ("triad", 1), ("read", measured.cores)} <= kinds or not measured.levels
    assert guess.memory_read_bytes_per_ns > measured.memory_read_bytes_per_ns
    assert guess.f32_flops_per_ns > measured.f32_flops_per_ns
    assert 0 < measured.scalar_f32_flops_per_ns < measured.f32_flops_per_ns
    assert guess.mixed_flops(4) > measured.mixed_flops(4) >= measured.f32_flops_per_ns
    assert guess.scalar_f32_flops_per_ns > measured.scalar_f32_flops_per_ns
    rates = {(x.op, x.dtype): x for x in measured.functions}
    assert {("exp", "f32"), ("sin", "f64"), ("pow", "f32"), ("gamma", "f64")} <= rates.keys()
    assert all(0 < x.scalar_per_ns <= x.vector_per_ns for x in measured.functions)
    assert rates["exp", "f32"].vector_per_ns > rates["exp", "f32"].scalar_per_ns
    assert guess.launch_ns < measured.launch_ns
    assert guess.call_ns < measured.call_ns
    pairs = zip(guess.levels, measured.levels, strict=True)
    assert all(g.read_bytes_per_ns > m.read_bytes_per_ns for g, m in pairs)


_AGAIN = """
#include <stdint.h>
#include <time.h>
double again(int64_t n) {
  static int32_t counter;
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int64_t i = 0; i < n; i++) __atomic_fetch_add(&counter, (int32_t)i, __ATOMIC_RELAXED);
  clock_gettime(CLOCK_MONOTONIC, &b);
  return (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec);
}
"""


def test_an_element_that_is_counted_again_and_again_takes_what_was_calibrated(cpu, tmp_path):
    """Some machines add to one element more quickly than to several: a histogram with one key would be below its bound."""
    built = build_library(find_compiler(), _AGAIN, (), tmp_path, 60.0)
    assert isinstance(built, Library), built
    again = ctypes.CDLL(str(built.path)).again
    again.restype, again.argtypes, n = ctypes.c_double, [ctypes.c_int64], 1_000
    assert cpu.runner.harness is not None  # the probe needs the team of threads that it brings
    probe = open_probe(cpu.machine.probe_libraries()[0])
    counted = probe.ks_atomic_i32
    counted.restype, counted.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_int64]
    ratio = inf  # of neighbours in time: a virtual machine's clock changes in between
    for _ in range(20):  # where other work is in the way, quiet rounds come late
        ratio = min(ratio, median(counted(1, n) / again(16 * n) for _ in range(200)))
        if ratio < 1.05:
            break
    assert 0 < ratio < 1.05


def test_the_probe_gathers_elements_in_every_way_that_code_has(cpu) -> None:
    """Kind: ways that count as none, as a time of -1 does. The quickest way takes some time."""
    assert cpu.runner.harness is not None
    gathered = open_probe(cpu.machine.probe_libraries()[0]).ks_peak_gathers
    gathered.restype, gathered.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_int64]
    assert gathered(1, 100) > 0


def test_a_look_shows_memory_launches_and_barriers(worker: Worker) -> None:
    found = worker.probe_state()
    assert {"memory_read", "memory_copy_nt", "launch_ns", "barrier_ns"} <= set(found)
    assert all(value > 0 for samples in found.values() for value in samples)
