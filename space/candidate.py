"""Candidates: vectors of domains at a fixpoint of propagation.

Each stands for all implementations within its domains.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..kernels.ir.task import Problem
from ..kernels.tasks.profile import Profile
from .backbone import Backbone
from .draft import Variables
from .engine.declarations import Choice
from .engine.model import Model
from .engine.propagate import (
    CULPRIT,
    FIXPOINT,
    PropagationScratch,
    constraint_blocks,
    decide,
    expand,
    explain,
    guided_completion,
    make_scratch,
    propagate_all,
    random_descent,
    shave,
)
from .targets.target import Target

__all__ = ["Candidate", "Choice", "DeadEnd", "Elsewhere", "Space"]


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """Result of decisions that leave no implementation.

    `choice`: name of the choice that lost its last value; `why`: the reason.
    """

    choice: str
    why: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Arrays read and written by tasks of the larger sequence that are outside of this space's problem."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False, slots=True)
class PartOf:
    """The sequence's space of which another space is one component.

    `held`: a fixpoint of the sequence's space in which all choices but those of the component are
    decided.
    """

    sequence: Space
    held: npt.NDArray[np.uint32]
    elsewhere: Elsewhere


@dataclass(frozen=True, eq=False)
class Space:
    """Search space: every implementation of a problem on a target.

    Holds the constraint model and the objects of its choices.
    A space propagates one candidate at a time: threads must not share its scratch memory.
    """

    model: Model
    problem: Problem
    target: Target
    backbone: Backbone
    variables: Variables
    fixed: tuple[tuple[str, str], ...] = ()  # decisions made before any search (`decisions.fix`)
    whole: Space | None = None  # without them; None where there are none
    profile: Profile | None = (
        None  # what bodies did on the arguments that are measured: bounds are for these
    )
    part_of: PartOf | None = None  # of a space of one component (component_space.py)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All choices by position in the domain vector, [n_choices]; each order has two, (i, j) and (j, i)."""
        return self.model.choices

    @property
    def n_choices(self) -> int:
        return len(self.model.choices)

    @property
    def searchable(self) -> npt.NDArray[np.int32]:
        """Positions of the choices that a searcher decides; their values determine all other choices."""
        return self.model.searchable

    @property
    def key(self) -> str:
        """Fingerprint of choices, constraints, initial domains and profile; fixed decisions do not change it."""
        key = self.model.key if self.whole is None else self.whole.model.key
        return key if self.profile is None else self.profile.keyed(key)

    @property
    def is_for_input(self) -> bool:
        """True if the bound counts the work of bodies on the measured arguments, since the space has an exact profile."""
        return self.profile is not None and self.profile.is_sure

    def profiled(self, profile: Profile | None) -> Space:
        """Returns the space with bounds for the arguments that `profile` describes.

        None leaves the space unchanged.
        """
        return self if profile is None else replace(self, profile=profile)

    @cached_property
    def scratch(self) -> PropagationScratch:
        return make_scratch(self.model) if self.part_of is None else self.part_of.sequence.scratch

    @property
    def elsewhere(self) -> Elsewhere:
        """Arrays that tasks of the larger sequence use, outside of this space's problem (if it is a component)."""
        return Elsewhere() if self.part_of is None else self.part_of.elsewhere

    @cached_property
    def _root(self) -> Candidate | DeadEnd:
        return self._decided(self._open_root)

    def _decided(self, candidate: Candidate | DeadEnd) -> Candidate | DeadEnd:
        """Decides the choices that a search does not decide.

        A dominated choice, whose later values are never worse, gets its last value that leads to no dead end. A choice whose other
        values are `apart` gets its first one.
        """
        for var in self.variables.apart:
            if isinstance(candidate, Candidate) and candidate.is_open(var):
                candidate = candidate.decide(var, 1 << candidate.values(var)[0])
        for var in self.variables.dominated:
            if isinstance(candidate, DeadEnd):
                break
            values = reversed(candidate.values(var) if candidate.is_open(var) else ())
            made = (candidate.decide(var, 1 << value) for value in values)
            candidate = next((c for c in made if isinstance(c, Candidate)), candidate)
        return candidate

    @cached_property
    def _open_root(self) -> Candidate | DeadEnd:
        """The fixpoint of the initial domains after shaving, which removes values that fail at once when decided.

        Shaving takes tens of milliseconds. It pays only here, where every descent starts.
        """
        if self.part_of is not None:
            return Candidate(self, self.part_of.held)
        root = self._fixpoint(self.model.initial.copy())
        if isinstance(root, DeadEnd):
            return root
        arrays, domains = self.model.arrays, root.domains
        blocks = np.empty(self.n_choices, np.int32)
        constraint_blocks(arrays, blocks)
        still_open = root.open_choices()
        seen = np.empty(self.n_choices, np.uint32)
        for block in np.unique(blocks[still_open]):
            chosen = still_open[blocks[still_open] == block]
            status = int(shave(arrays, self.scratch, domains, chosen, seen))
            if status != FIXPOINT:
                return self._result(status, domains)
        return root

    def root(self) -> Candidate | DeadEnd:
        """Returns the root of a search: the candidate that stands for every implementation that the search considers.

        Dominated choices have only their best value left. Implementations that are `apart` are not in it.
        """
        return self._root

    def apart(self, default: Candidate) -> list[Candidate]:
        """Returns the implementations outside of a search's tree: one for each further value of the choices in `Variables.apart`.

        Their other choices, which say nothing then, have the values of `default`.
        """
        root = self._open_root
        found = []
        for var in self.variables.apart if isinstance(root, Candidate) else ():
            assert isinstance(root, Candidate)
            for value in (x for x in root.values(var) if x != default.value(var)):
                domains = default.domains.copy()
                domains[var] = 1 << value
                made = self.candidate(domains)
                found += [made] if isinstance(made, Candidate) else []
        return found

    def open_root(self) -> Candidate | DeadEnd:
        """Returns the root with all values left, also of dominated choices."""
        return self._open_root

    def candidate(self, domains: npt.NDArray[np.uint32]) -> Candidate | DeadEnd:
        """Returns the fixpoint of any domains ([n_choices], subsets of the initial ones), with dominated choices decided."""
        root = self._open_root
        if isinstance(root, DeadEnd):
            return root
        return self._decided(self._fixpoint(domains & root.domains))

    def _fixpoint(self, domains: npt.NDArray[np.uint32]) -> Candidate | DeadEnd:
        status = propagate_all(self.model.arrays, self.scratch, domains)
        return self._result(int(status), domains)

    def _result(self, status: int, domains: npt.NDArray[np.uint32]) -> Candidate | DeadEnd:
        if status == FIXPOINT:
            return Candidate(self, domains)
        return DeadEnd(*explain(self.model, int(self.scratch.state[CULPRIT]), status))


