"""Stored components: implementations of parts of windows, found by the content of their calls.

A component of the tuned store holds some consecutive calls of a searched sequence, and the decisions about them. A window that
makes the same calls runs that implementation for them, though the window itself was never searched.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import copysign
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.fields.canonical_state import canonical, inspected
from ...kernels.fields.program import current_program
from ...kernels.frontend.recorder import Recording
from ...kernels.ir.kernel import Assert, Cast, Const, DType, Expr, KernelIR, Param, Print
from ...kernels.ir.walk import nested_statements, written_in
from ...kernels.sparse.layout import CHANGED
from ...kernels.sparse.naming import node_text
from ...kernels.sparse.pools import failures
from ...kernels.sparse.recorded import UsedTree
from ..device import DeviceOptions, open_device
from ..records.loading import check_best
from ..records.record import RecordError
from ..records.replay import dialect_of, open_tuned, rebuild
from ..records.store import TunedStore
from ..records.unusable import UNUSABLE, sentence_of
from ..worker.verify import first_difference
from .component_keys import (
    MOST_CALLS,
    content_of,
    key_of,
    key_of_recording,
    keyed_window,
    n_calls_of,
)

if TYPE_CHECKING:
    from ...kernels.sparse.recorded import WindowCall
    from ...kernels.sparse.redundancy import Derived

N_CHECKED = 3  # runs that are compared
Array = NDArray[Any]


def plain_scalar(x: Expr) -> Param | Const | None:
    """Returns the number or the parameter that a scalar argument of a call is; None for any other expression.

    A converted parameter is one if it can hold every number of the kernel's type: keys have no types of parameters.
    """
    expr = x
    while isinstance(expr, Cast):
        if not _holds(expr.x, expr.dtype):
            return None
        expr = expr.x
    if isinstance(expr, Const):
        return expr if expr is x else None
    return expr if isinstance(expr, Param) else None


_DIGITS = {DType.f16: 11, DType.f32: 24, DType.f64: 53}  # binary, of a float


def _holds(x: Expr, dtype: DType) -> bool:
    """True if the type of a parameter, converted or not, has every number of `dtype`."""
    if not isinstance(x, Cast | Param):
        return False
    if dtype.is_integer and x.dtype.is_float:  # can_cast lets 64 bits be rounded to f64
        return 8 * dtype.size_bytes <= _DIGITS[x.dtype]
    return np.can_cast(dtype.numpy, x.dtype.numpy, "safe")


def is_same_number(a: Any, b: Any) -> bool:
    """True if two numbers are equal; -0.0 differs from 0.0."""
    return bool(a == b) and (a != 0 or copysign(1, a) == copysign(1, b))


@dataclass(frozen=True)
class Claim:
    """Record of writes to a tree that stored code could not make, in the last row of the window's array number `counters`.

    `messages`: errors of the kernel, by the column that records them.
    """

    counters: int
    messages: tuple[str, ...]


@dataclass(eq=False)
class FoundPart:
    """Stored implementation for some calls of a window.

    `arrays`: numbers of the window's arrays in the order of its parameters. `scalars`: positions of its numbers among those of all
    calls. `constants`: numbers that the code contains. `equal`: positions that must hold the same number. `written`: the numbers of
    the arrays that the calls or the implementation write. `names`: those of `arrays` in the component. `n_checked`: its runs that
    were compared with the kernels of the calls. `claims`: records of what its last call could not do; the others cannot fail.
    """

    calls: range
    stored: StoredComponent
    arrays: tuple[int, ...]
    scalars: tuple[int, ...]
    constants: tuple[tuple[int, Const], ...]
    equal: tuple[tuple[int, int], ...]
    written: tuple[int, ...]
    names: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    n_checked: int = 0

    @property
    def is_checked(self) -> bool:
        """True if enough of its runs were compared."""
        return self.n_checked >= N_CHECKED

    def takes(self, numbers: Sequence[Any]) -> bool:
        """True if the implementation is for these numbers."""
        return all(
            is_same_number(x.dtype.numpy.type(numbers[k]), x.value) for k, x in self.constants
        ) and all(is_same_number(numbers[a], numbers[b]) for a, b in self.equal)

    def compare(self, got: Mapping[int, Array], wanted: Mapping[int, Array]) -> None:
        """Counts a run, with the contents of arrays by number behind it, and behind the kernels of the calls.

        Of a component on sparse fields these are all arrays, of others those that are `written`.
        """
        self.n_checked += 1
        trees = self.stored.recording.trees
        own = dict(zip(self.arrays, self.names, strict=True)) if trees else {}
        found, expected = (
            {own.get(n, f"array {n}"): x for n, x in contents.items()} for contents in (got, wanted)
        )
        try:
            why = disagreement(trees, found, expected) or _outdated(trees, found, expected)
        except (
            LookupError,
            ValueError,
            OverflowError,
            MemoryError,
        ) as e:  # of tables that are torn
            why = f"{type(e).__name__}: {e}"
        if why:
            self.refuse(why)

    def refuse(self, why: str) -> None:
        """Makes no window use its component from now on; `why` is a sentence."""
        self.stored.refusal = self.stored.refusal or why


@dataclass(eq=False)
class StoredComponent:
    """A component of the tuned store, compiled. `n_launches` are those of its code; `refusal` says why no window may use it.

    `caller` runs it on arrays and numbers in the order of `parameters`. It returns False, without effect, if they do not fit.
    `written`: names of the arrays that it may write.
    """

    recording: Recording
    parameters: tuple[str, ...]
    caller: Callable[..., bool]
    n_launches: int
    written: frozenset[str] = frozenset()
    refusal: str = ""

    def part(self, calls: Sequence[WindowCall], at: range, first_scalar: int) -> FoundPart:
        """Returns the implementation bound to the calls `at` of a window, whose scalars begin at position `first_scalar`."""
        arrays: dict[str, int] = {}
        scalars: dict[str, int] = {}
        constants, equal = list[tuple[int, Const]](), list[tuple[int, int]]()
        position = first_scalar
        for k, call in zip(at, self.recording.calls, strict=True):
            arrays.update(zip(call.arrays, calls[k].arrays, strict=True))
            for x in map(plain_scalar, call.scalars):
                if isinstance(x, Const):
                    constants.append((position, x))
                elif x is not None and scalars.setdefault(x.name, position) != position:
                    equal.append((scalars[x.name], position))
                position += 1
        own = {arrays[name] for name in self.written if name in arrays}  # others are its own
        return FoundPart(
            at,
            self,
            tuple(arrays[name] for name in self.parameters if name in arrays),
            tuple(scalars[name] for name in self.parameters if name in scalars),
            tuple(constants),
            tuple(equal),
            tuple(sorted({n for k in at for n in _written_by(calls[k])} | own)),
            tuple(name for name in self.parameters if name in arrays),
            tuple(_claims_of(calls[at[-1]])),
        )


def _asserts(ir: KernelIR) -> bool:
    return any(isinstance(s, Assert) for s in nested_statements(ir.body))


def _claims_of(call: WindowCall) -> Iterator[Claim]:
    """Yields the records of writes that a call could not make, in the order of its assertions about them."""
    logical = call.logical
    if logical is None or not _asserts(call.ir):
        return
    numbers = {p.name: n for p, n in zip(call.ir.arrays, call.arrays, strict=True)}
    trees = {layout.tree.name: layout.tree for _, layout in call.trees}
    for tree, array in sorted(
        (tree, array) for array, tree, key in logical.sections if key == "counters"
    ):
        found = failures(call.ir.name, trees[tree])
        yield Claim(numbers[array], tuple(f"{call.ir.where}: {text}" for text in found))


def _is_told(calls: Sequence[WindowCall], derived: Sequence[Derived | None]) -> bool:
    """True if stored code of these calls tells the error that one of them ends with, where nothing behind it has run.

    It has no assertions: it records that cells had no room, or were outside, and goes on. So only the last call may fail, and only
    by making cells active.
    """
    stated = (c.ir if c.logical is None else c.logical.ir for c in calls)
    return not any(map(_asserts, stated)) and not any(x and any(x.left) for x in derived[:-1])


def _written_by(call: WindowCall) -> Iterator[int]:
    """Yields the numbers of the arrays that a call writes."""
    written = written_in(call.ir.body)
    return (n for p, n in zip(call.ir.arrays, call.arrays, strict=True) if p.name in written)


def disagreement(
    trees: Sequence[UsedTree], got: Mapping[str, Array], wanted: Mapping[str, Array]
) -> str:
    """Returns a sentence on the first array of `got` that differs from `wanted`; "" if all agree.

    Arrays of `trees` are compared in their canonical form.
    """
    found, wrong = inspected(trees, got)
    if wrong:
        return wrong
    expected = canonical(trees, wanted)
    for name, want in expected.items():
        x = found[name]
        if x.shape != want.shape:
            return f"{name}: {x.shape[-1]} cells are active, {want.shape[-1]} should be"
    return first_difference(found, expected)


def _outdated(
    trees: Sequence[UsedTree], got: Mapping[str, Array], wanted: Mapping[str, Array]
) -> str:
    """Returns a sentence on the first list that is up to date in `wanted`, not in `got`; "" if there is none.

    Later calls of a window may use it as it is.
    """
    for used in (x for x in trees if "counters" in x.arrays):
        name = used.arrays["counters"]
        for node in range(len(used.tree.nodes)):
            if got[name][node, CHANGED] > 0 >= wanted[name][node, CHANGED]:
                return f"the list of {node_text(used.tree, node)} is not up to date"
    return ""


def why_no_part(recording: Recording) -> str:
    """Returns the reason why a stored sequence cannot be part of a window; "" if it can."""
    if recording.temps:
        return "it has temporaries"
    return why_not_stored(recording)


def why_not_stored(recording: Recording) -> str:
    """Returns the reason why a sequence is no component of another one; "" if it can be one."""
    if recording.repeats or len(recording.calls) > MOST_CALLS:
        return "it has repeats or too many calls"
    if any(plain_scalar(x) is None for call in recording.calls for x in call.scalars):
        return "its kernels take numbers that it computes or rounds"
    statements = (s for call in recording.calls for s in nested_statements(call.ir.body))
    if any(isinstance(s, Print) for s in statements):
        return "its kernels print"
    return ""


@dataclass(eq=False)
class StoredComponents:
    """The components of the tuned store for this machine; `rows` are their numbers in the store by key, both the best first."""

    rows: Mapping[str, Sequence[int]]
    _known: dict[str, StoredComponent | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _why: str = ""
    _has_warned: bool = False

    def __post_init__(self) -> None:
        self._lengths = sorted({n_calls_of(key) for key in self.rows} - {0}, reverse=True)
        self._keys: dict[str, list[tuple[frozenset[str], str]]] = {}  # by content, with facts
        for key in self.rows:
            content, facts = content_of(key)
            self._keys.setdefault(content, []).append((facts, key))
        for some in self._keys.values():
            some.sort(key=lambda x: -len(x[0]))

    def in_child(self) -> StoredComponents:
        """Returns the same components for a child of fork(), whose parent's threads may have held the lock."""
        return StoredComponents(self.rows)

    def parts(
        self,
        calls: Sequence[WindowCall],
        derived: Sequence[Derived | None],
        left_out: frozenset[range] = frozenset(),
    ) -> list[FoundPart]:
        """Returns implementations for calls of a window, in order; those of most calls win, then the earliest.

        `derived`: the redundant operations of each call, of which its implementation leaves out some or all. It builds them. What
        cannot be used is left out, with one warning for all: it has no effect on other calls. So are the ranges `left_out`.
        """
        keyed = keyed_window(calls, derived)
        firsts = list(accumulate((len(c.ir.scalars) for c in calls), initial=0))
        is_free = [True] * len(calls)
        found = []
        for n in self._lengths:
            for k in range(len(calls) - n + 1):
                at = range(k, k + n)
                if not all(is_free[k : k + n]) or at in left_out:
                    continue
                keys = self._fitting(key_of(keyed[k : k + n]))
                if not keys or not _is_told(calls[k : k + n], derived[k : k + n]):
                    continue
                parts = (self._part(key, calls, at, firsts[k]) for key in keys)
                part = next((x for x in parts if x is not None), None)
                if part is not None:
                    found.append(part)
                    is_free[k : k + n] = [False] * n
        return sorted(found, key=lambda x: x.calls.start)

    def _fitting(self, key: str) -> list[str]:
        """Returns the keys of components of calls with this key, those that use most facts first; all of these hold there."""
        content, facts = content_of(key)
        return [key for used, key in self._keys.get(content, ()) if used <= facts]

    def _part(
        self, key: str, calls: Sequence[WindowCall], at: range, first_scalar: int
    ) -> FoundPart | None:
        component = self._component(key)
        if component is None:
            return None
        if component.refusal:
            name = component.recording.name
            self._why = self._why or f", of {name}, is not used: {component.refusal}"
            return None
        return component.part(calls, at, first_scalar)

    def _component(self, key: str) -> StoredComponent | None:
        if key not in self.rows:
            return None
        with self._lock:
            if key not in self._known:
                usable = (x for x in self._usable(key) if x is not None)
                self._known[key] = next(usable, None)
            return self._known[key]

    def _usable(self, key: str) -> Iterator[StoredComponent | None]:
        for number in self.rows[key]:
            try:
                yield _opened(number, key)
            except UNUSABLE as e:
                self._why = self._why or f" is not used: {sentence_of(e)}"
            except Exception as e:  # whatever is stored: its calls run by default
                self._why = self._why or f" is not used: {type(e).__name__}: {e}"

    def warn(self) -> None:
        """Warns of the first component that cannot be used, once."""
        if self._why and not self._has_warned:
            self._has_warned = True
            sentence = f"a component of the tuned store{self._why}"
            warnings.warn(f"ks.init(decisions=...): {sentence}", RuntimeWarning, stacklevel=2)


