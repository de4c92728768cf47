"""Drawings of a run on matplotlib axes, for papers and for viewers without scripts (extra `plot`).

Each function takes a run (its directory, or the result of `explore` or `load`) and axes, which it creates if none are given, and
returns the axes. Colours are those of the page.

>>> ax = ks.plot.convergence(run)
>>> ax.figure.savefig("convergence.pdf")
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.installing import extra
from ..runtime.records.record import BoundRecord, EvaluationRecord
from .contents import best_record
from .pairs import measured_effects
from .rebuilt import rebuilt
from .run_data import RunData, Source, load_run, ns_of
from .still import BEST, BOUND, INK, SOURCES, STATES, summary, time_text
from .trees import depths, find_below, widths

Axes = Any  # of matplotlib, which is imported where it is used
_MOST_CELLS = 20_000  # of a tree: more are not visible on a page


class NothingToDrawError(ValueError):
    """The run has stored no data of the requested kind; the message is one sentence."""


def convergence(run: Source, ax: Axes = None) -> Axes:
    """Draws the times of all evaluations, the best so far and the bound over the seconds of the search.

    Dashed lines: the best as it was timed at the end, and the bound for the machine state then. Raises RecordError.
    """
    found = load_run(run)
    timed = _timed(found)
    ax = _axes(ax)
    factor, unit = _unit(min(ns_of(r) for r in timed))
    for tag, (name, colour) in SOURCES.items():
        own = [r for r in timed if (r.origin.tag if r.origin is not None else "?") == tag]
        if own:
            ns = [ns_of(r) / factor for r in own]
            ax.scatter([r.at_s for r in own], ns, s=9, color=colour, label=name, linewidths=0)
    at_s = [r.at_s for r in timed]
    best = np.minimum.accumulate([ns_of(r) for r in timed]) / factor
    ax.step([*at_s, found.total_s], [*best, best[-1]], where="post", color=BEST, label="best")
    bounds = [r for r in found.records if isinstance(r, BoundRecord) and r.bound_ns > 0]
    if bounds and not found.is_doubted():
        ns = [r.bound_ns / factor for r in bounds]
        s = [r.at_s for r in bounds]
        ax.step([*s, found.total_s], [*ns, ns[-1]], where="post", color=BOUND, label="bound")
    if found.best is not None and found.bound_now_ns is not None:
        ended = [
            (found.best.time_ns, BEST, "best at the end"),
            (found.bound_now_ns, BOUND, "bound at the end"),
        ]
        for value_ns, colour, label in ended:
            last = [0.92 * found.total_s, found.total_s], [value_ns / factor] * 2
            ax.plot(*last, color=colour, linestyle="--", linewidth=1.6, label=label)
    ax.set(xlabel="seconds of search", ylabel=f"time of one run, {unit}", yscale="log")
    _plain_times(ax)
    return _legend(ax)


def tree(run: Source, ax: Axes = None, session: int | None = None) -> Axes:
    """Draws the search tree of a session as an icicle: one level per decision, cells as wide as their leaves.

    `session`: number of the session, by default the last one with a tree. Raises RecordError, and NothingToDrawError without a
    stored tree.
    """
    from matplotlib.collections import PolyCollection

    found = load_run(run)
    trees = [t for t in found.tree_file.trees if session in (None, t.session)]
    if not trees:
        raise NothingToDrawError(f"{found.folder} has kept no search tree")
    grown = [t for t in trees if len(t) > 1]  # else the root alone
    shown = (grown or trees)[-1]
    left, width = widths(shown)
    depth = depths(shown)
    below = find_below(shown, found.evaluations)
    rows = np.argsort(-width, kind="stable")[:_MOST_CELLS]
    corners = [
        [(x, d), (x + w, d), (x + w, d + 1), (x, d + 1)]
        for x, w, d in zip(left[rows], width[rows], depth[rows], strict=True)
    ]
    best_ns = below.best_ns[0]
    colours = [
        BEST if np.isfinite(best_ns) and below.best_ns[row] <= best_ns else _fate(shown.state[row])
        for row in map(int, rows)
    ]
    ax = _axes(ax)
    ax.add_collection(
        PolyCollection(corners, facecolors=colours, edgecolors="white", linewidths=0.2)
    )
    ax.set(xlim=(0, 1), ylim=(int(depth[rows].max()) + 1, 0), xticks=[], ylabel="decisions")
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.set_title(f"{len(shown):,} nodes; the way to the best is orange", fontsize="medium")
    return ax


def decisions(run: Source, ax: Axes = None, most: int = 12) -> Axes:
    """Draws the largest effects of single decisions: the worse value's time divided by the better value's.

    They are from measured pairs of implementations that differ in one or two decisions. `most`: number of effects. Raises
    RecordError, and NothingToDrawError without such pairs.
    """
    found = load_run(run)
    effects = measured_effects(found.evaluations)[:most]
    if not effects:
        raise NothingToDrawError(f"{found.folder} has no two implementations that differ so little")
    ax = _axes(ax)
    for row, effect in enumerate(effects):
        worse = sorted(1 / r for r in effect.ratios)
        ax.plot([worse[0], worse[-1]], [row, row], color="#56b4e9", linewidth=5, alpha=0.5)
        ax.plot(1 / effect.median, row, "o", color=BEST, markersize=5)
    labels = ["\n".join(f"{c}: {b} to {a}" for c, a, b in e.changes) for e in effects]
    ax.set_yticks(range(len(effects)), [_plain(text) for text in labels], fontsize="x-small")
    ax.axvline(1, color=INK, linewidth=0.8)
    ax.set(xscale="log", ylim=(len(effects) - 0.5, -0.5), xlabel="times as long")
    return ax


def roofline(run: Source, ax: Axes = None) -> Axes:
    """Draws the best and the default under the roofline of the machine.

    The arithmetic intensity is that of an implementation that moves each array once. Raises RecordError, and NothingToDrawError
    if the space of the run cannot be rebuilt here.
    """
    found = load_run(run)
    space = rebuilt(found)
    best = best_record(found)
    if isinstance(space, str) or best is None:
        raise NothingToDrawError(
            space if isinstance(space, str) else f"{found.folder} has no times"
        )
    r = space.roofline
    bandwidths, arithmetic = space.roofs
    if not (r.flops and r.total_bytes and arithmetic):
        raise NothingToDrawError(f"{found.folder} moves or computes nothing that is counted")
    ax = _axes(ax)
    intensity, peak = r.flops / r.total_bytes, max(rate for _, rate in arithmetic)
    x = np.geomspace(intensity / 20, max(intensity, peak / bandwidths[0][1]) * 20, 200)
    for name, rate in bandwidths:
        ax.plot(x, np.minimum(x * rate, peak), linewidth=1.2, label=f"{name} {rate:.0f} GB/s")
    for name, rate in arithmetic:
        ax.axhline(rate, color=INK, linewidth=1.2, label=f"{name} {rate:.0f} GFLOP/s")
    for record, name, colour in ((found.default, "default", INK), (best, "best", BEST)):
        if record is not None and record.time_ns is not None:
            ax.plot(intensity, r.flops / record.time_ns, "o", color=colour, label=name)
    ax.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="GFLOP/s")
    return _legend(ax)


def compare(run_a: Source, run_b: Source, ax: Axes = None) -> Axes:
    """Draws the best time so far of two runs over the seconds of their searches, with their bounds.

    Raises RecordError.
    """
    runs = [load_run(run) for run in (run_a, run_b)]
    timed = [_timed(found) for found in runs]
    ax = _axes(ax)
    factor, unit = _unit(min(ns_of(r) for own in timed for r in own))
    for found, own, colour in zip(runs, timed, (BEST, BOUND), strict=True):
        best = np.minimum.accumulate([ns_of(r) for r in own]) / factor
        # A label that begins with an underscore is none to matplotlib, and __main__ does.
        name = found.header.sequence.removeprefix("__main__:").lstrip("_")
        label = f"{_plain(name)}, {_plain(found.folder.name)}"
        s = [r.at_s for r in own]
        ax.step([*s, found.total_s], [*best, best[-1]], where="post", color=colour, label=label)
        bounds = [r for r in found.records if isinstance(r, BoundRecord) and r.bound_ns > 0]
        if bounds and not found.is_doubted():
            ax.axhline(bounds[-1].bound_ns / factor, color=colour, linestyle=":", linewidth=1)
    ax.set(xlabel="seconds of search", ylabel=f"best time of one run, {unit}", yscale="log")
    _plain_times(ax)
    return _legend(ax)


def _legend(ax: Axes) -> Axes:
    """Puts the legend beside the axes, so that it covers no point."""
    ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def _plain_times(ax: Axes) -> None:
    """Sets ticks at 1, 2 and 5 of each decade, as decimal numbers, without minor ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = ax.get_ylim()
    steps = (1, 2, 5) if high > 3 * low else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    ax.yaxis.set_major_locator(LogLocator(subs=steps))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _axes(ax: Axes) -> Axes:
    """Returns the given axes, or new ones if None."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as e:
        raise ImportError(f"drawings need matplotlib: {extra('plot')}") from e
    return pyplot.subplots(figsize=(7, 3.6), layout="constrained")[1]


def _timed(found: RunData) -> list[EvaluationRecord]:
    if not found.timed:
        raise NothingToDrawError(f"{found.folder} has measured nothing: {summary(found)}")
    return list(found.timed)


def _unit(ns: float) -> tuple[float, str]:
    unit = time_text(ns).split()[-1]
    return {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}[unit], unit


def _fate(state: int) -> str:
    return STATES.get(state, "#f1f3f5")


def _plain(text: str) -> str:
    """Returns the text escaped, so that matplotlib does not parse it as mathematics."""
    return text.replace("$", r"\$")
