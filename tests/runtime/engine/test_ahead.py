"""Kernels that are compiled ahead of their first call, while another call waits: used if they are the same, and else not seen.

No annotations of this file are text: such kernels wait for their call.
"""

import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.frontend import coming_calls
from kernelscape.kernels.frontend.coming_calls import UNKNOWN
from kernelscape.kernels.frontend.instance import Instance
from kernelscape.kernels.frontend.scopes import TracingStoppedError
from kernelscape.kernels.ir.spelling import spelled
from kernelscape.runtime import engine as engine_room
from kernelscape.runtime.cpu import compiler
from kernelscape.runtime.cpu.compiler import run_compiler
from kernelscape.runtime.engine import ahead
from kernelscape.runtime.engine.ahead import StoppedAheadError
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.engine.loaded import LoadedKernel
from kernelscape.testing.sparse_windows import InterpretingEngine

pytestmark = pytest.mark.compiler
by = 3  # a global that kernels read
noted = list[int]()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine with an empty folder, on two cores that are idle."""
    made = Engine(EngineOptions(folder=tmp_path / "kernels", cores=2))
    monkeypatch.setattr(engine_room, "_engine", made)
    monkeypatch.setattr(ahead, "has_idle_core", lambda: True)
    yield made
    ks.reset()
    made.close()


def program() -> SimpleNamespace:
    """A program that begins, with a kernel that is called, and one that may be compiled beside."""
    ks.init()
    x = ks.field(ks.i32, 8)

    @ks.kernel
    def first():
        for i in x:
            x[i] = i

    @ks.kernel
    def second(a: ks.i32, b: ks.math.ivec2):
        for i in x:
            x[i] = x[i] * by + a + b.y

    return SimpleNamespace(x=x, first=first, second=second)


def traced(
    kernel: ks.kernel, *args: object, goes_on: Callable[[], bool] = lambda: True
) -> Instance | None:
    """Returns the kernel as it is traced ahead of a call, whose other arguments are not known."""
    unknown = (UNKNOWN,) * (len(kernel.signature.parameters) - len(args))
    signature = kernel.coming_signature((*args, *unknown), {})
    return None if signature is None else kernel.traced_ahead(signature, goes_on)


def called(engine: Engine, p: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls `first` and waits for it; its code is there once all other kernels are compiled that may be."""
    build, is_done = engine._build, threading.Event()
    candidates = engine.ahead.candidates

    def late(ir: object, *given: object) -> object:
        assert ir.name != "first" or is_done.wait(timeout=60)
        return build(ir, *given)

    def noting(file: str, code: object) -> Iterator[object]:
        yield from candidates(file, code)
        while any(not job.code.done() for job in engine.ahead._jobs.values()):
            time.sleep(0.001)
        is_done.set()

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_build", late)
        patch.setattr(engine.ahead, "candidates", noting)
        p.first()
        assert p.x[3] == 3


def test_an_error_of_a_guess_is_none_of_a_call(engine, monkeypatch):
    """Kind: what is done beside a call ends the call."""

    def failing(*given: object) -> Iterator[object]:
        raise RecursionError
        yield

    p = program()
    monkeypatch.setattr(coming_calls, "coming_calls", failing)
    called(engine, p, monkeypatch)
    assert engine.ahead.n_begun == 1  # of the other kernel of the file


def test_a_first_call_uses_what_was_compiled_ahead(engine, monkeypatch):
    p = program()
    called(engine, p, monkeypatch)
    assert (engine.n_compiled, engine.ahead.n_begun, engine.ahead.n_used) == (2, 1, 0)
    p.second(1, ks.math.ivec2(5, 7))
    assert p.x[3] == 17
    found = ks.engine.stats()
    assert (found.n_compiled, found.n_ahead, found.n_ahead_used) == (2, 1, 1)


def test_templates_of_coming_calls_are_known(engine, monkeypatch):
    p = program()
    x = [ks.field(ks.i32, 8) for _ in range(3)]

    @ks.kernel
    def combined(a: ks.template(), b: ks.template(), c: ks.template(), d: ks.i32):
        for i in a:
            a[i] += b[i] * c + d

    def step():
        for k in range(2):
            combined(x[k], x[k + 1], 1 - k, p.x[3])

    called(engine, p, monkeypatch)
    assert engine.ahead.n_begun == 3 and engine.n_compiled == 4  # two of `combined`, and `second`
    step()
    assert x[0][3] == 3 and x[1][3] == 3
    assert engine.ahead.n_used == 2 and engine.n_compiled == 4


