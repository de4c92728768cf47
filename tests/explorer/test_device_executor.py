"""Programs on a device: kernels run there, and Python sees what they leave, whenever it reads and writes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.text.source import Source
from kernelscape.explorer import device_executor, device_kernels
from kernelscape.explorer.device_executor import DeviceExecutor, executor_on
from kernelscape.kernels.ir.errors import KernelAssertionError, KernelRuntimeError
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.engine.device_arrays import DeviceArrays
from kernelscape.testing import gpu_checking

ABSENT = {name: made for name in ("emulator", "cuda") if isinstance(made := executor_on(name), str)}
ON = [
    pytest.param(
        getattr(ks, name), marks=pytest.mark.skipif(name in ABSENT, reason=ABSENT.get(name, ""))
    )
    for name in ("emulator", "cuda")
]
on_each = pytest.mark.parametrize("arch", ON)
on_emulator = pytest.mark.skipif("emulator" in ABSENT, reason=ABSENT.get("emulator", ""))


@pytest.fixture(autouse=True)
def _no_program_afterwards() -> Iterator[None]:
    yield
    ks.reset()


def backends() -> set[str]:
    """The backends that ran kernels of the program."""
    return {name for runs in ks.engine.stats().runs.values() for name in runs}


def steps_of_a_program() -> tuple[Any, ...]:
    """Contents of dense and sparse fields, of arrays and of results, as Python sees them between calls that change them."""
    x, n = ks.field(ks.f32, (37, 5)), ks.field(ks.i32, ())
    v = ks.Vector.field(2, ks.f32, 8)
    s = ks.field(ks.i32)
    block = ks.root.pointer(ks.i, 8)
    block.dense(ks.i, 4).place(s)

    @ks.kernel
    def fill(a: ks.f32):
        for i, j in x:
            x[i, j] = a * i + j

    @ks.kernel
    def total(weights: ks.types.ndarray()) -> ks.f32:
        found = 0.0
        for i, j in x:
            found += x[i, j] * weights[j]
        return found

    @ks.kernel
    def turn(out: ks.types.ndarray()):
        for i in v:
            v[i] = ks.Vector([v[i][1], x[i, 0]])
            out[i] = v[i][0] + v[i][1]

    @ks.kernel
    def activate(begin: ks.i32):
        for i in range(3):
            s[(begin + 9 * i) % 32] = i + 1
        n[None] += 3

    @ks.kernel
    def grow():
        for i in s:
            s[i] += 10

    @ks.kernel
    def drop():
        ks.deactivate(block, [0])

    fill(0.5)
    weights, out = np.arange(5, dtype=np.float32), np.zeros(8, np.float32)
    first = total(weights)
    x[3, 0] = 100  # from Python, between two kernels
    weights[:] = 1
    second = total(weights)
    v.fill(3)
    turn(out)
    v[2][1] += 1
    turn(out)
    activate(1)
    grow()
    seen = s.to_numpy()
    s[31] = 7
    drop()
    activate(5)
    grow()
    return first, second, out, v.to_numpy(), x.to_numpy(), seen, s.to_numpy(), n[None]


@on_each
def test_programs_compute_what_they_do_on_the_cpu(
    arch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Every kernel runs on the device, and NVRTC takes the texts for both architectures."""
    sources: list[Source] = []
    plain = device_kernels.print_source

    def kept(*given: Any) -> Source:
        sources.append(plain(*given))
        return sources[-1]

    monkeypatch.setattr(device_kernels, "print_source", kept)
    ks.init()
    with ks.interpret():
        wanted = steps_of_a_program()
    ks.init(arch=arch)
    assert ks.cfg.arch is arch
    found = steps_of_a_program()
    for a, b in zip(found, wanted, strict=True):
        assert np.allclose(a, b, rtol=1e-6)
    assert ks.engine.stats().backend == arch.value and backends() == {arch.value}
    assert {"fill", "total", "turn", "activate", "grow", "drop"} <= ks.engine.stats().runs.keys()
    for sheet in gpu_checking.SHEETS if has_compiler() else ():
        options = DeviceOptions(build_folder=tmp_path, profile=sheet, compile_timeout_s=240.0)
        reporter = open_device("cuda", options).reporter
        reports = [reporter.report(source) for source in sources]
        assert not [r.log for r in reports if isinstance(r, Failure)]


def has_compiler() -> bool:
    """True if NVRTC is here."""
    try:
        return bool(open_device("cuda").reporter.version())
    except DeviceError:
        return False


