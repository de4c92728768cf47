"""Inputs of the C program that checks an exported implementation: drawn by a fixed formula, or read from a file.

The C program and this module draw equal values: a function of array number and element index, spread evenly over the range
of the argument in the search. Arrays that decide the control flow of the sequence are in one file beside the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codegen.text.source import Argument, Source
from ..codegen.text.types import type_name
from ..kernels.fields.canonical_state import without_inactive
from ..kernels.frontend.recorder import Recording
from ..kernels.ir.kernel import DType
from ..kernels.ir.task import Problem
from ..runtime.records.stored import StoredSequence
from ..runtime.worker.inputs import Arguments, between, whole_ends
from ..runtime.worker.verify import poison_value

Array = NDArray[Any]

FILE = "inputs.bin"
_CHUNK = 1 << 20
_FEW = 1 << 31  # integers in a range up to which half of a word draws them

FUNCTIONS = """/* 64 bits that depend on an array and an index (the finaliser of SplitMix64). */
static inline uint64_t ks_mix(uint64_t array, uint64_t index) {
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15u + (array + 1) * 0xD1B54A32D192ED03u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* In [0, 1), a multiple of 2^-24. */
static inline double ks_unit(uint64_t array, uint64_t index) { return (double)(ks_mix(array, index) >> 40) / 16777216.0; }
"""

READING = f"""
#ifndef KS_INPUTS
#define KS_INPUTS "{FILE}"
#endif

/* The values of an array that are not drawn: those that decide where the sequence goes. */
static void ks_read(FILE *inputs, void *array, size_t bytes, const char *name) {{
  if (!inputs || fread(array, 1, bytes, inputs) != bytes) {{
    fprintf(stderr, "the values of %s are missing: give the file {FILE} that was written with this program\\n", name);
    exit(2);
  }}
}}
"""


@dataclass(frozen=True)
class Inputs:
    """The arguments of a check program: some arrays are read from a file, others are drawn."""

    arguments: Arguments
    read: frozenset[str]


def inputs_of(stored: StoredSequence, recording: Recording, known: Mapping[str, Array]) -> Inputs:
    """Returns the arguments of the check program.

    Arrays in `known` are taken from there, others drawn by the C functions `ks_unit` and `ks_mix`; scalars are as stored.
    All arrays of sparse fields are read from the file: inactive cells hold zeros, which a drawn array would not.
    """
    arrays = {
        p.name: known[p.name]
        if p.name in known
        else _drawn(k, p.dtype, math.prod(p.shape), stored.ranges[p.name]).reshape(p.shape)
        for k, p in enumerate(recording.arrays)
    }
    in_trees = {name for used in recording.trees for _, name in used.sections}
    arguments = Arguments(without_inactive(recording.trees, arrays), stored.numbers)
    return Inputs(arguments, frozenset(known) | in_trees)


def contents(source: Source, problem: Problem, inputs: Inputs) -> bytes:
    """Returns the bytes of the inputs file: arrays that are read, one after the other, each in its own dtype."""
    roles = {a.name: a.role for a in problem.arrays}
    arrays = [a for a in source.arguments if a.kind == "array" and roles[a.name] != "output"]
    return b"".join(
        inputs.arguments.arrays[a.name].tobytes() for a in arrays if a.name in inputs.read
    )


def _drawn(k: int, dtype: DType, size: int, ends: Sequence[float]) -> Array:
    low, high = ends
    flat = np.empty(size, dtype.numpy)
    for start in range(0, size, _CHUNK):
        part = slice(start, min(start + _CHUNK, size))
        z = _mix(k, np.arange(part.start, part.stop, dtype=np.uint64))
        if dtype.is_float:
            flat[part] = between(low, high, (z >> np.uint64(40)).astype(np.float64) / 2.0**24)
        elif dtype.is_integer:
            least, most = whole_ends(low, high, dtype.numpy)
            span = most - least + 1
            z = z >> np.uint64(33) if span <= _FEW else z
            # All numbers of 64 bits have no span in 64 bits: each is one.
            flat[part] = (z if span == 1 << 64 else z % np.uint64(span)) + np.uint64(
                least % (1 << 64)
            )
        else:
            flat[part] = (z >> np.uint64(63)).astype(bool)
    return flat


def _mix(array: int, index: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        seed = (array + 1) * 0xD1B54A32D192ED03 % 2**64
        z = (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def fill(a: Argument, k: int, role: str, ends: Sequence[float], is_read: bool) -> Iterator[str]:
    """Yields the C lines that create array number `k` of the program and fill it.

    `role`: input, output or both. `ends`: least and greatest value to draw. `is_read`: read from the file instead.
    """
    kind, size = c_type(a), math.prod(a.shape)
    yield f"  {kind} *a{k} = ks_place({size} * sizeof({kind})); /* {shown(a.name)} */"
    if is_read and role != "output":
        yield f'  ks_read(inputs, a{k}, {size} * sizeof({kind}), "{shown(a.name)}");'
    else:
        value = _value(a, k, role, ends)
        yield f"  for (int64_t i = 0; i < {size}; i++) a{k}[i] = {value};"


def _value(a: Argument, k: int, role: str, ends: Sequence[float]) -> str:
    dtype, kind, (low, high) = np.dtype(a.dtype), c_type(a), ends
    if role == "output":
        return "NAN" if dtype.kind == "f" else whole(int(poison_value(dtype)))
    if dtype.kind == "b":
        return f"ks_mix({k}, i) >> 63"
    if dtype.kind == "f":
        unit, span = f"ks_unit({k}, i)", float(high) - float(low)
        if math.isfinite(span):
            return f"({kind})({unit} * ({span:.17g}) + ({float(low):.17g}))"
        return f"({kind})({unit} * ({float(high):.17g}) + (1 - {unit}) * ({float(low):.17g}))"
    least, most = whole_ends(low, high, dtype)
    span_of = most - least + 1
    word = f"(ks_mix({k}, i) >> 33)" if span_of <= _FEW else f"ks_mix({k}, i)"
    part = word if span_of == 1 << 64 else f"{word} % {span_of}u"
    return f"({kind})({part} + {least % (1 << 64)}u)"


def whole(x: int) -> str:
    """Returns `x` as an integer literal in C; `INT64_MIN` for the least one, whose magnitude fits no signed type."""
    if x == -(1 << 63):
        return "INT64_MIN"
    return f"{x}u" if x >= 1 << 63 else str(x)


def c_type(a: Argument) -> str:
    """Returns the C type of argument `a`."""
    return type_name(DType(a.dtype), 0)


def shown(name: str) -> str:
    """Returns `name` with "?" for characters other than ASCII letters, digits and "_": safe in C comments and formats."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "?" for c in name)
