"""Kernels of a window: few kernels that do the work of its calls in order, by default decisions.

A window is a group of calls of a program that are run together. A window that runs again and again finds the lists and active cells
that its run before has left: its kernels assume them, so that nothing is made again. The caller must know that no active cell has
changed since.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..ir.kernel import Activate, ArrayParam, For, ForActive, KernelIR, Param, Placed, Stmt
from ..ir.logical import FieldPlace, LogicalKernel
from ..ir.structure import StructureTree
from ..ir.walk import children, identified, loads, nested_statements, rewrite, written_in
from ..sparse.facts_in_order import derived_in_order, held, settled
from ..sparse.recorded import WindowCall
from ..sparse.redundancy import Derived, Facts, Node
from ..transforms.merged_calls import (
    CallNames,
    IndependentPart,
    PlacedPart,
    groups_of,
    one_loop,
    rotation_of,
)
from .default_lowering import lower_by_default
from .segments import segments_of
from .window_stores import LiveParts

MOST_STATEMENTS = 400  # of a kernel of several loops: about 2 s of gcc
Section = tuple[int, str]  # a tree of the window, by number, and a key of its layout


@dataclass(frozen=True, eq=False)
class WindowKernel:
    """Kernel of a window, lowered to plain arrays.

    `arrays`: for each array of `ir` a number of the calls' arrays, or a section (array of a tree's memory).
    `n_loops` are its loops before lowering, `n_lists` the lists that it makes or tests, and `n_activations` its activations.
    """

    ir: KernelIR
    arrays: tuple[int | Section, ...]
    n_loops: int
    n_lists: int
    n_activations: int


@dataclass(frozen=True, eq=False)
class WindowStep:
    """Run of a kernel in a window. `scalars`: the positions of its scalar arguments among those of all calls.

    `call`: number of the first call of which it does work.
    """

    kernel: WindowKernel
    scalars: tuple[int, ...]
    call: int


@dataclass(frozen=True, eq=False)
class WindowKernels:
    """The kernels of a window, in order.

    They assume lists and active cells of the trees `assumed` as `n_runs` runs of the window in a row leave them. A window that
    follows itself has fewer loops if it begins `rotation` calls later. Calls of each range in `apart` have kernels of their own,
    one after the other.
    """

    steps: tuple[WindowStep, ...]
    assumed: tuple[int, ...]
    reshaped: frozenset[int]  # trees whose active cells they may change
    rotation: int = 0
    apart: tuple[range, ...] = ()
    n_runs: int = 1

    @cached_property
    def n_loops(self) -> int:
        return sum(step.kernel.n_loops for step in self.steps)

    @cached_property
    def n_lists(self) -> int:
        return sum(step.kernel.n_lists for step in self.steps)

    @cached_property
    def n_activations(self) -> int:
        return sum(step.kernel.n_activations for step in self.steps)


def window_kernels(
    calls: Sequence[WindowCall],
    unsure: frozenset[int] = frozenset(),
    apart: Sequence[range] = (),
    most_runs: int = 1,
) -> WindowKernels:
    """Returns the kernels that do the work of `calls` in order.

    Positions of scalars count the scalars of all calls in order. `apart`: ranges of calls, in order, whose work is to be in kernels
    of their own; those that would cost a common loop are left out.
    Precondition: as many runs of the same calls came before as the result says, at most `most_runs`. Nothing between has changed
    active cells, except in the trees `unsure`.
    """
    return Window(calls, unsure, most_runs).kernels(apart)


def tree_name(number: int) -> str:
    """Returns the name of a tree of a window in the facts and kernels of the window."""
    return f"t{number}"


def window_rotation(calls: Sequence[WindowCall], unsure: frozenset[int] = frozenset()) -> int:
    """Returns the number of calls after which a window that follows itself should begin, 0 for its first one.

    It is the `rotation` of its kernels, none of which is made. `unsure`: as in `window_kernels`.
    """
    return Window(calls, unsure).rotation()


@dataclass(frozen=True, eq=False)
class _Form:
    """Call with the window's arrays: its kernel before lowering, and the kernel's independent parts."""

    ir: KernelIR
    parts: tuple[IndependentPart, ...]


class Window:
    """The calls of a window, and the facts on its trees at its head; `kernels` makes the kernels of one plan.

    The parameters are those of `window_kernels`.
    """

    def __init__(
        self,
        calls: Sequence[WindowCall],
        unsure: frozenset[int] = frozenset(),
        most_runs: int = 1,
    ) -> None:
        self.calls = calls
        self.trees: dict[str, StructureTree] = {}
        self.fields: dict[str, tuple[FieldPlace, ...]] = {}
        self.numbers: dict[str, int] = {}  # of fields, in their trees
        self.params: dict[str, ArrayParam] = {}
        self.placed: dict[str, Placed] = {}
        known: dict[object, _Form] = {}
        self.forms: list[_Form] = []
        for c in calls:
            key = id(c.ir), id(c.logical), c.arrays, tuple(n for n, _ in c.trees)
            if key not in known:
                known[key] = self._form(c)
            self.forms.append(known[key])
        n_scalars = [len(c.ir.scalars) for c in calls]
        self.first_scalars = list(itertools.accumulate(n_scalars, initial=0))
        self.made: dict[object, WindowKernel] = {}
        without = {tree_name(n) for n in unsure}
        self._facts, self._n_runs = settled(self._irs, self.trees, without, most_runs)

    @cached_property
    def derived(self) -> tuple[Derived | None, ...]:
        """The redundant operations of each call as the program makes it, None for calls on plain arrays."""
        known: dict[object, KernelIR] = {}
        stated: list[KernelIR | None] = []
        for c in self.calls:
            key = id(c.logical), tuple(n for n, _ in c.trees)
            if c.logical is not None and key not in known:
                trees = {layout.tree.name: tree_name(n) for n, layout in c.trees}
                body = rewrite(c.logical.ir.body, CallNames({}, trees))
                known[key] = replace(c.logical.ir, body=body)
            stated.append(known.get(key))
        return derived_in_order(stated, (), self._facts.copy())

    def _form(self, call: WindowCall) -> _Form:
        """Returns a call with the window's arrays, and records its trees and arrays."""
        arrays = {p.name: f"a{n}" for p, n in zip(call.ir.arrays, call.arrays, strict=True)}
        trees = {layout.tree.name: tree_name(n) for n, layout in call.trees}
        for n, layout in call.trees:
            self.trees[tree_name(n)] = replace(layout.tree, name=tree_name(n))
            self.fields[tree_name(n)] = layout.fields
        ir = call.ir
        if call.logical is not None:
            ir, numbers = call.logical.ir, call.logical.numbers
            for p in ir.placed:
                arrays[p.array] = f"{trees[p.tree]}f{numbers[p.array]}"
                self.numbers[arrays[p.array]] = numbers[p.array]
        names = CallNames(arrays, trees)
        segments = segments_of(rewrite(ir.body, names))
        placed = rewrite(ir.placed, names)
        self.placed.update((p.array, p) for p in placed)
        params = [replace(p, name=arrays[p.name]) for p in ir.arrays]
        self.params.update((p.name, p) for p in params)
        on = {p.array: p.tree for p in placed}
        firsts = itertools.accumulate(map(len, segments), initial=0)
        parts = [IndependentPart(k, some, on) for k, some in zip(firsts, segments, strict=False)]
        used = tuple(self.trees[name] for name in trees.values())
        body = tuple(s for some in segments for s in some)
        form = replace(ir, arrays=tuple(params), body=body, trees=used, placed=placed)
        return _Form(form, tuple(parts))

    def kernels(self, apart: Sequence[range] = ()) -> WindowKernels:
        """Returns the kernels of the window. Precondition: the first use of this method."""
        facts = self._facts
        derived, every = self._placed(facts)
        whole, live = self.forms, LiveParts(self.params, self.placed, self.trees)
        placings = every
        # What is found for calls has all of their stores, and its results are compared with theirs.
        left = every if apart else live.of(every)
        if left != every:
            self._keep(left)
            # Runs of all calls have made the facts true, and which stores are dead rests on all of them.
            derived, placings = self._placed(held(self._irs, facts))
            if not _may_fail_alike(placings, left):  # the reason for which stores were dead
                self.forms = whole
                derived, placings = self._placed(facts)
        steps = []
        kept = tuple(_without_loss(apart, placings)) if apart else ()
        ends = [end for calls in kept for end in (calls.start, calls.stop)]
        for _, some in itertools.groupby(placings, lambda x: bisect_right(ends, x.call)):
            for groups in _pieces(groups_of(list(some))):
                members = [[self._member(x, derived[x.call]) for x in some] for some in groups]
                steps.append(self._step(members))
        reshaped = frozenset(int(t[1:]) for x in placings for t in x.reshapes)
        rotation = rotation_of(every, len(self.calls), live.of)
        assumed = tuple(sorted(int(t[1:]) for t in facts.on))
        return WindowKernels(tuple(steps), assumed, reshaped, rotation, kept, self._n_runs)

    def rotation(self) -> int:
        """Returns the `rotation` of its kernels."""
        _, placings = self._placed(self._facts)
        live = LiveParts(self.params, self.placed, self.trees)
        return rotation_of(placings, len(self.calls), live.of)

    @property
    def _irs(self) -> list[KernelIR | None]:
        """The kernels of the forms, None for those on plain arrays."""
        return [form.ir if form.ir.trees else None for form in self.forms]

    def _placed(self, facts: Facts) -> tuple[Sequence[Derived | None], list[PlacedPart]]:
        """Returns the facts derived for each call, with `facts` at the head of the window, and the parts of all calls."""
        derived = derived_in_order(self._irs, (), facts.copy())
        return derived, list(self._placings(derived))

    def _keep(self, left: Sequence[PlacedPart]) -> None:
        """Makes forms of the parts that are left of all calls; equal forms are one object."""
        of_calls: list[list[IndependentPart]] = [[] for _ in self.calls]
        for x in left:
            of_calls[x.call].append(x.part)
        known: dict[object, _Form] = {}
        forms = []
        for form, parts in zip(self.forms, of_calls, strict=True):
            key = id(form), tuple(map(id, parts))
            if key not in known:
                firsts = itertools.accumulate((len(x.body) for x in parts), initial=0)
                own = tuple(replace(x, first=k) for k, x in zip(firsts, parts, strict=False))
                body = tuple(s for x in parts for s in x.body)
                known[key] = _Form(replace(form.ir, body=body), own)
            forms.append(known[key])
        self.forms = forms

    def _placings(self, derived: Sequence[Derived | None]) -> Iterator[PlacedPart]:
        """Yields the independent parts of all calls, in order of the calls."""
        for k, (form, found) in enumerate(zip(self.forms, derived, strict=True)):
            for part in form.parts:
                changed = found.changed[part.first : part.first + len(part.body)] if found else ()
                yield PlacedPart(k, part, form.ir.fast_math, frozenset(itertools.chain(*changed)))

    def _member(self, x: PlacedPart, derived: Derived | None) -> _Member:
        return _Member(x, _facts_of(x.part, self.forms[x.call].ir, derived))

    def _step(self, groups: Sequence[Sequence[_Member]]) -> WindowStep:
        """Returns a run of the kernel made of `groups`; equal kernels are one object."""
        key = tuple(tuple((id(x.placing.part), x.facts) for x in some) for some in groups)
        if key not in self.made:
            self.made[key] = self._made(groups)
        first = min(x.placing.call for some in groups for x in some)
        return WindowStep(self.made[key], tuple(self._scalars(groups)), first)

    def _scalars(self, groups: Sequence[Sequence[_Member]]) -> Iterator[int]:
        for x in (x.placing for some in groups for x in some):
            for k, p in enumerate(self.calls[x.call].ir.scalars):
                if p.name in x.part.params:
                    yield self.first_scalars[x.call] + k

    def _made(self, groups: Sequence[Sequence[_Member]]) -> WindowKernel:
        ir = self._kernel(groups)
        n_loops = sum(isinstance(s, For | ForActive) for s in ir.body)
        if not ir.trees:
            return WindowKernel(ir, tuple(int(p.name[1:]) for p in ir.arrays), n_loops, 0, 0)
        demoted, n_sites = set[int](), 0
        for x in (x for some in groups for x in some):
            demoted |= {n_sites + n for n in x.facts.demoted}
            n_sites += x.facts.n_sites
        # Loops of one group run over one list.
        kept = [nodes for some in groups for nodes in some[0].facts.kept]
        trees = tuple((t, self.fields[t.name]) for t in ir.trees)
        numbers = {p.array: self.numbers[p.array] for p in ir.placed}
        plain = replace(ir, body=identified(ir.body))
        lowered = lower_by_default(LogicalKernel(plain, numbers, trees), frozenset(demoted))
        reused = {k for k, top, tree, node in lowered.lists if (tree, node) in kept[top]}
        left = tuple(s for k, s in enumerate(lowered.ir.body) if k not in reused)
        ir = _pruned(replace(lowered.ir, body=left))
        sections = {name: (int(tree[1:]), key) for name, tree, key in lowered.sections}
        bound = tuple(sections.get(p.name) or int(p.name[1:]) for p in ir.arrays)
        n_lists = len(lowered.lists) - len(reused)
        n_activations = sum(x.facts.n_activations for some in groups for x in some)
        return WindowKernel(ir, bound, n_loops, n_lists, n_activations)

    def _kernel(self, groups: Sequence[Sequence[_Member]]) -> KernelIR:
        """Returns the kernel made of `groups` before lowering.

        If it may fail, it has the name of the kernel in it that may fail.
        """
        body, scalars = list[Stmt](), list[Param]()
        numbers = itertools.count()
        for some in groups:
            made: list[Stmt] = []
            for x in (x.placing for x in some):
                own = CallNames({}, {}, f"_c{next(numbers)}")
                made += rewrite(x.part.body, own)
                given = (p for p in self.forms[x.call].ir.scalars if p.name in x.part.params)
                scalars += [Param(own.own(p.name), p.dtype) for p in given]
            loops = [s for s in made if isinstance(s, For | ForActive)]
            body += [one_loop(loops)] if len(some) > 1 else made
        parts = [x.placing.part for some in groups for x in some]
        names = sorted({name for part in parts for name in part.uses})
        last = groups[-1][-1].placing
        form = self.forms[last.call].ir
        return KernelIR(
            form.name if last.may_fail else "window",
            tuple(self.params[name] for name in names),
            tuple(scalars),
            tuple(body),
            form.where,
            last.fast_math,
            tuple(self.trees[t] for t in sorted({t for part in parts for t in part.trees})),
            tuple(self.placed[name] for name in names if name in self.placed),
        )


