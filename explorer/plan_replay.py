"""Plan replay in a program, `ks.init(decisions=...)`: runs stored implementations in place of its kernels.

Calls of kernels are deferred while they may become an explored sequence, with fields of the program as its arrays. When the
sequence is complete, its stored implementation runs. If the program calls something else, the deferred calls run one by one,
as without plan replay.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import is_
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.fields.device_memory import DeviceMemory
from ..kernels.fields.tree import Structure
from ..kernels.frontend.dispatch import AbstractDeferringExecutor, Caller, Executor
from ..kernels.frontend.instance import Instance, KernelCall
from ..kernels.frontend.lowering import lowered, lowered_call
from ..kernels.frontend.recorder import Call
from ..kernels.interpret.kernel import evaluate_scalar
from ..kernels.ir.errors import KernelAssertionError, LanguageError
from ..kernels.ir.kernel import Cast, Const, Expr, KernelIR, Location, Param
from ..kernels.ir.structure import StructureTree
from ..kernels.sparse.layout import FULL, OUTSIDE
from ..kernels.sparse.pools import OUTSIDE_TEXT, full_text
from ..kernels.sparse.recorded import UsedTree
from ..kernels.tasks.entry_facts import tree_work, tree_work_alone
from ..runtime.by_identity import ByIdentity
from ..runtime.device import DeviceOptions, open_device
from ..runtime.engine.planned_window import PlannedWindow
from ..runtime.engine.stored_components import (
    StoredComponents,
    is_same_number,
)
from ..runtime.engine.window_stats import Stats
from ..runtime.measure.conditions import take_conditions
from ..runtime.records.program_file import bests_of
from ..runtime.records.record import RecordError
from ..runtime.records.replay import Tuned
from ..runtime.records.store import TunedStore
from ..runtime.records.unusable import UNUSABLE, sentence_of
from .assumed_cells import AssumedByFields, AssumedCells
from .call_form import CallForm, form_of
from .results import Best, load

_FIELD = (
    "field"  # keys of the sections of a tree that hold fields begin so, and end in their number
)
_MOST_RUNS = 64  # of sequences with their arguments, that are kept
# Calls that are offered to sequences again, for each call that fits none, and at once.
_CREDIT_OF_A_CALL, _MOST_CREDIT = 4, 4096
_Values = tuple[Any, ...]  # of a call: the arrays of its kernel, then its numbers


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    """A kernel that occurs in stored sequences.

    `form`: what it computes on which arrays. `where`: source line of its first call. `behind`: executor of single calls.
    `quick`: at most one fast caller of that executor.
    """

    instance: Instance
    form: CallForm
    where: Location
    behind: Executor
    quick: list[Caller] = field(default_factory=list)

    def run(self, values: _Values) -> None:
        """Runs one call by the executor behind, as without plan replay."""
        if self.quick and not self.behind.waits and self.quick[0](*values):
            return
        ir = self.instance.ir
        n = len(ir.arrays)
        arrays = {p.name: x for p, x in zip(ir.arrays, values[:n], strict=True)}
        scalars = {p.name: x for p, x in zip(ir.scalars, values[n:], strict=True)}
        call = KernelCall(self.instance, arrays, scalars, self.where)
        self.behind.run(call)
        caller = None if self.quick else self.behind.caller(call)
        if caller is not None:
            self.quick.append(caller)


_Held = tuple[_Kernel, _Values]  # a call that waits


@dataclass(eq=False)
class StoredPlan:
    """The stored implementation of a sequence, and the texts of its kernels."""

    best: Best
    n_runs: int = 0
    n_met: int = 0  # calls of the longest part of it that was met
    n_missed: int = 0  # runs of its kernels, since active cells had changed lately
    is_usable: bool = True

    def __post_init__(self) -> None:
        stored = self.best.file.stored
        recording = stored.recorded()
        self.calls: tuple[Call, ...] = tuple(recording.calls_in_order())
        self.trees = recording.trees
        counters = [t.arrays["counters"] for t in self.trees if t.tree.name in recording.assumed]
        self.assumed = AssumedByFields(counters, recording.n_assumed_runs)
        self.work = tree_work(recording)
        self.work_alone = tree_work_alone(recording)
        places = {t.tree.name: t.fields for t in self.trees}
        kernels = {(id(c.ir), id(c.logical)): c for c in recording.calls}
        found = {key: form_of(c.ir, c.logical, places.__getitem__) for key, c in kernels.items()}
        self.forms = [found[id(c.ir), id(c.logical)] for c in self.calls]
        self.kernels = [form.text for form in self.forms]
        self.parameters = [p.name for p in stored.parameters]
        self.scalars = {p.name: p.dtype for p in recording.scalars}
        constant = next((p.name for p in stored.parameters if p.kind == "constant"), "")
        used = {name for call in recording.calls for name in call.arrays}
        why = (
            f"its argument {constant} is a constant"
            if constant
            else "an array ends a repeat of it"
            if recording.ending
            else "it makes temporaries"
            if len(recording.temps) > len(recording.unseen)
            else "no kernel takes some of its arrays"
            if used != {a.name for a in (*recording.arrays, *recording.temps)}
            else ""
        )
        if why:
            raise LanguageError(
                f"a program cannot replay {self.name}, since {why}: call ks.replay({str(self.best.place)!r})"
            )

    @property
    def name(self) -> str:
        return self.best.file.sequence

    @cached_property
    def tuned(self) -> Tuned:
        return self.best.compile_for_program()


@dataclass
class _Match:
    """A partial match: the first `n` calls of a stored sequence, with the fields and numbers bound to its parameters.

    `trees`: for each tree of the sequence one of the program. `fields`: for each sparse field of the sequence, by tree and number,
    its number in the program's tree.
    """

    sequence: StoredPlan
    n: int = 0
    arrays: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    trees: dict[str, Structure] = field(default_factory=dict)
    fields: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return self.n == len(self.sequence.calls)

    def goes_on(self, held: _Held) -> bool:
        """True if this call is the next one of the sequence; the match then advances past it."""
        s, (kernel, values) = self.sequence, held
        if kernel.form.text != s.kernels[self.n]:
            return False
        call = s.calls[self.n]
        if not self._binds(call, s.forms[self.n], held):
            return False
        numbers = values[len(kernel.instance.ir.arrays) :]
        if not all(map(self._fits, call.scalars, numbers)):
            return False
        self.n += 1
        s.n_met = max(s.n_met, self.n)
        return True

    def _binds(self, call: Call, form: CallForm, held: _Held) -> bool:
        """True if the arrays, trees and fields of a call are those of the calls before, and no two of the sequence are one."""
        kernel, values = held
        own, structures = kernel.form, dict(kernel.instance.structures)
        for k, j in zip(form.arrays, own.arrays, strict=True):
            if self.arrays.setdefault(call.arrays[k], values[j]) is not values[j]:
                return False
        for tree, name in zip(form.trees, own.trees, strict=True):
            if self.trees.setdefault(tree, structures[name]) is not structures[name]:
                return False
        for (at, k), (_, number) in zip(form.fields, own.fields, strict=True):
            if self.fields.setdefault((form.trees[at], k), number) != number:
                return False
        bound = (*map(id, self.arrays.values()), *map(id, self.trees.values()))
        fields = {(tree, number) for (tree, _), number in self.fields.items()}
        return len({*bound}) == len(bound) and len(fields) == len(self.fields)

    def bound(self) -> dict[str, Any]:
        """Returns the arrays of a whole match by name, those of trees too."""
        found = dict(self.arrays)
        for used in self.sequence.trees:
            structure = self.trees[used.tree.name]
            numbers = self._numbers(used, structure)
            for key, name in used.sections:
                is_field = key.startswith(_FIELD)
                own = f"{_FIELD}{numbers[int(key.removeprefix(_FIELD))]}" if is_field else key
                found[name] = structure.memory.arrays[own]
        return found

    def _numbers(self, used: UsedTree, structure: Structure) -> dict[int, int]:
        """Returns for each field of a tree its number in the program's tree; those that no call names have equal places."""
        tree, places = used.tree.name, structure.layout.fields
        numbers = {k: number for (name, k), number in self.fields.items() if name == tree}
        left = [j for j in range(len(places)) if j not in numbers.values()]
        for k in (k for k in range(len(used.fields)) if k not in numbers):
            numbers[k] = next(j for j in left if places[j] == used.fields[k])
            left.remove(numbers[k])
        return numbers

    def _fits(self, expected: Expr, value: Any) -> bool:
        plain = expected
        while isinstance(plain, Cast):
            plain = plain.x
        if isinstance(plain, Param):
            if isinstance(expected, Cast) and not _survives(value, plain, expected):
                return False
            known = self.scalars.setdefault(plain.name, value)
            return known is value or (type(known) is type(value) and is_same_number(known, value))
        if isinstance(plain, Const) and plain is expected:
            return is_same_number(expected.dtype.numpy.type(value), expected.value)
        numbers = {n: self.sequence.scalars[n].numpy.type(x) for n, x in self.scalars.items()}
        try:
            wanted = evaluate_scalar(expected, numbers)
        except KeyError:  # of a number that no call before had by itself
            return False
        return is_same_number(expected.dtype.numpy.type(value), wanted)

    def prepared(self, arrays: Mapping[str, Any]) -> Callable[[], object]:
        """Returns a function that runs the stored implementation on the bound numbers and `arrays`.

        For an index out of range it raises IndexError before anything is written.
        """
        s = self.sequence
        zeros = {name: dtype.numpy.type(0).item() for name, dtype in s.scalars.items()}
        given = {**zeros, **self.scalars, **arrays}
        run = partial(s.tuned, *(given[name] for name in s.parameters))
        claims = [
            (memoryview(given[t.arrays["counters"]][-1]), t.tree)
            for t in s.trees
            if "counters" in t.arrays
        ]
        return partial(_claimed, s.name, run, claims) if claims else run


