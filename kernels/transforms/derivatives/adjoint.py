"""Reverse mode: an adjoint kernel adds to gradients of inputs, and takes and clears gradients of outputs.

The adjoint is a kernel of the same loops, made of the kernel before sparse lowering. Each body has a forward sweep, which computes
the locals again in single-assignment form, and a reverse sweep. Arrays are read as the kernel left them: no element that the kernel
reads is stored to later (rule 1 of Taichi's language).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.kernel import (
    ArrayParam,
    KernelIR,
    Stmt,
    Store,
    Update,
)
from ...ir.walk import children, loads, nested_statements, with_blocks
from .activity import activity_of, refusal
from .body import Making, SweepBody
from .joined import combined, joined
from .naming import Names
from .overwritten import refuse_overwritten
from .pruning import names_in, pruned
from .sweeps import sweep_kernel

N_KEPT = 1024


def adjoint(ir: KernelIR, gradients: Mapping[str, str], n_kept: int = N_KEPT) -> KernelIR:
    """Returns the adjoint (reverse mode) of a kernel.

    `gradients`: for each array with a gradient the name of the gradient's array. `n_kept`: the greatest number of iterations of a
    loop of unknown length for which locals are kept. Raises KernelError for a statement without a derivative.
    """
    activity, names = activity_of(ir, frozenset(gradients)), Names(ir, gradients.values())
    making = Making(gradients, activity, names, n_kept)
    whole = SweepBody(making)
    sweep_kernel(whole, ir.body)
    body = _with_needed_guards(pruned(whole.statements()), making)
    arrays = dict.fromkeys((*ir.arrays, *_gradients(ir.arrays, gradients)))
    if ir.fast_math:
        body = combined(joined(body), {p.name: p.dtype for p in arrays}, names.fresh)
    _refuse_unknown(body, making)
    refuse_overwritten(ir, body)
    used = arrays_in(body)
    beside = (replace(p, array=gradients[p.array]) for p in ir.placed if p.array in gradients)
    return replace(
        ir,
        name=f"{ir.name}_grad",
        arrays=tuple(p for p in arrays if p.name in used),
        placed=tuple(p for p in (*ir.placed, *beside) if p.array in used),
        body=body,
    )


def _with_needed_guards(body: tuple[Stmt, ...], making: Making) -> tuple[Stmt, ...]:
    """Returns the statements without assertions on local arrays that no statement reads."""
    named = names_in(body)
    unneeded = {guard.uid for array, guard in making.guards.items() if array not in named}
    if not unneeded:
        return body
    return pruned(_without(body, unneeded))


def _without(body: tuple[Stmt, ...], left_out: set[int]) -> tuple[Stmt, ...]:
    kept = (s for s in body if s.uid not in left_out)
    return tuple(with_blocks(s, lambda block: _without(block, left_out)) for s in kept)


def _gradients(arrays: tuple[ArrayParam, ...], gradients: Mapping[str, str]) -> list[ArrayParam]:
    return [replace(p, name=gradients[p.name]) for p in arrays if p.name in gradients]


def arrays_in(body: tuple[Stmt, ...]) -> set[str]:
    """Returns names of the arrays that statements read or write."""
    found: set[str] = set()
    for s in nested_statements(body):
        if isinstance(s, Store | Update):
            found.add(s.array)
        found.update(x.array for e in children(s) for x in loads(e))
    return found


def _refuse_unknown(body: tuple[Stmt, ...], making: Making) -> None:
    """Raises KernelError if the adjoint needs a value that it cannot compute again."""
    named = names_in(body)
    for name, (sentence, where) in making.unknown.items():
        if name in named:
            raise refusal(sentence, where)
