"""Template instantiation: a kernel's syntax and a signature to IR.

Literals that start a local (`acc = 0.0`) take their type from what is assigned to the local later.
This needs several walks over the kernel: each one collects the types assigned to such locals, until
nothing changes.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from ..ir.kernel import ArrayParam, DType, KernelIR, Param
from .errors import LanguageError
from .parse import ParsedFunction
from .scopes import Frame, Pass
from .statements import Statements
from .typing_rules import ArrayRef, Typed, lift

MAX_TYPE_PASSES = 16  # each pass widens the type of at least one local


@dataclass(frozen=True)
class ScalarArgument:
    """`dtype` is None for a Python float without annotation: the kernel's default float."""

    dtype: DType | None


@dataclass(frozen=True)
class ArrayArgument:
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class TemplateArgument:
    """The type takes part in the signature: True, 1 and 1.0 are one key but three instances."""

    value: object
    kind: type = field(default=object)


Argument = ArrayArgument | ScalarArgument | TemplateArgument
Signature = tuple[tuple[str, Argument], ...]


def default_float(signature: Signature) -> DType:
    """f32 if every float array argument is f32, else f64."""
    floats = {a.dtype for _, a in signature if isinstance(a, ArrayArgument) and a.dtype.is_float}
    if not floats:
        floats = {
            a.dtype
            for _, a in signature
            if isinstance(a, ScalarArgument) and a.dtype and a.dtype.is_float
        }
    return DType.f32 if floats == {DType.f32} else DType.f64


def instantiate(parsed: ParsedFunction, signature: Signature, fast_math: bool) -> KernelIR:
    """The IR of a kernel for one signature (one entry per parameter, in order); LanguageError where
    it has no meaning.
    """
    hints: dict[str, DType] = {}
    for _ in range(MAX_TYPE_PASSES):
        state, _ = _walk(parsed, signature, hints, is_final=False)
        if state.evidence == hints:
            break
        hints = state.evidence
    return _walk(parsed, signature, hints, is_final=True, fast_math=fast_math)[1]


def _walk(
    parsed: ParsedFunction,
    signature: Signature,
    hints: dict[str, DType],
    *,
    is_final: bool,
    fast_math: bool = True,
) -> tuple[Pass, KernelIR]:
    state = Pass(default_float(signature), hints, is_final)
    frame = Frame(parsed)
    state.frames.append(frame)
    arrays: list[ArrayParam] = []
    scalars: list[Param] = []
    for name, argument in signature:
        state.taken[name] = 0
        match argument:
            case ArrayArgument(dtype=dtype, shape=shape):
                arrays.append(ArrayParam(name, dtype, shape))
                frame.bind(name, ArrayRef(arrays[-1]))
            case ScalarArgument(dtype=dtype):
                scalars.append(Param(name, dtype or state.default_float))
                frame.bind(name, Typed(scalars[-1]))
            case TemplateArgument(value=value):
                frame.bind(name, lift(value))
    try:
        Statements(state).run(parsed.tree.body)
    except RecursionError:
        raise LanguageError(
            f"the kernel {parsed.name} is nested too deeply", parsed.where(ast.Pass())
        ) from None
    body = tuple(state.blocks[0])
    return state, KernelIR(
        parsed.name, tuple(arrays), tuple(scalars), body, parsed.where(parsed.tree), fast_math
    )
