"""Changes of names and types throughout a kernel's IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from .kernel import DType, KernelIR, Load, Location, Store, Update

T = TypeVar("T")


def rewrite(node: T, change: Callable[[Any], Any]) -> T:
    """`node` with `change` applied to every part, operands first; parts are dataclasses, tuples and
    leaves.
    """
    if isinstance(node, tuple):
        return change(tuple(rewrite(x, change) for x in node))  # type: ignore[no-any-return]
    if not is_dataclass(node) or isinstance(node, (type, Location)):
        return change(node)  # type: ignore[no-any-return]
    parts = {f.name: rewrite(getattr(node, f.name), change) for f in fields(node)}
    return change(replace(node, **parts))  # type: ignore[no-any-return]


def merge_arrays(ir: KernelIR, names: Mapping[str, str]) -> KernelIR:
    """The kernel with every array parameter replaced by the one `names` gives for it."""
    if all(old == new for old, new in names.items()):
        return ir

    def rename(x: Any) -> Any:
        return replace(x, array=names[x.array]) if isinstance(x, (Load, Store, Update)) else x

    kept = tuple(p for p in ir.arrays if names[p.name] == p.name)
    return replace(ir, arrays=kept, body=rewrite(ir.body, rename))


def widened(ir: T) -> T:
    """The same computation with every f32 made f64."""
    return rewrite(ir, lambda x: DType.f64 if x is DType.f32 else x)
