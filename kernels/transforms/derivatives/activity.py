"""Activity analysis for derivatives: locals on a path from arrays with gradients to arrays with gradients.

Only these have derivatives.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from ...ir import kernel
from ...ir.errors import KernelError
from ...ir.walk import nested_statements
from .rules import has_derivative, operands_of


class NeedsOldElementError(KernelError):
    """A statement has a derivative only if the old elements of `array`, from before the call, are known."""

    def __init__(self, sentence: str, where: kernel.Location, array: str) -> None:
        super().__init__(f"no derivative: {sentence}", where)
        self.array = array

    @classmethod
    def of_update(cls, s: kernel.Update) -> NeedsOldElementError:
        """Returns the error of an update of an element by an operation other than a sum."""
        return cls(f"{s.array} is updated by {s.op}, only sums have one", s.where, s.array)

    @classmethod
    def of_old_value(cls, s: kernel.Update) -> NeedsOldElementError:
        """Returns the error of an update of an element whose old value is used."""
        return cls(f"the old value of an update of {s.array} is used", s.where, s.array)


def refusal(sentence: str, where: kernel.Location) -> KernelError:
    """Returns the error of a statement without a derivative. `sentence`: the reason."""
    return KernelError(f"no derivative: {sentence}", where)


def differentiable_leaves(
    e: kernel.Expr,
) -> Iterator[kernel.Local | kernel.LocalElement | kernel.Load]:
    """Yields the locals and loads in a float expression with a derivative that is not zero everywhere."""
    if not e.dtype.is_float:
        return
    match e:
        case kernel.Local() | kernel.LocalElement() | kernel.Load():
            yield e
        case kernel.Cast(x=x):
            yield from differentiable_leaves(x)
        case kernel.Select(a=a, b=b):
            yield from differentiable_leaves(a)
            yield from differentiable_leaves(b)
        case kernel.Unary() | kernel.Binary() if has_derivative(e.op):
            for x in operands_of(e):
                yield from differentiable_leaves(x)


def depends_on(e: kernel.Expr, locals_: Container[str], arrays: Container[str]) -> bool:
    """True if a float expression depends, with a derivative, on one of these locals or arrays."""
    return any(
        x.array in arrays if isinstance(x, kernel.Load) else x.name in locals_
        for x in differentiable_leaves(e)
    )


@dataclass(frozen=True)
class Activity:
    """Activity of the locals of a kernel in which `arrays` have gradients.

    `varied` locals depend on these arrays; the values stored to these arrays depend on `useful` locals.
    """

    arrays: frozenset[str]
    varied: frozenset[str]
    useful: frozenset[str]

    @property
    def active(self) -> frozenset[str]:
        """The locals that have adjoints in reverse mode: both varied and useful."""
        return self.varied & self.useful

    def stores(self, s: kernel.Stmt) -> bool:
        """True if the statement stores to or updates an array with a gradient."""
        return isinstance(s, kernel.Store | kernel.Update) and s.array in self.arrays


def activity_of(ir: kernel.KernelIR, arrays: frozenset[str]) -> Activity:
    """Returns the activity of the locals of a kernel in which `arrays` have gradients.

    All values of one local have the same activity.
    """
    statements = tuple(nested_statements(ir.body))
    given = tuple(_assigned(s) for s in statements)
    assigned = tuple((name, value) for name, value in given if value is not None)
    varied = {
        s.result
        for s in statements
        if isinstance(s, kernel.Update) and s.result and s.array in arrays
    }
    stored = [
        s.value
        for s in statements
        if isinstance(s, kernel.Store | kernel.Update) and s.array in arrays
    ]
    useful = {
        x.name for e in stored for x in differentiable_leaves(e) if not isinstance(x, kernel.Load)
    }
    n_known = -1
    while len(varied) + len(useful) != n_known:
        n_known = len(varied) + len(useful)
        for name, value in assigned:
            if name not in varied and depends_on(value, varied, arrays):
                varied.add(name)
            if name in useful:
                leaves = differentiable_leaves(value)
                useful |= {x.name for x in leaves if not isinstance(x, kernel.Load)}
    return Activity(arrays, frozenset(varied), frozenset(useful))


def _assigned(s: kernel.Stmt) -> tuple[str, kernel.Expr | None]:
    """Returns the local that a statement sets, and its value; None for a value that is not known here."""
    if isinstance(s, kernel.SetLocal | kernel.UpdateLocal | kernel.LocalArray | kernel.SetElement):
        return s.name, s.value
    return "", None
