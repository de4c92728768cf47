"""Python functions that call kernels, as differentiable functions of PyTorch tensors on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernels.fields.caller_location import fail
from ..kernels.fields.dlpack import shared_array
from ..kernels.fields.ndarray import Ndarray
from ..kernels.ir.errors import ProgramRuntimeError, ProgramTypeError
from .tape import Tape


def torch_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` as a function of PyTorch tensors, differentiated by the adjoints of the kernels it calls.

    `function` takes an ndarray for each tensor, which shares its memory, and other arguments as they are. It returns one ndarray or
    a tuple of them, each made by `ks.ndarray(..., needs_grad=True)`. Tensors must be on the CPU and in C order. ModuleNotFoundError
    where torch is not installed.
    """

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return _of(function).apply(*args)

    return call


@functools.cache
def _of(function: Callable[..., Any]) -> Any:
    """Returns the subclass of `torch.autograd.Function` that runs `function` and its gradient."""
    import torch

    once_differentiable = torch.autograd.function.once_differentiable

    class KernelFunction(torch.autograd.Function):  # type: ignore[misc]  # has type Any where torch is not installed
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            given = [
                _shared(x, needs) if isinstance(x, torch.Tensor) else x
                for x, needs in zip(args, ctx.needs_input_grad, strict=True)
            ]
            with Tape() as ctx.tape:
                found = function(*given)
            results = found if isinstance(found, tuple) else (found,)
            _check_results(function, results)
            ctx.given, ctx.results = given, results
            tensors = tuple(torch.from_numpy(x.array) for x in results)
            return tensors if isinstance(found, tuple) else tensors[0]

        @staticmethod
        @once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, *gradients: Any) -> Any:
            ctx.tape.clear_ndarrays()
            for x, gradient in zip(ctx.results, gradients, strict=True):
                x.grad.array[...] = gradient.numpy()  # which an adjoint clears
            ctx.tape.reverse()
            return tuple(
                torch.from_numpy(x.grad.array.copy()) if needs else None
                for x, needs in zip(ctx.given, ctx.needs_input_grad, strict=True)
            )

    return KernelFunction


def _shared(tensor: Any, needs_grad: bool) -> Ndarray:
    """Returns an ndarray that shares the memory of a tensor, with a gradient of zeros if `needs_grad`."""
    array = shared_array(tensor)
    if not array.flags.c_contiguous:
        fail("a tensor of ks.torch_function is in C order: pass x.contiguous()", ProgramTypeError)
    gradient = Ndarray.of_array(np.zeros_like(array)) if needs_grad else None
    return Ndarray.of_array(array, gradient)


def _check_results(function: Callable[..., Any], results: tuple[Any, ...]) -> None:
    if not results or not all(isinstance(x, Ndarray) and x.grad is not None for x in results):
        name = getattr(function, "__name__", "a function")
        fail(
            f"{name} of ks.torch_function returns ndarrays with gradients: make them by ks.ndarray(..., needs_grad=True)",
            ProgramRuntimeError,
        )
