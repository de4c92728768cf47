"""Kernels whose calls are deferred, and calls as a program made them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING, Any

from ...kernels.fields.accessed_memory import region
from ...kernels.ir.kernel import For, ForActive
from ...kernels.sparse.redundancy import work_on_trees
from ..cpu.calling import CallerParameter
from .held_memory import written_arrays
from .loaded import rows_of_kernel
from .window import DeferralWindow

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.frontend.instance import KernelCall
    from ...kernels.ir.kernel import Location

Values = tuple[Any, ...]  # of a call: the arrays of its kernel, then its numbers


class WaitingKernel:
    """A kernel whose calls are deferred, on the arrays of all of them; `where` is the source line of its first call."""

    def __init__(self, call: KernelCall, where: Location, behind: DeferralWindow) -> None:
        self.instance, self.where, self._behind = call.instance, where, behind
        self.ir = call.instance.ir
        self.arrays = call.in_order[0]
        self.n_arrays = len(self.arrays)
        self.is_on_trees = bool(self.instance.structures)
        self._scalars = rows_of_kernel(self.ir)[self.n_arrays :]
        self.has_numbers = bool(self._scalars)
        # What runs it, which returns false if it refuses a call, and its arrays; () before it has run.
        self.code: tuple[Any, ...] = ()

    @cached_property
    def work(self) -> tuple[int, int, int]:
        """The numbers of its loops, of lists of active cells, and of activations."""
        logical = self.instance.logical
        stated = self.ir if logical is None else logical.ir
        return sum(isinstance(s, For | ForActive) for s in stated.body), *work_on_trees(stated)

    @cached_property
    def used(self) -> frozenset[int]:
        """The allocations that its arrays are in."""
        return frozenset(map(region, self.arrays))

    @cached_property
    def written(self) -> frozenset[int]:
        """The allocations that it writes."""
        return frozenset(region(self.arrays[k]) for k in written_arrays(self.ir))

    def takes(self, values: Values) -> bool:
        """True if the arrays of a call are its own, and no number needs conversion.

        Calls with other numbers convert them or raise by themselves.
        """
        if not all(map(is_, self.arrays, values)):
            return False
        n = self.n_arrays
        return not self.has_numbers or all(
            row.takes(values[n + k]) for k, row in enumerate(self._scalars)
        )

    def numbers(self, places: Iterable[tuple[int, int]]) -> tuple[Number, ...]:
        """Returns the numbers that a program gives; `places`: positions among values, and among the program's arguments."""
        return tuple((k, at, self._scalars[at - self.n_arrays]) for at, k in places)

    def run(self, values: Values) -> None:
        """Runs one call, or defers it behind calls that are deferred already."""
        call = self.called(values)
        self._behind.run(call)
        run = self._behind.caller(call)
        self.code = () if run is None else (run, *self.arrays)

    def called(self, values: Values) -> KernelCall:
        """Returns the call with these argument values."""
        from ...kernels.frontend.instance import KernelCall

        ir, n = self.ir, self.n_arrays
        arrays = {p.name: x for p, x in zip(ir.arrays, values[:n], strict=True)}
        scalars = {p.name: x for p, x in zip(ir.scalars, values[n:], strict=True)}
        return KernelCall(self.instance, arrays, scalars, self.where)


Held = tuple[WaitingKernel, Values]
Number = tuple[int, int, CallerParameter]  # position among arguments, among values, and parameter
# A call as the program made it: its kernel and arguments, what was deferred, the positions of other arguments than numbers (none if
# there are no numbers), and the numbers.
Known = tuple[object, Values, Held, tuple[int, ...], tuple[Number, ...]]


def known_as(kernel: object, args: Values, call: Held, numbers: tuple[Number, ...]) -> Known:
    """Returns a call as it is known from now on."""
    taken = {k for k, _, _ in numbers}
    others = tuple(k for k in range(len(args)) if k not in taken) if numbers else ()
    return kernel, args, call, others, numbers


def renewed(args: Values, known: Known) -> Held | None:
    """Returns a known call with the numbers in `args`; None if an argument is another object, or a number needs conversion."""
    _, before, (kernel, values), others, numbers = known
    if not numbers:
        return None
    for k in others:
        if args[k] is not before[k]:
            return None
    new = list(values)
    for k, at, row in numbers:
        x = new[at] = args[k]
        kind, least, most = row.limits
        if type(x) is not kind or not (least <= x <= most or row.takes(x)):
            return None
    return kernel, tuple(new)


def numbers_of(calls: Iterable[Held]) -> list[Any]:
    """Returns the numbers of all calls, in order."""
    return [x for kernel, values in calls for x in values[kernel.n_arrays :]]
