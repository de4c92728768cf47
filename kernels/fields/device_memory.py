"""Memory of a device for other libraries, by DLPack and without a copy."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CPU = 1  # DLDeviceType of dlpack.h
_VERSION = (1, 0)  # the first whose tensors say whether they may be written
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"  # names of capsules
# Bytes before the DLTensor: two numbers, context, deleter and flags of a DLManagedTensorVersioned; nothing of a DLManagedTensor.
_BEFORE = {_PLAIN: 0, _VERSIONED: 32}
_DEVICE_AT = 8  # in a DLTensor, behind the address


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
        array = np.asarray(_Owner(self))
        if max_version is not None and tuple(max_version) >= _VERSION and _HAS_VERSIONS:
            return _on_device(
                array.__dlpack__(max_version=_VERSION), _VERSIONED, self.memory.device
            )
        return _on_device(array.__dlpack__(), _PLAIN, self.memory.device)


class _Owner:
    """Memory as NumPy takes it, which never reads it. NumPy frees capsules in C, also while an exception is on its way."""

    def __init__(self, tensor: LentTensor) -> None:
        self.memory = tensor.memory
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.address, False),
            "typestr": tensor.dtype.str,
            "shape": tensor.shape,
            "strides": tensor.strides_bytes,
        }


_HAS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _on_device(capsule: Any, name: bytes, device: tuple[int, int]) -> Any:
    """Returns a capsule of NumPy whose tensor is on another device than NumPy's."""
    at = _pointer(capsule, name) + _BEFORE[name] + _DEVICE_AT
    (ctypes.c_int32 * 2).from_address(at)[:] = list(device)
    return capsule