def _opened(number: int, key: str) -> StoredComponent | None:
    """Returns a row of the tuned store, compiled. Raises one of `UNUSABLE`.

    None if it converts parts of trees. It would do so in each run, and its time may be without that.
    """
    from ...codegen.plan.candidates import plan_of

    with TunedStore() as store:
        best, name = store.read_component(number), store.name
    where = f"row {number} of {name}"
    check_best(where, best)
    if best.target != "cpu":
        raise RecordError(f"{where} is for {best.target:.40}, not for cpu")
    most = threads_at_most()
    if most and not 0 < best.threads <= most:
        raise RecordError(f"{where} takes more threads than the {most} of the program")
    device = open_device(best.target, DeviceOptions())
    rebuilt = rebuild(best, device.machine.facts(), dialect_of(device))
    why = why_no_part(rebuilt.recording)
    if why:
        raise RecordError(f"{where} cannot be part of a window: {why}")
    if key_of_recording(rebuilt.recording) != key:
        raise RecordError(f"{where} has other calls than its key says")
    names = tuple(p.name for p in best.stored.parameters)
    used = {p.name for p in rebuilt.recording.arrays}
    used |= {p.name for p in rebuilt.recording.scalars}
    if len(names) != len(used) or set(names) != used:
        raise RecordError(f"{where} has other parameters than its calls")
    plan = plan_of(rebuilt.candidate)
    if plan.problem.entering or plan.problem.leaving:
        return None
    tuned = open_tuned(best, rebuilt, device, is_assured=True)
    if tuned.caller is None:
        raise RecordError(f"{where} needs a compiled caller, which this machine does not have")
    n_launches = len(plan.launches)
    return StoredComponent(rebuilt.recording, names, tuned.caller, n_launches, tuned.written)


def threads_at_most() -> int:
    """Returns the program's limit of threads for a kernel (`cpu_max_num_threads`); 0: none."""
    program = current_program()
    return 0 if program is None else program.config.cpu_max_num_threads