def test_guesses_that_were_wrong_are_few(engine, monkeypatch):
    p = program()
    x = p.x

    @ks.kernel
    def never(a: ks.template()):
        for i in x:
            x[i] += a

    called(engine, p, monkeypatch)
    if x[0] == 1:
        for k in range(60):
            never(k)
    assert engine.ahead.n_begun == 16 and engine.ahead.n_used == 0


def test_a_first_call_reads_globals_again(engine, monkeypatch):
    p = program()
    called(engine, p, monkeypatch)
    monkeypatch.setitem(globals(), "by", 4)
    p.second(1, ks.math.ivec2(5, 7))
    assert p.x[3] == 20
    assert (engine.n_compiled, engine.ahead.n_begun, engine.ahead.n_used) == (3, 1, 0)


def test_code_that_is_compiled_ahead_is_waited_for_and_compiled_once(engine, monkeypatch):
    p = program()
    build, is_asked, built = engine._build, threading.Event(), []

    def late(ir: object, *given: object) -> object:
        built.append(ir.name)
        if ir.name == "second":
            assert is_asked.wait(timeout=60)
        while ir.name == "first" and not engine.ahead.n_begun:
            time.sleep(0.001)
        return build(ir, *given)

    monkeypatch.setattr(engine, "_build", late)
    p.first()
    assert p.x[3] == 3
    p.second(1, ks.math.ivec2(5, 7))
    is_asked.set()
    assert p.x[3] == 17
    assert sorted(built) == ["first", "second"] and engine.ahead.n_used == 1


def with_trouble(p: SimpleNamespace) -> tuple[ks.kernel, type[Exception] | None]:
    """A kernel that is wrong, and its error."""
    x = p.x

    @ks.kernel
    def unknown():
        x[0] = nowhere  # noqa: F821

    return unknown, ks.LanguageError


def with_an_index(p: SimpleNamespace) -> tuple[ks.kernel, type[Exception] | None]:
    """A kernel that writes outside, which the engine sees before it compiles."""
    x = p.x

    @ks.kernel
    def outside():
        for i in range(8):
            x[i + 1] = 1

    return outside, IndexError


def with_a_warning(p: SimpleNamespace) -> tuple[ks.kernel, type[Exception] | None]:
    """A kernel whose read outside of a field gives a warning."""
    x = p.x

    @ks.kernel
    def warned():
        for i in range(8):
            x[i] = x[i + 1]

    return warned, RuntimeWarning


def with_a_print(p: SimpleNamespace) -> tuple[ks.kernel, type[Exception] | None]:
    x = p.x

    @ks.kernel
    def told():
        ks.static_print("compiled now")
        x[0] = 1

    return told, None


@pytest.mark.parametrize("make", [with_trouble, with_an_index, with_a_warning, with_a_print])
def test_a_kernel_says_nothing_before_its_call(engine, monkeypatch, capfd, make):
    p = program()
    kernel, error = make(p)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        called(engine, p, monkeypatch)
        assert capfd.readouterr() == ("", "")
        if error is None:
            kernel()
            assert "compiled now" in capfd.readouterr().out
        else:
            with pytest.raises(error):
                kernel()
    p.second(1, ks.math.ivec2(5, 7))  # as before
    assert engine.ahead.n_used == 1


def note(value: int = 1) -> int:
    noted.append(value)
    return value


class Notes:
    """Object that notes each look at it."""

    @property
    def value(self) -> int:
        return note()

    @property
    def __class__(self) -> type:
        note()
        return type(self)

    def __repr__(self) -> str:
        note()
        return "notes"


class OddNumber(int):
    @property
    def value(self) -> int:
        return note()


def effects() -> Iterator[ks.kernel]:
    """Kernels whose tracing runs code of the program, or makes something that the program may still change."""
    x, notes, odd = ks.field(ks.f32, 8), Notes(), OddNumber(3)
    loose, sparse = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, 4).place(sparse)

    @ks.func
    def inner():
        return ks.static(note())

    @ks.func
    def lazy(q: ks.template()):
        return q.grad[0]

    @ks.kernel
    def at_compile_time():
        x[0] = ks.static(note())

    @ks.kernel
    def by_a_function():
        x[0] = inner()

    @ks.kernel
    def plainly():
        x[0] = note()

    @ks.kernel
    def by_an_attribute():
        x[0] = notes.value

    @ks.kernel
    def by_an_attribute_of_a_number():
        x[0] = odd.value

    @ks.kernel
    def of_an_element():
        x[0] = ks.static(x[1])

    @ks.kernel
    def of_an_alias():
        y = x
        x[0] = ks.static(y.to_numpy()[0])

    @ks.kernel
    def of_a_gradient():
        x[0] = x.grad[0]

    @ks.kernel
    def of_a_gradient_in_a_function():
        x[0] = lazy(x)

    @ks.kernel
    def of_a_loose_field():
        loose[0] = 1.0

    @ks.kernel
    def of_a_tree_that_may_grow():
        sparse[0] = 1.0

    @ks.kernel
    def of_a_template(a: ks.template()):
        x[0] = a

    @ks.kernel
    def of_an_array(a: ks.types.ndarray()):
        x[0] = a[0]

    for kernel in list(locals().values()):
        if type(kernel).__name__ == "Kernel":
            yield kernel


