"""Debug mode: indices and assertions are looked at while a kernel runs."""

from __future__ import annotations

from contextlib import nullcontext

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.interpret.executor import interpret

pytestmark = pytest.mark.usefixtures("program")


@pytest.mark.compiler
@pytest.mark.parametrize("is_interpreted", [False, True])
def test_in_debug_mode_each_index_is_looked_at(is_interpreted):
    ks.init(debug=True)
    x = ks.field(ks.f32, shape=8)
    at = ks.field(ks.f32, shape=4)

    @ks.kernel
    def walk(n: ks.i32):
        for _ in range(1):
            place = 0.0
            for k in range(n):
                at[k] = at[k] + 0.5  # what decides the index is not known before the call
                place += at[k]
                x[ks.i32(place)] += 1.0

    with interpret() if is_interpreted else nullcontext():
        at.from_numpy(np.array([0, 1, 1, 1], np.float32))
        walk(4)
        assert x.to_numpy().tolist() == [1, 0, 1, 1, 0, 1, 0, 0]
        at.from_numpy(np.array([0, 4, 4, 1], np.float32))
        with pytest.raises(AssertionError, match=r"walk: index 0 of x .* from 0 to 7 and is 9"):
            walk(4)


@pytest.mark.compiler
def test_sides_that_are_not_taken_are_not_looked_at():
    def looked_at(debug):
        ks.init(debug=debug)
        d = ks.field(ks.f32, shape=4)
        d.fill(2)

        @ks.kernel
        def chosen(n: ks.i32) -> ks.f32:
            k = n
            while k > 20:
                k -= 1
            return d[k] if k < 10 else 0.0

        @ks.kernel
        def both(n: ks.i32) -> ks.i32:
            found = 0
            if n < 10 and d[n] > 0:
                found = 1
            return found

        return chosen, both

    for debug in (False, True):
        chosen, both = looked_at(debug)
        assert (chosen(3), chosen(15), both(3), both(15)) == (2.0, 0.0, 1, 0)
    for call in (chosen, both):
        with pytest.raises((AssertionError, IndexError), match="is 7"):
            call(7)


def said_of(capfd, call) -> str:
    """What a call printed, from C or from the interpreter, without the file."""
    call()
    out = capfd.readouterr().out
    return "".join(
        line.rpartition(".py:")[2].partition(": ")[2] + "\n" for line in out.splitlines()
    )


EDGES = {
    ks.i32: (-(2**31), -(2**31) + 1, -65536, -2, -1, 0, 1, 2, 30, 65535, 65536, 2**31 - 1),
    ks.u32: (0, 1, 2, 31, 65535, 65536, 2**31, 2**32 - 1),
    ks.i64: (-(2**63), -(2**32), -1, 0, 1, 3, 2**31, 2**62, 2**63 - 1),
    ks.u64: (0, 1, 2, 63, 2**32 - 1, 2**32, 2**63, 2**64 - 1),
    ks.i16: (-(2**15), -256, -1, 0, 1, 128, 2**15 - 1),
}


@pytest.mark.compiler
@pytest.mark.parametrize("dtype", EDGES, ids=lambda d: d.name)
def test_overflow_is_said_where_it_happens_and_nowhere_else(capfd, dtype):
    ks.init(debug=True)
    n = len(EDGES[dtype])
    x, sums, differences, products = (ks.field(dtype, shape=s) for s in (n, (n, n), (n, n), (n, n)))
    x.from_numpy(np.array(EDGES[dtype], dtype.numpy))

    @ks.kernel
    def all_pairs():
        for _ in range(1):
            for i in range(n):
                for j in range(n):
                    sums[i, j] = x[i] + x[j]
                    differences[i, j] = x[i] - x[j]
                    products[i, j] = x[i] * x[j]

    low, high = dtype.range
    expected = []
    for a in EDGES[dtype]:
        for b in EDGES[dtype]:
            for word, sign, exact in (
                ("addition", "+", a + b),
                ("subtraction", "-", a - b),
                ("multiplication", "*", a * b),
            ):
                if not low <= exact <= high:
                    text = f"{word} overflow in kernel all_pairs, `x[i] {sign} x[j]`"
                    expected.append(f"{text}: {a} {sign} {b}")
    said = said_of(capfd, all_pairs)
    assert said.splitlines() == expected
    with interpret():
        assert said_of(capfd, all_pairs) == said


@pytest.mark.compiler
def test_updates_and_shifts_are_looked_at_too(capfd):
    ks.init(debug=True)
    x, n = ks.field(ks.i32, shape=2), ks.field(ks.u32, shape=())

    @ks.kernel
    def change(a: ks.i32):
        b = a
        b += 2147483647
        b -= 5
        x[0] += a
        x[1] -= a
        n[None] -= ks.u32(a)
        x[0] = x[0] << 30
        b = a << 2

    x.from_numpy(np.array([2**31 - 1, -(2**31)], np.int32))
    said = said_of(capfd, lambda: change(1))
    assert said.splitlines() == [
        "addition overflow in kernel change, `b += 2147483647`: 1 + 2147483647",
        "subtraction overflow in kernel change, `b -= 5`: -2147483648 - 5",
        "addition overflow in kernel change, `x[0] += a`: 2147483647 + 1",
        "subtraction overflow in kernel change, `x[1] -= a`: -2147483648 - 1",
        "subtraction overflow in kernel change, `n[None] -= ks.u32(a)`: 0 - 1",
        "shift left overflow in kernel change, `x[0] << 30`: -2147483648 << 30",
    ]
    assert x.to_numpy().tolist() == [0, 2**31 - 1]  # the program goes on with what wraps around
    assert n[None] == 2**32 - 1


def test_overflow_is_not_looked_at_without_debug(capfd):
    x = ks.field(ks.i32, shape=1)

    @ks.kernel
    def add():
        x[0] += 1

    x[0] = 2**31 - 1
    assert said_of(capfd, add) == ""
    assert x[0] == -(2**31)


@pytest.mark.compiler
def test_unsigned_numbers_are_printed_as_they_are(capfd):
    x = ks.field(ks.u64, shape=1)

    @ks.kernel
    def show():
        for i in x:
            print(x[i], ks.u32(x[i]), ks.i32(x[i]))

    x[0] = 2**64 - 1
    for block in (nullcontext(), interpret()):
        with block:
            show()
        assert capfd.readouterr().out == "18446744073709551615 4294967295 -1\n"
