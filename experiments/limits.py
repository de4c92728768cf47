"""Are time limits kept? By how much explorations outlast limits of 1 to 20 s, alone and beside busy processes.

    python -m kernelscape.experiments.limits [--only lu:limit=1,load=0] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/limits.md after every row.
The exit status is 1 when a row fails, or outlasts its limit by more than the bar on a machine that had cores for it.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer import stages as st
from ..explorer.entry import explore
from ..kernels.frontend.kernel import kernel, types
from ..kernels.library import load
from ..search import events as ev
from .conditions import stamp
from .measuring import busy_processes
from .polybench_kernels import SEQUENCES
from .polybench_peers import arrays_of
from .question import Question, asked, failures
from .rows import Columns, Job, Row, page

BAR_S = 5.0  # how long a session may outlast its limit, and what follows its search
STARVED = 0.5  # the share of its time that a process may wait for a core, until nothing is held against it
_SIZES = {"lu": 400, "nussinov": 200, "waxpby": 1 << 26, "chain": 200, "endless": 1000}

LIMITS, LOADS = (1, 2, 5, 20), (0, 4)
JOBS = tuple(
    Job(name, {"limit": limit, "load": load})
    for name in _SIZES
    for load in LOADS
    for limit in LIMITS
)
PROTOCOL = f"""LU of {_SIZES["lu"]}^2 and nussinov of {_SIZES["nussinov"]} elements in f64, waxpby of 2^26 floats, a chain of
{_SIZES["chain"]} calls, and a kernel with a `while` that never ends; `load` processes beside them do nothing but compute.
Each row is a process of its own with an empty folder of builds; its time begins when `explore` is called. "over": how much longer
it took than its limit; "after": from the last row of the search to the end; "waited": the share of that time in which the process
wanted a core and had none. Held to {BAR_S:g} s each, but where it waited for more than {STARVED:.0%}: "starved"."""

nd: Any = types.ndarray()


@kernel
def smooth(x: nd, y: nd) -> None:
    for i in range(1, x.shape[0] - 1):
        y[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1]


@kernel
def halved_until_zero(x: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        a = x[i]
        while a > 0.0:
            a = a * 1.0
        y[i] = a


def chain(x: Any, y: Any) -> None:
    """Calls that go to and fro."""
    for _ in range(_SIZES["chain"] // 2):
        smooth(x, y)
        smooth(y, x)


def endless(x: Any, y: Any) -> None:
    """A loop that no reference comes to the end of."""
    halved_until_zero(x, y)


@dataclass(frozen=True)
class LimitOptions:
    """Options of one row."""

    seed: int = asked(1, least=0)


class Work:
    """Something that is explored; its sizes are those of a row."""

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """Raises ValueError."""
        if sizes.keys() != {"limit", "load"}:
            raise ValueError("a row has a limit and a load, as in lu:limit=1,load=0")
        return sizes


def exploration(name: str, seed: int) -> Callable[..., Any]:
    """`explore` with a work and its arguments."""
    rng, n = np.random.default_rng(seed), _SIZES[name]
    if name in SEQUENCES:
        return partial(explore, SEQUENCES[name], *arrays_of(name, n, rng))
    if name == "waxpby":
        entry = load(name)
        sizes = dict.fromkeys(entry.sizes, n)
        return partial(explore, entry, *entry.make_arguments(sizes, np.float32, rng))
    return partial(explore, {"chain": chain, "endless": endless}[name], np.ones(n), np.zeros(n))


def make_row(job: Job, options: LimitOptions) -> Row:
    """The end of an exploration with this limit, and when it came."""
    begin = exploration(job.name, options.seed)
    last_s, during = time.monotonic(), ""

    def hear(event: object) -> None:
        nonlocal last_s, during
        if isinstance(event, ev.Row):
            last_s = time.monotonic()
        if isinstance(event, st.OutOfTime):
            during = event.during

    beside = busy_processes(job.sizes["load"])
    with tempfile.TemporaryDirectory(prefix="kernelscape-limits-") as folder, beside:
        began_s, waited_s = time.monotonic(), _waited_s()
        limit_s = float(job.sizes["limit"])
        run = begin(time_limit=limit_s, directory=Path(folder) / "run", on_event=hear)
        ended_s = time.monotonic()
        waited_s = _waited_s() - waited_s
    n = run.ended.evaluations
    return {
        "ended": run.status,
        "during": during,
        "over_s": ended_s - began_s - limit_s,
        "after_s": ended_s - last_s if n else None,
        "candidates": n,
        "waited": waited_s / (ended_s - began_s),
        "stamp": stamp(),
    }


def _waited_s() -> float:
    """Seconds in which this thread wanted a core and had none; 0 where the system does not say."""
    try:
        return 1e-9 * int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0


def verdict(row: Row) -> str:
    """True if the limit was kept."""
    if max(row["over_s"], row["after_s"] or 0.0) <= BAR_S:
        return "kept"
    return "starved" if row["waited"] > STARVED else "missed"


COLUMNS: Columns = {
    "work": lambda r: r["name"],
    "load": lambda r: str(r["sizes"]["load"]),
    "limit": lambda r: f"{r['sizes']['limit']} s",
    "over": lambda r: f"{r['over_s']:.1f} s",
    "after": lambda r: "–" if r["after_s"] is None else f"{r['after_s']:.1f} s",
    "candidates": lambda r: str(r["candidates"]),
    "waited": lambda r: f"{r['waited']:.0%}",
    "ended": lambda r: r["ended"] + (f" while {r['during']}" if r["during"] else ""),
    "limit was": verdict,
}


def report(made: dict[str, Any]) -> str:
    """A line for each row."""
    return page("Time limits", PROTOCOL, COLUMNS, made["rows"], by_time=True)


def missed(made: Sequence[Row]) -> list[str]:
    """Rows that failed, and limits that were not kept."""
    late = [r for r in made if r["status"] == "ok" and verdict(r) == "missed"]
    return failures(made) + [f"{Job.of(r).key}: {COLUMNS['over'](r)} over" for r in late]


QUESTION = Question(
    file="limits",
    doc=__doc__,
    order=JOBS,
    options=LimitOptions,
    make=make_row,
    report=report,
    say=lambda r: ", ".join(cell(r) for cell in list(COLUMNS.values())[3:]),
    missed=missed,
    works=dict.fromkeys(_SIZES, Work()),
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
