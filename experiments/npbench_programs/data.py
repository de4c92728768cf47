"""Histograms, distances, checksums, tables and statistics: NPBench's programs on data."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def,untyped-decorator,valid-type"

from __future__ import annotations

from math import atan2, cos, sin, sqrt, tanh
from typing import Any

import numpy as np
from numba import prange

from ...kernels.frontend.intrinsics import cast, i32, loop_config
from ...kernels.frontend.kernel import kernel, types
from ...kernels.frontend.recorder import ndarray
from ..polybench_kernels import correlation, covariance, csr_vector, floyd_warshall, nussinov
from ..polybench_peers import PEERS
from .ported import Ported, parallel, serial

nd: Any = types.ndarray()


# --- element by element ---------------------------------------------------------------------------


@kernel
def clip_and_scale(x: nd, y: nd, out: nd) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = min(max(x[i, j], 2), 10) * 4 + y[i, j] * 3 + 9


def compute(x: Any, y: Any, out: Any) -> None:
    clip_and_scale(x, y, out)


def _np_compute(x, y, out):
    np.add(np.clip(x, 2, 10) * 4, y * 3 + 9, out=out)


@parallel
def _nb_compute(x, y, out):
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = min(max(x[i, j], 2), 10) * 4 + y[i, j] * 3 + 9


def _compute(rng, m, n):
    return rng.integers(0, 1000, (m, n)), rng.integers(0, 1000, (m, n)), np.zeros((m, n), np.int64)


@kernel
def add_trace(a: nd, out: nd) -> None:
    trace = 0.0
    for i in range(a.shape[0]):
        trace += tanh(a[i, i])
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] + trace


def go_fast(a: Any, out: Any) -> None:
    add_trace(a, out)


def _np_go_fast(a, out):
    np.add(a, np.tanh(np.diagonal(a)).sum(), out=out)


@parallel
def _nb_go_fast(a, out):
    trace = 0.0
    for i in range(a.shape[0]):
        trace += np.tanh(a[i, i])
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] + trace


def _go_fast(rng, n):
    return rng.random((n, n)), np.zeros((n, n))


@kernel
def distances_on_sphere(theta1: nd, phi1: nd, theta2: nd, phi2: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        up = sin(0.5 * (theta2[i] - theta1[i]))
        along = sin(0.5 * (phi2[i] - phi1[i]))
        h = up * up + cos(theta1[i]) * cos(theta2[i]) * along * along
        out[i] = 2.0 * atan2(sqrt(h), sqrt(1.0 - h))


def arc_distance(theta1: Any, phi1: Any, theta2: Any, phi2: Any, out: Any) -> None:
    distances_on_sphere(theta1, phi1, theta2, phi2, out)


def _np_arc_distance(theta1, phi1, theta2, phi2, out):
    h = np.sin(0.5 * (theta2 - theta1)) ** 2
    h += np.cos(theta1) * np.cos(theta2) * np.sin(0.5 * (phi2 - phi1)) ** 2
    np.multiply(2.0, np.arctan2(np.sqrt(h), np.sqrt(1.0 - h)), out=out)


@parallel
def _nb_arc_distance(theta1, phi1, theta2, phi2, out):
    for i in prange(out.shape[0]):
        up = np.sin(0.5 * (theta2[i] - theta1[i]))
        along = np.sin(0.5 * (phi2[i] - phi1[i]))
        h = up * up + np.cos(theta1[i]) * np.cos(theta2[i]) * along * along
        out[i] = 2.0 * np.arctan2(np.sqrt(h), np.sqrt(1.0 - h))


def _arc_distance(rng, n):
    return *(rng.random(n) for _ in range(4)), np.zeros(n)


# --- azimuthal integration ------------------------------------------------------------------------


@kernel
def means_by_radius(data: nd, radius: nd, out: nd) -> None:
    largest = radius[0]
    for i in range(radius.shape[0]):
        largest = max(largest, radius[i])
    for b in range(out.shape[0]):
        low = largest * b / out.shape[0]
        high = largest * (b + 1) / out.shape[0]
        total = 0.0
        count = 0.0
        for i in range(radius.shape[0]):
            if low <= radius[i] and radius[i] < high:
                total += data[i]
                count += 1.0
        out[b] = total / count


def azimint_naive(data: Any, radius: Any, out: Any) -> None:
    means_by_radius(data, radius, out)


def _np_azimint_naive(data, radius, out):
    edges = radius.max() * np.arange(len(out) + 1) / len(out)
    for b in range(len(out)):
        out[b] = data[(edges[b] <= radius) & (radius < edges[b + 1])].mean()


@parallel
def _nb_azimint_naive(data, radius, out):
    largest = radius.max()
    for b in prange(out.shape[0]):
        low, high = largest * b / out.shape[0], largest * (b + 1) / out.shape[0]
        total, count = 0.0, 0.0
        for i in range(radius.shape[0]):
            if low <= radius[i] < high:
                total += data[i]
                count += 1.0
        out[b] = total / count


@kernel
def weighted_histogram(data: nd, radius: nd, sums: nd, counts: nd, out: nd) -> None:
    least = radius[0]
    largest = radius[0]
    for i in range(radius.shape[0]):
        least = min(least, radius[i])
        largest = max(largest, radius[i])
    for b in range(out.shape[0]):
        sums[b] = 0.0
        counts[b] = 0.0
    for i in range(radius.shape[0]):
        b = min(cast((radius[i] - least) * out.shape[0] / (largest - least), i32), out.shape[0] - 1)
        sums[b] += data[i]
        counts[b] += 1.0
    for b in range(out.shape[0]):
        out[b] = sums[b] / counts[b]


def azimint_hist(data: Any, radius: Any, out: Any) -> None:
    sums = ndarray(out.dtype, out.shape, name="sums")
    counts = ndarray(out.dtype, out.shape, name="counts")
    weighted_histogram(data, radius, sums, counts, out)


def _np_azimint_hist(data, radius, out):
    sums = np.histogram(radius, len(out), weights=data)[0]
    np.divide(sums, np.histogram(radius, len(out))[0], out=out)


@serial
def _nb_azimint_hist(data, radius, out):
    least, largest, n = radius.min(), radius.max(), out.shape[0]
    sums, counts = np.zeros(n), np.zeros(n)
    for i in range(radius.shape[0]):
        b = min(int((radius[i] - least) * n / (largest - least)), n - 1)
        sums[b] += data[i]
        counts[b] += 1.0
    for b in range(n):
        out[b] = sums[b] / counts[b]


def _azimint(rng, n, bins):
    return rng.random(n), rng.random(n), np.zeros(bins)


# --- a checksum -----------------------------------------------------------------------------------


@kernel
def divide_bits(data: nd, out: nd) -> None:
    """The remainder of CRC-16-CCITT, bit by bit, with its bytes exchanged at the end."""
    crc = 0xFFFF
    loop_config(serialize=True)
    for i in range(data.shape[0]):
        byte = i32(data[i])
        for _ in range(8):
            if ((crc ^ byte) & 1) == 1:
                crc = (crc >> 1) ^ 0x8408
            else:
                crc = crc >> 1
            byte = byte >> 1
    crc = ~crc & 0xFFFF
    out[0] = ((crc << 8) | (crc >> 8)) & 0xFFFF


def crc16(data: Any, out: Any) -> None:
    divide_bits(data, out)


def _np_crc16(data, out):
    crc = 0xFFFF
    for byte in data.tolist():
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x8408 if crc & 1 else crc >> 1
    crc = ~crc & 0xFFFF
    out[0] = (crc << 8 | crc >> 8) & 0xFFFF


@serial
def _nb_crc16(data, out):
    crc = 0xFFFF
    for i in range(data.shape[0]):
        crc ^= int(data[i])
        for _ in range(8):
            crc = (crc >> 1) ^ 0x8408 if crc & 1 else crc >> 1
    crc = ~crc & 0xFFFF
    out[0] = (crc << 8 | crc >> 8) & 0xFFFF


def _crc16(rng, n):
    return rng.integers(0, 256, n).astype(np.uint8), np.zeros(1, np.int32)


# --- after PolyBench ------------------------------------------------------------------------------


def _covariance(rng, m, n):
    return rng.standard_normal((n, m)), np.zeros(m), np.zeros((m, m))


def _correlation(rng, m, n):
    return rng.standard_normal((n, m)), np.zeros(m), np.zeros(m), np.zeros((m, m))


def _floyd_warshall(rng, n):
    return (rng.integers(1, 1000, (n, n)).astype(np.int32),)


def _nussinov(rng, n):
    # A row behind the last one: elements that are read below the diagonal are zero.
    return rng.integers(0, 4, n).astype(np.float64), np.zeros((n + 1, n))


def spmv(start: Any, column: Any, value: Any, x: Any, y: Any) -> None:
    csr_vector(start, column, value, x, y)


def _spmv(rng, n, entries):
    start = np.zeros(n + 1, np.int32)
    start[1:] = np.cumsum(np.bincount(rng.integers(0, n, entries), minlength=n))
    column = rng.integers(0, n, entries).astype(np.int32)
    return start, column, rng.random(entries), rng.random(n), np.zeros(n)


_TABLE = {"m": 5, "n": 7}
PROGRAMS = (
    Ported(compute, _np_compute, _nb_compute, _compute, (2,), {"m": 2000, "n": 2000}, _TABLE),
    Ported(go_fast, _np_go_fast, _nb_go_fast, _go_fast, (1,), {"n": 2000}, {"n": 6}),
    Ported(
        arc_distance,
        _np_arc_distance,
        _nb_arc_distance,
        _arc_distance,
        (4,),
        {"n": 1_000_000},
        {"n": 9},
    ),
    Ported(
        azimint_naive,
        _np_azimint_naive,
        _nb_azimint_naive,
        _azimint,
        (2,),
        {"n": 400_000, "bins": 1000},
        {"n": 100, "bins": 4},
    ),
    Ported(
        azimint_hist,
        _np_azimint_hist,
        _nb_azimint_hist,
        _azimint,
        (2,),
        {"n": 400_000, "bins": 1000},
        {"n": 100, "bins": 4},
    ),
    Ported(crc16, _np_crc16, _nb_crc16, _crc16, (1,), {"n": 16_000}, {"n": 9}),
    Ported(
        covariance,
        PEERS["covariance"]["NumPy"],
        PEERS["covariance"]["numba"],
        _covariance,
        (0, 1, 2),
        {"m": 500, "n": 600},
        _TABLE,
    ),
    Ported(
        correlation,
        PEERS["correlation"]["NumPy"],
        PEERS["correlation"]["numba"],
        _correlation,
        (3,),
        {"m": 500, "n": 600},
        _TABLE,
    ),
    Ported(
        floyd_warshall,
        PEERS["floyd_warshall"]["NumPy"],
        PEERS["floyd_warshall"]["numba"],
        _floyd_warshall,
        (0,),
        {"n": 400},
        {"n": 6},
    ),
    Ported(
        nussinov,
        PEERS["nussinov"]["NumPy"],
        PEERS["nussinov"]["numba"],
        _nussinov,
        (1,),
        {"n": 90},
        {"n": 9},
    ),
    Ported(
        spmv,
        PEERS["csr_vector"]["NumPy"],
        PEERS["csr_vector"]["numba"],
        _spmv,
        (4,),
        {"n": 32_768, "entries": 65_536},
        {"n": 9, "entries": 20},
    ),
)
