"""Speed of the search itself: space, descents, propagation, bound and texts of every library sequence, and of a long window.

    python -m kernelscape.experiments.think_speed [--descents 200] [--walks 2000] [--only bicgk]

writes experiments/results/think_speed.md. The exit status is 1 when a median descent
takes 10 ms or more, 5 % of the descents end dead, or a median bound takes 50 us or more (of the window 200 us).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..codegen.lower import lower, print_source
from ..codegen.plan.candidates import plan_of
from ..kernels.frontend.recorder import record_sequence
from ..kernels.ir.task import Problem
from ..kernels.library import load, names
from ..kernels.tasks.pipeline import normalise
from ..runtime.cpu.dialect import C_TEAM
from ..search.bound.bounder import Bounder
from ..search.tree.estimate import Interval, estimate_knuth
from ..search.tree.ordering import NextChoice, decision_order
from ..space.build import build_space
from ..space.candidate import Candidate, DeadEnd, Space
from ..space.engine.propagate import FIXPOINT, random_descent
from ..space.targets.target import Target
from ..testing.checking import random_candidate
from ..testing.components import add_up, scale, turn
from ..testing.estimate_chen import estimate_chen
from . import row
from .conditions import stamp, stamp_text
from .rows import Columns, table_of
from .writing import parser_of, write_results

DESCENT_MS = 10.0
DEAD_SHARE = 0.05
BOUND_US = 50.0
WINDOW_BOUND_US = 200.0
WINDOW = "window"
_KERNELS = (scale, turn, add_up)
_N_COMPONENTS = 100


@dataclass(frozen=True)
class Quartiles:
    """Median with the quartiles around it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """What was found for one sequence at its default size."""

    name: str
    sizes: dict[str, int]
    n_objects: int
    n_choices: int
    n_searchable: int
    n_open: int  # at the root
    build_ms: float
    root_ms: float
    descent_ms: Quartiles
    decisions: float
    propagations_per_s: float
    dead_ends: Interval
    bound_us: Quartiles
    knuth: Interval
    chen: Interval
    text_ms: Quartiles | None = None  # None in rows of an earlier version


