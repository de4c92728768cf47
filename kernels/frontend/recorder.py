"""Recording of kernel sequences: runs a Python function that calls kernels, and stores the calls in order."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..fields.dlpack import hands_out, shared_array
from ..fields.host_access import record_into, settle
from ..fields.ndarray import Ndarray
from ..ir.kernel import ArrayParam, DType, Expr, KernelIR, Location, Param
from ..ir.repeats import Ended, Repeat, fold, times, with_steps
from ..ir.rewrites import rewrites_named
from ..ir.simplify import cast, const
from ..sparse.recorded import Logical, UsedTree
from .annotations import resolve_annotation
from .complex_numbers import complex_annotation, complex_dtype, is_complex_array, pairs_of
from .dispatch import Executor, chosen, using
from .errors import LanguageError
from .host_kernels import RecordedAccesses
from .induction_scalars import at_steps, by_form, growing, uses_steps
from .instance import KernelCall
from .intrinsics import TemplateAnnotation, array_dtype
from .kernel import Kernel
from .lowering import lowered_call
from .parse import location_of
from .signature import array_argument, scalar_dtype
from .symbols import ComplexSymbol, SymbolicArray, SymbolicScalar

__all__ = ["Call", "LanguageError", "Recorder", "Recording", "ndarray", "record", "record_sequence"]


@dataclass(frozen=True)
class Call:
    """Kernel call of a recorded sequence.

    `arrays`: name of the sequence's array for each array parameter of `ir`. All differ: an array passed twice is one parameter of
    `ir`.
    `scalars`: expression for each scalar parameter of `ir`, over the sequence's scalars, or affine in step indices of repeats.
    """

    ir: KernelIR
    arrays: tuple[str, ...]
    scalars: tuple[Expr, ...]
    where: Location
    logical: Logical | None = None  # of a kernel on sparse fields, what `ir` was lowered from

    @cached_property
    def uses_steps(self) -> bool:
        """True if scalar arguments depend on the steps of enclosing repeats."""
        return uses_steps(self.scalars)

    def at(self, steps: Mapping[str, int]) -> Call:
        """Returns the call with the step index of each repeat replaced by the number `steps[name]`."""
        if not self.uses_steps:
            return self
        return replace(self, scalars=tuple(at_steps(e, steps) for e in self.scalars))


@dataclass(frozen=True)
class Recording:
    """Recorded sequence of kernel calls, in program order.

    `arrays` and `scalars` are its parameters in order, `temps` its temporary arrays. `repeats`: ranges of calls that run several
    times and are stored once, outer ones first. `unseen`: arrays of the caller that count as temporaries, since nobody reads them
    after the sequence. `assumed`: names of trees with lists and active cells as `n_assumed_runs` runs of the sequence in a row
    have left them (kernels/tasks/entry_facts.py). `left_out`: names of the derived rewrites that are not made.
    """

    name: str
    arrays: tuple[ArrayParam, ...]
    temps: tuple[ArrayParam, ...]
    scalars: tuple[Param, ...]
    calls: tuple[Call, ...]
    trees: tuple[UsedTree, ...] = ()  # of sparse fields
    repeats: tuple[Repeat, ...] = ()
    unseen: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    n_assumed_runs: int = 1
    left_out: tuple[str, ...] = ()

    def calls_in_order(self, is_set: Callable[[str], bool] | None = None) -> Iterator[Call]:
        """Yields all calls in order of execution; repeated calls have numbers in place of step indices.

        `is_set`: as in `with_steps`. Without it repeats run as many steps as they may.
        """
        for k, steps in with_steps(len(self.calls), self.repeats, is_set):
            yield self.calls[k].at(steps)

    def unrolled(self) -> Recording:
        """Returns the recording with all calls written out, without repeats and what ends them."""
        return replace(self, calls=tuple(self.calls_in_order()), repeats=())

    def with_unseen(self, names: Sequence[str]) -> Recording:
        """Returns the recording with these arrays as temporaries. LanguageError if a name is no array of it."""
        if isinstance(names, str) or not all(isinstance(n, str) for n in names):
            raise LanguageError(
                f"unseen= takes the names of arrays, such as ('energy',), not {names!r:.60}"
            )
        in_trees = {name for used in self.trees for _, name in used.sections}
        known = [p.name for p in self.arrays if p.name not in in_trees]
        for name in names:
            if name in in_trees:
                raise LanguageError(f"{name} cannot be unseen: it is part of a sparse field")
            if name not in known:
                raise LanguageError(
                    f"there is no array {name!r:.60} that could be unseen: {self.name} has {', '.join(known)}"
                )
        for name in names:
            if name in self.ending:
                raise LanguageError(f"{name} cannot be unseen: it ends a repeat")
        unseen = tuple(p for p in self.arrays if p.name in names)
        return replace(
            self,
            arrays=tuple(p for p in self.arrays if p.name not in names),
            temps=(*self.temps, *unseen),
            unseen=tuple(p.name for p in unseen),
        )

    def leaving_out(self, names: Sequence[str]) -> Recording:
        """Returns the recording without the derived rewrites of these names. LanguageError if there is no such rewrite."""
        return replace(self, left_out=rewrites_named(names))

    @property
    def ending(self) -> frozenset[str]:
        """Names of the arrays that end repeats."""
        return frozenset(r.until for r in self.repeats if r.until)

    @property
    def n_made(self) -> tuple[int, ...]:
        """Number of executions of each of `calls`, at most."""
        return times(len(self.calls), self.repeats)


class Recorder(Executor):
    """Executor that records calls instead of running them.

    The sequence's arrays are its parameters, temporaries, and (if `is_open`) NumPy arrays at their first use.
    """

    def __init__(self, is_open: bool) -> None:
        self._is_open = is_open
        self._made = array("q")  # the calls in order, each by its number in `_different`
        self._different: list[Call] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._arrays: list[ArrayParam] = []
        self._temps: list[ArrayParam] = []
        self._scalars: list[Param] = []
        self._seen: dict[str, np.ndarray[Any, Any]] = {}
        self.captured: dict[str, np.ndarray[Any, Any]] = {}  # fields of the program, as they come
        self._trees: dict[str, UsedTree] = {}
        self._own: set[int] = set()
        self._symbols: list[SymbolicArray] = []  # keeps ids in `_own` alive
        self._ended: list[Ended] = []
        self._is_in_ended = False
        self._left: Location | None = None  # the first of these repeats that did not run to its end

    @property
    def records(self) -> bool:
        return True

    @property
    def has_calls(self) -> bool:
        return bool(self._made)

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls recorded so far, in order; equal calls are the same object."""
        return tuple(self._different[k] for k in self._made)

    def recording(self, name: str) -> Recording:
        """Returns the recording, named `name`, of the calls so far, with repeats folded.

        LanguageError if the program has left a repeat that an array may end.
        """
        if self._left is not None:
            raise LanguageError(
                "a sequence leaves a ks.repeat before its last step: only the array until= ends it, "
                "since all other calls of a sequence are known before",
                self._left,
            )
        keys = zip(self._numbers, self._different, strict=True)
        forms, numbers = by_form([((*k[:2], k[3]), call.scalars) for k, call in keys])
        made = np.asarray(self._made, np.int64)
        folded = fold(forms[made], numbers=numbers[made], ended=self._ended)
        arrays, temps = tuple(self._arrays), tuple(self._temps)
        taken = {p.name for p in (*arrays, *temps)} | {p.name for p in self._scalars}
        free = (n for k in itertools.count() if (n := f"step{k}") not in taken)
        names = dict(zip(range(len(folded.repeats)), free, strict=False))
        calls = []
        for k, slopes in zip(folded.kept, folded.slopes, strict=True):
            call, growth = self._different[self._made[k]], {names[r]: x for r, x in slopes.items()}
            if growth:
                call = replace(call, scalars=growing(call.scalars, growth))
            calls.append(call)
        used = {r for slopes in folded.slopes for r in slopes}
        repeats = tuple(
            replace(r, index=names[k] if k in used else "") for k, r in enumerate(folded.repeats)
        )
        trees = tuple(self._trees.values())
        return Recording(name, arrays, temps, tuple(self._scalars), tuple(calls), trees, repeats)

    def add_array(self, name: str, value: np.ndarray[Any, Any], where: Location) -> SymbolicArray:
        """Adds a NumPy array as a parameter of the sequence.

        LanguageError if it shares memory with another parameter.
        """
        for other, seen in self._seen.items():
            if np.may_share_memory(seen, value):
                raise LanguageError(
                    f"the arrays {other} and {name} of the sequence share memory: pass a copy of "
                    f"one of them",
                    where,
                )
        argument = array_argument(value, f"the array {name} of the sequence", where)
        self._seen[name] = value
        self._arrays.append(ArrayParam(name, argument.dtype.stored, argument.shape))
        return self._symbol(self._arrays[-1], argument.dtype, where)

    def add_scalar(
        self, name: str, dtype: DType, float_dtype: DType, where: Location
    ) -> SymbolicScalar:
        self._scalars.append(Param(name, dtype))
        return SymbolicScalar(self._scalars[-1], float_dtype, where)

    def temporary(
        self, dtype: DType, shape: tuple[int, ...], name: str | None, where: Location
    ) -> SymbolicArray:
        taken = {p.name for p in self._arrays + self._temps} | {p.name for p in self._scalars}
        if name is None:
            name = next(
                n for k in range(len(self._temps), sys.maxsize) if (n := f"tmp{k}") not in taken
            )
        if name in taken or not name.isidentifier():
            raise LanguageError(
                f"a temporary cannot be named {name!r}: the name is taken or not an identifier",
                where,
            )
        self._temps.append(ArrayParam(name, dtype.stored, shape))
        return self._symbol(self._temps[-1], dtype, where)

    def run(self, call: KernelCall) -> None:
        """Records a call. LanguageError if it uses addresses, or an array that is not part of the sequence."""
        call = lowered_call(call)
        call.instance.hidden.refuse_addresses()
        settle()  # what fields hold by now is the input of the sequence
        ir, on, where = call.instance.ir, call.instance.held, call.where
        arrays, scalars = call.in_order
        names = tuple(
            self._name(a, where, p.name if p.name in on.names else None)
            for p, a in zip(ir.arrays, arrays, strict=True)
        )
        values = tuple(_scalar(x, p.dtype) for x, p in zip(scalars, ir.scalars, strict=True))
        logical = on.logical
        on_trees = () if logical is None else (id(logical.ir), logical.fields, logical.sections)
        key = (id(ir), names, repr(values), on_trees)  # as texts: -0.0 is another number than 0.0
        number = self._numbers.setdefault(key, len(self._different))
        self._made.append(number)
        if number < len(self._different):
            return
        self._different.append(Call(ir, names, values, where, logical))  # keeps the ids alive
        if logical is not None:
            for used in on.trees:
                before = self._trees.get(used.tree.name, used)
                self._trees[used.tree.name] = before.used_by(ir, logical, names)

    def steps_until(self, count: int, until: Any, where: Location) -> Iterator[int]:
        """Yields the numbers of all steps of a repeat that the array `until` may end, and records their calls.

        LanguageError if the steps do not make the same calls.
        """
        if self._is_in_ended:
            raise LanguageError(
                "ks.repeat is inside of another ks.repeat: in a sequence only one of them can have an end, "
                "write the inner one with range",
                where,
            )
        first, before = len(self._made), self._left
        once: array[int] | None = None  # the calls of the first step
        self._is_in_ended, self._left = True, before or where
        try:
            for step in range(count):
                yield step
                if once is None:
                    once = self._made[first:]
                elif self._made[first + len(once) :] != once:
                    raise LanguageError(
                        "the steps of a ks.repeat make different calls: give all of them the same arrays and numbers "
                        "(copy arrays instead of exchanging them, and count steps in an array)",
                        where,
                    )
                else:
                    del self._made[first + len(once) :]
        finally:
            self._is_in_ended = False
        self._left = before
        if once:
            self._ended.append(Ended(first, len(self._made), count, self._name(until, where)))

    def _symbol(self, param: ArrayParam, element: DType, where: Location) -> SymbolicArray:
        symbol = SymbolicArray(param.name, element, param.shape, where)
        self._symbols.append(symbol)
        self._own.add(id(symbol))
        return symbol

    def _name(self, array: Any, where: Location, field: str | None = None) -> str:
        """Returns the name that an array has in the recording; new arrays are added if that is allowed.

        `field`: name of the program's field that stores the array, None for other arrays.
        """
        if isinstance(array, SymbolicArray):
            if id(array) not in self._own:
                raise LanguageError(f"the array {array.name} belongs to another recording", where)
            return array.name
        for name, seen in self._seen.items():
            if seen is array or (
                seen.ctypes.data == array.ctypes.data
                and seen.shape == array.shape
                and seen.dtype == array.dtype
            ):
                return name
        if field is not None:
            taken = {p.name for p in self._arrays + self._temps} | {p.name for p in self._scalars}
            further = (f"{field}_{k}" for k in itertools.count(2))
            name = next(n for n in itertools.chain((field,), further) if n not in taken)
            self.captured[name] = array
            return self.add_array(name, array, where).name
        if not self._is_open:
            raise LanguageError(
                f"a kernel is called with an array of shape {array.shape} that is no argument of "
                f"the sequence: "
                "make it an argument, or create it with ks.ndarray(dtype, shape)",
                where,
            )
        return self.add_array(f"a{len(self._arrays)}", array, where).name


