"""The bars of the comparison with peers: what share of the expert's speed, and of which libraries', a row must reach."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .measuring import median, spread
from .rows import Row

ELEMENTWISE = ("axpydot", "sscal", "vadd", "waxpby", "madd", "axpy")
SEQUENCES = (
    *("atax", "axpydot", "bicgk", "gemver", "gesummv", "madd"),
    *("sgemv", "sgemvt", "sscal", "vadd", "waxpby"),
)
UNFUSED = ("axpydot", "atax", "bicgk", "gemver", "vadd", "waxpby")  # where fusion spares traffic
FUSION_GAIN = 2.0
_PRODUCT_OF_EXPERT, _STRIDED_OF_UNSTRIDED = 0.95, 0.90
_NOISE = 0.02  # "never slower" within what two equal programs differ by
_UNFUSED_CALLS = ("numpy", "numpy_out")
_COMPILED = ("ours", "expert")
UNSTRIDED = "unstrided"  # what a search of the unstrided product found, in the rows of strided ones


def share_of_expert(r: Row) -> float:
    """The least share of the expert's speed that the row must reach."""
    if r["name"].startswith("matmul"):
        return _PRODUCT_OF_EXPERT
    in_memory = r["level"] == "memory"
    if r["name"] in ELEMENTWISE:
        return 0.97 if in_memory else 0.92
    return 0.95 if in_memory else 0.90


def share_of_blas(r: Row) -> float:
    """The least share of the speed of OpenBLAS through NumPy, for products."""
    volume = int(np.prod(list(r["sizes"].values())))
    if volume <= 256 * 256 * 32:
        return 1.0
    return 0.85 if volume >= 2048**3 else 0.90


def problems(r: Row) -> list[str]:
    """What one row misses."""
    ratio = r["ratio"]
    ours = ratio[f"ours {r['search']['compiler']}"]
    found = []
    if 1 / ours < share_of_expert(r):
        found.append(f"{1 / ours:.2f} of the expert, not {share_of_expert(r):.2f}")
    others = {k: v for k, v in ratio.items() if k != UNSTRIDED and not k.startswith(_COMPILED)}
    if r["name"].startswith("matmul"):
        blas = min((others[k] for k in _UNFUSED_CALLS if k in others), default=None)
        if r["name"] == "matmul" and blas is not None and blas / ours < share_of_blas(r):
            found.append(f"{blas / ours:.2f} of NumPy, not {share_of_blas(r):.2f}")
        others = {k: v for k, v in others.items() if k not in _UNFUSED_CALLS}
    if r["name"] == "matmul_strided":
        share = share_of_unstrided(r)
        if share is None:
            found.append("the unstrided product was not timed beside it")
        elif share[0] < _STRIDED_OF_UNSTRIDED:
            found.append(
                f"{share[0]:.2f} of the unstrided product, not {_STRIDED_OF_UNSTRIDED:.2f}"
            )
    slower = sorted(k for k, v in others.items() if ours > v * (1 + _NOISE))
    return found + [f"slower than {k} ({others[k] / ours:.2f})" for k in slower]


def share_of_unstrided(r: Row) -> tuple[float, float] | None:
    """What share of the speed of the unstrided product a strided one has, the median over rounds, and its spread; None where that
    was not timed beside it.
    """
    times = r["rounds_ns"]
    if UNSTRIDED not in times:
        return None
    shares = np.array(times[UNSTRIDED]) / np.array(times[f"ours {r['search']['compiler']}"])
    return median(shares), spread(shares)


def verdict(r: Row) -> str:
    """ "met", or what is missed."""
    return "; ".join(problems(r)) or "met"


def fusion_gain(rows: Sequence[Row]) -> float | None:
    """Geometric mean of the speed-up over the best unfused library calls where fusion spares traffic, beyond the caches; None
    without such rows.
    """
    gains = []
    for r in rows:
        calls = [r["ratio"][k] for k in _UNFUSED_CALLS if k in r["ratio"]]
        if r["name"] in UNFUSED and r["level"] == "memory" and calls:
            gains.append(min(calls) / r["ratio"][f"ours {r['search']['compiler']}"])
    return float(np.exp(np.mean(np.log(gains)))) if gains else None


def missed_bars(rows: Sequence[Row]) -> list[str]:
    """All that the table misses, one sentence each."""
    found = []
    for r in rows:
        where = f"{r['name']} {'x'.join(map(str, r['sizes'].values()))} {r['dtype']}"
        if r["status"] != "ok":
            found.append(f"{where} failed: {r['why']}")
            continue
        found += [f"{where}: {what}" for what in problems(r)]
    gain = fusion_gain([r for r in rows if r["status"] == "ok"])
    if gain is not None and gain < FUSION_GAIN:
        found.append(f"fusion gains {gain:.2f} times beyond the caches, not {FUSION_GAIN:g}")
    return found
