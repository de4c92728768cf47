"""Library of kernel sequences, one file for each, found by file name.

Installed packages may add others (plugins.py).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...plugins import PluginError, load_plugin, plugins
from ..ir.kernel import DType

Sizes = Mapping[str, int]
Array = NDArray[Any]

# Beyond the last cache, about twice it, within it, within L2.
MATRIX_SIZES: tuple[Sizes, ...] = tuple({"m": n, "n": n} for n in (8192, 4096, 1024, 256))
VECTOR_SIZES: tuple[Sizes, ...] = tuple({"n": n} for n in (2**26, 2**20, 2**15))


@dataclass(frozen=True, kw_only=True)
class LibrarySequence:
    """Kernel sequence with the data needed to show, run and check it.

    `make_arguments(sizes, dtype, rng)` returns the arguments of `sequence`: C-contiguous arrays of signed values, then scalars.
    `reference` takes the same arguments and computes in place, in NumPy. `flops(sizes)` returns the number of useful floating-point
    operations.
    """

    name: str
    formula: str
    sequence: Callable[..., None]
    sizes: Sizes  # the default ones; every size name is a key
    benchmark_sizes: tuple[Sizes, ...]
    make_arguments: Callable[[Sizes, DTypeLike, np.random.Generator], tuple[Any, ...]]
    reference: Callable[..., None]
    flops: Callable[[Sizes], int]

    def complete(self, given: Sizes) -> dict[str, int]:
        """Returns all sizes of the sequence; a size that is not given takes that of `n`, if given, else its default.

        Raises ValueError for a size the sequence does not have, or one below 1.
        """
        for name, value in given.items():
            if name not in self.sizes:
                known = ", ".join(self.sizes)
                raise ValueError(f"{self.name} has no size {name!r}: its sizes are {known}")
            if value < 1:
                raise ValueError(f"the size {name} of {self.name} must be at least 1, not {value}")
        return {k: given.get(k, given.get("n", default)) for k, default in self.sizes.items()}


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Returns a DType, or anything that NumPy accepts as a dtype, as a NumPy dtype."""
    return dtype.numpy if isinstance(dtype, DType) else np.dtype(dtype)


def signed(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """Returns an array of random values in [-1, 1)."""
    return rng.uniform(-1.0, 1.0, shape).astype(numpy_dtype(dtype))


def zeros(dtype: Any, *shape: int) -> Array:
    """Returns an array of zeros of shape `shape`, for an output of a sequence."""
    return np.zeros(shape, numpy_dtype(dtype))


def names() -> tuple[str, ...]:
    """Returns the names of all library sequences, sorted; those of installed packages included."""
    return tuple(sorted({*own_names(), *plugins("sequences")}))


def own_names() -> tuple[str, ...]:
    """Returns the names of the library sequences of this package, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__)))


def load(name: str) -> LibrarySequence:
    """Returns the library sequence `name`, in any case.

    Raises KeyError that lists the names, and PluginError.
    """
    lower = name.lower()
    if lower in own_names():
        entry = importlib.import_module(f".{lower}", __name__).ENTRY
        assert isinstance(entry, LibrarySequence)
        return entry
    for known in plugins("sequences"):
        if known.lower() == lower:
            return _checked(load_plugin("sequences", known), known)
    raise KeyError(f"no library sequence {name!r}: there are {', '.join(names())}")


def _checked(entry: Any, name: str) -> LibrarySequence:
    """Returns the object of an entry point. Raises PluginError unless it is a LibrarySequence called `name`."""
    if not isinstance(entry, LibrarySequence) or entry.name != name:
        raise PluginError(f"the entry point {name} must name a LibrarySequence called {name}")
    return entry
