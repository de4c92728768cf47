"""The language of programs: fields, vectors, structs, classes, jumps out of loops and functions, random numbers."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import KernelError, LanguageError
from kernelscape.kernels.ir.errors import KernelAssertionError, ProgramRuntimeError

pytestmark = pytest.mark.usefixtures("program")


# --- fields


def test_a_field_is_one_array_however_it_is_reached():
    x = ks.Vector.field(2, ks.f32, shape=4)
    part = x.get_scalar_field(1)

    @ks.kernel
    def through(y: ks.template()):
        for i in x:
            x[i] = ks.Vector([i, 2 * i])
            y[i].y += 1
            part[i] *= 10

    through(x)
    assert x.to_numpy().tolist() == [[0, 10], [1, 30], [2, 50], [3, 70]]


# --- vectors, matrices, structs


def test_vectors_are_values():
    out = ks.field(ks.f32, shape=8)

    @ks.kernel
    def run():
        a = ks.Vector([1.0, 2.0, 3.0])
        b = a
        a.xy = a.yx
        a[2] += 10
        out[0], out[1], out[2] = a
        out[3] = b.dot(a) + b.norm_sqr()
        m = ks.Matrix([[0.0, 1.0], [2.0, 3.0]])
        v = m @ ks.Vector([1.0, 1.0])
        out[4] = v.sum() + m.determinant() + m[1, 0] + m[0, :].y
        k = 0
        for i in ks.static(range(3)):
            k += b[i] * i
        out[5] = k
        for i in range(3):
            out[6] += b[i]  # a component chosen at run time
            b[i] = 0.5
        out[7] = b.sum()

    run()
    assert out.to_numpy().tolist() == [2, 1, 13, 2 + 2 + 39 + 14, 6 - 2 + 2 + 1, 8, 6, 1.5]


def test_arguments_and_results_may_be_vectors_and_tuples():
    @ks.kernel
    def both(v: ks.types.vector(3, ks.f32), m: ks.types.matrix(2, 2, ks.i32)) -> (ks.f64, ks.i32):
        return v.sum() / 2, m.trace()

    assert both([1, 2, 4], ks.Matrix([[1, 2], [3, 4]])) == (3.5, 5)


# --- jumps


def collatz(n):
    steps = 0
    while n != 1:
        steps += 1
        if n % 2 == 0:
            n //= 2
            continue
        n = 3 * n + 1
        if steps > 50:
            break
    return steps


def test_while_break_continue_and_early_return():
    out = ks.field(ks.i32, shape=30)
    firsts = ks.field(ks.i32, shape=30)

    @ks.func
    def divisor(n):
        for d in range(2, n):
            if n % d == 0:
                return d
        return n

    @ks.kernel
    def run():
        for i in out:
            n, steps = i + 1, 0
            while n != 1:
                steps += 1
                if n % 2 == 0:
                    n //= 2
                    continue
                n = 3 * n + 1
                if steps > 50:
                    break
            out[i] = steps
        for i in firsts:
            if i < 2:
                continue
            firsts[i] = divisor(i)

    run()
    expected = [collatz(i + 1) for i in range(30)]
    assert out.to_numpy().tolist() == expected
    first = [0, 0, *(next(d for d in range(2, n + 1) if n % d == 0) for n in range(2, 30))]
    assert firsts.to_numpy().tolist() == first


def test_branches_that_call_run_only_where_they_are_taken():
    calls = ks.field(ks.i32, shape=())
    x = ks.field(ks.i32, shape=5)

    @ks.func
    def counted(v):
        calls[None] += 1
        return v > 2

    @ks.kernel
    def run():
        for _ in range(1):
            for i in range(5):
                x[i] = 1 if i > 0 and counted(i) else 0

    run()
    assert x.to_numpy().tolist() == [0, 0, 0, 1, 1]
    assert calls[None] == 4


def test_a_name_of_both_branches_outlives_them():
    @ks.kernel
    def run(a: ks.i32) -> ks.f32:
        if a > 1:
            v = ks.Vector([1.0, 2.0])
        else:
            v = ks.Vector([3.0, 4.0])
        return v.x + 10 * v.y

    assert (run(2), run(0)) == (21, 43)


# --- what stands inside of expressions and statements


def test_fields_are_filled_in_kernels():
    x = ks.field(ks.f32, shape=(3, 4), offset=(1, -1))
    v = ks.Vector.field(2, ks.i32, shape=5)

    @ks.kernel
    def clear(a: ks.f32):
        x.fill(a + 1)
        v.fill(ks.Vector([2, 3]))
        for i in range(2):
            v[i].x = 7

    clear(2.5)
    assert (x.to_numpy() == 3.5).all()
    assert v.to_numpy().tolist() == [[7, 3], [7, 3], [2, 3], [2, 3], [2, 3]]

    @ks.kernel
    def wrong():
        x.fill()

    with pytest.raises(LanguageError, match="fill takes one value"):
        wrong()


def test_named_expressions_and_repeated_lists():
    x = ks.field(ks.i32, shape=4)
    n = 2

    @ks.kernel
    def name():
        x[0] = (p := 5) + 1
        x[1] = p
        for i, j in ks.ndrange(*[3] * n):
            x[2] += i * j
        k = 0
        while (k := k + 1) < 10:
            x[3] = k

    name()
    assert x.to_numpy().tolist() == [6, 5, 9, 9]


def test_truth_values_are_numbers_where_numbers_are_asked_for():
    x = ks.field(ks.i32, shape=1)

    @ks.kernel
    def keep(a: ks.i32, b: ks.f32):
        x[0] = a + ks.i32(b)

    keep(True, np.True_)
    assert x[0] == 2


def test_annotations_of_vectors_as_results_mean_something_for_real_functions_only():
    x = ks.field(ks.f32, shape=3)

    @ks.func
    def half(a) -> ks.i32:
        return a / 2

    @ks.func
    def halves(a) -> ks.types.vector(2, ks.i32):
        return ks.Vector([a / 2, a])

    @ks.real_func
    def wholes(a: ks.f32) -> ks.types.vector(2, ks.i32):
        return ks.Vector([a / 2, a])

    @ks.kernel
    def each():
        x[0] = half(3)
        x[1] = halves(3)[0]
        x[2] = wholes(3)[0]

    each()
    assert x.to_numpy().tolist() == [1, 1.5, 1]


def test_several_static_values_and_roundings_to_a_type():
    x, y = ks.field(ks.i32, shape=3), ks.field(ks.i32, shape=3)

    @ks.kernel
    def name():
        a, b = ks.static(x, y)
        for i in a:
            a[i], b[i] = ks.round(i * 1.4, dtype=ks.i32), ks.floor(i * 1.4)

    name()
    assert x.to_numpy().tolist() == [0, 1, 3]
    assert y.to_numpy().tolist() == [0, 1, 2]


def scaled_sum(a, b=0, scale=1):
    return (a + b) * scale


def raises(n):
    return {}[n]


def test_arguments_of_functions_that_are_not_marked_are_evaluated_once():
    count = ks.field(ks.i32, shape=())
    seen = ks.field(ks.i32, shape=2)

    @ks.kernel
    def f():
        for _ in range(1):
            seen[0] = scaled_sum(
                ks.atomic_add(count[None], 1), 2, scale=ks.atomic_add(count[None], 1)
            )
            seen[1] = scaled_sum(*(count[None], 5))

    f()
    assert count[None] == 2
    assert seen.to_numpy().tolist() == [2, 7]


def test_functions_that_are_not_marked_say_what_is_wrong():
    given = {"scale": 10}

    @ks.kernel
    def f() -> ks.i32:
        return scaled_sum(3, **given)

    @ks.kernel
    def g() -> ks.i32:
        return raises(3)

    with pytest.raises(
        LanguageError, match=r"scaled_sum\(3, \*\*given\)`: give arguments one by one"
    ):
        f()
    with pytest.raises(LanguageError, match=r"`raises\(3\)` cannot be evaluated: KeyError: 3"):
        g()


# --- indices that leave arrays


def test_reads_behind_the_ends_of_arrays_take_the_nearest_element():
    """Kind: reads that Taichi makes beside an array. Stores there stay errors, and reads are errors in debug mode."""
    x, y = ks.field(ks.i32, shape=4), ks.field(ks.i32, shape=4)
    v = ks.Vector.field(2, ks.i32, shape=(2, 2))

    @ks.kernel
    def shift():
        for i in x:
            x[i] = 10 + i
        for i in y:
            y[i] = x[i - 1] + x[i + 1]
        for i, j in v:
            v[i, j] = [i, j]

    @ks.kernel
    def corner() -> ks.i32:
        n = 0
        for i, j in v:
            n += v[i + 1, j].x
        return n

    @ks.kernel
    def store():
        for i in x:
            x[i + 1] = 0

    @ks.kernel
    def around(a: ks.types.ndarray(), b: ks.types.ndarray()):
        for i, j in ks.ndrange(3, 3):
            b[i, j] = a[i + 1, j - 1]

    with ks.interpret():
        with pytest.warns(RuntimeWarning, match=r"`x\[i . 1\]` leaves the array x, so the nearest"):
            shift()
        assert y.to_numpy().tolist() == [21, 22, 24, 25]
        with pytest.warns(RuntimeWarning, match="leaves the array v"):
            assert corner() == 4
        with pytest.raises(IndexError):
            store()
        whole, near = np.arange(36, dtype=np.int32).reshape(6, 6), np.zeros((3, 3), np.int32)
        with pytest.warns(RuntimeWarning, match=r"`a\[i . 1, j . 1\]` leaves the array a"):
            around(whole[1:4, 5:2:-1], near)
        rows, columns = [1, 2, 2], [0, 0, 1]
        assert near.tolist() == whole[1:4, 5:2:-1][rows][:, columns].tolist()
        ks.init(debug=True)
        z = ks.field(ks.i32, shape=4)

        @ks.kernel
        def behind() -> ks.i32:
            n = 0
            for i in z:
                n += z[i + 1]
            return n

        with pytest.raises(AssertionError, match="must be from 0 to 3"):
            behind()


# --- packs of arguments


PACK = ks.types.argpack(a=ks.i32)


def test_packs_are_no_results():
    pack = PACK

    @ks.kernel
    def given(p: PACK) -> PACK:
        return p

    with pytest.raises(LanguageError, match="returns a pack of arguments: return its members"):
        given(pack(a=1))
    with pytest.raises(LanguageError, match="is given other members than it has: b"):
        pack(a=1, b=2)
    assert pack(a=1).to_dict() == {"a": 1} and repr(pack(a=1)) == "{'a': 1}"
    with pytest.raises(LanguageError, match="has no member 'b'"):
        _ = pack(a=1)["b"]


@ks.real_func
def depth_of(n: ks.i32) -> ks.i32:
    if n == 0:
        return 0
    return depth_of(n - 1) + 1


def test_calls_inside_one_another_have_a_limit():
    @ks.kernel
    def f(n: ks.i32) -> ks.i32:
        return depth_of(n)

    assert f(1024) == 1024
    with pytest.raises(KernelAssertionError, match="depth_of calls itself more than 1024"):
        f(1025)


@ks.real_func
def untyped(n: ks.i32):
    if n == 0:
        return 0
    return untyped(n - 1)


@ks.real_func
def with_array(n: ks.i32) -> ks.i32:
    x = np.zeros(64)
    x[n] = 1.0
    if n > 0:
        with_array(n - 1)
    return n


@pytest.mark.parametrize(
    ("called", "text"),
    [(untyped, "does not say what it returns"), (with_array, "has a local array")],
)
def test_functions_that_call_themselves_are_refused_with_a_reason(called, text):
    @ks.kernel
    def f(n: ks.i32) -> ks.i32:
        called(n)
        return n

    with pytest.raises(KernelError, match=text):
        f(3)


def test_an_architecture_that_must_be_there_is_an_error_where_it_is_missing():
    with pytest.raises(ProgramRuntimeError, match="metal, and enable_fallback=False forbids"):
        ks.init(arch=ks.metal, enable_fallback=False)
