"""Numbers of quantised types in words: decoding and encoding.

Everything is said once, in operations of an algebra: NumPy's for Python, expressions of the IR for kernels.
The bits of a word are a number of 32 or 64 bits without sign.

A float without a shared exponent is the upper part of the bits of an f32: sign, fraction, and the exponent less a bias. A stored
exponent of zero means zero. Floats that share an exponent have the greatest of theirs. The fraction of such a float is shifted, and
has a bit for the leading one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from ..ir.kernel import DType
from ..ir.ops import OPS
from .quantised_types import QuantFixed, QuantFloat, QuantInt, QuantType

_FRACTION: Final = 23  # bits of an f32, after which its exponent begins
_LEADING: Final = 1 << _FRACTION
_SIGN: Final = 1 << 31

Part = tuple[Any, int, Any]  # of a word: where it begins, its number of bits, the bits


@dataclass(frozen=True)
class Member:
    """Number in a word: its type, and the first bits of its digits and of its exponent.

    `sharing`: the numbers that have its exponent, if there are several.
    """

    kind: QuantType
    at: int
    exponent_at: int = -1
    sharing: tuple[int, ...] = ()


@dataclass(frozen=True)
class WordLayout:
    """Word of type `dtype`, and its numbers."""

    dtype: DType
    members: tuple[Member, ...]

    @property
    def wide(self) -> DType:
        """The type that bits are computed with."""
        return DType.u64 if self.dtype is DType.u64 else DType.u32


class AbstractAlgebra(ABC):
    """Operations on numbers of one kind, each of a type."""

    @abstractmethod
    def const(self, value: float, dtype: DType) -> Any: ...
    @abstractmethod
    def binary(self, op: str, a: Any, b: Any) -> Any: ...
    @abstractmethod
    def compare(self, op: str, a: Any, b: Any) -> Any: ...
    @abstractmethod
    def select(self, condition: Any, a: Any, b: Any) -> Any: ...
    @abstractmethod
    def cast(self, x: Any, dtype: DType) -> Any: ...
    @abstractmethod
    def bitcast(self, x: Any, dtype: DType) -> Any: ...


@final
class NumpyAlgebra(AbstractAlgebra):
    """Operations on NumPy's arrays and scalars."""

    def const(self, value: float, dtype: DType) -> Any:
        return dtype.numpy.type(value)

    def binary(self, op: str, a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            return OPS[op].numpy(a, b)

    def compare(self, op: str, a: Any, b: Any) -> Any:
        return OPS[op].numpy(a, b)

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)

    def cast(self, x: Any, dtype: DType) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(dtype.numpy)

    def bitcast(self, x: Any, dtype: DType) -> Any:
        return np.ascontiguousarray(x).view(dtype.numpy).reshape(np.shape(x))


