"""Archive format of recorded sequences: writer to JSON values and reader. A run then needs no user program.

Nodes are objects with their class under "is"; dtypes are names; infinities and NaN are texts. Reading accepts exactly the classes
and fields below and validates the rest: names are identifiers, arrays of calls fit, kernels are well-formed, and their accesses lie
inside their arrays. Keys prove nothing: the writer of a file can write matching ones.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..frontend.recorder import Call, Recording
from ..ir import kernel as ir
from ..ir.affine import index_range, to_affine
from ..ir.errors import LanguageError
from ..ir.kernel import Const, DType, KernelIR, SetLocal
from ..ir.logical import FieldPlace, check_loops
from ..ir.repeats import Repeat, are_nested, times
from ..ir.rewrites import REWRITES
from ..ir.structure import StructureTree, TreeNode
from ..ir.verify import IRError, check
from ..ir.walk import Renaming, children, local_changed, nested_statements, walk
from ..sparse.calls import logical_kernel
from ..sparse.layout import wrong_tree
from ..sparse.lowered import Lowered
from ..sparse.recorded import Logical, UsedTree, appended_to
from .bounds_check import first_outside
from .default_lowering import lower_by_default

_CLASSES: dict[str, type[Any]] = {
    c.__name__: c
    for c in (
        *get_args(ir.Expr),
        *get_args(ir.Stmt),
        ir.ArrayParam,
        ir.KernelIR,
        ir.Location,
        ir.Placed,
        StructureTree,
        TreeNode,
        FieldPlace,
        Logical,
        UsedTree,
        Call,
        Recording,
        Repeat,
    )
}


# Fields that older files lack; left out if they have their default.
_LATER = {
    "Update": frozenset({"result"}),
    "ArrayParam": frozenset({"is_list"}),
    "KernelIR": frozenset({"trees", "placed", "independent", "trusted", "shared"}),
    "Call": frozenset({"logical"}),
    "Recording": frozenset({"trees", "repeats", "unseen", "assumed", "n_assumed_runs", "left_out"}),
    "Repeat": frozenset({"index", "until"}),
    "UsedTree": frozenset({"appended"}),
}
# Fields that switch checks off: files never have them.
_NEVER = {
    "KernelIR": frozenset({"trusted", "shared"}),
    "ArrayParam": frozenset({"is_list"}),
    "UsedTree": frozenset({"appended"}),
}
_IDENTITY = "uid"  # of a statement: given anew to each kernel that is read
_DEEPEST = 100  # nodes inside one another; each stage walks them by recursion
_LONGEST = 4096  # characters of a text
_FARTHEST = 1 << 48  # iterations of a loop
_MOST_CALLS = 1 << 24  # that a sequence makes


class ArchiveError(Exception):
    """JSON values that are no recorded sequence; the message is one sentence."""


def to_values(recording: Recording) -> dict[str, Any]:
    """Returns the recording as JSON values."""
    values: dict[str, Any] = _encode(recording)
    return values


def from_values(values: Any) -> Recording:
    """Returns the recording of JSON values made by `to_values`. Raises ArchiveError."""
    try:
        recording = _decode(values, Recording)
    except RecursionError:
        raise ArchiveError("its nodes are nested too deeply") from None
    assert isinstance(recording, Recording)
    _check_names(recording)
    where = ir.Location(recording.name, 0)
    whole = KernelIR(
        recording.name, (*recording.arrays, *recording.temps), recording.scalars, (), where
    )
    _check(whole, "the sequence")
    _check_repeats(recording)
    for k, call in enumerate(recording.calls):
        around = tuple(r for r in recording.repeats if r.index and k in r.members)
        _check_call(call, whole, around)
    return _on_trees(recording)


def _on_trees(recording: Recording) -> Recording:
    """Returns the recording with its kernels on sparse fields lowered again.

    Files do not store the arrays whose indices are in bounds (`trusted`).
    """
    shapes = {p.name: (p.dtype, p.shape) for p in recording.arrays}
    trees = {t.tree.name: t for t in recording.trees}
    if len(trees) < len(recording.trees):
        raise ArchiveError("two trees have one name")
    for used in recording.trees:
        wrong = wrong_tree(used.tree, used.fields)
        if wrong:
            raise ArchiveError(wrong)
        try:
            sections = used.layout.sections
        except LanguageError as e:
            raise ArchiveError(str(e)) from None
        for key, name in used.sections:
            wanted = sections.get(key)
            if wanted is None or shapes.get(name) != (wanted.dtype, wanted.shape):
                raise ArchiveError(f"the array {name} is no {key:.20} of its tree")
    calls = []
    for call in recording.calls:
        lowered = None if call.logical is None else _lowered(call, call.logical, trees)
        calls.append(call if lowered is None else replace(call, ir=lowered))
    kernels = [call.logical.ir for call in calls if call.logical is not None]
    appended = {
        name: sorted({n for ir in kernels for n in appended_to(ir, name)}) for name in trees
    }
    if not {*recording.assumed} <= {t.tree.name for t in recording.trees if "counters" in t.arrays}:
        raise ArchiveError("it assumes active cells of trees that it does not have")
    if recording.n_assumed_runs < 1:
        raise ArchiveError(f"it assumes active cells of {recording.n_assumed_runs} runs before")
    if not REWRITES.keys() >= {*recording.left_out}:
        raise ArchiveError("it leaves out rewrites that there are not")
    known = tuple(replace(t, appended=tuple(appended[t.tree.name])) for t in recording.trees)
    return replace(recording, calls=tuple(calls), trees=known)


def _lowered(call: Call, logical: Logical, trees: dict[str, UsedTree]) -> KernelIR:
    """Returns the lowered IR of a kernel on sparse fields, after a check of its trees and fields.

    Raises ArchiveError unless the called kernel equals a lowering by this version. Activation in each cell is accepted, too:
    earlier versions made it. The newest lowering is returned if its arrays are the same.
    """
    _check(logical.ir, f"the kernel {call.ir.name}")
    arrays = {p.name: p for p in logical.ir.arrays}
    known = all(t.name in trees and trees[t.name].tree == t for t in logical.ir.trees)
    if not known or len(logical.fields) != len(logical.ir.placed):
        raise ArchiveError(f"the kernel {call.ir.name} is on trees that the sequence does not have")
    for p, number in zip(logical.ir.placed, logical.fields, strict=True):
        fields = trees[p.tree].fields if p.tree in trees else ()
        if not 0 <= number < len(fields) or p.array not in arrays:
            raise ArchiveError(f"{p.array} of {call.ir.name} is no field of its tree")
        f, array = fields[number], arrays[p.array]
        shape = (*f.components, *trees[p.tree].tree.shape(f.node))
        if (f.node, f.dtype, shape) != (p.node, array.dtype, array.shape):
            raise ArchiveError(f"{p.array} of {call.ir.name} is no field of its tree")
    given = dict(zip((p.name for p in call.ir.arrays), call.arrays, strict=True))
    try:
        check_loops(logical.ir)
        kernel = logical_kernel(logical, trees.values())
        forms = [
            lower_by_default(kernel, activates_once=once)
            for once in (True, False)  # earlier versions made cells active one by one
        ]
    except LanguageError as e:
        raise ArchiveError(str(e)) from None
    for lowered in forms:
        sections = ((n, trees[tree], key) for n, tree, key in lowered.sections if tree in trees)
        is_same = _without_claims(lowered.ir, lowered) == _without_claims(call.ir, lowered)
        if is_same and all(given.get(n) == t.arrays.get(key) for n, t, key in sections):
            newest = forms[0].ir  # the program has this one now, and plan replay compares with it
            return newest if newest.arrays == lowered.ir.arrays else lowered.ir
    raise ArchiveError(
        f"the kernel {call.ir.name} is not what its sparse fields are lowered to by this version: explore it again"
    )


def _without_claims(kernel: KernelIR, lowered: Lowered) -> KernelIR:
    """Returns the kernel without fields that files do not store, and without its last `n_claiming` statements.

    These statements report writes that were not made; sequences do not run them.
    """
    body = kernel.body[: len(kernel.body) - lowered.n_claiming]
    return replace(kernel, body=body, trusted=(), shared=())


def _check(kernel: KernelIR, what: str) -> None:
    try:
        check(kernel)
    except IRError as e:
        raise ArchiveError(f"{what} is not well-formed: {e}") from e


def _check_names(recording: Recording) -> None:
    """Raises ArchiveError unless all names are identifiers; that of the sequence may also have the characters `<>.-`.

    They get into paths, texts of programs and output.
    """
    if not re.fullmatch(r"[\w<>.-]+", recording.name):
        raise ArchiveError(f"{recording.name!r:.60} is no name of a sequence")
    named = [*_names(*recording.arrays, *recording.temps, *recording.scalars)]
    named += [r.index for r in recording.repeats if r.index]
    for call in recording.calls:
        named += [call.ir.name, *_names(*call.ir.arrays, *call.ir.scalars)]
        for s in nested_statements(call.ir.body):
            match s:
                case ir.For():
                    named.append(s.loop)
                case _ if local_changed(s):
                    named.append(local_changed(s))
    for name in named:
        if not name.isidentifier():
            raise ArchiveError(f"{name!r:.60} is no name")
    if not {*recording.unseen} <= {*_names(*recording.temps)}:
        raise ArchiveError("an unseen array is no temporary")


def _check_repeats(recording: Recording) -> None:
    """Checks that repeats cover calls, are nested or disjoint, and make at most `_MOST_CALLS` calls.

    Raises ArchiveError.
    """
    n_calls, repeats = len(recording.calls), recording.repeats
    named = [r.index for r in repeats if r.index]
    taken = {*_names(*recording.arrays, *recording.temps, *recording.scalars)}
    if len(set(named)) < len(named) or taken & set(named):
        raise ArchiveError("its steps have names that others have")
    integers = {a.name for a in recording.arrays if a.dtype.is_integer and math.prod(a.shape) == 1}
    if not recording.ending <= integers:
        raise ArchiveError("what ends a repeat is no array of one integer")
    if any(r.index and r.until for r in repeats):
        raise ArchiveError("its steps are numbered, and an array may end them")
    if not are_nested(n_calls, repeats):
        raise ArchiveError("its repeats are none of its calls, in their order")
    if sum(times(n_calls, repeats)) > _MOST_CALLS:
        raise ArchiveError(f"it makes more than {_MOST_CALLS} calls")


def _names(*parameters: ir.ArrayParam | ir.Param) -> list[str]:
    return [p.name for p in parameters]


def _check_call(call: Call, whole: KernelIR, around: tuple[Repeat, ...]) -> None:
    """Checks the arrays, scalars and accesses of a call. Raises ArchiveError.

    Arrays and scalars exist in the sequence `whole`, or are indices of the time loops `around`. Accesses lie inside their arrays.
    """
    name = call.ir.name
    known = {a.name: a for a in whole.arrays}
    if not known.keys() >= set(call.arrays) or len(call.arrays) != len(call.ir.arrays):
        raise ArchiveError(f"the call of {name} names arrays that do not exist")
    if len(set(call.arrays)) != len(call.arrays):
        raise ArchiveError(f"the call of {name} has an array twice")
    for given, wanted in zip(call.arrays, call.ir.arrays, strict=True):
        if (known[given].dtype, known[given].shape) != (wanted.dtype, wanted.shape):
            raise ArchiveError(f"the array {given} is no {wanted.name} of {name}")
    if len(call.scalars) != len(call.ir.scalars):
        raise ArchiveError(f"the call of {name} has too many or too few scalars")
    _check(call.ir, f"the kernel {name}")
    for x, p in zip(call.scalars, call.ir.scalars, strict=True):
        if x.dtype is not p.dtype:
            raise ArchiveError(f"the call of {name} gives a {x.dtype.name} for {p.name}")
        # As the value of a variable of a kernel that has the scalars of the sequence and no arrays; no identifier is `=`.
        body: tuple[ir.Stmt, ...] = (SetLocal("=", x, call.where),)
        for r in around:
            body = (ir.For(r.index, Const(r.count, DType.i64), body, call.where),)
        _check(replace(whole, arrays=(), body=body), f"the call of {name}")
        grown = to_affine(x) if around else None
        ends = index_range(grown, {r.index: r.count for r in around}) if grown else ()
        if any(not x.dtype.holds(end) for end in ends):
            raise ArchiveError(f"a number that {name} is called with grows beyond {x.dtype.name}")
    for s in nested_statements(call.ir.body):
        if isinstance(s, ir.For) and isinstance(s.extent, Const) and s.extent.value > _FARTHEST:
            raise ArchiveError(f"the loop {s.loop} of {name} has {s.extent.value} iterations")
    constants = [y for s in nested_statements(call.ir.body) for e in children(s) for y in walk(e)]
    constants += [y for e in call.scalars for y in walk(e)]
    for y in constants:
        if isinstance(y, Const) and y.dtype.is_integer and not y.dtype.holds(y.value):
            raise ArchiveError(f"{y.value!s:.40} is no {y.dtype.name}")
    outside = first_outside(_in_steps(call, around), of_file=True)
    if outside is not None:
        raise ArchiveError(outside)


def _in_steps(call: Call, around: tuple[Repeat, ...]) -> KernelIR:
    """Returns the kernel of a call within loops over the steps on which its scalar arguments depend."""
    if not call.uses_steps:
        return call.ir
    numbers = {p.name: x for p, x in zip(call.ir.scalars, call.scalars, strict=True)}
    renaming = Renaming(params={name: x for name, x in numbers.items() if to_affine(x) is not None})
    body = tuple(map(renaming.apply_stmt, call.ir.body))
    for r in reversed(around):
        body = (ir.For(r.index, Const(r.count, DType.i64), body, call.where),)
    return replace(call.ir, body=body)


def _encode(x: Any) -> Any:
    if isinstance(x, DType):
        return x.name
    if isinstance(x, tuple):
        return [_encode(e) for e in x]
    if is_dataclass(x) and not isinstance(x, type):
        name = type(x).__name__
        named = {f.name: (getattr(x, f.name), f.default) for f in fields(x)}
        late = _LATER.get(name, frozenset())
        never = _NEVER.get(name, frozenset()) | {_IDENTITY}
        kept = {
            k: _encode(v)
            for k, (v, usual) in named.items()
            if (k not in late or v != usual) and k not in never
        }
        return {"is": name} | kept
    if isinstance(x, float) and not math.isfinite(x):
        return repr(x)
    return x


@cache
def _types(name: str) -> dict[str, Any]:
    return {k: kind for k, kind in get_type_hints(_CLASSES[name]).items() if k != _IDENTITY}


def _decode(x: Any, wanted: Any, depth: int = 0) -> Any:
    """Returns the JSON value `x` as a value of type `wanted`: class, union, tuple, literal or scalar type."""
    if depth > _DEEPEST:
        raise ArchiveError("its nodes are nested too deeply")
    if get_origin(wanted) is tuple:
        if not isinstance(x, list):
            raise ArchiveError(f"a list is needed, not {x!r:.60}")
        return tuple(_decode(e, get_args(wanted)[0], depth) for e in x)
    if get_origin(wanted) is Literal:
        return _one_of(x, get_args(wanted))
    if wanted is DType:
        return DType[_one_of(x, tuple(DType.__members__))]
    options = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
    if isinstance(x, dict):
        return _decode_node(x, options, depth + 1)
    if float in options and x in ("inf", "-inf", "nan"):
        return float(x)
    if isinstance(x, str):
        lines = x.split("\n") if ir.Const in options else [x]  # printed text may have several
        if not (all(map(str.isprintable, lines)) and len(x) <= _LONGEST):
            raise ArchiveError(f"{x!r:.60} is no text of one line")
    if type(x) in options:
        return x
    names = ", ".join(getattr(o, "__name__", str(o)) for o in options)
    raise ArchiveError(f"{x!r:.60} is not one of {names}")


def _decode_node(x: dict[str, Any], options: tuple[Any, ...], depth: int) -> Any:
    kind = _CLASSES.get(str(x.get("is")))
    if kind is None or kind not in options:
        raise ArchiveError(f"a node {x.get('is')!r:.60} is not expected here")
    types = _types(kind.__name__)
    if set(x) | _LATER.get(kind.__name__, frozenset()) != {"is", *types}:
        raise ArchiveError(f"a node {x['is']} has the fields {', '.join(map(str, x))}")
    if forbidden := _NEVER.get(kind.__name__, frozenset()) & set(x):
        raise ArchiveError(f"a node {x['is']} of a file says what is {', '.join(forbidden)}")
    return kind(**{name: _decode(x[name], t, depth) for name, t in types.items() if name in x})


def _one_of(x: Any, options: tuple[Any, ...]) -> Any:
    if x not in options:
        raise ArchiveError(f"{x!r:.60} is not one of {', '.join(map(str, options))}")
    return x
