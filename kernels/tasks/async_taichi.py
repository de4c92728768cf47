"""Calls of a sequence that AsyncTaichi (`async_mode` of Taichi 0.7.32 to 1.0.4) would have run wrongly.

Five of its rewrites lack a premise. Small programs (probes) show each: their values are wrong there with `async_mode=True` alone.
A finding says that the calls have the pattern of a probe, not that Taichi has run them. Of a repeat, two steps count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from ..analysis.effects import arrays_written
from ..ir import kernel as ir
from ..ir.kernel import Expr, Stmt
from ..ir.repeats import with_steps
from ..ir.structure import StructureTree
from ..ir.task import Task
from ..ir.walk import blocks, children, loads, local_changed, locals_read, nested_statements, walk
from ..sparse.current_cell import own_of
from ..sparse.redundancy import PURE, ActivationSite, activation_sites
from .cleaned_calls import CleanedCalls

if TYPE_CHECKING:
    from ..frontend.recorder import Call

_STEPS = 2  # of a repeat
_INVARIANT = ("Const", "Param", "Cast", "Unary", "Binary")


@dataclass(frozen=True)
class AsyncFault:
    """Calls with the pattern of probes that AsyncTaichi gets wrong.

    `rule`: the rewrite that lacks a premise. `probes`: names of the probes. `text`: what would have gone wrong, as one sentence.
    """

    rule: str
    probes: tuple[str, ...]
    text: str


def async_faults(cleaned: CleanedCalls) -> tuple[AsyncFault, ...]:
    """Returns what AsyncTaichi would have done wrongly, in order of its rewrites; equal findings once."""
    window = _Window(cleaned)
    found = (
        *window.shared_temporaries(),
        *window.other_arguments(),
        *window.demotions(),
        *window.dead_stores(),
    )
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class _Piece:
    """Statement at top level of a call, which AsyncTaichi runs as a task.

    `arrays`: the sequence's array of each array of the kernel. `left`: the number of activations that surely active cells do not
    make redundant.
    """

    label: str
    call: Call
    top: int
    statement: Stmt
    arrays: Mapping[str, str]
    trees: Mapping[str, StructureTree]
    left: int

    @cached_property
    def inside(self) -> tuple[Stmt, ...]:
        return tuple(nested_statements((self.statement,)))

    @cached_property
    def loops(self) -> tuple[str, ...]:
        """Indices of the parallel loop; () for a serial statement. Perfectly nested loops count as one."""
        return tuple(_nest(self.statement)[0])

    @cached_property
    def loaded(self) -> frozenset[str]:
        """The arrays that it loads, updates or stores to under a condition, so that old values matter."""
        read = {x.array for s in self.inside for e in children(s) for x in loads(e)}
        read |= {s.array for s in self.inside if isinstance(s, ir.Update)}
        sure = {s.array for s in _nest(self.statement)[1] if isinstance(s, ir.Store)}
        read |= {s.array for s in self.inside if isinstance(s, ir.Store) and s.array not in sure}
        return frozenset(self.arrays[x] for x in read)

    @cached_property
    def written(self) -> frozenset[str]:
        return frozenset(
            self.arrays[s.array] for s in self.inside if isinstance(s, ir.Store | ir.Update)
        )

    @cached_property
    def unique(self) -> frozenset[str]:
        """The arrays whose elements each iteration has for itself: all accesses are at one index, with each loop in it."""
        at = defaultdict[str, set[tuple[Expr, ...]]](set)
        for s in self.inside:
            if isinstance(s, ir.Store | ir.Update):
                at[s.array].add(s.indices)
            for x in (x for e in children(s) for x in loads(e)):
                at[x.array].add(x.indices)
        cells = {a: {_cell(x) for x in every} for a, every in at.items()}
        return frozenset(
            self.arrays[a]
            for a, (*every,) in cells.items()
            if len(every) == 1 and set(self.loops) <= set(map(_loop_of, every[0]))
        )

    @cached_property
    def deactivated(self) -> frozenset[str]:
        return frozenset(s.tree for s in self.inside if isinstance(s, ir.Deactivate))

    @cached_property
    def changed(self) -> frozenset[str]:
        """Trees whose active cells it may change; the engine knows no cells but the current one as active."""
        grown = {x.statement.tree for x in self.sites}
        grown |= {s.tree for s in self.inside if isinstance(s, ir.Append)}
        return self.deactivated | grown

    @cached_property
    def looped(self) -> frozenset[str]:
        """The tree over whose active cells it loops, if any."""
        s = self.statement
        return frozenset((s.tree,)) if isinstance(s, ir.ForActive) else frozenset()

    @cached_property
    def sites(self) -> tuple[ActivationSite, ...]:
        """Activations of other cells than the loop's current one."""
        s = self.statement
        every = tuple(activation_sites(s, 0))
        if not isinstance(s, ir.ForActive):
            return every
        own = own_of(s, self.trees[s.tree])
        return tuple(
            x
            for x in every
            if own.item(x.statement.tree, x.statement.node, x.statement.indices) is None
        )

    def is_same(self, other: _Piece) -> bool:
        """True if both are one statement of one kernel on the same arrays; numbers may differ."""
        return (
            self.top == other.top
            and self.call.arrays == other.call.arrays
            and _kernel(self.call) == _kernel(other.call)
        )

    def conflicts(self, other: _Piece) -> bool:
        """True if the order of both matters: for values, or for active cells."""
        values = self.written & (other.loaded | other.written) or self.loaded & other.written
        cells = self.changed & (other.looped | other.changed) or self.looped & other.changed
        return bool(values or cells)


