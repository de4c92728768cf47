"""Counts of random programs and descents by ranges of numbers, which add up on one page.

`experiments.correctness` makes them. A range that is made again replaces what it covers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .conditions import moment, stamp, stamp_text
from .writing import read_results, table, write_results

_FILE = "counted"


@dataclass(frozen=True)
class Counted:
    """Numbers `first` to `end` (excluded) of a kind, with what was counted among them, and what was wrong.

    `drawn`: how often each value was drawn.
    """

    kind: str
    first: int
    end: int
    counts: Mapping[str, int]
    wrong: Sequence[str]
    drawn: Mapping[str, int] = field(default_factory=dict)


def keep(made: Counted, folder: Path | None = None) -> int:
    """Prints a range, and adds it to the page. Returns 1 if anything in it was wrong."""
    counts = ", ".join(f"{n} {name}" for name, n in made.counts.items())
    print(f"{made.kind} {made.first} to {made.end}: {counts}, {len(made.wrong)} wrong")
    if made.drawn:
        print(", ".join(f"{value} {n}" for value, n in made.drawn.items()))
    print(*made.wrong, sep="\n", end="\n" if made.wrong else "")
    before = read_results(_FILE, folder).get("ranges", [])
    ranges = [*(r for r in before if not _covers(made, r)), asdict(made) | moment()]
    ranges.sort(key=lambda r: (r["kind"], r["first"]))
    write_results(_FILE, report, {"ranges": ranges, "stamp": stamp()}, folder)
    return int(bool(made.wrong))


def _covers(made: Counted, other: Mapping[str, Any]) -> bool:
    """True if all numbers of a range are made again. Ranges that overlap in part are refused."""
    if other["kind"] != made.kind or other["end"] <= made.first or made.end <= other["first"]:
        return False
    if made.first <= other["first"] and other["end"] <= made.end:
        return True
    raise SystemExit(
        f"{made.kind} {made.first} to {made.end} overlap {other['first']} to {other['end']},"
        " which are on the page: take other numbers, or all of those."
    )


def report(made: dict[str, Any]) -> str:
    """The sums by kind as Markdown, then each range."""
    ranges, lines = made["ranges"], []
    for kind in dict.fromkeys(r["kind"] for r in ranges):
        same = [r for r in ranges if r["kind"] == kind]
        sums: Counter[str] = Counter()
        for r in same:
            sums.update(r["counts"])
        counts = ", ".join(f"{n} {name}" for name, n in sums.items())
        numbers = sum(r["end"] - r["first"] for r in same)
        lines.append([kind, str(numbers), counts, str(sum(len(r["wrong"]) for r in same))])
    rows = [
        [r["kind"], f"{r['first']} to {r['end']}", r["taken"], "; ".join(r["wrong"]) or "none"]
        for r in ranges
    ]
    drawn: Counter[str] = Counter()
    for r in ranges:
        drawn.update(r.get("drawn", {}))
    values = [[value, str(n)] for value, n in sorted(drawn.items())]
    parts = [
        "# Random programs and descents by their numbers",
        _METHOD,
        stamp_text(made["stamp"]),
        table(["kind", "numbers", "counted", "wrong"], lines),
        "## Ranges",
        table(["kind", "numbers", "taken", "wrong"], rows),
    ]
    if values:
        parts += ["## Values of small programs", table(["value", "combinations with it"], values)]
    return "\n\n".join(parts) + "\n"


_METHOD = """Each number is the seed of one program or descent. "programs in windows": random programs on random trees whose calls
wait, at five limits of a window, against the interpreter. "small programs": every combination of the choices that windows bring,
as far as there are few, compiled and run. "descents": terms of the bound at the ends of random descents against the counts of the
loop IR and of simulated caches, and against their values on the way."""
