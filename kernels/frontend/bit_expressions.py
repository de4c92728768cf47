"""Operations of quantised numbers as expressions of the IR."""

from __future__ import annotations

from typing import Any, Final, final

from ..fields.bit_codec import AbstractAlgebra, Codec, WordLayout
from ..ir import simplify
from ..ir.kernel import DType, Expr


@final
class _Expressions(AbstractAlgebra):
    def const(self, value: float, dtype: DType) -> Expr:
        return simplify.const(value, dtype)

    def binary(self, op: Any, a: Expr, b: Expr) -> Expr:
        return simplify.binary(op, a, b)

    def compare(self, op: Any, a: Expr, b: Expr) -> Expr:
        return simplify.compare(op, a, b)

    def select(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        return simplify.select(condition, a, b)

    def cast(self, x: Expr, dtype: DType) -> Expr:
        return simplify.cast(x, dtype)

    def bitcast(self, x: Expr, dtype: DType) -> Expr:
        return simplify.bitcast(x, dtype)


_EXPRESSIONS: Final = _Expressions()


def codec_of(layout: WordLayout) -> Codec:
    """The codec of words in kernels."""
    return Codec(layout, _EXPRESSIONS)
