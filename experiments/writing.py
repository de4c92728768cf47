"""Results as files: a page a question, with the rows of every machine that made any; and how tables, times and ratios are written.

    results/NAME.md              the page: tables have a column for the machine
    results/raw/NAME.KEY.json    the values of one machine, of which its part of the page is made
    results/machines.md          what the names of machines stand for
    results/raw/machines.json    the same by the keys of machines; a name may be changed there, see pages.py

So a machine replaces what it made itself, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ..runtime.measure.conditions import take_conditions

RESULTS = Path(__file__).resolve().parent / "results"
MACHINES = "machines"

Values = dict[str, Any]
Report = Callable[[Values], str]
"""The values of one machine as Markdown: a title, then blocks with blank lines between them."""


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """The arguments of every script that writes results."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--results", type=Path, help="folder of the results")
    return parser


def write_results(
    name: str,
    report: Report,
    values: Values,
    folder: Path | None = None,
    machine: str | None = None,
) -> Path:
    """Keep the values of a machine (default: this one) and write the page of all of them (default: in experiments/results/);
    the path of the page. `machine` is a key as in `Conditions`.
    """
    place = folder or RESULTS
    (place / "raw").mkdir(parents=True, exist_ok=True)
    key = machine or this_machine()
    _raw_file(name, place, key).write_text(json.dumps(values, indent=1) + "\n")
    _name_machine(key, place)
    return write_page(name, report, place)


def read_results(name: str, folder: Path | None = None, machine: str | None = None) -> Values:
    """The values that a machine (default: this one) wrote before, {} where there are none."""
    file = _raw_file(name, folder or RESULTS, machine or this_machine())
    values: Values = json.loads(file.read_text()) if file.exists() else {}
    return values


def all_results(name: str, folder: Path | None = None) -> list[Values]:
    """The values of every machine that wrote some."""
    place = folder or RESULTS
    files = [_raw_file(name, place, key) for key in _machines(place)]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def write_page(name: str, report: Report, folder: Path | None = None) -> Path:
    """Write the page of what all machines have found; its path."""
    place = folder or RESULTS
    known = _machines(place)
    reports = {}
    for key, machine in known.items():
        file = _raw_file(name, place, key)
        if file.exists():
            reports[machine["name"]] = report(json.loads(file.read_text()))
    page = place / f"{name}.md"
    page.write_text(one_page(reports))
    (place / f"{MACHINES}.md").write_text(_machines_page(known))
    return page


def one_page(reports: Mapping[str, str]) -> str:
    """The reports of several machines, by their names, as one page, section by section: what all say stands there once, and tables
    with equal heads become one with a column for the machine. What else a machine says before the first section is at the end.
    """
    machines = {name: _sections(text) for name, text in reports.items()}
    titles = dict.fromkeys(title for sections in machines.values() for title in sections)
    page: list[str] = []
    last: list[str] = []
    for title in titles:
        parts = {name: found[title] for name, found in machines.items() if title in found}
        shared, own = _merged(parts)
        page += [title] if title else []
        page += shared
        for name, blocks in own.items():
            if title:
                page += [f"{name}:", *blocks]
            else:
                last += [f"## {name}", *blocks]
    return "\n\n".join(page + last) + "\n"


def _sections(text: str) -> dict[str, list[tuple[str, int]]]:
    """Blocks by the headings of the second level that they are under, with how often each was there before."""
    seen = Counter[tuple[str, str]]()
    found: dict[str, list[tuple[str, int]]] = {}
    title = ""
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("## "):
            title = block
            found.setdefault(title, [])
            continue
        found.setdefault(title, []).append((block, seen[title, block]))
        seen[title, block] += 1
    return found


def _merged(
    parts: Mapping[str, list[tuple[str, int]]],
) -> tuple[list[str], dict[str, list[str]]]:
    """One section: what stands there once, tables among it, and what else each machine says."""
    shared = set.intersection(*map(set, parts.values()))
    order: dict[tuple[str, int], None] = {}
    rows: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    own: defaultdict[str, list[str]] = defaultdict(list)
    for name, blocks in parts.items():
        heads = Counter[str]()
        for block in blocks:
            if block[0].startswith("|"):
                head, _, *body = block[0].splitlines()
                key = (head, heads[head])
                heads[head] += 1
                order[key] = None
                rows[key] += [f"| {name} {line}" for line in body]
            elif block in shared:
                order[block] = None
            else:
                own[name].append(block[0])
    return [_joined(key[0], rows[key]) if key in rows else key[0] for key in order], own


def _joined(head: str, rows: list[str]) -> str:
    rule = ["---", "---", *("---:" for _ in range(head.count("|") - 2))]
    return "\n".join([f"| machine {head}", "| " + " | ".join(rule) + " |", *rows])


# --- machines ------------------------------------------------------------------------------------


@cache
def this_machine() -> str:
    """The key of the machine that this runs on."""
    return take_conditions().machine


def file_key(machine: str) -> str:
    """The key of a machine in names of files."""
    return re.sub(r"[^A-Za-z0-9]+", "-", machine)


def _raw_file(name: str, place: Path, key: str) -> Path:
    return place / "raw" / f"{name}.{file_key(key)}.json"


def _machines(place: Path) -> dict[str, dict[str, Any]]:
    file = place / "raw" / f"{MACHINES}.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _name_machine(key: str, place: Path) -> None:
    """Give a machine that was never seen before a number for a name."""
    known = _machines(place)
    if key not in known:
        here = msgspec.to_builtins(take_conditions())
        about = {k: here[k] for k in ("cpu", "cores", "caches")}
        known[key] = {"name": f"machine {len(known) + 1}", **about}
        text = json.dumps(known, indent=1) + "\n"
        (place / "raw" / f"{MACHINES}.json").write_text(text)


def _machines_page(known: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        [
            m["name"],
            m["cpu"],
            str(m["cores"]),
            ", ".join(f"{name} {size >> 10} KiB" for name, size in m["caches"].items()),
            f"`{key}`",
        ]
        for key, m in known.items()
    ]
    heads = ["machine", "processor, as it calls itself", "cores", "caches of all cores", "key"]
    return (
        "\n\n".join(
            [
                "# Machines",
                "All are virtual machines, whose processors tell no more of themselves: names are of what they measure like."
                " Keys are those of calibrations.",
                table(heads, rows),
            ]
        )
        + "\n"
    )


# --- values as text ------------------------------------------------------------------------------


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    rule = ["---", *("---:" for _ in heads[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows))


def time_text(ns: float | None) -> str:
    """Three digits and a unit; a dash for no time."""
    if ns is None:
        return "–"
    for unit, factor in (("ms", 1e6), ("us", 1e3)):
        if ns >= factor:
            return f"{ns / factor:.3g} {unit}" if ns < 100 * factor else f"{ns / factor:.0f} {unit}"
    return f"{ns:.0f} ns"


def ratio_text(ratio: float | None, spread: float | None) -> str:
    """A ratio and its relative spread; a dash for none."""
    return "–" if ratio is None or spread is None else f"{ratio:.2f} ± {100 * spread:.0f} %"


def share_text(share: float | None, spread: float | None) -> str:
    """A share and its relative spread; a dash for none."""
    return "–" if share is None or spread is None else f"{share:.0%} ± {100 * spread:.0f} %"
