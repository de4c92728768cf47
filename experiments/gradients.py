"""Cost of a gradient beside its function.

    python -m kernelscape.experiments.gradients [--taichi PYTHON] [--jax PYTHON] [--only NAME ...] [--rounds 3]

Ten kernels of experiments/gradient_kernels.py in processes of their own, one thread on one core each, here and in the Python of
Taichi and of JAX by turns: CPU time of a call of the kernel and of one of its adjoint (of JAX: of the pulled-back seeds, with the
function in it), medians over the rounds of the fastest calls, their ratio with its spread, and whether the gradients of all have
one sum. Writes experiments/results/gradients.md; takes five minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .conditions import stamp, stamp_text
from .gradient_kernels import BY_NUMPY, KERNELS
from .measuring import median, spread
from .turns import Found, by_turns, last_said, pythons_of, this_package, turns_parser
from .writing import ratio_text, table, time_text, write_results

FILE = "gradients"
LIMIT_S = 120.0
GOAL = 4.0  # of the time of an adjoint over that of its function
_NEAR = 1e-3  # of sums of gradients in f32


def said(way: str, python: str, name: str) -> dict[str, Any]:
    """Returns the times and sums of a kernel by a library, on one core; "why" where it fails."""
    with this_package() as (_, environment):
        module, *told = ["gradient_kernels", way] if way != "jax" else ["gradient_kernels_jax"]
        command = [python, "-m", f"kernelscape.experiments.{module}", *told, name]
        try:
            return last_said(command, LIMIT_S, environment)
        except RuntimeError as e:
            return {"why": str(e)}


def times_of(found: list[dict[str, Any]], what: str) -> list[float]:
    """The times of the rounds, in seconds; none where one failed."""
    times = [x[what] for x in found if what in x]
    return times if len(times) == len(found) else []


def report(values: dict[str, Any]) -> str:
    """The page of one machine."""
    ways, found = values["ways"], values["found"]
    rows, within = [], 0
    for name, of_ways in found.items():
        cells = [name]
        for way in ways:
            functions, gradients = (times_of(of_ways[way], x) for x in ("function", "gradient"))
            if not functions or not gradients:
                cells += ["–", "–", of_ways[way][0].get("why", "–")]
                continue
            ratios = [g / f for g, f in zip(gradients, functions, strict=True)]
            within += way == "ours" and median(ratios) <= GOAL
            cells += [time_text(median(x) * 1e9) for x in (functions, gradients)]
            cells.append(ratio_text(median(ratios), spread(ratios)))
        rows.append([*cells, _agreement(name, of_ways)])
    others = "".join(f" {n} {v}." for n, v in values["versions"].items())
    head = ["kernel", *(f"{w}, {x}" for w in ways for x in ("function", "gradient", "ratio")), "sums"]  # fmt: skip
    text = f"{within} of {len(found)} gradients take at most {GOAL:.0f} times as long as their functions here.{others}"
    return "\n\n".join(
        ["# Gradients beside their functions", stamp_text(values["stamp"]), text, table(head, rows)]
    )


def _agreement(name: str, of_ways: dict[str, list[dict[str, Any]]]) -> str:
    """Returns "equal" if the sums of all gradients are ours, else the names of those that differ."""
    sums = {way: of[0].get("sums") for way, of in of_ways.items()}
    ours = sums.pop("ours", None)
    theirs = [x for x in sums.values() if x is not None]
    if ours is None or not theirs:
        return "–"
    far = [n for n, x in ours.items() if any(abs(y[n] - x) > _NEAR * max(1.0, x) for y in theirs)]
    if far and name in BY_NUMPY:
        wanted = float(np.abs(BY_NUMPY[name]()).sum())
        is_right = abs(ours["x"] - wanted) <= _NEAR * wanted
        return f"differ: {', '.join(far)}; NumPy has {'ours' if is_right else 'another one'}"
    return f"differ: {', '.join(far)}" if far else "equal"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 3, list(KERNELS), libraries=("taichi", "jax"))
    given = parser.parse_args(arguments)
    pythons, versions = pythons_of(parser, {"taichi": given.taichi, "jax": given.jax}, "ours")
    found: Found = by_turns(pythons, given.only or list(KERNELS), given.rounds, said)
    values = {"stamp": stamp(), "versions": versions, "ways": list(pythons), "found": found}
    print(write_results(FILE, report, values, given.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
