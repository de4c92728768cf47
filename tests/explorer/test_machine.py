"""The machine is not always as it was calibrated: bounds give way, and what was learned is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kernelscape.explorer.machine import (
    believed_now,
    bound_now,
    is_far_below,
    look_at,
    lower_to,
    lower_to_earlier,
)
from kernelscape.runtime.api.calibration import Calibration
from kernelscape.runtime.cpu.device import CpuDevice
from kernelscape.runtime.cpu.probe import guess_target, load_own_calibration, load_target
from kernelscape.runtime.device import DeviceOptions
from kernelscape.runtime.fake.device import FakeDevice, FakeWorker
from kernelscape.runtime.host import read_machine
from kernelscape.runtime.measure.calibration import SCHEMA, store_calibration, stream_name
from kernelscape.runtime.records.record import EvaluationRecord
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.raising import raised
from kernelscape.search.incumbent import BoundScale
from kernelscape.space.candidate import Candidate
from kernelscape.space.targets.target import StreamCurve
from kernelscape.testing.machines import library_space, root_of, round_target

TARGET = replace(
    guess_target(),
    memory_read_bytes_per_ns=40.0,
    memory_write_bytes_per_ns=30.0,
    memory_mixed_bytes_per_ns=60.0,
    launch_ns=1200.0,
    barrier_ns=400.0,
)
USUAL = {"memory_read": 35.0, "memory_write": 20.0, "launch_ns": 1300.0, "barrier_ns": 420.0}


class Probed(FakeWorker):
    """A worker on a machine in a state of ours."""

    def __init__(self, samples: dict[str, list[float]]) -> None:
        super().__init__(FakeDevice())
        self._samples = samples

    def probe_state(self) -> dict[str, list[float]]:
        return self._samples


class Reading(FakeWorker):
    """A worker on a machine that reads so many bytes a nanosecond."""

    def __init__(self, rate: float) -> None:
        super().__init__(FakeDevice())
        self._rate = rate

    def probe(self) -> float:
        return self._rate


@pytest.mark.parametrize(
    ("now", "factor"),
    [
        (USUAL, 1.0),
        (USUAL | {"memory_read": 50.0}, 0.8),
        (USUAL | {"memory_write_nt": 40.0}, 0.75),
        (USUAL | {"memory_copy": 75.0}, 0.8),
        (USUAL | {"launch_ns": 480.0}, 0.4),
        (USUAL | {"barrier_ns": 200.0}, 0.5),
        (USUAL | {"memory_read": 50.0, "launch_ns": 480.0}, 0.4),
        ({}, 1.0),
    ],
)
def test_bounds_give_way_to_the_state_of_the_machine(now, factor) -> None:
    scale = BoundScale()
    lower_to(scale, TARGET, now)
    assert scale.factor == pytest.approx(factor)
    lower_to(scale, TARGET, USUAL)
    assert scale.factor == pytest.approx(factor)


def test_bounds_give_way_to_a_second_last_cache() -> None:
    """Twice the room shows where arrays are read again that did not fit before."""
    curve = StreamCurve(
        kind="read",
        cores=2,
        read_bytes=(1 << 20, 64 << 20, 256 << 20),
        written_bytes=(0, 0, 0),
        bytes_per_ns=(200.0, 50.0, 40.0),
    )
    target = replace(TARGET, cores=2, streams=(curve,), memory_mixed_bytes_per_ns=40.0)
    scale = BoundScale()
    lower_to(scale, target, {stream_name("read", 2, 64 << 20): 50.0})
    assert scale.factor == pytest.approx(1.0)
    lower_to(scale, target, {stream_name("read", 2, 64 << 20): 100.0})
    assert scale.factor == pytest.approx(0.5)


def test_the_bound_of_the_machine_as_it_is_now() -> None:
    root = root_of(library_space("vadd", round_target(), n=2**26))
    proved = Bounder(root.space).ns(root)
    now = bound_now(root, {"read": 20.0, "write_nt": 20.0, "triad_nt": 24.0})
    assert now == pytest.approx(4 * 2**26 * 4 / 24.0, rel=0.3)
    assert now > proved
    assert bound_now(root, {}) is None


def test_latencies_that_a_session_meets_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store_calibration(Calibration(SCHEMA, read_machine().key, TARGET, {}, 2))
    samples = {name: [0.9 * value, value] for name, value in USUAL.items()}
    samples |= {"launch_ns": [500.0, 480.0, 510.0], "memory_read": [45.0, 50.0]}
    now = look_at(CpuDevice(DeviceOptions()), Probed(samples))
    assert now == {"memory_read": 50, "memory_write": 20, "launch_ns": 480, "barrier_ns": 378}
    # Memory is not: a look at it is a little too fast.
    assert load_target() == replace(TARGET, launch_ns=480.0, barrier_ns=378.0)
    look_at(CpuDevice(DeviceOptions()), Probed({"launch_ns": [700.0], "barrier_ns": [700.0]}))
    assert load_target() == replace(TARGET, launch_ns=480.0, barrier_ns=378.0)


def test_a_machine_without_calibration_gets_none_from_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    look_at(CpuDevice(DeviceOptions()), Probed({"launch_ns": [1.0], "barrier_ns": [1.0]}))
    assert load_target() is None
    assert look_at(FakeDevice(), Probed({})) == {}


def test_a_guess_is_looked_at_where_the_machine_may_come_near_it() -> None:
    guess = replace(guess_target(), cores=2)
    slow, fast = (
        Reading(guess.memory_read_bytes_per_ns / 5),
        Reading(guess.memory_read_bytes_per_ns / 3),
    )
    assert is_far_below(guess, slow)
    assert not is_far_below(guess, fast)
    assert not is_far_below(replace(guess, cores=1), slow)
    assert not is_far_below(replace(guess, calibrated=True), slow)


@pytest.mark.parametrize(
    ("name", "sizes", "share", "is_raised"),
    [
        ("vadd", {"n": 1 << 26}, 0.9, True),
        ("vadd", {"n": 1 << 20}, 0.6, True),
        ("axpydot", {"n": 4096}, 0.95, True),
        ("matmul", {"m": 512, "n": 512, "k": 512}, 0.9, True),
        ("vadd", {"n": 1 << 26}, 0.3, False),  # no rate is so wrong: the bound is
    ],
)
def test_a_time_below_its_bound_raises_rates_for_good(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    sizes: dict[str, int],
    share: float,
    is_raised: bool,
) -> None:
    """Kind: an alarm that the next session raises again, with the same rates."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    target = round_target(loads_per_ns=20.0, calibrated=True)
    store_calibration(Calibration(SCHEMA, read_machine().key, target, {}, 1))
    made = root_of(library_space(name, target, **sizes)).random_completion(np.random.default_rng(3))
    assert isinstance(made, Candidate)
    time_ns = share * Bounder(made.space).ns(made)
    CpuDevice(DeviceOptions()).machine.stored_facts().learn_alarm(raised(made, time_ns))
    found = load_own_calibration()
    assert found is not None and found.alarms == 1
    assert (found.target != target) == is_raised
    again = Bounder(replace(made.space, target=found.target)).ns(made)
    assert (0.9 * time_ns < again <= time_ns) == is_raised


