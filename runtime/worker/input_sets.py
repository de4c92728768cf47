"""Input sets: arguments on which candidates of one problem run, with their expected results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from ...kernels.sparse.recorded import UsedTree
from .rounding import MEASURED, Rounding
from .verify import Expected

Array = NDArray[Any]


@dataclass(frozen=True)
class InputSet:
    """Arguments before the call, by name, and the expected contents after it.

    `arrays` contains every array of the sequence except its temporaries. Contents given for arrays of role "output" are not used:
    they hold `verify.poison_value` before each verified run.
    """

    arrays: Mapping[str, Array]
    scalars: Mapping[str, float | int | bool]
    expected: Mapping[str, Expected]
    rounding: Rounding | None = None  # how far it carries the results, where that can be measured

    def measured(self) -> InputSet:
        """Returns the set with the expected results of perturbed runs, computed now. Raises Stopped."""
        if self.rounding is None:
            return self
        return replace(self, expected=self.rounding.expected(MEASURED))


@dataclass(frozen=True)
class InputSets:
    """The input sets of one problem. Set 0 is timed. All sets with expected results are verified.

    `roles` gives the role of each array, in the order of the arguments: "input" (never written), "output" (contents before the
    call do not matter) or "inout".
    """

    roles: Mapping[str, str]
    sets: tuple[InputSet, ...]
    trees: tuple[UsedTree, ...] = ()  # whose arrays are compared as the program sees them

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays of one set together."""
        return sum(a.nbytes for a in self.sets[0].arrays.values())

    @property
    def written_bytes(self) -> int:
        """Bytes of all written arrays of one set together."""
        arrays = self.sets[0].arrays
        return sum(a.nbytes for name, a in arrays.items() if self.roles[name] != "input")
