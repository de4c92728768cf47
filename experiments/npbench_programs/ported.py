"""A program of NPBench in three forms: our language, NumPy, numba."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..contestants import are_near

Arrays = tuple[NDArray[Any], ...]
Sequence = Callable[..., None]
Sizes = Mapping[str, int]

_TYPES: Mapping[str, Mapping[str, type]] = {
    "f32": {"f": np.float32, "c": np.complex64},
    "f64": {"f": np.float64, "c": np.complex128},
}
parallel: Any = njit(parallel=True, fastmath=True, cache=False)
serial: Any = njit(fastmath=True, cache=False)


@dataclass(frozen=True)
class Ported:
    """A program whose three forms take the same arrays in the same order, and work in place.

    `make`: the arrays of random numbers and sizes. `results`: positions of the results among the arrays.
    `sizes`: those of a preset of NPBench. `small`: those of tests. `numbers`: names of sizes that the forms take behind the arrays.
    `loose`: share of a result's elements that rounding may decide.
    """

    ours: Sequence
    numpy: Sequence
    numba: Sequence
    make: Callable[..., Arrays]
    results: tuple[int, ...]
    sizes: Sizes
    small: Sizes
    numbers: tuple[str, ...] = ()
    dtype: str = "f64"
    loose: float = 0.0

    @property
    def name(self) -> str:
        return self.ours.__name__

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """The sizes in the order of the page. Raises ValueError unless all are given and positive."""
        if sizes.keys() != self.sizes.keys() or min(sizes.values()) < 1:
            raise ValueError(
                f"the sizes of {self.name} are {', '.join(self.sizes)}, each at least 1"
            )
        return {name: sizes[name] for name in self.sizes}

    def arrays(self, sizes: Sizes, rng: np.random.Generator, dtype: str = "") -> Arrays:
        """The arguments at such sizes; their floats are of `dtype` (default: the program's)."""
        to = _TYPES[dtype or self.dtype]
        made = self.make(rng, **sizes)
        return tuple(a.astype(to[a.dtype.kind]) if a.dtype.kind in to else a for a in made)

    def forms(self, sizes: Sizes) -> dict[str, Sequence]:
        """Ours ("call"), NumPy's and numba's function of the arrays alone."""
        numbers = tuple(sizes[n] for n in self.numbers)
        forms = {"call": self.ours, "NumPy": self.numpy, "numba": self.numba}
        return {who: _of_arrays(form, numbers) for who, form in forms.items()}

    def of(self, arrays: Arrays) -> Arrays:
        """The results among the arrays."""
        return tuple(arrays[k] for k in self.results)

    def agrees(self, x: NDArray[Any], y: NDArray[Any]) -> bool:
        """True if two results are equal but for rounding."""
        return are_near(x, y, self.loose)


def _of_arrays(form: Sequence, numbers: tuple[int, ...]) -> Sequence:
    def run(*arrays: Any) -> None:
        form(*arrays, *numbers)

    run.__name__ = getattr(form, "__name__", "run")
    return run
