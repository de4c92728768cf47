"""First candidates from stored components: a search begins with what earlier ones found for the same calls.

A stored component suggests its decisions to every sequence that makes its calls, whatever their arrays are called there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..kernels.frontend.recorder import Recording
from ..kernels.ir.errors import LanguageError
from ..kernels.tasks.pipeline import normalise
from ..kernels.tasks.recorded_calls import labels_of
from ..runtime.engine.component_keys import key_of, key_of_recording, keyed_calls, n_calls_of
from ..runtime.files import is_there
from ..runtime.records.loading import check_best
from ..runtime.records.record import BestFile, Decisions, RecordError
from ..runtime.records.replay import StaleError, rebuild_problem
from ..runtime.records.store import TunedStore, store_address
from ..search.starts.complete import complete_sketch
from ..search.starts.sketches import Sketch
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from ..space.targets.kind import CPU
from .component_results import as_split, part_of, relabelled
from .run_writer import RunWriter
from .workload import Workload

_LONGEST_S = 1.0  # to look for components of one sequence; reading one result may take longer


def component_starts(
    root: Candidate, default: Sketch, workload: Workload, writer: RunWriter
) -> list[Candidate]:
    """Returns the candidate with the decisions of all stored components that fit; [] if none does.

    `default`: the sketch that the other choices follow. The journal notes the number of these components, of those of which no
    stored result fits, and whether there was time to look for all.
    """
    if root.space.target.kind != CPU or root.is_apart:
        return []
    try:
        address = store_address()
        if isinstance(address, Path) and not is_there(address):
            return []
        with TunedStore(address) as store:
            rows = store.components(writer.device)
            if not rows:
                return []
            recording = as_split(workload.recording, root.space.problem)
            starts = _Starts(root, recording, store, rows)
            starts.take()
    except (RecordError, OSError) as e:
        writer.note("store", str(e))
        return []
    made = complete_sketch(starts.candidate, default) if starts.n_taken else None
    n_begun = 0 if made is None else starts.n_taken
    n_left = starts.n_taken + starts.n_left - n_begun
    if n_begun or n_left or starts.is_late:
        left = f", and {n_left} of which none fits" if n_left else ""
        late = f"; not all were looked for in {_LONGEST_S:g} s" if starts.is_late else ""
        writer.note("store", f"components with stored decisions: {n_begun}{left}{late}")
    return [] if made is None else [made]


@dataclass
class _Starts:
    """A candidate with the decisions of stored components so far; numbers of components with a result that fits, and without.

    `rows`: numbers of the stored results of each component, the fastest first.
    """

    candidate: Candidate
    recording: Recording
    store: TunedStore
    rows: Mapping[str, Sequence[int]]
    n_taken: int = 0
    n_left: int = 0
    is_late: bool = False
    _until_s: float = field(default_factory=lambda: time.monotonic() + _LONGEST_S)
    _read: dict[int, tuple[Space, Decisions] | None] = field(default_factory=dict)

    def take(self) -> None:
        """Decides what is stored about runs of calls: those of most calls first, then the earliest."""
        labels, calls = labels_of(self.recording), self.recording.calls
        is_free, content = [True] * len(calls), keyed_calls(self.recording)
        for n in sorted({n_calls_of(key) for key in self.rows} - {0}, reverse=True):
            for k in range(len(calls) - n + 1):
                if not self._has_time():
                    return
                if not all(is_free[k : k + n]):
                    continue
                key = key_of(content[k : k + n])
                part = part_of(self.recording, range(k, k + n), key) if key in self.rows else None
                if part is None:
                    continue
                if self._decides(self.rows[key], key, part, labels[k : k + n]):
                    is_free[k : k + n] = [False] * n

    def _has_time(self) -> bool:
        self.is_late = self.is_late or time.monotonic() > self._until_s
        return not self.is_late

    def _decides(
        self, rows: Sequence[int], key: str, part: Recording, labels: Sequence[str]
    ) -> bool:
        try:
            own = build_space(normalise(part), self.candidate.space.target)
        except LanguageError:  # its calls alone compute nothing that lasts
            return False
        names = dict(zip(labels_of(part), labels, strict=True))
        for decisions in self._decisions(rows, key, own):
            made = _decided(self.candidate, relabelled(decisions, names))
            if made is not None:
                self.candidate, self.n_taken = made, self.n_taken + 1
                return True
        self.n_left += 1
        return False

    def _decisions(self, rows: Sequence[int], key: str, own: Space) -> Iterator[Decisions]:
        """Yields the stored decisions with the names of `own`, the space of the same calls alone."""
        for number in rows:
            if number not in self._read:
                if not self._has_time():
                    return
                self._read[number] = self._opened(number, key)
            stored = self._read[number]
            if stored is not None and _are_same(stored[0], own):
                positions = stored[0].model.positions
                yield tuple((own.choices[positions[name]].name, v) for name, v in stored[1])

    def _opened(self, number: int, key: str) -> tuple[Space, Decisions] | None:
        """Returns a stored result: the space of its calls, and its decisions. None if this version cannot use it."""
        try:
            best = self.store.read_component(number)
            check_best(f"row {number} of {self.store.name}", best)
            space = self._space_of(best, key)
        except (RecordError, StaleError, LanguageError):  # torn, or of another version
            return None
        is_known = all(name in space.model.positions for name, _ in best.decisions)
        return (space, best.decisions) if is_known else None

    def _space_of(self, best: BestFile, key: str) -> Space:
        recording, problem = rebuild_problem(best.stored, best.problem_key)
        if key_of_recording(recording) != key:
            raise StaleError("its key is that of other calls")
        return build_space(problem, self.candidate.space.target)


def _are_same(stored: Space, own: Space) -> bool:
    """True if the choices of two spaces are the same up to names; equal calls give them in one order."""
    return [(c.kind, c.values) for c in stored.choices] == [(c.kind, c.values) for c in own.choices]


def _decided(candidate: Candidate, decisions: Decisions) -> Candidate | None:
    """Returns the candidate with further decisions; None if its space excludes one of them, or has none of their choices.

    Choices about two tasks that are apart in the sequence are left out: alone they are near.
    """
    space, domains = candidate.space, candidate.domains.copy()
    found = [(space.model.positions.get(name), value) for name, value in decisions]
    own = [(var, value) for var, value in found if var is not None]
    for var, value in own:
        if value not in space.choices[var].values:
            return None
        domains[var] &= space.choices[var].mask(value)
        if not domains[var]:
            return None
    made = space.candidate(domains) if own else None
    return made if isinstance(made, Candidate) else None
