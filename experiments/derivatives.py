"""Are adjoints right? Dot products with duals, which have no step size, on random bodies.

    python -m kernelscape.experiments.derivatives [FIRST END]

Compares the adjoint and the dual of the random bodies with the numbers FIRST to END (testing/dot_products.py): for random v and w,
<J v, w> equals <v, J' w>. Bodies that have no derivative, by a sentence, are left out. A piece replaces what this machine found for
the same numbers, and stands beside its others. Writes experiments/results/derivatives.md. The exit status is 1 when any body is
wrong. A thousand bodies take two minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..testing.dot_products import TOLERANCE, Tally
from ..testing.generator.features import DERIVATIVES
from .conditions import moment, stamp, stamp_text
from .writing import parser_of, read_results, table, write_results

FILE = "derivatives"
_COUNTS = ("n_drawn", "n_compared", "n_nonzero", "n_with_flow")


def piece(first: int, end: int) -> dict[str, Any]:
    """Returns the comparison by dot products of the bodies with these numbers."""
    tally = Tally()
    tally.add(DERIVATIVES, range(first, end))
    counts = {name: getattr(tally, name) for name in _COUNTS}
    return {
        "first": first,
        "end": end,
        "equal": f"{TOLERANCE:g} of the terms",
        **counts,
        "wrong": tally.wrong,
        **moment(),
    }


def report(values: dict[str, Any]) -> str:
    """The page of one machine."""
    pieces = values["pieces"]
    rows = [
        [
            f"{p['first']} to {p['end']}",
            p["equal"],
            *(str(p[x]) for x in _COUNTS),
            str(len(p["wrong"])),
        ]
        for p in pieces
    ]
    sums = [str(sum(p[x] for p in pieces)) for x in _COUNTS]
    rows.append(["**all**", "", *sums, str(sum(len(p["wrong"]) for p in pieces))])
    flow = "branches, carried locals, computed indices"
    head = ["numbers", "equal to", "drawn", "compared", "Jacobian is not zero", flow, "wrong"]
    text = (
        "Products are equal if they differ by at most this part of the sum of the absolute values of their terms,"
        " or of the larger of 1 and the product."
    )
    return "\n\n".join(
        ["# Adjoints of random bodies", stamp_text(values["stamp"]), text, table(head, rows)]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("first", type=int, nargs="?", default=0, metavar="FIRST")
    parser.add_argument("end", type=int, nargs="?", default=1000, metavar="END")
    given = parser.parse_args(arguments)
    if not 0 <= given.first < given.end:
        parser.error("FIRST and END are numbers of bodies: 0 <= FIRST < END")
    found = piece(given.first, given.end)
    others = read_results(FILE, given.results).get("pieces", [])
    same = found["first"], found["end"]
    pieces = [p for p in others if (p["first"], p["end"]) != same]
    values = {"stamp": stamp(), "pieces": sorted([*pieces, found], key=lambda p: p["first"])}
    print(write_results(FILE, report, values, given.results))
    return int(bool(found["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
