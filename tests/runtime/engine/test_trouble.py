"""The engine where things go wrong: assertions from several threads, forks, folders that cannot be written, torn files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import closing
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.ir import kernel
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.engine import building, toolchain
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.files import is_torn
from kernelscape.runtime.scratch import Scratch

pytestmark = pytest.mark.compiler


@ks.kernel
def doubled(y: ks.types.ndarray()):
    for i in y:
        y[i] *= 2.0


@ks.kernel
def tripled(y: ks.types.ndarray()):
    for i in y:
        y[i] *= 3.0


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    return EngineOptions(folder=tmp_path / "kernels", cores=2)


def runs(engine: Engine) -> bool:
    y = np.ones(5)
    engine.run(doubled.instantiate(y), (y,), ())
    return bool((y == 2.0).all())


def asserting(line: int, n: int = 1000) -> kernel.KernelIR:
    """Asserts that no element of x is negative."""
    where = kernel.Location("kernels.py", line)
    value = kernel.Load("x", (kernel.LoopIndex("i"),), kernel.DType.f64)
    claim = kernel.Assert(
        kernel.Compare("ge", value, kernel.Const(0.0, kernel.DType.f64)),
        "negative: ",
        (value,),
        where,
    )
    more = kernel.Store(
        "x",
        (kernel.LoopIndex("i"),),
        kernel.Binary("add", value, kernel.Const(1.0, kernel.DType.f64), kernel.DType.f64),
        where,
    )
    loop = kernel.For("i", kernel.Const(n, kernel.DType.i64), (claim, more), where)
    return kernel.KernelIR(
        "asserting", (kernel.ArrayParam("x", kernel.DType.f64, (n,)),), (), (loop,), where
    )


def test_an_assertion_that_fails_is_that_of_its_own_call(options):
    n = 20_000
    ir, engine, wrong = asserting(1, n), Engine(replace(options, cores=1)), list[str]()
    engine.run(ir, (np.ones(n),), ())

    def calls(sign: float) -> None:
        for _ in range(300):
            try:
                engine.run(ir, (np.full(n, sign),), ())
                found = ""
            except AssertionError as e:
                found = str(e)
            if found.startswith("kernels.py:1: negative: -1") != (sign < 0):
                wrong.append(found)

    threads = [threading.Thread(target=calls, args=(sign,)) for sign in (1.0, -1.0, 1.0, -1.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_assertion_names_the_line_where_it_stands_now(options):
    for line in (3, 8):
        with pytest.raises(AssertionError, match=rf"^kernels\.py:{line}: negative"):
            Engine(options).run(asserting(line), (np.full(1000, -1.0),), ())


def test_a_child_of_fork_compiles_what_is_new(options):
    engine = Engine(options)
    engine.prepare([doubled.instantiate(np.ones(9))])
    assert runs(engine)  # two threads of the pool are there now
    y = np.ones(5)
    ir = tripled.instantiate(y)
    with engine._lock:  # as where another thread holds it
        held = threading.Event()
        pid = fork_from_another_thread(engine, ir, y, held)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0  # -SIGALRM: it hung


def fork_from_another_thread(engine, ir, y, held) -> int:
    """The process that runs a kernel, forked while this thread holds what it holds."""
    pids: list[int] = []

    def fork() -> None:
        pid = os.fork()
        if pid:
            pids.append(pid)
            return
        signal.alarm(30)
        try:
            engine.run(ir, (y,), ())
            os._exit(0 if (y == 3.0).all() else 1)
        finally:
            os._exit(2)

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    return pids[0]


def test_a_folder_that_cannot_be_made_is_replaced_for_this_process(options):
    with closing(Engine(replace(options, folder=Path("/proc/none/kernels")))) as engine:
        with pytest.warns(RuntimeWarning, match=r"this process only: /proc/none/kernels cannot be"):
            assert runs(engine)
        y = np.ones(5)
        engine.run(tripled.instantiate(y), (y,), ())  # says nothing more
        assert (y == 3.0).all()


def test_what_a_folder_holds_is_used_where_it_cannot_be_written(options, monkeypatch):
    before = Engine(options)
    assert runs(before)
    before.close()

    def read_only(self: Scratch, prefix: str, parent: Path | None = None) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Scratch, "__init__", read_only)
    engine = Engine(options)
    assert runs(engine)
    y = np.ones(5)
    with pytest.warns(RuntimeWarning, match="interpreter, slowly: .*Permission denied"):
        engine.run(tripled.instantiate(y), (y,), ())
    assert (y == 3.0).all()


def test_where_no_room_is_left_code_is_made_elsewhere(options, monkeypatch):
    build = building.build_kernel

    def full(ir, text, compiler, target, timeout_s):
        if target.parent == options.folder:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        return build(ir, text, compiler, target, timeout_s)

    monkeypatch.setattr(building, "build_kernel", full)
    with closing(Engine(options)) as engine, pytest.warns(RuntimeWarning, match="No space left"):
        assert runs(engine)


def test_a_compiler_that_finds_no_room_is_no_bug_of_the_kernel(options, monkeypatch):
    build = building.build_kernel

    def full(ir, text, compiler, target, timeout_s):
        if target.parent == options.folder:
            return Failure("compile", "the compiler ended with status 1")
        return build(ir, text, compiler, target, timeout_s)

    options.folder.mkdir()
    monkeypatch.setattr(building, "build_kernel", full)
    usage = shutil.disk_usage(tempfile.gettempdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=0))
    with closing(Engine(options)) as engine, pytest.warns(RuntimeWarning, match="No space left"):
        assert runs(engine)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"identity": 1}'])
def test_a_torn_note_of_the_compiler_is_written_anew(options, text, monkeypatch):
    options.folder.mkdir()
    place = options.folder / "compiler.json"
    place.write_text(text)
    found = toolchain.engine_compiler(options.folder)
    monkeypatch.setattr(toolchain, "find_compiler", lambda wanted: pytest.fail("looked again"))
    assert toolchain.engine_compiler(options.folder) == found


@pytest.mark.parametrize(
    ("kept", "filling"), [(0, b""), (40, b""), (0.5, b""), (-1, b""), (0.5, b"\0")]
)
def test_torn_libraries_are_made_again(options, kept, filling):
    first = Engine(options)
    assert runs(first)
    first.close()
    for library in options.folder.glob("*.so"):
        # What is loaded stays as it is: another file takes its name.
        whole = library.read_bytes()
        n = int(len(whole) * kept) if isinstance(kept, float) else kept
        library.unlink()
        library.write_bytes(whole[:n] + filling * (len(whole) - n))
        assert is_torn(library)
    again = Engine(options)
    assert runs(again)
    assert again._quick is not None or again._extension.result() is not None  # built again, too
    assert not any(map(is_torn, options.folder.glob("*.so")))


# --- other people's code


def planted(library: Path) -> Path:
    """A library in the place of another, of the text of which it takes the entry; the file that it makes where it runs."""
    mark = library.with_name("it_ran")
    source = library.with_name("evil.c")
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void f(void)"
        f' {{ fclose(fopen("{mark}", "w")); }}\n'
    )
    library.unlink()
    command = ["gcc", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return mark


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_library_of_another_user_is_made_again(options):
    """Of a kind with the team's and the extension's: nothing that somebody else put into the folder runs."""
    first = Engine(options)
    assert runs(first)
    first.close()
    n_kept = 0
    for library in list(options.folder.glob("*.so")):
        mark = planted(library)
        os.chown(library, 12345, 12345)
        n_kept += 1
    with closing(Engine(options)) as again:
        assert runs(again)
        assert again._quick is not None or again._extension.result() is not None
    assert n_kept > 1
    assert not mark.exists()


def test_a_folder_that_others_may_write_to_is_not_used(options):
    options.folder.mkdir()
    options.folder.chmod(0o777)
    with closing(Engine(options)) as engine, pytest.warns(RuntimeWarning, match="others may write"):
        assert runs(engine)
    assert list(options.folder.iterdir()) == []


def test_the_compiler_that_a_stranger_notes_is_not_run(options):
    options.folder.mkdir()
    found = toolchain.engine_compiler(options.folder)
    note = options.folder / "compiler.json"
    note.write_text(note.read_text().replace(f'"path": "{found.path}', '"path": "/bin/false'))
    assert toolchain.engine_compiler(options.folder).path == "/bin/false"
    note.chmod(0o666)
    assert toolchain.engine_compiler(options.folder) == found
