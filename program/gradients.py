"""Operations on gradients of a program's fields.

Kernels do them, so that recorded sequences contain them.
"""

from __future__ import annotations

from typing import Any

from ..kernels.fields.field import AbstractLeaf, DerivativeKind
from ..kernels.fields.program import needed_program
from ..kernels.frontend.kernel import f64, grouped, kernel, static, template


@kernel
def clear_fields(fields: template()):  # type: ignore[no-untyped-def, valid-type]
    for field in static(fields):
        for at in grouped(field):
            field[at] = 0


@kernel
def set_elements(field: template(), value: f64):  # type: ignore[no-untyped-def, valid-type]
    for at in grouped(field):
        field[at] = value


def clear_all_gradients(gradient_type: DerivativeKind = "grad") -> None:
    """Sets the gradients of all fields to zero; `gradient_type` "dual": the derivatives of forward mode."""
    program = needed_program("ks.ad.clear_all_gradients")
    placed = [_placed(leaf, gradient_type) for x in program.fields for leaf in x.leaves()]
    found = tuple(dict.fromkeys(x for x in placed if x is not None))
    if found:
        clear_fields(found)


def _placed(leaf: AbstractLeaf, kind: DerivativeKind) -> AbstractLeaf | None:
    """Returns the gradient or dual (`kind`) of a field if it is placed and has memory, else None."""
    found = leaf.placed_derivative(kind)
    is_final = found is not None and found.place.snode.tree.is_final
    return found if is_final else None


def set_all(field: Any, value: float) -> None:
    """Sets all elements of a field to `value` by a kernel."""
    set_elements(field, value)
