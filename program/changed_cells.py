"""Masks for the loops over active cells of a tape: adjoints visit the cells that were active at the call.

A later call may activate cells of the same tree, which the adjoint's loop would visit, too. So before each call that may do that,
the tape marks the active cells of the earlier loops in an array, a mask. Where calls run at once, the mask is used only if the
number of active cells has changed. A call that deactivates such cells is refused: their values and gradients are gone.
Changes by Python are refused, too, since the tape sees them afterwards. So are changes that alter `is_active` or a length in an
adjoint.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..kernels.analysis.cell_changes import CellChanges, loop_of
from ..kernels.fields.caller_location import fail
from ..kernels.fields.ndarray import Ndarray
from ..kernels.fields.tree import Structure
from ..kernels.frontend.derivatives import adjoint_of, count_call, mask_call
from ..kernels.frontend.dispatch import Executor, current
from ..kernels.frontend.instance import KernelCall
from ..kernels.frontend.recorder import ndarray
from ..kernels.ir.errors import LanguageError, ProgramRuntimeError
from ..kernels.ir.kernel import (
    DType,
    ForActive,
    IsActive,
    KernelIR,
    Length,
    Load,
    Placed,
    Stmt,
    Store,
    Update,
)
from ..kernels.ir.walk import children, nested_statements, walk
from ..kernels.transforms.derivatives.masks import mask_of

_MOST_BYTES = 1 << 30  # of a mask, which has a byte a cell
Masks = dict[int, Any]
_Cells = tuple[int, int]  # the identity of a tree in memory, and a node
_Question = IsActive | Length
_QUESTION, _ACCESS = -1, -2  # in place of the number of a loop


@dataclass(frozen=True)
class _Visit:
    """Loop over active cells, or a question about them, in a call whose adjoint depends on these cells.

    `loop`: the loop; for a question or an access, a loop over the same cells. `top`: the number of its statement at top level.
    `number`: the number of the loop among loops over active cells; _QUESTION, or _ACCESS to elements from another loop.
    `masks`: those of the call, by number. `reads_others`: the loop reads elements of cells beside its own.
    """

    call: KernelCall
    structure: Structure
    loop: ForActive
    top: int
    number: int
    masks: Masks
    reads_others: bool = False

    @property
    def cells(self) -> _Cells:
        return id(self.structure), self.loop.node

    @property
    def n_mask_bytes(self) -> int:
        return math.prod(self.structure.layout.tree.shape(self.loop.node))


@dataclass
class _Visited:
    """Visits of the cells of a node.

    `loops`: those without a mask. `question`: the first question. `access`: the first access from another loop. `earlier`: the
    first loop before the last change. `mask`: that of the cells as they are, if it was made.
    """

    loops: list[_Visit] = field(default_factory=list)
    question: _Visit | None = None
    access: _Visit | None = None
    earlier: _Visit | None = None
    mask: Any = None

    def add(self, v: _Visit) -> None:
        """Adds a visit of the cells as they are."""
        if v.number == _ACCESS:
            self.access = self.access or v
        elif v.number == _QUESTION:
            self.question = self.question or v
        else:
            self.loops.append(v)

    @property
    def first(self) -> _Visit | None:
        return self.earlier or self.question or next(iter(self.loops), self.access)


@dataclass
class _Watched:
    """Cells of a node, around a call that may change them.

    `between`: a visit by the call that is behind one of its changes and before another. `n_before`: the number of active cells,
    None if they are not counted.
    """

    visited: _Visited
    between: _Visit | None
    changes: CellChanges
    n_before: int | None = None

    @property
    def first(self) -> _Visit:
        found = self.visited.first or self.between
        assert found is not None
        return found

    def refusal(self, *, is_counted: bool) -> tuple[_Visit, str] | None:
        """Returns a visit that has no right adjoint if the cells change, and the reason; None if masks help.

        `is_counted`: their number has changed. Where nothing is counted, the access rule of tapes holds for what was inactive, too.
        """
        if self.changes.deactivates:
            reason = "the values and gradients of deactivated cells are gone when the adjoint runs"
            return self.first, reason
        if self.between is not None:
            return self.between, "it does so before that loop and behind it: make two kernels of it"
        if self.visited.question is not None:
            reason = "is_active or a length in the adjoint would have another value"
            return self.visited.question, reason
        others = next((v for v in self.visited.loops if v.reads_others), None)
        if is_counted and others is not None:
            return others, "it reads cells beside its own, which were inactive then"
        if self.first.n_mask_bytes > _MOST_BYTES:
            n_gib = self.first.n_mask_bytes / (1 << 30)
            return self.first, f"a mask of them would take {n_gib:,.1f} GiB, more than 1"
        return None


class ChangedCells:
    """The loops over active cells of the calls of a tape, and the masks that they need."""

    def __init__(self) -> None:
        self._visited: dict[_Cells, _Visited] = {}
        self._by_python: dict[
            int, tuple[_Visit, int]
        ] = {}  # a visit of each tree, Python's changes

    @contextmanager
    def around(self, call: KernelCall, behind: Executor, masks: Masks | None) -> Iterator[None]:
        """Context in which a call runs: makes masks for loops whose cells it changes, and adds its own loops.

        `masks`: receives the masks of this call, by number of the loop; None if the call has no adjoint on the tape. Raises
        LanguageError if it changes cells and no mask helps. Nothing is counted for calls whose statements change no cells.
        """
        if not call.instance.structures:
            yield
            return
        changes = CellChanges.of(call.instance.ir)
        own = [] if masks is None else list(_visits_of(call, masks))
        between: dict[_Cells, _Visit] = {}
        behind_changes: list[_Visit] = []
        for v in own:
            found = changes.of_node(v.loop.tree, v.loop.node)
            if not found.from_on(v.top):
                behind_changes.append(v)
            elif found.before(v.top):
                between.setdefault(v.cells, v)
                behind_changes.append(v)
            else:
                self._add(v)
        watched = list(self._watched(call, changes, between))
        for x in watched:
            self._begin(x, call, behind)
        yield
        for x in watched:
            self._end(x, call, behind)
        for v in behind_changes:
            self._add(v)
        for v in (*own, *(v for v, _ in self._by_python.values())):
            self._by_python[id(v.structure)] = v, v.structure.memory.n_changes

    def refuse_changes_by_python(self) -> None:
        """Raises LanguageError if Python has activated or deactivated cells of a tree over which a call loops."""
        for v, n_changes in self._by_python.values():
            if v.structure.memory.n_changes != n_changes:
                fail(
                    f"Python activates or deactivates cells of the tree over whose active cells {v.call.instance.ir.name} loops,"
                    " behind that call on a tape: do it before the first kernel of the tape, or in a kernel",
                    ProgramRuntimeError,
                )

    def counts(self) -> dict[_Cells, int]:
        """Returns the number of active cells of each node that was visited, as it is."""
        firsts = {cells: x.first for cells, x in self._visited.items()}
        return {cells: _count(v, current()) for cells, v in firsts.items() if v is not None}

    def refuse_changes_since(self, counts: dict[_Cells, int]) -> None:
        """Raises LanguageError if a visited node has another number of active cells than in `counts`."""
        for cells, n in self.counts().items():
            visit = self._visited[cells].first
            if visit is not None and counts.get(cells, n) != n:
                fail(
                    f"active cells over which {visit.call.instance.ir.name} loops have changed behind the block of the tape:"
                    " compute its gradients before",
                    ProgramRuntimeError,
                )

    def _add(self, v: _Visit) -> None:
        self._visited.setdefault(v.cells, _Visited()).add(v)

    def _watched(
        self, call: KernelCall, changes: CellChanges, between: dict[_Cells, _Visit]
    ) -> Iterator[_Watched]:
        """Yields the visited cells that a call may change. `between`: as in `_Watched`, by cells."""
        if not changes.statements:
            return
        trees = {id(structure): name for name, structure in call.instance.structures}
        for cells in dict.fromkeys((*self._visited, *between)):
            if cells[0] not in trees:
                continue
            found = changes.of_node(trees[cells[0]], cells[1])
            visited = self._visited.setdefault(cells, _Visited())
            is_visited = visited.loops or visited.question or cells in between
            if found.statements and (is_visited or found.deactivates):
                yield _Watched(visited, between.get(cells), found)

    def _begin(self, x: _Watched, call: KernelCall, behind: Executor) -> None:
        """Makes a mask, and counts the cells where calls run at once."""
        refusal = x.refusal(is_counted=False)
        is_sure = behind.records or (x.changes.deactivates and x.changes.activates)
        if refusal is not None and is_sure:  # activated again, cells that it deactivates are zero
            _refuse(refusal, call)
        if refusal is None and x.visited.mask is None:
            x.visited.mask = _marked(x.first, behind)
        if not behind.records:
            x.n_before = _count(x.first, behind)

    def _end(self, x: _Watched, call: KernelCall, behind: Executor) -> None:
        """Gives the mask to the loops if cells have changed, or may have."""
        if x.n_before is not None and _count(x.first, behind) == x.n_before:
            return
        refusal, visited = x.refusal(is_counted=x.n_before is not None), x.visited
        if refusal is not None:
            _refuse(refusal, call)
        for v in visited.loops:
            v.masks[v.number] = visited.mask
        visited.earlier = visited.first
        visited.loops, visited.mask = [], None


def _refuse(refusal: tuple[_Visit, str], call: KernelCall) -> NoReturn:
    visit, reason = refusal
    raise LanguageError(
        f"the kernel {call.instance.ir.name} changes the active cells over which {visit.call.instance.ir.name} loops, and {reason}:"
        " change cells before the first kernel of the tape",
        call.where,
    )


def _visits_of(call: KernelCall, masks: Masks) -> Iterator[_Visit]:
    """Yields the visits of a call on which its adjoint depends, in program order."""
    ir, structures = call.instance.ir, dict(call.instance.structures)
    try:
        adjoint = adjoint_of(call)
    except LanguageError:  # the tape may have no gradients: its end says so where it has
        return
    if adjoint is None:
        return
    statements = list(nested_statements(adjoint.body))
    looped = {(s.tree, s.node) for s in statements if isinstance(s, ForActive)}
    asked = {(e.tree, e.node) for s in statements for e in _questions(s)}
    touched = {name for s in statements for name in _accessed(s)}
    placed = {x.array: x for x in ir.placed}
    number = itertools.count()
    for top, whole in enumerate(ir.body):
        if not isinstance(whole, ForActive):
            names = {name for s in nested_statements((whole,)) for name in _accessed(s)}
            for x in (placed[name] for name in sorted(names & touched & placed.keys())):
                over = _over(ir, x.tree, x.node, whole)
                yield _Visit(call, structures[x.tree], over, top, _ACCESS, masks)
        for s in nested_statements((whole,)):
            for e in _questions(s):
                if (e.tree, e.node) in asked:
                    over = _over(ir, e.tree, e.node, s)
                    yield _Visit(call, structures[e.tree], over, top, _QUESTION, masks)
            if isinstance(s, ForActive):
                n = next(number)
                if (s.tree, s.node) in looped:
                    others = _reads_others(s, placed)
                    yield _Visit(call, structures[s.tree], s, top, n, masks, others)


def _accessed(s: Stmt) -> Iterator[str]:
    """Yields the arrays that a statement reads or updates, without those inside of it."""
    if isinstance(s, Store | Update):
        yield s.array
    yield from (x.array for e in children(s) for x in walk(e) if isinstance(x, Load))


def _reads_others(loop: ForActive, placed: Mapping[str, Placed]) -> bool:
    """True if a loop over active cells reads an element of its tree at other indices than its own."""
    loads = (
        x
        for s in nested_statements(loop.body)
        for e in children(s)
        for x in walk(e)
        if isinstance(x, Load) and x.array in placed and placed[x.array].tree == loop.tree
    )
    n = len(loop.loops)
    return any(tuple(map(loop_of, x.indices[-n:])) != loop.loops for x in loads)


def _questions(s: Stmt) -> Iterator[_Question]:
    yield from (x for e in children(s) for x in walk(e) if isinstance(x, IsActive | Length))


def _over(ir: KernelIR, name: str, node: int, s: Stmt) -> ForActive:
    """Returns a loop over the cells of a node about which a statement asks, or whose elements it accesses."""
    (tree,) = (t for t in ir.trees if t.name == name)
    loops = tuple(f"c{k}" for k in range(len(tree.axes(node))))
    return ForActive(name, node, loops, (), s.where)


def _marked(v: _Visit, behind: Executor) -> Any:
    """Returns a new array with 1 for each active cell."""
    param = mask_of("mask", v.structure.layout.tree, v.loop)
    made = ndarray(param.dtype, param.shape)
    mask = made.array if isinstance(made, Ndarray) else made
    behind.run(mask_call(v.call, v.loop, v.structure, mask, is_zero=not behind.records))
    return mask


def _count(v: _Visit, behind: Executor) -> int:
    found = ndarray(DType.i32, (1,))
    behind.run(count_call(v.call, v.loop, v.structure, found.array))
    return int(found.array[0])