@dataclass(frozen=True)
class _Facts:
    """Facts of an independent part: its redundant activations, and the lists that each statement reuses.

    `demoted`: the activations by number in the order of the part's text.
    """

    demoted: frozenset[int]
    kept: tuple[frozenset[Node], ...]
    n_sites: int
    n_activations: int


@dataclass(frozen=True, eq=False)
class _Member:
    """Independent part in a group of parts that become one loop, with its facts."""

    placing: PlacedPart
    facts: _Facts


def _may_fail_alike(found: Sequence[PlacedPart], wanted: Sequence[PlacedPart]) -> bool:
    """True if no part may fail, or change active cells, that was not said to."""
    pairs = zip(found, wanted, strict=True)
    return all(a.reshapes <= b.reshapes for a, b in pairs)


def _facts_of(part: IndependentPart, form: KernelIR, derived: Derived | None) -> _Facts:
    if derived is None:
        return _Facts(frozenset(), (frozenset(),) * len(part.body), 0, 0)
    n_before, n_sites = (
        sum(isinstance(s, Activate) for s in nested_statements(body))
        for body in (form.body[: part.first], part.body)
    )
    stop = part.first + len(part.body)
    here = (n - n_before for n in derived.demoted)
    demoted = frozenset(n for n in here if 0 <= n < n_sites)
    n_activations = sum(derived.left[part.first : stop])
    return _Facts(demoted, derived.kept[part.first : stop], n_sites, n_activations)