def record(time_ns: float | None, bound_ns: float, key: str = "a") -> EvaluationRecord:
    status = "crash" if time_ns is None else "ok"
    return EvaluationRecord(
        at_s=1.0, decisions=(), source_key=key, status=status, time_ns=time_ns, bound_ns=bound_ns
    )


@pytest.mark.parametrize(
    ("records", "doubted", "factor"),
    [
        ([], (), 1.0),
        ([record(150.0, 100.0)], (), 1.0),
        # The session before had lowered bounds to 0.8 in the end.
        ([record(150.0, 100.0), record(90.0, 80.0)], (), 0.8),
        ([record(None, 80.0), record(90.0, 0.0)], (), 0.8),
        # What was faster than its bound counts for itself: bounds count half of what it shows.
        ([record(90.0, 100.0, "wrong"), record(150.0, 100.0)], ("wrong",), 0.45),
        ([record(190.0, 100.0, "wrong"), record(150.0, 100.0)], ("wrong",), 0.5),
    ],
)
def test_bounds_give_way_to_what_earlier_sessions_met(records, doubted, factor) -> None:
    scale = BoundScale()
    lower_to_earlier(scale, records, doubted, lambda r: 100.0)
    assert scale.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    ("bound_now_ns", "believed"), [(None, None), (80.0, 80.0), (104.0, 104.0), (106.0, None)]
)
def test_a_bound_of_now_that_the_best_has_beaten_by_more_than_its_spread_is_none(
    bound_now_ns, believed
):
    assert believed_now(bound_now_ns, best_ns=100.0, spread=0.05) == believed
