"""Sequences with sums that need the results of others to be finished, and candidates in which they share their loops."""

from __future__ import annotations

import numpy as np
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.library import load
from kernelscape.kernels.library.atax import gemv
from kernelscape.space import choices as ch
from kernelscape.space.backbone import OUTER
from kernelscape.space.candidate import Candidate

nd = types.ndarray()
F32 = np.float32


@kernel
def gemv_more(a: nd, x: nd, s: nd, t: nd, out: nd):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        out[i] = s[i] * acc + t[i]


@kernel
def gemv_over_first(a: nd, x: nd, s: nd, out: nd):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        out[i] = acc * s[0]


@kernel
def product_more(a: nd, b: nd, t: nd, out: nd):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[i, k] * b[k, j]
            out[i, j] = acc - t[i, j]


@kernel
def dot(x: nd, y: nd, out: nd):
    acc = 0.0
    for i in range(x.shape[0]):
        acc += x[i] * y[i]
    out[0] = acc


@kernel
def largest_over(x: nd, s: nd, out: nd):
    acc = x[0]
    for i in range(x.shape[0]):
        acc = max(acc, x[i])
    out[0] = acc / (1.0 + s[0] * s[0])


def three_rows(a, b, c, x, y):
    """Each waits for the one before, the last for both."""
    s, t = ndarray(F32, y.shape, name="s"), ndarray(F32, y.shape, name="t")
    gemv(a, x, s)
    gemv_more(b, x, s, s, t)
    gemv_more(c, x, t, s, y)


def two_products(a, b, c, zero, out):
    t = ndarray(F32, out.shape, name="t")
    product_more(a, b, zero, t)
    product_more(a, c, t, out)


def two_totals(x, y, out):
    s = ndarray(F32, (1,), name="s")
    dot(x, y, s)
    largest_over(x, s, out)


SEQUENCES = {
    "three_rows": (three_rows, ("mn", "mn", "mn", "n", "m")),
    "two_products": (two_products, ("mn", "nm", "nm", "mm", "mm")),
    "two_totals": (two_totals, ("n", "n", "1")),
}


def recorded(name, m, n):
    """A sequence over arrays of m and n, and their values by name."""
    rng = np.random.default_rng(m + n)
    if name in SEQUENCES:
        sequence, shapes = SEQUENCES[name]
        extent = {"m": m, "n": n, "1": 1}
        args = [rng.uniform(-1, 1, [extent[k] for k in s]).astype(F32) for s in shapes]
    else:
        entry = load(name)
        sequence, args = entry.sequence, entry.make_arguments({"m": m, "n": n}, np.dtype(F32), rng)
    recording = record_sequence(sequence, args, name)
    arrays = dict(zip((a.name for a in recording.arrays), args, strict=False))
    scalars = dict(
        zip((s.name for s in recording.scalars), args[len(recording.arrays) :], strict=True)
    )
    return recording, arrays, scalars


def together(root):
    """Returns the candidate in which all of them are one loop."""
    at, b = root, root.space.backbone
    for m in (m for m in b.merges if m.before_finish):
        x, y = (b.dim(t, name, OUTER).order_id for t, name in ((m.a, m.loop_a), (m.b, m.loop_b)))
        at = at.decide(root.space.model.order(x, y), 1 << ch.MERGED)
        assert isinstance(at, Candidate), at.why
    return at
