"""The kernel language, in Taichi's vocabulary: the part of `import kernelscape as ks` for writing kernels.

Types without a program: a Python float passed to an argument without annotation has the kernel's default float (f32 if every float
array of the call is f32, else f64). A Python int is i64. The annotations `ks.f32`, `ks.f64`, `ks.i32`, `ks.i64`, `int` (i64) and
`float` (the default float) override this. After `ks.init` the types are Taichi's: `int` and `float` are `default_ip` and
`default_fp`. `ks.template()` makes an argument a compile-time constant.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, overload

import numpy as np

from ..fields.dlpack import hands_out, shared_array
from ..fields.program import Program, current_program, element_dtype
from ..ir.kernel import KernelIR, Location
from .adjoint_calls import AdjointKernel
from .ahead import are_types_known, is_free_of_effects, is_plain_template
from .annotations import resolve_annotation
from .call_cache import SLOW, QuickCalls
from .calling import completed, passed
from .complex_numbers import Pairs, is_complex_array, pairs_of
from .dispatch import current
from .errors import KernelSyntaxError, LanguageError
from .func import Func, func, pyfunc, real_func
from .instance import Instance, KernelCall
from .instantiate import Aliases, Subject, instantiate
from .intrinsics import (
    NdarrayAnnotation,
    TemplateAnnotation,
    atomic_add,
    atomic_and,
    atomic_max,
    atomic_min,
    atomic_mul,
    atomic_or,
    atomic_sub,
    atomic_xor,
    bit_cast,
    cast,
    f16,
    f32,
    f64,
    grouped,
    i8,
    i16,
    i32,
    i64,
    loop_config,
    ndrange,
    select,
    static,
    static_assert,
    static_print,
    template,
    types,
    u8,
    u16,
    u32,
    u64,
)
from .packs import PackArgument, PackType, members_given, unpacked
from .parse import ParsedFunction, location_of, parse_function
from .signature import ObjectArgument, Signature, argument_of, refuse_more_than_numbers
from .symbols import ComplexSymbol
from .views import with_views

__all__ = [
    "Func",
    "Kernel",
    "LanguageError",
    "atomic_add",
    "atomic_and",
    "atomic_max",
    "atomic_min",
    "atomic_mul",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "bit_cast",
    "cast",
    "data_oriented",
    "f16",
    "f32",
    "f64",
    "func",
    "grouped",
    "i8",
    "i16",
    "i32",
    "i64",
    "kernel",
    "loop_config",
    "ndrange",
    "pyfunc",
    "real_func",
    "select",
    "static",
    "static_assert",
    "static_print",
    "template",
    "types",
    "u8",
    "u16",
    "u32",
    "u64",
]

_SELF = TemplateAnnotation()
# By file and identity, while they exist.
_kernels: dict[str, weakref.WeakValueDictionary[int, Kernel]] = {}
T = TypeVar("T")


class Kernel:
    """Function marked `@ks.kernel`: a call in a recorded sequence is recorded; any other call runs.

    `fn` is the undecorated function. `instantiate(*args)` returns the IR for the types, shapes and templates of the arguments.
    """

    def __init__(self, fn: Callable[..., Any], fast_math: bool) -> None:
        self.fn = fn
        self.fast_math = fast_math
        self.where = location_of(fn)
        self._instances: dict[Signature, Instance] = {}
        self._program: Program | None = None
        functools.update_wrapper(self, fn)
        _kernels.setdefault(self.where.file, weakref.WeakValueDictionary())[id(self)] = self

    @property
    def name(self) -> str:
        return self.fn.__name__

    @functools.cached_property
    def parsed(self) -> ParsedFunction:
        return parse_function(self.fn)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.fn)

    @functools.cached_property
    def is_method(self) -> bool:
        """True if the kernel is defined in a class, so its first argument is the object."""
        return "." in self.fn.__qualname__.rpartition("<locals>.")[2]

    @functools.cached_property
    def parameters(self) -> tuple[tuple[str, Any], ...]:
        """Names and annotations of the parameters, in order; a pack counts as its members."""
        members = {pack.name: pack.parameters for pack in self.packs}
        return tuple(p for n, a in self.given_parameters for p in members.get(n, ((n, a),)))

    @functools.cached_property
    def packs(self) -> tuple[PackArgument, ...]:
        """The arguments that are packs (several arguments passed as one)."""
        taken = {n for n, _ in self.given_parameters}
        given = ((n, a) for n, a in self.given_parameters if isinstance(a, PackType))
        return tuple(PackArgument(n, kind, unpacked(n, kind, taken)) for n, kind in given)

    @functools.cached_property
    def given_parameters(self) -> tuple[tuple[str, Any], ...]:
        """Names and annotations of the arguments of the Python function, in order; a pack counts as one."""
        kinds = inspect.Parameter
        found = []
        for k, p in enumerate(self.signature.parameters.values()):
            if p.kind not in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
                raise KernelSyntaxError(
                    f"the argument {p} of kernel {self.name} is not a plain positional argument",
                    self.where,
                )
            is_self = k == 0 and self.is_method and p.annotation is kinds.empty
            found.append((p.name, _SELF if is_self else resolve_annotation(self.fn, p.annotation)))
        return tuple(found)

    def _check_types(self, where: Location) -> None:
        """Raises LanguageError at `where` if an argument has no annotation; a program needs all of them."""
        for name, annotation in self.parameters:
            if annotation is inspect.Parameter.empty:
                raise KernelSyntaxError(
                    f"the argument {name} of the kernel {self.name} has no type: write it behind the name, `{name}: ks.f32`",
                    where,
                )

    @functools.cached_property
    def returns(self) -> Any:
        """Annotation of the result: a type, or a tuple of types; None if there is none."""
        found = resolve_annotation(self.fn, self.signature.return_annotation)
        if found is inspect.Signature.empty:
            return None
        if isinstance(found, PackType):
            raise KernelSyntaxError(
                f"the kernel {self.name} returns a pack of arguments: return its members",
                self.where,
            )
        if getattr(found, "__origin__", None) is tuple:
            return found.__args__
        return tuple(found) if isinstance(found, list) else found

    def instantiate(self, *args: Any) -> KernelIR:
        """Returns the IR for arguments of a call: arrays (of NumPy or a recorded sequence), numbers, templates."""
        return self._instance(self._bind(args, {}, self.where), self.where)[1].ir

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else BoundKernel(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            result = self.quick.call(args)
            if result is not SLOW:
                return result
        frame = sys._getframe(1)
        return self.call_from(Location(frame.f_code.co_filename, frame.f_lineno), args, kwargs)

    @functools.cached_property
    def quick(self) -> QuickCalls:
        """Cache of repeated calls of this kernel."""
        return QuickCalls([annotation for _, annotation in self.parameters])

    def call_from(self, where: Location, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the kernel; `where` is the line of the program that errors name."""
        signature, call = self.prepared(where, args, kwargs)
        executor = current()
        result = executor.run(call)
        if not kwargs and not self.packs:
            self.quick.learn(args, signature, call, executor)
        return result

    def prepared(
        self, where: Location, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Signature, KernelCall]:
        """Returns the signature of these arguments, and the call with them, which has not run."""
        values = self._bind(args, kwargs, where)
        signature, instance = self._instance(values, where)
        arrays, scalars = passed(signature, values, self.name, where)
        instance = self._without_aliases(signature, instance, arrays, where)
        return signature, completed(instance, arrays, scalars, where)

    @functools.cached_property
    def grad(self) -> AdjointKernel:
        """Adjoint of the kernel: called with the same arguments, it adds to the gradients of the arrays read."""
        return AdjointKernel(lambda *call: self.prepared(*call)[1])

    def _bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], where: Location
    ) -> dict[str, Any]:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            count = len(self.given_parameters)
            raise KernelSyntaxError(
                f"the kernel {self.name} takes {count} arguments "
                f"({', '.join(n for n, _ in self.given_parameters)}), "
                f"this call gives {len(args) + len(kwargs)}: {error}",
                where,
            ) from None
        bound.apply_defaults()
        given = dict(bound.arguments)
        for pack in self.packs:
            label = f"the argument {pack.name} of the kernel {self.name}"
            members = members_given(pack.kind, given.pop(pack.name), label, where)
            given.update(zip((n for n, _ in pack.parameters), members, strict=True))
        arrays = {n: x for n, x in given.items() if n in self._array_names}
        for name, x in arrays.items():
            refuse_more_than_numbers(x, f"the argument {name} of the kernel {self.name}", where)
        handed = {n: shared_array(x) for n, x in arrays.items() if hands_out(x)}
        given, arrays = given | handed, arrays | handed
        pairs: dict[str, Any] = {n: pairs_of(x) for n, x in arrays.items() if is_complex_array(x)}
        pairs |= {n: x.pairs for n, x in arrays.items() if isinstance(x, ComplexSymbol)}
        views = with_views(arrays | pairs, self.name, where)
        return given | views | {n: Pairs(views.get(n, x)) for n, x in pairs.items()}

    @functools.cached_property
    def _array_names(self) -> frozenset[str]:
        return frozenset(n for n, a in self.parameters if isinstance(a, NdarrayAnnotation))

    @functools.cached_property
    def _constants(self) -> tuple[str, ...]:
        """Names of the array arguments annotated `needs_grad=False`, which have no derivatives."""
        arrays = ((n, a) for n, a in self.parameters if isinstance(a, NdarrayAnnotation))
        return tuple(n for n, a in arrays if a.needs_grad is False)

    def _instance(self, values: dict[str, Any], where: Location) -> tuple[Signature, Instance]:
        program = current_program()
        if program is not self._program:
            self._instances.clear()
            self._program = program
        if program is not None:
            self._check_types(where)
        signature = tuple(
            (
                name,
                argument_of(name, _of_program(annotation, program), values[name], self.name, where),
            )
            for name, annotation in self.parameters
        )
        try:
            found = self._instances.get(signature)
        except TypeError:
            raise LanguageError(
                f"a template argument of the kernel {self.name} cannot be hashed: pass a constant",
                where,
            ) from None
        if found is None or found.is_gone:
            self._forget_the_dead()
            if program is not None:
                program.check_placed()
            found = self._instances[signature] = self._instantiated(signature)
        return signature, found

    def coming_signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature | None:
        """Returns the signature of a call that is to come; None if it has run, or if tracing it now might have effects.

        Values of templates are needed; of other arguments types are known. Values that are not known may be any object.
        """
        program = current_program()
        is_text = any(isinstance(a, str) for a in self.fn.__annotations__.values())
        if program is None or is_text or self.packs:
            return None
        try:
            given = dict(self.signature.bind(*args, **kwargs).arguments)
        except TypeError:
            return None
        defaults = {n: p.default for n, p in self.signature.parameters.items()}
        is_template = {n: isinstance(a, TemplateAnnotation) for n, a in self.parameters}
        templates = {n: given.get(n, defaults[n]) for n in is_template if is_template[n]}
        if not are_types_known(a for _, a in self.parameters) or not all(
            map(is_plain_template, templates.values())
        ):
            return None
        if not is_free_of_effects(self.parsed, templates):
            return None
        signature = tuple(
            (
                name,
                argument_of(
                    name,
                    _of_program(annotation, program),
                    templates.get(name, 0),
                    self.name,
                    self.where,
                ),
            )
            for name, annotation in self.parameters
        )
        has_run = program is self._program and signature in self._instances
        return None if has_run else signature

    def traced_ahead(self, signature: Signature, goes_on: Callable[[], bool]) -> Instance:
        """Returns the instance that a first call would use. It is not kept: values of global names may change until the call.

        `goes_on`: asked again and again while the kernel is traced; False ends that by an exception.
        """
        return self._traced(signature, current_program(), (), goes_on)

    def _instantiated(self, signature: Signature, aliases: Aliases = ()) -> Instance:
        """Returns a new instance of the kernel for a signature: its Python source as IR. Callers keep it for later calls."""
        return self._traced(signature, self._program, aliases)

    def _traced(
        self,
        signature: Signature,
        program: Program | None,
        aliases: Aliases,
        goes_on: Callable[[], bool] | None = None,
    ) -> Instance:
        fast_math = self.fast_math and (program is None or program.config.reorders_sums)
        subject = Subject(
            self.parsed,
            signature,
            fast_math,
            self.returns,
            program,
            self.packs,
            aliases,
            goes_on=goes_on,
        )
        found = instantiate(subject)
        return replace(found, constants=self._constants) if self._constants else found

    def _forget_the_dead(self) -> None:
        """Removes instances whose template objects no longer exist, since a kernel keeps no object alive.

        Other threads may remove them at the same time.
        """
        for signature in list(self._instances):
            if not _is_alive(signature):
                self._instances.pop(signature, None)

    def _without_aliases(
        self, signature: Signature, instance: Instance, arrays: dict[str, Any], where: Location
    ) -> Instance:
        """Returns the instance for arrays of which some are the same: it has one parameter for each different array.

        There is one instance for each combination of equal arrays. LanguageError if arrays overlap without being equal.
        """
        if len(arrays) < 2:
            return instance
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
        aliases = tuple(x for x in names.items() if x[0] != x[1])
        if not aliases:
            return instance
        key = ("aliases", *aliases)
        if key not in instance.derived:
            instance.derived[key] = self._instantiated(signature, aliases)
        found: Instance = instance.derived[key]
        return found


