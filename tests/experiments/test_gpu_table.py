"""The GPU table, but for the GPU: its comparison on NumPy, its processes, its goals, and rows made on the emulator."""

from __future__ import annotations

import importlib.util
import sys
import time
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from kernelscape.experiments import gpu_table, rows
from kernelscape.experiments.gpu_goals import PAPER_GAINS, SEQUENCES, all_jobs, verdicts
from kernelscape.experiments.gpu_peers import COPIES, Asked, Peer, PeerError, programs_of
from kernelscape.experiments.gpu_table import GpuRowOptions, share, summary
from kernelscape.experiments.gpu_text import missed, report
from kernelscape.experiments.libraries import blas_calls
from kernelscape.experiments.libraries.formulas import FORMULAS
from kernelscape.experiments.libraries.gpu import AbstractGpuLibrary
from kernelscape.experiments.rows import Job
from kernelscape.experiments.writing import read_results
from kernelscape.kernels.library import load
from kernelscape.runtime.api.outcome import Protocol
from kernelscape.runtime.measure.timing import Sampler, measure
from kernelscape.search.bound.bounder import Roofline
from kernelscape.space.targets.target import CacheLevel, Target

QUICK = Protocol(sample_ns=1e4, min_samples=3, max_samples=4, budget_ns=1e6)
NO_GPU = gpu_table.why_not("cuda")
NO_EMULATOR = gpu_table.why_not("emulator")


class NumpyLibrary(AbstractGpuLibrary):
    """Stands for a library of the GPU."""

    def __init__(self):
        self.made = {}

    def place(self, values):
        return np.array(values)

    def synchronize(self):
        pass

    def scratch(self, shape):
        return self.made.setdefault(shape, np.full(shape, np.nan, np.float32))

    def copy(self, x, y):
        y[...] = x

    def scal(self, alpha, x):
        x *= np.float32(alpha)

    def axpy(self, alpha, x, y):
        y += np.float32(alpha) * x

    def dot(self, x, y, r):
        r[0] = x @ y

    def gemv(self, alpha, a, x, beta, y, *, turned):
        product = np.float32(alpha) * ((a.T if turned else a) @ x)
        y[...] = product + (np.float32(beta) * y if beta else 0)

    def ger(self, alpha, x, y, a):
        a += np.float32(alpha) * np.outer(x, y)

    def gemm(self, a, b, c):
        np.matmul(a, b, out=c)

    def clock(self, call):
        def run(n):
            started_ns = time.perf_counter_ns()
            for _ in range(n):
                call()
            return float(time.perf_counter_ns() - started_ns)

        return run


def asked(name):
    return Asked(name, {k: 9 + 8 * i for i, k in enumerate(load(name).sizes)}, 1)


@pytest.mark.parametrize("name", FORMULAS)
def test_the_calls_of_a_blas_compute_every_sequence(name):
    programs = programs_of(NumpyLibrary(), asked(name))
    assert isinstance(programs["calls"], Sampler), programs
    assert measure(programs["calls"], QUICK).time_ns > 0


def test_a_library_that_computes_something_else_is_not_timed(monkeypatch):
    monkeypatch.setitem(blas_calls.CALLS, "madd", lambda blas, a, b, c: blas.copy(a, c))
    programs = programs_of(NumpyLibrary(), asked("madd"), lambda a, b, c: np.add(a, b, out=c))
    assert "is off by" in programs["calls"]
    assert isinstance(programs["compiled"], Sampler)
    monkeypatch.setitem(blas_calls.CALLS, "madd", lambda blas, a, b, c: None)
    assert "is off by" in programs_of(NumpyLibrary(), asked("madd"))["calls"]


def test_what_is_updated_in_place_starts_anew_before_it_overflows():
    sampler = programs_of(NumpyLibrary(), asked("sscal"))["calls"]
    sampler.restore()
    assert not sampler.drifted()
    with np.errstate(over="ignore"):
        sampler.run(1000)
    assert sampler.drifted()
    sampler.restore()
    assert not sampler.drifted()