class _Window:
    def __init__(self, cleaned: CleanedCalls) -> None:
        self._cleaned = cleaned
        self._known = cleaned.calls.known
        self._pieces = tuple(_pieces(cleaned))
        self._tasks = defaultdict[str, list[Task]](list)
        for task in cleaned.calls.tasks:
            self._tasks[task.name.split("/")[0]].append(task)
        self._of_kernel = defaultdict[tuple[str, int], list[int]](list)
        for k, piece in enumerate(self._pieces):
            self._of_kernel[_kernel(piece.call).name, piece.top].append(k)

    def _alike(self) -> Iterator[tuple[int, int]]:
        """Yields positions of neighbours among the pieces that are one statement of one kernel on the same arrays."""
        for every in self._of_kernel.values():
            for n, k in enumerate(every):
                same = (x for x in every[n + 1 :] if self._pieces[k].is_same(self._pieces[x]))
                yield from ((k, x) for x in (next(same, None),) if x is not None)

    def shared_temporaries(self) -> Iterator[AsyncFault]:
        """A cached statement names the temporary of the first kernel that had its text."""
        first: dict[Stmt, _Piece] = {}
        for piece in self._pieces:
            if piece.loops or not _in_temporaries(piece):
                continue
            same = first.setdefault(_unnamed(piece.statement), piece)
            if not same.is_same(piece):
                yield AsyncFault(
                    "statements of equal text",
                    ("ret_reduce",),
                    f"{same.label} and {piece.label} have a statement on a temporary in common: it would have used "
                    f"the temporary of {same.label} for both",
                )

    def other_arguments(self) -> Iterator[AsyncFault]:
        """Loops of one kernel become one loop, whatever their arguments are."""
        for k, n in self._alike():
            a, b = self._pieces[k], self._pieces[n]
            used = _params(a)
            differ = any(
                p.name in used and x != y
                for p, x, y in zip(a.call.ir.scalars, a.call.scalars, b.call.scalars, strict=True)
            )
            common = (a.written & (b.loaded | b.written)) | (a.loaded & b.written)
            is_one = bool(a.loops) and not a.changed and common <= a.unique
            if differ and is_one and not self._has_path(k, n):
                yield AsyncFault(
                    "fusion",
                    ("args_differ", "args_differ_indep"),
                    f"{a.label} and {b.label} would have been one loop with the arguments of {a.label}",
                )

    def _has_path(self, first: int, last: int) -> bool:
        """True if some piece between has to run behind the first and before the last."""
        reached = [self._pieces[first]]
        for piece in self._pieces[first + 1 : last]:
            if any(piece.conflicts(x) for x in reached):
                reached.append(piece)
        return any(x.conflicts(self._pieces[last]) for x in reached[1:])

    def demotions(self) -> Iterator[AsyncFault]:
        """The second of two equal loops activates nothing, even if cells were deactivated between."""
        for k, n in self._alike():
            a, b, between = self._pieces[k], self._pieces[n], self._pieces[k + 1 : n]
            is_known = {x.statement.tree for x in a.sites if _is_constexpr(x)}
            if not a.looped or any(x.changed & a.looped for x in (a, *between)):
                continue
            for x in between:
                for tree in sorted(x.deactivated & is_known):
                    yield AsyncFault(
                        "activation demotion",
                        ("deact_demote", "deact_demote_cell"),
                        f"{b.label} would not have activated the cells of {tree} that {x.label} deactivates behind {a.label}",
                    )

    def dead_stores(self) -> Iterator[AsyncFault]:
        """A store is erased if the next access overwrites single elements, be it all of them or not, and its activation too."""
        users = defaultdict[str, list[int]](list)
        for k, piece in enumerate(self._pieces):
            for array in (piece.loaded | piece.written) & self._known.keys():
                users[array].append(k)
        for array, at in users.items():
            for k, n in pairwise(at):
                if self._is_erased(k, n, array):
                    yield from self._erased(k, n, array)

    def _is_erased(self, k: int, n: int, array: str) -> bool:
        """True if the engine takes the stores of piece `k` to an array as dead, since piece `n` overwrites it."""
        a, b = self._pieces[k], self._pieces[n]
        is_stored = array in a.written - a.loaded and array in b.written - b.loaded
        return is_stored and bool(b.loops) and array in b.unique

    def _erased(self, k: int, n: int, array: str) -> Iterator[AsyncFault]:
        a, b = self._pieces[k], self._pieces[n]
        shrunk = frozenset[str]().union(*(x.deactivated for x in self._pieces[k : n + 1]))
        if not self._covers(a, b, array, are_active=not shrunk):
            yield AsyncFault(
                "dead stores",
                ("dse_partial", "dse_sparse_grow"),
                f"the stores of {a.label} to {array} would have been left out, though {b.label} may overwrite only a part of them",
            )
        trees = {s.tree for s in a.inside if isinstance(s, ir.Activate)}
        is_alone = len(a.written) == 1
        if a.left and is_alone and trees & b.looped:
            yield AsyncFault(
                "dead stores",
                ("dse_range_activation", "dse_sparse_grow"),
                f"{a.label} would have activated nothing, since {b.label} overwrites its stores to {array}",
            )

    def _covers(self, a: _Piece, b: _Piece, array: str, *, are_active: bool) -> bool:
        """True if piece `b` may overwrite all that `a` has stored: if its task does, or if several tasks share its stores."""
        stores, known = self._cleaned.stores, self._known[array]
        before, behind = (self._tasks_of(x, array) for x in (a, b))
        if len(behind) != 1:
            return True
        return all(stores.covers(behind[0], t, known, are_active=are_active) for t in before)

    def _tasks_of(self, piece: _Piece, array: str) -> list[Task]:
        """Returns the tasks of a call that store to an array as its kernel says, without what lowering adds."""
        every = [t for t in self._tasks[piece.label] if array in arrays_written(t)]
        return [t for t in every if t.logical is not None] or every


