"""Log of a run for people, computed from its events: plain rows in the style of a MIP solver.

JSON lines are in json_log.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..explorer import stages as st
from ..explorer.result_text import TimeUnit, default_word, result_lines
from ..kernels.ir.task import Problem
from ..kernels.tasks.non_affine import NonAffineTasks, counted_text, non_affine_tasks
from ..search import events as ev
from ..space.candidate import DeadEnd, Space
from ..space.decisions import fixed_text

_LEGEND = "Src: U default, W warm start, M tree policy, R rollout, D bound dive, N near the best, F final; * new best"
_LEGEND_OF_COMPONENTS = (
    "Src: U default, W warm start, C what each component proposes, together, F final; * new best"
)
_HEADER_EVERY = 25

Event = st.Stage | ev.Event


class TextLog:
    """Listener that prints rows for people. `verbosity`: 0 only the result, 1 the log, 2 every row."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        version: str,
        every_s: float = 5.0,
        verbosity: int = 1,
    ) -> None:
        self._write = write
        self._version = version
        self._every_s = every_s
        self._verbosity = verbosity
        self._unit = TimeUnit(1e6)
        self._is_fixed = False
        self._legend = _LEGEND
        self._n_rows = 0
        self._told_s = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, st.Ended):
            for line in result_lines(event, self._unit):
                self._write(line)
        elif self._verbosity == 0:
            self._unit = _unit_of(event, self._unit)
        elif isinstance(event, st.Compiling):
            self._write(f"Compiling  {event.text}")
        elif isinstance(event, st.Opened):
            self._open(event)
        elif isinstance(event, st.Rooted):
            self._root(event)
        elif isinstance(event, st.OutOfTime):
            self._write(
                f"!     the time limit of {event.limit_s:g} s passed while {event.during}, so nothing was"
                " measured: give more time, or smaller sizes"
            )
        elif isinstance(event, st.ReferenceTooSlow):
            done = "compared, but not timed" if event.compared else "neither compared nor timed"
            self._write(f"!     the reference took longer than {event.limit_s:g} s: it was {done}")
        elif isinstance(event, st.FirstWrong):
            self._write(
                f"!     wrong: {event.detail}; the first is kept as failed/wrong-{event.key}"
            )
        elif isinstance(event, st.RoundingMeasured):
            self._rounding(event)
        elif isinstance(event, st.Disagreed):
            self._write(f"!     {event.detail}")
        elif isinstance(event, st.Compared):
            self._compare(event)
        elif isinstance(event, st.NumpyTimed):
            self._numpy(event)
        elif isinstance(event, ev.Row):
            self._row(event)
        elif isinstance(event, ev.Divided):
            self._legend = _LEGEND_OF_COMPONENTS
        elif isinstance(event, ev.Components):
            self._write(_components_text(event))
        elif isinstance(event, ev.AdmissibilityAlarm):
            self._write(
                f"!     {self._unit.text(event.time_ns)} was measured below its bound"
                f" {self._unit.text(event.bound_ns)}: the gap is withdrawn"
            )
        elif isinstance(event, ev.Widened):
            self._write(
                "!     kernels need fewer registers than were counted: the space is wider, and its tree is begun again"
            )
        elif isinstance(event, st.MachineChanged):
            self._write(
                f"!     the machine changed: one program takes {event.ratio:.2f} times as long as before;"
                " the best of each state are timed again at the end"
            )
        elif isinstance(event, st.Remeasured):
            self._again(event)
        elif isinstance(event, st.Confirmed):
            self._write(_confirmed_text(event, self._unit))
        elif isinstance(event, st.OtherCompiler):
            self._write(
                f" F    {event.compiler}: {self._unit.text(event.time_ns)},"
                f" {event.ratio:.2f} times the time of the best"
            )

    def _open(self, e: st.Opened) -> None:
        self._is_fixed = bool(e.space.fixed)
        given = " ".join(f"{key}={value}" for key, value in e.given)
        self._write(
            f"kernelscape {self._version} | {e.run_dir} | seed {e.seed}"
            + (f" | given: {given}" if given else "")
        )
        p, target = e.space.problem, e.space.target
        formula = f": {p.formula}" if p.formula else ""
        self._write(f"Problem    {p.name}{formula}   fingerprint {p.key[:8]}")
        guessed = f"guessed: run {e.calibrated_by}" if e.calibrated_by else "no rate is measured"
        calibrated = "calibrated" if e.calibrated else guessed
        if target.backend == "cpu" and e.calibrated and not target.streams:
            calibrated += f" by an older version, which makes bounds loose: run {e.calibrated_by}"
        self._write(f"Target     {target.backend} {target.name}; {calibrated}")
        for line in space_lines(p, e.space, e.prepare_s):
            self._write(line)
        for line in non_affine_lines(non_affine_tasks(p), e.space.is_for_input):
            self._write(line)
        for line in fixed_lines(e.space):
            self._write(line)
        for note in e.notes:
            self._write(f"note: {note}")
        if e.resumed:
            self._write(f"Resumed    {e.resumed} finished evaluations from the journal")

    def _root(self, e: st.Rooted) -> None:
        self._unit = _unit_of(e, self._unit)
        largest = sorted((t for t in e.terms_ns.items() if t[1] > 0), key=lambda t: -t[1])[:5]
        terms = " | ".join(f"{name} {self._unit.number(ns)}" for name, ns in largest)
        self._write(f"Root bound {self._unit.text(e.bound_ns)}" + (f" ({terms})" if terms else ""))

    def _compare(self, e: st.Compared) -> None:
        self._unit = _unit_of(e, self._unit)
        self._write(
            f"Verify     {e.n_input_sets} input sets against a float64 reference"
            f" | {default_word(self._is_fixed)} {self._unit.text(e.baseline_ns)}"
            + (f" | NumPy {self._unit.text(e.numpy_ns)}" if e.numpy_ns is not None else "")
        )
        self._write("")
        self._write(self._legend)

    def _rounding(self, e: st.RoundingMeasured) -> None:
        said = "; ".join(e.branches)
        sides = f": {said}, where either side is right" if said else ", no element lies on a branch"
        self._write(
            f"Rounding   measured on input set {e.input_set}, where a result was off{sides}"
        )

    def _numpy(self, e: st.NumpyTimed) -> None:
        total = e.samples + e.disturbed
        noise = f"; other work disturbed {e.disturbed} of {total} samples" if e.disturbed else ""
        self._write(f"NumPy      {self._unit.text(e.time_ns)} +/- {e.spread:.1%}{noise}")

    def _row(self, e: ev.Row) -> None:
        is_due = e.elapsed_s - self._told_s >= self._every_s
        if not (e.new_best or is_due or self._verbosity > 1):
            return
        self._told_s = e.elapsed_s
        if self._n_rows % _HEADER_EVERY == 0:
            for line in _header(self._unit.name):
                self._write(line)
        self._n_rows += 1
        self._write(_row_text(e, self._unit))

    def _again(self, e: st.Remeasured) -> None:
        if len(e.top) < 2:
            return
        first, second = e.top[:2]
        slower = second.time_ns / first.time_ns - 1
        verdict = (
            f"{e.ties} cannot be told apart"
            if e.ties > 1
            else f"runner-up is {slower:.1%} slower (outside noise)"
        )
        if e.is_disturbed:
            verdict = (
                "other work disturbed it, the times of the search stand where it was no steadier"
            )
        self._write(f" F    top {len(e.top)} re-measured interleaved: {verdict}")


