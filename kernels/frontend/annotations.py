"""Resolves annotations of kernel arguments and results to Python objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

from .errors import KernelSyntaxError
from .intrinsics import template, types
from .parse import closure_names, location_of

_BARE = (template, types.ndarray, types.template)  # as type checkers want them: without a call


def resolve_annotation(fn: Callable[..., Any], annotation: Any) -> Any:
    """Returns an annotation as a Python object; text (from `from __future__ import annotations`) is evaluated.

    `ks.template` and `ks.types.ndarray` need no parentheses. `Annotated[T, x]` gives x, its last item, since T is for type
    checkers. `Any` gives the same as no annotation.
    """
    found = _evaluated(fn, annotation) if isinstance(annotation, str) else annotation
    if get_origin(found) is Annotated:
        found = get_args(found)[-1]
    if found is Any:
        return inspect.Parameter.empty
    return found() if any(found is bare for bare in _BARE) else found


def _evaluated(fn: Callable[..., Any], annotation: str) -> Any:
    try:
        return eval(annotation, {**fn.__globals__, **closure_names(fn)})
    except Exception as error:
        raise KernelSyntaxError(
            f"the annotation `{annotation}` of {fn.__name__} cannot be evaluated: {error}",
            location_of(fn),
        ) from None
