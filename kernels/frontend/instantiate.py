"""Template instantiation: compiles the syntax of a kernel to IR for one signature.

A literal that starts a local (`acc = 0.0`) takes its type from later assignments to the local, if the kernel belongs to no program.
This needs several passes over the kernel. Each collects the types assigned to such locals, until nothing changes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..fields.compound import MatrixType, StructType
from ..fields.field_view import FieldView
from ..fields.program import Program
from ..ir.kernel import ArrayParam, DType, KernelIR, Param, SetLocal, Stmt
from ..ir.logical import check_loops
from ..ir.simplify import const
from ..transforms.dead_stores import without_unread
from .clamping import clamped_indices
from .complex_numbers import COMPLEX, PARTS, ComplexType
from .elements import element_of
from .errors import KernelError, KernelSyntaxError
from .hidden import Hidden
from .instance import Instance
from .packs import PackArgument, PackType
from .parse import ParsedFunction
from .python_objects import lifted
from .quantised import in_order
from .scopes import Binding, Frame, LoopVar, Pass
from .signature import (
    ArrayArgument,
    CompoundArgument,
    ObjectArgument,
    ScalarArgument,
    Signature,
    TemplateArgument,
    members_of,
)
from .statements import Statements
from .triplets import TRIPLETS
from .typing_rules import Rules
from .values import (
    ArrayRef,
    MatrixValue,
    StructArray,
    StructValue,
    Triplets,
    Typed,
    Value,
    loaded_leaf,
)

Aliases = tuple[tuple[str, str], ...]  # of arrays: the one that is given again, the one that it is
MAX_TYPE_PASSES = 16  # each pass widens the type of at least one local


def rules_of(signature: Signature, program: Program | None) -> Rules:
    """Returns the typing rules: those of the program, or NumPy's if there is none.

    Without a program the default float is f32 if a float array is an argument and none is f64, else f64.
    """
    if program is not None:
        return Rules(program.config.default_fp, program.config.default_ip, is_strict=True)
    floats = {a.dtype for _, a in signature if isinstance(a, ArrayArgument) and a.dtype.is_float}
    if not floats:
        floats = {
            a.dtype
            for _, a in signature
            if isinstance(a, ScalarArgument) and a.dtype and a.dtype.is_float
        }
    return Rules(DType.f32 if floats and DType.f64 not in floats else DType.f64)


@dataclass(frozen=True)
class Subject:
    """Input of an instantiation: the kernel's syntax, its signature, its annotated result type, and its program."""

    parsed: ParsedFunction
    signature: Signature
    fast_math: bool = True
    returns: Any = None
    program: Program | None = None
    packs: tuple[PackArgument, ...] = ()  # whose members are entries of the signature
    aliases: Aliases = ()
    is_differentiated: bool = False  # the IR is for derivatives only
    # Of a kernel that is traced ahead of its call: no warnings, and False ends the pass.
    goes_on: Callable[[], bool] | None = None


def instantiate(subject: Subject) -> Instance:
    """Returns the instance of a kernel for one signature. LanguageError if the kernel is no valid program."""
    hints: dict[str, DType] = {}
    rules = rules_of(subject.signature, subject.program)
    for _ in range(0 if rules.is_strict else MAX_TYPE_PASSES):
        state, _ = _walk(subject, rules, hints, is_final=False)
        if state.evidence == hints:
            break
        hints = state.evidence
    return _walk(subject, rules, hints, is_final=True)[1]


