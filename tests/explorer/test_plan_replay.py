"""`ks.init(decisions=...)`: programs run what was found for the kernels that they call, and nothing else is different."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer.plan_replay import Follower, _Match, follow
from kernelscape.explorer.results import load
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.frontend.dispatch import eager
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.ir.kernel import Const, DType, Param, Unary
from kernelscape.runtime.engine import current_engine
from kernelscape.runtime.records.record import RecordError
from kernelscape.runtime.records.store import TunedStore

pytestmark = pytest.mark.compiler
N = 24


@pytest.fixture(autouse=True)
def no_program_is_left():
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ks.reset()


def program(n: int = N) -> SimpleNamespace:
    """Fields and kernels of a program that has begun."""
    x = ks.Vector.field(2, ks.f32, shape=n)
    d, e, count = (ks.field(ks.f32, shape=n) for _ in range(3))
    at = ks.field(ks.i32, shape=n)

    @ks.kernel
    def combine(a: ks.f32):
        for i in d:
            d[i] = a * x[i].x - x[i].y

    @ks.kernel
    def gather():
        for i in e:
            e[i] += d[at[i]]

    @ks.kernel
    def other():
        for i in d:
            d[i] += 1
            count[i] += 1

    @ks.kernel
    def total() -> ks.f32:
        s = 0.0
        for i in e:
            s += e[i]
        return s

    def substep(a=0.5):
        combine(a)
        gather()

    x.from_numpy(np.arange(2 * n, dtype=np.float32).reshape(n, 2))
    at.from_numpy(np.arange(n, dtype=np.int32)[::-1].copy())
    return SimpleNamespace(**locals())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("found")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        ks.init()
        ks.explore(program().substep, 0.5, max_evals=2, directory=folder)
    ks.reset()
    return folder / "best.json"


def n_runs() -> int:
    follower = current_program().follower
    assert isinstance(follower, Follower)
    return sum(s.n_runs for s in follower._sequences)


def waits() -> bool:
    return current_program().follower.waits


def expected(n_steps: int, a: float = 0.5) -> np.ndarray:
    x = np.arange(2 * N, dtype=np.float32).reshape(N, 2)
    return n_steps * (a * x[:, 0] - x[:, 1])[::-1]


def test_the_sequence_runs_as_it_was_found(found: Path) -> None:
    ks.init(decisions=found)
    p = program()
    for _ in range(3):
        p.substep()
    assert not waits()
    assert n_runs() == 3
    np.testing.assert_array_equal(p.e.to_numpy(), expected(3))
    p.substep(0.25)  # numbers are arguments of what was found
    assert n_runs() == 4
    np.testing.assert_array_equal(p.e.to_numpy(), expected(3) + expected(1, 0.25))


def test_calls_wait_until_somebody_looks(found: Path) -> None:
    ks.init(decisions=str(found))
    p = program()
    p.combine(0.5)
    assert waits()
    assert p.d[2] == 0.5 * 4 - 5  # the host reads
    assert not waits()
    p.combine(2.0)
    p.x[2] = [0, 0]  # the host writes: later
    assert p.d[2] == 2 * 4 - 5
    p.combine(1.0)
    p.other()  # another kernel
    assert p.d[3] == 1 * 6 - 7 + 1
    p.combine(1.0)
    assert p.total() == 0  # one that returns something
    assert not waits()
    p.combine(1.0)
    ks.sync()
    assert not waits()
    p.combine(1.0)
    p.combine(0.5)  # the sequence begins anew
    p.gather()
    assert n_runs() == 1
    assert p.e[0] == p.d[N - 1] == 0.5 * 46 - 47


def test_what_waits_runs_before_a_sequence_is_recorded(found: Path) -> None:
    ks.init(decisions=found)
    p = program()
    p.combine(0.5)
    _, fields = record_program(lambda: p.gather(), ())
    assert fields["d"][2] == 0.5 * 4 - 5
    assert not waits()


def test_what_deviates_runs_kernel_by_kernel(found: Path) -> None:
    ks.init(decisions=found)
    p = program()
    p.gather()  # its second call alone
    p.combine(0.5)
    p.other()
    p.gather()
    assert n_runs() == 0
    np.testing.assert_array_equal(p.e.to_numpy(), expected(1) + 1)
    for _ in range(2):
        p.substep()
        p.other()
    assert n_runs() == 2
    np.testing.assert_array_equal(p.count.to_numpy(), 3)


def test_an_index_that_leaves_its_field_is_told_by_its_kernel(found: Path) -> None:
    ks.init(decisions=found)
    p = program()
    p.substep()
    p.at[3] = N
    p.combine(0.5)
    with pytest.raises(IndexError, match="gather"):
        p.gather()
    assert not waits()
    p.at[3] = 0
    p.substep()
    assert n_runs() == 2


def test_a_run_that_is_interrupted_does_not_run_again(found: Path) -> None:
    ks.init(decisions=found)
    p = program()
    p.substep()
    follower = current_program().follower
    whole = follower._expected

    def interrupted() -> None:
        whole.run()
        raise KeyboardInterrupt

    follower._expected = replace(whole, run=interrupted)
    with pytest.raises(KeyboardInterrupt):
        p.substep()
    follower._expected = whole
    assert not waits()
    np.testing.assert_array_equal(p.e.to_numpy(), expected(2))
    p.substep()
    np.testing.assert_array_equal(p.e.to_numpy(), expected(3))


def test_a_zero_of_another_sign_is_another_number(found: Path) -> None:
    ks.init(decisions=found)
    match = _Match(current_program().follower._sequences[0], scalars={"a": 0.0})
    assert match._fits(Param("a", DType.f32), 0.0)
    assert not match._fits(Param("a", DType.f32), -0.0)
    assert not match._fits(Const(0.0, DType.f32), -0.0)
    assert match._fits(Const(-0.0, DType.f32), -0.0)
    assert not match._fits(Unary("neg", Param("a", DType.f32), DType.f32), 0.0)


def test_children_of_fork_go_on_while_another_thread_is_in_a_call(found: Path) -> None:
    ks.init(decisions=found)
    p = program()
    p.substep()
    holds, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with current_program().follower._lock:
            holds.set()
            ends.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends the child where it waits for the lock
        p.substep()
        os._exit(not np.array_equal(p.e.to_numpy(), expected(2)))
    _, status = os.waitpid(child, 0)
    ends.set()
    thread.join()
    assert status == 0


def test_memory_that_others_see_does_not_wait(found: Path) -> None:
    ks.init(decisions=found)
    p = program()
    p.substep()
    seen = np.from_dlpack(p.d)
    p.combine(2.0)
    assert not waits()
    assert seen[2] == 2 * 4 - 5
    p.gather()
    assert n_runs() == 1


def test_nothing_is_replaced_in_debug(found: Path) -> None:
    ks.init(decisions=found, debug=True)
    assert current_program().follower is None


def test_what_was_never_met_is_said(found: Path) -> None:
    ks.init(decisions=found)
    program(2 * N).substep()  # of another shape
    with pytest.warns(RuntimeWarning, match="never called its kernel combine with fields of these"):
        ks.reset()
    ks.init(decisions=found)
    program().combine(0.5)
    with pytest.warns(RuntimeWarning, match="after its first 1 of 2 calls .* with gather"):
        ks.reset()


def edited(found: Path, path: Path, **changes: object) -> Path:
    """A copy of a best.json with other fields."""
    path.write_text(json.dumps(json.loads(found.read_text()) | changes))
    return path


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


UNUSABLE = {
    "missing": (lambda _, at: at / "none.json", "none.json: give the directory of a run"),
    "empty folder": (lambda _, at: at, "holds no run"),
    "not JSON": (lambda _, at: text(at / "a.json", "{"), "is torn or is no JSON"),
    "no object": (lambda _, at: text(at / "a.json", "[]"), "has schema None"),
    "a pipe": (lambda _, at: pipe(at / "a.json"), "it is no regular file"),
    "no name": (lambda _, at: f"{at}/\0", "cannot be the name of a file"),
    "too long a name": (lambda _, at: at / ("x" * 300), "File name too long"),
    "other schema": (lambda f, at: edited(f, at / "a.json", schema=99), "reads schemas 1 and 2"),
    "not all there": (
        lambda f, at: edited(f, at / "a.json", stored=None),
        "not hold what it shoul",
    ),
    "stale": (lambda f, at: edited(f, at / "a.json", source_key="0" * 24), "another source"),
    "other tasks": (lambda f, at: edited(f, at / "a.json", problem_key="0"), "into other tasks"),
    "other choices": (lambda f, at: edited(f, at / "a.json", decisions=[["a", "b"]]), "not fit"),
    "no such target": (
        lambda f, at: edited(f, at / "a.json", target="none"),
        "there is no backend",
    ),
    "a number": (lambda *_: 3, "3 is no best.json"),
    "a number in a list": (lambda f, _: [f, 4], "4 is no best.json"),
}


def warned_and_right(decisions: object) -> str:
    """The one warning that is given, where the program then computes what it should."""
    with pytest.warns(RuntimeWarning) as told:
        ks.init(decisions=decisions)
    p = program()
    p.substep()
    np.testing.assert_array_equal(p.e.to_numpy(), expected(1))
    (one,) = (str(w.message) for w in told)
    assert one.startswith("ks.init(decisions=...): ")
    assert "\n" not in one
    return one


@pytest.mark.parametrize("what", UNUSABLE)
def test_what_cannot_be_used_is_a_warning(what: str, found: Path, tmp_path: Path) -> None:
    """Kind: whatever is wrong with a stored result, a program that would follow it runs, with the default decisions."""
    make, words = UNUSABLE[what]
    assert words in warned_and_right(make(found, tmp_path))


def test_what_another_machine_found_is_a_warning(found: Path, monkeypatch) -> None:
    """One with other vectors, fewer cores, or less memory than the arrays take."""
    machine = load(found).device.machine
    other = replace(machine.facts(), cores=1, vector_bytes=16)
    with monkeypatch.context() as patch:
        patch.setattr(type(machine), "facts", lambda self: other)
        assert "is not used: the stored decisions" in warned_and_right(found)
    monkeypatch.setattr("kernelscape.runtime.records.stored.total_bytes", lambda: 100)
    assert "there is not enough memory: the arrays of" in warned_and_right(found)


def test_an_entry_of_the_store_that_cannot_be_read_is_a_warning(found: Path, monkeypatch) -> None:
    """Others of the same file are followed."""
    entries = (load(found).file, RecordError("the store holds an entry of schema 99"))
    monkeypatch.setattr(TunedStore, "of_file", lambda *_: entries)
    assert "holds an entry of schema 99" in warned_and_right(True)
    assert n_runs() == 1
    monkeypatch.setattr(
        TunedStore, "__init__", lambda _: (_ for _ in ()).throw(OSError(28, "full"))
    )
    assert "the tuned store is not used: full" in warned_and_right(True)


def test_sequences_that_need_more_than_fields_are_a_warning(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    ks.init()
    p = program()

    def chosen(flag):
        p.combine(0.5) if flag else p.gather()

    ks.explore(chosen, True, max_evals=1, target="fake", directory=tmp_path / "run")
    said = warned_and_right(tmp_path / "run")
    assert "since its argument flag is a constant: call ks.re" in said


def test_field_that_nobody_reads_stays_as_it_is(tmp_path: Path) -> None:
    ks.init()
    ks.explore(program().substep, 0.5, unseen=("d",), max_evals=1, directory=tmp_path / "run")
    ks.reset()
    ks.init(decisions=tmp_path / "run")
    p = program()
    p.d.fill(3)
    p.substep()
    assert n_runs() == 1
    assert set(p.d.to_numpy()) == {3}
    np.testing.assert_allclose(p.e.to_numpy(), expected(1))


PROGRAM = """
import kernelscape as ks

