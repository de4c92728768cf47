"""`ks.ad`: derivatives of a program's kernels, on tapes."""

from .gradients import clear_all_gradients
from .tape import FwdMode, Tape, grad_for, grad_replaced, no_grad
from .torch_function import torch_function

__all__ = [
    "FwdMode",
    "Tape",
    "clear_all_gradients",
    "grad_for",
    "grad_replaced",
    "no_grad",
    "torch_function",
]
