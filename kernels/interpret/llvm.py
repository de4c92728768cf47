"""LLVM backend of the reference: scalar loops in program order, for kernels too slow to interpret.

Results equal the interpreter's, except for the order of sums over lanes; nothing is printed. An index outside its array ends the
function: it returns the number of the check, 1 for the first of `Printed.places`, and stores the index in `at[0]`. It returns 0 on
success. A failed assertion ends it in the same way. The module shares no code with code generation, since it is the reference for
generated code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NoReturn

from llvmlite import ir

from ..ir.affine import limits
from ..ir.errors import failed_assertion
from ..ir.kernel import (
    Accumulator,
    Assert,
    Binary,
    Bitcast,
    Cast,
    Compare,
    Const,
    DType,
    Expr,
    For,
    If,
    IsActive,
    Item,
    KernelIR,
    Length,
    Load,
    Local,
    LocalArray,
    LocalElement,
    LoopIndex,
    Param,
    Select,
    SetElement,
    SetLocal,
    Stmt,
    Store,
    Unary,
    Update,
    UpdateLocal,
    While,
)
from ..ir.walk import Renaming, children, nested_statements, walk
from .kernel import out_of_range
from .llvm_operations import (
    WORD,
    Value,
    compare,
    constant,
    convert,
    loaded,
    operation,
    put,
    stored_type,
    type_of,
    unary,
)
from .moved import Mover, rounds
from .work import n_nodes

NAME = "run"
_LARGE = 1000  # nodes of expressions of a kernel
_MOST_KEPT = 16  # texts of kernels


@dataclass(frozen=True)
class AxisCheck:
    """Bounds check in the compiled kernel: one axis of an array, of `extent` elements along it."""

    array: str
    axis: int
    extent: int

    def fail(self, index: int) -> NoReturn:
        """Raises the IndexError for an index that failed the check."""
        out_of_range(self.array, self.axis, index, self.extent)


@dataclass(frozen=True)
class Claim:
    """Check of an assertion in the compiled kernel."""

    text: str

    def fail(self, index: int) -> NoReturn:
        """Raises the AssertionError of the kernel, without the values in its message."""
        raise failed_assertion(self.text)


@dataclass(frozen=True)
class Printed:
    """Text of an LLVM module with the function NAME.

    Its arguments are the addresses of the arrays, the scalars of the kernel (a bool as a byte), and `at`, the address of one int64.
    """

    text: str
    places: tuple[AxisCheck | Claim, ...]


def print_llvm(
    ir_: KernelIR, held: Mapping[str, DType] | None = None, *, is_moved: bool = False
) -> Printed:
    """Prints a kernel as an LLVM module. Equal kernels with different names have equal texts.

    Arrays have the kernel's types, except those in `held`: a read-only array may be narrower. If `is_moved`, rounded results are
    moved by a unit in the last place (moved.py); `at` then contains the seed.
    """
    names = {p.name: f"{k}" for k, p in enumerate(ir_.arrays)}
    renaming = Renaming(arrays=names)
    kernel = replace(
        ir_,
        arrays=tuple(replace(p, name=names[p.name]) for p in ir_.arrays),
        body=tuple(map(renaming.apply_stmt, ir_.body)),
        placed=(),
        trusted=tuple(names[name] for name in ir_.trusted),
        shared=tuple((names[name], n) for name, n in ir_.shared),
    )
    printed = _printed(
        kernel, tuple((names[name], dtype) for name, dtype in (held or {}).items()), is_moved
    )
    own = {number: name for name, number in names.items()}
    return replace(printed, places=tuple(_named(x, own) for x in printed.places))


@lru_cache(maxsize=_MOST_KEPT)
def _printed(kernel: KernelIR, held: tuple[tuple[str, DType], ...], is_moved: bool) -> Printed:
    """Prints a kernel whose arrays have numbers as names: one text for the same kernel on several fields.

    `held` and `is_moved`: see `print_llvm`.
    """
    writer = _LlvmWriter(kernel, dict(held), is_moved)
    writer.block(kernel.body)
    writer.end()
    return Printed(str(writer.module), tuple(writer.places))


def _named(place: AxisCheck | Claim, own: Mapping[str, str]) -> AxisCheck | Claim:
    """Returns the check with the array's own name, instead of its number. `own`: the names by number."""
    if isinstance(place, Claim):
        return place
    return replace(place, array=own.get(place.array, place.array))


