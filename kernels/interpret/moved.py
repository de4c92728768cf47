"""Monte Carlo arithmetic: rounded results of floats are moved by a unit in the last place, at random.

They move up or down.
Each such run is one of the runs that rounding allows: reordered sums and contracted products round differently, with equal
accuracy. The spread of several runs measures the program's error propagation (Parker, Monte Carlo arithmetic, 1997; CADNA, Jezequel
and Chesneaux, 2008; Verificarlo, Denis et al., 2016). Exact results are not moved, as in CADNA: sums of small whole numbers are the
same in any order.

The random numbers are a mixed counter that starts at a seed, so equal seeds give equal results. In LLVM operations of a basic block
share 64 bits of one number. NumPy arrays use a generator of NumPy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir

from ..ir.kernel import DType
from ..ir.ops import OPS
from .arithmetic import AbstractArithmetic
from .contraction import contract
from .llvm_operations import WORD, Value, call, constant, type_of

Array = np.ndarray[Any, Any]

# Of floats these are exact, or are decided by the operands alone.
_EXACT = frozenset(
    (
        "neg",
        "abs",
        "min",
        "max",
        "floor",
        "ceil",
        "trunc",
        "rint",
        "round",
        "isnan",
        "isinf",
        "floordiv",
        "mod",
    )
)
_STEP, _FACTOR = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93  # of the counter, and what mixes it
# Each bit of the result is random (Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014).
_MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))  # shifts and factors
_BITS = 64
_WHOLE = 4096.0  # a function that gives a whole number up to here is taken to be exact
_WIDER: dict[str, Any] = {"float16": np.float32, "float32": np.float64, "float64": np.longdouble}


def rounds(op: str, dtype: DType) -> bool:
    """True if results of an operation on floats of this type are rounded."""
    return dtype.is_float and op not in _EXACT


def mixed(seed: int, k: int) -> int:
    """The k-th seed derived from a seed: 63 bits."""
    z = (seed * _FACTOR + (k + 1) * _STEP) % 2**64
    return (z ^ (z >> 32)) * _FACTOR % 2**64 >> 1


class Mover:
    """Writer of LLVM code that moves a result by a unit in the last place; its counter is at address `place`.

    With `calls` the code is a function for each operation: large kernels are compiled far sooner, and run somewhat longer.
    """

    def __init__(self, build: Any, place: Value, *, calls: bool = False) -> None:
        self._build, self._place, self._calls = build, place, calls
        self._functions: dict[tuple[str, DType], Any] = {}
        self._drawn: tuple[Any, Value] | None = None  # the basic block of a random number
        self._n_left = 0  # bits of it that no operation has

    def moved(self, op: str, found: Value, operands: tuple[Value, ...], dtype: DType) -> Value:
        """The moved result of an operation that rounds.

        An exact, zero, infinite or subnormal result is not moved. `found`: the rounded result of the `operands`.
        """
        sign = self._sign()
        if not self._calls:
            return _moved(self._build, op, found, operands, sign, dtype)
        function = self._functions.get((op, dtype))
        if function is None:
            function = self._functions[op, dtype] = self._function(op, len(operands), dtype)
        return self._build.call(function, (found, *operands, sign))

    def _function(self, op: str, n_operands: int, dtype: DType) -> Any:
        """The LLVM function that moves a result. Its arguments: the result, its operands, a number with a random sign."""
        kind = type_of(dtype)
        signature = ir.FunctionType(kind, [kind] * (1 + n_operands) + [WORD])
        made = ir.Function(self._build.module, signature, f"moved.{op}.{dtype.name}")
        made.linkage = "internal"
        made.attributes.add("noinline")
        found, *operands, sign = made.args
        build = ir.IRBuilder(made.append_basic_block())
        build.ret(_moved(build, op, found, tuple(operands), sign, dtype))
        return made

    def _sign(self) -> Value:
        """A number whose highest bit is random and belongs to one operation.

        The counter stays in a register, since no function has its address.
        """
        build = self._build
        if self._drawn is None or self._drawn[0] is not build.block or not self._n_left:
            self._drawn, self._n_left = (build.block, self._draw()), _BITS
        self._n_left -= 1
        return build.shl(self._drawn[1], ir.Constant(WORD, self._n_left))

    def _draw(self) -> Value:
        """The next random number of 64 bits."""
        build = self._build
        bits = build.add(build.load(self._place), ir.Constant(WORD, _STEP))
        build.store(bits, self._place)
        for shift, factor in _MIXING:
            bits = build.xor(bits, build.lshr(bits, ir.Constant(WORD, shift)))
            bits = build.mul(bits, ir.Constant(WORD, factor))
        return bits


def _moved(
    build: Any, op: str, found: Value, operands: tuple[Value, ...], sign: Value, dtype: DType
) -> Value:
    """The result of an operation, moved up or down by the highest bit of `sign` where it was rounded."""
    word = ir.IntType(8 * dtype.size_bytes)
    size = call(build, "llvm.fabs", dtype, found)
    least = float(np.finfo(dtype.value).smallest_normal)
    is_normal = build.and_(
        build.fcmp_ordered(">=", size, constant(least, dtype)),
        build.fcmp_ordered("<", size, constant(math.inf, dtype)),
    )
    is_moved = build.and_(is_normal, _is_rounded(build, op, found, operands, dtype))
    one = build.or_(build.ashr(sign, ir.Constant(WORD, _BITS - 1)), ir.Constant(WORD, 1))
    one = one if word.width == _BITS else build.trunc(one, word)
    step = build.select(is_moved, one, ir.Constant(word, 0))
    # Nearly all are: a branch that the processor foresees, not a chain of operations that each waits for the one before.
    weights = (
        ir.MetaDataString(build.module, "branch_weights"),
        *(ir.Constant(ir.IntType(32), n) for n in (2000, 1)),
    )
    step.set_metadata("prof", build.module.add_metadata(weights))
    return build.bitcast(build.add(build.bitcast(found, word), step), type_of(dtype))


def _is_rounded(
    build: Any, op: str, found: Value, operands: tuple[Value, ...], dtype: DType
) -> Value:
    """True if an operation did not give its exact result; of other functions, unless it looks exact."""
    match op:
        case "add" | "sub":  # Knuth's sum without error
            a, b = operands
            b = build.fneg(b) if op == "sub" else b
            part = build.fsub(found, a)
            error = build.fadd(build.fsub(a, build.fsub(found, part)), build.fsub(b, part))
        case "mul":
            a, b = operands
            error = _fused(build, a, b, build.fneg(found), dtype)
        case "div":
            error = _fused(build, found, operands[1], build.fneg(operands[0]), dtype)
        case "sqrt":
            error = _fused(build, found, found, build.fneg(operands[0]), dtype)
        case _:
            is_large = build.fcmp_ordered(
                ">", call(build, "llvm.fabs", dtype, found), constant(_WHOLE, dtype)
            )
            whole = call(build, "llvm.rint", dtype, found)
            return build.or_(is_large, build.fcmp_ordered("!=", whole, found))
    return build.fcmp_ordered("!=", error, constant(0, dtype))


def _fused(build: Any, a: Value, b: Value, c: Value, dtype: DType) -> Value:
    return call(build, "llvm.fma", dtype, a, b, c)


class ArrayMover(AbstractArithmetic):
    """Arithmetic on NumPy arrays that moves each rounded result by a unit in the last place."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def operation(self, op: str, *operands: Any) -> Any:
        """The result of NumPy for an operation, moved if it was rounded."""
        found = OPS[op].numpy(*operands)
        dtype = np.asarray(found).dtype
        if dtype.kind != "f" or op in _EXACT:
            return found
        wider = _WIDER[dtype.name]
        wide = OPS[op].numpy(*(np.asarray(x, wider) for x in operands))
        return self._moved(found, wide != found)

    def reduced(self, op: str, terms: Array, axis: tuple[int, ...], keepdims: bool = False) -> Any:
        """The reduction of terms along axes, moved if its operation rounds.

        A sum of n terms moves as far as its partial sums would on average: by eps * sqrt(n) of the sum, or of the root of the sum
        of squares, whichever is larger.
        """
        found = OPS[op].ufunc.reduce(terms, axis=axis, dtype=terms.dtype, keepdims=keepdims)
        if terms.dtype.kind != "f" or op not in ("add", "mul"):
            return found
        n = math.prod(terms.shape[k] for k in axis)
        if op == "mul":
            size = np.abs(found)
        else:
            wide = terms.astype(_WIDER[terms.dtype.name])
            if _is_whole(terms, np.abs(wide).sum(axis=axis).max(initial=0.0)):
                return found
            size = np.sqrt((wide * wide).sum(axis=axis, keepdims=keepdims))
        return self._shifted(found, size, n)

    def contracted(self, a: Array, b: Array, shape: tuple[int, ...], n_reduced: int) -> Array:
        """The result of `contract`, moved like a reduction."""
        found = contract(a, b, shape, n_reduced)
        if found.dtype.kind != "f":
            return found
        if _is_whole(a, 0.0) and _is_whole(b, 0.0):
            most = contract(np.abs(a), np.abs(b), shape, n_reduced).max(initial=0.0)
            if _is_whole(a, most):
                return found
        n = math.prod(shape[:n_reduced])
        size = np.sqrt(contract(a * a, b * b, shape, n_reduced))
        moved: Array = self._shifted(found, size, n)
        return moved

    def scattered(self, op: str, array: Array, indices: tuple[Array, ...], values: Array) -> None:
        """Updates elements like NumPy's scatter, then moves each element once."""
        OPS[op].ufunc.at(array, indices, values)
        if array.dtype.kind == "f" and op not in _EXACT:
            array[indices] = self._moved(array[indices], True)

    def _shifted(self, found: Any, size: Any, n: int) -> Any:
        dtype = np.asarray(found).dtype
        far = float(np.finfo(dtype).eps) * math.sqrt(n)
        random = self._rng.uniform(-1.0, 1.0, np.shape(found))
        return np.asarray(found + far * random * np.maximum(np.abs(found), size)).astype(dtype)[()]

    def _moved(self, found: Any, is_rounded: Any) -> Any:
        dtype = np.asarray(found).dtype
        size = np.abs(found)
        is_normal = (size >= np.finfo(dtype).smallest_normal) & np.isfinite(size)
        up = self._rng.integers(0, 2, np.shape(found), np.int8) > 0
        beside = np.nextafter(found, np.where(up, np.inf, -np.inf).astype(dtype))
        return np.where(is_rounded & is_normal, beside, found).astype(dtype)[()]


def _is_whole(x: Array, most: float) -> bool:
    """True if all elements are whole numbers, and sums of magnitude `most` are exact in their type."""
    is_small = most < 2.0 ** (np.finfo(x.dtype).nmant + 1)
    return bool(is_small) and bool((np.rint(x) == x).all())
