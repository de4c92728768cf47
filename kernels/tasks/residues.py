"""Unrolling of time loops by a modulus: if kernels use `t % m` or `t // m` of a step t, m steps become one.

Each copy has its residue as a constant. So the arrays that steps use in rotation are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import lcm

from ..frontend.recorder import Call, Recording
from ..ir.affine import Affine, combine, constant, expression, to_affine
from ..ir.kernel import Binary, Compare, Const, DType, Expr, If, Stmt
from ..ir.ops import OPS
from ..ir.repeats import Repeat
from ..ir.walk import Renaming, children, mapped, nested_statements, walk, with_blocks

MOST_COPIES = 4  # of a step: a bound on the length of sequences
_ASKED = ("mod", "floordiv")


def by_residue(recording: Recording) -> Recording:
    """Returns the recording with such time loops unrolled, each followed by its remaining steps."""
    for number in range(len(recording.repeats) - 1, -1, -1):
        r = recording.repeats[number]
        holds_others = any(
            k != number and r.first <= x.first < r.stop for k, x in enumerate(recording.repeats)
        )
        modulus = 0 if holds_others or not r.index else _modulus(recording, r)
        if 1 < modulus <= min(MOST_COPIES, r.count):
            recording = _in_copies(recording, number, modulus)
    return recording


def _modulus(recording: Recording, r: Repeat) -> int:
    """Returns the modulus by which calls use the step of a time loop; 1 if there is none."""
    found = 1
    for call in recording.calls[r.first : r.stop]:
        numbers = _of_steps(call)
        for s in nested_statements(call.ir.body):
            for e in (x for part in children(s) for x in walk(part)):
                match e:
                    case Binary(op=op, a=a, b=Const(value=int(m))) if op in _ASKED and m > 1:
                        affine = to_affine(Renaming(params=numbers).apply(a))
                        steps = [] if affine is None else [n for n, _ in affine.terms]
                        if affine is not None and steps == [r.index]:
                            found = lcm(found, m if affine.coefficient(r.index) % m else 1)
    return found


def _of_steps(call: Call) -> dict[str, Expr]:
    """Returns the scalar arguments of a call that depend on steps of time loops, by the kernel's parameter."""
    pairs = zip(call.ir.scalars, call.scalars, strict=True)
    return {p.name: x for p, x in pairs if (f := to_affine(x)) is not None and f.terms}


def _in_copies(recording: Recording, number: int, modulus: int) -> Recording:
    r = recording.repeats[number]
    step = Affine(0, ((r.index, 1),))
    n_whole, n_left = divmod(r.count, modulus)
    inside = recording.calls[r.first : r.stop]
    copies = [
        _at(call, r.index, combine([(modulus, step), (1, constant(k))]))
        for k in range(modulus)
        for call in inside
    ]
    left = [
        _at(call, r.index, constant(n_whole * modulus + k))
        for k in range(n_left)
        for call in inside
    ]
    more = len(copies) + len(left) - len(inside)
    calls = (*recording.calls[: r.first], *copies, *left, *recording.calls[r.stop :])
    repeats = []
    for k, x in enumerate(recording.repeats):
        first = x.first + (more if x.first >= r.stop else 0)
        stop = x.stop + (more if x.stop >= r.stop else 0)
        if k == number:
            first, stop = r.first, r.first + len(copies)
        repeats.append(
            replace(x, first=first, stop=stop, count=n_whole if k == number else x.count)
        )
    return replace(recording, calls=calls, repeats=tuple(repeats))


def _at(call: Call, index: str, step: Affine) -> Call:
    """Returns the call at one step of a time loop, with residues of the step folded to constants.

    `index`: name of the loop. `step`: the step as an affine expression.
    """
    scalars = tuple(_put(x, index, step) for x in call.scalars)
    numbers = _of_steps(replace(call, scalars=scalars))
    constants = {
        p.name: x for p, x in zip(call.ir.scalars, scalars, strict=True) if isinstance(x, Const)
    }
    renaming = Renaming(params={**constants, **numbers})
    body = tuple(_known_blocks(tuple(_folded_in(renaming.apply_stmt(s)) for s in call.ir.body)))
    return replace(call, ir=replace(call.ir, body=body), scalars=scalars)


def _put(e: Expr, index: str, step: Affine) -> Expr:
    affine = to_affine(e)
    k = 0 if affine is None else affine.coefficient(index)
    if affine is None or not k:
        return e
    rest = Affine(affine.const, tuple(t for t in affine.terms if t[0] != index))
    return expression(combine([(1, rest), (k, step)]), e.dtype)


def _folded_in(s: Stmt) -> Stmt:
    return mapped(s, _folded, _folded_in)


def _folded(e: Expr) -> Expr:
    """Returns the expression with residues and comparisons folded where they are constant."""
    e = mapped(e, _folded, _folded_in)
    match e:
        case Binary(op=op) if op in _ASKED and e.dtype.is_index:
            affine = to_affine(e)
            if affine is not None:
                return expression(affine, e.dtype)
        case Compare(op=op, a=Const(value=a, dtype=dtype), b=Const(value=b)) if dtype.is_integer:
            return Const(bool(OPS[op].numpy(a, b)), DType.bool_)
    return e


def _known_blocks(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yields the statements with each branch on a constant replaced by the side that is taken."""
    for s in body:
        match s:
            case If(condition=Const(value=value)):
                yield from _known_blocks(s.then if value else s.orelse)
            case _:
                yield with_blocks(s, lambda inner: tuple(_known_blocks(inner)))
