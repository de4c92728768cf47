"""Compatibility with Taichi: runs its programs unchanged, under its names, with displays but without a screen."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "taichi":
        return import_module(f"{__name__}.taichi")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
