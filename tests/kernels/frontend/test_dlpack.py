"""Memory of other libraries as arguments of kernels and sequences."""

import sys
from types import ModuleType

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.records.signature import Signature
from kernelscape.runtime.records.stored import bind_arguments

nd = ks.types.ndarray()


class Tensor:
    """What another library hands out."""

    def __init__(self, array):
        self.array = array
        self.shape = array.shape

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldTensor(Tensor):
    """Of the protocol before 1.0, which does not say whether memory may be written."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


class OnGpu(Tensor):
    def __dlpack__(self, **options):
        raise BufferError("the memory is on a GPU")


@ks.kernel
def add(x: nd, y: nd):
    for i in y:
        y[i] += x[i]


def test_kernels_write_in_place():
    x, y = np.arange(8.0), np.ones(4)
    add(Tensor(x), Tensor(y))
    add(OldTensor(x[::2]), y)  # one that is only read, and strided
    assert y.tolist() == [1, 4, 7, 10]
    z = np.zeros(2, complex)
    add(Tensor(np.array([1j, 2])), Tensor(z[::-1]))
    assert z.tolist() == [2, 1j]


def test_what_cannot_be_taken():
    with pytest.raises(ValueError, match="y of the kernel add is read-only and written"):
        add(np.ones(4), OldTensor(np.ones(4)))
    with pytest.raises(
        LanguageError, match="OnGpu hands out no memory of this machine by DLPack: the memory is on"
    ):
        add(np.ones(4), OnGpu(np.ones(4)))


def test_tensors_of_torch_may_be_written(monkeypatch):
    class TorchTensor(OldTensor):
        def detach(self):
            return self

        def numpy(self):
            return self.array

    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    TorchTensor.__module__ = "torch"
    y = np.ones(4)
    add(np.ones(4), TorchTensor(y))
    assert y.tolist() == [2.0] * 4


def test_torch_itself():
    torch = pytest.importorskip("torch")
    x, y = torch.arange(8.0, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    add(x[::2], y)
    assert y.tolist() == [1, 3, 5, 7]


def test_sequences_and_tuned_functions_take_them():
    def sequence(x, y):
        add(x[1:], y)

    args = Tensor(np.arange(5.0)), Tensor(np.ones(4))
    recording = record_sequence(sequence, args)
    parameters, arguments = bind_arguments(sequence, args, recording)
    assert arguments.arrays["x"].tolist() == [0, 1, 2, 3, 4]
    signature = Signature(parameters, normalise(recording))
    y = np.zeros(8)[::2]
    given, _ = signature.complete((Tensor(np.arange(5.0)), Tensor(y)), {})
    values = signature.values(given)
    values[1][...] = 7
    signature.give_back(given, values)
    assert y.tolist() == [7.0] * 4