def _scalar(value: Any, dtype: DType) -> Expr:
    return cast(value.expr, dtype) if isinstance(value, SymbolicScalar) else const(value, dtype)


@contextmanager
def record() -> Iterator[Recorder]:
    """Records kernel calls within the block: `with ks.record() as rec: ...; rec.calls`.

    NumPy arrays are named a0, a1, ... in the order of their first use.
    """
    recorder = Recorder(is_open=True)
    with using(recorder):
        yield recorder


def current_recorder() -> Recorder | None:
    """Returns the recorder that kernel calls go to, directly or through a tape.

    None if calls are not recorded.
    """
    executor = chosen()
    while executor is not None and not isinstance(executor, Recorder):
        executor = executor.behind
    return executor


def ndarray(
    dtype: Any, shape: int | Sequence[int], name: str | None = None, *, needs_grad: bool = False
) -> Any:
    """Creates an array of zeros: a temporary within a recorded sequence, an independent `Ndarray` otherwise.

    Outside a recording `dtype` may be a type of vectors or matrices, and `needs_grad` gives the ndarray a gradient.
    """
    frame = sys._getframe(1)
    where = Location(frame.f_code.co_filename, frame.f_lineno)
    recorder, kind = current_recorder(), complex_annotation(dtype)
    if recorder is None:
        if kind is None:
            return Ndarray(dtype, shape, needs_grad=needs_grad)
        return np.zeros(shape, complex_dtype(kind))
    if needs_grad:
        raise LanguageError(
            "a temporary array of a sequence has no gradient: use a field with needs_grad=True",
            where,
        )
    try:
        element = array_dtype(dtype if kind is None else complex_dtype(kind)().real.dtype)
        extents = tuple(
            int(n) for n in ([shape] if isinstance(shape, (int, np.integer)) else shape)
        )
    except (TypeError, ValueError) as error:
        raise LanguageError(
            f"ks.ndarray takes an element type and a shape: {error}", where
        ) from None
    if any(n < 0 for n in extents) or math.prod(extents) * element.size_bytes >= 2**62:
        raise LanguageError(f"ks.ndarray cannot make an array of shape {extents}", where)
    if kind is not None:
        return ComplexSymbol(recorder.temporary(element, (*extents, 2), name, where))
    return recorder.temporary(element, extents, name, where)


