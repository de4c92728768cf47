"""Accuracy of vector functions such as exp and sin: their permitted error in units in the last place (ULP).

ULP4 is never slower, so a search takes it if `fast_math` allows it. Only a user who fixes the
choice gets ULP1. The scalar functions of <math.h> are within both. With `fast_math=False` these are
called for each lane, and there is no choice. The bound does not depend on the choice: the least
cost of a function is that of its fastest form.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...kernels.ir.kernel import Binary, DType, Expr, Unary
from ...kernels.ir.ops import OPS
from ...kernels.ir.task import Task
from ...kernels.ir.walk import children, nested_statements, walk
from ..backbone import INNER
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .tiling import VECTOR, kinds_of

ULP1, ULP4 = range(2)
ACCURACY = (
    "ULP1",  # at most 1 unit in the last place
    "ULP4",  # at most 4 units
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        has_vectors = any(kinds_of(s, d) & bits(VECTOR) for d in s.dims_at(t, INNER))
        if task.fast_math and has_vectors and any(map(_is_transcendental, _expressions(task))):
            var = s.b.add("accuracy", (task.name,), ACCURACY)
            s.v.of_tasks["accuracy"][t] = var
            s.v.dominated.append(var)


def _expressions(task: Task) -> Iterator[Expr]:
    roots = [x for x in (task.value, task.finish, task.condition) if x is not None]
    if task.body is not None:
        roots += [x for s in nested_statements(task.body.statements) for x in children(s)]
    for root in roots:
        yield from walk(root)


def _is_transcendental(e: Expr) -> bool:
    is_function = isinstance(e, Unary | Binary) and OPS[e.op].is_transcendental
    return is_function and e.dtype in (DType.f32, DType.f64)


PHRASES = Phrases(
    "accuracy",
    "values",
    {"ULP1": "calls functions of vectors that are within 1 ULP"},
    {"ULP1": "functions within 1 ULP"},
)

FAMILY = Family("accuracy", {CPU: ()}, declare, (PHRASES,))
