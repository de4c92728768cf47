"""Calls that wait for their code: kernels are compiled side by side, and nothing else is different."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.program import current_program
from kernelscape.runtime import engine as engine_room
from kernelscape.runtime.engine.engine import Engine, EngineOptions

pytestmark = pytest.mark.compiler


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine with an empty folder, and two threads that compile."""
    made = Engine(EngineOptions(folder=tmp_path / "kernels", cores=2))
    monkeypatch.setattr(engine_room, "_engine", made)
    yield made
    ks.reset()
    made.close()


def program() -> SimpleNamespace:
    """Fields of a program that begins, and its kernels: none of them commutes with another."""
    ks.init()
    x, y, at = ks.field(ks.i32, 8), ks.field(ks.i32, 8), ks.field(ks.i32, 8)

    @ks.kernel
    def add(a: ks.i32):
        for i in x:
            x[i] += a

    @ks.kernel
    def double():
        for i in x:
            x[i] *= 2

    @ks.kernel
    def copy():
        for i in x:
            y[i] = 10 * y[i] + x[i]

    @ks.kernel
    def gather():
        for i in x:
            x[i] += y[at[i]]

    @ks.kernel
    def total() -> ks.i32:
        s = 0
        for i in x:
            s += x[i]
        return s

    @ks.kernel
    def tell():
        print("told", x[0])

    return SimpleNamespace(**locals())


def waits() -> bool:
    return current_program().follower.waits


def met(engine: Engine, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """Makes the first `n` compilations stop until all of them are under way."""
    build, together, numbers = engine._build, threading.Barrier(n), itertools.count()

    def meeting(*given: object) -> object:
        if next(numbers) < n:
            together.wait(timeout=60)
        return build(*given)

    monkeypatch.setattr(engine, "_build", meeting)


def test_kernels_of_first_calls_are_compiled_side_by_side(engine, monkeypatch):
    """The kind: a first call that the program waits for, so that kernels are compiled one after the other."""
    p = program()
    met(engine, monkeypatch, 2)
    p.add(3)
    assert waits()
    p.double()
    for _ in range(100):  # more than are deferred: the first ones have run
        p.add(1)
    assert p.x[7] == 106
    assert not waits()


def test_an_access_waits_only_for_code_of_calls_that_it_depends_on(engine, monkeypatch):
    p = program()
    build, is_read = engine._build, threading.Event()

    def late(ir: object, *given: object) -> object:
        assert ir.name != "copy" or is_read.wait(timeout=60)
        return build(ir, *given)

    monkeypatch.setattr(engine, "_build", late)
    p.add(3)
    p.copy()  # to y, whose code comes when x is read
    assert p.x[7] == 3
    p.at[3] = 1
    assert waits()
    is_read.set()
    assert p.y[7] == 3
    assert not waits()


def test_calls_that_can_be_missed_only_run_at_once(engine, capfd):
    """Results, prints and errors are those of the call itself, behind the calls before it."""
    p = program()
    p.add(2)
    assert p.total() == 16
    p.double()
    p.tell()
    assert "told 4" in capfd.readouterr().out
    p.copy()
    p.at[3] = 8
    with pytest.raises(IndexError, match="gather"):
        p.gather()
    p.at[3] = 0
    p.gather()
    assert p.x.to_numpy().tolist() == [8] * 8
    with pytest.raises(AssertionError, match="outside"):
        sparse_writer()()


def sparse_writer():
    """A kernel that writes outside of a sparse field."""
    s = ks.field(ks.i32)
    ks.root.pointer(ks.i, 2).place(s)

    @ks.kernel
    def write():
        for i in range(1):
            s[i + 7] = 1

    return write


def test_memory_that_others_see_has_no_calls_that_wait(engine):
    """The kind: a component of a field, which shares the memory that the field has lent."""
    ks.init()
    v = ks.Vector.field(2, ks.i32, 4)
    part = v.get_scalar_field(1)

    @ks.kernel
    def write():
        for i in part:
            part[i] = i

    seen = np.from_dlpack(v)
    write()
    assert seen[:, 1].tolist() == [0, 1, 2, 3]


def test_an_element_that_python_holds_is_that_of_now(engine):
    """The kind: a view that is read, or written, without a look at the calls that wait."""
    ks.init()
    v = ks.Vector.field(2, ks.i32, 4)

    @ks.kernel
    def write(a: ks.template()):
        for i in v:
            v[i] += i * a

    looks = (
        (lambda e: e[0], 3),
        (lambda e: e.y, 9),
        (lambda e: e.to_list(), [18, 18]),
        (lambda e: (e + 0).to_list(), [30, 30]),
        (lambda e: setattr(e, "x", 1) or e.y, 45),
    )
    for k, (look, wanted) in enumerate(looks):
        element = v[3]
        write(k + 1)  # not compiled yet
        assert waits()
        assert look(element) == wanted
    assert v[3].x == 1


def test_an_error_of_the_compiler_drops_its_call_only(engine, monkeypatch):
    p = program()
    build = engine._build

    def failing(ir: object, *given: object) -> object:
        if ir.name == "double":
            raise MemoryError("no room")
        return build(ir, *given)

    monkeypatch.setattr(engine, "_build", failing)
    p.add(1)
    p.double()
    p.copy()
    with pytest.raises(MemoryError):
        ks.sync()
    assert p.y[0] == 1


def test_an_interrupt_while_calls_wait_loses_none(engine, monkeypatch):
    p = program()
    p.add(1)
    p.double()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "prepared", lambda ir: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            ks.sync()
    p.copy()
    assert p.y[0] == 2


def test_threads_and_children_run_each_call_once(engine, monkeypatch):
    """Two threads make first calls of their own; a child of fork() has what its parent had called."""
    p = program()
    met(engine, monkeypatch, 2)

    def called(kernel: object, *args: int) -> None:
        for _ in range(50):
            kernel(*args)

    more = ks.field(ks.i32, 8)

    @ks.kernel
    def others():
        for i in more:
            more[i] += 2

    threads = [threading.Thread(target=called, args=given) for given in ((p.add, 1), (others,))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (p.x[0], more[7]) == (50, 100)
    monkeypatch.undo()
    monkeypatch.setattr(engine_room, "_engine", engine)
    p.double()
    p.copy()
    assert waits()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends the child where it waits for a thread that is not there
        os._exit(not np.array_equal(p.y.to_numpy(), [100] * 8))
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert p.y[0] == 100
