"""C types of scalars and vectors, by the dtypes of kernels."""

from __future__ import annotations

from ...kernels.ir.kernel import DType

SCALAR_TYPES = {"f16": "_Float16", "f32": "float", "f64": "double", "bool_": "int"} | {
    d.name: f"{d.value}_t" for d in DType if d.is_integer
}


def type_name(dtype: DType, lanes: int) -> str:
    """Returns the C name of a scalar type (`lanes` 0) or of a vector type."""
    return f"{dtype.name}x{lanes}" if lanes else SCALAR_TYPES[dtype.name]


def mask_dtype(dtype: DType) -> DType:
    """Returns the integer type whose vectors hold the results of comparing vectors of `dtype`."""
    return DType(f"int{8 * dtype.size_bytes}")


def unsigned(dtype: DType) -> DType:
    """Returns the unsigned integer type of the same width."""
    return DType(f"uint{8 * dtype.size_bytes}")
