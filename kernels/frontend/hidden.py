"""Hidden arguments of kernels: the seed of random numbers, and addresses of arrays."""

from __future__ import annotations

from dataclasses import dataclass

from ..fields.addresses import memory_of
from ..fields.field import AbstractLeaf
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
    """

    draws: bool = False
    addresses: tuple[Address, ...] = ()

    def bound(self) -> dict[str, int]:
        """Returns the base addresses in bytes by parameter name. They are valid until the program ends."""
        return {a.param.name: memory_of(a.field).ctypes.data for a in self.addresses}

    def refuse_addresses(self) -> None:
        """Raises LanguageError if the kernel uses an address: a recorded sequence has no fixed addresses."""
        for a in self.addresses:
            raise LanguageError(
                "`get_addr` in a sequence: where elements lie is chosen for each implementation, so they have no addresses;"
                " compare indices, or call the kernel outside",
                a.where,
            )


NOTHING = Hidden()