def _pieces(cleaned: CleanedCalls) -> Iterator[_Piece]:
    """Yields the statements at top level of all calls in order of execution; of a repeat, those of two steps."""
    recording, calls = cleaned.recording, cleaned.calls
    trees = {t.tree.name: t.tree for t in recording.trees}
    short = [replace(r, count=min(r.count, _STEPS), until="") for r in recording.repeats]
    names = [_arrays(call, cleaned) for call in recording.calls]
    for k, steps in with_steps(len(recording.calls), short):
        call, derived = recording.calls[k].at(steps), calls.derived[k]
        for top, s in enumerate(_kernel(call).body):
            left = derived.left[top] if derived is not None else 0
            yield _Piece(calls.labels[k], call, top, s, names[k], trees, left)


def _arrays(call: Call, cleaned: CleanedCalls) -> dict[str, str]:
    """Returns the sequence's array for each array of a call's kernel, before lowering of sparse fields."""
    found = {p.name: name for p, name in zip(call.ir.arrays, call.arrays, strict=True)}
    if call.logical is not None:
        numbers = call.logical.numbers
        by_tree = {t.tree.name: t.arrays for t in cleaned.recording.trees}
        for p in call.logical.ir.placed:
            key = f"field{numbers[p.array]}"
            found[p.array] = by_tree[p.tree].get(key, "")  # "": of a field that is never accessed
    return found