def kernels_of(file: str) -> list[Kernel]:
    """Returns the kernels that are defined in a file, in the order of its lines."""
    references = (
        _kernels[file].valuerefs() if file in _kernels else []
    )  # other threads may add some
    found = [kernel for reference in references if (kernel := reference()) is not None]
    return sorted(found, key=lambda kernel: kernel.where.line)


_MARK = "_is_data_oriented"  # of classes whose kernels a program calls


class BoundKernel:
    """Method of a class marked `@ks.kernel`, bound to one object."""

    def __init__(self, kernel: Kernel, owner: Any) -> None:
        self.kernel, self.owner = kernel, owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            result = self.kernel.quick.call((self.owner, *args))
            if result is not SLOW:
                return result
        frame = sys._getframe(1)
        where = Location(frame.f_code.co_filename, frame.f_lineno)
        if current_program() is not None and not hasattr(type(self.owner), _MARK):
            kind = type(self.owner).__name__
            raise KernelSyntaxError(
                f"{self.kernel.name} is a kernel of the class {kind}, which is not marked: write @ks.data_oriented above it",
                where,
            )
        return self.kernel.call_from(where, (self.owner, *args), kwargs)

    @property
    def grad(self) -> AdjointKernel:
        """Adjoint of the kernel, bound to the same object."""
        kernel, owner = self.kernel, self.owner
        return AdjointKernel(
            lambda where, args, kwargs: kernel.prepared(where, (owner, *args), kwargs)[1]
        )


