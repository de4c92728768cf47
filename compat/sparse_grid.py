"""Taichi's `ti.sparse`: grids of structs in two or three dimensions, whose cells are active where something was stored."""

from __future__ import annotations

from typing import Any

from ..kernels.fields.caller_location import fail
from ..kernels.fields.compound import struct
from ..kernels.fields.factories import struct_field
from ..kernels.fields.fields_builder import root
from ..kernels.frontend.intrinsics import grouped
from ..kernels.frontend.kernel import f64, kernel, types
from ..kernels.ir.errors import ProgramValueError


def grid(field_dict: dict[str, Any], shape: tuple[int, ...]) -> Any:
    """A field of structs with these members, in a bitmasked node of two or three axes."""
    if len(shape) not in (2, 3):
        fail(f"a sparse grid has two or three axes, not {len(shape)}", ProgramValueError)
    made = struct_field(struct(**field_dict))
    root.bitmasked(tuple(range(len(shape))), shape).place(made)
    return made


@kernel
def _n_active(node: types.template()) -> f64:  # type: ignore[valid-type]
    n = 0.0
    for _ in grouped(node):
        n += 1.0
    return n


def usage(x: Any) -> float:
    """The part of the cells of a grid that are active, from 0 to 1."""
    n_cells = 1
    for extent in x.shape:
        n_cells *= extent
    return float(_n_active(x.parent())) / n_cells