def _survives(value: Any, parameter: Param, expected: Cast) -> bool:
    """True if a number that a kernel is given is the same after it was held by a parameter, perhaps of a narrower type."""
    try:
        with np.errstate(all="ignore"):
            held = parameter.dtype.numpy.type(value)
            wanted = expected.dtype.numpy.type(value)
    except (OverflowError, ValueError):  # an integer's type has no such number
        return False
    return is_same_number(evaluate_scalar(expected, {parameter.name: held}), wanted)


def _claimed(
    name: str, run: Callable[[], object], claims: Sequence[tuple[Any, StructureTree]]
) -> None:
    """Runs an implementation on sparse fields.

    Raises KernelAssertionError if counters of a tree show stores outside of it or to a full node.
    """
    run()
    if not any(of_tree[OUTSIDE] or of_tree[FULL] for of_tree, _ in claims):
        return
    said = [
        OUTSIDE_TEXT if of_tree[OUTSIDE] else full_text(tree)
        for of_tree, tree in claims
        if of_tree[OUTSIDE] or of_tree[FULL]
    ]
    for of_tree, _ in claims:
        for k in range(len(of_tree)):
            of_tree[k] = 0
    raise KernelAssertionError(f"{name}: {said[0]}")


@dataclass(slots=True, eq=False)
class SequenceRun:
    """A complete sequence: its deferred calls, and the function that runs its implementation in their place.

    `arrays`: those that it runs on, by name. `behind`: the sequence that ran after it when it ran last.
    """

    sequence: StoredPlan
    calls: tuple[_Held, ...]
    run: Callable[[], object]
    arrays: Mapping[str, Any]
    called: list[tuple[object, _Values]]  # kernels and arguments of the calls; None: not known
    assumed: AssumedCells | None = None
    behind: SequenceRun | None = None


