"""Complex numbers: arrays, scalars, literals, arithmetic, and results."""

import math

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.complex_numbers import pairs_of
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.kernels.ir.body import Closure
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.records.signature import Signature
from kernelscape.runtime.records.stored import bind_arguments
from kernelscape.testing.interpreted import run_reference

nd = ks.types.ndarray()
TURN = 0.6 + 0.8j


@ks.func
def squared(z):
    return z.real**2 + z.imag**2


@ks.kernel
def arithmetic(a: nd, b: nd, c: nd, s, r: nd):
    for i in a:
        z = a[i] * b[i] + s - 1
        z *= TURN
        z = z / b[i] - 2.5 / a[i] + a[i].conjugate() / 3 + abs(a[i])
        z -= complex(r[i], 1)
        if z == a[i]:
            z = 0j
        c[i] = -z if i % 2 else np.complex64(z**3)
        c[i] += squared(b[i]) * 1j
        r[i] = np.real(z) + np.imag(b[i])


@ks.kernel
def functions(a: nd, c: nd):
    for i in a:
        c[i, 0] = np.exp(a[i])
        c[i, 1] = np.log(a[i])
        c[i, 2] = np.sqrt(a[i])
        c[i, 3] = np.sin(a[i]) + ks.cos(a[i])
        c[i, 4] = a[i] ** 0.5 + (1 + 1j) ** a[i]
        c[i, 5] = np.angle(a[i]) + np.abs(a[i])
        c[i, 6] = np.where(a[i] != 1j, np.conj(a[i]), 2)


@ks.kernel
def dot(a: nd, b: nd) -> complex:
    acc = 0j
    for i in a:
        acc += np.conj(a[i]) * b[i]
    return acc


def drawn(dtype, n=24):
    rng = np.random.default_rng(5)
    return [(rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype) for _ in "ab"]


def both_ways(run):
    run()
    with interpret():
        run()


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_arithmetic_is_that_of_numpy(dtype):
    def run():
        a, b = drawn(dtype)
        start = np.linspace(0, 1, len(a)).astype(a.real.dtype)
        c, r, s = np.zeros(2 * len(a), dtype)[::2], start.copy(), dtype(1 - 2j)
        arithmetic(a, b, c, s, r)
        z = (a * b + s - 1) * TURN
        z = z / b - 2.5 / a + a.conj() / 3 + abs(a) - (start + 1j)
        want = np.where(np.arange(len(a)) % 2, -z, z**3) + abs(b) ** 2 * 1j
        tolerance = 2e-4 if dtype is np.complex64 else 1e-6  # one of them goes through complex64
        np.testing.assert_allclose(c, want, tolerance, tolerance)
        np.testing.assert_allclose(r, z.real + b.imag, tolerance, tolerance)

    both_ways(run)


def test_functions_are_those_of_numpy():
    def run():
        a, _ = drawn(np.complex128)
        a[:3] = 1j, -2, 3 - 0.5j
        c = np.zeros((len(a), 7), complex)
        functions(a, c)
        want = [np.exp(a), np.log(a), np.sqrt(a), np.sin(a) + np.cos(a)]
        want += [a**0.5 + (1 + 1j) ** a, np.angle(a) + abs(a), np.where(a != 1j, a.conj(), 2)]
        np.testing.assert_allclose(c, np.stack(want, 1), 1e-12, 1e-12)

    both_ways(run)


@pytest.mark.parametrize(("dtype", "digits"), [(np.complex64, 2e-7), (np.complex128, 4e-16)])
def test_roots_are_exact_in_both_parts(dtype, digits):
    @ks.kernel
    def roots(a: nd, c: nd):
        for i in a:
            c[i] = np.sqrt(a[i])

    a = np.array([1 + 1e-4j, 1 - 1e-9j, -1 + 1e-6j, -1 - 1e-6j, 0, 4, -4, 1e-20j, 3 - 4j], dtype)
    c = np.zeros_like(a)
    roots(a, c)
    want = np.sqrt(a)
    assert np.allclose(c.real, want.real, digits, 0)
    assert np.allclose(c.imag, want.imag, digits, 0)


def test_powers_that_are_no_small_whole_numbers_are_compiled():
    @ks.kernel
    def powers(a: nd, c: nd):
        for i in a:
            c[i, 0] = a[i] ** math.inf
            c[i, 1] = a[i] ** 0

    c = np.zeros((1, 2), complex)
    powers(np.array([0.5 + 0j]), c)
    assert c[0, 1] == 1


