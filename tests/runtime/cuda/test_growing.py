"""Arrays that grow at one address: calls of a driver that keeps a GPU's addresses on the host, and refuses what CUDA refuses."""

from __future__ import annotations

import ctypes
import gc
import mmap

import numpy as np
import pytest
from kernelscape.runtime.cuda import growing, memory, runner
from kernelscape.runtime.cuda.growing import GrowingArray
from kernelscape.runtime.cuda.reserved import ReservedMemory, is_supported
from kernelscape.runtime.cuda.runner import CudaRunner

from . import fake_pycuda

PAGE = 1 << 16
INVALID, OUT_OF_MEMORY, NOT_PERMITTED = 1, 2, 800


def number(x):
    """The value of an argument, as C gets it: a pointer to a structure stays one."""
    return x.value if isinstance(x, ctypes._SimpleCData) else x


class Driver:
    """Addresses are those of a mapping without access; pages can be used once they are mapped and access is set."""

    def __init__(self, most_bytes=1 << 30):
        self.most_bytes = most_bytes
        self.ranges, self.handles, self.mapped = {}, {}, {}
        self.said = []
        self.refuse = {}  # status of calls, by name
        self.libc = ctypes.CDLL(None)

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *x: self._call(name, *map(number, x))

    def _call(self, name, *x):
        self.said.append(name)
        return self.refuse.get(name) or getattr(self, f"_{name}")(*x)

    def _cuGetErrorString(self, status, to):
        to._obj.value = b"out of memory" if status == OUT_OF_MEMORY else b"invalid"
        return 0

    def _cuDeviceGetAttribute(self, to, attribute, device):
        assert (attribute, device) == (102, 0)
        to._obj.value = 1
        return 0

    def _cuMemGetAllocationGranularity(self, to, properties, option):
        self._check(properties)
        to._obj.value = PAGE
        return 0

    def _check(self, properties):
        """A pinned allocation of the first GPU, in CUDA's layout of 32 bytes."""
        raw = bytes(properties._obj)
        assert len(raw) == 32 and raw[:16] == bytes(
            [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
        )

    def _cuMemAddressReserve(self, to, n_bytes, alignment, address, flags):
        if n_bytes % PAGE or (alignment, address, flags) != (0, 0, 0):
            return INVALID
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
        raw = mmap.mmap(-1, n_bytes + PAGE, flags)
        first = ctypes.addressof(ctypes.c_char.from_buffer(raw))
        first = -(-first // PAGE) * PAGE
        self._protect(first, n_bytes, 0)
        self.ranges[first] = (n_bytes, raw)
        to._obj.value = first
        return 0

    def _cuMemCreate(self, to, n_bytes, properties, flags):
        self._check(properties)
        if n_bytes % PAGE or not n_bytes or flags:
            return INVALID
        if self.used + n_bytes > self.most_bytes:
            return OUT_OF_MEMORY
        to._obj.value = handle = 7 + len(self.said)
        self.handles[handle] = n_bytes
        return 0

    def _cuMemMap(self, address, n_bytes, offset, handle, flags):
        at = [k for k, (n, _) in self.ranges.items() if k <= address and address + n_bytes <= k + n]
        over = [k for k, (n, _) in self.mapped.items() if k < address + n_bytes and address < k + n]
        if not at or over or address % PAGE or offset or flags or self.handles[handle] != n_bytes:
            return INVALID
        self.mapped[address] = (n_bytes, handle)
        return 0

    def _cuMemRelease(self, handle):
        del self.handles[handle]
        return 0

    def _cuMemSetAccess(self, address, n_bytes, access, count):
        assert bytes(access._obj) == bytes([1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]) and count == 1
        if self.mapped.get(address, (0,))[0] != n_bytes:
            return INVALID
        self._protect(address, n_bytes, 3)
        # New pages hold anything.
        ctypes.memset(address, 0xEE, n_bytes)
        return 0

    def _cuMemUnmap(self, address, n_bytes):
        if self.mapped.get(address, (0,))[0] != n_bytes:
            return INVALID
        self._protect(address, n_bytes, 0)
        del self.mapped[address]
        return 0

    def _cuMemAddressFree(self, address, n_bytes):
        if self.ranges[address][0] != n_bytes or self.mapped:
            return INVALID
        del self.ranges[address]
        return 0

    def _protect(self, address, n_bytes, protection):
        pointer = ctypes.c_void_p(address)
        assert self.libc.mprotect(pointer, ctypes.c_size_t(n_bytes), protection) == 0

    @property
    def used(self):
        """Bytes of memory, with that which only a handle holds."""
        held = {h: n for n, h in self.mapped.values()} | self.handles
        return sum(held.values())


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setattr(growing, "library", lambda: made)
    for module in (growing, memory, runner):
        monkeypatch.setattr(module, "enter_context", lambda: None)
    for module in (memory, runner):
        monkeypatch.setattr(module, "driver", lambda: fake_pycuda)
    growing.has_virtual_memory.cache_clear()
    yield made
    growing.has_virtual_memory.cache_clear()


def test_pages_are_mapped_once_and_freed_in_order(driver):
    memory = ReservedMemory(driver, 5 * PAGE - 3)
    assert memory.n_bytes == 5 * PAGE and memory.page_bytes == PAGE and not driver.mapped
    assert memory.map([(PAGE + 7, PAGE + 8)]) == [(PAGE, 2 * PAGE)]
    assert driver.said[-4:] == ["cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemSetAccess"]
    assert memory.map([(PAGE, 2 * PAGE), (PAGE + 1, PAGE + 2)]) == []
    assert memory.map([(0, 3 * PAGE)]) == [(0, PAGE), (2 * PAGE, 3 * PAGE)]
    assert memory.mapped_bytes == driver.used == 3 * PAGE
    memory.close()
    assert not driver.ranges and not driver.mapped and not driver.handles


@pytest.mark.parametrize("name", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_a_refusal_leaves_nothing_mapped_and_can_be_tried_again(driver, name):
    memory = ReservedMemory(driver, 4 * PAGE)
    driver.refuse[name] = OUT_OF_MEMORY
    with pytest.raises(MemoryError, match=f"the GPU has no {2 * PAGE} bytes left: out of memory"):
        memory.map([(0, 2 * PAGE)])
    assert driver.used == 0
    driver.refuse.clear()
    driver.most_bytes = 3 * PAGE
    assert memory.map([(0, PAGE)]) == [(0, PAGE)]
    with pytest.raises(MemoryError):
        memory.map([(PAGE, 2 * PAGE), (2 * PAGE, 4 * PAGE)])  # of which the first would fit
    assert driver.used == PAGE == memory.mapped_bytes
    memory.close()
    assert not driver.ranges


@pytest.mark.parametrize("name", ["cuMemGetAllocationGranularity", "cuMemAddressReserve"])
def test_no_addresses_are_one_sentence(driver, name):
    driver.refuse[name] = OUT_OF_MEMORY
    with pytest.raises(MemoryError, match=r"^the GPU has no .*: out of memory$"):
        ReservedMemory(driver, 1)


def test_a_driver_without_the_calls_has_no_virtual_memory(driver):
    assert is_supported(driver)
    assert not is_supported(object())
    driver.refuse["cuDeviceGetAttribute"] = INVALID
    assert not is_supported(driver)


def test_rows_grow_at_one_address_and_begin_as_zeros(driver):
    values = np.arange(3 << 20, dtype=np.float32).reshape(3, 1 << 20)
    array = CudaRunner().allocate(values.shape, values.dtype, grows=True)
    assert isinstance(array, GrowingArray) and driver.used == 0
    address = array.address
    for n in (1000, 1000, 30_000, 20_000):
        array.hold(n)
        array.upload_first(values, n)
    assert array.address == address and 3 * 30_000 * 4 <= driver.used <= 3 * (30_000 * 4 + 2 * PAGE)
    found = np.full_like(values, -1)
    array.download_first(found, 30_000)
    assert (found[:, :30_000] == values[:, :30_000]).all() and (found[:, 30_000:] == -1).all()
    whole = array.download()
    assert driver.used >= values.nbytes and array.address == address
    assert (whole[:, :30_000] == values[:, :30_000]).all() and not whole[:, 30_000:].any()
    del array
    gc.collect()
    assert not driver.ranges and driver.used == 0


def test_small_arrays_and_old_drivers_have_all_memory_at_once(driver):
    small = CudaRunner().allocate((2, 1000), np.dtype(np.int32), grows=True)
    small.hold(10)
    assert not driver.ranges and not small.download().any()
    driver.refuse["cuDeviceGetAttribute"] = INVALID
    growing.has_virtual_memory.cache_clear()
    whole = CudaRunner().allocate((3, 1 << 20), np.dtype(np.float32), grows=True)
    assert not isinstance(whole, GrowingArray) and not driver.ranges and not whole.download().any()
