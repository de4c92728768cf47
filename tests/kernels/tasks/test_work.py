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
