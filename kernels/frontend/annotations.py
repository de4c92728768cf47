"""Annotations of arguments and results as objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import KernelSyntaxError
from .parse import closure_names, location_of


def resolve_annotation(fn: Callable[..., Any], annotation: Any) -> Any:
    """Returns the annotation as an object, also where `from __future__ import annotations` turned it into text."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, {**fn.__globals__, **closure_names(fn)})
    except Exception as error:
        raise KernelSyntaxError(
            f"the annotation `{annotation}` of {fn.__name__} cannot be evaluated: {error}",
            location_of(fn),
        ) from None
