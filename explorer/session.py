"""One session of a run: prepare, search, time the best again, store; every step is reported as events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
from msgspec import UNSET

from ..kernels.tasks.non_affine import non_affine_tasks
from ..kernels.tasks.profile import Profile
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.errors import DeviceError
from ..runtime.device import DeviceOptions, open_device
from ..runtime.files import is_there
from ..runtime.fleet.fleet import AbstractFleet, AbstractSlot, chosen, of_slot
from ..runtime.fleet.remote import RemoteDevice
from ..runtime.fleet.request import FleetRequest
from ..runtime.fleet.seats import FleetWorker, Seats
from ..runtime.fleet.slot_pool import SlotPool
from ..runtime.forked import Stopped
from ..runtime.records.folder import FAILED, HEADER, JOURNAL
from ..runtime.records.journal import AbstractJournal, FileJournal
from ..runtime.records.loading import load_header
from ..runtime.records.replay import StaleError, restore_complete
from ..runtime.worker.pool import JOBS, AbstractPool, LocalPool
from ..runtime.worker.worker import AbstractWorker
from ..search import events as ev
from ..search.asking import Ask, answered
from ..search.asking import Tell as Told
from ..search.bound.bounder import Bounder
from ..search.budget import AbstractRule, Budget, Evaluations, Gap, Interrupt, Seconds
from ..search.components.component_search import search_components
from ..search.inputs import Guidance, History, Oracle
from ..search.learn.surrogate import KernelRidge
from ..search.options import Batches, SearchOptions
from ..search.precompile import Precompilation
from ..search.predict import Predictor
from ..search.run import search
from ..search.starts.complete import sketched_candidates, solved_candidates
from ..search.starts.sketches import Sketch
from ..search.tree.ordering import NextChoice
from ..space.build import build_space
from ..space.candidate import Candidate, DeadEnd, Space
from . import stages as st
from .bound_validity import Claims
from .component_starts import component_starts
from .deadlines import Deadlines
from .division import best_of_components, divided
from .evaluation import BATCH, FIRST_BATCH, Hooks, SearchEvaluator, largest_batch, outcome_of
from .event_handler import Listener, Tell
from .finalisation import Ending, LastRounds, end_before_the_run
from .machine import conditions_of, open_worker
from .numpy_timing import NumpyTiming, take_numpy
from .predicting import learn_from, predictor_of
from .preparation import Preparation
from .profiling import known_profile, take_profile
from .registers import Registers
from .run_writer import RunWriter
from .session_state import Standing
from .shared_results import shared_starts
from .workload import Options, Workload, without_excluded

__all__ = ["Session", "Tell"]

_PATIENCE_S = 0.5  # for compilers once the user has interrupted
_MOST_INTERPRETED = 1000  # choices that Python propagates in about a second


class Session:
    """One session of a run in `folder`: its first one, or one that continues after the last.

    `run` raises DeviceError, WorkerError, RecordError and StaleError, each with one sentence.
    """

    def __init__(
        self,
        workload: Workload,
        options: Options,
        folder: Path,
        tell: Tell,
        interrupt: Interrupt,
        deadlines: Deadlines,
        fleet: FleetRequest | None = None,
    ) -> None:
        """Without a `fleet`, this machine alone runs programs."""
        self._fleet = fleet
        self._workload = workload
        self._options = options
        self._folder = folder
        self._tell = tell
        self._interrupt = interrupt
        self._deadlines = deadlines
        self._is_ended = False  # by an exception

    def run(self) -> st.Ended:
        """Runs the session from its first record to the stored result, and returns its end."""

        def tell(text: str) -> None:
            self._tell(st.Compiling(text))

        with Precompilation(tell, lambda: self._interrupt.is_set) as self._compilation:
            return self._run()

    def _run(self) -> st.Ended:
        o = self._options
        deadlines = self._deadlines
        try:
            with deadlines.phase("compilers were looked for"):
                device, opened = self._opened()
        except Stopped:
            return self._early()
        making = closing(Preparation(self._workload, o, deadlines, self._tell))
        with (
            opened as worker,
            FileJournal(self._folder / JOURNAL) as journal,
            making as preparation,
        ):
            worker.end_when(deadlines.is_past_waiting)
            worker.start()  # meanwhile this process has a core of its own
            try:
                with deadlines.phase("its space was built"):
                    target = device.machine.facts()
                    space = build_space(self._workload.problem, target)
                if len(space.searchable) > _MOST_INTERPRETED:
                    self._wait_for_compilers()
                with deadlines.phase("its space was built"):
                    space = without_excluded(space, o)
                    root = space.root()
                with deadlines.phase("the machine was looked at"):
                    conditions = conditions_of(device, worker)
                if preparation.is_small:
                    preparation.begin()
                with deadlines.phase("what its values decide was counted"):
                    space = space.profiled(self._profile())
                    root = space.root()
                preparation.begin()
            except Stopped:
                return self._early()
            key = device.key if isinstance(device, RemoteDevice) else ""
            writer = RunWriter(self._folder, journal, self._workload, o, space, conditions, key)
            numpy = NumpyTiming(self._workload, writer, o.time_limit_s)
            writer.begin()
            self._tell_opened(writer, space, device.machine.calibrated_by)
            claims = Claims(device, worker, target, non_affine_tasks(self._workload.problem))
            standing = Standing(writer, device, claims, numpy)
            ending = Ending(self._workload, self._folder, standing, self._deadlines, self._tell)
            if isinstance(root, DeadEnd):
                return ending.tell("infeasible", None, 0)
            try:
                return self._explore(root, standing, ending, preparation, worker, journal)
            except Stopped:  # before anything was measured
                return ending.early(self._interrupt)

    def _wait_for_compilers(self) -> None:
        """Waits until the search's own code is compiled; the time is not counted, since it is needed once a version."""
        with self._deadlines.excluded():
            self._compilation.wait()

    def _opened(self) -> tuple[AbstractDevice, AbstractWorker]:
        """Returns the device of the session (local or a fleet) and its worker. Raises DeviceError."""
        o = self._options
        if self._fleet is None:
            told = DeviceOptions(
                compiler=o.compiler, compile_timeout_s=o.compile_timeout_s, threads=o.threads
            )
            device = open_device(o.target, told)
            return device, open_worker(device)
        if o.compiler is not None:
            raise DeviceError("workers of a fleet build with their own compiler: leave it out")
        self._fleet.check(o.target)
        fleet = self._fleet.join()
        try:
            slots = of_slot(self._slots_of(fleet, self._fleet.on), self._fleet.slot)
            facts, timeout_s = [s.facts for s in slots], o.compile_timeout_s
            remote = RemoteDevice(fleet, facts, threads=o.threads, compile_timeout_s=timeout_s)
            may_grow = self._fleet.slot is None
            return remote, FleetWorker(Seats(fleet, slots, remote, may_grow=may_grow))
        except BaseException:
            fleet.close()
            raise

    def _slots_of(self, fleet: AbstractFleet, on: str | None) -> list[AbstractSlot]:
        """Returns the slots for this run, of the key `on` where it is given. Raises DeviceError and StaleError."""
        target, place = self._options.target, self._folder / HEADER
        if not is_there(place):
            return chosen(fleet, target, on)
        header = load_header(place)
        key = on if header.device_key is UNSET else header.device_key
        if on not in (None, key):
            raise StaleError(
                f"{self._folder} was measured on {key}, with which times of others do not compare:"
                " leave out --on, or start a new run"
            )
        return chosen(fleet, target, key, header.conditions)

    def _pool(self, device: AbstractDevice, worker: AbstractWorker) -> AbstractPool:
        if isinstance(worker, FleetWorker):
            assert isinstance(device, RemoteDevice)
            return SlotPool(device.builder, worker, self._is_given_up)
        return LocalPool(device.builder, worker, self._is_given_up)

    def _early(self) -> st.Ended:
        """Returns the end of a session that was stopped before its search.

        Called in the handler of Stopped, which is raised again after a signal.
        """
        if self._interrupt.is_set:
            raise
        return end_before_the_run(self._folder, self._deadlines, self._tell)

    def _profile(self) -> Profile | None:
        if is_there(self._folder / HEADER):
            return known_profile(self._folder)
        limit_s = self._options.time_limit_s
        return take_profile(self._workload, limit_s, lambda: self._interrupt.is_set)

    def _tell_opened(self, writer: RunWriter, space: Space, calibrated_by: str) -> None:
        n_resumed = len(writer.evaluations)
        self._tell(
            st.Opened(
                run_dir=str(self._folder),
                problem=space.problem.name,
                problem_key=space.problem.key,
                space_key=space.key,
                target=space.target.name,
                calibrated=space.target.calibrated,
                seed=self._options.seed,
                resumed=n_resumed,
                notes=self._workload.stored.changes() if n_resumed else (),
                fixed=dict(space.fixed),
                space=space,
                given=self._options.given,
                prepare_s=self._deadlines.elapsed_s,
                calibrated_by=calibrated_by,
            )
        )

    def _explore(
        self,
        root: Candidate,
        standing: Standing,
        ending: Ending,
        preparation: Preparation,
        worker: AbstractWorker,
        journal: AbstractJournal,
    ) -> st.Ended:
        o, deadlines = self._options, self._deadlines
        writer, claims, device = standing.writer, standing.claims, standing.device
        with deadlines.phase("its bound was computed"):
            bounder = Bounder(root.space)
            whole = claims.begin(bounder, root, writer.evaluations, writer.notes("alarm"))
        self._tell(st.Rooted(claims.whole_ns, dict(whole.terms)))
        writer.bound(claims.whole_ns, lambda: whole.limiting)
        writer.plant(claims.whole_ns)
        registers = Registers(device.reporter, root.space, bounder)
        registers.recall(writer.evaluations)
        pool = self._pool(device, worker)
        pool.before_timing = lambda: self._look_at_what_is_beside(standing, worker)
        evaluator = SearchEvaluator(
            pool,
            device.builder,
            journal,
            at_s=writer.at_s,
            bound=bounder.ns,
            interrupt=self._interrupt,
            failed_folder=self._folder / FAILED,
            hooks=Hooks(
                doubt=claims.look_again,
                scale=lambda: claims.scale.factor,
                reports=registers.reports,
                place=writer.place,
            ),
        )
        try:
            with deadlines.phase("first candidates were made"):
                sketched = sketched_candidates(root.space)
                firsts = _firsts(root.space, sketched)[:FIRST_BATCH]
                is_long = bool(firsts) and evaluator.is_long(firsts[0])
                evaluator.begin(firsts[:1] if is_long else firsts, known=writer.known())
            preparation.finish(standing, worker, pool.rest)
            finished = self._search(root, sketched, bounder, registers, standing, evaluator, pool)
        except BaseException:
            self._is_ended = True
            raise
        finally:
            evaluator.leave()
        return LastRounds(
            o, standing, ending, evaluator, worker, deadlines, self._interrupt, self._tell
        ).run(finished)

    def _search(
        self,
        root: Candidate,
        sketched: Sequence[tuple[Sketch, Candidate]],
        bounder: Bounder,
        registers: Registers,
        standing: Standing,
        evaluator: SearchEvaluator,
        pool: AbstractPool,
    ) -> ev.Finished:
        o, deadlines, device = self._options, self._deadlines, standing.device
        writer, claims = standing.writer, standing.claims
        predictor = predictor_of(bounder, device)
        listener = Listener(standing, evaluator, deadlines, self._tell)
        pool.hear_changes(listener.meet_change)
        firsts = _firsts(root.space, sketched)
        known = writer.known()
        warm = _warm(root.space, writer, evaluator, o.final_top)
        is_new = o.store and not warm
        shared = shared_starts(root.space, self._workload, writer) if is_new else []
        stored: list[Candidate] = []
        if is_new and sketched:
            with deadlines.phase("stored components were looked for"):
                stored = component_starts(root, sketched[0][0], self._workload, writer)
        _recall_default(firsts[:1], known, evaluator, listener)
        history = History[Candidate](
            outcomes=known,
            doubted=[text.encode() for text in writer.notes("alarm")],
            apart=[k for c in firsts if c.is_apart and (k := evaluator.implementation_key(c))],
            incumbents=firsts[:1],
            warm_starts=chain(
                warm, shared, stored, firsts[1:], solved_candidates(root.space, sketched)
            ),
        )
        oracle = Oracle[Candidate](
            bound=bounder.ns,
            key=evaluator.implementation_key,
            scale=claims.scale,
            ahead=evaluator.ahead,
        )
        budget, rng = self._budget(evaluator), np.random.default_rng([o.seed, len(known)])
        is_divided = bool(firsts) and evaluator.time_components(firsts[0])
        is_long = bool(firsts) and evaluator.is_long(firsts[0])
        options = SearchOptions(
            strategy=o.strategy,
            n_top=o.final_top,
            batches=_batches(pool, device, is_long=is_long, is_divided=is_divided),
        )
        if is_divided:
            fastest = best_of_components(root.space, writer.evaluations)
            with deadlines.phase("its components were found"):
                division = divided(
                    root,
                    [firsts[0], *fastest, *stored, *firsts[1:]],
                    evaluator,
                    device,
                    claims.scale,
                    _names_of(root.space),
                    writer.evaluations,
                    only_least=bool(claims.non_affine),
                )
            claims.is_divided = True
            few = replace(history, warm_starts=chain(warm, stored, firsts[1:FIRST_BATCH]))
            found = search_components(root, division, oracle, few, budget, rng, options)
        else:
            whole = firsts[0] if root.is_apart and firsts else registers.widened() or root
            found = search(
                whole,
                oracle,
                _guidance(root, device, registers, predictor, writer),
                history,
                budget,
                rng,
                options,
            )

        def answer(ask: Ask) -> Told | None:
            if standing.default is not None:  # the first candidates were shown
                self._wait_for_compilers()
            with deadlines.shielded():  # the pool looks at the time itself
                return evaluator.answer(ask)

        deadlines.during = "first candidates were compiled and measured"
        with deadlines.cut():
            done = listener.hear_all(answered(found, answer), has_default=bool(firsts))
        if predictor is not None:
            learn_from(predictor, writer.evaluations, device)
        return done

    def _is_given_up(self) -> bool:
        """True if waiting for compilers has become useless: the session is late, interrupted or ended."""
        is_late = self._deadlines.is_past_waiting() or self._interrupt.since_s > _PATIENCE_S
        return is_late or self._is_ended

    def _look_at_what_is_beside(self, standing: Standing, worker: AbstractWorker) -> None:
        """Measures the machine and NumPy after the first candidates were reported, since either may take as long."""
        if standing.default is None:
            return
        if not standing.claims.has_looked:
            standing.claims.look_again()
        numpy = standing.numpy
        if numpy.is_due and not numpy.is_disturbed:
            is_over = self._deadlines.is_past_waiting
            take_numpy(
                numpy,
                standing.device,
                worker,
                lambda: self._interrupt.is_set or is_over(),
                self._tell,
            )

    def _budget(self, evaluator: SearchEvaluator) -> Budget:
        o = self._options
        rules: list[AbstractRule] = []
        if o.gap > 0:
            rules.append(Gap(o.gap))
        if o.max_evals is not None:
            rules.append(Evaluations(o.max_evals))
        search_s = self._deadlines.begin_search()
        if search_s is not None:
            rules.append(Seconds(search_s))
            evaluator.is_over = self._deadlines.is_search_over
        return Budget(*rules, interrupt=self._interrupt, clock=self._deadlines.clock)


