"""Kernels on sparse fields as kernels on plain arrays, for executors that run or record nothing else.

The frontend leaves sparse fields as the program states them. A layer above decides how they are lowered: the package registers it,
and it is imported at its first use. This module is loaded with the package, so it imports nothing slow.
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
    """Registers the lowering of instances on sparse fields."""
    global _lower
    _lower = lower


def lowered(instance: Instance) -> Instance:
    """The instance on plain arrays: itself if it is that already; otherwise lowered, once an instance."""
    if not instance.is_on_trees:
        return instance
    found: Instance | None = instance.derived.get(_KEY)
    if found is None:  # two threads may lower it, and go on with one of both
        found = instance.derived.setdefault(_KEY, _lower(instance))
    return found


def lowered_call(call: KernelCall) -> KernelCall:
    """The call of the instance on plain arrays, with the arrays of its trees."""
    instance = lowered(call.instance)
    return call if instance is call.instance else instance.called(call)