def can_print(kernel: KernelIR) -> bool:
    """True if a kernel has no f16, whose arithmetic is NumPy's and no machine type's."""
    types = [p.dtype for p in kernel.arrays] + [p.dtype for p in kernel.scalars]
    for s in nested_statements(kernel.body):
        for e in children(s):
            types += [x.dtype for x in walk(e)]
    return DType.f16 not in types


@dataclass
class _Array:
    """Address, shape and element type of an array; a local array of the kernel has one axis."""

    place: Value
    shape: tuple[int, ...]
    dtype: DType


@dataclass
class _LlvmWriter:
    kernel: KernelIR
    held: Mapping[str, DType]
    is_moved: bool = False
    places: list[AxisCheck | Claim] = field(default_factory=list)
    locals: dict[tuple[str, DType], Value] = field(default_factory=dict)
    loops: dict[str, Value] = field(default_factory=dict)
    extents: dict[str, int | None] = field(default_factory=dict)  # of the loops around
    checked: set[tuple[Value, int]] = field(default_factory=set)  # by the present statement
    # Of its expressions, by identity; they are kept, since identities of others are used again.
    values: dict[int, tuple[Expr, Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.module = ir.Module(NAME)
        arrays = [(p, self.held.get(p.name, p.dtype)) for p in self.kernel.arrays]
        pointers = [stored_type(dtype).as_pointer() for _, dtype in arrays]
        numbers = [stored_type(p.dtype) for p in self.kernel.scalars]
        signature = ir.FunctionType(WORD, [*pointers, *numbers, WORD.as_pointer()])
        function = ir.Function(self.module, signature, NAME)
        for argument in function.args[: len(pointers)]:
            argument.add_attribute("noalias")
        self.function, self.at = function, function.args[-1]
        self.entry = ir.IRBuilder(function.append_basic_block("entry"))
        self.build = ir.IRBuilder(function.append_basic_block("body"))
        self.first = self.build.block  # what is reserved on the stack is all in the block before
        self.mover: Mover | None = None
        if self.is_moved:
            counter = self._reserved(WORD)
            self.build.store(self.build.load(self.at), counter)
            self.mover = Mover(self.build, counter, calls=n_nodes(self.kernel) > _LARGE)
        self.arrays = {
            p.name: _Array(place, p.shape, dtype)
            for (p, dtype), place in zip(arrays, function.args, strict=False)
        }
        given = zip(self.kernel.scalars, function.args[len(pointers) :], strict=False)
        self.scalars = {
            p.name: self.build.trunc(x, type_of(p.dtype)) if p.dtype is DType.bool_ else x
            for p, x in given
        }

    def end(self) -> None:
        """Ends the function, and the block of what is reserved."""
        self.build.ret(ir.Constant(WORD, 0))
        self.entry.branch(self.first)

    # --- statements

    def block(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            self.checked, self.values = set(), {}
            match s:
                case For():
                    self._for(s)
                case If():
                    self._if(s)
                case While():
                    self._while(s)
                case SetLocal(name=name, value=value):
                    self._check(value)
                    self.build.store(self.value(value), self._local(name, value.dtype))
                case UpdateLocal(name=name, op=op, value=value):
                    self._check(value)
                    local = self._local(name, value.dtype)
                    old = self.build.load(local)
                    new = self._operation(op, old, self.value(value), value.dtype)
                    self.build.store(new, local)
                case LocalArray():
                    self._begin_array(s)
                case SetElement(name=name, index=index, value=value):
                    for x in (value, index):
                        self._check(x)
                    self._check_indices(name, (index,))
                    array, new = self.arrays[name], self.value(value)
                    place = self._element(array, (index,))
                    put(self.build, new, value.dtype, place, array.dtype)
                case Store() | Update():
                    self._write(s)
                case Assert(condition=condition):
                    self._check(condition)
                    self.places.append(Claim(f"{s.where}: {s.message}"))
                    self._leave_unless(self.value(condition))

    def _for(self, s: For) -> None:
        self._check(s.extent)
        extent = convert(self.build, self.value(s.extent), s.extent.dtype, DType.i64)
        counter = self._reserved(WORD)
        self.build.store(ir.Constant(WORD, 0), counter)
        test, body, after = (self.function.append_basic_block(x) for x in ("for", "body", "after"))
        self.build.branch(test)
        self.build.position_at_end(test)
        index = self.build.load(counter)
        self.build.cbranch(self.build.icmp_signed("<", index, extent), body, after)
        self.build.position_at_end(body)
        before = self.loops.get(s.loop)
        self.loops[s.loop] = index
        self.extents[s.loop] = int(s.extent.value) if isinstance(s.extent, Const) else None
        self.block(s.body)
        del self.extents[s.loop]
        if before is not None:
            self.loops[s.loop] = before
        self.build.store(self.build.add(index, ir.Constant(WORD, 1)), counter)
        self.build.branch(test)
        self.build.position_at_end(after)

    def _if(self, s: If) -> None:
        self._check(s.condition)
        then, orelse, after = (self.function.append_basic_block(x) for x in ("then", "else", "fi"))
        self.build.cbranch(self.value(s.condition), then, orelse)
        for block, body in ((then, s.then), (orelse, s.orelse)):
            self.build.position_at_end(block)
            self.block(body)
            self.build.branch(after)
        self.build.position_at_end(after)

    def _while(self, s: While) -> None:
        test, body, after = (self.function.append_basic_block(x) for x in ("while", "do", "done"))
        self.build.branch(test)
        self.build.position_at_end(test)
        self._check(s.condition)
        self.build.cbranch(self.value(s.condition), body, after)
        self.build.position_at_end(body)
        self.block(s.body)
        self.build.branch(test)
        self.build.position_at_end(after)

    def _begin_array(self, s: LocalArray) -> None:
        """Emits a loop that sets all elements of a local array to the value."""
        self._check(s.value)
        value, dtype = self.value(s.value), s.value.dtype
        known = self.arrays.get(s.name)
        if known is None or (known.shape, known.dtype) != ((s.extent,), dtype):
            place = self._reserved(stored_type(dtype), s.extent)
            known = self.arrays[s.name] = _Array(place, (s.extent,), dtype)
        counter = self._reserved(WORD)
        self.build.store(ir.Constant(WORD, 0), counter)
        fill, after = (self.function.append_basic_block(x) for x in ("fill", "filled"))
        if s.extent > 0:
            self.build.branch(fill)
            self.build.position_at_end(fill)
            k = self.build.load(counter)
            put(self.build, value, dtype, self.build.gep(known.place, [k]), dtype)
            following = self.build.add(k, ir.Constant(WORD, 1))
            self.build.store(following, counter)
            is_left = self.build.icmp_signed("<", following, ir.Constant(WORD, s.extent))
            self.build.cbranch(is_left, fill, after)
        else:
            self.build.branch(after)
        self.build.position_at_end(after)

    def _write(self, s: Store | Update) -> None:
        for x in (s.value, *s.indices):
            self._check(x)
        self._check_indices(s.array, s.indices)
        array, value, dtype = self.arrays[s.array], self.value(s.value), s.value.dtype
        place = self._element(array, s.indices)
        if isinstance(s, Update):
            old = loaded(self.build, place, array.dtype, array.dtype)
            value = convert(self.build, value, dtype, array.dtype)
            value, dtype = self._operation(s.op, old, value, array.dtype), array.dtype
            if s.result:
                self.build.store(old, self._local(s.result, array.dtype))
        put(self.build, value, dtype, place, array.dtype)

    def _local(self, name: str, dtype: DType) -> Value:
        """The address of a local.

        The local is zero before its first assignment, so that undefined values are reproducible.
        """
        if (name, dtype) not in self.locals:
            place = self._reserved(type_of(dtype))
            self.entry.store(constant(0, dtype), place)
            self.locals[name, dtype] = place
        return self.locals[name, dtype]

    def _reserved(self, kind: Any, n: int | None = None) -> Value:
        """Allocates stack memory for one value, or an array of `n`, once for each call of the function."""
        return self.entry.alloca(kind, size=None if n is None else max(n, 1))

    # --- indices

    def _check(self, x: Expr) -> None:
        """Emits bounds checks for every load of an expression, inner indices first."""
        for load in reversed([e for e in walk(x) if isinstance(e, Load | LocalElement)]):
            if isinstance(load, Load):
                self._check_indices(load.array, load.indices)
            else:
                self._check_indices(load.name, (load.index,))

    def _check_indices(self, array: str, indices: tuple[Expr, ...]) -> None:
        shape = self.arrays[array].shape
        for axis, (i, extent) in enumerate(zip(indices, shape, strict=True)):
            known = limits(i, self.extents)
            if known is not None and known[0] >= 0 and known[1] < extent:
                continue
            index = convert(self.build, self.value(i), i.dtype, DType.i64)
            if (index, extent) in self.checked:
                continue
            self.checked.add((index, extent))
            self.places.append(AxisCheck(array, axis, extent))
            # One test of both ends: below 0 is far above as a number without a sign.
            is_inside = self.build.icmp_unsigned("<", index, ir.Constant(WORD, extent))
            self._leave_unless(is_inside, index)

    def _leave_unless(self, condition: Value, index: Value | None = None) -> None:
        """Ends the function with the number of the last check, unless the condition is true."""
        leaving, going = (self.function.append_basic_block(x) for x in ("leave", "go"))
        self.build.cbranch(condition, going, leaving)
        self.build.position_at_end(leaving)
        if index is not None:
            self.build.store(index, self.at)
        self.build.ret(ir.Constant(WORD, len(self.places)))
        self.build.position_at_end(going)

    def _element(self, array: _Array, indices: tuple[Expr, ...]) -> Value:
        flat: Value = ir.Constant(WORD, 0)
        for i, extent in zip(indices, array.shape, strict=True):
            index = convert(self.build, self.value(i), i.dtype, DType.i64)
            flat = self.build.add(self.build.mul(flat, ir.Constant(WORD, extent)), index)
        return self.build.gep(array.place, [flat])

    # --- expressions

    def value(self, x: Expr) -> Value:
        """The LLVM value of an expression; within a statement a shared expression is computed once."""
        known = self.values.get(id(x))
        if known is None:
            known = self.values[id(x)] = x, self._value(x)
        return known[1]

    def _value(self, x: Expr) -> Value:
        build = self.build
        match x:
            case Const(value=value, dtype=dtype):
                return constant(value, dtype)
            case LoopIndex(loop=loop, dtype=dtype):
                return convert(build, self.loops[loop], DType.i64, dtype)
            case Param(name=name):
                return self.scalars[name]
            case Local(name=name, dtype=dtype):
                return build.load(self._local(name, dtype))
            case LocalElement(name=name, index=index, dtype=dtype):
                array = self.arrays[name]
                return loaded(build, self._element(array, (index,)), array.dtype, dtype)
            case Load(array=name, indices=indices, dtype=dtype):
                array = self.arrays[name]
                return loaded(build, self._element(array, indices), array.dtype, dtype)
            case Unary(op=op, x=y, dtype=dtype):
                x_ = self.value(y)
                return self._moved(op, unary(build, op, x_, y.dtype, dtype), (x_,), dtype)
            case Binary(op=op, a=a, b=b, dtype=dtype):
                return self._operation(op, self.value(a), self.value(b), dtype)
            case Compare(op=op, a=a, b=b):
                return compare(build, op, self.value(a), self.value(b), a.dtype)
            case Select(condition=condition, a=a, b=b):
                return build.select(self.value(condition), self.value(a), self.value(b))
            case Cast(x=y, dtype=dtype):
                return convert(build, self.value(y), y.dtype, dtype)
            case Bitcast(x=y, dtype=dtype):
                same = type_of(y.dtype) == type_of(dtype)
                return self.value(y) if same else build.bitcast(self.value(y), type_of(dtype))
            case Accumulator():
                raise TypeError("a kernel has no Accumulator: it belongs to Task.finish")
            case IsActive() | Length() | Item():
                raise TypeError("a kernel on sparse fields is lowered first")

    def _operation(self, op: str, a: Value, b: Value, dtype: DType) -> Value:
        return self._moved(op, operation(self.build, op, a, b, dtype), (a, b), dtype)

    def _moved(self, op: str, found: Value, operands: tuple[Value, ...], dtype: DType) -> Value:
        if self.mover is None or not rounds(op, dtype):
            return found
        return self.mover.moved(op, found, operands, dtype)
