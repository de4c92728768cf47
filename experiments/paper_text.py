"""The papers' tables for our system as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .conditions import stamp_text
from .rows import Columns, Row, table_of, title
from .writing import time_text


class Section(NamedTuple):
    """A table of the page: rows of a kind."""

    heading: str
    text: str
    columns: Columns


def _size(size: Row) -> str:
    n = size["implementations"]
    return f"{n['mean']:.0f}" if size["method"] == "exact" else _interval(n)


def _interval(n: Mapping[str, float]) -> str:
    return f"{n['mean']:.1e} ({n['low']:.0e} – {n['high']:.0e})"


def _dead_ends(r: Row) -> str:
    share = r["size"]["dead_ends"]
    return f"{share['mean']:.1%} ({share['low']:.1%} – {share['high']:.1%})"


def _rank(r: Row) -> str:
    low, high = r["rank"]
    return str(low) if low == high else f"{low} – {high}"


def _all(r: Row) -> str:
    texts = r["all_texts"]
    if texts["is_measured"]:
        return f"{texts['seconds']:.2f} ({texts['distinct']} distinct texts)"
    return f"~ {texts['seconds']:.1e}"


def _runtime(r: Row) -> str:
    if r["status"] != "ok":
        return f"failed: {r['why']}"
    best = r["best_ns"]
    return f"{time_text(best['mean'])} ± {time_text((best['high'] - best['low']) / 2)}"


def _speed_up(r: Row) -> str:
    x = r.get("speed_up")
    return f"{x['mean']:.2f} ± {(x['high'] - x['low']) / 2:.2f}" if x else ""


_PREDICTION = Section(
    "BLAS fusion paper, Table 4: how good the prediction is",
    "Factors of the prediction are fitted to random candidates of all other sequences (page `rank`)."
    " Measured are all implementations of one exploration and"
    " a random sample that nothing has chosen. The rank of the fastest among them by"
    " predicted time is an interval where predictions are equal. Speeds are relative to the"
    " fastest: of the first by prediction and of the first by the lower bound (of equals, the one met first; timed again in turn"
    " with the fastest), of the median of the random sample, and of the worst (slow ones are"
    " run once).",
    {
        "sequence": title,
        "implementations": lambda r: _size(r["size"]),
        "measured": lambda r: str(r["measured"]),
        "rank of the best": _rank,
        "first impl.": lambda r: f"{r['first_share']:.1%}",
        "first by bound": lambda r: f"{r['first_by_bound_share']:.1%}",
        "median random impl.": lambda r: (
            "–" if r["random_share"] is None else f"{r['random_share']:.1%}"
        ),
        "worst impl.": lambda r: f"{100 * r['worst_share']:.2g}%",
    },
)
_SECONDS = Section(
    "BLAS fusion paper, Table 5: how long it takes",
    "Seconds: to the C text of the implementation predicted best (space, fixpoint, first"
    " candidates, text) and with the compiler; to the text of all, ~ where it is the time of"
    " one random implementation times their number; of the exploration.",
    {
        "sequence": title,
        "first, s": lambda r: f"{r['first_text_s']:.3f}",
        "compiled, s": lambda r: f"{r['first_built_s']:.3f}",
        "all, s": _all,
        "search, s": lambda r: f"{r['search_s']:.1f}",
    },
)
EXPLORATION = Section(
    "Telamon, Table 2: exploration",
    "Means over explorations with different seeds, each compared with NumPy (its own"
    " threads) round by round; ± is the 95 % interval (Student) over explorations, deviation"
    " the largest of one exploration from the mean. Dead ends are the share of uniform"
    " random descents.",
    {
        "kernel": title,
        "space size": lambda r: _size(r["size"]),
        "dead ends": _dead_ends,
        "runtime": _runtime,
        "deviation": lambda r: f"{r['best_deviation']:.0%}" if "best_deviation" in r else "",
        "NumPy": lambda r: time_text(r["reference_ns"]) if "reference_ns" in r else "",
        "speed-up": _speed_up,
    },
)
PRUNING = Section(
    "Telamon, Table 3: what the bound prunes in the first levels",
    "The cut is the mean runtime of the table above. Bounds and runtimes include the call and"
    " the launch. Nodes are enumerated; the size with the cut on these levels is Knuth's"
    " estimate below the nodes that are left.",
    {
        "kernel": title,
        "cut": lambda r: time_text(r["cut_ns"]),
        "space size": lambda r: _size(r["size"]),
        "with the cut ": lambda r: _interval(r["size_with_cut"]),
        "depth": lambda r: f"{r['depth']}" + ("" if r["is_whole"] else " (the next is too large)"),
        "nodes": lambda r: str(r["nodes"]),
        "with the cut": lambda r: f"{r['kept']} ({r['kept'] / max(r['nodes'], 1):.2%})",
    },
)
_ORDERS = Section(
    "Telamon, section 5.5: the order of decisions",
    "For each order the first depth with enough nodes (or the last below the limit), and by"
    " what factor the cut makes the tree down to it smaller; then how many expansions of the"
    " node of least bound it takes until an implementation has the least (the lower bound"
    " cannot rise further then), and that bound as a share of the cut.",
    {
        "kernel, decision order": lambda r: f"{title(r)}, {r['order']}",
        "depth": lambda r: str(r["depth"]),
        "nodes": lambda r: str(r["nodes"]),
        "with the cut": lambda r: str(r["kept"]),
        "tree is smaller by": lambda r: (
            "all pruned" if r["reduction"] is None else f"{r['reduction']:.1f}"
        ),
        "bound": lambda r: f"{r['bound_share']:.1%}",
        "expansions": lambda r: ("" if r["is_settled"] else "more than ") + str(r["expansions"]),
    },
)
SECTIONS = {
    "fusion": (_PREDICTION, _SECONDS),
    "telamon": (EXPLORATION,),
    "pruning": (PRUNING,),
    "orders": (_ORDERS,),
}


def report(values: dict[str, Any]) -> str:
    """All tables (stamp, effort and rows of each) as Markdown, with the stamp of the last."""
    tables: dict[str, Any] = values["tables"]
    taken = max((t["stamp"] for t in tables.values()), key=lambda stamp: str(stamp["taken"]))
    blocks = [
        "# The tables of the papers, for our system",
        stamp_text(taken),
        "f32, caches warm. A number of implementations is that of complete decision vectors: exact"
        " where the solver enumerated them, else an estimate with its 95 % interval (Knuth's or"
        " Chen's, the narrower one).",
    ]
    for kind, sections in SECTIONS.items():
        for s in sections if kind in tables else ():
            blocks += [f"## {s.heading}", s.text, table_of(s.columns, tables[kind]["rows"])]
        blocks += [_made(tables[kind])] if kind in tables else []
    return "\n\n".join(blocks) + "\n"


def _made(made: Mapping[str, Any]) -> str:
    taken = made["stamp"]
    ends = {name: value for name, value in made["effort"].items() if value is not None}
    budgets = ", ".join(f"{name} {value:g}" for name, value in ends.items())
    return f"Made {taken['taken']}, load {taken['load_1min']:.1f}; budgets: {budgets}."
