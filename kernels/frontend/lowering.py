"""Sparse lowering of kernel instances: turns kernels on sparse fields into kernels on plain arrays.

It serves executors that run or record plain arrays only. A layer above implements it: the package registers the implementation,
which is imported at its first use. This module is loaded with the package, so it imports nothing slow.
"""

from __future__ import annotations

from collections.abc import Callable

TYPE_CHECKING = False  # that of `typing`, whose import takes longer than all else of the package

if TYPE_CHECKING:
    from .instance import Instance, KernelCall

Lower = Callable[["Instance"], "Instance"]
_KEY = ("on plain arrays",)

_lower: Lower


def register(lower: Lower) -> None:
    """Registers the function that lowers instances on sparse fields."""
    global _lower
    _lower = lower


def lowered(instance: Instance) -> Instance:
    """Returns the instance on plain arrays: `instance` if it has no sparse fields, else its lowered form."""
    if not instance.is_on_trees:
        return instance
    found: Instance | None = instance.derived.get(_KEY)
    if found is None:  # two threads may lower it, and go on with one of both
        found = instance.derived.setdefault(_KEY, _lower(instance))
    return found


def lowered_call(call: KernelCall) -> KernelCall:
    """Returns the call of the lowered instance, with the arrays that store its trees."""
    instance = lowered(call.instance)
    return call if instance is call.instance else instance.called(call)
