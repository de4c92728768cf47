"""Comparison of gradients with central differences: the calls of a tape run again with changed inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..kernels.fields.caller_location import fail
from ..kernels.fields.field import AbstractLeaf
from ..kernels.fields.program import needed_program
from ..kernels.ir.errors import KernelAssertionError, ProgramTypeError
from ..kernels.ir.kernel import DType

_STEPS = 2.0 ** np.arange(-3, -30, -2)
_MOST = 0.01  # relative difference
_ROUNDINGS = 1000  # of a loss: where its gradient is zero, differences are nothing else


class GradCheck:
    """Check of the gradients of `loss` with respect to fields, each along one random direction.

    It is created before the tape records, and copies the values of all fields.
    """

    def __init__(self, loss: Any, fields: Sequence[Any]) -> None:
        if not isinstance(loss, AbstractLeaf) or loss.dtype is not DType.f64:
            fail(
                "grad_check= takes a loss of f64, which leaves digits to compare", ProgramTypeError
            )
        self._loss, self._fields = loss, fields
        leaves = _all_leaves()
        for x in fields if isinstance(fields, (list, tuple)) else (fields,):
            if not any(x is leaf and leaf.placed_derivative("grad") for leaf in leaves):
                fail(
                    f"grad_check= takes a list of whole fields with gradients, not {x!r}",
                    ProgramTypeError,
                )
        self._before = [(x, x.to_numpy()) for x in leaves]

    def run(self, again: Callable[[], None]) -> None:
        """Raises KernelAssertionError if a gradient differs from central differences.

        `again`: runs the calls of the tape once more.
        """
        behind = [(x, x.to_numpy()) for x in _all_leaves()]
        rng = np.random.default_rng(0)
        try:
            for x in self._fields:
                v = rng.random(x.to_numpy().shape)
                wanted = float(np.vdot(x.grad.to_numpy(), v))
                found = self._slopes(x, v, again)
                if not any(abs(wanted - d) <= _MOST * abs(wanted) + noise for d, noise in found):
                    raise KernelAssertionError(
                        f"the gradient of {x.label} differs from central differences"
                    )
        finally:
            for x, values in behind:
                x.from_numpy(values)

    def _slopes(self, x: Any, v: Any, again: Callable[[], None]) -> Iterator[tuple[float, float]]:
        """Yields central differences of the loss along direction `v`, each with the size of its rounding errors.

        The step of the difference becomes ever smaller.
        """
        start = next(values for leaf, values in self._before if leaf is x)
        for step in _STEPS:
            found = []
            for moved in (step, -step):
                for leaf, values in self._before:
                    leaf.from_numpy(values)
                x.from_numpy(start + moved * v)
                again()
                found.append(float(self._loss.to_numpy()))
            noise = _ROUNDINGS * np.finfo(np.float64).eps * max(map(abs, found)) / step
            yield (found[0] - found[1]) / (2 * step), noise


def _all_leaves() -> list[AbstractLeaf]:
    """Returns the fields of the program that are placed, with an array of their own."""
    leaves = (leaf for x in needed_program("grad_check").fields for leaf in x.leaves())
    return [x for x in dict.fromkeys(leaves) if x.is_placed]
