"""Programs on pixels, and what they are in NumPy."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.calling import InputSet

nd: Any = ks.types.ndarray()
TYPES = (np.uint8, np.int8, np.uint16, np.int16)


@ks.kernel
def arithmetic(a: nd, b: nd, r: nd):
    for i in range(a.shape[0]):
        r[0, i] = a[i] + b[i]
        r[1, i] = a[i] - b[i]
        r[2, i] = a[i] * b[i]
        r[3, i] = min(a[i], b[i])
        r[4, i] = max(a[i], b[i])
        r[5, i] = (a[i] & b[i]) | (a[i] ^ b[i])
        r[6, i] = a[i] // b[i]
        r[7, i] = a[i] % b[i]
        r[8, i] = ~a[i]
        r[9, i] = a[i] >> 3
        r[10, i] = a[i] << 1


@ks.kernel
def divided(a: nd, b: nd, r: nd):
    for i in range(a.shape[0]):
        r[0, i] = a[i] // 9
        r[1, i] = a[i] % 10
        r[2, i] = a[i] // 16
        r[3, i] = a[i] % 127
        r[4, i] = (a[i] // 3) * 3 - a[i]


@ks.kernel
def saturated(a: nd, b: nd, r: nd):
    for i in range(a.shape[0]):
        r[0, i] = min(max(ks.i32(a[i]) + ks.i32(b[i]), 0), 255)
        r[1, i] = min(max(ks.i32(a[i]) - ks.i32(b[i]), -128), 127)
        r[2, i] = min(ks.i64(a[i]) * 2 + 1, 100)
        r[3, i] = abs(ks.i32(a[i]) - ks.i32(b[i]))


@ks.kernel
def masked(a: nd, b: nd, r: nd):
    for i in range(a.shape[0]):
        r[0, i] = ks.select(a[i] > b[i], 127, 0)
        r[1, i] = 1 if a[i] == b[i] else 0
        r[2, i] = ks.select(ks.i32(a[i]) + ks.i32(b[i]) > 200, a[i], b[i])
        if a[i] < b[i]:
            r[3, i] = a[i]
        r[4, i] = ks.select((a[i] > 3) and not b[i] > 100, a[i], 7)


@ks.kernel
def converted(a: nd, b: nd, r: nd, f: nd):
    for i in range(a.shape[0]):
        f[i] = a[i] * 0.5 + b[i]
        r[0, i] = ks.i32(ks.f32(a[i]) * 0.25)
        r[1, i] = ks.i64(a[i]) * ks.i64(b[i]) // 1000


PROGRAMS = {
    "arithmetic": (arithmetic, 11),
    "divided": (divided, 5),
    "saturated": (saturated, 4),
    "masked": (masked, 5),
    "converted": (converted, 2),
}


def edges(dtype: Any) -> np.ndarray[Any, Any]:
    """All numbers of 8 bits; of 16 those at ends and powers of two, and some between."""
    info = np.iinfo(dtype)
    if info.bits == 8:
        return np.arange(info.min, info.max + 1).astype(dtype)
    near = [s * (1 << k) + d for k in range(16) for s in (1, -1) for d in (-1, 0, 1)]
    some = np.random.default_rng(3).integers(info.min, info.max + 1, 40).tolist()
    return np.array(sorted({n for n in [*near, *some] if info.min <= n <= info.max}), dtype)


def pairs(dtype: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Every edge with every thirteenth other one, and with its own."""
    x = edges(dtype)
    return np.repeat(x, len(x) // 13 + 1), np.tile(x, len(x) // 13 + 1)


def arguments(name: str, dtype: Any) -> list[np.ndarray[Any, Any]]:
    a, b = pairs(dtype)
    args = [a, b, np.zeros((PROGRAMS[name][1], len(a)), dtype)]
    return [*args, np.zeros(len(a), np.float32)] if name == "converted" else args


def in_numpy(name: str, a: Any, b: Any, r: Any, f: Any = None) -> None:
    """The program on arrays of NumPy: the judge, which knows nothing of kernels."""
    wide, other = a.astype(np.int64), b.astype(np.int64)
    with np.errstate(all="ignore"):
        match name:
            case "arithmetic":
                rows = [a + b, a - b, a * b, np.minimum(a, b), np.maximum(a, b), (a & b) | (a ^ b)]
                rows += [a // b, a % b, ~a, a >> a.dtype.type(3), a << a.dtype.type(1)]
            case "divided":
                by = a.dtype.type
                rows = [a // by(9), a % by(10), a // by(16), a % by(127), (a // by(3)) * by(3) - a]
            case "saturated":
                rows = [np.clip(wide + other, 0, 255), np.clip(wide - other, -128, 127)]
                rows += [np.minimum(wide * 2 + 1, 100), abs(wide - other)]
            case "masked":
                rows = [np.where(a > b, 127, 0), a == b, np.where(wide + other > 200, a, b)]
                rows += [np.where(a < b, a, 0), np.where((a > 3) & ~(b > 100), a, 7)]
            case _:
                f[:] = a * np.float32(0.5) + b.astype(np.float32)
                rows = [np.trunc(a.astype(np.float32) * np.float32(0.25)), wide * other // 1000]
    for k, row in enumerate(rows):
        r[k] = row.astype(np.int64).astype(r.dtype)


def recorded(name: str, dtype: Any) -> tuple[Problem, list[InputSet]]:
    """A program with its arguments and what NumPy makes of them."""
    args = arguments(name, dtype)
    recording = record_sequence(PROGRAMS[name][0], args, name)
    problem = normalise(recording)
    want = [x.copy() for x in args]
    in_numpy(name, *want)
    names = [p.name for p in recording.arrays]
    given = dict(zip(names, args, strict=True))
    return problem, [InputSet(given, {}, dict(zip(names, want, strict=True)), 0.0, 1.0)]


@ks.kernel
def blur(x: nd, y: nd):
    for i, j in ks.ndrange((1, x.shape[0] - 1), (1, x.shape[1] - 1)):
        acc = ks.i32(0)
        for k, m in ks.static(ks.ndrange(3, 3)):
            acc += ks.i32(x[i + k - 1, j + m - 1])
        y[i, j] = acc // 9


@ks.kernel
def gradient(x: nd, y: nd):
    for i, j in ks.ndrange((1, x.shape[0] - 1), (1, x.shape[1] - 1)):
        across = ks.i32(x[i, j + 1]) - ks.i32(x[i, j - 1])
        down = ks.i32(x[i + 1, j]) - ks.i32(x[i - 1, j])
        y[i, j] = min(abs(across) + abs(down), 255)


@ks.kernel
def threshold(x: nd, y: nd, least: ks.u8):
    for i, j in ks.ndrange(x.shape[0], x.shape[1]):
        y[i, j] = ks.select(x[i, j] > least, 255, 0)


def pipeline(x: nd, y: nd, z: nd, mask: nd) -> None:
    blur(x, y)
    gradient(y, z)
    threshold(z, mask, 40)


def pipeline_in_numpy(x: Any, y: Any, z: Any, mask: Any) -> None:
    wide = x.astype(np.int32)
    n, m = x.shape
    windows = [wide[k : n - 2 + k, j : m - 2 + j] for k in range(3) for j in range(3)]
    y[1:-1, 1:-1] = sum(windows) // 9
    soft = y.astype(np.int32)
    across, down = soft[1:-1, 2:] - soft[1:-1, :-2], soft[2:, 1:-1] - soft[:-2, 1:-1]
    z[1:-1, 1:-1] = np.minimum(abs(across) + abs(down), 255)
    mask[:] = np.where(z > 40, 255, 0)


def picture(n: int = 24, m: int = 150) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)
    return [
        rng.integers(0, 256, (n, m)).astype(np.uint8),
        *(np.zeros((n, m), np.uint8) for _ in "yzm"),
    ]


def recorded_pipeline(n: int = 24, m: int = 150) -> tuple[Problem, list[InputSet]]:
    """The pipeline with a picture and what NumPy makes of it."""
    args = picture(n, m)
    recording = record_sequence(pipeline, args, "pipeline")
    want = [x.copy() for x in args]
    pipeline_in_numpy(*want)
    names = [p.name for p in recording.arrays]
    given, made = (dict(zip(names, xs, strict=True)) for xs in (args, want))
    return normalise(recording), [InputSet(given, {}, made, 0.0, 1.0)]
