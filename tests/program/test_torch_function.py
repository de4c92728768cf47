"""Kernels as differentiable functions of PyTorch: against PyTorch's own differences, where it is installed."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import pytest

torch: Any = pytest.importorskip("torch")
A = ks.types.ndarray


@ks.kernel
def springs(x: A(), k: ks.f64, force: A(), energy: A()):
    for i in range(x.shape[0] - 1):
        d = x[i + 1] - x[i]
        force[i] = k * d
        energy[0] += 0.5 * k * d * d


def both(x, k):
    n = x.shape[0]
    force, energy = (
        ks.ndarray(ks.f64, n - 1, needs_grad=True),
        ks.ndarray(ks.f64, 1, needs_grad=True),
    )
    springs(x, k, force, energy)
    return force, energy


def test_gradients_are_those_of_differences() -> None:
    function = ks.torch_function(both)
    x = torch.linspace(0, 1, 5, dtype=torch.float64) ** 2
    assert torch.autograd.gradcheck(lambda t: function(t, 3.0), (x.requires_grad_(),))


def test_gradients_flow_on_and_memory_is_shared() -> None:
    """Tensors without a gradient get none, and results may be used by PyTorch before the backward pass."""
    seen = []

    @ks.torch_function
    def stretched(x, scale):
        y = ks.ndarray(ks.f64, x.shape[0], needs_grad=True)
        seen.append(x.array)
        multiply(x, scale, y)
        return y

    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    scale = torch.full((3,), 2.0, dtype=torch.float64)
    y = (stretched(x, scale) ** 2).sum()
    y.backward()
    assert x.grad.tolist() == [8.0, 8.0, 8.0]
    assert scale.grad is None
    assert seen[0].ctypes.data == x.data_ptr()


@ks.kernel
def multiply(x: A(), scale: A(), y: A()):
    for i in x:
        y[i] = x[i] * scale[i]


@pytest.mark.parametrize(
    ("function", "given", "sentence"),
    [
        (lambda x: None, torch.ones(3), "returns ndarrays with gradients"),
        (lambda x: x, torch.ones(3, 4).T, r"is in C order: pass x\.contiguous"),
    ],
)
def test_bad_use_is_one_sentence(function: Any, given: Any, sentence: str) -> None:
    with pytest.raises(ks.LanguageError, match=sentence):
        ks.torch_function(function)(given.requires_grad_())
