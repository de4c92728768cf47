"""Default rules for vectorisation: loops that compilers leave scalar, although arithmetic dominates in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ...kernels.analysis.inner_ranges import gathers, lane_ranges, widest
from ...kernels.analysis.neighbour_loads import near_loads, row_length
from ...kernels.analysis.uniformity import Uniformity
from ...kernels.analysis.vectorisable import refusal
from ...kernels.analysis.write_rows import Write, is_free, write_rows
from ...kernels.ir import kernel as ir
from ...kernels.ir.affine import to_affine
from ...kernels.ir.task import Problem
from ...kernels.ir.walk import blocks, children, identified, nested_statements, walk
from ...space.families.ranges import ALONG, N_VECTORS, RANGES
from .nest_facts import parts_of

LEAST_BYTES = 32  # of a register, from which on it pays
# Cost of one of these, in operations on all lanes.
_FUNCTION, _GATHER, _UPDATE = 8, 4, 6
_KEPT = 2  # to store a value of all lanes, and to load it in each of them
_IN_ROW = 2  # a load or store of one of several elements near one another, which are transposed
_LONG = 256  # iterations from which on the latency of sums costs more than what a compiler needs for vectors
_FUNCTIONS = frozenset(("pow", "atan2", "hypot"))
_INSTRUCTIONS = frozenset(("neg", "abs", "sqrt", "rsqrt", "floor", "ceil", "trunc", "rint", "not"))


def lanes_of(
    problem: Problem,
    nest: Sequence[ir.For],
    are_apart: Callable[[Sequence[ir.For], tuple[ir.Stmt, ...]], bool],
    vector_bytes: int,
) -> tuple[str, int] | None:
    """Returns (loop, number of lanes) for the loop of a perfect nest to vectorise; None if no loop is.

    It is the innermost loop with independent iterations. `are_apart(loops, body)`: True if no
    iteration accesses an element that another one stores, or reads one that another one updates.
    """
    if vector_bytes < LEAST_BYTES or refusal(nest[0].body, problem):
        return None
    known = [loop for loop in nest if isinstance(loop.extent, ir.Const)]
    for levels in range(max(1, len(known)), 0, -1):
        loop = nest[levels - 1]
        if not are_apart(nest[:levels], loop.body) or (levels > 1 and _adds_up(loop)):
            continue
        if not _pays(loop, problem):
            return None
        width = vector_bytes // widest(loop.body)
        if any(isinstance(s, ir.While | ir.For) for s in nested_statements(loop.body)):
            width *= 2  # passes depend on the one before: a second register has work while the first is blocked
        if not isinstance(loop.extent, ir.Const) and levels > 1:
            return None
        if isinstance(loop.extent, ir.Const) and int(loop.extent.value) < width // 2:
            return None
        return loop.loop, width
    return None


def front_of(
    problem: Problem, nest: Sequence[ir.For], outer: Collection[str], vector_bytes: int
) -> tuple[str, int] | None:
    """Returns (loop, number of lanes) if the front of a nest's body pays in lanes, the rest lane by lane; None if not.

    `outer`: locals that are declared outside of the nest.
    """
    loop = nest[-1]
    if vector_bytes < LEAST_BYTES or (len(nest) > 1 and not isinstance(loop.extent, ir.Const)):
        return None
    parts = parts_of(problem, nest, frozenset(outer))
    if parts is None:
        return None
    alone = replace(loop, body=identified(parts.front))
    uniformity = Uniformity(loop.loop, alone.body, frozenset())
    if _saved(alone, problem, uniformity) < _KEPT * len(parts.kept):
        return None
    width = vector_bytes // widest(parts.front)
    if any(isinstance(s, ir.While | ir.For) for s in nested_statements(parts.front)):
        width *= 2
    if isinstance(loop.extent, ir.Const) and int(loop.extent.value) < width // 2:
        return None
    return loop.loop, width


def ranges_of(
    problem: Problem,
    body: tuple[ir.Stmt, ...],
    fast_math: bool,
    vector_bytes: int,
    *,
    instead_of_lanes: bool,
) -> dict[str, str]:
    """Returns the values of the choice `ranges` for loops inside a body that compilers leave scalar.

    `instead_of_lanes`: a loop around may be vectorised; then only loops that load at indirect indices are better. Of loops that lie
    in one another one is taken, the inner one where both pay.
    """
    if vector_bytes < LEAST_BYTES:
        return {}
    found: list[ir.For] = []
    for s in reversed(lane_ranges(body, problem, fast_math)):  # inner loops first
        around = {x.loop for x in nested_statements(s.body) if isinstance(x, ir.For)}
        pays = (
            _is_row(s)
            or (not instead_of_lanes and _pays_along(s, fast_math))
            or _gathers_pay(s, problem, vector_bytes)
        )
        if pays and around.isdisjoint(x.loop for x in found):
            found.append(s)
    return {s.loop: _n_vectors(s, vector_bytes) for s in reversed(found)}


def _n_vectors(loop: ir.For, vector_bytes: int) -> str:
    """Returns the value of the choice `ranges` for a vectorised loop: several vectors at once if sums would wait for each other.

    Iterations behind the last whole vectors run one by one. In a long loop these cost less than the latency of its sums.
    """
    inside = list(nested_statements(loop.body))
    if isinstance(loop.extent, ir.Const) and any(isinstance(s, ir.UpdateLocal) for s in inside):
        extent, n_lanes = int(loop.extent.value), vector_bytes // widest(loop.body)
        is_long = extent >= _LONG and not _calls(inside)
        for value, n in reversed(N_VECTORS.items()):
            if extent % (n * n_lanes) == 0 or (is_long and extent >= n * n_lanes):
                return value
    return RANGES[ALONG]


def _calls(statements: Sequence[ir.Stmt]) -> bool:
    """True if some statement calls a function that is no instruction."""
    return any(_is_function(x) for s in statements for e in children(s) for x in walk(e))


def _is_row(loop: ir.For) -> bool:
    """True if an extent is known only at run time and iterations load at indirect indices, as in CSR."""
    return not isinstance(loop.extent, ir.Const) and _looks_up(loop.body)


def _pays_along(loop: ir.For, fast_math: bool) -> bool:
    """True if vectors along a loop inside of a body are quicker than what compilers make of it."""
    n_lanes = LEAST_BYTES // widest(loop.body)
    if isinstance(loop.extent, ir.Const) and int(loop.extent.value) < 2 * n_lanes:
        return False
    inside = list(nested_statements(loop.body))
    if not _are_side_by_side(loop, inside):
        return False
    if any(isinstance(s, ir.For) and not _are_side_by_side(s, s.body) for s in inside):
        return True  # along the inner loop a vector would be gathered
    # Functions are of vectors where sums may be reordered; compilers keep the order of floats in a minimum.
    picks = (s for s in inside if isinstance(s, ir.UpdateLocal) and s.op in ("min", "max"))
    if fast_math and (_calls(inside) or any(s.value.dtype.is_float for s in picks)):
        return True
    # Compilers sum into one vector, and wait for each addition.
    sums = any(isinstance(s, ir.UpdateLocal) and s.value.dtype.is_float for s in loop.body)
    return sums and isinstance(loop.extent, ir.Const) and int(loop.extent.value) >= _LONG


def _gathers_pay(loop: ir.For, problem: Problem, vector_bytes: int) -> bool:
    """True if an innermost loop of whole vectors gathers, and lanes save more than gathers cost: compilers leave it scalar."""
    n_lanes = vector_bytes // widest(loop.body)
    if not isinstance(loop.extent, ir.Const) or int(loop.extent.value) % n_lanes:
        return False
    uniformity = Uniformity(loop.loop, loop.body, frozenset())
    return gathers(loop, uniformity) and _saved(loop, problem, uniformity) >= 0


def _are_side_by_side(loop: ir.For, body: Sequence[ir.Stmt]) -> bool:
    """True if iterations of a loop access one element, or neighbouring ones, wherever its body accesses an array."""
    uniformity = Uniformity(loop.loop, loop.body, frozenset())
    every = [x for s in body for e in children(s) for x in walk(e)]
    places = [x.indices for x in every if isinstance(x, ir.Load)]
    places += [s.indices for s in body if isinstance(s, ir.Store | ir.Update)]
    return all(_distance(p, uniformity) in (0, 1) for p in places)


def _looks_up(body: tuple[ir.Stmt, ...]) -> bool:
    """True if some index is computed from an array element (an indirect access)."""
    found = (x for s in nested_statements(body) for e in children(s) for x in walk(e))
    indices = (i for x in found if isinstance(x, ir.Load) for i in x.indices)
    return any(isinstance(y, ir.Load) for i in indices for y in walk(i))


def _pays(loop: ir.For, problem: Problem) -> bool:
    uniformity = Uniformity(loop.loop, loop.body, frozenset())
    inside = list(nested_statements(loop.body))
    inner = [s for s in inside if isinstance(s, ir.For)]
    if inner and all(runs_along_rows(s, uniformity) for s in inner):
        return False
    if any(_updates_along_rows(s, uniformity) for s in inner):
        return False

    leaves_scalar = (
        any(isinstance(s, ir.If | ir.While | ir.For) for s in inside)
        or _adds_in_overlap(inside, uniformity)
        or _calls(inside)
        or bool(_in_rows(loop, problem, uniformity))
    )
    return leaves_scalar and _saved(loop, problem, uniformity) >= 0


def _saved(loop: ir.For, problem: Problem, uniformity: Uniformity) -> int:
    """Returns the work that lanes of a loop save: its operations, less what gathers and scatters cost more than in scalar code."""
    inside = list(nested_statements(loop.body))

    def is_apart(indices: tuple[ir.Expr, ...]) -> bool:
        return _distance(indices, uniformity) not in (0, 1)

    in_rows, stored_in_rows = (
        _in_rows(loop, problem, uniformity),
        _stored_in_rows(loop, problem, uniformity),
    )
    work = -_IN_ROW * len(in_rows)  # each once, however often it is used
    for s in inside:
        if isinstance(s, ir.Store) and is_apart(s.indices):
            work -= _IN_ROW if s in stored_in_rows else _GATHER
        if isinstance(s, ir.Update):
            work -= 0 if _distance(s.indices, uniformity) == 1 else _UPDATE
        for e in children(s):
            for x in walk(e):
                match x:
                    case ir.Load() if x not in in_rows and is_apart(x.indices):
                        work -= _GATHER
                    case _ if _is_function(x):
                        work += _FUNCTION
                    case ir.Binary() | ir.Unary() | ir.Compare() | ir.Select() | ir.Cast():
                        work += 1
    return work


def _is_function(e: ir.Expr) -> bool:
    """True if the operation is a function call, not one machine instruction."""
    match e:
        case ir.Unary(op=op, x=x):
            return x.dtype.is_float and op not in _INSTRUCTIONS
        case ir.Binary(op=op):
            return op in _FUNCTIONS
    return False


def runs_along_rows(s: ir.For, uniformity: Uniformity) -> bool:
    """True if accesses are contiguous over the iterations of inner loop `s`, but not over the lanes of the outer loop.

    Compilers vectorise such an inner loop if it calls no functions.
    """
    kinds = ir.SetLocal | ir.UpdateLocal | ir.Store | ir.Update
    if not all(isinstance(x, kinds) and x.value.dtype.is_float for x in s.body):
        return False
    every = [x for t in s.body for e in children(t) for x in walk(e)]
    places = [x.indices for x in every if isinstance(x, ir.Load)]
    places += [t.indices for t in s.body if isinstance(t, ir.Store | ir.Update)]
    along = Uniformity(s.loop, s.body, frozenset())
    if any(map(_is_function, every)) or any(_distance(p, along) not in (0, 1) for p in places):
        return False
    return any(_distance(p, uniformity) not in (0, 1) for p in places)


def _updates_along_rows(s: ir.For, uniformity: Uniformity) -> bool:
    """True if inner loop `s` loads rows, and makes updates that lanes of the outer loop would make one by one.

    Lanes save no update then, and gather the rows, as in the restriction of a multigrid.
    """
    along = Uniformity(s.loop, s.body, frozenset())

    def is_row(indices: tuple[ir.Expr, ...]) -> bool:
        return _distance(indices, along) == 1 and _distance(indices, uniformity) not in (0, 1)

    inside = list(nested_statements(s.body))
    updates = (t for t in inside if isinstance(t, ir.Update))
    if not any(_distance(t.indices, uniformity) not in (0, 1) for t in updates):
        return False
    every = (x for t in inside for e in children(t) for x in walk(e))
    return any(isinstance(x, ir.Load) and is_row(x.indices) for x in every)


def _adds_in_overlap(inside: Sequence[ir.Stmt], uniformity: Uniformity) -> bool:
    """True if neighbouring iterations update the same element, as in adjoints of stencils.

    Compilers leave such a loop scalar, to preserve the order of updates. Vectorised here, each
    update statement adds for all lanes at once, to different elements.
    """
    places: dict[str, set[tuple[ir.Expr, ...]]] = {}
    for s in inside:
        if isinstance(s, ir.Update) and _distance(s.indices, uniformity) == 1:
            places.setdefault(s.array, set()).add(s.indices)
    return any(len(found) > 1 for found in places.values())


def _in_rows(loop: ir.For, problem: Problem, uniformity: Uniformity) -> set[ir.Load]:
    """Returns loads that read, in each lane, contiguous elements at indirect indices, or along an axis that no loop runs along.

    Compilers gather these one by one, or leave the loop scalar.
    """

    def may(load: ir.Load) -> bool:
        is_apart = any(to_affine(i) is None for i in load.indices) or (
            bool(load.indices) and not uniformity.varies(load.indices[-1])
        )
        return is_apart and _distance(load.indices, uniformity) not in (0, 1)

    every = [loop.body, *(b for s in nested_statements(loop.body) for b in blocks(s))]
    shape_of = {a.name: a.shape for a in problem.arrays}.__getitem__
    found = (near_loads(b, shape_of, may, row_length) for b in every)
    return {load for of_block in found for of_statement in of_block for load in of_statement}


def _stored_in_rows(loop: ir.For, problem: Problem, uniformity: Uniformity) -> set[Write]:
    """Returns the stores that write, in each lane, contiguous elements that lie apart from those of other lanes."""
    body = loop.body
    free = is_free(body)

    def may(s: Write) -> bool:
        is_store = isinstance(s, ir.Store) and free(s)
        return is_store and _distance(s.indices, uniformity) not in (0, 1)

    def dtype_of(array: str) -> ir.DType:
        return problem.array(array).dtype

    every = [body, *(b for s in nested_statements(body) for b in blocks(s))]
    rows = (row for b in every for row in write_rows(b, may, dtype_of).values())
    return {s for row in rows for s in row.writes}


def _adds_up(loop: ir.For) -> bool:
    """True if all lanes update the same element; then an outer loop is vectorised instead."""
    uniformity = Uniformity(loop.loop, loop.body, frozenset())
    return any(
        isinstance(s, ir.Update) and _distance(s.indices, uniformity) == 0
        for s in nested_statements(loop.body)
    )


def _distance(indices: tuple[ir.Expr, ...], uniformity: Uniformity) -> int | None:
    """Returns the distance (in elements) between the accesses of neighbouring lanes; None if it is not constant."""
    if not indices:
        return 0  # an array without axes has one element
    *rows, last = indices
    if any(map(uniformity.varies, rows)):
        return None
    return _step(last, uniformity)


def _step(e: ir.Expr, uniformity: Uniformity) -> int | None:
    if not uniformity.varies(e):
        return 0
    match e:
        case ir.LoopIndex():
            return 1
        case ir.Cast(x) if x.dtype.is_index:
            return _step(x, uniformity)
        case ir.Binary("add" | "sub" as op, a, b):
            left, right = _step(a, uniformity), _step(b, uniformity)
            if left is None or right is None:
                return None
            return left + right if op == "add" else left - right
    return None
