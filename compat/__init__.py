"""Programs of others, as they are: Taichi's names, and what it shows on a screen, without one."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "taichi":
        return import_module(f"{__name__}.taichi")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