def _kernel(call: Call) -> ir.KernelIR:
    return call.ir if call.logical is None else call.logical.ir


def _nest(s: Stmt) -> tuple[Sequence[str], tuple[Stmt, ...]]:
    """Returns the indices of a loop nest and its body; no index and the statement itself for others."""
    if isinstance(s, ir.ForActive):
        return s.loops, s.body
    names = list[str]()
    body: tuple[Stmt, ...] = (s,)
    while len(body) == 1 and isinstance(loop := body[0], ir.For):
        names.append(loop.loop)
        body = loop.body
    return names, body


def _cell(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Returns the indices without those of components, which are constant."""
    return tuple(x for x in indices if not isinstance(x, ir.Const))


def _loop_of(e: Expr) -> str:
    """Returns the loop whose index, plus or minus something invariant, an index is; "" for others."""
    if isinstance(e, ir.LoopIndex):
        return e.loop
    if isinstance(e, ir.Cast) and e.x.dtype.is_index:
        return _loop_of(e.x)
    if isinstance(e, ir.Binary) and e.op in ("add", "sub"):
        for x, other in ((e.a, e.b), (e.b, e.a)):
            if all(type(y).__name__ in _INVARIANT for y in walk(other)):
                return _loop_of(x)
    return ""


def _is_constexpr(x: ActivationSite) -> bool:
    """True if constants and loop indices alone determine the cell and its conditions."""
    return x.runs and all(
        type(y).__name__ in (*PURE, "Compare") for e in (*x.indices, *x.guards) for y in walk(e)
    )


def _params(piece: _Piece) -> set[str]:
    every = (y for s in piece.inside for e in children(s) for y in walk(e))
    return {y.name for y in every if isinstance(y, ir.Param)}


def _in_temporaries(piece: _Piece) -> bool:
    """True if a serial statement uses a local that a loop of its kernel uses, too; such locals are in a global buffer."""
    loops = (s for s in _kernel(piece.call).body if blocks(s))
    shared = set[str]().union(*(map(_locals, loops)))
    return not shared.isdisjoint(_locals(piece.statement))


def _locals(s: Stmt) -> set[str]:
    every = list(nested_statements((s,)))
    read = {name for x in every for e in children(x) for name in locals_read(e)}
    return {name for name in (*read, *map(local_changed, every)) if name}


def _unnamed(s: Stmt) -> Stmt:
    """Returns a statement without its place in the program, and without the name of the local that it sets."""
    unplaced = replace(s, where=ir.Location("", 0))
    return replace(unplaced, name="") if isinstance(unplaced, ir.SetLocal) else unplaced
