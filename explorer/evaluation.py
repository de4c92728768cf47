"""Evaluation: complete candidates become source, artifact and outcome, and every outcome is in the
journal before the search sees it.
"""

from __future__ import annotations

import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from ..codegen.lower import lower, print_source
from ..codegen.source import Source
from ..runtime.build import Artifact, build_many
from ..runtime.device import AbstractDevice
from ..runtime.journal import AbstractJournal
from ..runtime.outcome import Failure, Measurement, Protocol
from ..runtime.records import Decisions, EvaluationRecord
from ..runtime.replay import dialect_of
from ..runtime.worker import AbstractWorker
from ..search.budget import Interrupt
from ..search.events import Outcome
from ..space.candidate import Candidate, DeadEnd

_KEPT_SOURCES = 512
_JOBS = 2  # compilers at once, before and never while times are taken
_DETAIL_CHARACTERS = 2000


class Evaluator:
    """Evaluates batches: all are lowered and compiled first, then measured one after the other on
    an otherwise idle machine.
    """

    def __init__(
        self,
        device: AbstractDevice,
        worker: AbstractWorker,
        journal: AbstractJournal,
        *,
        at_s: Callable[[], float],
        bound: Callable[[Candidate], float],
        interrupt: Interrupt,
        failed_folder: Path | None,
        doubt: Callable[[], None] = lambda: None,
        scale: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """`doubt` is called when a time is below its bound times `scale`, before anybody sees it: the
        machine may have become faster than it was calibrated.
        """
        self._device = device
        self._worker = worker
        self._journal = journal
        self._dialect = dialect_of(device)
        self._bound = bound
        self._at_s = at_s
        self._interrupt = interrupt
        self._failed_folder = failed_folder
        self._doubt = doubt
        self._scale = scale
        self._sources: OrderedDict[bytes, Source | Failure] = OrderedDict()
        self.best_ns: float | None = None
        self.is_over: Callable[[], bool] = lambda: False
        self._timed: dict[str, tuple[Outcome, Candidate]] = {}

    def top(self, n: int) -> list[tuple[Outcome, Candidate]]:
        """The n fastest distinct implementations measured or adopted so far, best first."""
        return sorted(self._timed.values(), key=lambda entry: entry[0].time_ns or 0.0)[:n]

    def adopt(self, candidate: Candidate, outcome: Outcome) -> None:
        """Take over what an earlier session measured."""
        if outcome.time_ns is not None:
            self._timed[outcome.key] = outcome, candidate
            self.best_ns = min(self.best_ns or outcome.time_ns, outcome.time_ns)
            if len(self._timed) > _KEPT_SOURCES:
                del self._timed[max(self._timed, key=lambda k: self._timed[k][0].time_ns or 0.0)]

    def source(self, candidate: Candidate) -> Source | Failure:
        """The candidate's text; a candidate that cannot be lowered is a failure like any other."""
        key = candidate.key
        found = self._sources.get(key)
        if found is None:
            try:
                found = print_source(lower(candidate), self._dialect)
            except Exception:
                text = traceback.format_exc()
                found = Failure("compile", "it could not be lowered", text)
            self._sources[key] = found
            if len(self._sources) > _KEPT_SOURCES:
                self._sources.popitem(last=False)
        return found

    def implementation_key(self, candidate: Candidate) -> bytes | None:
        """Equal for candidates of equal text; None where there is no text."""
        source = self.source(candidate)
        return source.key.encode() if isinstance(source, Source) else None

    def __call__(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """One outcome a candidate. Raises KeyboardInterrupt between two candidates when the
        interrupt is set, or time `is_over` and anything was measured; what was measured until then is in the journal and in
        `top`.
        """
        sources = [self.source(c) for c in candidates]
        artifacts = iter(
            build_many(self._device, [s for s in sources if isinstance(s, Source)], _JOBS)
        )
        outcomes = []
        for candidate, source in zip(candidates, sources, strict=True):
            built = next(artifacts) if isinstance(source, Source) else source
            assert not isinstance(built, Source)
            # A run whose set-up took its time still has something to show for it.
            is_over = self.best_ns is not None and self.is_over()
            if self._interrupt.is_set or is_over:
                raise KeyboardInterrupt
            outcomes.append(self._measure(candidate, source, built))
        return outcomes

    def artifact(self, candidate: Candidate) -> Artifact | Failure:
        """The candidate's artifact; built artifacts are kept by the device, so this is quick."""
        source = self.source(candidate)
        return source if isinstance(source, Failure) else self._device.build(source)

    def _measure(
        self, candidate: Candidate, source: Source | Failure, built: Artifact | Failure
    ) -> Outcome:
        found: Measurement | Failure
        if isinstance(built, Failure):
            found = built
        else:
            found = self._worker.evaluate(built, Protocol().with_cut(self.best_ns))
        key = source.key if isinstance(source, Source) else ""
        outcome = _as_outcome(found, key)
        bound_ns = self._bound(candidate)
        if outcome.time_ns is not None and outcome.time_ns < bound_ns * self._scale():
            self._doubt()
        if outcome.time_ns is None and isinstance(source, Source):
            self._keep_failed(source, outcome)
        self._journal.append(
            EvaluationRecord(
                at_s=self._at_s(),
                decisions=open_decisions(candidate),
                source_key=key,
                status=outcome.status,  # type: ignore[arg-type]
                time_ns=outcome.time_ns,
                spread=outcome.spread,
                min_ns=found.min_ns if isinstance(found, Measurement) else None,
                bound_ns=bound_ns * self._scale(),
                detail=outcome.detail,
                stopped_early=isinstance(found, Measurement) and found.stopped_early,
            )
        )
        self.adopt(candidate, outcome)
        return outcome

    def _keep_failed(self, source: Source, outcome: Outcome) -> None:
        """A failed source is a bug report: of the generator, the compiler or the machine."""
        if self._failed_folder is None:
            return
        self._failed_folder.mkdir(exist_ok=True)
        path = self._failed_folder / f"{outcome.status}-{source.key}{source.suffix}"
        reason = outcome.detail.replace("*/", "* /")
        path.write_text(f"/* {outcome.status}: {reason} */\n{source.text}")


def open_decisions(candidate: Candidate) -> Decisions:
    """The decisions of a candidate, without those that hold in the whole space."""
    space = candidate.space
    root = space.root()
    assert not isinstance(root, DeadEnd)
    is_open = {space.choices[int(v)].name for v in root.open_choices()}
    return tuple((name, value) for name, value in candidate.decisions() if name in is_open)


def _as_outcome(found: Measurement | Failure, key: str) -> Outcome:
    if isinstance(found, Measurement):
        return Outcome("ok", found.time_ns, found.spread, "", key)
    detail = f"{found.advice}\n{found.log}".strip()[:_DETAIL_CHARACTERS]
    return Outcome(found.kind, None, 0.0, detail, key)
