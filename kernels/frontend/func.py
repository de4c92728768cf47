"""`@ks.func`: functions that kernels call, inlined where they are called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .annotations import resolve_annotation
from .errors import KernelSyntaxError
from .intrinsics import TemplateAnnotation
from .parse import ParsedFunction, location_of, parse_function


class Func:
    """Function marked `@ks.func`: its body replaces each call in a kernel.

    Python calls the undecorated function.

    Its result has the annotated type. In a program an annotation of vectors and structs counts only if the function `is_real`, as
    in Taichi. Where a kernel is differentiated, the body of `differentiable` replaces its calls, if there is one.
    """

    differentiable: Func | None = None

    def __init__(self, fn: Callable[..., Any], is_real: bool = False) -> None:
        self.fn, self.is_real = fn, is_real
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def parsed(self) -> ParsedFunction:
        return parse_function(self.fn)

    @functools.cached_property
    def parameters(self) -> tuple[tuple[str, Any, Any], ...]:
        """Name, annotation and default of each argument, in order."""
        return tuple(
            (p.name, resolve_annotation(self.fn, p.annotation), p.default)
            for p in inspect.signature(self.fn).parameters.values()
        )

    @functools.cached_property
    def templates(self) -> frozenset[str]:
        """Names of the template arguments, which are aliases of places of the caller."""
        return frozenset(n for n, a, _ in self.parameters if isinstance(a, TemplateAnnotation))

    @functools.cached_property
    def returns(self) -> Any:
        """Annotation of the result; None if there is none."""
        found = resolve_annotation(self.fn, inspect.signature(self.fn).return_annotation)
        return None if found is inspect.Signature.empty else found

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else BoundFunc(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


class BoundFunc:
    """Method of a class marked `@ks.func`, bound to one object."""

    def __init__(self, func: Func, owner: Any) -> None:
        self.func, self.owner = func, owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.func.fn(self.owner, *args, **kwargs)


def func(fn: Callable[..., Any]) -> Func:
    """Makes a function callable from kernels; each call is replaced by the function's body."""
    return Func(fn)


def real_func(fn: Callable[..., Any]) -> Func:
    """Makes a function callable from kernels, like `func`, and converts its result to the annotated type.

    Whether the generated code calls or inlines the function is left to the C compiler. Its parameters have annotations; without
    one it raises KernelSyntaxError.
    """
    made = Func(fn, is_real=True)
    is_method = "." in fn.__qualname__.rpartition("<locals>.")[2]
    for name, p in list(inspect.signature(fn).parameters.items())[is_method:]:
        if p.annotation is inspect.Parameter.empty:
            raise KernelSyntaxError(
                f"the argument {name} of the real function {fn.__name__} has no type: write it behind the name, `{name}: ks.f32`",
                location_of(fn),
            )
    return made


def pyfunc(fn: Callable[..., Any]) -> Func:
    """Makes a function callable from kernels, like `func`, and from Python, where it runs as Python."""
    return Func(fn)


def differentiated_as(function: Func) -> Callable[[Callable[..., Any]], Func]:
    """Makes the decorated function the one that is differentiated in place of `function`.

    It must return the same values, and may call `function`.
    """

    def mark(fn: Callable[..., Any]) -> Func:
        function.differentiable = Func(fn)
        return function.differentiable

    return mark


MARKS = (func, real_func, pyfunc)  # that make functions of the language