def test_no_kernel_is_traced_whose_tracing_has_effects():
    ks.init()
    noted.clear()
    n_fields = None
    for kernel in effects():
        fields = current_program().fields
        n_fields = len(fields) if n_fields is None else n_fields
        assert traced(kernel) is None, kernel.name
        assert len(fields) == n_fields
    assert noted == []
    ks.reset()


def usual() -> Iterator[ks.kernel]:
    """Kernels as programs have them, whose tracing has no effects."""
    x, many = ks.Vector.field(2, ks.f32, 8), [ks.field(ks.f32, 8) for _ in range(2)]
    held = ks.Struct.field({"a": ks.f32, "b": ks.math.vec2}, shape=8)

    @ks.func
    def scaled(q: ks.template(), i, by=2.0):
        return q[i] * by + math.pi

    @ks.kernel
    def with_functions(a: float, b: ks.u8, c: bool):
        for i in x:
            x[i] = scaled(x, i) + ks.math.vec2(a, ks.cast(b, ks.f32)) + np.sqrt(2.0)
            if c:
                x[i].x = max(x[i].y, ks.sin(a))

    @ks.kernel
    def at_compile_time():
        for i in range(x.shape[0]):
            for d in ks.static(range(x.n)):
                x[i][d] = d
            for d, e in ks.static(ks.ndrange(2, 2)):
                many[d][i] += e
            for k in ks.static(range(len(many))):
                many[k][i] = k

    @ks.kernel
    def with_members() -> ks.f32:
        total = 0.0
        ks.loop_config(serialize=True)
        for i in range(8):
            held.b[i] += [held.a[i], 1.0]
            total += held[i].b.norm() + ks.Matrix.identity(ks.f32, 2)[0, 1]
        return total

    for kernel in list(locals().values()):
        if type(kernel).__name__ == "Kernel":
            yield kernel


def test_usual_kernels_are_traced_as_at_their_call():
    ks.init()
    for kernel in usual():
        found = traced(kernel)
        assert found is not None, kernel.name
        values = {float: 1.0, bool: True, ks.u8: 3}
        at_call = kernel.instantiate(*(values[a] for _, a in kernel.parameters))
        assert spelled(found.ir) == spelled(at_call)
    ks.reset()


def test_a_sparse_tree_that_is_in_use_changes_no_more():
    ks.init()
    sparse = ks.field(ks.f32)
    ks.root.pointer(ks.i, 4).place(sparse)

    @ks.kernel
    def write():
        sparse[1] = 2.0

    assert traced(write) is None
    sparse[0] = 1.0
    assert traced(write).ir.name == "write"
    write()
    assert traced(write) is None  # it has been called
    ks.reset()


def test_tracing_ends_when_the_time_for_it_is_over():
    p = program()
    asked = []
    with pytest.raises(TracingStoppedError):
        traced(p.second, goes_on=lambda: asked.append(1) or len(asked) < 2)
    assert len(asked) == 2
    ks.reset()


@pytest.mark.parametrize(("cores", "is_idle"), [(1, True), (2, False)])
def test_nothing_is_compiled_ahead_without_an_idle_core(tmp_path, monkeypatch, cores, is_idle):
    made = Engine(EngineOptions(folder=tmp_path / "kernels", cores=cores))
    monkeypatch.setattr(engine_room, "_engine", made)
    monkeypatch.setattr(ahead, "has_idle_core", lambda: is_idle)
    p = program()
    p.first()
    assert p.x[3] == 3
    assert made.ahead.n_begun == 0 and made.n_compiled == 1
    ks.reset()
    made.close()


def is_in_compiler(engine: Engine) -> bool:
    """True if a compiler runs ahead of a first call."""
    threads = compiler._RUNNING.values()
    return any(job.thread in threads for job in engine.ahead._unfinished)


def sleeping(engine: Engine, p: SimpleNamespace, patch: pytest.MonkeyPatch) -> None:
    """Calls `first` while the compiler of `second` does not end."""
    build = engine._build

    def slow(ir: object, *given: object) -> object:
        if ir.name == "second":
            given[-1]()
            run_compiler(["sleep", "300"], 400)
            raise OSError("ended")
        while ir.name == "first" and not is_in_compiler(engine):
            time.sleep(0.001)
        return build(ir, *given)

    patch.setattr(engine, "_build", slow)
    p.first()
    assert p.x[3] == 3
    assert is_in_compiler(engine)