ks.init(decisions=__name__ == "__main__")
x, y = (ks.field(ks.f32, shape=100) for _ in "xy")

@ks.kernel
def double():
    for i in x:
        y[i] = 2 * x[i]

@ks.kernel
def more():
    for i in x:
        x[i] += y[i]

def substep():
    double()
    more()

x.fill(1)
if __name__ == "__main__":
    from kernelscape.kernels.fields.program import current_program
    substep()
    print(x[3], sum(s.n_runs for s in current_program().follower._sequences))
"""


def test_the_store_has_what_was_found_for_a_program(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "program.py", raising=False)
    with pytest.warns(RuntimeWarning, match=r"the tuned store has nothing for program\.py on this"):
        assert follow(True, eager()) is None
    explored = [sys.executable, "-m", "kernelscape.cli", "run", "program.py:substep"]
    subprocess.run([*explored, "--max-evals", "1"], check=True, capture_output=True)
    run = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("3.0 1\n", "")


def test_what_was_found_has_as_many_threads_as_the_program(tmp_path: Path) -> None:
    ks.init(cpu_max_num_threads=1)
    folder = tmp_path / "run"
    run = ks.explore(program(1 << 16).substep, 0.5, max_evals=1, directory=folder)
    ks.reset()
    assert run.best is not None
    assert run.best.file.threads == 1
    best = load(folder)  # by a program that has all cores
    assert "ks_team_run" not in best.source.partition("int64_t ks_now_ns")[0]
    assert best.source == run.best.source


def test_calls_that_go_on_as_before_are_known_by_kernel_and_arguments(found: Path) -> None:
    ks.init(decisions=found)
    p = program()
    follower = current_program().follower
    for _ in range(3):
        p.substep()
    follower._take = lambda *given, **named: pytest.fail("asked again")
    p.substep()
    assert not follower.waits
    del follower._take
    p.combine(0.5)
    p.gather()  # other objects than before, with the same values
    p.combine(-0.0)
    assert follower.waits
    p.gather()
    want = np.arange(2 * N, dtype=np.float32).reshape(N, 2)
    halves = (0.5 * want[:, 0] - want[:, 1])[::-1]
    zeros = -want[:, 1][::-1]
    np.testing.assert_allclose(p.e.to_numpy(), 5 * halves + zeros, rtol=1e-6)


def test_calls_on_fields_that_somebody_sees_since_do_not_wait_again(found: Path) -> None:
    ks.init(decisions=found)
    p = program()
    for _ in range(3):
        p.substep()
    seen = np.from_dlpack(p.d)
    for _ in range(4):
        seen[:] = 0
        p.combine(p.substep.__defaults__[0])  # the same object
        assert not waits()
        assert seen.any()
        p.gather()
    assert n_runs() == 3
    np.testing.assert_array_equal(p.e.to_numpy(), expected(7))


def n_python_calls(fn) -> int:
    """The number of functions that a call enters, of Python and of C."""
    n = 0

    def note(frame, event: str, arg) -> None:
        nonlocal n
        n += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        fn()
    finally:
        sys.setprofile(None)
    return n


@pytest.mark.parametrize("between", ["another kernel", "a host read"])
def test_calls_that_break_a_sequence_cost_about_what_plain_calls_cost(
    between: str, found: Path
) -> None:
    """The kind: a deferred call that goes the long way of a first call when it runs: 134 functions then."""

    def costs(p: SimpleNamespace) -> int:
        def broken() -> None:
            p.combine(0.5)
            p.other() if between == "another kernel" else p.d[2]
            p.gather()

        for _ in range(2):
            broken()
        current_engine()._extension.result()  # which makes calls quick
        for _ in range(3):
            broken()
        n = n_python_calls(broken)
        assert p.e[0] == 6 * (0.5 * 46 - 47 + (between == "another kernel"))
        return n

    ks.init()
    plain = costs(program())
    ks.init(decisions=found)
    p = program()
    p.substep()
    p.e.fill(0)
    assert costs(p) <= 2 * plain


def test_calls_that_break_a_sequence_of_equal_calls_cost_as_much_however_many_wait(
    tmp_path: Path,
) -> None:
    """The kind: all that waits is matched anew for each call more than the sequence has, 40 calls here."""

    def program() -> SimpleNamespace:
        x = ks.field(ks.i32, 8)

        @ks.kernel
        def add():
            for i in x:
                x[i] += 1

        @ks.kernel
        def limit():
            for i in x:
                x[i] = x[i] % 1000

        def step():
            for _ in range(40):
                add()
            limit()

        return SimpleNamespace(**locals())

    ks.init()
    ks.explore(program().step, max_evals=1, directory=tmp_path / "run")
    ks.init(decisions=tmp_path / "run")
    p = program()
    follower = current_program().follower
    follower._credit, n_matched, goes_on = 0, 0, follower._goes_on

    def counted(held) -> bool:
        nonlocal n_matched
        n_matched += 1
        return goes_on(held)

    follower._goes_on = counted
    for _ in range(280):
        p.add()
    p.limit()
    assert 280 < n_matched <= 6 * 281
    assert p.x[0] == 280


def test_a_sequence_is_found_that_begins_within_calls_that_look_like_it(tmp_path: Path) -> None:
    """The kind: its end looks like its begin, and a program begins with this end. So each match began too early."""
    ks.init()

    def program() -> SimpleNamespace:
        x = ks.field(ks.i32, 8)

        @ks.kernel
        def add():
            for i in x:
                x[i] += 1

        @ks.kernel
        def double():
            for i in x:
                x[i] *= 2

        @ks.kernel
        def limit():
            for i in x:
                x[i] = x[i] % 1000

        def step():
            for kernel in (add, double, add, double, limit, add, double):
                kernel()

        def short():
            double()
            add()
            add()

        return SimpleNamespace(**locals())

    p = program()
    ks.explore(p.step, max_evals=1, directory=tmp_path / "run")
    ks.explore(p.short, max_evals=1, directory=tmp_path / "short")
    values = []
    for decisions in (None, [tmp_path / "run", tmp_path / "short"]):
        ks.init(decisions=decisions)
        p = program()
        p.add()
        p.double()
        for _ in range(3):
            p.step()
        p.add()
        p.short()  # it begins while the other one still may
        values.append(p.x.to_numpy().tolist())
        assert decisions is None or n_runs() == 4
    assert values[0] == values[1]