def _of_program(annotation: Any, program: Program | None) -> Any:
    """Returns an annotation in which `int` and `float` are the program's default types.

    In annotations of arrays they are NumPy's types if there is no program.
    """
    if isinstance(annotation, NdarrayAnnotation):
        if annotation.dtype in (int, float):
            return replace(annotation, dtype=element_dtype(annotation.dtype))
        return annotation
    if program is not None and annotation in (int, float):
        return program.config.default_ip if annotation is int else program.config.default_fp
    return annotation


def _is_alive(signature: Signature) -> bool:
    return all(a.value is not None for _, a in signature if isinstance(a, ObjectArgument))


def _is_same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    return (
        a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.dtype == b.dtype and a.size > 0
    )


@overload
def kernel(fn: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(*, fast_math: bool = True) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(fn: Callable[..., Any] | None = None, /, *, fast_math: bool = True) -> Any:
    """Makes a function a kernel. `fast_math=False`: floating-point operations follow IEEE 754 in source order."""
    if fn is None:
        return lambda inner: Kernel(inner, fast_math)
    return Kernel(fn, fast_math)


def data_oriented(kind: T) -> T:
    """Marks a class whose methods may be kernels and functions.

    Its objects' attributes are compile-time constants.
    """
    setattr(kind, _MARK, True)
    return kind