def _confirmed_text(e: st.Confirmed, unit: TimeUnit) -> str:
    there = f"on {e.slot} the best takes {unit.text(e.time_ns)}, {e.ratio:.2f} times as long"
    if e.agrees:
        return f" F    {there}, and stays the best"
    return f"!     {there}, and the runner-up is {1 / (e.lead or 1.0) - 1:.1%} faster there"


def _components_text(e: ev.Components) -> str:
    rows = e.components
    n, n_places = len(rows), sum(row.places for row in rows)
    n_tried, n_explored = sum(row.tried for row in rows), sum(row.is_explored for row in rows)
    return f" C    {n_tried} implementations of {n} components at {n_places} places; {n_explored} have nothing left to try"


def _unit_of(event: Event, now: TimeUnit) -> TimeUnit:
    """Returns the time unit for an event's times; that of the default implementation is final."""
    if isinstance(event, st.Rooted):
        return TimeUnit(event.bound_ns)
    if isinstance(event, st.Compared) and event.baseline_ns is not None:
        return TimeUnit(event.baseline_ns)
    return now


def _header(unit: str) -> tuple[str, str]:
    time = f"Time of one run, {unit}"
    return (
        f"      |      Tree     |     Pruned      | {time:<27} |       |      Measured       |",
        " Src  |   Expl   Open |   bound     csp |     Bound      Best   +/-   |  Gap  |"
        "   ok  bad crash t/o | Elapsed",
    )


