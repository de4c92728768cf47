"""One machine that runs programs: its worker, its current state, and the programs that it has timed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from ..api.artifact import Artifact
from ..api.backend import AbstractBuilder
from ..api.outcome import Failure, Measurement, Protocol
from .contenders import Timed
from .control import Control, SharedControl
from .messages import Done, Ticket, Work
from .worker import AbstractWorker

_ONCE = Protocol(
    sample_ns=1.0, min_samples=1, max_samples=1
)  # where only its results matter, not its time


class Machine:
    """Verifies and times programs one after the other, and tracks the machine's state."""

    def __init__(
        self,
        worker: AbstractWorker,
        builder: AbstractBuilder,
        shared: SharedControl | None = None,
        slot: str = "",
    ) -> None:
        """`shared`: control and timed programs of all machines in a search. `slot`: name of this machine's slot."""
        self.slot = slot
        self._n_done = 0
        self._worker = worker
        self._builder = builder
        self._shared = shared or SharedControl()
        self.contenders = self._shared.contenders
        self.control = Control(worker, self._shared)

    def evaluate(self, ticket: Ticket, work: Work, built: Artifact | Failure) -> Done:
        """Verifies and times a built program; a failed build is its outcome."""
        started_s = time.monotonic()
        found = self._outcome(work, built)
        if isinstance(built, Artifact) and isinstance(found, Failure) and self._is_gone(built):
            built = self._builder.build(work.source)
            found = self._outcome(work, built)
        if isinstance(found, Measurement):
            self.control.see(found)
        artifact = built if isinstance(built, Artifact) else None
        done = Done(
            ticket=ticket,
            measured=found if isinstance(found, Measurement) else None,
            failed=found if isinstance(found, Failure) else None,
            artifact=artifact,
            run_s=time.monotonic() - started_s,
            slowness=self.control.slowness,
            control=self.control.key,
            control_ns=self.control.ns,
            worker=self._worker.n_restarts,
            slot=self.slot,
            number=self._n_done,
        )
        self._n_done += 1
        if isinstance(found, Measurement):
            self._note(work.source.key, found, artifact)
        return done

    def refuted(self, key: str, artifact: Artifact) -> Failure | None:
        """Returns the failure of a timed program on input sets not yet verified; None if it is right on all.

        A program that was slow when first timed was verified on the timed set only. A wrong one is removed from the contenders.
        """
        if not self.contenders.is_partly_verified(key):
            return None
        found = self.fault(artifact)
        if found is None:
            self.contenders.confirm(key)
        else:
            self.contenders.forget(key)
        return found

    def fault(self, artifact: Artifact) -> Failure | None:
        """Verifies a build on all input sets. Returns its failure; None if it is right."""
        found = self._worker.evaluate(artifact, _ONCE)
        return found if isinstance(found, Failure) else None

    @property
    def worker(self) -> int:
        """Number of the process that runs programs, from 0; each restart adds 1."""
        return self._worker.n_restarts

    def _note(self, key: str, found: Measurement, artifact: Artifact | None) -> None:
        by_ratio, state = found.ratio is not None, self.control.state
        with self._shared.lock:
            self.contenders.note(
                Timed(key, found.time_ns, state, artifact, by_ratio, found.spread),
                self.control.ratio(found.time_ns),
                is_partly_verified=found.is_partly_verified,
            )

    def _is_gone(self, built: Artifact) -> bool:
        """True if the folder of a built library was removed, so that it must be built again."""
        return self._builder.makes_libraries and not Path(built.path).exists()

    def _outcome(self, work: Work, built: Artifact | Failure) -> Measurement | Failure:
        return built if isinstance(built, Failure) else self._time(built, work.times_components)

    def _time(self, artifact: Artifact, times_components: bool) -> Measurement | Failure:
        """Verifies and times a build.

        On a machine with other work it is timed as a ratio to the control, since few plain times would be usable. A program that
        would be the best is then timed alone as well. That time counts unless it was disturbed.
        """
        control, claims_below_ns = self.control, self.contenders.claims_below_ns
        if control.is_disturbed:
            control.choose()
        protocol = Protocol(
            claims_below_ns=claims_below_ns,
            cut_ns=control.cut_ns(),
            times_components=times_components,
        )
        if not control.is_disturbed or control.artifact is None:
            return self._worker.evaluate(artifact, protocol)
        found = self._worker.evaluate_beside(
            artifact, control.artifact, replace(protocol, control_ns=control.ns)
        )
        if isinstance(found, Failure) or found.time_ns >= claims_below_ns:
            return found
        alone = self._worker.evaluate(artifact, protocol, verify=False)
        return found if isinstance(alone, Failure) or alone.is_disturbed else alone
