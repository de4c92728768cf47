"""Contraction analysis: products that a compiler must not fuse with a sum into one multiply-add.

A multiply-add rounds once, product and sum round twice. A floor, a comparison, a remainder or a cast to an integer may change its
value where an operand is off by one rounding. So the operands of such step functions are rounded operation by operation, as the
program writes them. All other products may be contracted, unless `fast_math` is False.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir import kernel as ir
from ..ir.walk import children, nested_statements, walk
from .cycles import strong_components

_STEPS = frozenset(("floor", "ceil", "round", "rint", "trunc"))
_REMAINDERS = frozenset(("mod", "floordiv", "floor_mod", "raw_mod"))


FREE, SUMS, ALL = 0, 1, 2


@dataclass(frozen=True)
class ExactRounding:
    """Scope of exact rounding: statements whose products are not contracted into multiply-adds.

    `is_exact`: all statements of the body. Otherwise those that write a local or an array whose name is in `fed`.
    """

    is_exact: bool
    fed: frozenset[str] = frozenset()

    def level(self, s: ir.Stmt) -> int:
        """Returns ALL if no product of statement `s` may be contracted into a multiply-add, FREE if each may be."""
        is_fed = any(name in self.fed for name, _ in _written(s))
        return ALL if self.is_exact or is_fed else FREE


def rounding_of(body: tuple[ir.Stmt, ...], fast_math: bool) -> ExactRounding:
    """Returns the scope of exact rounding in a body.

    It is the whole body without `fast_math`, else the values that feed step functions.
    """
    return ExactRounding(False, fed(body)) if fast_math else ExactRounding(True)


def is_step(x: ir.Expr) -> bool:
    """True if an operation is a step function of floats: its value may jump if an operand changes by a rounding."""
    match x:
        case ir.Unary(op=op):
            return op in _STEPS
        case ir.Compare(a=a):
            return a.dtype.is_float
        case ir.Cast(x=y, dtype=dtype):
            return y.dtype.is_float and not dtype.is_float
        case ir.Binary(op=op, dtype=dtype):
            return op in _REMAINDERS and dtype.is_float
    return False


def fed(body: tuple[ir.Stmt, ...]) -> frozenset[str]:
    """Returns names of locals and arrays whose values feed a step function.

    Step functions are floor, comparison, remainder, and cast to an integer.
    Names whose values depend on themselves, such as sums and iterated values, are left out.
    """
    statements = list(nested_statements(body))
    sources: dict[str, set[str]] = {}
    found: set[str] = set()
    for s in statements:
        for e in children(s):
            found.update(*(_names(children(x)) for x in walk(e) if is_step(x)))
        for name, value in _written(s):
            sources.setdefault(name, set()).update(_names((value,)))
    every = _reached(found, sources)
    cycles = strong_components(sources)
    n_on_cycle = Counter(cycles.values())
    return frozenset(
        name
        for name in every & sources.keys()
        if n_on_cycle[cycles[name]] == 1 and name not in sources[name]
    )


def divides(body: tuple[ir.Stmt, ...]) -> bool:
    """True if a quotient of floats feeds a step function: it must not become a product with a reciprocal.

    Such a product rounds twice.
    """
    names = fed(body)
    for s in nested_statements(body):
        values = [value for name, value in _written(s) if name in names]
        steps = [x for e in children(s) for x in walk(e) if is_step(x)]
        if any(_is_quotient(x) for e in (*values, *steps) for x in walk(e)):
            return True
    return False


def _is_quotient(x: ir.Expr) -> bool:
    return isinstance(x, ir.Binary) and x.dtype.is_float and (x.op == "div" or is_step(x))


def _written(s: ir.Stmt) -> Sequence[tuple[str, ir.Expr]]:
    match s:
        case ir.SetLocal(name=name, value=value) | ir.SetElement(name=name, value=value):
            return ((name, value),)
        case ir.UpdateLocal(name=name, value=value):
            return ((name, value), (name, ir.Local(name, value.dtype)))
        case ir.Store(array=name, value=value):
            return ((name, value),)
        case ir.Update(array=name, indices=indices, value=value):
            return ((name, value), (name, ir.Load(name, indices, value.dtype)))
    return ()


def _names(values: Iterable[ir.Expr]) -> set[str]:
    """Returns names of the locals and arrays that are operands in `values`.

    Operands inside of indices do not count.
    """
    found: set[str] = set()
    for x in values:
        match x:
            case ir.Local(name=name) | ir.LocalElement(name=name):
                found.add(name)
            case ir.Load(array=name):
                found.add(name)
            case _:
                found |= _names(children(x))
    return found


def _reached(names: set[str], sources: dict[str, set[str]]) -> set[str]:
    """Returns `names` and all names on which their values depend, directly or not.

    `sources`: the names in the values of each name.
    """
    found: set[str] = set()
    left = list(names)
    while left:
        if (other := left.pop()) not in found:
            found.add(other)
            left += sources.get(other, ())
    return found
