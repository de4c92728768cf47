"""Output of `explore explain`: the explanation of a run in sections for people, or as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from ..explorer.explanation import Account, Explanation, Fruitless, PruningSummary, Untried
from ..explorer.result_text import TimeUnit
from ..explorer.rewrites import Rewrites
from ..report.component_accounts import ComponentAccount
from ..runtime.records.record import LaunchRecord
from ..search.bound.explain import ResourceUse, size_text
from ..search.line import line_fields

_REFUSALS = 12  # constraints named; -v shows all
_COMPONENTS = 10  # named, those that take most; -v shows all, with decisions
_NEEDLESS = 6  # needless operations of a kind named; -v shows all
_CHOICES = 8  # choices of a kind named; -v shows all
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_RESOURCES = {
    "memory": "memory, both ways",
    "chain": "additions in a row",
    "ports": "loads and stores",
    "packing": "loads and stores that pack operands",
    "tiles": "tiles that caches do not hold",
    "tails": "operations of partial register tiles",
    "functions": "functions such as exp",
    "atomics": "atomic updates, as if no other core wanted the element",
}


def explain_lines(e: Explanation, verbosity: int) -> Iterator[str]:
    """Yields the explanation of a run in sections, for people."""
    unit = TimeUnit(e.file.time_ns)
    sizes = ", ".join(f"{name}={extent}" for name, extent in e.file.sizes.items())
    yield f"{e.file.sequence}: {e.formula}".rstrip(": ") + f"   ({sizes}, {e.file.dtype})"
    for note in e.notes:
        yield f"note: {note}"
    yield from ("", "Where the time goes")
    yield from (f"  {line}" for line in _account_lines(e, unit))
    if e.components:
        yield from ("", "Components")
        yield from (f"  {line}" for line in _component_lines(e.components, unit, verbosity))
    yield from ("", "Why the best differs from the default")
    yield from (f"  {line}" for line in _difference_lines(e, unit, verbosity))
    yield from ("", "What rules left out")
    yield from (f"  {line}" for line in _rewrite_lines(e.rewrites, verbosity))
    yield from ("", "What was pruned, and by what")
    yield from (f"  {line}" for line in _pruned_lines(e.pruned, verbosity))
    yield from ("", "What was never tried")
    yield from (f"  {line}" for line in _untried_lines(e.untried, verbosity))


def fruitless_lines(f: Fruitless, verbosity: int) -> Iterator[str]:
    """Yields the explanation of a run without a valid implementation, for people."""
    sizes = ", ".join(f"{name}={extent}" for name, extent in f.sizes.items())
    yield f"{f.sequence}   ({sizes}, {f.dtype})"
    yield f"nothing valid was found; {'the run ended: ' + f.status if f.status else 'its session did not end'}"
    if f.reference:
        yield f.reference
    for x in f.failures:
        first, *rest = x.detail.splitlines() or [""]
        yield f"first {x.kind}: {first}   (candidate {x.key[:8]}, failed/{x.kind}-{x.key})"
        yield from (f"  {line}" for line in (rest if verbosity > 1 else ()))
    yield from ("", "What was pruned, and by what")
    yield from (f"  {line}" for line in _pruned_lines(f.pruned, verbosity))


def fruitless_fields(f: Fruitless) -> dict[str, Any]:
    """Returns the explanation of a run without a valid implementation as one JSON object."""
    return line_fields(f)


def explain_fields(e: Explanation) -> dict[str, Any]:
    """Returns the explanation of a run as one JSON object; times in ns, lists complete."""
    return line_fields(e)


# --- where the time goes -------------------------------------------------------------------------


def _account_lines(e: Explanation, unit: TimeUnit) -> Iterator[str]:
    accounts = [e.best] if e.default is None else [e.best, e.default]
    heads = ("best", "default")[: len(accounts)]
    yield f"{'':<20}" + "".join(f"{head + ', ' + unit.name:>14}{'':<23}" for head in heads)
    names = list(dict.fromkeys(use.resource for a in accounts for use in a.terms))
    for name in names:
        cells = "".join(_use_cell(a, name, unit) for a in accounts)
        yield f"{_RESOURCES.get(name, name):<20}{cells} {e.rates[name]}"
    rows = (
        ("bound", [a.bound_ns for a in accounts]),
        ("unexplained", [a.unexplained_ns for a in accounts]),
        ("measured", [a.time_ns for a in accounts]),
    )
    for name, values in rows:
        yield (
            f"{name:<20}"
            + "".join(
                _cell(ns, a, unit, "") for ns, a in zip(values, accounts, strict=True)
            ).rstrip()
        )
    yield "(* binds; each resource alone is busy for its time; phases that follow one another add up)"
    for head, a in zip(heads, accounts, strict=True):
        s = a.starts
        teams = "" if s.n_teams is None else f" {_count(s.n_teams, 'team', 'teams')} of threads,"
        yield (
            f"{head}: {_count(s.n_launches, 'launch', 'launches')},{teams}"
            f" {_count(s.n_barriers, 'barrier', 'barriers')} inside"
        )
        yield from (f"  {phase}" for phase in a.phases)
        yield from (f"  {_launch_text(x)}" for x in (() if a.launches is UNSET else a.launches))


def _launch_text(x: LaunchRecord) -> str:
    counted = f" ({x.counted} counted for its sums)" if x.counted else ""
    return (
        f"{x.kernel}: {x.threads} threads a block, {x.registers} registers each{counted},"
        f" {x.spill_bytes} B spilled, {size_text(x.shared_bytes)} of shared memory"
    )


def _use_cell(a: Account, name: str, unit: TimeUnit) -> str:
    use = next((u for u in a.terms if u.resource == name), None)
    if use is None:
        return _cell(None, a, unit, "")
    return _cell(use.ns, a, unit, _amount(use), "*" if name == a.binding else " ")


def _cell(ns: float | None, a: Account, unit: TimeUnit, amount: str, mark: str = " ") -> str:
    share = "" if ns is None or a.time_ns is None else f"{ns / a.time_ns:.0%}"
    return f"{mark}{unit.number(ns):>13} {share:>6} {amount:<15} "


def _amount(use: ResourceUse) -> str:
    if not use.unit:
        return ""
    if use.unit == "B":
        return size_text(use.amount)
    scale, prefix = next((x for x in _PREFIXES if use.amount >= x[0]), (1.0, ""))
    return f"{use.amount / scale:.1f} {prefix}{'flop' if use.unit == 'flop' else ''}".rstrip()


def _component_lines(
    components: tuple[ComponentAccount, ...], unit: TimeUnit, verbosity: int
) -> Iterator[str]:
    yield f"{unit.name + ', all places':>14}  share      bound  least seen  tried  places"
    shown = components if verbosity > 1 else components[:_COMPONENTS]
    for x in shown:
        yield (
            f"{unit.number(x.time_ns):>14} {x.share:>6.1%}"
            f" {'-' if x.bound_ns is None else unit.number(x.bound_ns):>10}"
            f" {unit.number(x.least_ns):>11} {x.tried:>6} {x.places:>7}  {x.name}"
        )
        if verbosity > 1 and x.decisions:
            yield f"{'':<16}{', '.join(f'{name}={value}' for name, value in x.decisions.items())}"
    if len(shown) < len(components):
        yield f"and {_count(len(components) - len(shown), 'more', 'more')} (-v lists them, with decisions)"


# --- why it differs ------------------------------------------------------------------------------


def _difference_lines(e: Explanation, unit: TimeUnit, verbosity: int) -> Iterator[str]:
    if e.default is None:
        yield "there is no unfused default to compare with"
        return
    best_ns, default_ns = e.file.time_ns, e.default.time_ns
    if default_ns is not None:
        yield (
            f"best {unit.text(best_ns)}, default {unit.text(default_ns)}:"
            f" {default_ns / best_ns:.2f} times as fast"
        )
    for topic, phrases in e.best.words.items():
        before = e.default.words[topic]
        gone = [p for p in before if p not in phrases]
        new = [p for p in phrases if p not in before]
        same = [p for p in phrases if p in before] if verbosity > 1 else []
        if not gone and not new and not same:
            continue
        yield topic
        yield from (f"  both     {p}" for p in same)
        if gone or new:
            yield from (f"  best     {p}" for p in new or ["nothing of the kind"])
            yield from (f"  default  {p}" for p in gone or ["nothing of the kind"])
    yield f"{_count(len(e.changed), 'decision differs', 'decisions differ')}" + (
        "" if verbosity > 1 or not e.changed else " (-v lists them)"
    )
    for x in e.changed if verbosity > 1 else ():
        yield f"  {x.choice}: {x.default} -> {x.best}"


# --- what rules left out -------------------------------------------------------------------------


def _rewrite_lines(r: Rewrites, verbosity: int) -> Iterator[str]:
    rows = (
        ("lists", r.lists, "still valid, used again"),
        ("activations", r.activations, "of cells that are active already"),
        ("stores", r.stores, "that nobody reads"),
    )
    for name, found, what in rows:
        yield f"{name:<14} {len(found)} {what}"
        shown = found if verbosity > 1 else found[:_NEEDLESS]
        yield from (f"{'':<14}   {x}" for x in shown)
        if len(shown) < len(found):
            yield f"{'':<14}   and {len(found) - len(shown)} more (-v)"
    n = len(r.async_faults)
    yield f"{'AsyncTaichi':<14} {_count(n, 'pattern', 'patterns')} of calls that it gets wrong"
    yield from (
        f"{'':<14}   {x.text} ({x.rule}; probes {', '.join(x.probes)})" for x in r.async_faults
    )


# --- what was pruned -----------------------------------------------------------------------------


def _pruned_lines(p: PruningSummary | None, verbosity: int) -> Iterator[str]:
    if p is None:
        yield "a best.json does not say: give the directory of the run"
        return
    if p.tallies is None and not p.evaluations:
        yield "nothing was measured, and no counts of a search were kept"
    elif p.tallies is None:
        yield "the journal is of a version that kept no counts of the search"
    else:
        yield from _tally_lines(p, verbosity)
    yield (
        f"{'hopeless':<14} {p.stopped_early} of {p.evaluations} measurements stopped early,"
        " clearly slower than the best"
    )
    failed = ", ".join(f"{n} {kind}" for kind, n in p.failures.items())
    yield f"{'failures':<14} {failed or 'none'} of {p.evaluations} evaluations"


def _tally_lines(p: PruningSummary, verbosity: int) -> Iterator[str]:
    assert p.tallies is not None
    n: dict[str, int] = p.tallies
    if p.sessions > 1:
        yield f"(sums over {p.sessions} sessions, each of which searches its tree anew)"
    rows = (
        (
            "cut",
            (
                ("pruned_bound", "nodes of the tree"),
                ("rollout_bound", "values in rollouts"),
                ("near_bound", "neighbours of the best"),
                ("overtaken", "candidates overtaken while they waited"),
            ),
        ),
        (
            "constraints",
            (("pruned_csp", "values in the tree"), ("rollout_csp", "values in rollouts")),
        ),
        (
            "dead ends",
            (
                ("dead_ends", "descents"),
                ("near_dead", "changes of the best without a completion"),
            ),
        ),
        (
            "known",
            (
                ("duplicates", "candidates of equal text"),
                ("near_known", "neighbours measured before"),
                ("replayed", "answered from the journal"),
            ),
        ),
        ("passed over", (("near_worse", "neighbours that others were expected to beat"),)),
    )
    for reason, parts in rows:
        yield f"{reason:<14} " + ", ".join(f"{n.get(key, 0)} {what}" for key, what in parts)
        if reason == "constraints":
            refused = list(p.refused.items())
            shown = refused if verbosity > 1 else refused[:_REFUSALS]
            yield from (f"{'':<14} {count:>8}  {why}" for why, count in shown)
            if len(shown) < len(refused):
                yield f"{'':<14} {'':>8}  and {len(refused) - len(shown)} more (-v)"


# --- what was never tried ------------------------------------------------------------------------


def _untried_lines(untried: tuple[Untried, ...] | None, verbosity: int) -> Iterator[str]:
    if untried is None:
        yield "a best.json does not say: give the directory of the run"
        return
    if not untried:
        yield "nothing: every value of every open choice was in some measured implementation"
        return
    yield "(values that may still be better; in parentheses those that cannot beat the best)"
    # Orders are many and each says little.
    for kind in sorted({u.kind for u in untried}, key=lambda kind: (kind == "order", kind)):
        of_kind = [u for u in untried if u.kind == kind]
        n_left = sum(len(u.open_values) for u in of_kind)
        n_beaten = sum(len(u.beaten) for u in of_kind)
        yield (
            f"{kind:<14} {_count(n_left, 'value', 'values')} of"
            f" {_count(len(of_kind), 'choice', 'choices')}, and {n_beaten} that cannot beat the best"
        )
        shown = of_kind if verbosity > 1 else of_kind[:_CHOICES]
        for u in shown:
            beaten = [f"({' '.join(u.beaten)})"] if u.beaten else []
            yield f"  {u.choice}: {' '.join([*u.open_values, *beaten])}"
        if len(shown) < len(of_kind):
            yield f"  and {_count(len(of_kind) - len(shown), 'more choice', 'more choices')} (-v)"


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"
