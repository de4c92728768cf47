"""The kernel language, in Taichi's vocabulary: what `import kernelscape as ks` gives to write
kernels with.

Types: a Python float passed to an argument without annotation has the kernel's default float (f32
if every float array of the call is f32, else f64), a Python int is i64; annotations `ks.f32`,
`ks.f64`, `ks.i32`, `ks.i64`, `int` (i64) and `float` (the default float) decide otherwise.
`ks.template()` makes an argument a compile-time constant.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from ..fields.ndarray import Ndarray
from ..ir.kernel import DType, KernelIR, Location
from ..ir.walk import merge_arrays
from .calling import holder, run_at_once
from .errors import LanguageError
from .inlining import Func
from .instantiate import (
    Argument,
    ArrayArgument,
    ScalarArgument,
    Signature,
    TemplateArgument,
    instantiate,
)
from .intrinsics import (
    NdarrayAnnotation,
    TemplateAnnotation,
    atomic_add,
    atomic_max,
    atomic_min,
    cast,
    f32,
    f64,
    i32,
    i64,
    ndrange,
    static,
    template,
    types,
)
from .parse import ParsedFunction, closure_names, location_of, parse_function
from .symbols import SymbolicArray, SymbolicScalar

__all__ = [
    "Func",
    "Kernel",
    "LanguageError",
    "array_argument",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "cast",
    "f32",
    "f64",
    "func",
    "i32",
    "i64",
    "kernel",
    "ndrange",
    "static",
    "template",
    "types",
]


class Kernel:
    """A kernel: call it in a sequence to have it held back, or anywhere else to run it at once
    through the interpreter.

    `fn` is the undecorated function. `instantiate(*args)` gives the IR for the types, shapes and
    templates of the arguments.
    """

    def __init__(self, fn: Callable[..., Any], fast_math: bool) -> None:
        self.fn = fn
        self.fast_math = fast_math
        self.where = location_of(fn)
        self._instances: dict[Signature, KernelIR] = {}
        functools.update_wrapper(self, fn)

    @property
    def name(self) -> str:
        return self.fn.__name__

    @functools.cached_property
    def parsed(self) -> ParsedFunction:
        return parse_function(self.fn)

    @functools.cached_property
    def parameters(self) -> tuple[tuple[str, Any], ...]:
        """Names and annotations of the arguments, in order."""
        kinds = inspect.Parameter
        found = []
        for p in inspect.signature(self.fn).parameters.values():
            if p.kind not in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
                raise LanguageError(
                    f"the argument {p} of kernel {self.name} is not a plain positional argument",
                    self.where,
                )
            found.append((p.name, resolve_annotation(self.fn, p.annotation)))
        return tuple(found)

    def instantiate(self, *args: Any) -> KernelIR:
        """The IR for these arguments (NumPy arrays or arrays of a recorded sequence, numbers,
        template values).
        """
        return self._instance(self._bind(args, {}, self.where), self.where)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        self.call_from(Location(frame.f_code.co_filename, frame.f_lineno), args, kwargs)

    def call_from(self, where: Location, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call for which the line `where` answers."""
        values = self._bind(args, kwargs, where)
        ir = self._instance(values, where)
        arrays = {p.name: values[p.name] for p in ir.arrays}
        ir = self._without_aliases(ir, arrays, where)
        recorder = holder()
        scalars = {p.name: values[p.name] for p in ir.scalars}
        if recorder is not None:
            recorder.hold(ir, [arrays[p.name] for p in ir.arrays], list(scalars.values()), where)
            return
        run_at_once(ir, {p.name: arrays[p.name] for p in ir.arrays}, scalars)

    def _bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], where: Location
    ) -> dict[str, Any]:
        try:
            bound = inspect.signature(self.fn).bind(*args, **kwargs)
        except TypeError as error:
            count = len(self.parameters)
            raise LanguageError(
                f"the kernel {self.name} takes {count} arguments "
                f"({', '.join(n for n, _ in self.parameters)}), "
                f"this call gives {len(args) + len(kwargs)}: {error}",
                where,
            ) from None
        bound.apply_defaults()
        return {
            name: x.array if isinstance(x, Ndarray) else x for name, x in bound.arguments.items()
        }

    def _instance(self, values: dict[str, Any], where: Location) -> KernelIR:
        signature = tuple(
            (name, self._argument(name, annotation, values[name], where))
            for name, annotation in self.parameters
        )
        try:
            found = self._instances.get(signature)
        except TypeError:
            raise LanguageError(
                f"a template argument of the kernel {self.name} cannot be hashed: pass a constant",
                where,
            ) from None
        if found is None:
            found = self._instances[signature] = instantiate(self.parsed, signature, self.fast_math)
        return found

    def _argument(self, name: str, annotation: Any, value: Any, where: Location) -> Argument:
        label = f"the argument {name} of the kernel {self.name}"
        if isinstance(annotation, TemplateAnnotation):
            if isinstance(value, (np.ndarray, SymbolicArray, SymbolicScalar)):
                raise LanguageError(
                    f"{label} is a template and needs a compile-time constant", where
                )
            return TemplateArgument(value, type(value))
        if isinstance(annotation, NdarrayAnnotation):
            return _checked_array(annotation, array_argument(value, label, where), label, where)
        if isinstance(value, (np.ndarray, SymbolicArray)):
            raise LanguageError(f"{label} is an array: annotate it with ks.types.ndarray()", where)
        return ScalarArgument(scalar_dtype(annotation, value, label, where))

    def _without_aliases(self, ir: KernelIR, arrays: dict[str, Any], where: Location) -> KernelIR:
        """The kernel with one parameter for each array, also where one array is passed twice."""
        names: dict[str, str] = {}
        for name, array in arrays.items():
            same = next((other for other in names.values() if _is_same(arrays[other], array)), name)
            names[name] = same
            for other in names.values():
                both = isinstance(array, np.ndarray) and isinstance(arrays[other], np.ndarray)
                if other != same and both and np.may_share_memory(arrays[other], array):
                    raise LanguageError(
                        f"the arguments {other} and {name} of the kernel {self.name} overlap in "
                        f"memory: pass a copy",
                        where,
                    )
        return merge_arrays(ir, names)