def test_a_process_copies_and_says_what_it_cannot():
    kind, n_bytes = COPIES["emulator"]
    with Peer(kind) as peer:
        peer.begin(asked("vadd"))
        assert peer.opened(60.0) == {"copy": ""}
        assert 0 < n_bytes / peer.time("copy", QUICK, 60.0).time_ns < 1e4
        with pytest.raises(PeerError, match="KeyError"):
            peer.time("nosuch", QUICK, 60.0)
        with pytest.raises(PeerError, match="no answer"):
            peer.time("copy", Protocol(budget_ns=1e11, min_samples=99), 0.0)
        with pytest.raises(PeerError, match="ended"):
            peer.time("copy", QUICK, 60.0)


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_a_library_that_is_not_installed_is_a_sentence():
    with Peer("cupy") as peer:
        peer.begin(asked("vadd"))
        with pytest.raises(PeerError, match="cupy: ModuleNotFoundError: No module named 'cupy'"):
            peer.opened(60.0)


NS = 3000.0  # of a call


@pytest.fixture
def recorded(monkeypatch):
    """The clock of TorchLibrary on a stand-in for torch; what was called, and what was replayed."""
    found = SimpleNamespace(ns=0.0, n_calls=0, n_replays=0, may_record=True)

    class Event:
        def __init__(self, **_):
            pass

        def record(self, stream):
            self.ns = found.ns

        def synchronize(self):
            pass

        def elapsed_time(self, later):
            return (later.ns - self.ns) * 1e-6

    class CUDAGraph:
        def replay(self):
            found.n_replays += 1
            found.ns += 32 * NS

    @contextmanager
    def graph(made, **_):
        if not found.may_record:
            raise RuntimeError("operation not permitted when stream is capturing")
        before = found.ns
        yield
        found.ns = before  # recorded is not run

    def call():
        found.n_calls += 1
        found.ns += NS

    torch = ModuleType("torch")
    torch.set_float32_matmul_precision = lambda precision: None
    torch.cuda = SimpleNamespace(Event=Event, CUDAGraph=CUDAGraph, graph=graph, Stream=object)
    torch.cuda.stream = lambda stream: nullcontext()
    monkeypatch.setitem(sys.modules, "torch", torch)
    name = "kernelscape.experiments.libraries.gpu_torch"
    monkeypatch.delitem(sys.modules, name, raising=False)
    found.run = importlib.import_module(name).TorchLibrary().clock(call)
    sys.modules.pop(name)
    return found


def test_torch_is_timed_in_whole_graphs(recorded):
    assert recorded.run(31) == pytest.approx(31 * NS)
    assert (recorded.n_calls, recorded.n_replays) == (31, 0)
    assert recorded.run(100) == pytest.approx(100 * NS)
    assert (recorded.n_calls, recorded.n_replays) == (31 + 32, 3)


def test_what_torch_cannot_record_is_called(recorded):
    recorded.may_record = False
    assert recorded.run(100) == pytest.approx(100 * NS)
    assert (recorded.n_calls, recorded.n_replays) == (100, 0)


def test_searches_share_the_time_that_is_left():
    assert gpu_table.search_s(1600.0, 16, []) == 65.0
    assert gpu_table.search_s(1600.0, 16, [20.0, 40.0, 400.0]) == 60.0
    assert gpu_table.search_s(1e6, 16, []) == gpu_table.MOST_S
    assert gpu_table.search_s(100.0, 16, []) == gpu_table.LEAST_S
    assert gpu_table.search_s(40.0, 1, []) == 0.0
    assert gpu_table.search_s(100.0, 16, [], 60.0) == 60.0
    assert gpu_table.search_s(90.0, 16, [], 60.0) == 0.0


def test_the_table_has_its_rows():
    keys = [job.key for job in all_jobs()]
    assert len(keys) == len(set(keys)) == len(SEQUENCES) + 5 == 16
    assert {"gemver:m=8192,n=8192", "axpy:n=67108864", "matmul:m=256,n=256,k=32"} <= set(keys)
    assert set(PAPER_GAINS) < set(SEQUENCES)