class Follower(AbstractDeferringExecutor):
    """Executor that replays stored implementations of sequences; all other calls go to the executor `behind`.

    Of two sequences that end with the same call the first in the list is replayed. Programs repeat themselves: a sequence is
    expected that ran behind the last one before. While calls are its, with the same objects, nothing else is compared. `execute`
    runs a complete sequence (default: its `run`), and returns False if its kernels ran instead.
    """

    behind: Executor

    def __init__(
        self,
        sequences: Sequence[StoredPlan],
        behind: Executor,
        execute: Callable[[SequenceRun], bool] | None = None,
    ) -> None:
        self._execute = execute or _execute
        self._sequences, self.behind = list(sequences), behind
        self._known = {text for s in sequences for text in s.kernels}
        self._first = {s.kernels[0] for s in sequences}
        # None: of a kernel that no sequence calls
        self._callers = ByIdentity[KernelIR, tuple[Caller | None]]()
        self._held: list[_Held] = []
        self._matches: list[_Match] = []
        self._last: SequenceRun | None = None
        self._expected: SequenceRun | None = None
        self._runs: dict[tuple[int, ...], SequenceRun] = {}  # by identity of plan and arguments
        self._repeats = (
            True  # held calls are the first of `_expected`, `_matches` is not maintained
        )
        self._credit = _MOST_CREDIT  # calls that may be offered again
        self._lock = threading.RLock()
        self._stats = Stats()
        _followers.add(self)

    @property
    def stats(self) -> Stats:
        """Counts of the sequences that ran as they were found, and of the executor behind."""
        behind: Stats | None = getattr(self.behind, "stats", None)
        return self._stats if behind is None else behind.plus(self._stats)

    def run(self, call: KernelCall) -> Any:
        take = self.deferring(call)
        if take is None:
            self._release_own()
            return self.behind.run(call)
        arrays, scalars = lowered_call(call).in_order
        take(*arrays, *scalars)
        return None

    def caller(self, call: KernelCall) -> Caller | None:
        return self.behind.caller(call)

    def deferring(self, call: KernelCall) -> Caller | None:
        instance = lowered(call.instance)
        ir = instance.ir
        own = {name for name, x in instance.fields if not x.is_lent}
        if not all(a.name in own for a in ir.arrays):
            return None  # its arrays must be fields that nobody else sees
        found = self._callers.get(ir)
        if found is None:
            trees = dict(instance.structures)
            form = form_of(ir, instance.logical, lambda name: trees[name].layout.fields)
            kernel = _Kernel(instance, form, call.where, self.behind)
            caller = partial(self._take, kernel) if form.text in self._known else None
            found = self._callers.setdefault(ir, (caller,))
        return found[0]

    def again(self, kernel: object, args: _Values) -> bool:
        with self._lock:
            held, whole = self._held, self._expected
            if whole is None or not self._repeats:
                return False
            expected, known = whole.called[len(held)]
            if kernel is not expected or not all(map(is_, args, known)):
                return False
            held.append(whole.calls[len(held)])
            if len(held) == len(whole.calls):
                self._run(whole)
            return True

    def _take(
        self,
        held_as: _Kernel,
        *values: Any,
        kernel: object = None,
        args: _Values = (),
        numbers: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """Defers a call if it may belong to a stored sequence; otherwise runs the deferred calls and then this one."""
        with self._lock:
            held, whole = self._held, self._expected
            if self._repeats and whole is not None:
                expected, known = whole.calls[len(held)]
                if held_as is expected and all(map(is_, values, known)):
                    if kernel is not None:
                        whole.called[len(held)] = kernel, args
                    held.append((held_as, known))
                    if len(held) == len(whole.calls):
                        self._run(whole)
                    return True
            self._offer((held_as, values))
            return True

    def _offer(self, call: _Held) -> None:
        """Defers a call behind the deferred ones if some sequence goes on with it.

        Else the first of them runs by itself, and the others are offered again: a sequence may begin with a later one. Where that
        was so often of late that calls would cost more and more, all but the last one run.
        """
        if self._credit < _MOST_CREDIT:
            self._credit += _CREDIT_OF_A_CALL
        offered = deque((call,))
        while offered:
            kernel, values = call = offered.popleft()
            if (self._held or kernel.form.text in self._first) and self._goes_on(call):
                continue
            if not (self._held or offered):
                self._repeats = True  # nothing is deferred
                kernel.run(values)
                return
            waiting = (*self._held, call, *offered)
            n_again = len(waiting) - 1
            n_run = 1 if self._credit >= n_again else n_again
            if n_run == 1:
                self._credit -= n_again
            offered = deque(waiting[n_run:])
            self._forget()  # an error drops what is left
            run_each(waiting[:n_run])

    def _goes_on(self, held: _Held) -> bool:
        """True if some stored sequence begins with the deferred calls and this one.

        The call is then deferred, or it was the last one and the sequence has run.
        """
        if self._repeats:
            self._repeats = False
            self._matches = [_Match(s) for s in self._sequences if s.is_usable]
            for before in self._held:
                self._matches = [m for m in self._matches if m.goes_on(before)]
        self._matches = [m for m in self._matches if m.goes_on(held)]
        if not self._matches:
            return False
        self._held.append(held)
        whole = next((m for m in self._matches if m.is_whole), None)
        if whole is not None:
            try:
                run = self._run_of(whole)
            except UNUSABLE as e:
                whole.sequence.is_usable = False
                _warn(f"{whole.sequence.name} runs kernel by kernel: {e}")
                self._release_own()
                return True
            self._run(run)
        return True

    def _run_of(self, whole: _Match) -> SequenceRun:
        """Returns the run of a whole match on the deferred calls: that of equal arguments, if there was one."""
        sequence, held = whole.sequence, self._held
        key = (id(sequence), *(id(x) for kernel, values in held for x in (kernel, *values)))
        found = self._runs.get(key)
        if found is None:
            arrays = whole.bound()
            run, assumed = whole.prepared(arrays), sequence.assumed
            called: list[tuple[object, _Values]] = [(None, ())] * len(held)
            cells = assumed.of(arrays, sequence.tuned.written)
            found = SequenceRun(sequence, tuple(held), run, arrays, called, cells)
            if len(self._runs) >= _MOST_RUNS:
                self._runs.clear()
            self._runs[key] = found
        return found

    def _run(self, whole: SequenceRun) -> None:
        self._forget()  # however the run ends: what it has begun must not run again
        self.behind.release()
        assumed = whole.assumed
        if assumed is not None and not assumed.hold:
            self._run_kernels(whole, assumed)
            return
        if assumed is not None:
            assumed.begin_plan()
        try:
            is_planned = self._execute(whole)
        except IndexError:  # nothing was written: the kernel that is wrong says so itself
            run_each(whole.calls)
            return
        if assumed is not None:
            assumed.end_plan()
        sequence = whole.sequence
        sequence.n_runs += 1
        if is_planned:
            self._stats.note_found(len(whole.calls), sequence.work, sequence.work_alone)
        self._expect_behind(whole)

    def _run_kernels(self, whole: SequenceRun, assumed: AssumedCells) -> None:
        """Runs a sequence kernel by kernel, which makes true what its implementation assumes."""
        whole.sequence.n_missed += 1
        assumed.begin()
        run_each(whole.calls)
        self.behind.release()
        assumed.end()
        self._expect_behind(whole)

    def _expect_behind(self, whole: SequenceRun) -> None:
        """Expects the sequence that ran behind `whole` when it ran before; at first, itself."""
        if self._last is not None:
            self._last.behind = whole
        self._last, self._expected = whole, whole.behind or whole

    @property
    def waits(self) -> bool:
        return bool(self._held) or self.behind.waits

    def give_way(self) -> bool:
        self._release_own()
        return not self.behind.waits or self.behind.give_way()

    def release(self) -> None:
        self._release_own()
        self.behind.release()

    def lend(self, array: Any) -> DeviceMemory | None:
        self._release_own()
        behind = self.behind
        return behind.lend(array) if isinstance(behind, AbstractDeferringExecutor) else None

    def publish(self) -> None:
        if isinstance(self.behind, AbstractDeferringExecutor):
            self.behind.publish()

    def _release_own(self) -> None:
        """Runs the deferred calls one by one by the executor behind."""
        with self._lock:
            held = self._held
            self._forget()
            run_each(held)

    def outdate(self) -> None:
        with self._lock:
            self._last = self._expected = None
            self._runs.clear()
            for s in self._sequences:
                s.assumed.clear()

    def go_on_in_child(self) -> None:
        """Makes a new lock in a child of fork(): the thread that held the old one may not exist there."""
        self._lock = threading.RLock()

    def _forget(self) -> None:
        self._held, self._matches, self._repeats = [], [], True

    def end(self) -> None:
        atexit.unregister(self.end)
        self.release()
        for s in self._sequences:
            has_failed = s.n_met == len(s.calls) and not s.n_missed  # with an error
            if s.n_runs == 0 and not has_failed and s.is_usable:
                _warn(f"what was found for {s.name} was never run: {_why(s)}")
        self._sequences, self._last, self._expected = [], None, None
        self._runs.clear()


def _execute(whole: SequenceRun) -> bool:
    whole.run()
    return True


def run_each(held: Iterable[_Held]) -> None:
    """Runs deferred calls one by one, as without plan replay."""
    for kernel, values in held:
        kernel.run(values)


_followers: weakref.WeakSet[Follower] = weakref.WeakSet()


def _go_on_in_child() -> None:
    for follower in tuple(_followers):
        follower.go_on_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)