class Codec:
    """Reads and writes the numbers of words of one layout. `at` is where a number begins, if its layout does not say that."""

    def __init__(self, layout: WordLayout, algebra: AbstractAlgebra) -> None:
        self._layout, self._a = layout, algebra
        self._wide = layout.wide
        self._width = 8 * self._wide.size_bytes

    def load(self, word: Any, k: int, at: Any = None) -> Any:
        """The number `k` of a word, in its compute type."""
        a, member = self._a, self._layout.members[k]
        bits = self._bits(a.cast(word, self._wide), member, at)
        match member.kind:
            case QuantInt():
                return a.cast(self._whole(bits, member.kind), member.kind.compute)
            case QuantFixed(compute=compute, scale=scale):
                digits = a.cast(self._whole(bits, member.kind), compute)
                return a.binary("mul", digits, a.const(scale, compute))
        exponent = self._field(a.cast(word, self._wide), member.exponent_at, member.kind.exponent)
        return self._float(member, a.cast(bits, DType.u32), a.cast(exponent, DType.u32))

    def store(self, word: Any, numbers: Mapping[int, Any], at: Any = None) -> Any:
        """The word with other numbers, by their positions."""
        a, members = self._a, self._layout.members
        old = a.cast(word, self._wide)
        parts: list[Part] = []
        for k, x in numbers.items():
            member = members[k]
            if member.sharing:
                if all(begin != member.exponent_at for begin, _, _ in parts):
                    parts += self._shared_parts(old, member.sharing, numbers)
            elif isinstance(member.kind, QuantFloat):
                digits, exponent = self._split(member.kind, x)
                parts.append((member.at, member.kind.bits, digits))
                parts.append((member.exponent_at, member.kind.exponent, exponent))
            else:
                begin = member.at if at is None else at
                parts.append((begin, member.kind.bits, self._digits(member.kind, x)))
        return a.cast(self._with(old, parts), self._layout.dtype)

    def add(self, word: Any, k: int, x: Any, at: Any = None) -> Any:
        """The word with a number to which `x`, rounded to its type, is added: digits wrap around. Not for floats."""
        a, member = self._a, self._layout.members[k]
        found = a.cast(word, self._wide)
        digits = a.binary("add", self._bits(found, member, at), self._digits(member.kind, x))
        part = (member.at if at is None else at, member.kind.bits, digits)
        return a.cast(self._with(found, [part]), self._layout.dtype)

    # --- bits

    def _number(self, x: Any) -> Any:
        """A count of bits as a number of the type that bits are computed with."""
        return self._a.const(x, self._wide) if isinstance(x, int) else x

    def _field(self, word: Any, at: Any, bits: int) -> Any:
        """The bits from `at` on."""
        a = self._a
        found = word if at == 0 and isinstance(at, int) else a.binary("shr", word, self._number(at))
        if bits == self._width:
            return found
        return a.binary("bit_and", found, self._number((1 << bits) - 1))

    def _bits(self, word: Any, member: Member, at: Any) -> Any:
        return self._field(word, member.at if at is None else at, member.kind.bits)

    def _with(self, word: Any, parts: Sequence[Part]) -> Any:
        """The word with other bits."""
        a, every = self._a, (1 << self._width) - 1
        mask: Any = 0
        found: Any = None
        for at, bits, new in parts:
            ones = (1 << bits) - 1
            kept = new if ones == every else a.binary("bit_and", new, self._number(ones))
            if isinstance(at, int):
                mask |= ones << at
                kept = a.binary("shl", kept, self._number(at)) if at else kept
            else:
                mask = a.binary("shl", self._number(ones), at)
                kept = a.binary("shl", kept, at)
            found = kept if found is None else a.binary("bit_or", found, kept)
        if isinstance(mask, int):
            others = self._number(mask ^ every)
        else:
            others = a.binary("bit_xor", mask, self._number(every))
        if isinstance(mask, int) and mask == every:
            return found
        return a.binary("bit_or", a.binary("bit_and", word, others), found)

    def _whole(self, bits: Any, kind: QuantInt | QuantFixed) -> Any:
        """The bits as an integer, with its sign."""
        if not kind.is_signed:
            return bits
        a, signed = self._a, DType.i64 if self._width == 64 else DType.i32
        left = self._width - kind.bits
        if not left:
            return a.bitcast(bits, signed)
        upper = a.bitcast(a.binary("shl", bits, self._number(left)), signed)
        return a.binary("shr", upper, a.const(left, signed))

    def _digits(self, kind: QuantType, x: Any) -> Any:
        """The digits of a number, in the lowest bits."""
        a = self._a
        if not isinstance(kind, QuantFixed):
            return a.cast(x, self._wide)
        scaled = a.binary("mul", x, a.const(1 / kind.scale, kind.compute))
        half, zero = a.const(0.5, kind.compute), a.const(0.0, kind.compute)
        away = a.select(a.compare("gt", scaled, zero), half, a.const(-0.5, kind.compute))
        return a.cast(a.cast(a.binary("add", scaled, away), DType.i64), self._wide)

    # --- floats, whose bits are u32

    def _u32(self, x: int) -> Any:
        return self._a.const(x, DType.u32)

    def _shifted(self, op: str, x: Any, n: int) -> Any:
        return self._a.binary(op, x, self._u32(n)) if n else x

    def _exponent(self, bits: Any) -> Any:
        """The exponent of an f32."""
        return self._a.binary("bit_and", self._shifted("shr", bits, _FRACTION), self._u32(255))

    def _stored_exponent(self, kind: QuantFloat, exponent: Any) -> Any:
        """The stored exponent for that of an f32: 0 if it is too small, the greatest if it is too large."""
        a, bias = self._a, self._u32(kind.bias)
        kept = a.binary("sub", a.binary("max", exponent, bias), bias)
        return a.binary("min", kept, self._u32((1 << kind.exponent) - 1))

    def _sign(self, kind: QuantFloat, bits: Any) -> Any:
        """The sign of an f32, where it is among the digits of its type."""
        alone = self._a.binary("bit_and", bits, self._u32(_SIGN))
        return self._shifted("shr", alone, 31 - kind.fraction)

    def _split(self, kind: QuantFloat, x: Any) -> tuple[Any, Any]:
        """The digits and the exponent of a number, rounded to the nearest: a carry is one of the exponent."""
        a, rest = self._a, _FRACTION - kind.fraction
        bits = a.bitcast(x, DType.u32)
        if rest:
            bits = a.binary("add", bits, self._u32(1 << rest - 1))
        exponent = self._stored_exponent(kind, self._exponent(bits))
        digits = self._shifted("shr", bits, rest)
        digits = a.binary("bit_and", digits, self._u32((1 << kind.fraction) - 1))
        if kind.is_signed:
            digits = a.binary("bit_or", digits, self._sign(kind, bits))
        is_zero = a.compare("eq", exponent, self._u32(0))
        digits = a.select(is_zero, self._u32(0), digits)
        return a.cast(digits, self._wide), a.cast(exponent, self._wide)

    def _shared_parts(
        self, old: Any, sharing: tuple[int, ...], numbers: Mapping[int, Any]
    ) -> Iterator[Part]:
        """The bits of numbers of one exponent, those that are not given as they were."""
        a, members = self._a, self._layout.members
        given = [numbers[k] if k in numbers else self.load(old, k) for k in sharing]
        all_bits = [a.bitcast(x, DType.u32) for x in given]
        exponents = [self._exponent(bits) for bits in all_bits]
        greatest = exponents[0]
        for exponent in exponents[1:]:
            greatest = a.binary("max", greatest, exponent)
        first = members[sharing[0]]
        assert isinstance(first.kind, QuantFloat)
        stored = a.cast(self._stored_exponent(first.kind, greatest), self._wide)
        yield first.exponent_at, first.kind.exponent, stored
        for k, bits, exponent in zip(sharing, all_bits, exponents, strict=True):
            kind = members[k].kind
            assert isinstance(kind, QuantFloat)
            digits = self._shifted_digits(kind, bits, exponent, greatest)
            yield members[k].at, kind.bits, a.cast(digits, self._wide)

    def _shifted_digits(self, kind: QuantFloat, bits: Any, exponent: Any, greatest: Any) -> Any:
        """The digits of an f32, with the leading one, for a greater exponent: rounded to the nearest, and never beyond it."""
        a, rest = self._a, _FRACTION + 1 - kind.fraction
        fraction = a.binary("bit_and", bits, self._u32(_LEADING - 1))
        is_zero = a.compare("eq", exponent, self._u32(0))
        whole = a.binary("bit_or", fraction, self._u32(_LEADING))
        distance = a.binary("min", a.binary("sub", greatest, exponent), self._u32(31))
        digits = a.binary("shr", a.select(is_zero, self._u32(0), whole), distance)
        digits = a.binary("add", digits, self._u32(1 << rest - 1))
        digits = a.binary("min", digits, self._u32(2 * _LEADING - 1))
        digits = self._shifted("shr", digits, rest)
        return a.binary("bit_or", digits, self._sign(kind, bits)) if kind.is_signed else digits

    def _float(self, member: Member, digits: Any, stored: Any) -> Any:
        """The number of these digits and exponent."""
        a, kind = self._a, member.kind
        assert isinstance(kind, QuantFloat)
        zero = a.const(0.0, DType.f32)
        is_zero = a.compare("eq", stored, self._u32(0))
        power = self._shifted("shl", a.binary("add", stored, self._u32(kind.bias)), _FRACTION)
        fraction = a.binary("bit_and", digits, self._u32((1 << kind.fraction) - 1))
        sign = self._shifted(
            "shl",
            a.binary("bit_and", digits, self._u32(1 << kind.fraction if kind.is_signed else 0)),
            31 - kind.fraction,
        )
        if not member.sharing:
            upper = self._shifted("shl", fraction, _FRACTION - kind.fraction)
            bits = a.binary("bit_or", a.binary("bit_or", power, upper), sign)
            return a.select(is_zero, zero, a.bitcast(bits, DType.f32))
        step = a.const(2.0 ** (1 - kind.fraction), DType.f32)
        scaled = a.binary("mul", a.cast(fraction, DType.f32), step)
        found = a.binary("mul", scaled, a.bitcast(power, DType.f32))
        is_nothing = a.compare("eq", fraction, self._u32(0))  # beside an infinity
        found = a.select(is_nothing, zero, found)
        signed = a.binary("bit_or", a.bitcast(found, DType.u32), sign)
        return a.select(is_zero, zero, a.bitcast(signed, DType.f32))