def test_ratios_are_formed_inside_rounds_and_the_faster_library_counts():
    times = {
        "best": [1.0, 2.0],
        "default": [2.0, 4.0],
        "cupy calls": [3.0, 9.0],
        "torch calls": [3.0, 6.0],
        "torch compiled": [1.0],
    }
    made = summary(times)
    assert (made["cublas_by"], made["over_cublas"], made["over_default"]) == ("torch", 3.0, 2.0)
    assert made["compiled_ns"] is made["over_compiled"] is None
    assert summary({"best": [1.0]})["cublas_ns"] is None


def test_shares_are_of_the_copy_of_the_same_round_or_of_the_rate():
    target = Target(
        backend="cuda",
        name="a GPU",
        cores=1,
        vector_bytes=16,
        vector_registers=63,
        levels=(CacheLevel(name="L1", capacity_bytes=1, read_bytes_per_ns=1.0),),
        memory_read_bytes_per_ns=10.0,
        memory_write_bytes_per_ns=10.0,
        memory_mixed_bytes_per_ns=10.0,
        f32_flops_per_ns=100.0,
        f64_flops_per_ns=50.0,
        launch_ns=1.0,
        barrier_ns=1.0,
        call_ns=1.0,
    )
    moved = share([100.0, 200.0], [8.0, 4.0], Roofline(300.0, 100.0, 1.0), target)
    assert (moved["is_computed"], moved["share"]) == (False, 0.5)
    assert share([100.0], [], Roofline(300.0, 100.0, 1.0), target)["share"] is None
    computed = share([100.0], [], Roofline(300.0, 100.0, 9000.0), target)
    assert (computed["is_computed"], computed["share"]) == (True, 0.9)


def row(name, sizes, **changed):
    """A row as far as goals and text look at it."""
    times = {"best": [1e6], "default": [2e6], "torch calls": [2.7e6]}
    taken = {
        "taken": "2026-01-01", "load_1min": 0.0, "cpu": "a CPU", "cores": 2, "caches": {}, "kernel": "", "huge_pages": "",
        "binding": "", "versions": {}, "compiler": "", "memory_bytes_per_ns": 0.0, "device": {"gpu": "a GPU"},
    }  # fmt: skip
    values = {
        "status": "ok", "name": name, "sizes": sizes, "options": {"target": "cuda", "seconds": 9.0, "rounds": 1},
        "share": 0.93, "share_spread": 0.0, "is_computed": False, "bytes": 1e9, "flops": 1e9, "bound_ns": 5e5, "gap": 0.5,
        "evaluations": 7, "failures": {"launch": 2}, "below_bound": 0, "alarms": 0, "search_status": "time_limit",
        "absent": {"cupy": "not here"}, "copy_bytes_per_ns": 4e3, "copy_spread": 0.01, "is_calibrated": False,
        "f32_flops_per_ns": 67e3, "stamp": taken, **summary(times),
    }  # fmt: skip
    return values | changed


LARGE, VECTOR = {"m": 8192, "n": 8192}, {"n": 1 << 26}
CUBE = {"m": 1024, "n": 1024, "k": 1024}
SMALL = {"m": 256, "n": 256, "k": 32}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (row("gemver", LARGE), ["met", "met"]),
        (row("gemver", LARGE, over_cublas=2.6, share=0.91), ["missed", "missed"]),
        (row("axpy", VECTOR, over_cublas=0.1), ["met"]),
        (row("vadd", VECTOR, over_cublas=None, share=None), ["open", "open"]),
        (row("matmul", CUBE, over_cublas=0.9), ["met"]),
        (row("matmul", CUBE, over_cublas=0.89), ["missed"]),
        (row("matmul", SMALL, over_cublas=0.99), ["missed"]),
        (row("matmul_strided", CUBE, over_cublas=1.0), ["met"]),
        (row("matmul", {"m": 4096, "n": 4096, "k": 4096}, over_cublas=0.1), []),
        (row("gemver", {"m": 9, "n": 9}, over_cublas=0.1), []),
        (row("sgemv", LARGE, below_bound=3), ["missed", "met"]),
        ({"status": "failed", "name": "sscal", "sizes": VECTOR, "why": "no word"}, ["missed"]),
    ],
)
def test_goals_are_met_missed_or_open(made, words):
    assert [v.word for v in verdicts([made])] == words


