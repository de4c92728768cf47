"""What candidates of one problem are run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from ...kernels.sparse.recorded import UsedTree
from .rounding import Rounding
from .verify import Expected

Array = NDArray[Any]


@dataclass(frozen=True)
class InputSet:
    """Arguments before the call, by name (every array of the sequence but its temporaries), and
    what must hold after it.

    Contents given for arrays of role "output" are not used: they hold `verify.poison_value`
    before each verified run.
    """

    arrays: Mapping[str, Array]
    scalars: Mapping[str, float | int | bool]
    expected: Mapping[str, Expected]
    rounding: Rounding | None = None  # how far it carries the results, where that can be measured

    def measured(self) -> InputSet:
        """The same with what is expected once rounding was measured. Raises Stopped."""
        return self if self.rounding is None else replace(self, expected=self.rounding.expected(1))


@dataclass(frozen=True)
class InputSets:
    """What candidates of one problem are run on. Set 0 is the one that is timed; all that expect
    something are verified.

    `roles` says "input" (never written), "output" (contents before the call do not matter) or
    "inout", per array, in the order of the arguments.
    """

    roles: Mapping[str, str]
    sets: tuple[InputSet, ...]
    trees: tuple[UsedTree, ...] = ()  # whose arrays are compared as the program sees them

    @property
    def size_bytes(self) -> int:
        """Of all arrays of one set together."""
        return sum(a.nbytes for a in self.sets[0].arrays.values())

    @property
    def written_bytes(self) -> int:
        """Of those of one set that are written."""
        arrays = self.sets[0].arrays
        return sum(a.nbytes for name, a in arrays.items() if self.roles[name] != "input")