def record_sequence(
    fn: Callable[..., Any], args: Sequence[Any], name: str | None = None
) -> Recording:
    """Records a sequence like `record_program`, and returns the recording alone: all its arrays are arguments."""
    return record_program(fn, args, name)[0]


def record_program(
    fn: Callable[..., Any], args: Sequence[Any], name: str | None = None
) -> tuple[Recording, dict[str, np.ndarray[Any, Any]]]:
    """Records a call of `fn` with symbols in place of its arrays and numbers.

    Returns the recording, and the arrays of the fields that its kernels use, by their names in the recording. Arguments annotated
    `ks.template()`, and arguments other than arrays and numbers, are passed unchanged. LanguageError if arguments do not fit, share
    memory, or if the function calls no kernel.
    """
    target = getattr(fn, "fn", fn)
    where = location_of(target) if inspect.isfunction(target) else Location("<sequence>", 0)
    label = re.sub(r"[^\w<>.-]+", "_", name or str(getattr(fn, "__name__", "sequence")))
    recorder = Recorder(is_open=False)
    try:
        bound = inspect.signature(fn).bind(*args)
    except TypeError as error:
        raise LanguageError(
            f"the sequence {label} cannot be called with {len(args)} arguments: {error}", where
        ) from None
    bound.apply_defaults()
    for n, x in bound.arguments.items():
        bound.arguments[n] = shared_array(x) if hands_out(x) else x
    float_dtype = _float_dtype(bound.arguments.values())
    for parameter in bound.signature.parameters.values():
        value = bound.arguments[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            symbols = [
                _symbolic(
                    recorder, f"{parameter.name}{k}", inspect.Parameter.empty, x, float_dtype, where
                )
                for k, x in enumerate(value)
            ]
            bound.arguments[parameter.name] = tuple(symbols)
        elif parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            annotation = resolve_annotation(target, parameter.annotation)
            bound.arguments[parameter.name] = _symbolic(
                recorder, parameter.name, annotation, value, float_dtype, where
            )
    accesses = RecordedAccesses(recorder)
    restore = record_into(accesses)
    try:
        with using(recorder):
            if isinstance(fn, Kernel):
                fn.call_from(fn.where, bound.args, bound.kwargs)  # no line of the user's calls it
            else:
                fn(*bound.args, **bound.kwargs)
    finally:
        restore()
    accesses.refuse_lost_writes(recorder.captured.values())
    if not recorder.has_calls:
        raise LanguageError(f"the sequence {label} calls no kernel", where)
    return recorder.recording(label), recorder.captured


def _float_dtype(values: Any) -> DType:
    """Returns the type of Python floats in the sequence: f32 if all its float arrays are f32, else f64."""
    flat = [x for v in values for x in (v if isinstance(v, tuple) else (v,))]
    floats = {x.real.dtype for x in flat if isinstance(x, np.ndarray) and x.dtype.kind in "fc"}
    return DType.f32 if floats == {np.dtype(np.float32)} else DType.f64


def _symbolic(
    recorder: Recorder, name: str, annotation: Any, value: Any, float_dtype: DType, where: Location
) -> Any:
    if isinstance(value, Ndarray):
        value = value.array
    if is_complex_array(value):
        return ComplexSymbol(recorder.add_array(name, pairs_of(value), where))
    if isinstance(value, np.ndarray):
        return recorder.add_array(name, value, where)
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(
        value, bool | complex | np.complexfloating
    )
    if not is_number or isinstance(annotation, TemplateAnnotation):
        return value
    wanted = (
        annotation
        if isinstance(annotation, DType) or annotation in (int, float)
        else inspect.Parameter.empty
    )
    dtype = scalar_dtype(wanted, value, f"the argument {name} of the sequence", where)
    return recorder.add_scalar(name, dtype or float_dtype, float_dtype, where)
