"""Reverse mode: the adjoint of a kernel adds to the gradients of its inputs, and takes and clears those of its outputs.

The adjoint is a kernel of the same loops, made of the kernel before its trees are lowered. Each body has a forward sweep, which
computes the locals again in single-assignment form, and a reverse sweep. Arrays are read as the kernel left them: no element that
the kernel reads is stored to later (rule 1 of Taichi's language).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.kernel import (
    ArrayParam,
    Expr,
    KernelIR,
    Location,
    Stmt,
    Store,
    Update,
)
from ...ir.walk import children, loads, nested_statements
from .activity import activity_of, refusal
from .names import Names
from .overwritten import refuse_overwritten
from .pruning import names_in, pruned
from .sweeps import Making, Sweep


def adjoint(ir: KernelIR, gradients: Mapping[str, str]) -> KernelIR:
    """The adjoint of a kernel. `gradients`: for each array with a gradient the name of the array of its gradient.

    Raises KernelError for a statement without a derivative.
    """
    making = Making(gradients, activity_of(ir, frozenset(gradients)), Names(ir, gradients.values()))
    body = pruned(Sweep(making).kernel(ir.body))
    _refuse_unknown(body, making)
    refuse_overwritten(ir, body)
    used = arrays_in(body)
    arrays = [p for p in (*ir.arrays, *_gradients(ir.arrays, gradients)) if p.name in used]
    placed = [*ir.placed, *(replace(p, array=gradients[p.array]) for p in ir.placed if p.array in gradients)]
    return replace(
        ir,
        name=f"{ir.name}_grad",
        arrays=tuple(arrays),
        placed=tuple(p for p in placed if p.array in used),
        body=body,
    )


def _gradients(arrays: tuple[ArrayParam, ...], gradients: Mapping[str, str]) -> list[ArrayParam]:
    return [replace(p, name=gradients[p.name]) for p in arrays if p.name in gradients]


def arrays_in(body: tuple[Stmt, ...]) -> set[str]:
    """Returns the arrays that statements read or write."""
    found: set[str] = set()
    for s in nested_statements(body):
        if isinstance(s, Store | Update):
            found.add(s.array)
        found.update(x.array for e in children(s) for x in loads(e))
    return found


def _refuse_unknown(body: tuple[Stmt, ...], making: Making) -> None:
    """Raises KernelError where the adjoint needs a value that it cannot compute again."""
    named = names_in(body)
    for name, (sentence, where) in making.unknown.items():
        if name in named:
            raise refusal(sentence, where)
