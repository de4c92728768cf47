"""Types of C by the types of kernels: scalars, and vectors of so many lanes."""

from __future__ import annotations

from ...kernels.ir.kernel import DType

SCALAR_TYPES = {"f16": "_Float16", "f32": "float", "f64": "double", "bool_": "int"} | {
    d.name: f"{d.value}_t" for d in DType if d.is_integer
}


def type_name(dtype: DType, lanes: int) -> str:
    """The C name of a scalar (`lanes` 0) or vector type."""
    return f"{dtype.name}x{lanes}" if lanes else SCALAR_TYPES[dtype.name]


def mask_dtype(dtype: DType) -> DType:
    """The integer type whose vectors hold the result of comparing vectors of `dtype`."""
    return DType(f"int{8 * dtype.size_bytes}")


def unsigned(dtype: DType) -> DType:
    """The integer type without a sign that is as wide."""
    return DType(f"uint{8 * dtype.size_bytes}")
