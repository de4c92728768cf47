"""Mappings of memory, of which a process may have so many: kernels take two each, and those that are gone none.

The kind: what is made for an object stays when the object is gone.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.ir.kernel import KernelIR
from kernelscape.runtime.api.backend import AbstractCaller
from kernelscape.runtime.cpu.compiler import IN_TWO_PARTS
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.engine.loaded import LoadedKernel, caller_of
from kernelscape.runtime.engine.work import Work

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="mappings are told by Linux"),
]
N = 40_000  # long enough for threads


@ks.kernel
def add_at(y: ks.types.ndarray(), at: ks.types.ndarray(), a: ks.f32):
    for i in at:
        y[at[i]] += a


def instance() -> tuple[KernelIR, tuple[Any, ...]]:
    """An instance that nothing else holds, and what it is called with."""
    given = np.zeros(N, np.float32), np.arange(N, dtype=np.int32)
    made = add_at.instantiate(*given, 1.0)
    add_at._instances.clear()
    return made, (*given, 1.0)


def n_mappings(*libraries: Path) -> int:
    """Those that this process has of some files."""
    gc.collect()
    ends = tuple(f" {library}" for library in libraries)
    return sum(x.endswith(ends) for x in Path("/proc/self/maps").read_text().splitlines())


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    made = Engine(EngineOptions(folder=tmp_path_factory.mktemp("kernels"), cores=4))
    ir, _ = instance()
    made.prepared(ir)
    assert made._extension is not None
    made._extension.result()
    return made


def library_of(engine: Engine, ir: KernelIR) -> Path:
    return engine.options.folder / f"{engine._key(ir)}.so"


def extension_of(engine: Engine, way: str) -> Any | None:
    found: Work[Any] | None = engine._extension
    assert found is not None
    return found.result() if way == "quick" else None


def test_a_kernel_takes_two_mappings_and_leaves_none(engine: Engine) -> None:
    for _ in range(2):
        ir, given = instance()
        library = library_of(engine, ir)
        engine.run(ir, given[:2], given[2:])
        assert (given[0] == 1).all()
        compiler = engine._compiler
        assert compiler is not None
        assert n_mappings(library) == 2 or IN_TWO_PARTS not in compiler.linked
        del ir
        assert n_mappings(library) == 0
        assert not engine._kernels.codes


def test_kernels_that_are_compiled_and_never_called_leave_none(engine: Engine) -> None:
    ir, _ = instance()
    engine.prepare([ir])
    library = library_of(engine, ir)
    wanted = engine._kernels.get(ir)
    assert wanted is not None
    wanted.result()
    assert n_mappings(library) > 0
    del ir, wanted
    assert n_mappings(library) == 0


@pytest.mark.parametrize("way", ["quick", "plain"])
def test_a_caller_holds_the_code_that_it_calls(engine: Engine, way: str) -> None:
    """Also where it has addresses only."""
    ir, given = instance()
    library = library_of(engine, ir)
    caller: AbstractCaller = caller_of(extension_of(engine, way), LoadedKernel(library), ir)
    gone = weakref.ref(ir)
    del ir
    assert n_mappings(library) > 0 and gone() is None
    assert caller(*given) and (given[0] == 1).all()
    given[1][7] = N
    assert not caller(*given)  # an index outside: the code that looks at it is there, too
    del caller
    assert n_mappings(library) == 0


def test_finalizers_in_cycles_may_call_kernels(engine: Engine) -> None:
    """Weak references are called back before: code that goes with one of these would be gone."""
    ir, given = instance()
    library = library_of(engine, ir)
    results = []

    class Owner:
        def __init__(self) -> None:
            self.caller = caller_of(extension_of(engine, "quick"), LoadedKernel(library), ir)
            self.cycle = self

        def __del__(self) -> None:
            results.append(self.caller(*given))

    Owner()
    assert n_mappings(library) == 0
    assert results == [True] and (given[0] == 1).all()


def test_threads_call_and_drop_kernels(engine: Engine, tmp_path: Path) -> None:
    """Threads of the team are still awake when the code that they ran is unmapped."""
    ir, _ = instance()
    copies = [
        Path(shutil.copy(library_of(engine, ir), tmp_path / f"{k}.so")).resolve() for k in range(32)
    ]
    results = []

    def call(mine: list[Path]) -> None:
        for library in mine:
            given = np.zeros(N, np.float32), np.arange(N, dtype=np.int32), 1.0
            caller = caller_of(extension_of(engine, "quick"), LoadedKernel(library), ir)
            results.append(caller(*given) and (given[0] == 1).all())

    threads = [threading.Thread(target=call, args=(copies[k::4],)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * len(copies)
    assert n_mappings(*copies) == 0


def test_a_child_of_fork_goes_on_with_what_was_called(engine: Engine) -> None:
    ir, given = instance()
    engine.run(ir, given[:2], given[2:])
    child = os.fork()
    if child == 0:
        engine.run(ir, given[:2], given[2:])
        library = library_of(engine, ir)
        is_right = (given[0] == 2).all() and n_mappings(library) > 0
        del ir
        os._exit(0 if is_right and n_mappings(library) == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (given[0] == 1).all()


_AT_THE_LIMIT = """
import ctypes, mmap, sys
from kernelscape.runtime.device import DeviceError
from kernelscape.runtime.library import load_library

first, second = sys.argv[1:]
cycle = [load_library(first)]
cycle.append(cycle)
libc, n = ctypes.CDLL(None, use_errno=True), int(open("/proc/sys/vm/max_map_count").read())
libc.mmap.restype, libc.munmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
protect = libc.mprotect
protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
flags, page = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PAGESIZE
size = 2 * n * page
begin = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, flags, -1, ctypes.c_size_t(0))
for k in range(1, n):
    if protect(begin + 2 * k * page, page, 0) != 0:
        break
try:
    load_library(second)
    print("loaded")
except DeviceError as e:
    print(e)
del cycle
held = load_library(second)
try:
    load_library(first)
except DeviceError as e:
    libc.munmap(begin, size)
    print(e)
"""


def test_a_process_that_may_have_no_more_is_told_so(engine: Engine, tmp_path: Path) -> None:
    """Libraries that only cycles hold are closed before; of those that are held a sentence tells."""
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    if most > 200_000:
        pytest.skip("the system allows too many mappings to have them all")
    ir, _ = instance()
    copies = [shutil.copy(library_of(engine, ir), tmp_path / f"{k}.so") for k in range(2)]
    found = subprocess.run(
        [sys.executable, "-c", _AT_THE_LIMIT, *map(str, copies)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 0, found.stderr
    said = found.stdout.splitlines()
    assert len(said) == 2
    for name, line in zip(("1.so", "0.so"), said, strict=True):
        assert f"{name} cannot be loaded: the process has" in line
        assert line.endswith(f"sysctl -w vm.max_map_count={4 * most}")