def test_results_and_views():
    a, b = drawn(np.complex64)
    found = dot(a[::2], b[::-1][:12])
    assert type(found) is complex
    assert abs(found - np.vdot(a[::2], b[::-1][:12])) < 1e-5
    assert dot(a, a).imag == 0


def test_quotients_of_large_numbers_do_not_overflow():
    @ks.kernel
    def divided(a: nd, b: nd):
        for i in a:
            a[i] = a[i] / b[i]

    a, b = np.array([1e200 + 1e200j, 1 + 1j]), np.array([2e200 - 1e200j, 1e-200 + 3e-200j])
    want = a / b
    divided(a, b)
    np.testing.assert_allclose(a, want)


@ks.kernel
def product(a: nd, b: nd, c: ks.types.ndarray(dtype=np.complex64, ndim=1)):
    for i in a:
        c[i] = a[i] * b[i]


@ks.kernel
def summed(a: nd, b: nd, r: nd):
    acc = 0j
    for i in a:
        acc += a[i] * b[i]
    r[0] = acc


def sequence(a, b, r):
    t = ks.ndarray(np.complex64, a.shape)
    assert (t.dtype, t.ndim, t.size, len(t)) == (np.complex64, 1, 24, 24)
    product(a, b, t)
    summed(t[::-1], b, r)


def test_sequences_are_those_of_two_real_numbers_a_number():
    a, b = drawn(np.complex64)
    r = np.zeros(1, np.complex64)
    want = ((a * b)[::-1] * b).sum()
    sequence(a, b, r)
    assert abs(r[0] - want) < 1e-4
    recording = record_sequence(sequence, (a, b, r))
    assert [p.shape for p in (*recording.arrays, *recording.temps)] == [(24, 2)] * 2 + [
        (1, 2),
        (24, 2),
    ]
    reasons = [t.body.reason.kind for t in normalise(recording).tasks if t.body is not None]
    assert reasons == [Closure.IN_TURN]
    given = {"a": pairs_of(a), "b": pairs_of(b), "r": np.zeros((1, 2), np.float32)}
    done = run_reference(recording, given, {})
    np.testing.assert_allclose(done["r"], pairs_of(np.array([want])), 1e-5)


def test_a_tuned_function_takes_and_writes_complex_arrays():
    a, b = drawn(np.complex64)
    args = (a, b, np.zeros(1, np.complex64))
    recording = record_sequence(sequence, args)
    parameters, arguments = bind_arguments(sequence, args, recording)
    assert arguments.arrays["a"].shape == (24, 2)
    signature = Signature(parameters, normalise(recording))
    r = np.zeros(2, np.complex64)[::2]
    given = {"a": a[::-1], "b": b, "r": r}
    values = signature.values(given)
    np.testing.assert_array_equal(values[0], pairs_of(a[::-1]))
    values[2][...] = 3
    signature.give_back(given, values)
    assert r[0] == 3 + 3j
    with pytest.raises(TypeError, match="argument a must be a NumPy array of complex numbers"):
        signature.values({**given, "a": a.real.copy()})


def refused(message, *args):
    def mark(fn):
        REFUSED.append((ks.kernel(fn), args, message))
        return fn

    return mark


REFUSED = []
Z = np.zeros(4, complex)


@refused("complex numbers have no order", Z)
def ordered(z: nd):
    for i in z:
        if z[i] < 1:
            z[i] = 0


@refused("gives a complex number to a number: begin it as a complex one, or take .real", Z)
def real_sum(z: nd):
    acc = 0.0
    for i in z:
        acc += z[i]
    z[0] = acc


@refused("is a complex number where a number is needed: take .real or .imag of it", Z)
def as_index(z: nd):
    for i in z:
        z[i] = float(z[i])


@refused("complex numbers have abs, exp, log, sqrt, sin and cos", Z)
def unknown(z: nd):
    for i in z:
        z[i] = np.tanh(z[i])


@refused(r"complex numbers have \+ - \* / \*\* alone", Z)
def remainder(z: nd):
    for i in z:
        z[i] = z[i] % 2


@refused("a vector has real components in a kernel", Z)
def vector(z: nd):
    for i in z:
        z[i] = (z[i] * ks.Vector([1, 2])).x


@refused("annotated with complex elements, those of this array are real", np.zeros(4))
def real_array(z: ks.types.ndarray(dtype=complex)):
    z[0] = 0


@refused("must be a complex number, not str", Z, "1j")
def text(z: nd, w: complex):
    z[0] = w


@pytest.mark.parametrize(("kernel", "args", "message"), REFUSED)
def test_what_is_refused(kernel, args, message):
    with pytest.raises(LanguageError, match=message) as caught:
        kernel(*args)
    assert "test_complex.py:" in str(caught.value)
