"""Factories of fields: create them and place them in the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.errors import KernelSyntaxError, ProgramTypeError, ProgramValueError
from ..ir.kernel import DType
from .caller_location import fail
from .compound import MatrixType, StructType
from .element_fields import MatrixField, ScalarField
from .field import AbstractField, DerivativeKind
from .program import element_dtype, needed_program
from .struct_field import StructField
from .tree import Layout, extents_of, offset_of


def field(dtype: Any, shape: Any = None, **options: Any) -> Any:
    """Returns a new field of numbers of type `dtype`, or of vectors, matrices or structs for such a type.

    Without `shape` it gets one from `ks.root.dense(...).place(...)`. `name` is for messages, `offset` the least index along each
    axis, `order` the order of the axes in memory ("ij"), which is accepted without effect. `needs_grad` and `needs_dual` place the
    fields of its derivatives, `x.grad` and `x.dual`.
    """
    if isinstance(dtype, (MatrixType, StructType)):
        return dtype.field(shape=shape, **options)
    name = _name(options)
    made = _of_other(dtype, (), name) or ScalarField(element_dtype(dtype), name)
    return _placed(made, shape, options)


def matrix_field(
    element_shape: tuple[int, ...], dtype: Any, shape: Any = None, **options: Any
) -> Any:
    """Returns a new field of vectors or matrices; `dtype` may be a (nested) list of one type, as in Taichi."""
    extents = extents_of(element_shape, "a field of vectors or matrices")
    made = _of_other(dtype, extents, _name(options)) or MatrixField(
        _one_dtype(dtype), extents, _name(options)
    )
    _placed(made, shape, options)
    return made


_others: list[Callable[[Any, tuple[int, ...], str], AbstractField | None]] = []


def make_fields_by(make: Callable[[Any, tuple[int, ...], str], AbstractField | None]) -> None:
    """Has fields of further types made by `make`: of type, shape of an element and name. It gives None for other types."""
    _others.append(make)


def _of_other(dtype: Any, element_shape: tuple[int, ...], name: str) -> AbstractField | None:
    """A field of a further type; None for others."""
    found = (make(dtype, element_shape, name) for make in _others)
    return next((field for field in found if field is not None), None)


def struct_field(kind: StructType, shape: Any = None, **options: Any) -> StructField:
    """Returns a new field of structs of type `kind`."""
    made = _struct(kind, _name(options))
    _placed(made, shape, options)
    return made


def _struct(kind: StructType, name: str) -> StructField:
    made = StructField(kind, {}, name)
    prefix = made.name
    for key, member in kind.members.items():
        inner = f"{prefix}_{key}" if prefix else key
        if isinstance(member, StructType):
            made.members[key] = _struct(member, inner)
        elif isinstance(member, MatrixType):
            made.members[key] = MatrixField(member.dtype, member.shape, inner)
        else:
            made.members[key] = ScalarField(element_dtype(member), inner)
    return made


def _one_dtype(dtype: Any) -> DType:
    if not isinstance(dtype, (list, tuple)):
        return element_dtype(dtype)
    found = {_one_dtype(d) for d in dtype}
    if len(found) != 1:
        fail("the components of a field of vectors or matrices have one type", ProgramValueError)
    return found.pop()


def _name(options: dict[str, Any]) -> str:
    """Returns the option `name`; "" without it. LanguageError for options that fields do not have."""
    unknown = options.keys() - {
        "order",
        "name",
        "offset",
        "needs_grad",
        "needs_dual",
        "layout",
        "ndim",
    }
    if unknown:
        fail(f"a field has no option {', '.join(sorted(unknown))}", ProgramTypeError)
    if not isinstance(options.get("layout", Layout.AOS), Layout):
        fail("the layout of a field is ks.Layout.AOS or ks.Layout.SOA", ProgramTypeError)
    return str(options.get("name", ""))


_KINDS: tuple[DerivativeKind, ...] = ("grad", "dual")


def _placed(made: AbstractField, shape: Any, options: dict[str, Any]) -> AbstractField:
    """Registers a new field in the program and returns it; places it in the tree if it has a shape."""
    program = needed_program("a field")
    program.fields.append(made)
    derivatives = [made.derivative(kind) for kind in _KINDS if options.get(f"needs_{kind}")]
    program.unplaced += [made, *derivatives]
    order, offset = options.get("order"), options.get("offset")
    if shape is None:
        for name, given in (("order", order), ("offset", offset)):
            if given is not None:
                fail(f"a field with {name}= needs a shape=", KernelSyntaxError)
        return made
    extents = extents_of(shape, "a field")
    if offset is not None:
        offset_of(offset, extents)
    node = program.root
    for axes in _axes(order, len(extents)):
        node = node.dense(axes, tuple(extents[a] for a in axes))
    node.place(made, *derivatives, offset=offset)
    return made


def _axes(order: Any, n: int) -> Sequence[tuple[int, ...]]:
    """Returns the axes of each dense node above a field: one node for all axes, or one for each of `order`."""
    if order is None:
        return (tuple(range(n)),)
    if not isinstance(order, str) or sorted(order) != list("ijkl"[: len(order)]) or len(order) != n:
        fail(
            f"the order {order!r} does not name each of the {n} axes once, with i first",
            ProgramValueError,
        )
    return tuple(("ijkl".index(c),) for c in order)
