"""A fleet behind a scheduler: workers in processes of their own, which are killed, refused, and end with it.

The kind: what Dask does by itself: it runs lost tasks again, waits for ever for a worker that has gone, and runs what it is sent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from kernelscape.explorer.entry import explore_workload, library_workload
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.fleet.fleet import SlotLostError, chosen
from kernelscape.runtime.fleet.fleet_file import FleetFile, check_address, load_fleet, save_fleet
from kernelscape.runtime.fleet.messages import End, encode_call
from kernelscape.runtime.fleet.request import FleetRequest
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import EvaluationRecord
from kernelscape.runtime.scratch import sweep
from kernelscape.tests.cli.command import objects

pytest.importorskip("distributed")


def started(file: Path, name: str) -> subprocess.Popen[str]:
    """A worker with a fake device, once it serves."""
    command = [sys.executable, "-m", "kernelscape.cli", "worker", "--fleet", str(file)]
    running = subprocess.Popen(
        [*command, "--device", "fake", "--name", name], stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    lines = [running.stderr.readline() for _ in range(2)]
    assert "ends with the fleet" in lines[1], lines
    return running


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """The file of a fleet with two workers, and these; all of it ends with its scheduler."""
    from kernelscape.runtime.fleet.dask_fleet import start_scheduler, stop_fleet

    file = tmp_path_factory.mktemp("fleet") / "fleet.json"
    scheduler = start_scheduler(file, "127.0.0.1", 0).pid
    workers = {name: started(file, name) for name in ("one", "two")}
    yield file, workers
    stop_fleet(file)
    for worker in workers.values():
        worker.wait(10)
        worker.stderr.close()
    end_s = time.monotonic() + 10
    while Path(f"/proc/{scheduler}/cmdline").exists() and time.monotonic() < end_s:
        time.sleep(0.05)
        with suppress(ChildProcessError):
            os.waitpid(scheduler, os.WNOHANG)
    assert not file.exists()
    for prefix in ("kernelscape-dask-", "kernelscape-site-"):  # of the one that was killed
        sweep(Path(tempfile.gettempdir()), prefix)


def evaluations(folder: Path) -> list[EvaluationRecord]:
    records = read_journal(folder / "journal.jsonl")
    return [r for r in records if isinstance(r, EvaluationRecord)]


def test_a_worker_that_is_killed_costs_what_was_in_flight(fleet, tmp_path, explore) -> None:
    file, workers = fleet
    code, out, err = explore("fleet", "status", file)
    assert code == 0, err
    assert {"one/fake", "two/fake"} <= set(out.split())
    _, out, _ = explore("doctor", "--fleet", file)
    assert "scheduler    tcp://127.0.0.1:" in out
    assert out.count("version 0") == 3  # of the scheduler and both workers
    (line,) = objects(explore("fleet", "status", file, "--json")[1])
    assert {slot["name"] for slot in line["slots"]} == {"one/fake", "two/fake"}
    workload = library_workload(load("axpydot"), {"n": 64}, "f32", 1)
    options = Options(target="fake", time_limit_s=None, max_evals=40, store=False)

    def kill(event: object) -> None:
        at = evaluations(tmp_path) if (tmp_path / "journal.jsonl").exists() else []
        if workers["two"].poll() is None and any(r.place.slot == "two/fake" for r in at):
            workers["two"].kill()
            workers["two"].wait()

    asked = FleetRequest(file=file)
    run = explore_workload(workload, options, directory=tmp_path, fleet=asked, on_event=kill)
    found = evaluations(tmp_path)
    assert run.status == "eval_limit"
    assert len(found) == 40 == len({r.source_key for r in found})
    assert {r.status for r in found} == {"ok"}
    assert set(Counter(r.place.slot for r in found)) == {"one/fake", "two/fake"}
    assert workers["two"].returncode == -signal.SIGKILL


def test_the_command_searches_on_a_fleet_and_says_what_it_lacks(fleet, tmp_path, explore) -> None:
    file, _ = fleet
    given = ("run", "axpydot", "--size", "n=64", "--max-evals", 3, "-q", "--fleet", file)
    code, _, err = explore(*given, "--target", "fake", "-o", tmp_path / "run")
    assert code == 0, err
    assert len(evaluations(tmp_path / "run")) == 3
    for more, why in (
        (("--target", "cpu"), "no device of --target cpu (it has fake)"),
        (("--target", "fake", "--on", "none"), "no device of the key 'none'"),
        (("--target", "fake", "--device", "cpu"), "give --fleet or --device"),
    ):
        code, _, err = explore(*given, *more, "-o", tmp_path / "no")
        assert (code in (2, 3), why in err) == (True, True), err
        assert "Traceback" not in err


def test_an_answer_that_is_lost_with_its_worker_costs_the_slot(fleet, monkeypatch) -> None:
    """The kind: a result is computed again where it was, and the worker there has gone before it was fetched."""
    from distributed import Client
    from kernelscape.runtime.fleet import dask_fleet

    file, _ = fleet
    worker, joined = started(file, "three"), dask_fleet.join_fleet(file)
    (slot,) = (s for s in joined.slots() if s.facts.name == "three/fake")
    gather = Client._gather

    async def late(self, futures, *args, **kwargs):
        while futures.status == "pending":
            await asyncio.sleep(0.01)
        worker.kill()
        worker.wait()
        return await gather(self, futures, *args, **kwargs)

    monkeypatch.setattr(Client, "_gather", late)
    with pytest.raises(SlotLostError):
        slot.call(encode_call(End("nobody")), lambda: False)
    assert worker.poll() == -signal.SIGKILL
    joined.close()
    worker.stderr.close()


def test_a_scheduler_that_is_silent_has_gone(fleet, monkeypatch) -> None:
    """The kind: a network that says nothing, so that an answer is waited for without a limit."""
    from kernelscape.runtime.fleet import dask_fleet

    file, _ = fleet
    joined, late = dask_fleet.join_fleet(file), dask_fleet.join_fleet(file)
    slot = joined.slots()[0]
    monkeypatch.setattr(dask_fleet, "_ANSWER_S", 0.5)
    os.kill(load_fleet(file).pid, signal.SIGSTOP)
    try:
        for ask in (lambda: slot.call(encode_call(End("nobody")), lambda: False), late.slots):
            with pytest.raises(SlotLostError, match=r"has said nothing for 0.5 s"):
                ask()
    finally:
        os.kill(load_fleet(file).pid, signal.SIGCONT)
    joined.close()
    late.close()


def test_a_file_of_a_scheduler_that_has_gone_is_made_anew(tmp_path, explore) -> None:
    file = tmp_path / "fleet.json"
    save_fleet(file, FleetFile(address="tcp://127.0.0.1:9", version="1", pid=1))
    assert explore("fleet", "start", file)[0] == 0
    assert explore("fleet", "start", file)[0] == 3
    os.kill(load_fleet(file).pid, signal.SIGSTOP)
    code, _, err = explore("fleet", "stop", file)
    os.kill(load_fleet(file).pid, signal.SIGCONT)
    assert (code, "does not answer" in err) == (3, True)
    assert explore("fleet", "stop", file)[0] == 0


def test_workers_of_another_version_are_listed_and_not_used(fleet, monkeypatch) -> None:
    from kernelscape.runtime.fleet import dask_fleet

    monkeypatch.setattr(dask_fleet, "own_version", lambda: "9/9")
    joined = dask_fleet.join_fleet(fleet[0])
    with pytest.raises(DeviceError, match=r"(one|two) has version .*: install one"):
        chosen(joined, "fake")
    assert set(joined.others) <= {"one", "two"}
    joined.close()


@pytest.mark.parametrize(
    ("address", "has_tls", "is_right"),
    [
        ("tcp://127.0.0.1:99", False, True),
        ("tcp://[::1]:99", False, True),
        ("tcp://localhost:99", False, True),
        ("tcp://10.0.0.3:99", False, False),
        ("tcp://10.0.0.3:99", True, False),
        ("tcp://127.evil.example:99", False, False),
        ("tcp://0.0.0.0:99", False, False),
        ("tls://10.0.0.3:99", True, True),
        ("tls://10.0.0.3:99", False, False),
        ("ucx://127.0.0.1:9", False, False),
    ],
)
def test_plain_addresses_of_other_machines_are_refused(address, has_tls, is_right) -> None:
    """Dask runs whatever it is sent."""
    if is_right:
        check_address(address, has_tls=has_tls)
    else:
        with pytest.raises(DeviceError, match=r"without TLS whoever reaches it could run anything"):
            check_address(address, has_tls=has_tls)


def test_what_is_no_fleet_is_said(tmp_path, explore) -> None:
    file = tmp_path / "fleet.json"
    with pytest.raises(DeviceError, match="is not there: explore fleet start"):
        load_fleet(file)
    file.write_text('{"address": 3}')
    code, _, err = explore("fleet", "status", file)
    assert (code, "is the file of no fleet" in err) == (3, True)
    save_fleet(file, FleetFile(address="tcp://10.0.0.3:99", version="1", pid=1))
    code, _, err = explore("worker", "--fleet", file)
    assert (code, "could run anything" in err) == (3, True)
    save_fleet(file, FleetFile(address="tcp://127.0.0.1:9", version="1", pid=1))
    code, _, err = explore("fleet", "stop", file)
    assert (code, "does not answer" in err) == (3, True)
    code, _, err = explore("fleet", "start", tmp_path / "new", "--host", "0.0.0.0")
    assert (code, "could run anything" in err) == (3, True)


def test_without_a_fleet_nothing_imports_dask() -> None:
    program = """
import sys
from kernelscape.cli import fleet_options
from kernelscape.explorer import entry, tuning
print(sorted({"dask", "distributed"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
