"""Call cache of a kernel: repeats a call without a new signature if the kernel has run for arguments of these kinds.

The kind of an argument is its type, for an array dtype and shape, for a template its value or identity. A cached call goes to the
executor's function for repeated calls (`Executor.caller`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..fields.program import Program, current_program
from ..ir.kernel import DType, KernelIR
from .dispatch import AbstractDeferringExecutor, Caller, Executor, current
from .instance import Instance, KernelCall
from .intrinsics import TemplateAnnotation
from .lowering import lowered
from .signature import (
    ArrayArgument,
    ObjectArgument,
    ScalarArgument,
    Signature,
    TemplateArgument,
    exact_key,
    reference,
)

SLOW: Final = object()  # what a call gives that was not made
_PLAIN = (int, float, bool, str)  # templates that are compared by value
_MOST = 64  # kinds of calls of one kernel

Kind = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class _Call:
    """Cached call of a kernel for one tuple of argument kinds.

    `caller`: function of the executor. `given`: its arguments, with fields of the program filled in.
    `places`: (position in `given`, position among the call's arguments). `whole`: the same for integers that become floats.
    `returned`: position and name of each array for results.
    `templates`: position of each template object, and a function that returns the object while it exists: `id` may be reused.
    `may_wait`: `caller` may defer the call.
    """

    caller: Caller
    given: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]
    whole: tuple[tuple[int, int], ...]
    returned: tuple[tuple[int, str], ...]
    instance: Instance
    templates: tuple[tuple[int, Callable[[], Any]], ...]
    may_wait: bool


class QuickCalls:
    """Cached calls of one kernel.

    They are valid for one program, one executor, and while no field is destroyed.
    """

    def __init__(self, annotations: Sequence[Any]) -> None:
        self._kinds: tuple[Kind, ...] = tuple(
            _kind_of_template if isinstance(a, TemplateAnnotation) else _kind_of_value
            for a in annotations
        )
        self._known: dict[tuple[object, ...], _Call] = {}
        self._known_twice: dict[tuple[object, ...], _Call] = {}  # where one array is given twice
        self._program: Program | None = None
        self._n_destroyed = 0
        self._executor: Executor | None = None
        self._deferring: AbstractDeferringExecutor | None = None  # the executor, if it is one
        self._repeating: AbstractDeferringExecutor | None = None  # the same, if it repeats

    def call(self, args: tuple[Any, ...]) -> Any:
        """Runs the call from the cache and returns the kernel's result.

        Returns SLOW if no call of these argument kinds is cached; nothing was run then.
        """
        kinds = self._kinds
        if len(args) != len(kinds):
            return SLOW
        executor, repeating = current(), self._repeating
        # A sequence that ran last is dropped with the program, and with each field that is destroyed.
        if repeating is not None and executor is repeating and repeating.again(self, args):
            return None
        if not (self._known or self._known_twice):
            return SLOW
        program = current_program()
        if program is not self._program or (
            program is not None and program.n_destroyed != self._n_destroyed
        ):
            self._forget()  # nothing of a program that has ended, or of fields that are gone, is held
            return SLOW
        if executor is not self._executor:
            return SLOW
        key = tuple([kind(x) for kind, x in zip(kinds, args, strict=True)])
        known = self._known.get(key)
        if self._known_twice:
            known = self._known_twice.get((*key, _firsts(args)), known)
        if known is None:
            return SLOW
        for k, living in known.templates:
            if living() is not args[k]:
                self._forget()
                return SLOW
        deferring = self._deferring
        if (
            deferring is not None
            and deferring.waits
            and not known.may_wait
            and not deferring.give_way()
        ):
            return SLOW
        given = list(known.given)
        for place, k in known.places:
            given[place] = args[k]
        try:
            for place, k in known.whole:
                given[place] = float(args[k])
        except OverflowError:
            return SLOW  # which says what is wrong
        if known.may_wait:
            return (
                None if known.caller(*given, kernel=self, args=args, numbers=known.places) else SLOW
            )
        results = known.instance.results
        if results is None:
            return None if known.caller(*given) else SLOW
        made = results.allocated()
        for place, name in known.returned:
            given[place] = made[name]
        return results.read(made) if known.caller(*given) else SLOW

    def _forget(self) -> None:
        self._known.clear()
        self._known_twice.clear()
        self._executor = self._deferring = self._repeating = None

    def learn(
        self, args: tuple[Any, ...], signature: Signature, call: KernelCall, executor: Executor
    ) -> None:
        """Caches a call that `executor` has just run, for later calls with the same argument kinds.

        Not cached are calls with seeds, with structs, or with two views of one array, and calls for which the executor has no
        `caller`.
        """
        instance = call.instance
        is_plain = not instance.hidden.draws and len(args) == len(signature)
        if not is_plain or not all(map(_is_known, args, signature)):
            return
        firsts = _firsts(args)
        twice = {k for k, first in enumerate(firsts) if first != k}
        if _merged(signature, instance.ir) != twice:
            return
        deferring = executor if isinstance(executor, AbstractDeferringExecutor) else None
        waiting = None if deferring is None else deferring.deferring(call)
        caller = waiting or executor.caller(call)
        if caller is None:
            return
        if executor is not self._executor:
            self._forget()
            self._executor, self._deferring = executor, deferring
            self._repeating = deferring if deferring is not None and deferring.repeats else None
        n_known = len(self._known) + len(self._known_twice)
        if n_known >= _MOST:
            return
        if not n_known:
            self._program = program = current_program()
            self._n_destroyed = 0 if program is None else program.n_destroyed
        templates = tuple(
            (k, reference(x))
            for k, (x, (_, argument)) in enumerate(zip(args, signature, strict=True))
            if isinstance(argument, ObjectArgument)
        )
        made = _planned(caller, lowered(instance), signature, args, templates, waiting is not None)
        key = tuple([kind(x) for kind, x in zip(self._kinds, args, strict=True)])
        if twice:
            self._known_twice[*key, firsts] = made
        else:
            self._known[key] = made


def _planned(
    caller: Caller,
    instance: Instance,
    signature: Signature,
    args: tuple[Any, ...],
    templates: tuple[tuple[int, Callable[[], Any]], ...],
    may_wait: bool,
) -> _Call:
    """Returns the cache entry for calls that have the argument kinds of `args`."""
    position = {
        name: k
        for k, (name, argument) in enumerate(signature)
        if isinstance(argument, ArrayArgument | ScalarArgument)
    }
    fields = {name: field.storage for name, field in instance.fields}
    fields |= instance.hidden.bound()
    parameters = [*(a.name for a in instance.ir.arrays), *(p.name for p in instance.ir.scalars)]
    places = [(n, position[name]) for n, name in enumerate(parameters) if name in position]
    widened = {k for k, x in enumerate(args) if _is_widened(x, signature[k][1])}
    return _Call(
        caller,
        tuple(fields.get(name) for name in parameters),
        tuple((n, k) for n, k in places if k not in widened),
        tuple((n, k) for n, k in places if k in widened),
        _returned(parameters, position, fields),
        instance,
        templates,
        may_wait,
    )


def _firsts(args: tuple[Any, ...]) -> tuple[int, ...]:
    """Returns for each argument the position of the first argument that is the same NumPy array, else its own."""
    seen: dict[int, int] = {}
    return tuple(
        [seen.setdefault(id(x), k) if type(x) is np.ndarray else k for k, x in enumerate(args)]
    )


def _merged(signature: Signature, ir: KernelIR) -> set[int]:
    """Returns the positions of array arguments without a parameter: an earlier argument is the same array."""
    names = {p.name for p in ir.arrays}
    return {
        k
        for k, (name, argument) in enumerate(signature)
        if isinstance(argument, ArrayArgument) and name not in names
    }


def _returned(
    parameters: Sequence[str], position: Mapping[str, int], fields: Mapping[str, Any]
) -> tuple[tuple[int, str], ...]:
    """Returns the position among `parameters`, and the name, of each hidden array for results.

    `position`: positions of the call's arguments. `fields`: fields and hidden numbers, by parameter.
    """
    return tuple(
        (n, name)
        for n, name in enumerate(parameters)
        if name not in position and name not in fields
    )


def _kind_of_value(x: Any) -> object:
    kind = type(x)
    if kind is float or kind is int:
        return kind
    if kind is np.ndarray:
        return x.dtype.num, x.shape
    return object()  # equal to nothing


def _kind_of_template(x: Any) -> object:
    return exact_key(x) if type(x) in _PLAIN else id(x)


def _is_known(x: Any, entry: tuple[str, Any]) -> bool:
    match entry[1]:
        case ArrayArgument(dtype=dtype, layout=layout, is_complex=is_complex):
            is_plain = layout is None and not is_complex and dtype is not DType.bool_
            return type(x) is np.ndarray and is_plain
        case ScalarArgument():
            return type(x) in (int, float)
        case ObjectArgument():
            return True
        case TemplateArgument():
            return type(x) in _PLAIN
    return False


def _is_widened(x: Any, argument: Any) -> bool:
    """True if the argument `x` is a Python int and its parameter is a float."""
    if not isinstance(argument, ScalarArgument) or type(x) is not int:
        return False
    dtype: DType | None = argument.dtype
    return dtype is None or dtype.is_float
