"""Memory of a device for other libraries, by DLPack and without a copy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# DLDeviceType and DLDataTypeCode of dlpack.h.
CPU = 1
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_VERSION = (1, 0)  # the first whose tensors say whether they may be written


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("n_axes", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset_bytes", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned; without flags the memory may be written."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


@dataclass(frozen=True, eq=False)
class DeviceMemory:
    """Memory on a device that other libraries use: its address, and the device's kind and number in DLPack.

    `owner` frees the memory when it is collected: each tensor that a library makes holds this object.
    """

    address: int
    device: tuple[int, int]
    owner: object


@dataclass(frozen=True, eq=False)
class LentTensor:
    """Tensor in the memory of a device, as libraries take it by DLPack.

    `strides_bytes`: distance of neighbours along each axis.
    """

    memory: DeviceMemory
    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]

    @classmethod
    def of(cls, memory: DeviceMemory, whole: NDArray[Any], view: NDArray[Any]) -> LentTensor:
        """Returns the tensor that lies in `memory` as `view` lies in the array `whole`."""
        address = memory.address + view.ctypes.data - whole.ctypes.data
        return cls(memory, address, view.dtype, view.shape, view.strides)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.device

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Returns a capsule with the tensor. All kernels have run, so no stream has to wait."""
        if copy or (dl_device is not None and dl_device != self.memory.device):
            raise BufferError("memory of a device is handed out where it is, without a copy")
        is_versioned = max_version is not None and tuple(max_version) >= _VERSION
        managed = _ManagedVersioned(*_VERSION) if is_versioned else _Managed()
        n = len(self.shape)
        steps = [s // self.dtype.itemsize for s in self.strides_bytes]
        managed.tensor = _Tensor(
            self.address,
            _Device(*self.memory.device),
            n,
            _Type(_CODES[self.dtype.kind], 8 * self.dtype.itemsize, 1),
            (ctypes.c_int64 * n)(*self.shape),
            (ctypes.c_int64 * n)(*steps),
            0,
        )
        at = ctypes.addressof(managed)
        delete, drop = _callbacks()
        managed.deleter = ctypes.cast(delete, ctypes.c_void_p).value
        _held[at] = (managed, self.memory)
        name = _VERSIONED if is_versioned else _PLAIN
        return _new_capsule(at, name, ctypes.cast(drop, ctypes.c_void_p))


_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"  # a capsule keeps the address of its name
_held: dict[int, tuple[object, DeviceMemory]] = {}  # by the address that a capsule has


def _release(at: int) -> None:
    _held.pop(at, None)


def _python(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Returns a function of Python's C interface. A capsule that is being deleted is an address to it, not an object."""
    made: Callable[..., Any] = ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))
    return made


_address, _text = ctypes.c_void_p, ctypes.c_char_p
_new_capsule = _python("PyCapsule_New", ctypes.py_object, _address, _text, _address)
_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, _address, _text)
_pointer = _python("PyCapsule_GetPointer", _address, _address, _text)


def _drop_capsule(capsule: int) -> None:
    """Frees a tensor that nobody has taken: a capsule is renamed by who takes it."""
    for name in (_PLAIN, _VERSIONED):
        if _is_valid(capsule, name):
            _release(_pointer(capsule, name))


@cache
def _callbacks() -> tuple[Any, Any]:
    """Returns the deleter of tensors, which libraries call from any thread, and the destructor of capsules.

    They are made at the first use, since a machine may forbid code that is made at run time.
    """
    return (
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_release),
        ctypes.PYFUNCTYPE(None, _address)(_drop_capsule),
    )