def measure_sequence(name: str, target: Target, n_descents: int, n_walks: int, seed: int) -> Row:
    """Everything about one sequence; the jitted functions have been called before."""
    problem, sizes = _problem(name)
    started_s = time.perf_counter()
    space = build_space(problem, target)
    built_s = time.perf_counter()
    root = space.root()
    rooted_s = time.perf_counter()
    assert isinstance(root, Candidate), f"{name} has no implementation"
    rng = np.random.default_rng(seed)
    descents_ms, n_propagations, n_decisions = _descents(space, root, n_descents, rng)
    next_choice = NextChoice(space)
    knuth = estimate_knuth(root, next_choice=next_choice, rng=rng, n_descents=n_walks)  # type: ignore[arg-type]
    chen = estimate_chen(root, next_choice=next_choice, rng=rng, n_descents=max(5, n_walks // 40))  # type: ignore[arg-type]
    return Row(
        name=name,
        sizes=sizes,
        n_objects=len({o for c in space.choices for o in c.objects}),
        n_choices=space.n_choices,
        n_searchable=len(space.searchable),
        n_open=len(root.open_choices()),
        build_ms=1e3 * (built_s - started_s),
        root_ms=1e3 * (rooted_s - built_s),
        descent_ms=_quartiles(descents_ms),
        decisions=n_decisions / n_descents,
        propagations_per_s=n_propagations / (1e-3 * sum(descents_ms)),
        dead_ends=knuth.dead_end_share,
        bound_us=_quartiles(_bounds_us(space, root, next_choice, n_descents, rng)),
        text_ms=_quartiles(_texts_ms(root, n_descents, rng)),
        knuth=knuth.n_leaves,
        chen=chen.n_leaves,
    )


def window(n: int) -> Problem:
    """Returns a window of `n` kernels on arrays of as many sizes, which share no loop: each is a component."""
    extents = [4096 + 16 * k for k in range(n)]
    read = [np.empty(extent, np.float32) for extent in extents]
    written = [
        np.empty(1 if _kernel(k) is add_up else extent, np.float32)
        for k, extent in enumerate(extents)
    ]

    def sequence(*arrays: Any) -> None:
        for k in range(n):
            _kernel(k)(arrays[k], arrays[n + k])

    return normalise(record_sequence(sequence, [*read, *written], WINDOW))


def _kernel(k: int) -> Any:
    return _KERNELS[k % len(_KERNELS)]


def _problem(name: str) -> tuple[Problem, dict[str, int]]:
    """Returns the problem at the default size, and its sizes. Values are never looked at, so the arrays take no memory."""
    if name == WINDOW:
        return window(_N_COMPONENTS), {"components": _N_COMPONENTS}
    entry = load(name)
    small = entry.make_arguments(
        dict.fromkeys(entry.sizes, 2), np.float32, np.random.default_rng(0)
    )
    large = _shapes(name)
    args = [
        np.empty(shape, np.float32) if isinstance(a, np.ndarray) else a
        for a, shape in zip(small, large, strict=True)
    ]
    return normalise(record_sequence(entry.sequence, args, name), entry.formula), dict(entry.sizes)


def _shapes(name: str) -> list[tuple[int, ...]]:
    """Shapes of the arguments at the default size (extents are linear in the sizes)."""
    entry = load(name)
    rng = np.random.default_rng(0)

    def extents(sizes: dict[str, int]) -> list[tuple[int, ...]]:
        made = entry.make_arguments(sizes, np.float32, rng)
        return [a.shape if isinstance(a, np.ndarray) else () for a in made]

    ones = dict.fromkeys(entry.sizes, 1)
    base = extents(ones)
    shapes = [list(s) for s in base]
    for key, size in entry.sizes.items():
        for k, shape in enumerate(extents(ones | {key: 2})):
            for axis, extent in enumerate(shape):
                shapes[k][axis] += (extent - base[k][axis]) * (size - 1)
    return [tuple(s) for s in shapes]


def _descents(
    space: Space, root: Candidate, n: int, rng: np.random.Generator
) -> tuple[list[float], int, int]:
    """Milliseconds of each random descent (propagation only), propagations and decisions in all."""
    priority = decision_order(space)
    times_ms, n_propagations, n_decisions = [], 0, 0
    for _ in range(n):
        domains = root.domains.copy()
        seed = int(rng.integers(2**31 - 1))
        started_ns = time.perf_counter_ns()
        status, decided, propagated = random_descent(
            space.model, space.scratch, domains, seed, priority
        )
        times_ms.append(1e-6 * (time.perf_counter_ns() - started_ns))
        n_decisions += decided
        n_propagations += propagated
        assert status == FIXPOINT or decided >= 0
    return times_ms, n_propagations, n_decisions


def _bounds_us(
    space: Space, root: Candidate, next_choice: NextChoice, n: int, rng: np.random.Generator
) -> list[float]:
    """Microseconds of the bound of candidates met on random descents, each bounded once."""
    bounder = Bounder(space)
    bounder.ns(root)
    times_us = []
    for _ in range(n // 10 + 1):
        at: Candidate | DeadEnd = root
        while isinstance(at, Candidate) and not at.is_complete:
            choice = next_choice(at)
            at = at.decide(choice, 1 << int(rng.choice(at.values(choice))))
            if isinstance(at, Candidate):
                started_ns = time.perf_counter_ns()
                bounder.ns(at)
                times_us.append(1e-3 * (time.perf_counter_ns() - started_ns))
    return times_us


def _texts_ms(root: Candidate, n: int, rng: np.random.Generator) -> list[float]:
    """Milliseconds in which each random implementation is lowered and printed."""
    times_ms = []
    for _ in range(n // 4 + 1):
        candidate = random_candidate(root, rng)
        if isinstance(candidate, Candidate):
            started_ns = time.perf_counter_ns()
            print_source(lower(plan_of(candidate)), C_TEAM)
            times_ms.append(1e-6 * (time.perf_counter_ns() - started_ns))
    return times_ms


def _quartiles(samples: Sequence[float]) -> Quartiles:
    low, middle, high = np.quantile(np.asarray(samples), [0.25, 0.5, 0.75])
    return Quartiles(float(middle), float(low), float(high))


def failures(rows: Sequence[Row]) -> list[str]:
    """What misses its goal, one sentence each."""
    found = []
    for r in rows:
        if r.descent_ms.median >= DESCENT_MS:
            found.append(f"{r.name}: a descent takes {r.descent_ms.median:.1f} ms")
        if r.dead_ends.mean >= DEAD_SHARE:
            found.append(f"{r.name}: {r.dead_ends.mean:.1%} of the descents end dead")
        if r.bound_us.median >= (WINDOW_BOUND_US if r.name == WINDOW else BOUND_US):
            found.append(f"{r.name}: a bound takes {r.bound_us.median:.0f} us")
    return found


def _between(x: Quartiles | None, form: str = ".1f") -> str:
    """A median and its quartiles."""
    return "–" if x is None else f"{x.median:{form}} ({x.low:{form}} – {x.high:{form}})"


def _size(x: Interval) -> str:
    return f"{x.mean:.1e} ({x.low:.0e} – {x.high:.0e})"


def _share(x: Interval) -> str:
    return f"{x.mean:.1%} ({x.low:.1%} – {x.high:.1%})"


COLUMNS: Columns = {
    "sequence": lambda r: r.name,
    "objects": lambda r: str(r.n_objects),
    "choices": lambda r: str(r.n_choices),
    "searchable": lambda r: str(r.n_searchable),
    "open at the root": lambda r: str(r.n_open),
    "build ms": lambda r: f"{r.build_ms:.0f}",
    "root ms": lambda r: f"{r.root_ms:.0f}",
    "descent ms": lambda r: _between(r.descent_ms, ".2f"),
    "decisions": lambda r: f"{r.decisions:.0f}",
    "propagations/s": lambda r: f"{r.propagations_per_s:.1e}",
    "dead ends": lambda r: _share(r.dead_ends),
    "bound us": lambda r: _between(r.bound_us),
    "text ms": lambda r: _between(r.text_ms),
    "implementations (Knuth)": lambda r: _size(r.knuth),
    "(Chen)": lambda r: _size(r.chen),
}


def report(values: dict[str, Any]) -> str:
    """The rows as Markdown."""
    rows = [msgspec.convert(r, Row) for r in values["rows"]]
    n_descents, n_walks = values["n_descents"], values["n_walks"]
    missed = failures(rows)
    return "\n".join(
        [
            "# How fast the search thinks",
            "",
            stamp_text(values["stamp"]),
            f"- {n_descents} descents a sequence, {n_walks} walks for the size and the dead ends",
            "",
            "Default sizes, f32. Medians with quartiles; sizes and shares with 95 % intervals. A"
            " descent is propagation alone: random decisions from the root to an implementation."
            " The root fixpoint includes shaving. Bounds are those of candidates on random"
            " descents, each met once. Texts are those of random implementations, lowered and printed."
            f" The window has {_N_COMPONENTS} small kernels of as many sizes, each a component.",
            "",
            table_of(COLUMNS, rows),
            "",
            f"Goals: a descent under {DESCENT_MS:g} ms, dead ends under {DEAD_SHARE:.0%}, a bound"
            f" under {BOUND_US:g} us, of the window {WINDOW_BOUND_US:g} us (medians): "
            + ("; ".join(missed) if missed else "all met."),
            "",
        ]
    )


def run(only: Sequence[str], n_descents: int, n_walks: int, seed: int, folder: Path | None) -> int:
    """Measure, write, check; the exit status."""
    device = row.cpu()
    target = device.machine.facts()
    chosen = list(only) or [*names(), WINDOW]
    measure_sequence(chosen[0], target, 5, 5, seed)  # compiles what is compiled on first use
    rows = []
    for name in chosen:
        rows.append(measure_sequence(name, target, n_descents, n_walks, seed))
        print(f"{name}: descent {rows[-1].descent_ms.median:.2f} ms", file=sys.stderr)
    effort = {"n_descents": n_descents, "n_walks": n_walks}
    values = {"stamp": stamp(device), **effort, "rows": [asdict(r) for r in rows]}
    print(write_results("think_speed", report, values, folder))
    missed = failures(rows)
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--only", nargs="*", default=(), help=f"names of sequences, or {WINDOW} (default: all)"
    )
    parser.add_argument("--descents", type=int, default=200)
    parser.add_argument("--walks", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    return run(given.only, given.descents, given.walks, given.seed, given.results)


if __name__ == "__main__":
    sys.exit(main())
