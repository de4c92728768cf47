"""What the GPU table should show, row by row: met, missed, or open where something could not be measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..kernels.library import load
from .rows import Job, Row, title

SEQUENCES = ("axpydot", "atax", "bicgk", "sgemv", "sgemvt", "sscal", "gemver", "gesummv", "madd",
             "vadd", "waxpby")  # fmt: skip
COPY_SHARE = 0.92
PRODUCT_SHARE = 0.90  # of cuBLAS, at 1024^3
# Gains over CUBLAS of the sequences that fusion (F) or specialisation (S) helps: arXiv:1305.1183, table of performance.
PAPER_GAINS = {"axpydot": 1.94, "bicgk": 1.61, "gemver": 2.61, "gesummv": 1.0, "madd": 1.47, "sgemvt": 1.03, "vadd": 2.26,
               "waxpby": 1.93}  # fmt: skip
GOALS = f"""Goals: sequences limited by memory reach {COPY_SHARE:.0%} of the copy bandwidth measured beside them; where the paper
(arXiv:1305.1183) says that fusion or specialisation helps, the gain over the cuBLAS sequence is at least the paper's;
matmul 1024^3 reaches {PRODUCT_SHARE:.0%} of cuBLAS in plain FP32; 256x256x32 and the strided product are ahead of cuBLAS; no
measurement is below its bound."""


def all_jobs() -> list[Job]:
    """The whole table."""
    jobs = [Job(name, dict(load(name).benchmark_sizes[0])) for name in (*SEQUENCES, "axpy")]
    jobs.append(Job("matmul", {"m": 256, "n": 256, "k": 32}))
    jobs += [Job("matmul", {"m": n, "n": n, "k": n}) for n in (1024, 4096)]
    return [*jobs, Job("matmul_strided", {"m": 1024, "n": 1024, "k": 1024})]


@dataclass(frozen=True)
class Verdict:
    """One goal at one row; `is_met` is None where it could not be measured."""

    text: str
    is_met: bool | None

    @property
    def word(self) -> str:
        return {True: "met", False: "missed", None: "open"}[self.is_met]


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal, in the order of the rows. Rows of other sizes, and of the emulator, have none but to be made."""
    in_table = {job.key for job in all_jobs()}
    return [v for r in rows for v in _of_row(r, Job.of(r).key in in_table)]


def _of_row(r: Row, is_in_table: bool) -> Iterator[Verdict]:
    if r["status"] != "ok":
        yield Verdict(f"{title(r)} failed: {r['why']}", False)
        return
    if r["below_bound"] or r["alarms"]:
        n = r["below_bound"] or r["alarms"]
        yield Verdict(f"{title(r)}: {n} measurements below their bound", False)
    if not is_in_table or r["options"]["target"] != "cuda":
        return
    name, extents = r["name"], tuple(r["sizes"].values())
    if name in (*SEQUENCES, "axpy"):
        found = None if r["share"] is None else f"{r['share']:.0%}"
        is_met = None if r["share"] is None else r["share"] >= COPY_SHARE
        yield Verdict(
            f"{title(r)}: {found or '–'} of the copy bandwidth (goal {COPY_SHARE:.0%})", is_met
        )
    goal = PAPER_GAINS.get(name)
    if name == "matmul_strided" or (name == "matmul" and extents == (256, 256, 32)):
        goal = 1.0
    elif name == "matmul" and extents == (1024, 1024, 1024):
        goal = PRODUCT_SHARE
    if goal is not None:
        ratio = r["over_cublas"]
        found = "not timed beside" if ratio is None else f"{ratio:.2f} x"
        is_met = None if ratio is None else ratio >= goal
        yield Verdict(f"{title(r)}: {found} cuBLAS (goal {goal:.2f} x)", is_met)
