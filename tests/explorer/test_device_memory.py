"""Memory of a program's device: Python copies what it reads, and other libraries use it by DLPack without a copy."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer.device_executor import executor_on
from kernelscape.kernels.fields.device_memory import CPU, DeviceMemory, LentTensor
from kernelscape.kernels.ir.errors import KernelRuntimeError
from kernelscape.runtime.cpu.guarded_arrays import CpuArray

ABSENT = executor_on("emulator")
on_emulator = pytest.mark.skipif(isinstance(ABSENT, str), reason=str(ABSENT))


@pytest.fixture(autouse=True)
def _no_program_afterwards() -> Iterator[None]:
    yield
    ks.reset()


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """The copies between host and device, each with the shape of its array."""
    said: list[tuple[str, tuple[int, ...]]] = []
    upload, download = CpuArray.upload, CpuArray.download

    def up(self: CpuArray, values: Any) -> None:
        said.append(("up", self.shape))
        upload(self, values)

    def down(self: CpuArray) -> Any:
        said.append(("down", self.shape))
        return download(self)

    monkeypatch.setattr(CpuArray, "upload", up)
    monkeypatch.setattr(CpuArray, "download", down)
    return said


def two_fields() -> tuple[Any, Any, Any]:
    """Fields of 3 and of 5 numbers, and a kernel that adds 1 to both."""
    x, y = ks.field(ks.i32, 3), ks.field(ks.i32, 5)

    @ks.kernel
    def add():
        for i in x:
            x[i] += 1
        for i in y:
            y[i] += 1

    return x, y, add


@on_emulator
def test_python_copies_what_it_reads(copied: list[Any]) -> None:
    """A read leaves the device's memory as it is; a write is uploaded by the next kernel."""
    ks.init(arch=ks.emulator)
    x, y, add = two_fields()
    add()
    assert copied == [("up", (3,)), ("up", (5,))]
    copied.clear()
    assert x[0] == 1 and x[2] == 1 and x.to_numpy().tolist() == [1] * 3
    assert copied == [("down", (3,))]
    add()
    y[4] = 10
    assert copied == [("down", (3,)), ("down", (5,))]
    add()
    assert copied[2:] == [("up", (5,))]
    assert x.to_numpy().tolist() == [3] * 3 and y.to_numpy().tolist() == [3, 3, 3, 3, 11]
    assert copied[3:] == [("down", (3,)), ("down", (5,))]


@on_emulator
def test_what_python_does_with_whole_fields_is_done_on_the_device(copied: list[Any]) -> None:
    """From the third time on, when a kernel for it is worth its compiler: nothing is copied then."""
    ks.init(arch=ks.emulator)
    x, y = ks.field(ks.i32, 4), ks.field(ks.i32, 4)
    s = ks.field(ks.i32)
    block = ks.root.pointer(ks.i, 4)
    block.dense(ks.i, 2).place(s)

    @ks.kernel
    def add():
        for i in x:
            x[i] += y[i]
            s[y[i]] = x[i]

    y.fill(3)
    for k in range(5):
        x.fill(k)
        y.copy_from(y if k < 2 else x)
        block.deactivate_all()
        if k == 4:
            copied.clear()
        add()
    assert copied == []
    assert x.to_numpy().tolist() == [8] * 4 and s.to_numpy().tolist() == [0, 0, 0, 0, 8, 0, 0, 0]


@on_emulator
def test_no_room_on_the_device_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    ks.init(arch=ks.emulator)
    x, y, add = two_fields()
    allocate = CpuArray.__init__

    def refuse(self: CpuArray, shape: Any, *given: Any, **named: Any) -> None:
        if shape == (5,):
            raise MemoryError("the GPU has no 20 bytes left")
        allocate(self, shape, *given, **named)

    monkeypatch.setattr(CpuArray, "__init__", refuse)
    beside = (
        "there is no room for an array of 20 bytes beside 12 of others: the GPU has no 20 bytes"
    )
    with pytest.raises(KernelRuntimeError, match=f"kernel add on the emulator: {beside}"):
        add()
    with pytest.raises(KernelRuntimeError, match=f"a field on the emulator: {beside}"):
        np.from_dlpack(y)
    assert x.to_numpy().tolist() == [0] * 3


@on_emulator
def test_trees_are_one_memory(copied: list[Any]) -> None:
    """A read of a sparse field copies the tree, and no other field."""
    ks.init(arch=ks.emulator)
    x, y, add = two_fields()
    s = ks.field(ks.i32)
    ks.root.pointer(ks.i, 8).dense(ks.i, 4).place(s)

    @ks.kernel
    def put():
        for i in range(4):
            s[7 * i] = i + 1

    add()
    put()
    copied.clear()
    assert s[14] == 3 and s[13] == 0 and ("down", (3,)) not in copied
    n = len(copied)
    assert s[21] == 4 and len(copied) == n
    s[30] = 5
    put()
    add()
    assert s.to_numpy()[[0, 7, 14, 21, 30]].tolist() == [1, 2, 3, 4, 5] and x[0] == y[0] == 2


