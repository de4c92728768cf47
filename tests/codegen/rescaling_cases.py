"""Sequences with sums whose terms hold the maximum of their loop, and candidates in which both are one pass."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.space.candidate import Candidate
from kernelscape.space.families.rescaling import RESCALED

nd = types.ndarray()
F32, F64, I32 = np.float32, np.float64, np.int32


@kernel
def softmax(x: nd, y: nd):
    for i in range(x.shape[0]):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
        s = 0.0
        for j in range(x.shape[1]):
            s += ks.exp(x[i, j] - m)
        for j in range(x.shape[1]):
            y[i, j] = ks.exp(x[i, j] - m) / s


@kernel
def log_sum_exp(x: nd, y: nd):
    for i in range(x.shape[0]):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
        s = 0.0
        for j in range(x.shape[1]):
            s += ks.exp(x[i, j] - m)
        y[i] = m + ks.log(s)


@kernel
def over_two_axes(x: nd, w: nd, y: nd):
    """A minimum over two axes, another base, and weights."""
    for i in range(x.shape[0]):
        m = 1e30
        for j in range(x.shape[1]):
            for k in range(x.shape[2]):
                m = min(m, x[i, j, k])
        s = 0.0
        for j in range(x.shape[1]):
            for k in range(x.shape[2]):
                s += -w[i, k] * ks.exp(2.0 * (m - x[i, j, k])) / (1.0 + w[i, j] * w[i, j])
        y[i] = s


@kernel
def scores(q: nd, k: nd, s: nd):
    for i in range(s.shape[0]):
        for j in range(i + 1):
            a = 0.0
            for d in range(q.shape[1]):
                a += q[i, d] * k[j, d]
            s[i, j] = a * 3.0


@kernel
def causal_rows(s: nd, v: nd, o: nd):
    for i in range(s.shape[0]):
        m = -1e30
        for j in range(i + 1):
            m = max(m, s[i, j])
        t = 0.0
        for j in range(i + 1):
            t += ks.exp(s[i, j] - m)
        for e in range(v.shape[1]):
            a = 0.0
            for j in range(i + 1):
                a += ks.exp(s[i, j] - m) * v[j, e]
            o[i, e] = a / t


def attention(q, k, v, o):
    s = ndarray(F32, (q.shape[0], k.shape[0]), name="s")
    scores(q, k, s)
    causal_rows(s, v, o)


@kernel
def position(x: nd, p: nd):
    for i in range(x.shape[0]):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
        at = x.shape[1]
        for j in range(x.shape[1]):
            at = min(at, j if x[i, j] == m else x.shape[1])
        p[i] = at


@kernel
def average_of_greatest(x: nd, w: nd, y: nd):
    for i in range(x.shape[0]):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
        s = 0.0
        for j in range(x.shape[1]):
            s += w[j] if m == x[i, j] else 0.0
        y[i] = s


@kernel
def variance(x: nd, y: nd):
    for i in range(x.shape[0]):
        mean = 0.0
        for j in range(x.shape[1]):
            mean += x[i, j]
        mean /= x.shape[1]
        v = 0.0
        for j in range(x.shape[1]):
            v += (x[i, j] - mean) * (x[i, j] - mean)
        y[i] = v / x.shape[1]


@kernel
def weighted_variance(x: nd, w: nd, mean: nd, y: nd):
    for i in range(x.shape[0]):
        s = 0.0
        t = 0.0
        for j in range(x.shape[1]):
            s += w[i, j] * w[i, j] * x[i, j]
            t += w[i, j] * w[i, j]
        v = 0.0
        for j in range(x.shape[1]):
            v += w[i, j] * w[i, j] * (s / t - x[i, j]) * (s / t - x[i, j])
        mean[i] = s / t
        y[i] = v / t


@kernel
def selected(x: nd, c: nd, y: nd):
    for i in range(x.shape[0]):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
        t = 0.0
        for j in range(x.shape[1]):
            if c[i, j] > 0.0:
                t += ks.exp(x[i, j] - m)
        y[i] = t


@kernel
def labels(x: nd, c: nd, p: nd):
    for i in range(x.shape[0]):
        best = 1e30
        label = 0
        for k in range(c.shape[0]):
            d = 0.0
            for j in range(x.shape[1]):
                d += (x[i, j] - c[k, j]) * (x[i, j] - c[k, j])
            if d < best:
                best = d
                label = k
        p[i] = label


@kernel
def terms_that_wait(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
        a, b, c, d, e, f = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(x.shape[1]):
            a += ks.exp(y[i, j] - m)  # which may be far above 1
            b += ks.exp(x[i, j] + m)
            c += ks.exp(m - x[i, j])
            d += ks.sin(x[i, j] - m)
            e += ks.exp(x[i, j] - m) + y[i, j]
            f += y[i, j] / ks.exp(x[i, j] - m)
        product, squares, top = 1.0, 0.0, 0.0
        for j in range(x.shape[1]):
            top = max(top, ks.exp(x[i, j] - m))  # nothing so far times 0 is no number
            product *= ks.exp(x[i, j] - m)  # one factor more a term
            squares += ks.exp(x[i, j] - m) * ks.exp(x[i, j] - m)
        g, h, k, n = 0.0, 0.0, 0.0, 0.0
        for j in range(x.shape[1]):
            g += x[i, j] if y[i, j] == m else 0.0
            h += 0.0 if x[i, j] == m else y[i, j]
            k += y[i, j] if x[i, j] == m else 1.0
            n += y[i, j] if x[i, j] < m else 0.0  # more terms count when the maximum grows
        z[0, i] = a
        z[1, i] = b
        z[2, i] = c
        z[3, i] = d
        z[4, i] = e
        z[5, i] = f
        z[6, i] = product
        z[7, i] = squares
        z[8, i] = g
        z[9, i] = h
        z[10, i] = k
        z[11, i] = n
        z[12, i] = top


@kernel
def means_that_wait(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        a, b, c = 0.0, 0.0, 0.0
        for j in range(x.shape[1]):
            a += x[i, j]
            b += x[i, j] * y[i, j]
            c += y[i, j] * y[i, j]
        mean, shifted = a / x.shape[1], a / (x.shape[1] - 1.0)
        d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(x.shape[1]):
            d += (y[i, j] - mean) * (y[i, j] - mean)  # of other values
            e += (x[i, j] - shifted) * (x[i, j] - shifted)
            f += (x[i, j] - mean) * (y[i, j] - mean)
            g += y[i, j] * (x[i, j] - mean) * (x[i, j] - mean)  # of other weights
            h += y[i, j] * (x[i, j] - b / c) * (x[i, j] - b / c)
        z[0, i] = d
        z[1, i] = e
        z[2, i] = f
        z[3, i] = g
        z[4, i] = h


@kernel
def weights_that_cancel(x: nd, w: nd, z: nd):
    for i in range(x.shape[0]):
        s, t = 0.0, 0.0
        for j in range(x.shape[1]):
            s += w[i, j] * x[i, j]
            t += w[i, j]
        v = 0.0
        for j in range(x.shape[1]):
            v += w[i, j] * (x[i, j] - s / t) * (x[i, j] - s / t)
        z[0, i] = v


@kernel(fast_math=False)
def in_order(x: nd, z: nd):
    for i in range(x.shape[0]):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
        s = 0.0
        for j in range(x.shape[1]):
            s += ks.exp(x[i, j] - m)
        at = x.shape[1]
        for j in range(x.shape[1]):
            at = min(at, j if x[i, j] == m else x.shape[1])
        z[0, i] = s
        z[1, i] = at


def _wide(rng, *shape):
    return rng.uniform(-40, 40, shape).astype(F32)


def _masked(rng, *shape):
    """Values of which the first ones of each row are infinitely small."""
    x = _wide(rng, *shape)
    x[:, : shape[1] // 2] = -np.inf
    return x


def _infinite(rng, *shape):
    """Values with the largest one, which is infinite, in the first quarter of each row, and a row of infinitely small ones."""
    x = _wide(rng, *shape)
    x[:, shape[1] // 8] = np.inf
    x[-1] = -np.inf
    return x


def _marks(rng, *shape):
    """Marks of values that count: none in the first half of a row, all of the first half in the last row."""
    marks = rng.integers(0, 2, shape).astype(F32)
    marks[:, : shape[1] // 2] = 0
    marks[-1] = np.arange(shape[1]) < shape[1] // 2
    return marks


def _late(rng, *shape):
    """Weights of which the first ones of each row are 0."""
    w = _tied(rng, *shape)
    w[:, : shape[1] // 2] = 0
    return w


def _tied(rng, *shape):
    return rng.integers(0, 4, shape).astype(F32)


def _out(_rng, *shape, dtype=F32):
    return np.zeros(shape, dtype)


# A sequence, its arrays of m rows and n columns, and the tasks that may be rescaled.
CASES = {
    "softmax": (softmax, lambda r, m, n: [_wide(r, m, n), _out(r, m, n)], ["s"]),
    "masked": (log_sum_exp, lambda r, m, n: [_masked(r, m, n), _out(r, m)], ["y"]),
    "double": (log_sum_exp, lambda r, m, n: [_wide(r, m, n).astype(F64), np.zeros(m)], ["y"]),
    "least": (
        over_two_axes,
        lambda r, m, n: [_wide(r, m, 3, n), _wide(r, m, n), _out(r, m)],
        ["y"],
    ),
    "attention": (
        attention,
        lambda r, m, n: [*(_wide(r, m, n) / 40 for _ in range(3)), _out(r, m, n)],
        ["t", "o"],
    ),
    "position": (position, lambda r, m, n: [_tied(r, m, n), _out(r, m, dtype=I32)], ["at"]),
    "integers": (
        position,
        lambda r, m, n: [_tied(r, m, n).astype(I32), _out(r, m, dtype=I32)],
        ["at"],
    ),
    "variance": (variance, lambda r, m, n: [100 + _wide(r, m, n), _out(r, m)], ["y"]),
    "weighted": (
        weighted_variance,
        lambda r, m, n: [50 + _wide(r, m, n), _late(r, m, n), _out(r, m), _out(r, m)],
        ["y"],
    ),
    "infinite": (
        selected,
        lambda r, m, n: [_infinite(r, m, n), _marks(r, m, n), _out(r, m)],
        ["y"],
    ),
    "labels": (
        labels,
        lambda r, m, n: [_tied(r, m, 3), _wide(r, n, 3), _out(r, m, dtype=I32)],
        ["p"],
    ),
    "greatest": (
        average_of_greatest,
        lambda r, m, n: [_tied(r, m, n), _wide(r, n), _out(r, m)],
        ["y"],
    ),
}


def recorded(name, m, n):
    """A sequence over m rows and n columns, and its arrays by name."""
    sequence, arguments, _ = CASES[name]
    args = arguments(np.random.default_rng(m + n), m, n)
    recording = record_sequence(lambda *a: sequence(*a), args, name)
    return recording, dict(zip((a.name for a in recording.arrays), args, strict=True))


def in_one_pass(root):
    """Returns the candidate in which all sums that may be are rescaled."""
    at = root
    for var in root.space.variables.of_tasks["rescaling"].values():
        at = at.decide(var, 1 << RESCALED)
        assert isinstance(at, Candidate), at.why
    return at
