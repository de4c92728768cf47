"""Arguments of kernels that no program writes: the seed of random numbers, and addresses of arrays."""

from __future__ import annotations

from dataclasses import dataclass

from ..fields.addresses import memory_of
from ..fields.field import AbstractLeaf
from ..ir.kernel import Location, Param
from .errors import LanguageError


@dataclass(frozen=True)
class Address:
    """A scalar of a kernel that is where a field's array begins; `where` asks for it."""

    param: Param
    field: AbstractLeaf
    where: Location


@dataclass(frozen=True)
class Hidden:
    """What calls bind beside the program's own numbers: a seed, where the kernel `draws`, then addresses."""

    draws: bool = False
    addresses: tuple[Address, ...] = ()

    def bound(self) -> dict[str, int]:
        """The addresses by name, as they are until the program ends."""
        return {a.param.name: memory_of(a.field).ctypes.data for a in self.addresses}

    def refuse_addresses(self) -> None:
        """LanguageError where an address is asked for."""
        for a in self.addresses:
            raise LanguageError(
                "`get_addr` in a sequence: where elements lie is chosen for each implementation, so they have no addresses;"
                " compare indices, or call the kernel outside",
                a.where,
            )


NOTHING = Hidden()
