"""The comparison with peers on its page, and its bars: what share of the speed of the expert and of libraries a row must reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .conditions import stamp_text
from .measuring import median, spread
from .rows import Columns, Row, table_of, title
from .writing import table, time_text

COMPILERS = ("gcc", "clang")

PROTOCOL = """Each row is made in a process of its own with no setting of OpenBLAS preset: a
calibration (of the first row only, with --no-calibrate), a search of our own with gcc (the budget is
in the row), at whose end newer versions let the other compilers build the best as well; then the best
it found, built with each compiler, beside the expert's C; "ours" is with the compiler of the result.
The expert's C is built with all passes of its compiler; of its variants, verified and timed in turn, the
fastest of each compiler competes. Then rounds of {a probe of memory; for each compiler ours and the expert's, sample by sample
in turn; each library in a child of its own; beside a strided product what a second search found for
the unstrided one}, which begin with another competitor each time. Arrays are on huge pages, touched
and warm; calls follow one another; every child has as many threads as this process has cores.
Columns are times divided by the expert's of the same round (1.00 is equal, more is slower), medians
over rounds; ± is half the inter-quartile range of ours. "Expert" is the faster of its compilers.
JAX makes new arrays for results, which is part of its time; torch.compile copies into the given ones.
A dash: not installed here, or it failed."""


@dataclass(frozen=True)
class Library:
    """A library to compare with: the package that must be there, and the module of ours that uses it (None: the reference of the
    library sequence). `is_bound` says whether its threads are OpenMP's and are bound to cores.
    """

    key: str
    heading: str
    package: str
    module: str | None
    is_bound: bool

    def environment(self, n_threads: int) -> tuple[tuple[str, str], ...]:
        """Every setting that decides how its threads run."""
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        bound = (("OMP_PROC_BIND", "true"), ("NUMBA_THREADING_LAYER", "omp"))
        return (*((name, str(n_threads)) for name in names), *(bound if self.is_bound else ()))


LIBRARIES = (
    Library("numpy", "NumPy", "numpy", None, False),
    Library("numpy_out", "NumPy out=", "numpy", "numpy_out", False),
    Library("numba", "numba fused", "numba", "numba_fused", True),
    Library("torch", "torch.compile", "torch", "torch_compiled", True),
    Library("jax", "jax.jit", "jax", "jax_jit", False),
)

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


def ours_of(r: Row) -> str:
    """Returns the name of our program as the compiler of the search built it.

    It is built by another, the best of them, where that compiler builds no expert program here, so that it was not compared.
    """
    own, built = f"ours {r['search']['compiler']}", r["ratio"]
    return own if own in built else min((k for k in built if k.startswith("ours ")), key=built.get)


def problems(r: Row) -> list[str]:
    """What one row misses."""
    ratio = r["ratio"]
    ours = ratio[ours_of(r)]
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
    shares = np.array(times[UNSTRIDED]) / np.array(times[ours_of(r)])
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
            gains.append(min(calls) / r["ratio"][ours_of(r)])
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


# --- the page ------------------------------------------------------------------------------------


def _ratio(key: str) -> Callable[[Row], str]:
    return lambda r: f"{r['ratio'][key]:.2f}" if key in r["ratio"] else "–"


def _by(r: Row) -> str:
    """The expert's compiler, and the variant of the program."""
    compiler = str(r["expert"]).partition(" ")[2]
    variant = r["variants"][compiler].replace("-D", "")
    return compiler + (f", {variant}" if variant else "")


COLUMNS: Columns = {
    "sequence": title,
    "type": lambda r: r["dtype"],
    "in": lambda r: r["level"],
    "expert": lambda r: time_text(r["median_ns"][r["expert"]]),
    "by": _by,
    "ours": lambda r: f"{r['ratio'][ours_of(r)]:.2f}",
    "± %": lambda r: f"{100 * r['ratio_spread'][ours_of(r)]:.1f}",
    **{key: _ratio(key) for key in ("ours clang", "expert gcc", "expert clang")},
    **{x.heading: _ratio(x.key) for x in LIBRARIES},
    "memory GB/s": lambda r: f"{np.median(r['memory']):.0f}",
    "evaluations": lambda r: str(r["search"]["evaluations"]),
    "budget s": lambda r: f"{r['options']['seconds']:g}",
    "bar": verdict,
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows: list[Row] = made["rows"]
    ok = [r for r in rows if r["status"] == "ok"]
    missed = missed_bars(rows)
    parts = ["# Against expert C and other libraries", ""]
    if ok:
        taken = sorted(r["stamp"]["taken"] for r in ok)
        parts += [stamp_text(ok[-1]["stamp"]), *_versions(ok[-1])]
        parts.append(
            f"- the stamp is of the last row; rows were taken from {taken[0]} to {taken[-1]}"
        )
    parts += ["", PROTOCOL, "", table_of(COLUMNS, ok), "", *_means(ok)]
    failed = [f"- {title(r)} {r['dtype']} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    absent = {key: why for r in ok for key, why in r["absent"].items()}
    gaps = [f"- not compared: {key}, {why}" for key, why in sorted(absent.items())]
    verdicts = [f"- missed: {line}" for line in missed] or (["All bars are met."] if ok else [])
    return "\n".join([*parts, "", *gaps, *failed, *verdicts, ""])


def _versions(row: Row) -> list[str]:
    libraries = ", ".join(f"{name} {v}" for name, v in sorted(row["versions"].items()))
    return [f"- compared: {libraries}; " + "; ".join(row["compilers"].values())]


def _means(rows: Sequence[Row]) -> list[str]:
    """Geometric means of the columns by where the data are, and of the speed-up over unfused calls."""
    keys = ["ours gcc", "ours clang", *(x.key for x in LIBRARIES)]
    body = []
    for level in dict.fromkeys(r["level"] for r in rows):
        chosen = [r for r in rows if r["level"] == level and r["name"] in SEQUENCES]
        means = [_mean([r["ratio"][k] for r in chosen if k in r["ratio"]]) for k in keys]
        body.append([level, str(len(chosen)), *(f"{m:.2f}" if m else "–" for m in means)])
    lines = ["Geometric means of the 11 sequences, time over the expert's:", ""]
    lines += [table(["in", "rows", *keys], body)] if body else []
    gain = fusion_gain(rows)
    if gain is not None:
        what = f"{gain:.2f} ({', '.join(UNFUSED)})"
        lines += ["", f"Speed-up over the best unfused library calls, beyond the caches: {what}."]
    for r in rows:
        share = share_of_unstrided(r)
        if share is not None:
            what = f"{share[0]:.2f} ± {100 * share[1]:.1f} %"
            lines += ["", f"{title(r)} {r['dtype']}: {what} of the speed of the unstrided product."]
    return lines


def _mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if values else 0.0
