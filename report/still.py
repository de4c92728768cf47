"""A run as one line of text, and as one still picture, for notebooks without scripts."""

from __future__ import annotations

import html
from math import log10

import numpy as np

from ..runtime.records.record import BoundRecord
from ..runtime.records.tree_file import (
    CLOSED_BOUND,
    CLOSED_CONSTRAINT,
    CUT,
    EXPANDED,
    FORBIDDEN,
    StoredTree,
)
from ..search.events import SAYS_NOTHING
from .run_data import RunData, ns_of
from .trees import depths, find_below, widths

INK, GREY, BEST, BOUND = "#1b1f24", "#8a9099", "#d55e00", "#0072b2"
SOURCES = {
    "U": ("default", "#000000"),
    "W": ("warm start", "#e69f00"),
    "M": ("tree policy", "#0072b2"),
    "R": ("rollout", "#009e73"),
    "D": ("bound dive", "#cc79a7"),
    "N": ("near the best", "#56b4e9"),
    "C": ("components together", "#cc79a7"),  # no search has both C and D
    "F": ("final", "#d55e00"),
    "?": ("not kept", "#999999"),
}
"""Names and colours of sources (search.events.Tag), after Okabe and Ito (2008): colour-blind people can tell them apart."""
STATES = {EXPANDED: "#cfe3f3", CUT: "#c9ccd1", FORBIDDEN: "#8a9099", CLOSED_BOUND: "#c9ccd1"}
MOST_CELLS = 1000
_WIDE, _HIGH, _LEFT = 760, 190, 64


def time_text(ns: float) -> str:
    """Returns a time as text, with the unit that suits it."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= factor:
            return f"{ns / factor:.4g} {unit}"
    return f"{ns:.4g} ns"


def summary(run: RunData) -> str:
    """Returns one line on a run: its sequence, the best time, the bound and the gap."""
    sizes = ", ".join(f"{name}={n}" for name, n in run.header.sizes.items())
    line = f"{run.header.sequence} ({sizes}): {len(run.evaluations)} evaluations, {run.status}"
    timed = [ns_of(r) for r in run.timed]
    if run.best is None and not timed:
        return line
    best_ns = min(timed) if run.best is None else run.best.time_ns
    line += f"; best {time_text(best_ns)}"
    bound_ns = run.best.bound_ns if run.best is not None else 0.0
    if run.is_doubted() or not bound_ns:
        return line
    line += f", bound {time_text(bound_ns)}"
    if bound_ns < SAYS_NOTHING * best_ns:
        return line
    line += f", gap {_gap(bound_ns, best_ns)}"
    if run.bound_now_ns is None:
        return line
    return f"{line} proved, {_gap(run.bound_now_ns, best_ns)} against the machine as it is now"


def _gap(bound_ns: float, best_ns: float) -> str:
    return f"{max(0.0, 1 - bound_ns / best_ns):.1%}"


def still_svg(run: RunData) -> str:
    """Returns a picture (SVG) of times, best and bound over the search, and the largest cells of the last tree."""
    parts = [*_convergence(run)]
    trees = [t for t in run.tree_file.trees if len(t) > 1]
    high = _HIGH
    if trees:
        parts += _tree(run, trees[-1], _HIGH + 16)
        high = 2 * _HIGH + 16
    text = html.escape(summary(run))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {high + 24}" font-family="sans-serif"'
        f' font-size="11" fill="{INK}"><title>{text}</title><rect width="100%" height="100%" fill="white"/>'
        + "".join(parts)
        + "</svg>"
    )


def _convergence(run: RunData) -> list[str]:
    timed = run.timed
    if not timed:
        return [f'<text x="{_LEFT}" y="40" fill="{GREY}">nothing was measured yet</text>']
    bounds = [r for r in run.records if isinstance(r, BoundRecord)]
    times = [ns_of(r) for r in timed]
    now_ns = run.bound_now_ns
    ended = (
        [] if run.best is None or now_ns is None else [(run.best.time_ns, BEST), (now_ns, BOUND)]
    )
    shown = [*times, *(b.bound_ns for b in bounds if b.bound_ns > 0), *(ns for ns, _ in ended)]
    low, high = log10(min(shown)) - 0.05, log10(max(shown)) + 0.05
    total_s = max(run.total_s, 1e-3)

    def at(s: float, ns: float) -> tuple[float, float]:
        x = _LEFT + (_WIDE - _LEFT - 12) * s / total_s
        return x, 14 + (_HIGH - 40) * (high - log10(ns)) / (high - low)

    parts = []
    for k in range(int(low) - 1, int(high) + 2):
        if low <= k <= high:
            y = at(0, 10.0**k)[1]
            parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDE - 12}" stroke="#e4e6ea"/>')
            parts.append(
                f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{time_text(10.0**k)}</text>'
            )
    for r in timed:
        x, y = at(r.at_s, ns_of(r))
        tag = r.origin.tag if r.origin is not None else "?"
        colour = SOURCES.get(tag, SOURCES["?"])[1]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>')
    best = np.minimum.accumulate(times)
    steps = [at(r.at_s, ns) for r, ns in zip(timed, best, strict=True)]
    parts.append(_steps(steps, _WIDE - 12, BEST))
    if bounds and bounds[0].bound_ns > 0:
        moved = [at(b.at_s, b.bound_ns) for b in bounds if b.bound_ns > 0]
        parts.append(_steps(moved, _WIDE - 12, BOUND))
    for ns, colour in ended:
        y = at(0, ns)[1]
        dashed = f'stroke="{colour}" stroke-width="1.6" stroke-dasharray="6 3"'
        parts.append(f'<path d="M{_WIDE - 72} {y:.1f}H{_WIDE - 12}" {dashed}/>')
    note = "; dashed: at the end" if ended else ""
    parts.append(f'<text x="{_LEFT}" y="{_HIGH - 8}">0 s</text>')
    parts.append(
        f'<text x="{_WIDE - 12}" y="{_HIGH - 8}" text-anchor="end">{total_s:.0f} s of search;'
        f' <tspan fill="{BEST}">best</tspan>, <tspan fill="{BOUND}">bound</tspan>{note}</text>'
    )
    return parts


def _steps(points: list[tuple[float, float]], right: float, colour: str) -> str:
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    path += "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])
    return f'<path d="{path}H{right}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _tree(run: RunData, tree: StoredTree, top: float) -> list[str]:
    left, width = widths(tree)
    depth = depths(tree)
    below = find_below(tree, run.evaluations)
    drawn = np.argsort(-width, kind="stable")[:MOST_CELLS]
    n_levels = int(depth[drawn].max()) + 1
    row_high = min(14.0, _HIGH / n_levels)
    best_ns = float(below.best_ns[0])
    parts = []
    for k in map(int, drawn):
        x, w = _WIDE * left[k], max(0.4, _WIDE * width[k])
        colour = STATES.get(tree.state[k], "#f1f3f5")
        if tree.state[k] == CLOSED_CONSTRAINT:
            colour = STATES[FORBIDDEN]
        if best_ns > 0 and below.best_ns[k] <= best_ns:
            colour = BEST
        y = top + row_high * depth[k]
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{row_high:.1f}" fill="{colour}"'
            ' stroke="white" stroke-width="0.3"/>'
        )
    n = f"{len(tree):,} nodes of the search tree, {n_levels} of its levels"
    text = f"{n}; the way to the best is orange, what was cut off grey"
    parts.append(f'<text x="4" y="{top + _HIGH + 14:.0f}">{text}</text>')
    return parts
