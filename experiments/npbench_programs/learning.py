"""Layers of neural networks, in f32: NPBench's programs of deep learning."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def,untyped-decorator,valid-type"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from ...kernels.frontend.functions import exp, sqrt
from ...kernels.frontend.kernel import kernel, types
from ...kernels.frontend.recorder import ndarray
from .ported import Ported, parallel

nd: Any = types.ndarray()
F32 = np.float32


def _drawn(rng, *shapes):
    return tuple(rng.random(shape, dtype=F32) for shape in shapes)


# --- softmax and dense layers ---------------------------------------------------------------------


@kernel
def softmax_4d(x: nd, y: nd) -> None:
    for n in range(x.shape[0]):
        for h in range(x.shape[1]):
            for i in range(x.shape[2]):
                top = x[n, h, i, 0]
                for j in range(x.shape[3]):
                    top = max(top, x[n, h, i, j])
                total = 0.0
                for j in range(x.shape[3]):
                    y[n, h, i, j] = exp(x[n, h, i, j] - top)
                    total += y[n, h, i, j]
                for j in range(x.shape[3]):
                    y[n, h, i, j] /= total


def softmax(x: Any, y: Any) -> None:
    softmax_4d(x, y)


def _np_softmax(x, y):
    np.exp(x - x.max(axis=-1, keepdims=True), out=y)
    y /= y.sum(axis=-1, keepdims=True)


@parallel
def _nb_softmax_rows(x, y):
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = F32(0.0)
        for j in range(x.shape[1]):
            y[i, j] = np.exp(x[i, j] - top)
            total += y[i, j]
        for j in range(x.shape[1]):
            y[i, j] /= total


def _nb_softmax(x, y):
    _nb_softmax_rows(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]))


def _softmax(rng, n, h, m):
    return *_drawn(rng, (n, h, m, m)), np.zeros((n, h, m, m), F32)


@kernel
def dense(x: nd, w: nd, b: nd, y: nd) -> None:
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            total = b[j]
            for k in range(x.shape[1]):
                total += x[i, k] * w[k, j]
            y[i, j] = total


@kernel
def dense_relu(x: nd, w: nd, b: nd, y: nd) -> None:
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            total = b[j]
            for k in range(x.shape[1]):
                total += x[i, k] * w[k, j]
            y[i, j] = max(total, 0.0)


@kernel
def softmax_rows(x: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = 0.0
        for j in range(x.shape[1]):
            y[i, j] = exp(x[i, j] - top)
            total += y[i, j]
        for j in range(x.shape[1]):
            y[i, j] /= total


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, y: Any) -> None:
    first = ndarray(x.dtype, (x.shape[0], w1.shape[1]), name="first")
    second = ndarray(x.dtype, (x.shape[0], w2.shape[1]), name="second")
    third = ndarray(x.dtype, (x.shape[0], w3.shape[1]), name="third")
    dense_relu(x, w1, b1, first)
    dense_relu(first, w2, b2, second)
    dense(second, w3, b3, third)
    softmax_rows(third, y)


def _np_mlp(x, w1, b1, w2, b2, w3, b3, y):
    first = np.maximum(x @ w1 + b1, 0.0)
    second = np.maximum(first @ w2 + b2, 0.0)
    _np_softmax(second @ w3 + b3, y)


@parallel
def _nb_dense(x, w, b, y, least):
    width = 64
    for block in prange((y.shape[1] + width - 1) // width):
        low, high = block * width, min(block * width + width, y.shape[1])
        for i in range(y.shape[0]):
            y[i, low:high] = b[low:high]
            for k in range(x.shape[1]):
                for j in range(low, high):
                    y[i, j] += x[i, k] * w[k, j]
            for j in range(low, high):
                y[i, j] = max(y[i, j], least)


_NONE = F32(-np.finfo(F32).max)  # what nothing is below


def _nb_mlp(x, w1, b1, w2, b2, w3, b3, y):
    first = np.empty((len(x), w1.shape[1]), x.dtype)
    second = np.empty((len(x), w2.shape[1]), x.dtype)
    third = np.empty((len(x), w3.shape[1]), x.dtype)
    _nb_dense(x, w1, b1, first, F32(0.0))
    _nb_dense(first, w2, b2, second, F32(0.0))
    _nb_dense(second, w3, b3, third, _NONE)
    _nb_softmax_rows(third, y)


def _mlp(rng, n, features, first, second, third):
    shapes = (n, features), (features, first), first, (first, second), second
    x, *rest = _drawn(rng, *shapes, (second, third), third)
    # Weights of both signs, so that the last layer does not choose one element alone.
    return x, *((2.0 * w - 1.0) / F32(len(w)) for w in rest), np.zeros((n, third), F32)


# --- convolutions ---------------------------------------------------------------------------------


@kernel
def convolve(x: nd, w: nd, b: nd, y: nd) -> None:
    for n in range(y.shape[0]):
        for i in range(y.shape[1]):
            for j in range(y.shape[2]):
                for c in range(y.shape[3]):
                    total = b[c]
                    for p in range(w.shape[0]):
                        for q in range(w.shape[1]):
                            for d in range(w.shape[2]):
                                total += x[n, i + p, j + q, d] * w[p, q, d, c]
                    y[n, i, j, c] = total


def conv2d_bias(x: Any, w: Any, b: Any, y: Any) -> None:
    convolve(x, w, b, y)


def _np_convolved(x, w):
    """The products of all windows of x with w, without padding."""
    k = w.shape[0]
    windows = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(1, 2))
    return np.tensordot(windows, w, axes=((4, 5, 3), (0, 1, 2)))


def _np_conv2d_bias(x, w, b, y):
    np.add(_np_convolved(x, w), b, out=y)


@parallel
def _nb_convolve(x, w, b, y, least):
    n, height, width, channels = y.shape
    for row in prange(n * height):
        s, i = row // height, row % height
        for j in range(width):
            y[s, i, j, :] = b
            for p in range(w.shape[0]):
                for q in range(w.shape[1]):
                    for d in range(w.shape[2]):
                        for c in range(channels):
                            y[s, i, j, c] += x[s, i + p, j + q, d] * w[p, q, d, c]
            for c in range(channels):
                y[s, i, j, c] = max(y[s, i, j, c], least)


def _nb_conv2d_bias(x, w, b, y):
    _nb_convolve(x, w, b, y, _NONE)


def _conv2d_bias(rng, n, c_in, c_out, k, side):
    inner = side - k + 1
    given = _drawn(rng, (n, side, side, c_in), (k, k, c_in, c_out), c_out)
    return *given, np.zeros((n, inner, inner, c_out), F32)


@kernel
def pool(x: nd, y: nd) -> None:
    """The largest of two by two pixels, at least 0."""
    for n in range(y.shape[0]):
        for i in range(y.shape[1]):
            for j in range(y.shape[2]):
                for c in range(y.shape[3]):
                    above = max(x[n, 2 * i, 2 * j, c], x[n, 2 * i, 2 * j + 1, c])
                    below = max(x[n, 2 * i + 1, 2 * j, c], x[n, 2 * i + 1, 2 * j + 1, c])
                    y[n, i, j, c] = max(max(above, below), 0.0)


@kernel
def flatten(x: nd, y: nd) -> None:
    for n in range(x.shape[0]):
        for i in range(x.shape[1]):
            for j in range(x.shape[2]):
                for c in range(x.shape[3]):
                    y[n, (i * x.shape[2] + j) * x.shape[3] + c] = x[n, i, j, c]


def lenet(
    x: Any, w1: Any, b1: Any, w2: Any, b2: Any,
    f1: Any, g1: Any, f2: Any, g2: Any, f3: Any, g3: Any, y: Any,
) -> None:  # fmt: skip
    """Two convolutions, each with a maximum of four, and three dense layers."""
    n, side = x.shape[0], x.shape[1]
    one, half = side - 4, (side - 4) // 2
    two, quarter = half - 4, (half - 4) // 2
    c1 = ndarray(x.dtype, (n, one, one, w1.shape[3]), name="c1")
    p1 = ndarray(x.dtype, (n, half, half, w1.shape[3]), name="p1")
    c2 = ndarray(x.dtype, (n, two, two, w2.shape[3]), name="c2")
    p2 = ndarray(x.dtype, (n, quarter, quarter, w2.shape[3]), name="p2")
    flat = ndarray(x.dtype, (n, f1.shape[0]), name="flat")
    d1 = ndarray(x.dtype, (n, f1.shape[1]), name="d1")
    d2 = ndarray(x.dtype, (n, f2.shape[1]), name="d2")
    convolve(x, w1, b1, c1)
    pool(c1, p1)
    convolve(p1, w2, b2, c2)
    pool(c2, p2)
    flatten(p2, flat)
    dense_relu(flat, f1, g1, d1)
    dense_relu(d1, f2, g2, d2)
    dense(d2, f3, g3, y)


def _pooled(x):
    n, h, w, c = x.shape
    return x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


def _np_lenet(x, w1, b1, w2, b2, f1, g1, f2, g2, f3, g3, y):
    x = _pooled(np.maximum(_np_convolved(x, w1) + b1, 0.0))
    x = _pooled(np.maximum(_np_convolved(x, w2) + b2, 0.0)).reshape(len(x), -1)
    x = np.maximum(x @ f1 + g1, 0.0)
    x = np.maximum(x @ f2 + g2, 0.0)
    np.add(x @ f3, g3, out=y)


def _nb_convolved(x, w, b, least):
    inner = x.shape[1] - w.shape[0] + 1
    y = np.empty((len(x), inner, inner, w.shape[3]), x.dtype)
    _nb_convolve(x, w, b, y, least)
    return y


def _nb_lenet(x, w1, b1, w2, b2, f1, g1, f2, g2, f3, g3, y):
    x = _pooled(_nb_convolved(x, w1, b1, F32(0.0)))
    x = _pooled(_nb_convolved(x, w2, b2, F32(0.0))).reshape(len(x), -1)
    d1, d2 = np.empty((len(x), f1.shape[1]), F32), np.empty((len(x), f2.shape[1]), F32)
    _nb_dense(x, f1, g1, d1, F32(0.0))
    _nb_dense(d1, f2, g2, d2, F32(0.0))
    _nb_dense(d2, f3, g3, y, _NONE)


def _lenet(rng, n, side):
    quarter = ((side - 4) // 2 - 4) // 2
    shapes = (5, 5, 1, 6), 6, (5, 5, 6, 16), 16, (16 * quarter * quarter, 120), 120
    given = _drawn(rng, (n, side, side, 1), *shapes, (120, 84), 84, (84, 10), 10)
    return *(x - F32(0.5) for x in given), np.zeros((n, 10), F32)


@kernel
def convolve_into(x: nd, w: nd, y: nd, border: int) -> None:
    """y within its border is x convolved with w; the border is 0."""
    for n in range(y.shape[0]):
        for i in range(y.shape[1]):
            for j in range(y.shape[2]):
                for c in range(y.shape[3]):
                    y[n, i, j, c] = 0.0
    for n in range(y.shape[0]):
        for i in range(x.shape[1] - w.shape[0] + 1):
            for j in range(x.shape[2] - w.shape[1] + 1):
                for c in range(y.shape[3]):
                    total = 0.0
                    for p in range(w.shape[0]):
                        for q in range(w.shape[1]):
                            for d in range(w.shape[2]):
                                total += x[n, i + p, j + q, d] * w[p, q, d, c]
                    y[n, i + border, j + border, c] = total


@kernel
def batch_norm(x: nd, mean: nd, deviation: nd) -> None:
    """The mean and the standard deviation of each pixel and channel over the batch."""
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            for c in range(x.shape[3]):
                total = 0.0
                for n in range(x.shape[0]):
                    total += x[n, i, j, c]
                mean[i, j, c] = total / x.shape[0]
                squares = 0.0
                for n in range(x.shape[0]):
                    squares += (x[n, i, j, c] - mean[i, j, c]) * (x[n, i, j, c] - mean[i, j, c])
                deviation[i, j, c] = sqrt(squares / x.shape[0])


@kernel
def normalise_relu(x: nd, mean: nd, deviation: nd) -> None:
    for n in range(x.shape[0]):
        for i in range(x.shape[1]):
            for j in range(x.shape[2]):
                for c in range(x.shape[3]):
                    apart = x[n, i, j, c] - mean[i, j, c]
                    x[n, i, j, c] = max(apart / sqrt(deviation[i, j, c] + 1e-5), 0.0)


@kernel
def normalise_add_relu(x: nd, mean: nd, deviation: nd, beside: nd, y: nd) -> None:
    for n in range(x.shape[0]):
        for i in range(x.shape[1]):
            for j in range(x.shape[2]):
                for c in range(x.shape[3]):
                    apart = x[n, i, j, c] - mean[i, j, c]
                    scaled = apart / sqrt(deviation[i, j, c] + 1e-5)
                    y[n, i, j, c] = max(scaled + beside[n, i, j, c], 0.0)


def resnet(x: Any, w1: Any, w2: Any, w3: Any, y: Any) -> None:
    """A block of three convolutions with batch norm, around which the input is added."""
    n, side, few, many = x.shape[0], x.shape[1], w1.shape[3], w3.shape[3]
    wide = ndarray(x.dtype, (n, side + 2, side + 2, few), name="wide")
    inner = ndarray(x.dtype, (n, side, side, few), name="inner")
    last = ndarray(x.dtype, (n, side, side, many), name="last")
    convolve_into(x, w1, wide, 1)
    for made, weights, into in ((wide, w2, inner), (inner, w3, last)):
        mean = ndarray(x.dtype, made.shape[1:])
        deviation = ndarray(x.dtype, made.shape[1:])
        batch_norm(made, mean, deviation)
        normalise_relu(made, mean, deviation)
        convolve_into(made, weights, into, 0)
    mean = ndarray(x.dtype, last.shape[1:])
    deviation = ndarray(x.dtype, last.shape[1:])
    batch_norm(last, mean, deviation)
    normalise_add_relu(last, mean, deviation, x, y)


def _normalised(x):
    return (x - x.mean(axis=0)) / np.sqrt(x.std(axis=0) + F32(1e-5))


def _np_resnet(x, w1, w2, w3, y):
    wide = np.pad(_np_convolved(x, w1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    inner = _np_convolved(np.maximum(_normalised(wide), 0.0), w2)
    last = _np_convolved(np.maximum(_normalised(inner), 0.0), w3)
    np.maximum(_normalised(last) + x, 0.0, out=y)


@parallel
def _nb_normalise(x, beside, y):
    n, height, width, channels = x.shape
    for i in prange(height):
        for j in range(width):
            for c in range(channels):
                total, squares = F32(0.0), F32(0.0)
                for s in range(n):
                    total += x[s, i, j, c]
                mean = total / F32(n)
                for s in range(n):
                    squares += (x[s, i, j, c] - mean) * (x[s, i, j, c] - mean)
                scale = F32(1.0) / np.sqrt(np.sqrt(squares / F32(n)) + F32(1e-5))
                for s in range(n):
                    scaled = (x[s, i, j, c] - mean) * scale
                    y[s, i, j, c] = max(scaled + beside[s, i, j, c], F32(0.0))


def _nb_resnet(x, w1, w2, w3, y):
    few = np.zeros(w1.shape[3], F32)
    wide = np.pad(_nb_convolved(x, w1, few, _NONE), ((0, 0), (1, 1), (1, 1), (0, 0)))
    _nb_normalise(wide, np.zeros_like(wide), wide)
    inner = _nb_convolved(wide, w2, few, _NONE)
    _nb_normalise(inner, np.zeros_like(inner), inner)
    last = _nb_convolved(inner, w3, np.zeros(w3.shape[3], F32), _NONE)
    _nb_normalise(last, x, y)


def _resnet(rng, n, side, many, few):
    given = _drawn(
        rng, (n, side, side, many), (1, 1, many, few), (3, 3, few, few), (1, 1, few, many)
    )
    return *given, np.zeros_like(given[0])


PROGRAMS = (
    Ported(
        softmax,
        _np_softmax,
        _nb_softmax,
        _softmax,
        (1,),
        {"n": 16, "h": 16, "m": 128},
        {"n": 2, "h": 2, "m": 9},
        dtype="f32",
    ),
    Ported(
        mlp,
        _np_mlp,
        _nb_mlp,
        _mlp,
        (7,),
        {"n": 8, "features": 3, "first": 30000, "second": 2000, "third": 2000},
        {"n": 2, "features": 3, "first": 9, "second": 7, "third": 5},
        dtype="f32",
    ),
    Ported(
        conv2d_bias,
        _np_conv2d_bias,
        _nb_conv2d_bias,
        _conv2d_bias,
        (3,),
        {"n": 8, "c_in": 3, "c_out": 16, "k": 2, "side": 32},
        {"n": 2, "c_in": 3, "c_out": 4, "k": 2, "side": 5},
        dtype="f32",
    ),
    Ported(
        lenet,
        _np_lenet,
        _nb_lenet,
        _lenet,
        (11,),
        {"n": 4, "side": 28},
        {"n": 1, "side": 16},
        dtype="f32",
    ),
    Ported(
        resnet,
        _np_resnet,
        _nb_resnet,
        _resnet,
        (4,),
        {"n": 8, "side": 14, "many": 32, "few": 8},
        {"n": 3, "side": 4, "many": 3, "few": 2},
        dtype="f32",
    ),
)
