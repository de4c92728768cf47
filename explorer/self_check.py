"""A C program that checks an exported implementation by itself: inputs that it draws, results that it was given.

Of a GPU's, it copies the arrays there and the written ones back, by CUDA's runtime.

The inputs are a function of array and index that this module and the program compute alike, evenly spread over the ranges that the
arguments of the search had. The reference ran on them in double precision when the program was written. Of every array that the
sequence writes it compares single elements, and sums over parts that together are the whole array, each within its tolerance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codegen.c.header import function_name, header_file
from ..codegen.c.source import Argument, Source
from ..codegen.c.vectors import type_name
from ..kernels.ir.kernel import DType
from ..kernels.ir.task import Problem
from ..kernels.language.record import Recording
from ..runtime.records.stored import StoredSequence
from ..runtime.worker.inputs import Arguments, make_input_sets
from ..runtime.worker.verify import poison_value

Array = NDArray[Any]

_SAMPLES = 32  # elements of an array
_PARTS = 16  # of an array, whose sums are compared
_CHUNK = 1 << 20

_TOP = """/* Checks {function} by itself: {title}.
 *
 * Every array is filled with numbers that follow from its place alone, evenly spread over what the search was made with; the
 * arrays that are only written hold NaN (integers a large negative number) before the call. Then {function} is called once.
 * Compared are, of every array that it writes, {samples} elements and the sums of {parts} parts that together are the whole array,
 * with what a reference in double precision gave for the same inputs. The tolerance is that of the search: rounding of the
 * partial results. A part that holds values that are not finite is passed over.
 *
 * Ends with 0 if all agree, with 1 and a line for each difference else, and with 2 where {missing}. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "{header}"

typedef struct {{ int64_t index; double want, tolerance; }} ks_sample;
typedef struct {{ int64_t begin, end; double want, tolerance; }} ks_part;

/* 64 bits that depend on an array and an index (the finaliser of SplitMix64). */
static uint64_t ks_mix(uint64_t array, uint64_t index) {{
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15u + (array + 1) * 0xD1B54A32D192ED03u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}}

/* In [0, 1), a multiple of 2^-24. */
static double ks_unit(uint64_t array, uint64_t index) {{ return (double)(ks_mix(array, index) >> 40) / 16777216.0; }}

static void *ks_place(size_t bytes) {{
  void *p = aligned_alloc({macro}_ALIGNMENT, (bytes / {macro}_ALIGNMENT + 1) * {macro}_ALIGNMENT);
  if (!p) {{
    fprintf(stderr, "there is no memory for %zu bytes\\n", bytes);
    exit(2);
  }}
  return p;
}}

static int ks_agrees(double got, double want, double tolerance) {{
  if (isnan(want)) return isnan(got);
  if (isinf(want)) return got == want;
  return fabs(got - want) <= tolerance;
}}
"""

_OF_GPU = r"""
/* Ends the program where CUDA's runtime refuses. */
static void ks_must(cudaError_t error, const char *what) {
  if (error != cudaSuccess) {
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(2);
  }
}