def _why(s: StoredPlan) -> str:
    if s.n_missed:
        n_runs = s.assumed.n_runs
        before = "a run" if n_runs == 1 else f"{n_runs} runs in a row"
        times = "was one run" if s.n_missed == 1 else f"were {s.n_missed} runs"
        since = "had changed" if n_runs == 1 else "had lately changed"
        return f"it assumes the active cells of {before} before, and " + (
            f"they {since} at each of {s.n_missed} runs"
            if s.n_missed > n_runs
            else f"there {times} only"
        )
    names = [call.ir.name for call in s.calls]
    if s.n_met == 0:
        return (
            f"the program never called its kernel {names[0]} with fields of these types and shapes"
        )
    return f"after its first {s.n_met} of {len(names)} calls the program never went on with {names[s.n_met]}"


def follow(decisions: object, behind: Executor) -> Follower | None:
    """Returns an executor that replays the implementations named by `ks.init(decisions=...)`.

    `behind` runs all other calls; with True, windows of calls run components of the tuned store. None if no implementation is
    usable. Each unusable one gives a warning.
    """
    sequences = _of_store(behind) if decisions is True else plans_of(decisions)
    if not sequences:
        return None
    follower = Follower(sequences, behind)
    atexit.register(follower.end)
    return follower


def plans_of(decisions: object) -> list[StoredPlan]:
    """Returns the plans in files: a best.json, a run's folder, a program.json or its folder.

    Each unusable file gives a warning.
    """
    given = decisions if isinstance(decisions, list | tuple) else [decisions]
    sequences = []
    for path in _with_windows(given):
        if not isinstance(path, str | Path):
            _warn(f"{path!r:.60} is no best.json, no directory of a run, and not True")
            continue
        try:
            sequence = StoredPlan(load(path))
            assert sequence.tuned is not None  # a file that cannot be used says so at once
        except UNUSABLE as e:
            _warn(f"{str(path)!r:.200} is not used: {sentence_of(e)}")
        else:
            sequences.append(sequence)
    return sequences