class Candidate:
    """A partly decided implementation: a domain of possible values for each choice. Immutable."""

    __slots__ = ("domains", "space")

    def __init__(self, space: Space, domains: npt.NDArray[np.uint32]) -> None:
        """`domains`: [n_choices] uint32, bit v set while value v is possible, at a fixpoint."""
        self.space = space
        self.domains = domains

    def __repr__(self) -> str:
        return f"Candidate({len(self.open_choices())} of {len(self.space.searchable)} choices open)"

    @property
    def key(self) -> bytes:
        """Fingerprint of the domains.

        Candidates of one space have equal keys exactly if their domains are equal.
        """
        return hashlib.blake2b(self.domains.tobytes(), digest_size=16).digest()

    @property
    def is_complete(self) -> bool:
        domains = self.domains
        return not (domains & (domains - np.uint32(1))).any()

    @property
    def is_apart(self) -> bool:
        """True if the implementation is outside of a search's tree (`Space.apart`)."""
        return any(not int(self.domains[var]) & 1 for var in self.space.variables.apart)

    def is_open(self, choice_id: int) -> bool:
        domain = int(self.domains[choice_id])
        return domain & (domain - 1) != 0

    def open_choices(self) -> npt.NDArray[np.int32]:
        """Positions of the searchable choices with more than one value left, in increasing order."""
        searchable = self.space.searchable
        domains = self.domains[searchable]
        is_open = domains & (domains - np.uint32(1)) != 0
        return np.compress(is_open, searchable)

    def values(self, choice_id: int) -> tuple[int, ...]:
        """Returns the values that are left of a choice, in increasing order."""
        domain = int(self.domains[choice_id])
        return tuple(value for value in range(domain.bit_length()) if domain >> value & 1)

    def value(self, choice_id: int) -> int:
        """Returns the value of a decided choice."""
        assert not self.is_open(choice_id), f"{self.space.choices[choice_id].name} is open"
        return int(self.domains[choice_id]).bit_length() - 1

    def assignment(self) -> npt.NDArray[np.int64]:
        """Returns the value of every choice of a complete candidate, [n_choices], for `testing.violations`."""
        assert self.is_complete
        return np.log2(self.domains).astype(np.int64)

    def decide(self, choice_id: int, mask: int) -> Candidate | DeadEnd:
        """Returns the candidate with a choice narrowed to the values in `mask`, at its fixpoint."""
        space = self.space
        out = np.empty_like(self.domains)
        status = decide(
            space.model.arrays, space.scratch, self.domains, int(choice_id), int(mask), out
        )
        return space._result(int(status), out)

    def expand(self, choice_id: int) -> tuple[tuple[int, Candidate | DeadEnd], ...]:
        """Returns (value, child) for each possible value of a choice, in increasing order."""
        space = self.space
        n_values = int(self.domains[choice_id]).bit_length()
        out = np.empty((n_values, len(self.domains)), np.uint32)
        statuses = np.empty(n_values, np.int64)
        culprits = np.empty(n_values, np.int64)
        expand(
            space.model.arrays,
            space.scratch,
            self.domains,
            int(choice_id),
            out,
            statuses,
            culprits,
        )
        children: list[tuple[int, Candidate | DeadEnd]] = []
        for value in self.values(choice_id):
            status = int(statuses[value])
            if status == FIXPOINT:
                children.append((value, Candidate(space, out[value])))
            else:
                children.append(
                    (value, DeadEnd(*explain(space.model, int(culprits[value]), status)))
                )
        return tuple(children)

    def complete(
        self,
        preference: npt.NDArray[np.uint8] | None = None,
        var_order: npt.NDArray[np.integer] | None = None,
        max_backtracks: int = 200,
    ) -> Candidate | DeadEnd:
        """Returns a completion that takes preferred values where possible; see `propagate.guided_completion`."""
        space = self.space
        out = self.domains.copy()
        if var_order is None:
            var_order = np.array(space.variables.first, np.int32)
        status = guided_completion(
            space.model, space.scratch, out, preference, var_order, max_backtracks
        )
        return space._result(status, out)

    def random_completion(
        self, rng: np.random.Generator, priority: npt.NDArray[np.integer] | None = None
    ) -> Candidate | DeadEnd:
        """Returns a completion with random values, or the dead end that it runs into: it does not backtrack.

        `priority`: [n_choices], the smallest is decided first.
        """
        space = self.space
        out = self.domains.copy()
        seed = int(rng.integers(2**31 - 1))
        status, _, _ = random_descent(space.model, space.scratch, out, seed, priority)
        return space._result(status, out)
