"""Model builder (draft), in which the families of choices (space/families/) declare their choices and constraints.

A family is one file: the values of its choices, the objects that have them (sites), predicates over
values, and constraints. A predicate judges decided values and depends neither on domains nor on
propagation; filters and the CP-SAT model are derived from it (space/engine/). A docstring of a
constraint begins with its purpose. Coherence: the order algebra and canonical forms. Semantics: the
result must not change. Hardware: the limits of the target. Dominance: the excluded values are never
better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..kernels.ir.arrays import ArrayInfo
from ..kernels.ir.task import Problem
from .backbone import INNER, MID, OUTER, Backbone, Dim, Flow, Merge, Operand, Shift
from .targets.kind import TargetKind
from .targets.target import Target

if TYPE_CHECKING:  # a call of a kernel by itself builds no model
    from .engine.builder import ModelBuilder


def bits(*values: int) -> int:
    """Returns the domain, as a bit mask, that holds exactly the given values."""
    mask = 0
    for value in values:
        mask |= 1 << value
    return mask


def all_but(values: tuple[str, ...], *without: int) -> int:
    """Returns the domain of a choice with the values `values`, without the value(s) `without`."""
    return bits(*range(len(values))) & ~bits(*without)


AS_IT_IS = 0  # the first value of choices for the whole sequence, most of them about parts of trees


@dataclass(frozen=True)
class SequencePart:
    """Object of choices for the whole sequence: a part of a sparse tree, or the calls of the sequence.

    `task`: the first task that accesses it.
    """

    name: str
    task: int


Decisions = Mapping[str, Mapping[Any, str]]
"""Names of values, by kind of choice, then by the object that has the choice: the keys of the tables of `Variables`."""


LISTS = (
    "dominated",
    "first",
    "apart",
)  # fields of `Variables` that list positions which stand in its tables, too


@dataclass
class Variables:
    """Positions of all choices in the domain vector: for each kind, by the backbone object (site) that has the choice."""

    fused: dict[tuple[int, int], int] = field(default_factory=dict)
    kind: dict[Dim, int] = field(default_factory=dict)
    size: dict[Dim, int] = field(default_factory=dict)
    universe: dict[Dim, tuple[int, ...]] = field(default_factory=dict)
    schedule: dict[Dim, int] = field(default_factory=dict)
    reduction: dict[Dim, int] = field(default_factory=dict)
    thread_level: dict[tuple[Dim, Dim], int] = field(default_factory=dict)  # mid dims of one task
    warp_tile: dict[tuple[Dim, Dim], int] = field(default_factory=dict)  # mid dims of one task
    mem_space: dict[Flow, int] = field(default_factory=dict)
    staged: dict[Operand, int] = field(default_factory=dict)
    packed_by: dict[Operand, int] = field(default_factory=dict)
    layout: dict[Operand, int] = field(default_factory=dict)  # of copies in shared memory
    cache: dict[int, int] = field(default_factory=dict)  # of stores, by task
    load_cache: dict[tuple[int, str], int] = field(default_factory=dict)  # by task and array
    prefetch: dict[int, int] = field(default_factory=dict)  # by task
    prefetch_accumulators: dict[int, int] = field(default_factory=dict)  # by task
    store: dict[int, int] = field(default_factory=dict)  # by task, temporaries only
    shift: dict[Shift, int] = field(default_factory=dict)
    scatter: dict[tuple[int, str], int] = field(default_factory=dict)  # by task and array
    scatter_cells: dict[int, int] = field(default_factory=dict)  # by task
    ranges: dict[tuple[int, str], int] = field(default_factory=dict)  # by task and loop in its body
    waves: dict[int, int] = field(default_factory=dict)  # by task, sweeps only
    wave_sizes: dict[tuple[int, int], int] = field(default_factory=dict)  # rows 0, columns 1
    # Choices of kinds without a line above, by kind: only their families and passes use them.
    of_tasks: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    of_dims: dict[str, dict[Dim, int]] = field(default_factory=lambda: defaultdict(dict))
    of_operands: dict[str, dict[Operand, int]] = field(default_factory=lambda: defaultdict(dict))
    of_flows: dict[str, dict[Flow, int]] = field(default_factory=lambda: defaultdict(dict))
    of_trees: dict[str, dict[SequencePart, int]] = field(default_factory=lambda: defaultdict(dict))
    of_places: dict[str, dict[tuple[int, str], int]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # by task, and name in its body
    # Dominated choices: a later value is never worse. They get the last possible value, unless a user fixes them.
    dominated: list[int] = field(default_factory=list)
    # Choices that many others rest on: a completion decides them first, unless it is told an order.
    first: list[int] = field(default_factory=list)
    # Choices whose first value the tree of a search has. Each other value is one implementation, which is measured by itself.
    apart: list[int] = field(default_factory=list)

    def tables(self) -> Iterator[Mapping[Any, int]]:
        """Yields every table of positions, by site."""
        for made in vars(self).values():
            if isinstance(made, defaultdict):
                yield from made.values()
            elif isinstance(made, dict) and made is not self.universe:
                yield made


@dataclass(frozen=True, eq=False)
class Draft:
    """Model builder for a problem on a target.

    `register_room`: factor of the register limit, see families/block_memory.py.
    """

    problem: Problem
    target: Target
    kind: TargetKind
    backbone: Backbone
    b: ModelBuilder
    v: Variables
    register_room: int = 1

    @property
    def n_tasks(self) -> int:
        return len(self.problem.tasks)

    def array(self, name: str) -> ArrayInfo:
        return self.problem.array(name)

    def is_beyond_own_cache(self, array: str) -> bool:
        """True if an array exceeds a core's private cache, on targets whose cores have private caches with reuse."""
        size, own = self.array(array).size_bytes, self.target.own_cache_bytes
        return self.kind.keeps_in_own_caches and size > own

    # --- objects ---

    def ordered_dims(self, t: int) -> list[Dim]:
        return [d for d in self.backbone.dims_of(t) if d.order_id >= 0]

    def dims_at(self, t: int, level: int) -> list[Dim]:
        return [d for d in self.backbone.dims_of(t) if d.level == level]

    def objects_of(self, t: int) -> list[int]:
        return [d.order_id for d in self.ordered_dims(t)] + [self.backbone.body_ids[t]]

    def near_dims(self, t: int) -> Iterator[Dim]:
        """Yields the dims with an order (outer and mid) of task `t`, and of all tasks that may share a launch with it."""
        return (e for u in self.backbone.neighbours[t] for e in self.ordered_dims(u))

    def near_objects(self, t: int) -> list[int]:
        """Returns the numbers of all objects that have an order with the dims of task `t`, increasing."""
        return sorted(x for u in self.backbone.neighbours[t] for x in self.objects_of(u))

    def near_pairs(self, dims: list[list[Dim]]) -> Iterator[tuple[Dim, Dim]]:
        """Yields pairs of the given dims: of one task, or of two tasks that may share a launch.

        `dims`: by task.
        """
        for t, near in enumerate(self.backbone.neighbours):
            later = [e for u in near if u > t for e in dims[u]]
            for k, d in enumerate(dims[t]):
                yield from ((d, e) for e in (*dims[t][k + 1 :], *later))

    def levels(self, task: int, loop: str) -> tuple[Dim, Dim, Dim]:
        dim = self.backbone.dim
        return dim(task, loop, OUTER), dim(task, loop, MID), dim(task, loop, INNER)

    def levels_of(self, m: Merge) -> tuple[tuple[Dim, Dim, Dim], tuple[Dim, Dim, Dim]]:
        return self.levels(m.a, m.loop_a), self.levels(m.b, m.loop_b)

    def order(self, d: Dim, e: Dim) -> int:
        """Returns the position of the order of two dims in the domain vector."""
        return self.b.order(d.order_id, e.order_id)


Rule = Callable[[Draft], None]


@dataclass(frozen=True)
class Phrases:
    """User-facing texts for the values of one kind of choice, by value name.

    A value without an entry has no text.
    The choices are about tasks, places in their bodies, or parts of trees. `long`: for `explore
    explain`, under the heading `topic`, behind the name of the object. `short`: for the header of
    the generated text.
    """

    kind: str
    topic: str
    long: Mapping[str, str]
    short: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Family:
    """A family of choices: one file of space/families/.

    `declare` adds its choices; `rules`: constraints, by kind of target.
    A kind of target has the family if `rules` has an entry for it, even an empty one. All choices
    are declared before all constraints. `phrases`: texts for choices about tasks, places and trees.
    """

    name: str
    rules: Mapping[str, tuple[Rule, ...]]  # by TargetKind.name
    declare: Rule | None = None
    phrases: tuple[Phrases, ...] = ()
