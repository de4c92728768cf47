"""A tuned sequence for many shapes: `load_tuned` returns a function that selects an implementation by shape."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..codegen.by_component import EvaluatedSources
from ..kernels.library import load as load_sequence
from ..kernels.library import names
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import UNDECIDED, Failure, Protocol
from ..runtime.cpu.compiler import compiler_named
from ..runtime.device import DeviceOptions, open_device
from ..runtime.measure.conditions import take_conditions
from ..runtime.records.family import FamilyFile, distance, load_family
from ..runtime.records.record import SCHEMA, BestFile
from ..runtime.records.replay import (
    RebuiltRecord,
    StaleError,
    Tuned,
    dialect_of,
    open_tuned,
    rebuild,
)
from ..runtime.worker.forked_inputs import ForkedInputs
from ..search.starts.complete import first_candidates
from ..search.starts.transfer import complete_near, n_alike
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from .evaluation import open_decisions
from .machine import open_worker
from .workload import Workload, make_workload

Level = Literal["exact", "nearest", "default"]
Shapes = tuple[tuple[int, ...], ...]

_NEAREST = 3  # entries whose decisions are tried in the space of another shape
_SETS = 2  # that an implementation that was not tuned is verified on
_ONCE = Protocol(min_samples=1, max_samples=1)
_LOG = logging.getLogger("kernelscape")


@dataclass(frozen=True)
class Selection:
    """The implementation selected for some arguments; `level` is the kind of selection.

    exact: tuned for these shapes on a machine like this one. nearest: built from the decisions tuned for the shapes of `sizes`,
    as far as they apply, at `distance` (the largest |log2| ratio of two extents); verified here. default: the default of the
    sequence, without a search; verified here.
    """

    level: Level
    sizes: dict[str, int]  # of the entry; {} for the default
    distance: float
    words: str

    def __str__(self) -> str:
        return f"{self.level}: {self.words}"


class TunedFamily:
    """A tuned sequence for many shapes, called like the sequence itself; computes in place on NumPy arrays.

    The first call with new shapes builds an implementation, and verifies it if it was not tuned for them. `choice` returns its
    selection; the logger "kernelscape" reports it once.
    """

    def __init__(self, file: FamilyFile, sequence: Callable[..., Any] | None, place: str) -> None:
        self._file = file
        self._sequence = sequence
        self._place = place
        self._entries = [(e, _array_shapes(e)) for e in file.entries]
        self._known: dict[Any, tuple[Tuned, Selection]] = {}

    def __repr__(self) -> str:
        shapes = "; ".join(_sizes_text(e) for e in self._file.entries)
        return f"<tuned {self._file.sequence} for {shapes or 'no shape'}>"

    def __call__(self, *args: Any) -> None:
        """Runs the sequence on these arguments.

        Raises LanguageError and TypeError for arguments that the sequence does not take, StaleError and DeviceError where no
        implementation can be built.
        """
        self._for(args)[0](*args)

    def choice(self, *args: Any) -> Selection:
        """Returns the implementation that a call with these arguments uses; it is built now if necessary."""
        return self._for(args)[1]

    def _for(self, args: Sequence[Any]) -> tuple[Tuned, Selection]:
        key = tuple((x.shape, x.dtype.char) if isinstance(x, np.ndarray) else type(x) for x in args)
        found = self._known.get(key)
        if found is None:
            found = self._find(args)
            _LOG.info("%s: %s", self._file.sequence, found[1])
            self._known[key] = found
        return found

    def _find(self, args: Sequence[Any]) -> tuple[Tuned, Selection]:
        shapes = tuple(x.shape for x in args if isinstance(x, np.ndarray))
        ranked = sorted((distance(shapes, of), k) for k, (_, of) in enumerate(self._entries))
        why = "the file has no entry"
        if ranked and ranked[0][0] == 0:
            entry = self._entries[ranked[0][1]][0]
            device = self._device(entry.conditions.compiler)
            try:
                rebuilt = rebuild(entry, device.machine.facts(), dialect_of(device))
                words = f"tuned for {_sizes_text(entry)}"
                return open_tuned(entry, rebuilt, device), Selection(
                    "exact", entry.sizes, 0.0, words
                )
            except StaleError as e:  # of another machine, or another version
                why = str(e)
        workload = self._workload(args, why)
        near = [(self._entries[k][0], far) for far, k in ranked if far < math.inf]
        return self._restored(workload, near[:_NEAREST])

    def _workload(self, args: Sequence[Any], why: str) -> Workload:
        if self._sequence is None:
            raise StaleError(
                f"{self._place} has nothing for these shapes ({why}), and the nearest entry can only be"
                " adapted with the sequence itself: load_tuned(path, sequence)"
            )
        name = str(getattr(self._sequence, "__name__", "sequence"))
        return make_workload(self._sequence, args, sequence=self._file.sequence, name=name)

    def _restored(
        self, workload: Workload, near: Sequence[tuple[BestFile, float]]
    ) -> tuple[Tuned, Selection]:
        """Returns the implementation of the nearest entry whose decisions give right results, else the default."""
        device = self._device("" if not near else near[0][0].conditions.compiler)
        space = build_space(workload.problem, device.machine.facts())
        rng = np.random.default_rng(1)
        with open_worker(device) as worker:
            begun = ForkedInputs(
                workload.recording, workload.problem, workload.arguments, rng, _SETS
            )
            worker.prepare(begun.result(undecided=self._undecided))
            last: Failure | None = None
            for candidate, choice in _proposals(space, near):
                source = EvaluatedSources(dialect_of(device)).whole(candidate)
                built = device.builder.build(source)
                found = built if isinstance(built, Failure) else worker.evaluate(built, _ONCE)
                if isinstance(found, Failure):
                    last = found
                    continue
                rebuilt = RebuiltRecord(
                    workload.recording, workload.problem, space, candidate, source, ()
                )
                record = self._record(workload, rebuilt, found.time_ns)
                return open_tuned(record, rebuilt, device), choice
        why = "there is none" if last is None else last.advice
        raise StaleError(
            f"no implementation of {workload.sequence} for these shapes is right: {why}"
        )

    def _record(self, workload: Workload, rebuilt: RebuiltRecord, ns: float) -> BestFile:
        """Returns the implementation `rebuilt`, which took `ns`, as a stored record."""
        return BestFile(
            schema=SCHEMA,
            sequence=workload.sequence,
            sizes=workload.sizes,
            dtype=workload.dtype,
            problem_key=workload.problem.key,
            space_key=rebuilt.space.key,
            target=self._file.target,
            decisions=open_decisions(rebuilt.candidate),
            source_key=rebuilt.source.key,
            time_ns=ns,
            spread=0.0,
            bound_ns=0.0,
            gap=1.0,
            status="not searched",
            baseline_ns=None,
            numpy_ns=None,
            evaluations=1,
            seed=1,
            verified=f"{_SETS} input sets against a float64 reference",
            conditions=take_conditions(),
            stored=workload.stored,
            undecided=self._undecided,
        )

    @property
    def _undecided(self) -> float:
        """The largest `undecided` share of an array's elements that any entry of the file allows."""
        return max((e.undecided for e, _ in self._entries), default=UNDECIDED)

    def _device(self, compiler: str) -> AbstractDevice:
        options = DeviceOptions(compiler=compiler_named(compiler) if compiler else None)
        return open_device(self._file.target, options)


