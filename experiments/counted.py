"""Counts of random programs and descents by ranges of numbers, which add up on one page.

`experiments.correctness` makes them. A range that is made again replaces what it covers.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .conditions import moment, stamp, stamp_text
from .writing import RESULTS, read_results, table, write_results

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
    with _alone(folder or RESULTS):
        before = read_results(_FILE, folder).get("ranges", [])
        inside = [r for r in before if r["kind"] == made.kind]
        inside = [r for r in inside if made.first <= r["first"] and r["end"] <= made.end]
        ranges = [*(r for r in before if r not in inside), asdict(made) | moment()]
        ranges.sort(key=lambda r: (r["kind"], r["first"]))
        write_results(_FILE, report, {"ranges": ranges, "stamp": stamp()}, folder)
    return int(bool(made.wrong))


def overlap(kind: str, first: int, end: int, folder: Path | None = None) -> str:
    """Returns a sentence about a kept range that numbers `first` to `end` cover in part; "" if there is none."""
    for r in read_results(_FILE, folder).get("ranges", []):
        is_apart = r["kind"] != kind or r["end"] <= first or end <= r["first"]
        if not is_apart and not (first <= r["first"] and r["end"] <= end):
            return (
                f"{kind} {first} to {end} overlap {r['first']} to {r['end']}, which are on the page:"
                " take other numbers, or all of those"
            )
    return ""


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Locks the folder of the values: several ranges may end at the same time."""
    (place / "raw").mkdir(parents=True, exist_ok=True)
    folder = os.open(place / "raw", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


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
        [r["kind"], f"{r['first']} to {r['end']}", r["taken"], _cell(r["wrong"])] for r in ranges
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


def _cell(wrong: Sequence[str]) -> str:
    """Returns all that is wrong as one cell of a table."""
    return " ".join("; ".join(wrong).replace("|", "/").split()) or "none"


_METHOD = """Each number is the seed of one program or descent. "programs in windows": random programs on random trees whose calls
wait, at five limits of a window, against the interpreter. "small programs": every combination of the choices that windows bring,
as far as there are few, compiled and run. "descents": terms of the bound at the ends of random descents against the counts of the
loop IR and of simulated caches, and against their values on the way."""