def _is_same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    return (
        a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.dtype == b.dtype and a.size > 0
    )


def array_argument(value: Any, label: str, where: Location) -> ArrayArgument:
    """Type and shape of an array argument; LanguageError for what a kernel cannot use in place."""
    if isinstance(value, SymbolicArray):
        return ArrayArgument(value.element, value.shape)
    if not isinstance(value, np.ndarray):
        raise LanguageError(f"{label} must be a NumPy array, not {type(value).__name__}", where)
    dtype = next((d for d in (f32, f64, i32, i64) if value.dtype == d.numpy), None)
    if dtype is None:
        raise LanguageError(
            f"{label} has elements of type {value.dtype}: convert it to float32, float64, int32 "
            f"or int64",
            where,
        )
    if not value.flags.c_contiguous:
        raise LanguageError(
            f"{label} is not contiguous in memory: pass np.ascontiguousarray(...) of it", where
        )
    return ArrayArgument(dtype, value.shape)


def _checked_array(
    annotation: NdarrayAnnotation, found: ArrayArgument, label: str, where: Location
) -> ArrayArgument:
    if annotation.dtype is not None and annotation.dtype is not found.dtype:
        raise LanguageError(
            f"{label} is annotated {annotation.dtype.name}, this array is {found.dtype.name}", where
        )
    if annotation.ndim not in (None, len(found.shape)):
        raise LanguageError(
            f"{label} is annotated with {annotation.ndim} dimensions, this array has "
            f"{len(found.shape)}",
            where,
        )
    return found


def scalar_dtype(annotation: Any, value: Any, label: str, where: Location) -> DType | None:
    """The dtype of a scalar argument; None is the default float."""
    given = _number_dtype(value)
    if given is DType.bool_ and isinstance(value, np.number):
        raise LanguageError(
            f"{label} is a {type(value).__name__}: scalars are i32, i64, f32 or f64, so give int(...) or float(...) of it",
            where,
        )
    if given is DType.bool_ or not isinstance(
        value, (int, float, np.integer, np.floating, SymbolicScalar)
    ):
        raise LanguageError(
            f"{label} must be a number, not {type(value).__name__}: use ks.template() for other "
            f"constants",
            where,
        )
    takes_float = annotation is float or (isinstance(annotation, DType) and annotation.is_float)
    if isinstance(value, (int, np.integer)) and not takes_float:
        held = annotation if isinstance(annotation, DType) and annotation.is_integer else i64
        limit = 1 << (8 * held.size_bytes - 1)
        if not -limit <= int(value) < limit:
            raise LanguageError(f"{label} is {value}, which {held.name} cannot hold", where)
    if annotation is inspect.Parameter.empty or annotation is None:
        return given
    wanted = {float: None, int: DType.i64}.get(annotation, annotation)
    if wanted is not None and not isinstance(wanted, DType):
        raise LanguageError(
            f"{label} is annotated {annotation!r}: use ks.types.ndarray(), ks.template(), or a "
            f"scalar type",
            where,
        )
    is_float = given is None or given.is_float
    if wanted is not None and wanted.is_integer and is_float:
        raise LanguageError(
            f"{label} is annotated {wanted.name} but this call gives a float: convert it with "
            f"int(...)",
            where,
        )
    return wanted


def _number_dtype(value: Any) -> DType | None:
    if isinstance(value, (bool, np.bool_)):
        return DType.bool_
    if isinstance(value, SymbolicScalar):
        return None if value.dtype.is_float else value.dtype
    if isinstance(value, np.generic) and not isinstance(value, float):
        return next((d for d in (f32, f64, i32, i64) if value.dtype == d.numpy), DType.bool_)
    return i64 if isinstance(value, int) else None


def resolve_annotation(fn: Callable[..., Any], annotation: Any) -> Any:
    """The annotation as an object, also where `from __future__ import annotations` made it text."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, {**fn.__globals__, **closure_names(fn)})
    except Exception as error:
        raise LanguageError(
            f"the annotation `{annotation}` of {fn.__name__} cannot be evaluated: {error}",
            location_of(fn),
        ) from None


@overload
def kernel(fn: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(*, fast_math: bool = True) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(fn: Callable[..., Any] | None = None, /, *, fast_math: bool = True) -> Any:
    """Makes a function a kernel. `fast_math=False` forbids the reassociation of its reductions."""
    if fn is None:
        return lambda inner: Kernel(inner, fast_math)
    return Kernel(fn, fast_math)


def func(fn: Callable[..., Any]) -> Func:
    """Makes a function callable from kernels; each call is replaced by the function's body."""
    return Func(fn)