def _row_text(e: ev.Row, unit: TimeUnit) -> str:
    star = "*" if e.new_best else " "
    gap = ev.gap_text(e.gap)
    noise = "" if e.best_ns is None else f"{e.spread:.1%}"
    return (
        f"{star}{e.source}    | {_count(e.explored):>6} {_count(e.open):>6} |"
        f" {_count(e.pruned_bound):>7} {_count(e.pruned_csp):>7} |"
        f" {unit.number(e.bound_ns):>9} {unit.number(e.best_ns):>9} {noise:>6}  | {gap:>5} |"
        f" {e.ok:>4} {e.wrong:>4} {e.crash + e.unbuilt:>5} {e.timeout:>3} | {e.elapsed_s:>6.1f}s"
    )


def _count(n: int) -> str:
    return str(n) if n < 1_000_000 else f"{n / 1e6:.1f}M"


def space_lines(problem: Problem, space: Space, prepare_s: float | None) -> list[str]:
    """Returns two lines on the size of a space: objects and choices, and choices fixed by propagation.

    `prepare_s`: seconds of its preparation.
    """
    n_loops = sum(len(t.loops) for t in problem.tasks)
    open_by_kind, n_choices, n_open = count_choices(space)
    kinds = ", ".join(f"{n} {kind}" for kind, n in open_by_kind.items())
    took = "" if prepare_s is None else f", {prepare_s:.2f}s"
    return [
        f"Space      {len(problem.tasks)} tasks, {n_loops} loops | {n_choices} choices,"
        f" {n_open} open" + (f": {kinds}" if kinds else ""),
        f"Propagated {n_choices - n_open} choices fixed,"
        f" {len(space.model.declarations)} constraints{took} | space {space.key[:8]}",
    ]


def non_affine_lines(non_affine: NonAffineTasks, is_profiled: bool) -> list[str]:
    """Returns a line on the non-affine tasks; [] if there are none."""
    if not non_affine:
        return []
    return [f"Tasks      {non_affine}; bound and gap count {counted_text(is_profiled)}"]


def fixed_lines(space: Space) -> list[str]:
    """Returns a line on the decisions fixed before the search; [] if there are none."""
    if not space.fixed:
        return []
    return [f"Upfront    {fixed_text(space.fixed)}; bound and gap are of the space with that"]


def count_choices(space: Space) -> tuple[dict[str, int], int, int]:
    """Returns the number of open choices of the root by kind (largest first), of all choices, and of open ones."""
    root = space.root()
    searchable = [int(v) for v in space.searchable]
    opened = [] if isinstance(root, DeadEnd) else [v for v in searchable if root.is_open(v)]
    by_kind = Counter(space.choices[v].kind for v in opened)
    return dict(by_kind.most_common()), len(searchable), len(opened)
