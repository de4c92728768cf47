"""Access analysis: memory accesses of a body, and proofs that iterations touch different elements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..ir.access import ALWAYS
from ..ir.affine import Affine
from ..ir.body import Body, Reason, Shape, Site, SiteReader
from ..ir.domain import UNBOUNDED, Loop
from ..ir.kernel import Const, Expr, For, If, Local, LoopIndex, Param, Stmt, While
from ..ir.simplify import binary, const
from ..ir.walk import Renaming, children, nested_statements, walk
from .conflicts import is_injective

# Invariant values are between this and its negative: they are parts of indices of arrays.
_HALF = UNBOUNDED // 2


def analyse(
    statements: tuple[Stmt, ...],
    loops: Sequence[Loop],
    reason: Reason,
    lists: frozenset[str] = frozenset(),
) -> Body:
    """Returns the body (`Body`) of a task over `loops`: its statements with the analysed accesses.

    `reason`: why the task is non-affine. `lists`: index lists, arrays whose first row has no number twice.
    Precondition: names of loops inside the statements are unique and differ from those of the task's loops.
    """
    sites = tuple(
        replace(s, is_unique=is_injective(s.index, s.guard, loops, s.loops))
        for s in sites_of(statements, loops, lists)
    )
    every = list(nested_statements(statements))
    shape: Shape = "straight"
    if any(isinstance(s, If) for s in every):
        shape = "guarded"
    if any(
        isinstance(s, While) or (isinstance(s, For) and not isinstance(s.extent, Const))
        for s in every
    ):
        shape = "loops"
    return Body(statements, sites, shape, reason)


def sites_of(
    statements: tuple[Stmt, ...],
    loops: Sequence[Loop],
    lists: frozenset[str] = frozenset(),
) -> tuple[Site, ...]:
    """Returns the accesses (`Site`) of statements over `loops`, in program order.

    Their flag `is_unique` is not computed.
    """
    reader = SiteReader(tuple(loops), statements, lists)
    reader.block(statements, ALWAYS, ())
    return tuple(reader.sites)


def with_invariant_indices(
    loop: For, changed: Collection[str]
) -> tuple[tuple[Loop, ...], tuple[Stmt, ...]]:
    """Returns a loop of a body, rewritten for dependence tests: loops, and statements over them.

    The loops are step loops, and then the loop itself.
    An integer that no iteration of the loop changes becomes the index of a step loop around it. Such integers are indices of loops
    around, integer arguments, and integer locals outside of `changed`, the locals that the loop changes.
    A step loop has one index for all accesses that are compared.
    """
    every = [x for s in nested_statements(loop.body) for e in children(s) for x in walk(e)]
    inside = {s.loop for s in nested_statements((loop,)) if isinstance(s, For)}
    around = {x.loop for x in every if isinstance(x, LoopIndex)} - inside
    invariant: dict[type, dict[str, Expr]] = {Local: {}, Param: {}}
    for x in every:
        if isinstance(x, Local | Param) and x.dtype.is_index and x.name not in changed:
            name = f"{type(x).__name__} {x.name}"  # no loop has a name with a space
            value = binary("sub", LoopIndex(name, x.dtype), const(_HALF, x.dtype))
            invariant[type(x)].setdefault(x.name, value)
            around.add(name)
    renaming = Renaming(locals=invariant[Local], params=invariant[Param])
    steps = (Loop(name, UNBOUNDED, False, is_step=True) for name in sorted(around))
    n = max(0, int(loop.extent.value)) if isinstance(loop.extent, Const) else UNBOUNDED
    return (*steps, Loop(loop.loop, n, False)), tuple(map(renaming.apply_stmt, loop.body))


def longest(
    s: For, shapes: Mapping[str, tuple[int, ...]], steps: tuple[Loop, ...] = ()
) -> int | None:
    """Returns an upper bound of the number of iterations of loop `s`; None if no array bounds it.

    In each iteration the loop accesses some arrays unconditionally, and no access leaves its array. So the arrays' extents bound
    the loop's extent.

    `shapes`: shapes of the arrays by name. `steps`: the step loops of repeats around the loop.
    """
    found = []
    for site in sites_of(s.body, (*steps, Loop(s.loop, UNBOUNDED, False))):
        if site.guard != ALWAYS or site.loops:
            continue
        for axis, n in zip(site.index, shapes.get(site.state.name, ()), strict=False):
            match axis.affine:
                case Affine(const, ((s.loop, step),)) if step > 0 and axis.divisor == 1:
                    found.append(max(0, (n - 1 - const) // step + 1))
    return min(found, default=None)
