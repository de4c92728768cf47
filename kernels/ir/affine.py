"""Affine index expressions, and decision procedures for bounded linear integer systems.

Dependence tests use them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import gcd, isfinite

from .kernel import Binary, Cast, Const, DType, Expr, Local, LoopIndex, Select, Unary

BEYOND = 1 << 62  # every index
_WITNESSES = 8  # tries to guess a solution
_MAX_SPLITS = 400  # give up (answer "feasible") beyond this
_WIDE, _DEAR = (
    1 << 20,
    40,
)  # a split of more elements, which hardly ends anything, counts for so many
_NARROW = 64  # elements that may well go one by one


@dataclass(frozen=True)
class Affine:
    """Affine expression `const + sum(coefficient * loop index)`.

    `terms` are sorted by loop name and have no zero coefficient.
    """

    const: int
    terms: tuple[tuple[str, int], ...]

    def coefficient(self, loop: str) -> int:
        return dict(self.terms).get(loop, 0)


def constant(value: int) -> Affine:
    """Returns the affine expression that is a constant."""
    return Affine(value, ())


def combine(parts: Iterable[tuple[int, Affine]]) -> Affine:
    """Returns the linear combination `sum(factor * affine)` of affine expressions."""
    const, terms = 0, dict[str, int]()
    for factor, part in parts:
        const += factor * part.const
        for loop, coefficient in part.terms:
            terms[loop] = terms.get(loop, 0) + factor * coefficient
    return Affine(const, tuple(sorted((k, v) for k, v in terms.items() if v)))


def to_affine(e: Expr) -> Affine | None:
    """Returns `e` as an affine function of loop indices; None if it is none, or has parameters or loads."""
    match e:
        case Const():
            return constant(int(e.value)) if isfinite(e.value) and e.value == int(e.value) else None
        case LoopIndex():
            return Affine(0, ((e.loop, 1),))
        case Cast() if e.dtype.is_index and not e.x.dtype.is_float:
            return to_affine(e.x)
        case Unary(op="neg"):
            x = to_affine(e.x)
            return None if x is None else combine([(-1, x)])
        case Binary(op="add" | "sub" | "mul" | "floordiv" | "mod" | "min" | "max"):
            a = to_affine(e.a)
            b = None if a is None else to_affine(e.b)
            return None if a is None or b is None else _binary(e.op, a, b)
        case _:
            return None


def expression(affine: Affine, dtype: DType) -> Expr:
    """Returns `affine` as an IR expression of this type: positive terms, then negative ones, then the constant."""
    parts: list[Expr] = []
    for loop, step in sorted(affine.terms, key=lambda term: term[1] < 0):
        index: Expr = LoopIndex(loop, dtype)
        if step == -1:
            index = Unary("neg", index, dtype)
        elif step != 1:
            index = Binary("mul", index, Const(step, dtype), dtype)
        parts.append(index)
    if affine.const or not parts:
        parts.append(Const(affine.const, dtype))
    whole = parts[0]
    for part in parts[1:]:
        whole = Binary("add", whole, part, dtype)
    return whole


def unclamped(extent: Expr) -> Expr:
    """Returns the operand of an extent `max(.., 0)`: a loop with a negative extent does not run either.

    Any other extent is returned as it is.
    """
    match extent:
        case Binary(op="max", a=a, b=Const(value=0)) | Binary(op="max", a=Const(value=0), b=a):
            return a
    return extent


def _binary(op: str, a: Affine, b: Affine) -> Affine | None:
    if op in ("add", "sub"):
        return combine([(1, a), (1 if op == "add" else -1, b)])
    if op == "mul" and not (a.terms and b.terms):
        return combine([(a.const, b)]) if not a.terms else combine([(b.const, a)])
    if op in ("floordiv", "mod") and a.terms and not b.terms and b.const > 0:
        # (m x + c) mod m is c mod m, and the quotient x + c // m.
        if any(k % b.const for _, k in a.terms):
            return None
        terms = tuple((n, k // b.const) for n, k in a.terms) if op == "floordiv" else ()
        const = a.const // b.const if op == "floordiv" else a.const % b.const
        return Affine(const, terms)
    if a.terms or b.terms:
        return None
    match op:
        case "min" | "max":
            return constant(min(a.const, b.const) if op == "min" else max(a.const, b.const))
        case "floordiv" if b.const:
            return constant(a.const // b.const)
        case "mod" if b.const:
            return constant(a.const % b.const)
        case _:
            return None


def rename(affine: Affine, loops: Mapping[str, str]) -> Affine:
    """Returns `affine` with the loops that are keys of `loops` renamed; other loops keep their names."""
    return combine(
        [(c, Affine(0, ((loops.get(n, n), 1),))) for n, c in affine.terms]
        + [(1, constant(affine.const))]
    )


def without(affine: Affine, names: Collection[str]) -> Affine:
    """Returns `affine` without the terms of the loops `names`."""
    return Affine(affine.const, tuple(t for t in affine.terms if t[0] not in names))


def drop_unit_loops(affine: Affine, extents: Mapping[str, int]) -> Affine:
    """Returns `affine` without the terms of loops with one iteration, whose index is 0."""
    return Affine(affine.const, tuple(t for t in affine.terms if extents.get(t[0]) != 1))


def index_range(affine: Affine, extents: Mapping[str, int]) -> tuple[int, int]:
    """Returns the smallest and the largest value of an affine index over all iterations."""
    reach = [c * (extents[n] - 1) for n, c in affine.terms]
    return (
        affine.const + sum(r for r in reach if r < 0),
        affine.const + sum(r for r in reach if r > 0),
    )


def reach(x: Expr, extents: Mapping[str, int | None]) -> tuple[int, int] | None:
    """Returns the least and the greatest value of an affine index, which takes both; None if they are unknown."""
    form = to_affine(x)
    if form is None:
        return None
    known = {n: extent for n, _ in form.terms if (extent := extents.get(n)) is not None}
    if len(known) < len(form.terms) or min(known.values(), default=1) < 1:
        return None
    return index_range(form, known)


def limits(
    x: Expr, extents: Mapping[str, int | None], values: Mapping[str, tuple[int, int]] | None = None
) -> tuple[int, int] | None:
    """Returns a lower and an upper limit of an integer expression, not always tight; None if they are unknown.

    `values`: limits of locals. `extents`: numbers of iterations of loops, None if unknown.
    """
    exact = reach(x, extents)
    if exact is not None or not x.dtype.is_index:
        return exact
    match x:
        case Local(name):
            return values.get(name) if values else None
        case Cast(x=inner) if inner.dtype.is_index:
            return _within(limits(inner, extents, values), x.dtype)
        case Binary(op=("min" | "max" | "add") as op, a=a, b=b):
            left, right = limits(a, extents, values), limits(b, extents, values)
            if left is None or right is None:
                return _one_sided(op, left or right)
            found = _merge(op, left[0], right[0]), _merge(op, left[1], right[1])
            return _within(found, x.dtype) if op == "add" else found
        case Binary(op="mod", b=Const(value=int(m))) if m > 0:
            return 0, m - 1
        case Binary(op="floordiv", a=a, b=Const(value=int(d))) if d > 0:
            known = limits(a, extents, values)
            return None if known is None else (known[0] // d, known[1] // d)
        case Select(a=a, b=b):
            left, right = limits(a, extents, values), limits(b, extents, values)
            if left is not None and right is not None:
                return min(left[0], right[0]), max(left[1], right[1])
    return None


def _within(found: tuple[int, int] | None, dtype: DType) -> tuple[int, int] | None:
    """Returns these limits if the type can hold both, else None: beyond them values wrap around."""
    return found if found is not None and all(map(dtype.holds, found)) else None


def _merge(op: str, a: int, b: int) -> int:
    if op == "add":
        return a + b
    return min(a, b) if op == "min" else max(a, b)


def _one_sided(op: str, known: tuple[int, int] | None) -> tuple[int, int] | None:
    """Returns limits of `op` of an unknown operand and one with the limits `known`; None without limits.

    `min(unknown, k)` is at most k, `max(unknown, k)` at least k. BEYOND stands for no limit.
    """
    if known is None or op == "add":
        return None
    return (-BEYOND, known[1]) if op == "min" else (known[0], BEYOND)


# --- bounded integer systems ----------------------------------------------------------------------

Bounds = dict[str, tuple[int, int]]
_Equation = tuple[dict[str, int], int]  # coefficients by variable, and a constant: their sum is 0


def feasible(equations: Iterable[Affine], bounds: Mapping[str, tuple[int, int]]) -> bool:
    """True if some integers within `bounds` make every equation (affine expression) zero.

    True also if the search for a solution exceeds its budget.
    """
    system, box = list(equations), dict(bounds)
    if not _narrow(system, box) or _contradict(system, box):
        return False
    if any(_is_witness(system, box, corner) for corner in range(_WITNESSES)):
        return True
    return _solve(system, box, [_MAX_SPLITS])


def _contradict(equations: list[Affine], bounds: Bounds) -> bool:
    """True if the generalised GCD test (Banerjee 1988), residues or interval bounds refute the system.

    Variables of coefficient 1 or -1 are eliminated. Their bounds are lost, so variables whose bounds follow from the others come
    first. Distances between iterations and slack variables come last: `i < t` and `t < i` leave a contradiction of their slacks.
    Before each elimination bounds shrink to residues: `2 q = 2 p + r` leaves an even `r`, so 0 of 0 and 1 (Pugh 1991).
    A remaining equation has no integer solution if the GCD of its coefficients does not divide its constant. It has none either if
    its variables cannot reach 0 within their bounds.
    """
    box, left = dict(bounds), list[_Equation]()
    for e in equations:
        free = {n: c for n, c in e.terms if bounds[n][0] < bounds[n][1]}
        fixed = sum(c * bounds[n][0] for n, c in e.terms if n not in free)
        left.append((free, e.const + fixed))
    while True:
        if any(const % gcd(*terms.values()) if terms else const for terms, const in left):
            return True
        left = [_reduced(x) for x in left]
        fixed_now = _fit_to_residues(left, box)
        if fixed_now is None or any(_is_beyond(terms, const, box) for terms, const in left):
            return True
        if fixed_now:
            left = [_without(fixed_now, x) for x in left]
            continue
        units = [
            (_lost(terms, const, n, box), k, n)
            for k, (terms, const) in enumerate(left)
            for n, c in terms.items()
            if abs(c) == 1
        ]
        if not units:
            return False
        _, k, name = min(units)
        terms, const = left.pop(k)
        sign = terms.pop(name)
        for k, (others, rest) in enumerate(left):
            factor = -sign * others.pop(name, 0)
            for n, c in terms.items() if factor else ():
                others[n] = others.get(n, 0) + factor * c
            left[k] = {n: c for n, c in others.items() if c}, rest + factor * const


def _fit_to_residues(equations: Iterable[_Equation], bounds: Bounds) -> dict[str, int] | None:
    """Narrows bounds to the residues that equations leave to single variables.

    Returns the variables that have one value now; None if a variable has none.
    Precondition: the GCD of the coefficients of each equation divides its constant.
    """
    fixed = dict[str, int]()
    for terms, const in equations:
        if sum(abs(c) == 1 for c in terms.values()) > 1:
            continue  # the others of each variable have no common factor
        for name, c in terms.items():
            others = gcd(*(x for n, x in terms.items() if n != name))
            common = gcd(c, others)
            modulus = others // common
            low, high = bounds[name]
            if not others:
                only = -const // c
                low, high = max(low, only), min(high, only)
            elif modulus > 1:
                residue = -const // common * pow(c // common, -1, modulus)
                low, high = low + (residue - low) % modulus, high - (high - residue) % modulus
            if low > high:
                return None
            bounds[name] = low, high
            if low == high:
                fixed[name] = low
    return fixed


def _reduced(equation: _Equation) -> _Equation:
    """Returns an equation without a common factor of its coefficients. Precondition: the factor divides the constant."""
    terms, const = equation
    factor = gcd(*terms.values())
    if factor < 2:
        return equation
    return {n: c // factor for n, c in terms.items()}, const // factor


def _without(values: Mapping[str, int], equation: _Equation) -> _Equation:
    """Returns an equation in which some variables have values."""
    terms, const = equation
    left = {n: c for n, c in terms.items() if n not in values}
    return left, const + sum(c * values[n] for n, c in terms.items() if n in values)


def _lost(terms: Mapping[str, int], const: int, name: str, bounds: Bounds) -> int:
    """Returns the number of values that the other terms of an equation give to a variable, and its bounds exclude.

    The variable's coefficient is 1 or -1.
    """
    sign = -terms[name]
    ends = [_ends(sign * c, bounds[n]) for n, c in terms.items() if n != name]
    low, high = (sign * const + sum(x[at] for x in ends) for at in (0, 1))
    return max(0, bounds[name][0] - low) + max(0, high - bounds[name][1])


def _is_beyond(terms: Mapping[str, int], const: int, bounds: Bounds) -> bool:
    """True if the equation `terms + const = 0` has no solution with its variables within their bounds."""
    ends = [(c * bounds[n][0], c * bounds[n][1]) for n, c in terms.items()]
    low, high = const + sum(map(min, ends)), const + sum(map(max, ends))
    return low > 0 or high < 0


def _is_witness(equations: list[Affine], bounds: Bounds, corner: int) -> bool:
    """True if a trial finds a solution: each undetermined variable is set near the middle of its bounds.

    Bit k of `corner` selects the value after the middle for the undetermined variable number k, in the order of choice.
    """
    values: dict[str, int] = {}
    left = list(equations)
    while left:
        rest = []
        for e in left:
            unknown = [(n, c) for n, c in e.terms if n not in values]
            if len(unknown) > 1:
                rest.append(e)
                continue
            known = e.const + sum(c * values[n] for n, c in e.terms if n in values)
            if not unknown:
                if known:
                    return False
                continue
            name, coefficient = unknown[0]
            values[name], remainder = divmod(-known, coefficient)
            if remainder or not bounds[name][0] <= values[name] <= bounds[name][1]:
                return False
        if len(rest) == len(left):
            name = next(n for n, _ in rest[0].terms if n not in values)
            low, high = bounds[name]
            values[name] = min(high, (low + high) // 2 + (corner & 1))
            corner >>= 1
        left = rest
    return True


def _solve(equations: list[Affine], bounds: Bounds, budget: list[int]) -> bool:
    if not _narrow(equations, bounds):
        return False
    names = {name for e in equations for name, _ in e.terms}
    open_names = [n for n in names if bounds[n][0] < bounds[n][1]]
    if not open_names or budget[0] <= 0:
        return True
    name = min(open_names, key=lambda n: (bounds[n][1] - bounds[n][0], n))
    low, high = bounds[name]
    budget[0] -= 1 if high - low < _WIDE else _DEAR
    middle = (low + high) // 2
    return _solve(equations, {**bounds, name: (low, middle)}, budget) or _solve(
        equations, {**bounds, name: (middle + 1, high)}, budget
    )


def _narrow(equations: list[Affine], bounds: Bounds) -> bool:
    """Narrows bounds by interval and divisibility propagation; False at a contradiction.

    It stops when bounds change hardly any more. Where two wide variables are multiples of each other, each round removes one
    element only: a fixpoint is out of reach.
    """
    if any(low > high for low, high in bounds.values()):
        return False
    changed = True
    rounds = 0
    while changed and rounds < 100:
        changed, rounds = False, rounds + 1
        for e in equations:
            const = e.const + sum(
                c * bounds[n][0] for n, c in e.terms if bounds[n][0] == bounds[n][1]
            )
            free = [(n, c) for n, c in e.terms if bounds[n][0] < bounds[n][1]]
            if not free:
                if const:
                    return False
                continue
            if const % gcd(*(c for _, c in free)):
                return False
            ends = {n: _ends(c, bounds[n]) for n, c in free}
            low = const + sum(x[0] for x in ends.values())
            high = const + sum(x[1] for x in ends.values())
            for name, coefficient in free:
                own, known = ends[name], bounds[name]
                least, most = _quotient_range(own[1] - high, own[0] - low, coefficient)
                narrowed = (max(known[0], least), min(known[1], most))
                if narrowed[0] > narrowed[1]:
                    return False
                if narrowed != known:
                    bounds[name] = narrowed
                    left = _ends(coefficient, narrowed)
                    low, high = low + left[0] - own[0], high + left[1] - own[1]
                    before = known[1] - known[0]
                    changed |= before < _NARROW or narrowed[1] - narrowed[0] < before * 7 // 8
    return True


def _ends(coefficient: int, bounds: tuple[int, int]) -> tuple[int, int]:
    """Returns the least and the largest value of the term `coefficient * x` with x within bounds."""
    a, b = coefficient * bounds[0], coefficient * bounds[1]
    return (a, b) if a < b else (b, a)


def _quotient_range(low: int, high: int, divisor: int) -> tuple[int, int]:
    """Returns the least and the largest integer x with low <= divisor * x <= high."""
    if divisor < 0:
        low, high, divisor = -high, -low, -divisor
    return -((-low) // divisor), high // divisor