@on_each
def test_a_full_tree_is_an_error_of_the_call_and_of_no_later_one(arch: Any) -> None:
    """An assertion at the end of a kernel is told by the device."""
    ks.init(arch=arch)
    s = ks.field(ks.i32)
    ks.root.dynamic(ks.i, 4, chunk_size=4).place(s)

    @ks.kernel
    def put(i: ks.i32):
        s[i] = 1

    with pytest.raises(KernelAssertionError, match="outside"):
        put(4)
    put(2)
    assert s[2] == 1 and backends() == {arch.value}


@on_each
def test_what_a_device_cannot_run_runs_on_the_cpu_after_one_sentence(
    arch: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Fields go back and forth between the device and the CPU."""
    ks.init(arch=arch)
    x = ks.field(ks.i32, 4)

    @ks.kernel
    def add():
        for i in x:
            x[i] += 1

    @ks.kernel
    def tell():
        print(x[0])
        x[1] = 50

    add()
    with pytest.warns(RuntimeWarning, match="the kernel tell runs on the CPU, since it prints"):
        tell()
    add()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell()
    assert capfd.readouterr().out == "1\n2\n" and x.to_numpy().tolist() == [2, 50, 2, 2]
    assert ks.engine.stats().runs == {"add": {arch.value: 2}, "tell": {"cpu": 2}}


@on_each
def test_memory_that_others_see_is_copied_at_each_call(arch: Any) -> None:
    ks.init(arch=arch)
    x, y = ks.field(ks.i32, 4), ks.field(ks.i32, 4)

    @ks.kernel
    def add():
        for i in x:
            y[i] += x[i]

    add()
    seen = np.from_dlpack(x)
    for _ in range(2):
        seen[...] = seen + 1
        add()
    assert y.to_numpy().tolist() == [3] * 4 and backends() == {arch.value}


@on_emulator
def test_the_emulator_names_an_access_out_of_bounds() -> None:
    ks.init(arch=ks.emulator)
    x, at = ks.field(ks.i32, 4), ks.field(ks.i32, 4)

    @ks.kernel
    def scatter():
        for i in at:
            x[at[i]] = i

    at.fill(1 << 20)
    with pytest.raises(KernelRuntimeError, match="kernel scatter on the emulator: launch_0, "):
        scatter()


@on_emulator
def test_arrays_that_are_read_only_are_refused_as_on_the_cpu() -> None:
    ks.init(arch=ks.emulator)

    @ks.kernel
    def copy(a: ks.types.ndarray(), b: ks.types.ndarray()):
        for i in a:
            a[i] = b[i]

    a = np.zeros(8, np.float32)
    copy(a[:4], a[2:6])  # of which the frontend copies one
    a.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        copy(a, np.ones(8, np.float32))


def test_no_device_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """`debug` checks indices and asserts, which a device does not."""
    ks.init(arch=ks.emulator, debug=True)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "debug=True" in said and "runs on the CPU" in said
    assert ks.cfg.arch is ks.cpu and ks.engine.stats().backend == "cpu"


@on_each
def test_arrays_that_overlap_are_one_memory(arch: Any) -> None:
    """A copy goes back to the host before another view of its memory is copied to the device."""
    made = executor_on(arch.value)
    assert isinstance(made, DeviceExecutor)
    arrays = DeviceArrays(open_device(arch.value).runner)
    whole = np.zeros(8, np.int32)
    arrays.on_device(whole, is_written=True).upload(np.arange(8, dtype=np.int32))
    assert arrays.are_used and not whole.any()
    part = arrays.on_device(whole[2:4], is_written=False)
    assert part.download().tolist() == [2, 3] and whole.tolist() == list(range(8))
    arrays.to_host()
    assert not arrays.are_used
    whole[2] = 9
    assert arrays.on_device(whole[2:4], is_written=False).download().tolist() == [9, 3]


def n_mappings() -> int:
    """The number of mappings of this process's memory, of which it may have some ten thousands."""
    return Path("/proc/self/maps").read_text().count("\n")


@on_emulator
def test_modules_map_what_they_need_and_go_with_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guard pages of stacks took 2,048 mappings a kernel."""
    held: list[device_kernels.DeviceKernel] = []
    make = device_executor.make_kernel
    monkeypatch.setattr(
        device_executor, "make_kernel", lambda *given: held.append(make(*given)) or held[-1]
    )
    ks.init(arch=ks.emulator)
    x = ks.field(ks.i32, 700)

    @ks.kernel
    def add():
        for i in x:
            x[i] += 1

    before = n_mappings()
    add()
    assert x[699] == 1 and len(held) == 1
    during = n_mappings()
    ks.reset()
    assert 100 < during - before < 1000
    assert n_mappings() < during - 100
