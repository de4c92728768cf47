"""A search on several slots: each program once, whatever is lost, and times of another machine told apart.

The kind: work that is lost, done twice, or blamed where a machine other than this one does it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kernelscape.cli.log import TextLog
from kernelscape.explorer import stages as st
from kernelscape.explorer.entry import explore_workload, library_workload, resume
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
from kernelscape.runtime.api.backend import AbstractReporter
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.fake.device import FakeDevice, _hashed_ns
from kernelscape.runtime.fleet import fleet as fleets
from kernelscape.runtime.fleet import host
from kernelscape.runtime.fleet.contents import Contents, SiteFiles, name_of
from kernelscape.runtime.fleet.devices import parse_devices, spare_cores
from kernelscape.runtime.fleet.fleet import LocalFleet, SlotLostError, chosen
from kernelscape.runtime.fleet.host import host_in_this_process
from kernelscape.runtime.fleet.messages import (
    CallRefused,
    End,
    Envelope,
    Gone,
    Put,
    Stored,
    decode_answer,
    encode_call,
)
from kernelscape.runtime.fleet.request import FleetRequest
from kernelscape.runtime.fleet.site import SiteOptions
from kernelscape.runtime.fleet.slot_pool import SlotPool
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.loading import load_header
from kernelscape.runtime.records.record import EvaluationRecord, NoteRecord
from kernelscape.runtime.records.replay import StaleError
from kernelscape.runtime.worker.worker import WorkerError

OPTIONS = Options(target="fake", time_limit_s=None, max_evals=24, store=False)


def fleet_of(**devices: FakeDevice) -> LocalFleet:
    return LocalFleet(host_in_this_process(devices))


def run_on(fleet: LocalFleet, folder, options: Options = OPTIONS, on_event=None):
    workload = library_workload(load("axpydot"), {"n": 64}, "f32", 1)
    asked = FleetRequest(joined=fleet)
    return explore_workload(workload, options, directory=folder, fleet=asked, on_event=on_event)


def evaluations(folder) -> list[EvaluationRecord]:
    records = read_journal(folder / "journal.jsonl")
    return [r for r in records if isinstance(r, EvaluationRecord)]


class Losing:
    """A slot that is gone at one of its calls."""

    def __init__(self, slot, n_calls: int) -> None:
        self.slot, self.facts, self.n_left = slot, slot.facts, n_calls

    def call(self, message, is_over):
        self.n_left -= 1
        if self.n_left < 0:
            raise SlotLostError(f"{self.facts.name} is gone")
        return self.slot.call(message, is_over)

    def end(self) -> None:
        self.slot.end()


def test_each_program_is_timed_once_and_its_slot_is_in_the_journal(tmp_path) -> None:
    run = run_on(fleet_of(a=FakeDevice(run_s=0.01), b=FakeDevice(run_s=0.01)), tmp_path)
    found = evaluations(tmp_path)
    assert run.status == "eval_limit"
    assert len(found) == 24 == len({r.source_key for r in found})
    by_slot = Counter(r.place.slot for r in found)
    assert set(by_slot) == {"a", "b"}
    for slot, n in by_slot.items():
        assert sorted(r.place.number for r in found if r.place.slot == slot) == list(range(n))
    assert run.best.file.time_ns == min(r.time_ns for r in found)
    asked = FleetRequest(joined=fleet_of(c=FakeDevice()))
    resumed = resume(tmp_path, max_evals=3, fleet=asked)
    assert len({r.source_key for r in evaluations(tmp_path)}) == 27
    assert resumed.best.file.time_ns <= run.best.file.time_ns


@pytest.mark.parametrize("n_calls", [0, 5, 30])
@pytest.mark.parametrize("lost", [0, 1])
def test_where_a_slot_is_lost_another_takes_over(tmp_path, n_calls, lost) -> None:
    fleet = fleet_of(a=FakeDevice(run_s=0.01), b=FakeDevice(run_s=0.01))
    fleet._slots[lost] = Losing(fleet._slots[lost], n_calls)
    run = run_on(fleet, tmp_path)
    found = evaluations(tmp_path)
    assert len(found) == 24 == len({r.source_key for r in found})
    assert {r.status for r in found} == {"ok"}
    assert run.best is not None


def test_where_all_slots_are_lost_what_was_finished_is_kept(tmp_path) -> None:
    fleet = fleet_of(a=FakeDevice(), b=FakeDevice())
    fleet._slots[:] = [Losing(slot, 34) for slot in fleet._slots]
    with pytest.raises(WorkerError, match=r"no device left for this search: . is gone"):
        run_on(fleet, tmp_path, replace(OPTIONS, max_evals=200))
    before = evaluations(tmp_path)
    assert before
    resume(tmp_path, max_evals=4)
    assert evaluations(tmp_path)[: len(before)] == before


def test_a_slot_that_joins_later_takes_part(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("kernelscape.runtime.fleet.slot_pool._NEW_EVERY", 1)
    monkeypatch.setattr("kernelscape.runtime.fleet.slot_pool._LOOK_S", 0.001)
    fleet = fleet_of(a=FakeDevice(run_s=0.03), b=FakeDevice(run_s=0.03))
    late = fleet._slots.pop()
    n_asked, slots = [], fleet.slots

    def asked():
        n_asked.append(1)
        return [*slots(), *([late] if len(n_asked) > 4 else [])]

    monkeypatch.setattr(fleet, "slots", asked)
    run_on(fleet, tmp_path)
    found = [r.place.slot for r in evaluations(tmp_path)]
    assert set(found) == {"a", "b"}


def test_another_machine_is_a_state_of_its_own(tmp_path) -> None:
    """By 5 %, which within one machine would be noise."""
    slow = FakeDevice(time_ns=lambda key: 1.05 * _hashed_ns(key), run_s=0.01)
    fast = FakeDevice(time_ns=_hashed_ns, run_s=0.01)
    run_on(fleet_of(a=fast, b=slow), tmp_path)
    slowness = {(r.place.slot, round(r.slowness, 6)) for r in evaluations(tmp_path)}
    assert slowness == {("a", 1.0), ("b", 1.05)}


@pytest.mark.parametrize("agrees", [True, False])
def test_the_best_is_timed_again_on_a_second_slot(tmp_path, agrees) -> None:
    """The kind: a machine that is not as equal as it seems, on which another program is faster."""
    slow: set[str] = set()
    devices = {
        "a": FakeDevice(time_ns=_hashed_ns, run_s=0.01),
        "b": FakeDevice(lambda key: _hashed_ns(key) * (9.0 if key in slow else 1.0), run_s=0.01),
    }
    told = []

    def hear(event: object) -> None:
        told.append(event)
        if isinstance(event, st.Remeasured) and not agrees:
            slow.add(event.top[0].key)

    run_on(fleet_of(**devices), tmp_path, on_event=hear)
    (found,) = (e for e in told if isinstance(e, st.Confirmed))
    assert (found.slot, found.agrees) == ("b", agrees)
    assert found.ratio == pytest.approx(1.0 if agrees else 9.0)
    lines: list[str] = []
    TextLog(lines.append, version="1")(found)
    assert ("stays the best" if agrees else "faster there") in lines[0]


def test_what_fails_on_a_slot_is_the_failure_of_its_candidate(tmp_path) -> None:
    run_on(fleet_of(a=FakeDevice()), tmp_path / "plain")
    keys = [r.source_key for r in evaluations(tmp_path / "plain")][1:4]
    script = dict(zip(keys, ("compile", "crash", "wrong"), strict=True))
    devices = {name: FakeDevice(script=script) for name in "ab"}
    run_on(fleet_of(**devices), tmp_path / "run")
    found = {r.source_key: r.status for r in evaluations(tmp_path / "run")}
    assert {key: found[key] for key in keys} == script


def test_builds_that_the_end_of_a_search_ends_are_no_failures() -> None:
    class Builder:
        n_at_once = most_together = 1
        begun, ended = threading.Event(), threading.Event()

        def build_together(self, sources):
            self.begun.set()
            assert self.ended.wait(60)
            return [Failure("compile", "ended")]

        def end_builds(self) -> None:
            self.ended.set()

        def begin(self) -> None:
            """No effect."""

    builder, seats = Builder(), SimpleNamespace(live=[])
    pool: Any = SlotPool(builder, SimpleNamespace(seats=seats))  # type: ignore[arg-type]
    pool.submit(SimpleNamespace(source=SimpleNamespace(key="k")))
    assert builder.begun.wait(60)
    assert pool.drop() == []
    assert not pool._ready


def test_another_version_is_refused(tmp_path, monkeypatch) -> None:
    fleet = fleet_of(a=FakeDevice())
    call = msgspec.msgpack.encode(Envelope("0.9/7", msgspec.Raw(msgspec.msgpack.encode(1))))
    answer = decode_answer(fleet.slots()[0].call(call, lambda: False))
    assert isinstance(answer, CallRefused)
    assert "that of the driver 0.9/7" in answer.why
    monkeypatch.setattr(fleets, "own_version", lambda: "0.9/7")
    with pytest.raises(DeviceError, match=r"a has version .*, and this is 0.9/7: install one"):
        chosen(fleet, "fake")
    fleet.close()


def test_what_a_fleet_lacks_is_said(tmp_path) -> None:
    fleet = fleet_of(a=FakeDevice())
    with pytest.raises(DeviceError, match=r"no device of --target cpu \(it has fake\)"):
        chosen(fleet, "cpu")
    with pytest.raises(DeviceError, match="no device of the key 'other': there are "):
        chosen(fleet, "fake", on="other")
    like = msgspec.structs.replace(fleet.slots()[0].facts.conditions, compiler="cc")
    with pytest.raises(DeviceError, match="with cc, which the run is of"):
        chosen(fleet, "fake", like=like)
    fleet.close()
    with pytest.raises(DeviceError, match="build with their own compiler"):
        run_on(fleet, tmp_path, Options(target="fake", compiler="clang", store=False))


class NamedCompiler(AbstractReporter):
    """A compiler by its name, which makes a device one of another key."""

    def __init__(self, name: str) -> None:
        self.name = name

    def version(self) -> str:
        return self.name

    def command_line(self, source, file, compiler):
        return ""


def of_compiler(name: str) -> FakeDevice:
    device = FakeDevice()
    device.reporter = NamedCompiler(name)
    return device


@pytest.mark.parametrize("began_on_a_fleet", [True, False])
def test_a_run_goes_on_with_devices_of_its_key(tmp_path, began_on_a_fleet) -> None:
    """The kind: times of another compiler of one machine, taken for equal."""
    if began_on_a_fleet:
        run_on(fleet_of(a=of_compiler("cc")), tmp_path)
    else:
        workload = library_workload(load("axpydot"), {"n": 64}, "f32", 1)
        explore_workload(workload, OPTIONS, directory=tmp_path)
    own = "cc" if began_on_a_fleet else ""
    both = fleet_of(b=of_compiler("another"), c=of_compiler(own))
    other = both.slots()[0].facts.key
    resume(tmp_path, max_evals=3, fleet=FleetRequest(joined=both))
    assert {r.place.slot for r in evaluations(tmp_path)[24:]} == {"c"}
    for devices, on, error, why in (
        ({"b": "another"}, None, DeviceError, "key|which the run is of"),
        ({"b": "another", "c": own}, other, StaleError, "was measured on .* leave out --on"),
    ):
        if on is None or began_on_a_fleet:
            fleet = fleet_of(**{name: of_compiler(cc) for name, cc in devices.items()})
            with pytest.raises(error, match=why):
                resume(tmp_path, max_evals=3, fleet=FleetRequest(joined=fleet, on=on))


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("../../etc/passwd", b"x", "names no content"),
        ("0" * 32 + ".so", b"x", "is not what its name says"),
        ("zeros-f4-4/../x.npy", b"x", "names no content"),
    ],
)
def test_a_content_is_what_its_name_says(name, content, why) -> None:
    fleet = fleet_of(a=FakeDevice())
    call = encode_call(Put(name, 0, len(content), content))
    answer = decode_answer(fleet.slots()[0].call(call, lambda: False))
    assert isinstance(answer, CallRefused)
    assert why in answer.why
    fleet.close()


def test_contents_come_in_chunks_and_zeros_need_none() -> None:
    contents = Contents()
    store, content = SiteFiles(*contents.folders), bytes(range(200))
    name = name_of(content, ".npy")
    store.put(name, 0, 200, content[:150])
    assert not store.has(name)
    store.put(name, 150, 200, content[150:])
    assert store.path(name).read_bytes() == content
    assert store.has("zeros-f4-3x2.npy")
    contents.close()


def test_a_site_that_is_silent_is_ended(monkeypatch) -> None:
    """The kind: a driver that waits for ever where a device hangs with its process."""
    monkeypatch.setattr(host, "_SLACK_S", 0.2)
    contents = Contents()
    arrays, libraries = map(str, contents.folders)
    site = host.SiteProcess(SiteOptions("a", "fake", arrays, libraries))
    os.kill(site._process.pid, signal.SIGSTOP)
    assert isinstance(decode_answer(site.call(encode_call(End("x")), lambda: False)), Gone)
    assert isinstance(decode_answer(site.call(encode_call(End("x")), lambda: False)), Stored)
    site.close()
    contents.close()


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (("cpu:",), "is no device"),
        (("cpu:3-1",), "no range"),
        (("cpu:99999",), "which this process may not use"),
        (("cuda:0,1",), "several devices"),
        (("cpu", "cpu:0"), "share cores"),
        (("cuda:0", "cuda:0"), "named twice"),
    ],
)
def test_devices_that_cannot_be_are_refused(texts, why) -> None:
    with pytest.raises(ValueError, match=why):
        parse_devices(texts)


def test_a_process_sees_the_device_of_its_number_only() -> None:
    opened = host.open_host(parse_devices(["fake:1", "fake:3"]))
    try:
        for name, site in opened._sites.items():
            seen = Path(f"/proc/{site._process.pid}/environ").read_bytes().split(b"\0")
            assert f"CUDA_VISIBLE_DEVICES={name[-1]}".encode() in seen
    finally:
        opened.close()


def test_a_search_is_of_one_kind() -> None:
    mixed = FleetRequest(devices=("fake:1", "cpu:0"))
    with pytest.raises(DeviceError, match=r"cpu:0 is no device of --target fake.*--each-key"):
        mixed.check("fake")
    assert mixed.of_kind("fake").devices == ("fake:1",)
    mixed.of_kind("fake").check("fake")
    with pytest.raises(DeviceError, match="is no device"):
        FleetRequest(devices=("cpu:",)).check("cpu")


def test_each_key_is_searched_by_itself(tmp_path, explore) -> None:
    """Devices of all kinds are searched, if no target is given."""
    given = ("run", "axpydot", "--size", "n=64", "--max-evals", 2, "-q", "--each-key")
    code, _, err = explore(*given, "--device", "fake:0", "--device", "fake:1", "-o", tmp_path)
    assert code == 0, err
    (folder,) = tmp_path.iterdir()
    assert load_header(folder / "run.json").target == "fake"
    assert load_header(folder / "run.json").device_key == folder.name
    code, _, err = explore(*given, "--device", "fake:0", "--target", "cpu")
    assert (code, "no device of --target cpu (it has fake)" in err) == (3, True)
    code, _, err = explore(*given)
    assert (code, "is of a fleet" in err) == (2, True)


def test_cores_that_no_device_has_are_for_compilers() -> None:
    own = sorted(os.sched_getaffinity(0))
    assert spare_cores(parse_devices([f"cpu:{own[0]}"])) == tuple(own[1:])
    assert spare_cores(parse_devices(["cpu", "cuda:0"])) == ()
    assert spare_cores(parse_devices(["cuda:0"])) == tuple(own)


@pytest.mark.compiler
def test_programs_run_in_processes_of_their_slots(tmp_path, monkeypatch) -> None:
    """Built, sent by content, verified and timed as on one machine, and nothing is alive afterwards."""
    core = min(os.sched_getaffinity(0))
    workload = library_workload(load("axpydot"), {"n": 512}, "f32", 1)
    options = Options(max_evals=5, time_limit_s=60.0, store=False)
    asked = FleetRequest(devices=(f"cpu:{core}",))
    run = explore_workload(workload, options, directory=tmp_path, fleet=asked)
    found = evaluations(tmp_path)
    assert [r.status for r in found] == ["ok"] * 5
    assert {r.place.slot for r in found} == {f"cpu:{core}"}
    assert run.best is not None
    assert run.best.file.threads == 1  # so it is the same program on a host of many cores
    assert run.compile() is not None
    notes = [r.text for r in read_journal(tmp_path / "journal.jsonl") if isinstance(r, NoteRecord)]
    assert "eval_limit" in notes