def _walk(
    subject: Subject, rules: Rules, hints: dict[str, DType], *, is_final: bool
) -> tuple[Pass, Instance]:
    parsed = subject.parsed
    state = Pass(rules, hints, is_final)
    state.is_differentiated = subject.is_differentiated
    state.goes_on = subject.goes_on
    state.is_debug = subject.program is not None and subject.program.config.debug
    frame = Frame(parsed)
    state.frames.append(frame)
    arrays: list[ArrayParam] = []
    scalars: list[Param] = []
    vectors: list[str] = []
    aliases = dict(subject.aliases)
    for name, argument in subject.signature:
        state.taken[name] = 0
        match argument:
            case ArrayArgument(dtype, shape, element, layout, is_pairs, clamps):
                memory, extents = (layout.memory, layout.extents) if layout else (name, shape)
                memory = aliases.get(memory, memory)
                param = ArrayParam(memory, dtype.stored, extents)
                if param not in arrays:
                    arrays.append(param)
                own = name if layout or memory != name else ""
                ref = ArrayRef(
                    param,
                    element,
                    bool(element),
                    layout=layout,
                    argument=own,
                    is_truth=dtype is DType.bool_,
                    clamps=clamps,
                )
                frame.bind(name, _of_pairs(ref) if is_pairs else ref)
            case ScalarArgument(dtype=dtype):
                scalars.append(Param(name, dtype or state.default_float))
                frame.bind(name, Typed(scalars[-1]))
            case CompoundArgument(kind=MatrixType() as kind) if argument.is_array:
                arrays.append(ArrayParam(name, kind.dtype.stored, kind.shape))
                vectors.append(name)
                is_truth = kind.dtype is DType.bool_
                held = ArrayRef(arrays[-1], kind.shape, is_trailing=True, is_truth=is_truth)
                frame.bind(name, LoopVar(_loaded(element_of(state, held, (), parsed.tree))))
            case CompoundArgument(kind=kind):
                params = [
                    Param(n, t if isinstance(t, DType) else _number_type(t, rules))
                    for n, t in members_of(kind, name)
                ]
                scalars.extend(params)
                frame.bind(name, LoopVar(_compound(kind, iter(params))))
            case TemplateArgument(value=value) | ObjectArgument(value=value):
                frame.bind(name, lifted(state, value, name))
    for pack in subject.packs:  # whose parameters have no names that the kernel may use
        members = iter([frame.scopes[-1].pop(name) for name, _ in pack.parameters])
        frame.bind(pack.name, LoopVar(_pack(pack.kind, members)))
    statements = Statements(state, subject.returns)
    try:
        statements.run(parsed.tree.body)
    except RecursionError:
        raise KernelError(
            f"the kernel {parsed.name} is nested too deeply", parsed.where(ast.Pass())
        ) from None
    state.stop_loads(state.blocks[0])
    declared = list(frame.declared)
    where = parsed.where(parsed.tree)
    if rules.is_strict and subject.returns is not None and frame.returns is None:
        raise KernelSyntaxError(
            f"the kernel {parsed.name} says what it returns and returns nothing", where
        )
    if frame.left is not None:
        declared.append(SetLocal(frame.left.name, const(False, DType.bool_), where))
    if state.draws:
        declared.append(SetLocal(state.draws, const(0, DType.u64), where))
    body: tuple[Stmt, ...] = (*declared, *state.blocks[0])
    if is_final:
        trees = {name: s.tree for name, s in state.structures.items()}
        body = clamped_indices(in_order(body, state.words, trees, state.fresh))
    captured = [c[0] for c in state.captured.values()]
    results = None
    if frame.returns is not None:
        results, body = frame.returns.in_arrays(body, state.default_float)
    body = without_unread(body, has_loads=False)
    hidden = results.arrays if results is not None else ()
    seed = (state.seed,) if state.seed is not None else ()
    addresses = tuple(state.addresses.values())
    ir = KernelIR(
        parsed.name,
        (*arrays, *state.gradients.values(), *captured, *hidden),
        (*scalars, *seed, *(a.param for a in addresses)),
        body,
        where,
        subject.fast_math,
    )
    gradients = tuple((param.name, name) for name, param in state.gradients.items())
    fields = tuple((param.name, source) for param, source in state.captured.values())
    hidden_arguments = Hidden(state.seed is not None, addresses, gradients, tuple(vectors))
    instance = Instance(ir, fields, results, hidden_arguments)
    if state.has_forms and not subject.is_differentiated:
        form = partial(instantiate, replace(subject, is_differentiated=True))
        instance = replace(instance, differentiable=form)
    return state, _on_trees(state, instance) if state.structures and is_final else instance


def _on_trees(state: Pass, x: Instance) -> Instance:
    """Returns the instance `x` with its sparse fields as views of their trees, and with the trees."""
    cells = {name: source.cells for name, source in x.fields if name in state.placed}
    ir = replace(
        x.ir,
        trees=tuple(s.tree for s in state.structures.values()),
        placed=tuple(state.placed.values()),
    )
    check_loops(ir)
    return replace(
        x,
        ir=ir,
        fields=tuple((n, source) for n, source in x.fields if n not in cells),
        views=tuple((n, FieldView(c.structure.memory, c.number)) for n, c in cells.items()),
        structures=tuple(state.structures.items()),
    )


def _of_pairs(ref: ArrayRef) -> StructArray:
    """Returns an array of (real, imaginary) pairs as the value of a complex array: a struct of two arrays."""
    parts = [(n, replace(ref, is_trailing=True, component=(k,))) for k, n in enumerate(PARTS)]
    return StructArray(tuple(parts), COMPLEX)


def _loaded(x: Value) -> Value:
    """Returns a vector whose components cannot be assigned, also where one is chosen at run time."""
    assert isinstance(x, MatrixValue)
    return replace(x, items=tuple(loaded_leaf(i) for i in x.items))


def _pack(kind: PackType, bound: Iterator[Binding]) -> StructValue | Triplets:
    """Returns the value of a pack argument, from the values of the parameters that stand for its members."""

    def member(annotation: Any) -> Value:
        if isinstance(annotation, PackType):
            return _pack(annotation, bound)
        found = next(bound)
        return found.value if isinstance(found, LoopVar) else found

    found = tuple((n, member(a)) for n, a in kind.members)
    return Triplets(**dict(found)) if kind == TRIPLETS else StructValue(found)  # type: ignore[arg-type]


def _number_type(kind: Any, rules: Rules) -> DType:
    return rules.default_float if kind is float else rules.default_int


def _compound(kind: Any, params: Iterator[Param]) -> Value:
    """Returns the value of a vector or struct argument, from the scalar parameters that stand for its numbers."""
    if isinstance(kind, StructType | ComplexType):
        return StructValue(tuple((n, _compound(m, params)) for n, m in kind.members.items()), kind)
    if isinstance(kind, MatrixType):
        count = 1
        for n in kind.shape:
            count *= n
        return MatrixValue(kind.shape, tuple(Typed(next(params)) for _ in range(count)))
    return Typed(next(params))
