"""Static cost model of loops: estimates of updates that threads share."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.ir.kernel import DType, Update
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.kernels.tasks import work

nd = ks.types.ndarray()


@ks.kernel
def nested(a: nd, at: nd):
    for i in at:
        a[at[i]] += 1.0
        if at[i] > 3:
            for k in range(5):
                a[at[i] + k] += 2.0
                for m in range(3):
                    a[at[i] + m] += 3.0


@ks.kernel
def many(a: nd, at: nd):
    for i in at:
        for k in ks.static(range(300)):
            if at[i] > k:
                a[at[i] + k] += 1.0


def updates_in(kernel: Any) -> tuple[Any, list[Update]]:
    ir = kernel.instantiate(np.zeros(400), np.zeros(8, int))
    (loop,) = ir.body
    return loop.body, [s for s in nested_statements(loop.body) if isinstance(s, Update)]


def test_updates_count_as_often_as_their_loops_run() -> None:
    body, updates = updates_in(nested)
    found = [work.updates_of(body, [u], {"a": DType.f64}, 0).plain_ns for u in updates]
    assert [ns / work.PLAIN_UPDATE_NS for ns in found] == [1, 5, 15]
    every = work.updates_of(body, updates, {"a": DType.f64}, 0)
    assert every.plain_ns == pytest.approx(sum(found))
    assert every.atomic_ns == pytest.approx(21 * work.CAS_NS)


@ks.kernel
def claimed(mask: nd, count: nd, a: nd, at: nd):
    for i in at:
        if mask[at[i]] & 1 == 0:
            old = ks.atomic_or(mask[at[i]], 1)
            if old & 1 == 0:
                count[0] += 1
        a[at[i]] += 1.0


@ks.kernel
def visited(mask: nd, count: nd, a: nd, at: nd):
    for i in at:
        if a[at[i]] < 3.0:
            old = ks.atomic_add(mask[at[i]], 1)
            if old & 1 == 0:
                count[0] += 1


def test_updates_at_first_visits_do_not_count() -> None:
    """An entry that is claimed once is no cost of each iteration; one that changes again is."""
    dtypes = {"mask": DType.i64, "count": DType.i64, "a": DType.f64}
    given = np.zeros(9, int), np.zeros(1, int), np.zeros(9), np.zeros(8, int)
    found = []
    for kernel in (claimed, visited):
        (loop,) = kernel.instantiate(*given).body
        updates = [s for s in nested_statements(loop.body) if isinstance(s, Update)]
        found.append(work.updates_of(loop.body, updates, dtypes, 72, {"mask", "count"}))
    first, second = found
    assert (first.plain_ns, first.beside_ns) == (work.PLAIN_UPDATE_NS, 0.0)
    assert (second.plain_ns, second.beside_ns) == (2 * work.PLAIN_UPDATE_NS, 2 * work.FETCH_ADD_NS)


def test_what_stays_atomic_beside_copies_is_counted() -> None:
    ways = [work.Updates(50.0, 600.0, 800, ns).way(1.0, 1e6, 2) for ns in (0.0, 40.0, 60.0)]
    assert ways == [work.IN_COPIES, work.IN_COPIES, work.BY_ONE]


def test_a_body_is_walked_once_for_all_of_its_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind: steps that grow with updates times statements; a scatter of particles took 14 s of 60."""
    body, updates = updates_in(many)
    n_walked = 0
    blocks = work.blocks

    def counted(s: Any) -> Any:
        nonlocal n_walked
        n_walked += 1
        return blocks(s)

    monkeypatch.setattr(work, "blocks", counted)
    work.updates_of(body, updates, {"a": DType.f64}, 0)
    assert len(updates) == 300
    assert n_walked <= len(list(nested_statements(body)))
