"""Adjoint against dual by dot products, which have no step size, and the dual against central differences, of kernels.

For random v and w, <J v, w> of the dual is <v, J' w> of the adjoint, over the whole state of arrays before and behind a kernel.
"""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.ir.errors import LanguageError
from kernelscape.kernels.transforms.derivatives.adjoint import adjoint
from kernelscape.kernels.transforms.derivatives.dual import dual
from kernelscape.kernels.transforms.derivatives.in_place import adjoint_on_copies
from kernelscape.testing.dot_products import (
    Arrays,
    Products,
    Tally,
    both_products,
    floats,
    run_on_copies,
)
from kernelscape.testing.generator.features import DERIVATIVES, SMALL_BODIES, STATEMENTS, Features

nd: Any = types.ndarray()
N = 7


@kernel
def straight(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        a = x[i] * 3.0
        b = a * a + ks.sin(a)
        a = b / (1.0 + y[i] * y[i])
        s[i % 3] += a * ks.exp(-b * 0.01) + ks.max(a, b)


@kernel
def stencil(x: nd, y: nd, k: nd, s: nd):
    for i in range(1, N - 1):
        y[i] = x[i - 1] * x[i + 1] + ks.sqrt(x[i])
    for i in range(N):
        s[0] += y[i] * y[i]


@kernel
def branches(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        a = x[i]
        if a > 0.8:
            b = a * a
            a = b * b
            if k[i] > 2:
                a *= y[i]
        else:
            a += 1.0
        s[0] += a * x[i]
        s[1] += ks.sqrt(a - 0.8) if a > 0.8 else 0.5 * a


@kernel
def loops(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        v = x[i]
        total = 0.0
        for j in range(4):
            v = v * y[j] + ks.cos(v)
            for m in range(2):
                total += v * x[(i + m) % N]
            if k[j] > 2:
                v *= 1.5
        s[0] += v * total


@kernel
def gather(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        j = k[i]
        a = x[j]
        j = (j + 1) % N
        y[i] = a * x[j] * x[j]


@kernel
def sums_of_inner_loops(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        total = 0.0
        for j in range(k[i]):
            total += x[i] * y[j]
        s[0] += total * total


@kernel
def local_arrays(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        a = ks.Vector([x[i], y[i] * x[i], 2.0])
        for j in range(3):
            a[k[j] % 3] = a[j] * a[j] + x[j]
        if k[i] > 1:
            a[k[i] % 3] *= y[i]
        s[0] += a[k[i] % 3] * a[0]


@kernel
def box(x: nd, y: nd, k: nd, s: nd):
    for i, j in ks.ndrange(N, 3):
        s[j] += x[i] * x[(i + j) % N] * y[j]


@kernel
def recurrence(x: nd, y: nd, k: nd, s: nd):
    for _ in range(1):
        for j in range(N - 1):
            y[j + 1] = ks.sin(y[j]) * x[j]


@kernel
def jumps(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        for j in range(N):
            if k[j] == 1:
                continue
            s[i % 3] += x[i] * y[j] * y[j]


@kernel
def carried_over_a_length_of_data(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        v = x[i]
        for j in range(k[i]):
            v = v * y[j]
        s[0] += v


@kernel
def while_loops(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        v = x[i]
        n = 0
        while v < 2.5 and n < 9:
            v = v * 1.3 + y[n % N] * v * v
            n += 1
        s[n % 3] += v * v


@kernel
def left_early(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        v = 1.0
        for j in range(k[i] + 1):
            for m in range(N):
                if x[m] * v > 0.9:
                    break
                v *= 1.0 + x[m] * y[j]
        s[0] += v


@kernel
def without_loops(x: nd, y: nd, k: nd, s: nd):
    a = x[0] * x[1]
    s[0] = a * y[2] + ks.pow(x[2], 2.5)
    if a > 0.5:
        s[1] += a / x[3]


@kernel
def beside_loops(x: nd, y: nd, k: nd, s: nd):
    a = x[0] * 2.0
    for i in range(N):
        y[i] = a * x[i] * x[i]
    s[0] = a * a


@kernel
def overwritten_output(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        y[i] = x[i] * x[i]
    for i in range(N):
        y[i] = 3.0 * x[i]
        s[2] = 0.0


@kernel
def linear_in_place(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        x[i] = 2.0 * x[i]
        y[i] *= 1.0


@kernel
def places_that_move(x: nd, y: nd, k: nd, s: nd):
    for _ in range(1):
        j = 0
        for t in range(4):
            y[j] = x[t] * x[j]
            s[0] += y[j] * y[j]
            j += 1  # noqa: SIM113
        if k[0] > N:
            j = 0
        y[j] = y[0] * y[1]


@kernel
def set_by_one_iteration(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        for t in range(3):
            if t == 0:
                y[i] = x[i] * x[i]
            s[0] += y[i] * y[i]


KERNELS = [
    straight, stencil, branches, loops, gather, sums_of_inner_loops, local_arrays, box, recurrence, jumps, without_loops,
    beside_loops, overwritten_output, linear_in_place, carried_over_a_length_of_data, while_loops, left_early,
    places_that_move, set_by_one_iteration,
]  # fmt: skip


def state(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0.3, 1.5, N), rng.uniform(0.3, 1.5, N)
    return {"x": x, "y": y, "k": rng.integers(0, N, N), "s": rng.uniform(0.3, 1.5, 3)}


@pytest.mark.parametrize("fn", KERNELS, ids=lambda k: k.name)
def test_both_modes_have_equal_dot_products(fn: Any) -> None:
    arrays = state(3)
    products = both_products(fn.instantiate(*arrays.values()), arrays)
    assert products.forward != 0
    assert products.backward == pytest.approx(products.forward, rel=1e-12)


def test_products_are_compared_by_their_terms() -> None:
    """Kind: a product that is no number, or that cancels, is compared with what it is not."""
    assert Products(0.0, 0.0, 0.0).are_equal
    assert Products(1e-3, 1e-3 + 1e-10, 2e4).are_equal
    assert not Products(1e-3, 1e-3 + 1e-10, 4e-3).are_equal
    assert not Products(1e-13, 2e-13, 3e-13).are_equal
    assert not Products(1.0, float("inf"), float("inf")).are_equal
    assert not Products(1.0, float("nan"), float("nan")).are_equal


@pytest.mark.parametrize("fn", KERNELS, ids=lambda k: k.name)
def test_dual_against_central_differences(fn: Any) -> None:
    arrays = state(3)
    names, rng, step = floats(arrays), np.random.default_rng(1), 1e-6
    v = {n: rng.normal(size=arrays[n].shape) for n in names}
    ir = fn.instantiate(*arrays.values())
    found = run_on_copies(
        dual(ir, {n: f"{n}_dot" for n in names}), arrays | {f"{n}_dot": v[n] for n in names}
    )
    above, below = (
        run_on_copies(ir, arrays | {n: arrays[n] + h * v[n] for n in names}) for h in (step, -step)
    )
    for n in names:
        wanted = (above[n] - below[n]) / (2 * step)
        np.testing.assert_allclose(found[f"{n}_dot"], wanted, rtol=1e-7, atol=1e-7)


@kernel
def sine_in_place(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        x[i] = ks.sin(x[i])


@kernel
def read_and_then_overwritten(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        s[0] += y[i] * y[i]
    for j in range(N):
        y[j] = x[j]


@kernel
def overwritten_by_a_later_iteration(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        for t in range(3):
            y[i] = x[t] * x[i]
            s[0] += y[i] * y[i]


@kernel
def sums_so_far(x: nd, y: nd, k: nd, s: nd):
    for _ in range(1):
        j = 0
        while j < N:
            s[1] += x[j]
            y[j] = s[1] * s[1]
            j += 1


@kernel
def overwritten_through_a_local(x: nd, y: nd, k: nd, s: nd):
    for i in range(N - 1):
        s[0] += y[i + 1] * y[i + 1]
    for i in range(N - 1):
        j = i + 1
        y[j] = x[i]


@kernel
def stored_in_a_branch(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        if y[i] > 0.8:
            x[i] = x[i] * y[i]
        x[i] = x[i] * x[i]


@kernel
def stored_in_a_loop(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        for t in range(4):
            x[i] = ks.sin(x[i]) * y[t]


@kernel
def read_at_neighbours_before(x: nd, y: nd, k: nd, s: nd):
    for i in range(N - 1):
        y[i] += x[i] * x[i + 1]
    for i in range(N):
        x[i] += 0.1 * y[i] * y[i]


@kernel
def greatest_of_its_own(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        ks.atomic_max(y[i], x[i])


@kernel
def old_value_of_its_own(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        a = ks.atomic_add(y[i], x[i])
        s[0] += a * a * y[i]


@kernel
def exchanged(x: nd, y: nd, k: nd, s: nd):
    s[1] = s[1] * s[2] * s[1]
    for i in range(N):
        a = x[i] * y[i] * s[1]
        x[i] = y[i] * y[i]
        y[i] = a


@kernel
def shifted_in_place(x: nd, y: nd, k: nd, s: nd):
    for i in range(1, 4):
        for j in range(2):
            x[i - 1] = ks.exp(0.1 * x[i - 1]) * y[j]


@kernel
def neighbours_in_place(x: nd, y: nd, k: nd, s: nd):
    for i in range(N - 1):
        x[i] = ks.sin(x[i]) * x[i + 1]


@kernel
def perhaps_outside(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        if i > 0:
            x[i - 1] = ks.sin(x[i - 1])


@kernel
def greatest(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        ks.atomic_max(s[0], x[i])


@kernel
def old_value(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        a = ks.atomic_add(s[0], x[i])
        y[i] = a


@kernel
def place_from_a_counter(x: nd, y: nd, k: nd, s: nd):
    for i in range(N):
        j = ks.atomic_add(k[0], 1)
        y[j % N] = x[i] * x[i]


IN_PLACE = [
    sine_in_place, read_and_then_overwritten, overwritten_by_a_later_iteration, overwritten_through_a_local, stored_in_a_branch,
    stored_in_a_loop, read_at_neighbours_before, greatest_of_its_own, old_value_of_its_own, exchanged, shifted_in_place,
]  # fmt: skip


@pytest.mark.parametrize("fn", IN_PLACE, ids=lambda k: k.name)
def test_adjoint_on_copies_reads_elements_that_are_overwritten(fn: Any) -> None:
    """Kind: values that a kernel reads and then overwrites, by loops before or by the iteration itself."""
    arrays = state(3)
    products = both_products(fn.instantiate(*arrays.values()), arrays)
    assert products.forward != 0
    assert products.backward == pytest.approx(products.forward, rel=1e-12)


def test_loop_that_is_longer_than_what_is_kept_ends_the_call() -> None:
    """Kind: values of iterations are overwritten in silence where there is no room for them."""
    arrays = state(3) | {"k": np.full(N, 5)}
    names = {n: f"{n}_bar" for n in floats(arrays)}
    ir = carried_over_a_length_of_data.instantiate(*arrays.values())
    bars = {names[n]: arrays[n] for n in names}
    run_on_copies(adjoint(ir, names, n_kept=5), arrays | bars)
    with pytest.raises(AssertionError, match=r"more than 4 iterations.*ks.init\(ad_stack_size=\)"):
        run_on_copies(adjoint(ir, names, n_kept=4), arrays | bars)


@pytest.mark.parametrize(
    ("fn", "sentence"),
    [
        (sine_in_place, "an element of x is overwritten after it was read"),
        (read_and_then_overwritten, "an element of y is overwritten after it was read"),
        (overwritten_by_a_later_iteration, "an element of y is overwritten after it was read"),
        (sums_so_far, "an element of s is overwritten after it was read"),
        (overwritten_through_a_local, "an element of y is overwritten after it was read"),
        (neighbours_in_place, "an element of x is overwritten after it was read"),
        (perhaps_outside, "an element of x is overwritten after it was read"),
        (greatest, "s is updated by max, only sums have one"),
        (old_value, "the old value of an update of s is used"),
        (place_from_a_counter, "the old value of an update of k is used"),
    ],
)
def test_refusal_is_one_sentence_with_its_line(fn: Any, sentence: str) -> None:
    """Kind: an adjoint reads an element that is not what the kernel read, in silence: stored to later in the text, by a later
    iteration of a loop around, or through a local.
    """
    arrays = state(3)
    with pytest.raises(LanguageError, match=sentence) as caught:
        adjoint(fn.instantiate(*arrays.values()), {n: f"{n}_bar" for n in floats(arrays)})
    if fn not in IN_PLACE:
        with pytest.raises(LanguageError, match=sentence):
            adjoint_on_copies(
                fn.instantiate(*arrays.values()), {n: f"{n}_bar" for n in floats(arrays)}
            )
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


@pytest.mark.parametrize("corpus", [STATEMENTS, SMALL_BODIES, DERIVATIVES], ids=lambda c: c.name)
def test_random_bodies_have_equal_dot_products(corpus: Features) -> None:
    """Bodies that keep the access rule; the others are refused, or `validation` finds them."""
    tally = Tally()
    tally.add(corpus, range(40))
    assert tally.wrong == []
    assert tally.n_compared >= 10
    if corpus is DERIVATIVES:
        assert tally.n_nonzero >= tally.n_compared / 2
        assert tally.n_with_flow >= tally.n_compared / 3