def test_compilers_that_run_ahead_end_with_the_program(engine, monkeypatch):
    p = program()
    sleeping(engine, p, monkeypatch)
    begin = time.monotonic()
    engine_room.engine._wait_for_work(lambda: engine)  # as at the end
    assert not is_in_compiler(engine) and time.monotonic() - begin < 100


def test_compilers_of_calls_take_the_place_of_those_that_run_ahead(engine, monkeypatch):
    p = program()
    x = p.x

    @ks.kernel
    def more(a: ks.template()):
        for i in x:
            x[i] += a

    with monkeypatch.context() as patch:
        sleeping(engine, p, patch)
        values = iter((1, 2))  # which no guess knows
        more(next(values))
        more(next(values))  # both cores are needed
        assert p.x[3] == 6
    engine.ahead._pool.wait()
    n_used = engine.ahead.n_used
    p.second(1, ks.math.ivec2(5, 7))  # compiled again
    assert p.x[3] == 26 and engine.ahead.n_used == n_used


def test_an_interrupt_ends_the_wait_and_nothing_else(engine, monkeypatch):
    p = program()
    p.first()
    with monkeypatch.context() as patch:
        patch.setattr(ahead, "has_idle_core", lambda: signal.raise_signal(signal.SIGINT))
        patch.setattr(engine.ahead, "_has_core", lambda code: ahead.has_idle_core())
        with pytest.raises(KeyboardInterrupt):
            engine._compile_ahead(__file__, ahead.Work())
    p.second(1, ks.math.ivec2(5, 7))
    assert p.x[3] == 17


def test_a_child_of_fork_compiles_for_itself(engine, monkeypatch):
    p = program()
    with monkeypatch.context() as patch:
        sleeping(engine, p, patch)
        child = os.fork()
        if not child:
            patch.undo()
            code = 1
            try:
                p.second(1, ks.math.ivec2(5, 7))
                code = 0 if p.x[3] == 17 and not is_in_compiler(engine) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert is_in_compiler(engine)  # the parent's goes on


def test_threads_wait_side_by_side(engine):
    p = program()
    p.first()
    threads = [threading.Thread(target=lambda: p.second(1, ks.math.ivec2(0, 0))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert p.x[3] == (3 * 3 + 1) * 3 + 1


def test_a_child_of_fork_ends_no_compiler_of_its_parent(engine, monkeypatch):
    p = program()
    with monkeypatch.context() as patch:
        sleeping(engine, p, patch)
        child = os.fork()
        if not child:
            compiler.end_compilers()
            os._exit(len(compiler._RUNNING))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        time.sleep(0.2)
        assert is_in_compiler(engine)


def test_what_is_stopped_is_not_waited_for(engine):
    def never(begins: Callable[[], None]) -> LoadedKernel:
        raise AssertionError("the program has ended")

    engine.ahead.end(print)
    code = engine.ahead.begin("key", never)
    code.wait(60.0)
    assert code.done() and type(code.exception()) is StoppedAheadError
    assert not engine.ahead._jobs


def test_what_a_call_has_claimed_is_not_stopped(engine):
    may_go, loaded = threading.Event(), object()

    def late(begins: Callable[[], None]) -> object:
        assert may_go.wait(timeout=60)
        begins()
        return loaded

    code = engine.ahead.begin("key", late)
    engine.ahead.claim("key")
    threading.Timer(0.1, may_go.set).start()
    engine.ahead.end(print)
    assert code.result() is loaded


def test_the_end_waits_for_no_text_that_is_being_written(engine):
    has_begun, may_go, seen = threading.Event(), threading.Event(), []

    def late(begins: Callable[[], None]) -> object:
        has_begun.set()
        assert may_go.wait(timeout=60)
        begins()
        seen.append("compiler")

    code = engine.ahead.begin("key", late)
    assert has_begun.wait(timeout=60)
    forgotten = []

    def forget(key: str) -> None:
        assert key in engine.ahead._jobs  # a call that comes now waits for the lock
        forgotten.append(key)

    engine.ahead.end(forget)
    assert forgotten == ["key"]
    may_go.set()
    assert type(code.exception()) is StoppedAheadError and not seen


def test_engines_without_compilers_have_statistics():
    ks.init()
    with engine_room.using(InterpretingEngine()):
        x = ks.field(ks.i32, 8)

        @ks.kernel
        def first():
            for i in x:
                x[i] = i

        first()
        assert x[3] == 3
        found = ks.engine.stats()
        assert (found.n_compiled, found.n_ahead, found.n_ahead_used) == (0, 0, 0)
    ks.reset()
