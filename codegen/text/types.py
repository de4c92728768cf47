"""C types of scalars and vectors, by the types of kernels."""

from __future__ import annotations

from ...kernels.ir.kernel import DType

SCALAR_TYPES = {"f16": "_Float16", "f32": "float", "f64": "double", "bool_": "int"} | {
    d.name: f"{d.value}_t" for d in DType if d.is_integer
}


def type_name(dtype: DType, lanes: int) -> str:
    """Returns the C name of a scalar (`lanes` 0) or vector type."""
    return f"{dtype.name}x{lanes}" if lanes else SCALAR_TYPES[dtype.name]


def mask_dtype(dtype: DType) -> DType:
    """The integer type whose vectors hold the result of comparing vectors of `dtype`."""
    return DType(f"int{8 * dtype.size_bytes}")


def unsigned(dtype: DType) -> DType:
    """Returns the integer type without a sign that has the same width."""
    return DType(f"uint{8 * dtype.size_bytes}")