@on_emulator
def test_other_libraries_use_the_memory_of_the_device(copied: list[Any]) -> None:
    """Writes of other libraries are there for kernels and for Python, without a copy at each call."""
    ks.init(arch=ks.emulator)
    x, y, add = two_fields()
    add()
    seen = np.from_dlpack(x)
    assert seen.ctypes.data != x.storage.ctypes.data and seen.flags.writeable
    add()
    assert seen.tolist() == [2] * 3
    copied.clear()
    seen[1] = 40
    add()
    assert not copied and seen.tolist() == [3, 41, 3]
    assert x.to_numpy().tolist() == [3, 41, 3] and y[0] == 3
    seen[2] = 7  # behind a read, and a read of another field
    assert y[1] == 3 and x[2] == 7
    x[0] = 9  # from Python: there behind the next call of a kernel, or ks.sync()
    add()
    assert seen.tolist() == [10, 42, 8]
    x[0] = 1
    ks.sync()
    assert seen.tolist() == [1, 42, 8]
    seen[0] = 2
    assert x.to_numpy().tolist() == [2, 42, 8]


@on_emulator
def test_what_runs_on_the_cpu_writes_to_lent_memory(capfd: pytest.CaptureFixture[str]) -> None:
    ks.init(arch=ks.emulator)
    x, _, add = two_fields()

    @ks.kernel
    def tell():
        x[1] = 50
        print(x[0])

    seen, other = np.from_dlpack(x), np.from_dlpack(x)
    seen[0] = 5
    with pytest.warns(RuntimeWarning, match="it prints"):
        tell()
    assert capfd.readouterr().out == "5\n" and seen.tolist() == other.tolist() == [5, 50, 0]
    add()
    del seen, other
    gc.collect()
    add()
    assert x.to_numpy().tolist() == [7, 52, 2]


@on_emulator
def test_vectors_have_their_components_last() -> None:
    ks.init(arch=ks.emulator)
    v, n = ks.Vector.field(2, ks.f64, (3, 4)), ks.field(ks.i64, ())

    @ks.kernel
    def fill():
        for i, j in v:
            v[i, j] = ks.Vector([i, 10 * j])
        n[None] = 5

    whole, second, one = np.from_dlpack(v), np.from_dlpack(v.get_scalar_field(1)), np.from_dlpack(n)
    fill()
    assert whole.shape == (3, 4, 2) and whole[2, 3].tolist() == [2, 30]
    assert second.shape == (3, 4) and second[0].tolist() == [0, 10, 20, 30]
    assert one.shape == () and one == 5
    second[2, 3] = 7
    assert v[2, 3][1] == 7


@on_emulator
def test_tensors_keep_the_memory_and_copies_are_copies() -> None:
    ks.init(arch=ks.emulator)
    x, _, add = two_fields()
    add()
    seen, copy = np.from_dlpack(x), np.from_dlpack(x, copy=True)
    add()
    ks.reset()
    gc.collect()
    seen += 1
    assert seen.tolist() == [3] * 3 and copy.tolist() == [1] * 3


@on_emulator
def test_to_torch_copies_within_the_memory_of_its_device(
    monkeypatch: pytest.MonkeyPatch, copied: list[Any]
) -> None:
    class Taken:
        device = SimpleNamespace(type="cpu")

        def __init__(self, array: Any) -> None:
            self.array = array

        def clone(self) -> Taken:
            return Taken(self.array.copy())

        def contiguous(self) -> Taken:
            return self

    module = SimpleNamespace(
        from_dlpack=lambda x: Taken(np.from_dlpack(x)),
        from_numpy=lambda x: SimpleNamespace(to=lambda device: (x.copy(), device)),
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    ks.init(arch=ks.emulator)
    x, _, add = two_fields()
    add()
    tensor = x.to_torch()
    add()
    assert tensor.array.tolist() == [1] * 3
    assert copied == [("up", (3,)), ("up", (5,))]
    assert not x.is_lent
    values, device = x.to_torch("xpu:1")  # through the host
    assert values.tolist() == [2] * 3 and device == "xpu:1" and copied[2:] == [("down", (3,))]


DTYPES = [np.dtype(t) for t in "?bBhHiIqQefd"]


class Owner:
    """Owner of memory, whose end can be seen."""


def lent(array: Any, owner: object, kind: int = CPU) -> LentTensor:
    return LentTensor.of(DeviceMemory(array.ctypes.data, (kind, 0), owner), array, array)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_capsules_name_type_shape_and_strides(dtype: Any) -> None:
    whole = np.arange(24).reshape(4, 6).astype(dtype)
    view = whole[::2, 1::2].T
    memory = DeviceMemory(whole.ctypes.data, (CPU, 0), whole)
    seen = np.from_dlpack(LentTensor.of(memory, whole, view))
    assert seen.dtype == dtype and seen.tolist() == view.tolist() and seen.strides == view.strides
    seen[1, 1] = 0
    assert whole[2, 3] == 0


@pytest.mark.parametrize("version", [None, (1, 0), (2, 7)])
def test_memory_is_freed_with_its_last_tensor(version: Any) -> None:
    array, owner = np.arange(4), Owner()
    gone = weakref.ref(owner)
    tensor = lent(array, owner)
    del owner
    unused = tensor.__dlpack__(max_version=version)
    name = b"dltensor" if version is None else b"dltensor_versioned"
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    assert is_valid(unused, name) == 1
    seen = np.from_dlpack(tensor)
    del tensor
    gc.collect()
    assert gone() is not None
    del unused
    assert gone() is not None and seen.tolist() == [0, 1, 2, 3]
    del seen
    gc.collect()
    assert gone() is None


def test_memory_of_a_gpu_is_not_taken_for_the_hosts() -> None:
    tensor = lent(np.arange(4), None, 2)
    assert tensor.__dlpack_device__() == (2, 0)
    with pytest.raises(BufferError, match="without a copy"):
        tensor.__dlpack__(dl_device=(CPU, 0))