def _without_loss(apart: Sequence[range], placings: Sequence[PlacedPart]) -> Iterator[range]:
    """Yields the ranges of calls whose parts share no loop with others, and which no loop of others has on both sides."""
    groups = groups_of(list(placings))
    for calls in apart:
        ends = (calls.start, calls.stop)
        if all(len({bisect_right(ends, x.call) for x in some}) == 1 for some in groups):
            yield calls


def _pieces(groups: Sequence[list[PlacedPart]]) -> Iterator[list[list[PlacedPart]]]:
    """Yields for each kernel the groups that it is made of.

    All groups are one kernel, unless that is too large: then each group is one, and many are equal. A group that may fail ends a
    kernel: its error is raised before anything behind it has run. All groups of a kernel have the same mode of floats
    (`fast_math`).
    """
    is_large = sum(x.part.size for some in groups for x in some) > MOST_STATEMENTS
    piece: list[list[PlacedPart]] = []
    for some in groups:
        if piece and piece[-1][0].fast_math != some[0].fast_math:
            yield piece
            piece = []
        piece.append(some)
        if is_large or any(x.may_fail for x in some):
            yield piece
            piece = []
    if piece:
        yield piece


def _pruned(ir: KernelIR) -> KernelIR:
    """Returns the kernel without arrays that its statements do not use."""
    every = list(nested_statements(ir.body))
    used = {x.array for s in every for e in children(s) for x in loads(e)} | written_in(ir.body)
    return replace(
        ir,
        arrays=tuple(p for p in ir.arrays if p.name in used),
        trusted=tuple(name for name in ir.trusted if name in used),
        shared=tuple((name, n) for name, n in ir.shared if name in used),
    )
