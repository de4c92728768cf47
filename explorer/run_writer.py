"""Writer of a session's files: the header, the journal, the search tree and the best implementation so far."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from msgspec import UNSET, structs

from ..codegen.text.dialect import Dialect
from ..codegen.text.source import Source
from ..runtime.files import is_there, write_atomically
from ..runtime.measure.conditions import Conditions
from ..runtime.records.folder import BEST, HEADER, SOURCE, TREE
from ..runtime.records.journal import AbstractJournal
from ..runtime.records.known_inputs import write_kept
from ..runtime.records.libraries import keep_library
from ..runtime.records.loading import load_header, write_record
from ..runtime.records.record import (
    SCHEMA,
    AgainRecord,
    BestFile,
    BoundRecord,
    ComponentRecord,
    EvaluationRecord,
    IncumbentRecord,
    KeptRecord,
    MachineRecord,
    MeasurementOrigin,
    NoteRecord,
    RecordError,
    RemeasuredRecord,
    RunHeader,
    TallyRecord,
    standing_evaluations,
)
from ..runtime.records.replay import StaleError
from ..runtime.records.store import TunedStore
from ..runtime.records.tree_file import ExpandedChild, TreeWriter
from ..search import events as ev
from ..search.events import Outcome, Tally
from ..space.candidate import Candidate, Space
from . import stages as st
from .component_results import component_results
from .evaluation import open_decisions, outcome_of
from .workload import Options, Workload

_BOUND_EVERY_S = 1.0  # between two records of the bound
_TALLY_EVERY_S = 5.0  # between two records of the tally: what a killed session may lose of it
_REFUSALS = 30  # constraints named in a tally; the others are summed


@dataclass(frozen=True, slots=True)
class Result:
    """The best implementation, with its times, its bound and its conditions."""

    candidate: Candidate
    source: Source
    time_ns: float
    spread: float
    bound_ns: float | None
    status: str
    baseline_ns: float | None
    numpy_ns: float | None
    n_input_sets: int
    conditions: Conditions | None = None  # where they are not those of the session
    library: Path | None = None  # built from the source alone, to lie beside best.json
    bound_now_ns: float | None = None  # on the machine as it was when the time was taken
    branches: tuple[str, ...] = ()  # sentences on elements that lie on one


class RunWriter:
    """Writes one run directory; `journal` is open and locked by the caller."""

    def __init__(
        self,
        folder: Path,
        journal: AbstractJournal,
        workload: Workload,
        options: Options,
        space: Space,
        conditions: Conditions,
        device_key: str = "",
    ) -> None:
        """`device_key` is that of the devices of a fleet."""
        self._folder = folder
        self._journal = journal
        self._workload = workload
        self._options = options
        self._space = space
        self._conditions = conditions
        self._device_key = device_key
        self._earlier_s = max((r.at_s for r in journal.records()), default=0.0)
        self._started_s = time.monotonic()
        self._session = 1 + len(self.notes("session"))
        self._n_trees = 0
        self._tree_s = 0.0  # spent on keeping them
        self._tree = TreeWriter(folder / TREE)
        self._bound_told_s = -_BOUND_EVERY_S
        self._tally_told_s = -_TALLY_EVERY_S

    def at_s(self) -> float:
        """Seconds of the run until now, summed over its sessions."""
        return self._earlier_s + time.monotonic() - self._started_s

    # ------------------------------------------------------------------ what was before

    @property
    def evaluations(self) -> tuple[EvaluationRecord, ...]:
        """Finished evaluations of the run, each in its latest record."""
        return standing_evaluations(self._journal.records())

    def known(self) -> dict[bytes, Outcome]:
        """Returns the recorded outcomes by source key."""
        return {r.source_key.encode(): outcome_of(r) for r in self.evaluations if r.source_key}

    @property
    def device(self) -> str:
        """The key of the device that this session measures on."""
        return self._conditions.machine

    def notes(self, kind: str) -> list[str]:
        """Returns the texts of the journal's notes of one kind, oldest first."""
        records = self._journal.records()
        return [r.text for r in records if isinstance(r, NoteRecord) and r.kind == kind]

    def failures(self) -> dict[str, int]:
        """Returns the count of each status that is not "ok", over all sessions."""
        counts = Counter(r.status for r in self.evaluations if r.status != "ok")
        return dict(sorted(counts.items()))

    # ------------------------------------------------------------------ writing

    def begin(self) -> None:
        """Writes the run's header, or checks that the existing one matches this session. Raises StaleError."""
        path = self._folder / HEADER
        if is_there(path):
            self._compare(load_header(path))
        else:
            write_kept(self._folder, self._workload.stored, self._workload.arguments.arrays)
            write_record(path, self._header())
        self.note("session", f"seed {self._options.seed}")
        self.machine()

    def place(self, worker: int, slot: str, number: int) -> MeasurementOrigin:
        """Returns the origin record of a measurement: session, tree, worker process and device.

        With several slots also the name of the slot, and the number of its work item, from 0.
        """
        return MeasurementOrigin(
            session=self._session,
            tree=max(0, self._n_trees - 1),
            worker=worker,
            device=self._conditions.machine,
            slot=slot or UNSET,
            number=number if slot else UNSET,
        )

    def note(self, kind: str, text: str) -> None:
        self._journal.append(NoteRecord(at_s=self.at_s(), kind=kind, text=text))

    @property
    def _threads(self) -> int:
        """Number of threads of a call: that of the options, else the cores of the slots in use; 0 for all cores of this host."""
        return self._options.threads or (self._space.target.cores if self._device_key else 0)

    def incumbent(self, source_key: str, time_ns: float) -> None:
        record = IncumbentRecord(at_s=self.at_s(), source_key=source_key, time_ns=time_ns)
        self._journal.append(record)

    def bound(self, bound_ns: float, limiting: Callable[[], str]) -> None:
        """Records a new bound and its limiting resource, at most once a second."""
        if self.at_s() - self._bound_told_s >= _BOUND_EVERY_S:
            self._bound_told_s = at_s = self.at_s()
            self._journal.append(BoundRecord(at_s=at_s, bound_ns=bound_ns, limiting=limiting()))

    def machine(self, ratio: float = 1.0) -> None:
        """Records the session's machine and compiler.

        `ratio` other than 1: the machine now takes `ratio` times as long as before.
        """
        c = self._conditions
        self._journal.append(
            MachineRecord(at_s=self.at_s(), device=c.machine, compiler=c.compiler, ratio=ratio)
        )

    def remeasured(self, told: st.Remeasured) -> None:
        """Records the final re-measurement."""
        entries = tuple(
            AgainRecord(source_key=e.key, time_ns=e.time_ns, spread=e.spread, search_ns=e.search_ns)
            for e in told.top
        )
        self._journal.append(
            RemeasuredRecord(
                at_s=self.at_s(),
                entries=entries,
                n_ties=told.ties,
                is_disturbed=told.is_disturbed,
            )
        )

    def plant(self, bound_ns: float) -> None:
        """Starts a new search tree, whose nodes are numbered from 0, with the bound of its root."""
        self._tree.begin(self._session, self._n_trees, bound_ns)
        self._n_trees += 1

    def grow(self, event: ev.NodeExpanded | ev.Pruned | ev.Reopened) -> None:
        """Records a change of the search tree: children of a node, a pruned or a reopened node."""
        started_s = time.monotonic()
        match event:
            case ev.NodeExpanded(children=children):
                opened = [
                    ExpandedChild(c.value, c.bound_ns, bool(c.pruned), c.why) for c in children
                ]
                first = children[0].node if children else 0
                self._tree.expand(
                    event.node, event.choice, event.tag, self.at_s(), first, opened, event.bound_ns
                )
            case ev.Pruned():
                self._tree.close_node(event.node, event.reason, event.cut_ns)
            case ev.Reopened():
                self._tree.reopen(event.node)
        self._tree_s += time.monotonic() - started_s

    def end(self, status: str) -> None:
        """Records the session's end, with the seconds spent on writing its records."""
        self._tree.flush()
        self._journal.append(
            KeptRecord(
                at_s=self.at_s(),
                session_s=time.monotonic() - self._started_s,
                journal_s=self._journal.spent_s,
                tree_s=self._tree_s,
                tree_children=self._tree.n_children,
                tree_bytes=self._tree.n_bytes,
            )
        )
        self.note("ended", status)

    def tally(self, tally: Tally, *, is_last: bool = False) -> None:
        """Records the pruning counts so far, at most every few seconds unless `is_last`."""
        if not is_last and self.at_s() - self._tally_told_s < _TALLY_EVERY_S:
            return
        self._tally_told_s = self.at_s()
        numbers = {f.name: getattr(tally, f.name) for f in fields(tally)}
        refused = tally.refused.most_common()
        named = dict(refused[:_REFUSALS])
        if refused[_REFUSALS:]:
            named["others"] = sum(n for _, n in refused[_REFUSALS:])
        counts = {name: n for name, n in numbers.items() if isinstance(n, int)}
        self._journal.append(TallyRecord(at_s=self._tally_told_s, counts=counts, refused=named))

    def keep(self, result: Result) -> BestFile:
        """Writes the best implementation: best.json and its source text, and its library if it has one."""
        best = self._best_file(result)
        if result.library is not None:
            record = keep_library(result.library, result.source.key, self._folder / BEST)
            best = structs.replace(best, library=record)
        write_atomically(
            self._folder / f"{SOURCE}{result.source.suffix}", result.source.file_text.encode()
        )
        write_record(self._folder / BEST, best)
        return best

    def store(self, best: BestFile, candidate: Candidate, dialect: Dialect) -> None:
        """Adds a result to the tuned store, and those of its components.

        Errors are ignored, since the store can be rebuilt from runs.
        """
        try:
            with TunedStore() as store:
                store.put(best)
                rows = self._components_of(best)
                recording = self._workload.recording
                for key, part in component_results(recording, candidate, best, rows, dialect):
                    store.put_component(part, key)
        except (RecordError, OSError) as e:
            with suppress(RecordError):
                self.note("store", str(e))

    def _components_of(self, best: BestFile) -> tuple[ComponentRecord, ...]:
        """Returns the last records of the components of a result; () if they were not timed."""
        records = [r.components for r in self.evaluations if r.source_key == best.source_key]
        return next((x for x in reversed(records) if x is not UNSET), ())

    def _header(self) -> RunHeader:
        s = self._workload
        options = asdict(self._options)
        del options["given"], options["fixed"]
        return RunHeader(
            schema=SCHEMA,
            sequence=s.sequence,
            sizes=s.sizes,
            dtype=s.dtype,
            problem_key=s.problem.key,
            space_key=self._space.key,
            target=self._options.target,
            seed=self._options.seed,
            options=options,
            conditions=self._conditions,
            stored=s.stored,
            fixed=self._space.fixed,
            profile=UNSET if self._space.profile is None else self._space.profile,
            device_key=self._device_key or UNSET,
        )

    def _compare(self, header: RunHeader) -> None:
        if header.conditions.machine != self._conditions.machine:
            raise StaleError(
                f"{self._folder} was measured on {header.conditions.machine} and this machine is"
                f" {self._conditions.machine}: start a new run"
            )
        if header.space_key != self._space.key:
            raise StaleError(
                f"the space of {self._folder} has changed since ({header.space_key[:8]}, now"
                f" {self._space.key[:8]}): start a new run"
            )

    def _best_file(self, result: Result) -> BestFile:
        s = self._workload
        bound_ns = min(result.bound_ns or 0.0, result.time_ns)
        return BestFile(
            schema=SCHEMA,
            sequence=s.sequence,
            sizes=s.sizes,
            dtype=s.dtype,
            problem_key=s.problem.key,
            space_key=self._space.key,
            target=self._options.target,
            decisions=open_decisions(result.candidate),
            source_key=result.source.key,
            time_ns=result.time_ns,
            spread=result.spread,
            bound_ns=bound_ns,
            gap=(result.time_ns - bound_ns) / result.time_ns,
            bound_now_ns=result.bound_now_ns,
            status=result.status,
            baseline_ns=result.baseline_ns,
            numpy_ns=result.numpy_ns,
            evaluations=max(1, len(self.evaluations)),
            seed=self._options.seed,
            verified="; ".join(
                (f"{result.n_input_sets} input sets against a float64 reference", *result.branches)
            ),
            conditions=result.conditions or self._conditions,
            stored=s.stored,
            fixed=self._space.fixed,
            threads=self._threads,
            undecided=self._options.undecided,
            profile=UNSET if self._space.profile is None else self._space.profile,
        )
