"""Quantised types: numbers of any count of bits, which fields store in parts of words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..ir.errors import ProgramTypeError, ProgramValueError
from ..ir.kernel import DType
from .caller_location import fail
from .program import current_program, element_dtype

_FRACTION: Final = 23  # bits of an f32


@dataclass(frozen=True, repr=False)
class QuantInt:
    """Integers of `bits` bits, in two's complement if they are signed. `compute` is their type in kernels."""

    bits: int
    is_signed: bool
    compute: DType

    def __repr__(self) -> str:
        return f"q{'iu'[not self.is_signed]}{self.bits}"


@dataclass(frozen=True, repr=False)
class QuantFixed:
    """Numbers `scale` times an integer of `bits` bits."""

    bits: int
    is_signed: bool
    scale: float
    compute: DType

    def __repr__(self) -> str:
        return f"qfx{self.bits}"


@dataclass(frozen=True, repr=False)
class QuantFloat:
    """Floats of `exponent` bits and `bits` others: the fraction, and the sign if they are signed."""

    exponent: int
    bits: int
    is_signed: bool
    compute: DType

    @property
    def fraction(self) -> int:
        """The number of bits without the sign."""
        return self.bits - self.is_signed

    @property
    def bias(self) -> int:
        """The difference of the exponent of an f32 and the stored one."""
        return 128 - (1 << self.exponent - 1)

    def __repr__(self) -> str:
        return f"qfl{self.exponent}_{self.bits}"


QuantType = QuantInt | QuantFixed | QuantFloat


def _bits(n: Any, most: int, what: str) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= most:
        fail(f"{what} has 1 to {most} bits, not {n!r}", ProgramValueError)
    return n


def _float_type(compute: Any) -> DType:
    if compute is None:
        program = current_program()
        return DType.f32 if program is None else program.config.default_fp
    found = element_dtype(compute)
    if not found.is_float:
        fail(f"the compute type is one of floats, not {found.name}", ProgramTypeError)
    return found


class quant:  # noqa: N801 - Taichi's spelling
    """Quantised types: `ks.types.quant.int(bits=5)`."""

    @staticmethod
    def int(bits: Any, signed: bool = True, compute: Any = None) -> QuantInt:
        """Integers of `bits` bits, computed with in the type `compute`."""
        if compute is None:
            program = current_program()
            whole = DType.i32 if program is None else program.config.default_ip
            compute = whole if signed else {DType.i64: DType.u64}.get(whole, DType.u32)
        found = element_dtype(compute)
        if not found.is_integer:
            fail(f"the compute type is one of integers, not {found.name}", ProgramTypeError)
        return QuantInt(_bits(bits, 64, "a quantised integer"), bool(signed), found)

    @staticmethod
    def fixed(
        bits: Any,
        signed: bool = True,
        max_value: float = 1.0,
        compute: Any = None,
        scale: float | None = None,
    ) -> QuantFixed:
        """Numbers from 0, or from `-max_value`, up to `max_value`, in steps of one size: `scale`, if it is given instead."""
        n = _bits(bits, 32, "a quantised fixed-point number")
        step = max_value / (1 << n - bool(signed)) if scale is None else scale
        if not step > 0:
            fail(f"the scale of fixed-point numbers is positive, not {step!r}", ProgramValueError)
        return QuantFixed(n, bool(signed), float(step), _float_type(compute))

    @staticmethod
    def float(exp: Any, frac: Any, signed: bool = True, compute: Any = None) -> QuantFloat:
        """Floats of `exp` bits of exponent and `frac` bits of fraction and sign. They are computed with as f32."""
        found = _float_type(compute)
        if found is not DType.f32:
            fail(
                f"quantised floats are computed with as f32, not as {found.name}", ProgramTypeError
            )
        exponent = _bits(exp, 8, "the exponent of a quantised float")
        fraction = _bits(frac, _FRACTION + 1, "the fraction of a quantised float")
        if not signed and fraction > _FRACTION:
            fail("the fraction of an unsigned float has at most 23 bits", ProgramValueError)
        if signed and fraction < 2:
            fail("the fraction of a signed float has at least 2 bits", ProgramValueError)
        return QuantFloat(exponent, fraction, bool(signed), found)
