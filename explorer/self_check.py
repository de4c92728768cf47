"""C program that checks an exported implementation: it draws inputs, and contains the expected results.

For a GPU it copies the arrays there and the written ones back, by CUDA's runtime.

The expected results are from a reference run in double precision on the same inputs (check_inputs.py). Of every written array
the program compares single elements, and sums over parts that together are the whole array. Sums of floats must be within
their tolerance; those of integers are modulo 2^64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codegen.text.header import function_name, header_file
from ..codegen.text.source import Argument, Source
from ..kernels.fields.canonical_state import canonical
from ..kernels.frontend.recorder import Recording
from ..kernels.ir.task import Problem
from ..kernels.sparse.recorded import UsedTree
from ..runtime.records.stored import StoredSequence
from ..runtime.worker.forked_inputs import ForkedInputs
from ..runtime.worker.verify import Expected, allowed_error
from .check_inputs import FILE, FUNCTIONS, READING, Inputs, c_type, fill, shown, whole

Array = NDArray[Any]

_SAMPLES = 32  # elements of an array
_PARTS = 16  # of an array, whose sums are compared

_TOP = """/* Checks {function} by itself: {title}.
 *
 * Every array is filled with numbers that follow from its place alone, evenly spread over what the search was made with{kept}; the
 * arrays that are only written hold NaN (integers a large negative number) before the call. Then {function} is called once.
 * Compared are, of every array that it writes, {samples} elements and the sums of {parts} parts that together are the whole array,
 * with what a reference in double precision gave for the same inputs. The tolerance is that of the search: rounding of the
 * partial results; integers are equal. A part that holds values that are not finite is passed over.
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
typedef struct {{ int64_t begin, end; uint64_t want; }} ks_whole; /* a sum of integers, modulo 2^64 */

{functions}
static void *ks_place(size_t bytes) {{
  void *p = aligned_alloc({macro}_ALIGNMENT, (bytes / {macro}_ALIGNMENT + 1) * {macro}_ALIGNMENT);
  if (!p) {{
    fprintf(stderr, "there is no memory for %zu bytes\\n", bytes);
    exit(2);
  }}
  return p;
}}