def test_the_text_says_what_was_reached():
    failed = {"status": "failed", "name": "sscal", "sizes": VECTOR, "why": "a | b"}
    failed["options"] = {"target": "cuda"}
    made = {"rows": [row("gemver", LARGE, over_cublas=2.6), failed]}
    text = report(made)
    assert "| gemver 8192^2 | 1 ms | 0.0 | 2 ms | 2.7 ms | torch | – |" in text
    assert "| 2 launch | 0 | time_limit |" in text
    assert "- sscal 2^26 failed: a | b" in text
    assert "- missed: gemver 8192^2: 2.60 x cuBLAS (goal 2.61 x)" in text
    assert "- met: gemver 8192^2: 93% of the copy bandwidth (goal 92%)" in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1
    assert [line.split(":")[0] for line in missed(made)] == ["gemver 8192^2", "sscal 2^26 failed"]
    assert "emulator" not in text


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
def test_without_a_gpu_it_ends_with_one_sentence(capfd):
    assert gpu_table.main([]) == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("gpu_table: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("row", "said"), [("nosuch", "no sequence 'nosuch'"), ("heat", "no row 'heat'")]
)
def test_a_row_that_there_is_not_is_a_usage_error(capfd, monkeypatch, row, said):
    monkeypatch.setattr(gpu_table, "why_not", lambda target: "")
    with pytest.raises(SystemExit) as caught:
        gpu_table.main(["--only", row])
    assert caught.value.code == 2
    assert said in capfd.readouterr().err


def test_a_command_that_runs_out_of_time_says_so(capfd, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_table, "why_not", lambda target: "")
    monkeypatch.setattr(gpu_table, "calibrate", lambda target: "")
    monkeypatch.setattr(gpu_table, "gpu_machine", lambda target: "a GPU")
    few = ["--minutes", "0.1", "--results", str(tmp_path), "--only", "sscal"]
    assert gpu_table.main(few) == 1
    out = capfd.readouterr().out
    assert "no time left for 1 rows" in out
    assert "missed: sscal:n=67108864 is not made" in out


@pytest.mark.compiler
@pytest.mark.skipif(bool(NO_EMULATOR), reason=NO_EMULATOR)
def test_rows_are_made_on_the_emulator_kept_and_written(tmp_path, machine, monkeypatch):
    options = GpuRowOptions(target="emulator", rounds=1, budget_ms=1.0, evaluations=2)
    wanted = [Job("waxpby", {"n": 1000}), Job("waxpby", {"nosuch": 1})]
    end_s = time.monotonic() + 600.0

    def make(again=False):
        table = gpu_table.table_of("emulator", tmp_path)
        made = gpu_table.make_table(table, table.missing(wanted, again), options, end_s, 60.0)
        return [r for r in made["rows"] if r["status"] == "ok"], made

    [first], made = make()
    assert first["best_ns"] > 0
    assert first["default_ns"] > 0
    assert first["copy_bytes_per_ns"] > 0
    assert 0 < first["share"] < 1
    assert first["bound_ns"] > 0
    assert first["evaluations"] >= 1
    assert first["below_bound"] == 0
    assert {len(ns) for ns in first["rounds_ns"].values()} == {1}
    assert any("nosuch" in r.get("why", "") for r in made["rows"])
    text = (tmp_path / "gpu_table_emulator.md").read_text()
    assert "| waxpby 1000 |" in text
    assert "emulator" in text
    stored = read_results("gpu_table_emulator", tmp_path)
    assert stored == made
    monkeypatch.setattr(rows, "run_row", lambda *_: pytest.fail("made again"))
    wanted.pop()
    assert make()[0] == [first]
    end_s = time.monotonic()
    assert make(again=True)[0] == [first]
