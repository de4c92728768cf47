"""Hidden arguments of kernels: the seed of random numbers, addresses of arrays, and gradients of array arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..fields.addresses import memory_of
from ..fields.field import AbstractLeaf
from ..fields.ndarray import gradient_of
from ..ir.errors import ProgramRuntimeError
from ..ir.kernel import Location, Param
from .errors import LanguageError


@dataclass(frozen=True)
class Address:
    """Scalar parameter of a kernel: the base address of the array of `field`.

    `where` is the line that uses it.
    """

    param: Param
    field: AbstractLeaf
    where: Location


@dataclass(frozen=True)
class Hidden:
    """Hidden arguments of a kernel, which each call passes in addition to the program's arguments.

    `draws`: the kernel draws random numbers, so it has a seed. `addresses`: base addresses of arrays.
    `gradients`: arrays of the kernel, each with the argument whose gradient it is. `vectors`: arrays that are vectors of a call.
    """

    draws: bool = False
    addresses: tuple[Address, ...] = ()
    gradients: tuple[tuple[str, str], ...] = ()
    vectors: tuple[str, ...] = ()

    def bound(self) -> dict[str, int]:
        """Returns the base addresses in bytes by parameter name. They are valid until the program ends."""
        return {a.param.name: memory_of(a.field).ctypes.data for a in self.addresses}

    def bound_gradients(self, arrays: Mapping[str, Any], where: Location) -> dict[str, Any]:
        """Returns the gradients of arguments by name.

        Raises ProgramRuntimeError for an argument without a gradient, or where a gradient is an argument, too.
        """
        found: dict[str, Any] = {}
        for name, argument in self.gradients:
            gradient = gradient_of(arrays[argument])
            if gradient is None:
                text = f"the argument {argument} has no grad: make it with needs_grad=True"
                raise ProgramRuntimeError(text, where)
            if any(x is gradient.array for x in arrays.values()):
                text = (
                    f"the kernel uses {argument}.grad, which is also an argument: pass one of them"
                )
                raise ProgramRuntimeError(text, where)
            found[name] = gradient.array
        return found

    def refuse_addresses(self) -> None:
        """Raises LanguageError if the kernel uses an address: a recorded sequence has no fixed addresses."""
        for a in self.addresses:
            raise LanguageError(
                "`get_addr` in a sequence: where elements lie is chosen for each implementation, so they have no addresses;"
                " compare indices, or call the kernel outside",
                a.where,
            )


NOTHING = Hidden()
