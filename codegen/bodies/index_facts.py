"""Static facts about the indices and locals of a recorded call: dependence on computed data, and value ranges."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from ...kernels.ir import kernel as ir
from ...kernels.ir.affine import to_affine
from ...kernels.ir.intervals import Range, range_of
from ...kernels.ir.walk import children, walk
from ...kernels.tasks.bounds_check import Around


class IndexFacts:
    """Facts about the indices and locals of one call after another.

    `written`: arrays that the sequence itself writes.
    """

    def __init__(self, written: AbstractSet[str]) -> None:
        self.written = written
        self.ranges: dict[str, Range] = {}  # of loops
        self.data_loops: set[str] = set()  # whose extent depends on data
        self.unknown: set[str] = set()  # locals that are not known before the run
        # Ranges of integer locals that only one statement sets, once it has been visited.
        self.of_locals: dict[str, Range] = {}

    def is_unknown(self, e: ir.Expr) -> bool:
        """True if expression `e` depends on values that the sequence computes, unknown before its run."""
        return any(
            (isinstance(x, ir.Load) and x.array in self.written)
            or (isinstance(x, ir.Local) and x.name in self.unknown)
            or isinstance(x, ir.LocalElement)
            for x in walk(e)
        )

    def depends_on_data(self, e: ir.Expr) -> bool:
        """True if expression `e` is not an affine function of loops with constant extents.

        Indices that are such functions are checked when a kernel is defined.
        """
        form = to_affine(e)
        return form is None or any(loop in self.data_loops for loop, _ in form.terms)

    def unknown_locals(self, body: tuple[ir.Stmt, ...]) -> set[str]:
        """Returns the locals that have an unknown value, or are assigned under an unknown condition."""
        self.unknown = set()
        while True:
            before = len(self.unknown)
            self.spread(body, False)
            if len(self.unknown) == before:
                return self.unknown

    def spread(self, body: tuple[ir.Stmt, ...], is_unsure: bool) -> None:
        for s in body:
            unsure = is_unsure or any(self.is_unknown(e) for e in children(s))
            match s:
                case ir.SetLocal(name) | ir.UpdateLocal(name) if unsure:
                    self.unknown.add(name)
                case ir.Update(result=name) if name:
                    self.unknown.add(name)
                case ir.While(body=inner):
                    self.spread(inner, True)
                case ir.For(body=inner):
                    self.spread(inner, unsure)
                case ir.If(then=then, orelse=orelse):
                    self.spread((*then, *orelse), unsure)

    def range_of(self, e: ir.Expr) -> Range:
        """Returns the least and greatest value of integer expression `e`.

        If `e` may wrap around, these are the least and greatest value of its type.
        """
        return range_of(e, self._known)

    def _known(self, e: ir.Expr) -> Range | None:
        match e:
            case ir.LoopIndex(loop):
                return self.ranges[loop]
            case ir.Local(name):
                return self.of_locals.get(name)
        return None


def always_accessed(body: tuple[ir.Stmt, ...]) -> Iterator[tuple[str, tuple[ir.Expr, ...]]]:
    """Yields (array, indices) of each access that every run of the statements makes.

    Loops and branches are skipped.
    """
    for s in body:
        if isinstance(s, ir.For | ir.If | ir.While):
            continue
        for e in children(s):
            yield from ((x.array, x.indices) for x in walk(e) if isinstance(x, ir.Load))
        if isinstance(s, ir.Store | ir.Update):
            yield s.array, s.indices


def beside(e: ir.Expr, loop: str) -> ir.Expr | None:
    """Returns `rest` if `e` is the index of `loop` plus `rest`, in either order; None for other expressions."""
    match e:
        case ir.LoopIndex(name) if name == loop:
            return ir.Const(0, e.dtype)
        case ir.Binary("add", ir.LoopIndex(name), rest) if name == loop:
            return rest
        case ir.Binary("add", rest, ir.LoopIndex(name)) if name == loop:
            return rest
    return None


def stays(around: Around, index: ir.Expr, n: int) -> bool:
    """True if an index is an affine function of loops and proved to be from 0 to `n` - 1, also in a triangular domain."""
    x = to_affine(index)
    return x is not None and around.has(x) and not around.may_leave(x, n)


def without_widening(e: ir.Expr) -> ir.Expr:
    """Returns the operand of an index's conversion from an integer type to one of at least its size; any other index unchanged."""
    match e:
        case ir.Cast(x, dtype) if x.dtype.is_integer and x.dtype.size_bytes <= dtype.size_bytes:
            return x
    return e
