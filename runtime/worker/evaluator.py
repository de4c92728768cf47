"""Evaluation of candidates in a worker's child process: loading, verification, timing."""

from __future__ import annotations

import importlib
import math
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.fields.canonical_state import SOUND, inspected
from ...kernels.sparse.naming import in_terms_of_trees, shared_parts
from ...kernels.sparse.recorded import UsedTree
from ..api.artifact import Artifact
from ..api.backend import (
    AbstractArray,
    AbstractMachine,
    AbstractModule,
    AbstractRunner,
    CallArguments,
    RunError,
)
from ..api.errors import DeviceError
from ..api.outcome import Disagreement, Failure, Measurement, Protocol
from ..measure.timing import Sampler, measure, spread, waited_ns
from . import messages
from .memory_limit import limit_memory, unlimited_memory
from .placed_sets import PlacedSet, ReadOnlyPrefix, place_sets
from .verify import Mismatch, find_mismatch

Array = NDArray[Any]
# Runs that give the times of components, and what they take of the time for samples of the whole.
_LEAST_RUNS, _MOST_RUNS, _SHARE_OF_COMPONENTS = 3, 15, 0.2


class Evaluator:
    """Executes requests of the parent, one at a time."""

    def __init__(self, machine: AbstractMachine, runner: AbstractRunner, n_threads: int) -> None:
        self._machine, self._runner = machine, runner
        self._n_threads = n_threads
        self._roles: dict[str, str] = {}
        self._trees: tuple[UsedTree, ...] = ()
        self._sets: list[PlacedSet] = []
        self._timed: messages.SetFiles | None = None  # what set 0 was made of
        self._workspace: AbstractArray | None = None

    def answer(self, request: messages.Request) -> messages.Reply:
        """Executes a request and returns the reply. Its own bugs are reported in the reply, not raised."""
        try:
            match request:
                case messages.Prepare():
                    return self._prepare(request)
                case messages.Evaluate():
                    return _outcomes([self._evaluate(request)])
                case messages.Interleave(beside=messages.MemoryProbe() as beside):
                    return self._interleave_beside(request, beside)
                case messages.Interleave():
                    return _outcomes(self._interleave(request.artifacts, request.protocol))
                case messages.TimeFunction():
                    return _outcomes([self._time_function(request)])
                case messages.Probe() | messages.Calibrate():
                    return messages.Rates(self._probe(request))
        except RunError as e:
            advice = in_terms_of_trees(self._trees, e.failure.advice)
            return _outcomes([replace(e.failure, advice=advice)], is_last=e.is_lost)
        except DeviceError as e:
            return messages.Refused(str(e))
        except MemoryError as e:
            return messages.Refused(f"not enough memory: {e}")
        except Exception:
            return messages.Broken(traceback.format_exc())

    def _probe(self, request: messages.Probe | messages.Calibrate) -> dict[str, list[float]]:
        with unlimited_memory():
            if isinstance(request, messages.Calibrate):
                libraries = list(map(Path, request.libraries))
                return self._machine.take_samples(libraries, self._n_threads)
            return self._machine.look(Path(request.library), self._n_threads, request.whole)

    def _prepare(self, request: messages.Prepare) -> messages.Ready:
        if self._runner.limits_memory:
            limit_memory(None)
        self._sets, self._workspace = [], None
        self._roles, self._trees = request.roles, request.trees
        self._timed = request.sets[0] if request.sets else None
        parts = shared_parts(request.trees)
        kept = {name: n for name, (n, _) in parts.items()}
        self._sets = place_sets(self._runner, request.roles, request.sets, kept)
        limit_bytes = limit_memory(request.allowance_bytes) if self._runner.limits_memory else 0
        return messages.Ready(
            _spans(self._sets), limit_bytes, _shared_spans(self._sets, parts), len(self._verified)
        )

    def _evaluate(self, request: messages.Evaluate) -> Measurement | Failure:
        protocol = request.protocol
        loaded = self._load(request.artifact)
        if isinstance(loaded, Failure):
            return loaded
        module, workspace = loaded
        before, after = self._in_order(request) if request.verify else ([], [])
        try:
            n_right = None if after else request.n_right or 0
            verdict = self._verify(module, workspace, before, protocol, n_right)
            if verdict is not None:
                return verdict
            call = (module, self._call_arguments(module, self._sets[0], workspace))
            self._warm(*call)
            found = self._time(call, request.control, protocol)
            if protocol.times_components:
                found = self._with_components(found, call, protocol)
            if after and found.time_ns >= (protocol.claims_below_ns or 0.0):
                return replace(found, is_partly_verified=True)
            return self._verify(module, workspace, after, None, 0) or found
        finally:
            module.close()

    def _time(
        self,
        call: tuple[AbstractModule, CallArguments],
        control: Artifact | None,
        protocol: Protocol,
    ) -> Measurement:
        """Times a candidate alone, or interleaved with the control if one is given and can be loaded."""
        loaded = None if control is None else self._load(control)
        if loaded is None or isinstance(loaded, Failure):
            return self._runner.time([call], replace(protocol, control_ns=None))[0]
        module, workspace = loaded
        try:
            beside = (module, self._call_arguments(module, self._sets[0], workspace))
            self._warm(*beside)
            return self._runner.time([beside, call], protocol)[1]
        finally:
            module.close()

    @staticmethod
    def _warm(module: AbstractModule, args: CallArguments) -> None:
        """Makes one call before the first sample, unless arrays are restored before samples, which ends with a call."""
        if not args.restore:
            module.run(args.values)

    def _with_components(
        self, found: Measurement, call: tuple[AbstractModule, CallArguments], protocol: Protocol
    ) -> Measurement:
        """Returns the measurement with the time of each component, the median over a few runs.

        Arrays that the runs update have the same initial contents as in samples of the whole program.
        """
        module, args = call
        if not module.component_ns:
            return found
        n_runs = _LEAST_RUNS
        if not found.stopped_early:
            n_runs = int(_SHARE_OF_COMPONENTS * protocol.budget_ns / found.time_ns)
            n_runs = min(max(n_runs, _LEAST_RUNS), _MOST_RUNS)
        taken: list[tuple[int, tuple[float, ...]]] = []  # with what threads waited for a core
        for k in range(n_runs):
            if k % found.n_calls == 0:
                for array, contents in args.restore:
                    array.upload(contents)
                if args.restore:
                    module.run(args.values)
            before_ns = waited_ns()
            module.run(args.values)
            taken.append((waited_ns() - before_ns, module.component_ns))
        taken.sort(key=lambda x: x[0])
        columns = list(zip(*(x for _, x in taken[: max(_LEAST_RUNS, n_runs // 2)]), strict=True))
        times = [median(x) for x in columns]
        # Relative to a control the whole is as on an idle machine, and its parts are no longer.
        scale = 1.0 if found.ratio is None else min(1.0, found.time_ns / sum(times))
        return replace(
            found,
            component_ns=tuple(scale * x for x in times),
            component_spread=tuple(map(spread, columns)),
        )

    def _in_order(self, request: messages.Evaluate) -> tuple[list[PlacedSet], list[PlacedSet]]:
        """Returns the input sets for verification before timing, and those for verification after it.

        The second list is used only if the time is below `claims_below_ns`. It is empty where each time would be.
        """
        verified, below_ns = self._verified, request.protocol.claims_below_ns
        if request.n_right is not None:
            return verified[: len(verified) - request.n_right], []
        if below_ns is None or below_ns == math.inf or not self._sets[0].expected:
            return verified, []
        return verified[:1], verified[1:]

    def _interleave_beside(
        self, request: messages.Interleave, beside: messages.MemoryProbe
    ) -> messages.Outcomes:
        """Times the artifacts as `_interleave`, and samples memory rates before each round."""
        sizes = beside.read_bytes, beside.written_bytes
        with unlimited_memory():
            probe = self._machine.memory_probe(Path(beside.library), self._n_threads, *sizes)
        try:
            found = self._interleave(request.artifacts, request.protocol, probe.step)
        finally:
            probe.close()
        return _outcomes(found, rates=probe.samples)

    def _interleave(
        self,
        artifacts: list[Artifact],
        protocol: Protocol,
        beside: Callable[[], None] | None = None,
    ) -> list[Measurement | Failure]:
        """Times the artifacts alternately, each on arrays placed as NumPy's and on aligned ones.

        The slower of both times counts.
        """
        outcomes: dict[int, Measurement | Failure] = {}
        calls: dict[tuple[int, int], tuple[AbstractModule, CallArguments]] = {}
        with ExitStack() as loaded_modules:
            placed = [self._sets[0], *self._aligned()]
            for k, artifact in enumerate(artifacts):
                loaded = self._load(artifact)
                if isinstance(loaded, Failure):
                    outcomes[k] = loaded
                    continue
                module, workspace = loaded
                loaded_modules.callback(module.close)
                verdict = self._verify(module, workspace, self._verified[:1], None)
                if verdict is not None:
                    outcomes[k] = verdict
                else:
                    for at, s in enumerate(placed):
                        module.run(self._values(module, s, workspace))
                        calls[k, at] = module, self._call_arguments(module, s, workspace)
            if calls:
                measured = self._runner.time(list(calls.values()), protocol, beside)
                for (k, _), one in zip(calls, measured, strict=True):
                    other = outcomes.get(k)
                    if not isinstance(other, Measurement) or one.fair_ns > other.fair_ns:
                        outcomes[k] = one
        return [outcomes[k] for k in range(len(artifacts))]

    def _aligned(self) -> list[PlacedSet]:
        """Returns set 0 placed on line-aligned arrays; [] if placement does not affect times or memory is too small."""
        if self._timed is None or not self._runner.placement_counts:
            return []
        with unlimited_memory(), suppress(MemoryError):
            return [
                PlacedSet(self._runner, self._roles, self._timed, {}, kept=ReadOnlyPrefix({}, 0))
            ]
        return []

    @property
    def _verified(self) -> list[PlacedSet]:
        """Input sets with expected results; the timed set has none if arguments are huge."""
        return [s for s in self._sets if s.expected] or self._sets

    def _load(self, artifact: Artifact) -> tuple[AbstractModule, AbstractArray | None] | Failure:
        module = self._runner.load(artifact)
        if isinstance(module, Failure):
            return module
        n_bytes = artifact.workspace_bytes
        if n_bytes == 0:
            return module, None
        if self._workspace is None or self._workspace.shape != (n_bytes,):
            self._workspace = None
            try:
                self._workspace = self._runner.allocate((n_bytes,), np.dtype(np.uint8))
            except MemoryError:
                module.close()
                return Failure("memory", f"its workspace of {n_bytes} bytes exceeds the limit")
        return module, self._workspace

    def _verify(
        self,
        module: AbstractModule,
        workspace: AbstractArray | None,
        sets: list[PlacedSet],
        protocol: Protocol | None,
        n_right: int | None = None,
    ) -> Failure | Measurement | None:
        """Verifies a candidate on the sets, the last one first.

        `n_right`: number of later sets on which it was right before; None if a failure has no such number.

        Returns its failure, the measurement of a hopelessly slow one, or None. A candidate that is right on one set but
        hopelessly slow is not run again, since such candidates would take most of a search's time. Its one run is its
        measurement.
        """
        for k in reversed(range(len(sets))):  # set 0 last: it is timed next, from warm caches
            s = sets[k]
            for name, array in s.arrays.items():
                if self._roles[name] != "input":
                    array.poison()
                if self._roles[name] == "inout":
                    array.upload(s.contents[name])
                if self._roles[name] != "input" and name in s.kept:
                    array.keep(s.kept[name])
            if workspace is not None:
                workspace.poison()
            waited_before_ns, started_ns = waited_ns(), time.perf_counter_ns()
            module.run(self._values(module, s, workspace))
            elapsed_ns = float(time.perf_counter_ns() - started_ns)
            run_ns = elapsed_ns - (waited_ns() - waited_before_ns)
            wrong = self._find_wrong(s, workspace)
            if wrong is not None:
                told = None if n_right is None else n_right + len(sets) - 1 - k
                return replace(wrong, advice=f"input set {s.number}: {wrong.advice}", n_right=told)
            if protocol is not None and protocol.is_hopeless(run_ns):
                is_partly = (n_right or 0) + len(sets) - k < len(self._verified)
                component_ns = module.component_ns if protocol.times_components else ()
                return Measurement(
                    elapsed_ns,
                    0.0,
                    elapsed_ns,
                    1,
                    1,
                    0,
                    True,
                    is_partly_verified=is_partly,
                    component_ns=component_ns,
                    component_spread=(0.0,) * len(component_ns),
                )
        return None

    def _find_wrong(self, s: PlacedSet, workspace: AbstractArray | None) -> Failure | None:
        arrays = {**s.arrays} if workspace is None else {**s.arrays, "workspace": workspace}
        for name, array in arrays.items():
            place = array.trespass()
            if place is not None and self._roles.get(name) == "input":
                # Inputs are made once: what comes next would be blamed for it.
                said = f"input set {s.number}: memory {place} was written: {name}"
                raise RunError(Failure("wrong", said), is_lost=True)
            if place is not None:
                return Failure("wrong", f"memory {place} was written: {name}")
        found = {name: array.download() for name, array in s.arrays.items() if name in s.expected}
        if self._trees:
            every = {name: array.download() for name, array in s.arrays.items()}
            # Of a program that began with such a state, only the numbers are compared.
            is_sound = not any(e.want.any() for n, e in s.expected.items() if n.endswith(SOUND))
            found, wrong = inspected(self._trees, every)
            if wrong and is_sound:
                return Failure("wrong", wrong)
        # Which cells are active first: else there are as many values as should be.
        for name, expected in sorted(s.expected.items(), key=lambda x: x[0] in s.arrays):
            got, want = found[name], expected.want
            if got.shape != want.shape:
                n, n_wanted = got.shape[-1], want.shape[-1]
                return Failure("wrong", f"{name}: {n} cells are active, {n_wanted} should be")
            mismatch = find_mismatch(got, expected)
            if mismatch is not None:
                return Failure("wrong", f"{name}{mismatch}", at=_placed(s.number, name, mismatch))
        return None

    def _values(
        self, module: AbstractModule, s: PlacedSet, workspace: AbstractArray | None
    ) -> tuple[AbstractArray | int | float | bool, ...]:
        values: list[AbstractArray | int | float | bool] = []
        for a in module.artifact.arguments:
            if a.kind == "array":
                values.append(s.arrays[a.name])
            elif a.kind == "scalar":
                values.append(s.scalars[a.name])
            else:
                assert workspace is not None
                values.append(workspace)
        return tuple(values)

    def _call_arguments(
        self, module: AbstractModule, s: PlacedSet, workspace: AbstractArray | None
    ) -> CallArguments:
        restore = tuple(
            (array, s.contents[name])
            for name, array in s.arrays.items()
            if self._roles[name] == "inout"
        )
        counters = [used.arrays.get("counters", "") for used in self._trees]
        claims = tuple(s.arrays[n] for n in counters if self._roles.get(n, "input") != "input")
        return CallArguments(self._values(module, s, workspace), restore, claims)

    def _time_function(self, request: messages.TimeFunction) -> Measurement:
        function: Any = importlib.import_module(request.module)
        for part in request.attribute.split("."):
            function = getattr(function, part)
        s = self._sets[0]
        values = [a.download() for a in s.arrays.values()]
        values += list(s.scalars.values())  # type: ignore[arg-type]

        def run(n: int) -> float:
            started_ns = time.perf_counter_ns()
            for _ in range(n):
                function(*values)
            return float(time.perf_counter_ns() - started_ns)

        def restore() -> None:
            for name in in_place:
                s.arrays[name].upload(s.contents[name])
            run(1)

        # Where nothing is updated in place there is nothing to restore, and half the calls to make.
        in_place = [name for name, role in self._roles.items() if role == "inout"]
        run(1)
        sampler = Sampler(run, restore if in_place else None, waited_ns=waited_ns)
        return measure(sampler, request.protocol)


def _placed(number: int, array: str, m: Mismatch) -> Disagreement:
    got, want = f"{m.got:.6g}", f"{m.want:.6g}"
    return Disagreement(number, array, m.index, got, want, m.n_wrong, m.n_elements)


def _outcomes(
    outcomes: list[Measurement | Failure],
    *,
    is_last: bool = False,
    rates: dict[str, list[float]] | None = None,
) -> messages.Outcomes:
    return messages.Outcomes(
        [o if isinstance(o, Measurement) else None for o in outcomes],
        [o if isinstance(o, Failure) else None for o in outcomes],
        is_last,
        rates or {},
    )


def _spans(sets: list[PlacedSet]) -> list[tuple[str, int, int]]:
    named = ((name, array.span) for s in sets for name, array in s.arrays.items())
    return [(name, *span) for name, span in named if span is not None]


def _shared_spans(
    sets: list[PlacedSet], parts: Mapping[str, tuple[int, str]]
) -> list[tuple[str, int, int]]:
    """Returns address ranges that inactive cells share, each with the failure message for a write there."""
    found = []
    for s in sets:
        for name, array in s.arrays.items():
            if name not in parts or array.span is None:
                continue
            n, text = parts[name]
            item = array.dtype.itemsize
            for begin in range(*array.span, array.shape[-1] * item):
                found.append((text, begin, begin + n * item))
    return found
