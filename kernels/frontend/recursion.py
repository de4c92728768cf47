"""Functions that call themselves: their calls become jumps of a loop, which keeps locals on stacks.

The body of such a function is compiled once. Blocks between its own calls are the branches of a loop over a program counter: a call
pushes the locals and the number of the block behind it, a return pops both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir import kernel as ir
from ..ir.simplify import cast, compare, const
from ..ir.walk import nested_statements, rewrite, with_blocks
from .errors import KernelError
from .func import Func
from .values import Value

MOST_DEEP = 1024  # calls inside one another: a stack of f64 then has 8 KiB
_RETURN, _ENTRY = 0, 1 << 16  # the numbers of the block that returns, and of the first one
_INDEX = ir.DType.i32


@dataclass
class Recursion:
    """A function that calls itself, while its body is compiled.

    `constants`: arguments that each call repeats, by parameter.
    `parameters`: the locals of all others.
    `result`: the locals that a return stores to, None without a value.
    `outside`: the names that are none of its own locals.
    `marker`: a local; a number assigned to it stands for a call.
    `calls`: for each such number the statements that give the arguments.
    """

    func: Func
    constants: dict[str, Value]
    parameters: dict[str, Value]
    result: Value | None
    outside: frozenset[str]
    marker: str
    calls: tuple[tuple[ir.Stmt, ...], ...] = ()


@dataclass(frozen=True)
class _Block:
    """Statements without calls of the function, and the statements that say which block is next."""

    statements: tuple[ir.Stmt, ...]
    end: tuple[ir.Stmt, ...]


class Machine:
    """Makes the loop of a function's body, which is at `where`. `fresh` returns unused names."""

    def __init__(
        self, fresh: Callable[[str], str], recursion: Recursion, where: ir.Location
    ) -> None:
        self._fresh, self._recursion, self._where = fresh, recursion, where
        self._blocks: dict[int, _Block] = {}
        self._next, self._depth = fresh("next_block"), fresh("depth")
        self._returns_to = fresh("returns_to")
        self._own: dict[str, ir.DType] = {}  # locals of one call, with their types
        self._stacks: dict[str, str] = {}

    def statements(self, body: tuple[ir.Stmt, ...], parameters: Sequence[str]) -> list[ir.Stmt]:
        """The statements of a call from outside, whose arguments are in the locals `parameters`."""
        body = self._with_counters(body)
        calls = [s for call in self._recursion.calls for s in call]
        self._own = self._locals((*body, *calls))
        self._stacks = {name: self._fresh(f"{name}_of_calls") for name in self._own}
        self._blocks = {_RETURN: _Block((), self._popped())}
        entry = self._block(body, _RETURN)
        self._blocks[_ENTRY] = _Block((), self._go(entry))
        declared = [self._set(n, const(0, t)) for n, t in self._own.items() if n not in parameters]
        stacks = [
            ir.LocalArray(stack, MOST_DEEP, const(0, _stored(self._own[n])), self._where)
            for n, stack in self._stacks.items()
        ]
        start = const(0, _INDEX)
        return [
            *declared,
            *stacks,
            ir.LocalArray(self._returns_to, MOST_DEEP, start, self._where),
            self._set(self._depth, start),
            self._set(self._next, const(_ENTRY, _INDEX)),
            ir.While(compare("ge", self._at, start), self._branches(), self._where),
        ]

    @property
    def _name(self) -> str:
        return self._recursion.func.parsed.name

    @property
    def _at(self) -> ir.Expr:
        """The number of calls around the present one."""
        return ir.Local(self._depth, _INDEX)

    def _branches(self) -> tuple[ir.Stmt, ...]:
        """The blocks, each where it is the next one; later ones of the program come later."""
        number = ir.Local(self._next, _INDEX)
        return tuple(
            ir.If(compare("eq", number, const(k, _INDEX)), (*b.statements, *b.end), (), self._where)
            for k, b in sorted(self._blocks.items(), reverse=True)
        )

    def _locals(self, body: tuple[ir.Stmt, ...]) -> dict[str, ir.DType]:
        """The locals that a call sets, with their types."""
        found: dict[str, ir.DType] = {}
        for s in nested_statements(body):
            match s:
                case ir.SetLocal(name=name, value=value) | ir.UpdateLocal(name=name, value=value):
                    found[name] = value.dtype
                case ir.Update(result=name, value=value) if name:
                    found[name] = value.dtype
                case ir.Append(result=name):
                    found[name] = ir.DType.i32
        outside = self._recursion.outside | {self._recursion.marker}
        return {n: t for n, t in found.items() if n not in outside}

    # --- blocks

    def _new(self, statements: Sequence[ir.Stmt], end: tuple[ir.Stmt, ...]) -> int:
        number = len(self._blocks)
        self._blocks[number] = _Block(tuple(statements), end)
        return number

    def _block(self, body: tuple[ir.Stmt, ...], then: int) -> int:
        """The number of the block where `body` begins; block `then` follows it."""
        plain: list[ir.Stmt] = []
        for s in reversed(body):
            if not self._has_call(s):
                plain.insert(0, s)
                continue
            if plain:
                then, plain = self._new(plain, self._go(then)), []
            then = self._divided(s, then)
        return self._new(plain, self._go(then)) if plain else then

    def _has_call(self, s: ir.Stmt) -> bool:
        marker = self._recursion.marker
        return any(isinstance(x, ir.SetLocal) and x.name == marker for x in nested_statements((s,)))

    def _divided(self, s: ir.Stmt, then: int) -> int:
        """The number of the block where a statement with a call in it begins."""
        match s:
            case ir.SetLocal(value=ir.Const(value=call)):
                return self._new((), self._pushed(int(call), then))
            case ir.If(condition=condition):
                sides = self._block(s.then, then), self._block(s.orelse, then)
                return self._new((), self._choice(condition, *sides))
            case ir.While(condition=condition):
                head = self._new((), ())
                inside = self._block(s.body, head)
                self._blocks[head] = _Block((), self._choice(condition, inside, then))
                return head
        raise KernelError(f"{self._name} calls itself in a loop over cells", s.where)

    def _with_counters(self, body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        """The statements with loops over ranges as `while`, where the function is called in them."""
        found: list[ir.Stmt] = []
        for s in body:
            if isinstance(s, ir.LocalArray):
                text = (
                    f"{self._name} calls itself, and has a local array or calls another function that calls itself:"
                    " pass the array as an argument, or call the other function in the kernel"
                )
                raise KernelError(text, s.where)
            if self._has_call(s):
                s = with_blocks(s, self._with_counters)
            found += self._counted(s) if isinstance(s, ir.For) and self._has_call(s) else [s]
        return tuple(found)

    def _counted(self, s: ir.For) -> list[ir.Stmt]:
        """A loop over a range, as one with a counter that each call has."""
        counter, extent = self._fresh(s.loop), self._fresh(f"{s.loop}_end")
        at = ir.Local(counter, ir.DType.i64)

        def replaced(e: object) -> object:
            is_index = isinstance(e, ir.LoopIndex) and e.loop == s.loop
            return cast(at, e.dtype) if is_index else e  # type: ignore[attr-defined]

        self._recursion.calls = rewrite(self._recursion.calls, replaced)
        one = ir.UpdateLocal(counter, "add", const(1, ir.DType.i64), s.where)
        condition = compare("lt", at, ir.Local(extent, ir.DType.i64))
        return [
            self._set(counter, const(0, ir.DType.i64)),
            self._set(extent, s.extent),
            ir.While(condition, (*rewrite(s.body, replaced), one), s.where),
        ]

    # --- ends of blocks

    def _set(self, name: str, value: ir.Expr) -> ir.SetLocal:
        return ir.SetLocal(name, value, self._where)

    def _go(self, number: int) -> tuple[ir.Stmt, ...]:
        return (self._set(self._next, const(number, _INDEX)),)

    def _choice(self, condition: ir.Expr, then: int, orelse: int) -> tuple[ir.Stmt, ...]:
        return (ir.If(condition, self._go(then), self._go(orelse), self._where),)

    def _pushed(self, call: int, then: int) -> tuple[ir.Stmt, ...]:
        """The end of a block that calls the function; block `then` follows the call."""
        kept = [
            ir.SetElement(stack, self._at, cast(ir.Local(n, t), _stored(t)), self._where)
            for (n, t), stack in self._with_stacks()
        ]
        back = ir.SetElement(self._returns_to, self._at, const(then, _INDEX), self._where)
        deeper = ir.UpdateLocal(self._depth, "add", const(1, _INDEX), self._where)
        is_room = compare("lt", self._at, const(MOST_DEEP, _INDEX))
        text = (
            f"{self._name} calls itself more than {MOST_DEEP} times inside one another: use a loop"
        )
        jump = (*kept, back, deeper, *self._recursion.calls[call], *self._go(_ENTRY))
        return ir.Assert(is_room, text, (), self._where), ir.If(
            is_room, jump, self._go(then), self._where
        )

    def _popped(self) -> tuple[ir.Stmt, ...]:
        """The statements that return from a call."""
        back = ir.LocalElement(self._returns_to, self._at, _INDEX)
        restored = [
            self._set(n, _restored(ir.LocalElement(stack, self._at, _stored(t)), t))
            for (n, t), stack in self._with_stacks()
        ]
        is_inside = compare("ge", self._at, const(0, _INDEX))
        return (
            ir.UpdateLocal(self._depth, "add", const(-1, _INDEX), self._where),
            ir.If(is_inside, (*restored, self._set(self._next, back)), (), self._where),
        )

    def _with_stacks(self) -> list[tuple[tuple[str, ir.DType], str]]:
        return [(x, self._stacks[x[0]]) for x in self._own.items()]


def _stored(dtype: ir.DType) -> ir.DType:
    """The type of a stack: that of its local, i32 for truth values."""
    return _INDEX if dtype is ir.DType.bool_ else dtype


def _restored(e: ir.Expr, dtype: ir.DType) -> ir.Expr:
    return compare("ne", e, const(0, _INDEX)) if dtype is ir.DType.bool_ else e