/* Memory of the GPU; it holds what `from` does, where that is given. */
static void *ks_on_gpu(const void *from, size_t bytes) {
  void *p = NULL;
  ks_must(cudaMalloc(&p, bytes), "memory of the GPU");
  if (from) ks_must(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice), "a copy to the GPU");
  return p;
}
"""


@dataclass(frozen=True)
class _Output:
    """What an array must hold; `tolerance` has its shape."""

    argument: Argument
    want: Array
    tolerance: Array


def drawn(stored: StoredSequence, recording: Recording) -> Arguments:
    """The arguments that the program draws: arrays by `unit`, scalars as they were stored."""
    arrays: dict[str, Array] = {}
    for k, p in enumerate(recording.arrays):
        low, high = stored.ranges[p.name]
        size = math.prod(p.shape)
        flat = np.empty(size, p.dtype.numpy)
        for start in range(0, size, _CHUNK):
            part = slice(start, min(start + _CHUNK, size))
            z = _mix(k, np.arange(part.start, part.stop, dtype=np.uint64))
            if p.dtype.is_float:
                flat[part] = (z >> np.uint64(40)).astype(np.float64) / 2.0**24 * (high - low) + low
            elif p.dtype.is_integer:
                span = np.uint64(int(high) - int(low) + 1)
                flat[part] = (z >> np.uint64(33)) % span + np.int64(int(low)).astype(np.uint64)
            else:
                flat[part] = (z >> np.uint64(63)).astype(bool)
        arrays[p.name] = flat.reshape(p.shape)
    return Arguments(arrays, dict(stored.scalars))


def _mix(array: int, index: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        seed = (array + 1) * 0xD1B54A32D192ED03 % 2**64
        z = (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def check_text(
    source: Source,
    problem: Problem,
    recording: Recording,
    stored: StoredSequence,
) -> str:
    """The text of the program, for the function that the header of `source` defines."""
    roles = {a.name: a.role for a in problem.arrays}
    outputs = _outputs(source, problem, recording, stored)
    function = function_name(problem)
    title = f"{problem.name}: {problem.formula}" if problem.formula else problem.name
    head = _TOP.format(
        function=function,
        title=" ".join(title.replace("*/", "* /").replace("\\", "/").split()),
        samples=_SAMPLES,
        parts=_PARTS,
        header=header_file(problem),
        macro=function.upper(),
        missing="memory or the GPU is missing" if source.launches else "memory is missing",
    )
    lines = [head, _OF_GPU] if source.launches else [head]
    for k, output in enumerate(outputs):
        lines += [*_table(k, output), ""]
    lines += ["int main(void) {", "  int n_compared = 0, n_wrong = 0;"]
    arrays = [a for a in source.arguments if a.kind == "array"]
    numbers = {p.name: k for k, p in enumerate(recording.arrays)}
    for a in arrays:
        lines += _fill(a, numbers[a.name], roles[a.name], stored.ranges[a.name])
    if source.launches:
        written = {numbers[output.argument.name] for output in outputs}
        lines += _call_on_gpu(source, stored, numbers, function, written)
    else:
        lines += _call(source, stored, numbers, function)
    for k, output in enumerate(outputs):
        lines += _compare(k, output, numbers[output.argument.name])
    lines += [
        '  if (n_wrong) printf("%d of %d values are wrong\\n", n_wrong, n_compared);',
        f'  else printf("{function}: all %d values agree\\n", n_compared);',
        "  return n_wrong != 0;",
        "}",
        "",
    ]
    return "\n".join(lines)


def _outputs(
    source: Source, problem: Problem, recording: Recording, stored: StoredSequence
) -> list[_Output]:
    given = drawn(stored, recording)
    input_sets = make_input_sets(recording, problem, given, np.random.default_rng(1), 1)
    expected = input_sets.sets[0].expected
    found = []
    for a in source.arguments:
        if a.kind == "array" and a.name in expected:
            e = expected[a.name]
            want = np.asarray(e.want)
            magnitude = 0.0 if e.magnitude is None else e.magnitude
            tolerance = np.zeros(want.shape)
            if np.dtype(a.dtype).kind == "f":
                limits = np.finfo(np.dtype(a.dtype))
                scale = e.factor * float(limits.eps)
                tolerance = np.maximum(scale * magnitude, float(limits.smallest_normal))
            found.append(_Output(a, want, np.broadcast_to(tolerance, want.shape)))
    return found


def _table(k: int, output: _Output) -> Iterator[str]:
    want = output.want.reshape(-1).astype(np.float64)
    tolerance = output.tolerance.reshape(-1)
    size = want.size
    chosen = sorted({int(i) for i in np.linspace(0, size - 1, min(_SAMPLES, size))} if size else [])
    yield f"static const ks_sample samples_{k}[] = {{"
    yield from (f"  {{{i}, {_literal(want[i])}, {tolerance[i]:.17g}}}," for i in chosen)
    yield "  {-1, 0, 0}};"
    yield f"static const ks_part parts_{k}[] = {{"
    edges = np.linspace(0, size, min(_PARTS, size) + 1).astype(int) if size else np.zeros(1, int)
    for begin, end in pairwise(edges):
        if np.isfinite(want[begin:end]).all():
            total, allowed = math.fsum(want[begin:end]), math.fsum(tolerance[begin:end])
            yield f"  {{{begin}, {end}, {_literal(total)}, {allowed:.17g}}},"
    yield "  {-1, 0, 0, 0}};"


def _literal(x: float) -> str:
    if math.isnan(x):
        return "NAN"
    if math.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    return f"{float(x):.17g}"


def _fill(a: Argument, k: int, role: str, limits: Sequence[float]) -> Iterator[str]:
    dtype = np.dtype(a.dtype)
    kind, size = _c_type(a), math.prod(a.shape)
    low, high = limits
    yield f"  {kind} *a{k} = ks_place({size} * sizeof({kind})); /* {_shown(a.name)} */"
    if role == "output":
        value = "NAN" if dtype.kind == "f" else str(int(poison_value(dtype)))
    elif dtype.kind == "f":
        value = (
            f"({kind})(ks_unit({k}, i) * ({float(high) - float(low):.17g}) + ({float(low):.17g}))"
        )
    elif dtype.kind == "b":
        value = f"ks_mix({k}, i) >> 63"
    else:
        value = f"({kind})((int64_t)((ks_mix({k}, i) >> 33) % {int(high) - int(low) + 1}u) + ({int(low)}))"
    yield f"  for (int64_t i = 0; i < {size}; i++) a{k}[i] = {value};"


def _call(
    source: Source, stored: StoredSequence, numbers: Mapping[str, int], function: str
) -> Iterator[str]:
    values = _values(source, stored, numbers, "a")
    if any(a.kind == "workspace" for a in source.arguments):
        yield f"  void *workspace = ks_place({function.upper()}_WORKSPACE_BYTES);"
        values.append("workspace")
    yield f"  {function}({', '.join(values)});"


def _call_on_gpu(
    source: Source,
    stored: StoredSequence,
    numbers: Mapping[str, int],
    function: str,
    written: Set[int],
) -> Iterator[str]:
    sizes = {
        numbers[a.name]: f"{math.prod(a.shape)} * sizeof({_c_type(a)})"
        for a in source.arguments
        if a.kind == "array"
    }
    for k, size in sizes.items():
        yield f"  void *d{k} = ks_on_gpu(a{k}, {size});"
    values = _values(source, stored, numbers, "d")
    if any(a.kind == "workspace" for a in source.arguments):
        yield f"  void *workspace = ks_on_gpu(NULL, {function.upper()}_WORKSPACE_BYTES);"
        values.append("workspace")
    yield f'  ks_must({function}({", ".join([*values, "0"])}), "a launch");'
    yield '  ks_must(cudaDeviceSynchronize(), "the kernels");'
    for k in sorted(written):
        yield f'  ks_must(cudaMemcpy(a{k}, d{k}, {sizes[k]}, cudaMemcpyDeviceToHost), "a copy from the GPU");'


def _values(
    source: Source, stored: StoredSequence, numbers: Mapping[str, int], arrays: str
) -> list[str]:
    """What the function is called with but for the workspace: variables that begin with `arrays`, and numbers."""
    known = {a.name: a for a in source.arguments if a.kind != "workspace"}
    order = [p.name for p in stored.parameters if p.name in known]
    return [
        f"{arrays}{numbers[a.name]}"
        if a.kind == "array"
        else _scalar(a, stored.scalars.get(a.name, 0))
        for a in (known[name] for name in dict.fromkeys((*order, *known)))
    ]


def _scalar(a: Argument, value: float | int | bool) -> str:
    text = _literal(float(value)) if np.dtype(a.dtype).kind == "f" else str(int(value))
    return f"({_c_type(a)})({text})"


def _compare(k: int, output: _Output, array: int) -> Iterator[str]:
    name = _shown(output.argument.name)
    yield f"  for (const ks_sample *s = samples_{k}; s->index >= 0; s++, n_compared++)"
    yield f"    if (!ks_agrees((double)a{array}[s->index], s->want, s->tolerance)) {{"
    yield "      n_wrong++;"
    yield (
        f'      printf("{name}[%lld] is %.9g and should be %.9g\\n", (long long)s->index,'
        f" (double)a{array}[s->index], s->want);"
    )
    yield "    }"
    yield f"  for (const ks_part *p = parts_{k}; p->begin >= 0; p++, n_compared++) {{"
    yield "    double sum = 0;"
    yield f"    for (int64_t i = p->begin; i < p->end; i++) sum += (double)a{array}[i];"
    yield "    if (!ks_agrees(sum, p->want, p->tolerance)) {"
    yield "      n_wrong++;"
    yield (
        f'      printf("the sum of {name}[%lld] to [%lld] is %.9g and should be %.9g\\n", (long long)p->begin,'
        " (long long)p->end - 1, sum, p->want);"
    )
    yield "    }"
    yield "  }"


def _shown(name: str) -> str:
    """A name as it may stand in a comment or a format."""
    return re.sub(r"[^A-Za-z0-9_]", "?", name)


def _c_type(a: Argument) -> str:
    return type_name(DType(a.dtype), 0)
