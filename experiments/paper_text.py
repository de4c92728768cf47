"""The papers' tables for our system as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .conditions import stamp_text
from .rows import title
from .writing import table, time_text


def report(values: dict[str, Any]) -> str:
    """All tables (stamp, effort and rows of each) as Markdown, with the stamp of the last."""
    tables: dict[str, Any] = values["tables"]
    taken = max((t["stamp"] for t in tables.values()), key=lambda stamp: str(stamp["taken"]))
    parts = [
        "# The tables of the papers, for our system",
        "",
        stamp_text(taken),
        "",
        "f32, caches warm. A number of implementations is that of complete decision vectors: exact"
        " where the solver enumerated them, else an estimate with its 95 % interval (Knuth's or"
        " Chen's, the narrower one).",
    ]
    for kind, text in (
        ("fusion", _fusion_text),
        ("telamon", _telamon_text),
        ("pruning", _pruning_text),
        ("orders", _orders_text),
    ):
        if kind in tables:
            parts += ["", text(tables[kind]["rows"]), "", _made(tables[kind])]
    return "\n".join(parts) + "\n"


def _made(made: Mapping[str, Any]) -> str:
    taken = made["stamp"]
    budgets = ", ".join(f"{name} {value:g}" for name, value in made["effort"].items())
    return f"Made {taken['taken']}, load {taken['load_1min']:.1f}; budgets: {budgets}."


def _fusion_text(rows: list[dict[str, Any]]) -> str:
    ranks = [
        [
            title(r),
            _size(r["size"]),
            str(r["measured"]),
            _rank(r["rank"]),
            f"{r['first_share']:.1%}",
            "–" if r["random_share"] is None else f"{r['random_share']:.1%}",
            f"{100 * r['worst_share']:.2g}%",
        ]
        for r in rows
    ]
    times = [
        [
            title(r),
            f"{r['first_text_s']:.3f}",
            f"{r['first_built_s']:.3f}",
            _all(r["all_texts"]),
            f"{r['search_s']:.1f}",
        ]
        for r in rows
    ]
    heads = ["sequence", "implementations", "measured", "rank of the best"]
    heads += ["first impl.", "median random impl.", "worst impl."]
    return "\n".join(
        [
            "## BLAS fusion paper, Table 4: how good the prediction is",
            "",
            "We predict by the lower bound. Measured are all implementations of one exploration and"
            " a random sample that nothing has chosen. The rank of the fastest among them by"
            " predicted time is an interval where predictions are equal. Speeds are relative to the"
            " fastest: of the first by prediction (of equals, the one met first; timed again in turn"
            " with the fastest), of the median of the random sample, and of the worst (slow ones are"
            " run once).",
            "",
            table(heads, ranks),
            "",
            "## BLAS fusion paper, Table 5: how long it takes",
            "",
            "Seconds: to the C text of the implementation predicted best (space, fixpoint, first"
            " candidates, text) and with the compiler; to the text of all, ~ where it is the time of"
            " one random implementation times their number; of the exploration.",
            "",
            table(
                ["sequence", "first, s", "compiled, s", "all, s", "search, s"],
                times,
            ),
        ]
    )


def _telamon_text(rows: list[dict[str, Any]]) -> str:
    body = []
    for r in rows:
        start = [title(r), _size(r["size"]), _share(r["size"]["dead_ends"])]
        if r["status"] != "ok":
            body.append([*start, f"failed: {r['why']}", "", "", ""])
            continue
        best, speed_up = r["best_ns"], r["speed_up"]
        body.append(
            [
                *start,
                f"{time_text(best['mean'])} ± {time_text((best['high'] - best['low']) / 2)}",
                f"{r['best_deviation']:.0%}",
                time_text(r["reference_ns"]),
                f"{speed_up['mean']:.2f} ± {(speed_up['high'] - speed_up['low']) / 2:.2f}",
            ]
        )
    heads = ["kernel", "space size", "dead ends", "runtime", "deviation", "NumPy", "speed-up"]
    return "\n".join(
        [
            "## Telamon, Table 2: exploration",
            "",
            "Means over explorations with different seeds, each compared with NumPy (its own"
            " threads) round by round; ± is the 95 % interval (Student) over explorations, deviation"
            " the largest of one exploration from the mean. Dead ends are the share of uniform"
            " random descents.",
            "",
            table(heads, body),
        ]
    )


def _pruning_text(rows: list[dict[str, Any]]) -> str:
    body = []
    for r in rows:
        share = r["kept"] / r["nodes"] if r["nodes"] else 0.0
        body.append(
            [
                title(r),
                time_text(r["cut_ns"]),
                _size(r["size"]),
                _interval(r["size_with_cut"]),
                f"{r['depth']}" + ("" if r["is_whole"] else " (the next is too large)"),
                f"{r['nodes']}",
                f"{r['kept']} ({share:.2%})",
            ]
        )
    heads = ["kernel", "cut", "space size", "with the cut", "depth", "nodes", "with the cut"]
    return "\n".join(
        [
            "## Telamon, Table 3: what the bound prunes in the first levels",
            "",
            "The cut is the mean runtime of the table above. Bounds and runtimes include the call and"
            " the launch. Nodes are enumerated; the size with the cut on these levels is Knuth's"
            " estimate below the nodes that are left.",
            "",
            table(heads, body),
        ]
    )


def _orders_text(rows: list[dict[str, Any]]) -> str:
    body = [
        [
            f"{title(r)}, {r['order']}",
            str(r["depth"]),
            str(r["nodes"]),
            str(r["kept"]),
            "all pruned" if r["reduction"] is None else f"{r['reduction']:.1f}",
            f"{r['bound_share']:.1%}",
            ("" if r["is_settled"] else "more than ") + str(r["expansions"]),
        ]
        for r in rows
    ]
    heads = ["kernel, decision order", "depth", "nodes", "with the cut", "tree is smaller by"]
    return "\n".join(
        [
            "## Telamon, section 5.5: the order of decisions",
            "",
            "For each order the first depth with enough nodes (or the last below the limit), and by"
            " what factor the cut makes the tree down to it smaller; then how many expansions of the"
            " node of least bound it takes until an implementation has the least (the lower bound"
            " cannot rise further then), and that bound as a share of the cut.",
            "",
            table([*heads, "bound", "expansions"], body),
        ]
    )


def _size(size: dict[str, Any]) -> str:
    n = size["implementations"]
    return f"{n['mean']:.0f}" if size["method"] == "exact" else _interval(n)


def _interval(n: dict[str, float]) -> str:
    return f"{n['mean']:.1e} ({n['low']:.0e} – {n['high']:.0e})"


def _share(share: dict[str, float]) -> str:
    return f"{share['mean']:.1%} ({share['low']:.1%} – {share['high']:.1%})"


def _rank(rank: list[int]) -> str:
    low, high = rank
    return str(low) if low == high else f"{low} – {high}"


def _all(texts: dict[str, Any]) -> str:
    if texts["is_measured"]:
        return f"{texts['seconds']:.2f} ({texts['distinct']} distinct texts)"
    return f"~ {texts['seconds']:.1e}"