def _with_windows(given: Iterable[object]) -> Iterator[object]:
    """Yields the given paths; the path of a program is replaced by those of its windows' best implementations."""
    for path in given:
        try:
            yield from bests_of(Path(path)) if isinstance(path, str | Path) else (path,)
        except (RecordError, OSError, ValueError) as e:
            _warn(f"{str(path)!r:.200} is not used: {e}")


def _of_store(behind: Executor) -> list[StoredPlan]:
    """Returns the plans of the tuned store for functions of the running script, on this machine's CPU.

    Windows of calls get the store's components.
    """
    file = Path(str(getattr(sys.modules["__main__"], "__file__", "") or ""))
    components: dict[str, list[int]] = {}
    try:
        machine = take_conditions().machine
        with TunedStore() as store:
            found = store.of_file(file.stem, machine)
            if isinstance(behind, PlannedWindow):
                components = store.components(machine)
    except (RecordError, OSError) as e:
        _warn(f"the tuned store is not used: {sentence_of(e)}")
        return []
    if isinstance(behind, PlannedWindow) and components:
        behind.plans.stored = StoredComponents(components)
    sequences = []
    for best in found:
        try:
            if isinstance(best, RecordError):
                raise best
            sequences.append(StoredPlan(Best(best, open_device(best.target, DeviceOptions()))))
        except UNUSABLE as e:
            _warn(sentence_of(e))
    if not found and not components:
        _warn(
            f"the tuned store has nothing for {file.name or 'this program'} on this machine: run"
            f" `explore run {file.name or 'FILE.py'}:FUNCTION`"
        )
    return sequences


def _warn(sentence: str) -> None:
    warnings.warn(f"ks.init(decisions=...): {sentence}", RuntimeWarning, stacklevel=2)