def load_tuned(path: str | Path, sequence: Callable[..., Any] | None = None) -> TunedFamily:
    """Returns the file of `explore tune` as a function for arguments of any shapes.

    For shapes that were not tuned, the decisions of the nearest tuned shapes are used as far as they apply, and the result is
    verified once. This needs `sequence`, the function itself, unless it is in the library. Raises RecordError.
    """
    file = load_family(Path(path))
    if sequence is None and file.sequence in names():
        sequence = load_sequence(file.sequence).sequence
    return TunedFamily(file, sequence, str(path))


def _proposals(
    space: Space, near: Sequence[tuple[BestFile, float]]
) -> list[tuple[Candidate, Selection]]:
    found = []
    for entry, far in near:
        candidate = complete_near(space, entry.decisions)
        if candidate is not None:
            n, total = n_alike(candidate, entry.decisions), len(entry.decisions)
            words = f"{n} of {total} decisions tuned for {_sizes_text(entry)}, verified here"
            found.append((candidate, Selection("nearest", entry.sizes, far, words)))
    words = "nothing that was tuned fits; verified here"
    for _, candidate in first_candidates(space, limit=1):
        found.append((candidate, Selection("default", {}, math.inf, words)))
    return found


def _array_shapes(entry: BestFile) -> Shapes:
    """Shapes of an entry's arrays, in the order of the sequence's parameters."""
    shapes = {a.name: tuple(a.shape) for a in entry.stored.recorded().arrays}
    return tuple(shapes[p.name] for p in entry.stored.parameters if p.kind == "array")


def _sizes_text(entry: BestFile) -> str:
    return ", ".join(f"{name}={extent}" for name, extent in entry.sizes.items())