def _firsts(space: Space, sketched: Sequence[tuple[Sketch, Candidate]]) -> list[Candidate]:
    """Returns the first candidates: the default, implementations outside of the tree, then completions of other sketches."""
    made = [candidate for _, candidate in sketched]
    return [*made[:1], *(x for c in made[:1] for x in space.apart(c)), *made[1:]]


def _batches(
    pool: AbstractPool, device: AbstractDevice, *, is_long: bool, is_divided: bool
) -> Batches:
    """Returns the sizes of batches; with several slots, at least as many candidates as keep all of them busy.

    Where compilers take long for a text (`is_long`), the default is measured first, alone. Later batches have a text for each
    compiler, unless candidates share texts of components (`is_divided`).
    """
    size = JOBS if is_long and not is_divided else BATCH
    size, largest = max(size, pool.in_flight), largest_batch(device.builder)
    return Batches(
        first=1 if is_long else FIRST_BATCH,
        size=size,
        largest=max(size, largest),
        in_flight=pool.in_flight,
    )


def _guidance(
    root: Candidate,
    device: AbstractDevice,
    registers: Registers,
    predictor: Predictor | None,
    writer: RunWriter,
) -> Guidance[Candidate]:
    predicted = None if predictor is None else predictor.ns
    surrogate = KernelRidge(root.space, predicted)
    for r in writer.evaluations:
        ns = None if r.time_ns is None else r.time_ns / r.slowness
        surrogate.recall(root, r.decisions, ns)
    return Guidance[Candidate](
        next_choice=NextChoice(root.space),
        neighbour=registers.neighbour,
        expected=registers.expected_ns if device.reporter.reports else predicted,
        surrogate=surrogate,
        widened=registers.widened,
        names=_names_of(root.space),
    )


def _warm(space: Space, writer: RunWriter, evaluator: SearchEvaluator, n: int) -> list[Candidate]:
    """Returns the best n candidates of earlier sessions, and adds them to the evaluator's contenders."""
    timed = {r.source_key: r for r in writer.evaluations if r.time_ns is not None}
    best = sorted(timed.values(), key=lambda r: r.time_ns or 0.0)
    warm = []
    for r in best[:n]:
        candidate = restore_complete(space, r.decisions)
        entry = outcome_of(r), candidate
        evaluator.adopt(entry, is_partly_verified=r.is_partly_verified)
        warm.append(candidate)
    return warm


def _recall_default(
    default: list[Candidate],
    known: dict[bytes, ev.Outcome],
    evaluator: SearchEvaluator,
    listener: Listener,
) -> None:
    """Reports the time of the default from an earlier session, since this session may prune the default unmeasured."""
    for candidate in default:
        key = evaluator.implementation_key(candidate)
        if key is not None and key in known:
            listener.meet_default(known[key], candidate)


def _names_of(space: Space) -> Callable[[int, int], tuple[str, str]]:
    def names(choice: int, value: int) -> tuple[str, str]:
        found = space.choices[choice]
        return found.name, found.values[value]

    return names