static inline int ks_agrees(double got, double want, double tolerance) {{
  if (isinf(tolerance)) return 1;
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
    """Expected content of one array; `tolerance` has the array's shape."""

    argument: Argument
    want: Array
    tolerance: Array

    @property
    def is_whole(self) -> bool:
        """True if elements are integers or truth values."""
        return np.dtype(self.argument.dtype).kind != "f"

    @property
    def is_signed(self) -> bool:
        """True if elements are signed integers."""
        return np.dtype(self.argument.dtype).kind == "i"


def check_text(
    source: Source,
    problem: Problem,
    recording: Recording,
    stored: StoredSequence,
    inputs: Inputs,
) -> str:
    """Returns the text of the check program for the function that the header of `source` defines."""
    roles = {a.name: a.role for a in problem.arrays}
    arrays = [a for a in source.arguments if a.kind == "array"]
    read = {a.name for a in arrays if a.name in inputs.read and roles[a.name] != "output"}
    outputs, moved = _outputs(source, problem, recording, inputs)
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
        kept=f", or read from {FILE}" if read else "",
        functions=FUNCTIONS,
    )
    lines = [head, *([READING] if read else []), *([_OF_GPU] if source.launches else [])]
    for k, output in enumerate(outputs):
        lines += [*_table(k, output), ""]
    lines += ["int main(int argc, char **argv) {" if read else "int main(void) {"]
    lines += ["  int n_compared = 0, n_wrong = 0;"]
    if read:
        lines += ['  FILE *inputs = fopen(argc > 1 ? argv[1] : KS_INPUTS, "rb");']
    numbers = {p.name: k for k, p in enumerate(recording.arrays)}
    for a in arrays:
        lines += fill(a, numbers[a.name], roles[a.name], stored.ranges[a.name], a.name in read)
    if read:
        lines += ["  if (inputs) fclose(inputs);"]
    if source.launches:
        written = {numbers[output.argument.name] for output in outputs}
        lines += _call_on_gpu(source, stored, numbers, function, written)
    else:
        lines += _call(source, stored, numbers, function)
    for k, output in enumerate(outputs):
        lines += _compare(k, output, numbers[output.argument.name])
    lines += [
        '  if (n_wrong) printf("%d of %d values are wrong\\n", n_wrong, n_compared);',
        f'  else printf("{function}: all %d values agree{_but(moved)}\\n", n_compared);',
        "  return n_wrong != 0;",
        "}",
        "",
    ]
    return "\n".join(lines)


def _outputs(
    source: Source, problem: Problem, recording: Recording, inputs: Inputs
) -> tuple[list[_Output], list[str]]:
    """Returns the arrays that can be compared, and the names of trees whose cells have no fixed slots, so cannot be."""
    given, arrays = inputs.arguments, inputs.arguments.arrays
    input_sets = ForkedInputs(recording, problem, given, np.random.default_rng(1), 1).result()
    expected = input_sets.sets[0].measured().expected
    roles = {a.name: a.role for a in problem.arrays}
    moved = [used.tree.name for used in recording.trees if _moves_cells(used, roles)]
    left_out = {
        x for used in recording.trees if used.tree.name in moved for x in used.arrays.values()
    }
    written = [
        a for a in source.arguments if a.kind == "array" and a.name in set(expected) - left_out
    ]
    places = {a.name: np.arange(math.prod(a.shape)).reshape(a.shape) for a in written}
    places = canonical(recording.trees, {**arrays, **places}) if recording.trees else {}
    return [
        _output(a, expected[a.name], arrays[a.name], places.get(a.name)) for a in written
    ], moved


def _moves_cells(used: UsedTree, roles: Mapping[str, str]) -> bool:
    """True if the sequence activates or deactivates cells of the tree, so that cells may get any slots."""
    listed = ("field", "list", "counters")
    return any(roles[name] != "input" for key, name in used.sections if not key.startswith(listed))


def _output(a: Argument, expected: Expected, given: Array, places: Array | None) -> _Output:
    """Returns the expected content of an array, in the array's dtype.

    For a field in a tree only active cells are known, at `places`; other elements are as `given`.
    """
    want, dtype = np.asarray(expected.want), np.dtype(a.dtype)
    tolerance = _tolerance(expected, dtype)
    if places is not None:
        want = _at(places, want, given)
        tolerance = _at(places, tolerance, np.zeros(given.shape))
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            rounded = want.astype(dtype)
        want = np.where(np.isinf(rounded), rounded, want)
    return _Output(a, want, tolerance)


def _tolerance(expected: Expected, dtype: np.dtype[Any]) -> Array:
    """Tolerance of each element; on a branch it includes the farthest allowed value."""
    want = np.asarray(expected.want)
    allowed: Array | float = 0.0
    if dtype.kind == "f":
        allowed = allowed_error(expected, dtype)
    elif expected.magnitude is not None:  # where rounding decides, anything is right
        allowed = np.where(np.asarray(expected.magnitude) > 0, np.inf, 0.0)
    tolerance = np.broadcast_to(allowed, want.shape).astype(np.float64)
    if expected.branches is not None:
        at, values = expected.branches.at, expected.branches.values.astype(np.float64)
        apart = np.abs(values - want.reshape(-1)[at][:, None]).max(axis=1)
        tolerance.reshape(-1)[at] += apart
    return tolerance


def _at(places: Array, values: Array, others: Array) -> Array:
    """Returns an array with `values` at the indices `places`, and `others` elsewhere."""
    found = others.astype(np.result_type(values, others)).reshape(-1)
    found[places.reshape(-1)] = np.broadcast_to(values, places.shape).reshape(-1)
    return found.reshape(others.shape)


def _table(k: int, output: _Output) -> Iterator[str]:
    """Yields C lines with sampled elements and parts of an array, and their expected contents."""
    size = output.want.size
    chosen = sorted({int(i) for i in np.linspace(0, size - 1, min(_SAMPLES, size))} if size else [])
    edges = np.linspace(0, size, min(_PARTS, size) + 1).astype(int) if size else np.zeros(1, int)
    rows = _whole_rows if output.is_whole else _float_rows
    yield from rows(k, output, chosen, list(pairwise(map(int, edges))))


def _whole_rows(
    k: int, output: _Output, chosen: Sequence[int], parts: Sequence[tuple[int, int]]
) -> Iterator[str]:
    want = output.want.reshape(-1).astype(np.int64 if output.is_signed else np.uint64)
    words, tolerance = want.view(np.uint64), output.tolerance.reshape(-1)
    yield f"static const ks_whole wholes_{k}[] = {{"
    for begin, end in (*((i, i + 1) for i in chosen), *parts):
        if not tolerance[begin:end].any():
            total = int(np.add.reduce(words[begin:end], dtype=np.uint64))
            yield f"  {{{begin}, {end}, {total}u}},"
    yield "  {-1, 0, 0}};"


def _float_rows(
    k: int, output: _Output, chosen: Sequence[int], parts: Sequence[tuple[int, int]]
) -> Iterator[str]:
    want = output.want.reshape(-1).astype(np.float64)
    tolerance = output.tolerance.reshape(-1)
    yield f"static const ks_sample samples_{k}[] = {{"
    yield from (f"  {{{i}, {_literal(want[i])}, {_literal(tolerance[i])}}}," for i in chosen)
    yield "  {-1, 0, 0}};"
    yield f"static const ks_part parts_{k}[] = {{"
    for begin, end in parts:
        with np.errstate(over="ignore", invalid="ignore"):
            size = float(np.abs(want[begin:end]).sum() + tolerance[begin:end].sum())
        if math.isfinite(size):
            total, allowed = math.fsum(want[begin:end]), math.fsum(tolerance[begin:end])
            yield f"  {{{begin}, {end}, {_literal(total)}, {_literal(allowed)}}},"
    yield "  {-1, 0, 0, 0}};"


def _literal(x: float) -> str:
    if math.isnan(x):
        return "NAN"
    if math.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    return f"{float(x):.17g}"


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
        numbers[a.name]: f"{math.prod(a.shape)} * sizeof({c_type(a)})"
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
    """Returns the call's arguments except the workspace: array variables with prefix `arrays`, and numbers."""
    known = {a.name: a for a in source.arguments if a.kind != "workspace"}
    order = [p.name for p in stored.parameters if p.name in known]
    return [
        f"{arrays}{numbers[a.name]}"
        if a.kind == "array"
        else _scalar(a, stored.numbers.get(a.name, 0))
        for a in (known[name] for name in dict.fromkeys((*order, *known)))
    ]


def _scalar(a: Argument, value: float | int | bool) -> str:
    text = _literal(float(value)) if np.dtype(a.dtype).kind == "f" else whole(int(value))
    return f"({c_type(a)})({text})"


def _but(moved: Sequence[str]) -> str:
    """Returns a phrase that names the trees that are not compared."""
    if not moved:
        return ""
    return f"; not compared: {' and '.join(map(shown, moved))}, whose cells may lie anywhere"


def _compare(k: int, output: _Output, array: int) -> Iterator[str]:
    compare = _compare_whole if output.is_whole else _compare_floats
    yield from compare(k, output, array)


def _compare_whole(k: int, output: _Output, array: int) -> Iterator[str]:
    name = shown(output.argument.name)
    kind, letter = ("long long", "d") if output.is_signed else ("unsigned long long", "u")
    said = f"is %ll{letter} and should be %ll{letter}"
    yield f"  for (const ks_whole *w = wholes_{k}; w->begin >= 0; w++, n_compared++) {{"
    yield "    uint64_t sum = 0;"
    yield f"    for (int64_t i = w->begin; i < w->end; i++) sum += (uint64_t)a{array}[i];"
    yield "    if (sum != w->want) {"
    yield "      n_wrong++;"
    yield f'      if (w->end == w->begin + 1) printf("{name}[%lld] {said}\\n", (long long)w->begin,'
    yield f"        ({kind})sum, ({kind})w->want);"
    yield f'      else printf("the sum of {name}[%lld] to [%lld] {said}\\n", (long long)w->begin, (long long)w->end - 1,'
    yield f"        ({kind})sum, ({kind})w->want);"
    yield "    }"
    yield "  }"


def _compare_floats(k: int, output: _Output, array: int) -> Iterator[str]:
    name = shown(output.argument.name)
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
