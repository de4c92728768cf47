"""Bodies: what is known of each place where one touches memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.analysis.effects import are_independent
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.access import AxisMap, Guard
from kernelscape.kernels.ir.affine import Affine
from kernelscape.kernels.ir.body import FAR, Body, Closure, Reason, Site
from kernelscape.kernels.ir.domain import Count, Loop, Residue
from kernelscape.kernels.ir.task import Task
from kernelscape.kernels.tasks.distribute import unique_loops
from kernelscape.kernels.tasks.non_affine import closed_task
from kernelscape.kernels.tasks.pipeline import normalise

nd = types.ndarray()
I, J = Affine(0, (("i", 1),)), Affine(0, (("j", 1),))


def task_of(fn: Any, *args: Any) -> Task:
    (task,) = normalise(record_sequence(fn, args)).tasks
    return task


def closed_of(fn: Any, *args: Any) -> Task:
    """The one call of a kernel as a closed task, whether or not it could be opened."""
    (call,) = record_sequence(fn, args).calls
    arrays = {a.name: a for a in call.ir.arrays}
    reason = Reason(Closure.BRANCH, "a test", call.where)
    task = closed_task(unique_loops(call.ir.body), fn.fn.__name__, arrays, True, reason)
    assert task is not None
    return task


def body_of(fn: Any, *args: Any) -> Body:
    body = closed_of(fn, *args).body
    assert body is not None
    return body


def site(body: Body, array: str, op: str = "store") -> Site:
    (found,) = (s for s in body.sites if s.state.name == array and s.op == op)
    return found


def floats(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


@kernel
def guarded(x: nd, y: nd, z: nd, u: nd, v: nd):
    for i in range(x.shape[0]):
        if i >= 2 and i < 7:
            y[i] = x[i]
        else:
            z[i] = 1.0
        if i % 3 == 1:
            u[i] = 2.0
        if x[i] > 0.0:
            v[i] = 3.0


def test_guards_are_bounds_residues_or_data() -> None:
    body = body_of(guarded, *(floats(9) for _ in range(5)))
    assert body.shape == "guarded"
    assert site(body, "y").guard == Guard(bounds=((I, 2, FAR), (I, -FAR, 7)))
    assert site(body, "z").guard == Guard(is_exact=False)  # one of two conditions fails
    assert site(body, "u").guard == Guard(residues=(Residue(I, 3, 1),))
    decides = [s for s in body.sites if s.state.name == "x"][-1]
    assert site(body, "v").guard == Guard(data=(decides.number,), is_exact=False)
    assert decides.guard == Guard()


@kernel
def outside(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        if x[i] > 0.0 or i < 5:
            z[i] = 1.0
        else:
            y[i] = 0.0


def test_the_other_branch_of_an_or_is_an_and() -> None:
    body = body_of(outside, *(floats(9) for _ in range(3)))
    assert site(body, "y").guard == Guard(bounds=((I, 5, FAR),), data=(0,), is_exact=False)
    assert site(body, "z").guard == Guard(data=(0,), is_exact=False)


@kernel
def indexed(x: nd, at: nd, y: nd, z: nd, u: nd, w: nd):
    for i in range(x.shape[0]):
        half = i // 2
        ahead = i + 1
        base = int(at[i])
        y[half + 1] = x[i]
        z[ahead] = x[half]
        w[i % 2] = 1.0
        for d in range(3):
            u[base + d - 1] += x[i]


def test_index_classes() -> None:
    body = body_of(indexed, floats(6), floats(6), floats(9), floats(9), floats(9), floats(9))
    assert body.shape == "straight"
    ahead, half = Affine(1, (("i", 1),)), Affine(2, (("i", 1),))
    assert site(body, "y").index == (AxisMap(half, 2),)  # (i + 2) // 2
    assert site(body, "z").index == (AxisMap(ahead),)
    assert site(body, "w").index == (AxisMap(None),)
    update = site(body, "u", "update")
    assert update.index == (AxisMap(None, 1, ("base", -1, 1)),)
    assert update.operator == "add"
    assert update.loops == (Loop("d", 3, False),)
    assert [site(body, a, op).is_unique for a, op in (("y", "store"), ("z", "store"))] == [
        False,
        True,
    ]
    assert not update.is_unique
    assert [s.index for s in body.sites if s.op == "load" and s.state.name == "x"][1] == (
        AxisMap(I, 2),
    )


@kernel
def triangle(x: nd, y: nd, n: int):
    for i in range(x.shape[0]):
        for j in range(i + 1):
            y[i, j] = x[i]
        for k in range(n):
            y[i, k] = 0.0


def test_loops_inside_have_the_most_they_can_be() -> None:
    body = body_of(triangle, floats(5), floats(5, 9), 4)
    assert body.shape == "loops"
    first, second = (s for s in body.sites if s.op == "store")
    assert first.loops == (Loop("j", 5, False, Count("value", "j")),)
    behind = Affine(0, (("i", -1), ("j", 1)))
    assert first.guard == Guard(bounds=((behind, -FAR, 1),))
    assert first.is_unique
    (loop,) = second.loops
    assert loop.count == Count("argument", "n")
    assert not loop.is_known
    assert second.guard == Guard(is_exact=False)


@kernel
def changed(x: nd, y: nd):
    for i in range(x.shape[0]):
        at = i
        for _ in range(2):
            y[at] = x[i]
            at = at + 1
        if x[i] > 0.0:
            at = 0
        y[at] = x[i]


def test_a_local_that_changes_is_no_index() -> None:
    body = body_of(changed, floats(5), floats(9))
    assert [s.index for s in body.sites if s.op == "store"] == [(AxisMap(None),)] * 2


@kernel
def chosen(x: nd, y: nd):
    for i in range(x.shape[0]):
        t = x[i + 1] if x[i] > 0.0 else 0.0
        if t > 1.0:
            y[i] = t


def test_what_one_side_of_a_selection_reads_is_not_sure() -> None:
    body = body_of(chosen, floats(5), floats(5))
    condition, inside = (s for s in body.sites if s.op == "load")
    if inside.guard == Guard():
        condition, inside = inside, condition
    assert condition.guard == Guard()
    assert inside.guard == Guard(data=(condition.number,), is_exact=False)
    # What decides whether y is written is all that t was made of.
    assert site(body, "y").guard.data == (0, 1)


@kernel
def every_second(x: nd, y: nd):
    for i in range(x.shape[0]):
        if x[i] > 0.0:
            y[2 * i + 1] = y[2 * i]


@kernel
def neighbour(x: nd, y: nd):
    for i in range(x.shape[0]):
        if x[i] > 0.0:
            y[i + 1] = y[i]


@pytest.mark.parametrize(("fn", "expected"), [(every_second, True), (neighbour, False)])
def test_independent_iterations(fn: Any, expected: bool) -> None:
    task = task_of(fn, floats(5), floats(11))
    assert are_independent(task, task.loops[0]) == expected


def test_questions_of_a_task() -> None:
    closed = closed_of(guarded, *(floats(9) for _ in range(5)))
    assert not closed.is_structured
    assert closed.has_known_extents
