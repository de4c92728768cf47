"""Event handler of a session: records results that must persist, and passes events to the user's listener."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from ..runtime.forked import Stopped
from ..search import events as ev
from ..space.candidate import Candidate
from . import stages as st
from .deadlines import Deadlines
from .evaluation import SearchEvaluator
from .session_state import Standing

Tell = Callable[[st.Stage | ev.Event], None]
"""Takes every event of a session."""


class Listener:
    """Handles the events of one search: records them, updates the bound and passes them to the user's listener."""

    def __init__(
        self, standing: Standing, evaluator: SearchEvaluator, deadlines: Deadlines, tell: Tell
    ) -> None:
        self._standing = standing
        self._writer = standing.writer
        self._claims = standing.claims
        self._evaluator = evaluator
        self._deadlines = deadlines
        self._tally = ev.Tally()  # as it was told last
        self._tell = tell
        self._is_all_right = True  # as far as anything was verified
        self._evaluated: ev.Evaluated | None = None  # the last one

    def hear_all(self, events: Iterable[ev.Event], has_default: bool) -> ev.Finished:
        """Handles every event until the search ends, and returns the search's end.

        Candidates measured before the default in the same batch are reported after it, since logs compare them with it. If the
        search is interrupted while it computes, the events before that are still handled.
        """
        finished: ev.Finished | None = None
        held: list[ev.Event] = []
        try:
            for event in events:
                with self._deadlines.shielded():
                    if isinstance(event, ev.Finished):
                        finished = event
                    elif isinstance(event, ev.Divided):  # what rows are of is told before them
                        self._tell(event)
                    elif self._standing.default is None and has_default:
                        held.append(event)
                        if isinstance(event, ev.Evaluated) and event.tag == "U":
                            self._hear_each([held.pop(), *held])
                            held.clear()
                    else:
                        self._hear(event)
        except Stopped:
            finished = None
        self._hear_each(held)
        return self._cut_off() if finished is None else finished

    def _cut_off(self) -> ev.Finished:
        """Returns the end event of a search that was interrupted before it reported one."""
        bound_ns = self._claims.bound_ns
        return ev.Finished("interrupted", None, (), bound_ns, None, self._tally, 0.0)

    def meet_default(self, outcome: ev.Outcome, candidate: Candidate) -> None:
        """Records and reports the time of the default."""
        s = self._standing
        s.meet_default(outcome, candidate)
        self._tell(st.Compared(s.default_ns, s.numpy.ns, s.n_sets))

    def meet_change(self, ratio: float) -> None:
        """Records and reports that the machine takes `ratio` times as long as before."""
        self._writer.machine(ratio)
        self._tell(st.MachineChanged(ratio))

    def _hear_each(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            self._hear(event)

    def _hear(self, event: ev.Event) -> None:
        is_wrong = isinstance(event, ev.Evaluated) and event.outcome.status == "wrong"
        if isinstance(event, ev.Evaluated) and is_wrong and self._is_all_right:
            self._is_all_right = False
            self._tell(st.FirstWrong(event.outcome.key, event.outcome.detail))
        if isinstance(event, ev.Evaluated):
            self._evaluated = event
        match event:
            case ev.Evaluated(tag="U") if self._standing.default is None:
                assert isinstance(event.candidate, Candidate)
                self.meet_default(event.outcome, event.candidate)
            case ev.NewIncumbent(best=best):
                self._writer.incumbent(best.outcome.key, best.time_ns)
                if isinstance(best.candidate, Candidate):
                    self._standing.keep(self._evaluator, best.outcome, best.candidate)
            case ev.BoundMoved() if self._claims.is_of_root:
                return  # of all implementations only the root's bound holds
            case ev.BoundMoved(bound_ns=bound_ns, candidate=candidate):
                self._claims.bound_ns = bound_ns
                self._writer.bound(bound_ns, lambda: self._claims.limiting(candidate))
            case ev.NodeExpanded() | ev.Pruned() | ev.Reopened():
                self._writer.grow(event)
            case ev.Widened(bound_ns=bound_ns):
                self._writer.plant(bound_ns)
            case ev.Row(tally=tally):
                self._tally = tally
                self._writer.tally(tally)
                if self._claims.is_of_root:
                    event = self._claims.of_what_is_open(event)
                elif not self._standing.device.machine.times_count:
                    event = replace(event, gap=None)
            case ev.AdmissibilityAlarm(key=key):
                self._claims.bound_ns = None
                self._writer.note("alarm", key.decode(errors="replace"))
                self._learn_alarm(key)
        self._tell(event)

    def _learn_alarm(self, key: bytes) -> None:
        """Raises the rates that the implementation `key`, which was evaluated last, has shown to be too low."""
        last = self._evaluated
        if last is not None and last.key == key and isinstance(last.candidate, Candidate):
            assert last.outcome.time_ns is not None, "only a time is below a bound"
            self._claims.learn_alarm(last.candidate, last.outcome.time_ns)
