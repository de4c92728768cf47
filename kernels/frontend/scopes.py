"""State of the frontend during a pass over a kernel: names in scope, enclosing loops, emitted statements."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ..fields.tree import Structure
from ..ir.kernel import Activate, ArrayParam, DType, Expr, Location, Param, Placed, Stmt, Store
from .errors import KernelError
from .hidden import Address
from .parse import ParsedFunction
from .recursion import Recursion
from .results import Returns
from .stopping import without_derivatives
from .typing_rules import Rules, promote
from .values import LocalVar, Typed, Value


class TracingStoppedError(Exception):
    """Raised within a pass ahead of a kernel's first call when the time for it is over."""


@dataclass(frozen=True)
class LoopVar:
    """Loop index: a name with a value that the kernel may not assign."""

    value: Value


Binding = LoopVar | Value


@dataclass
class Flag:
    """Local truth value that an early exit sets; its assignments are removed if nothing reads it."""

    name: str
    is_read: bool = False


@dataclass
class Jumps:
    """Flags of a loop: `broken` is set by break, `continued` by continue; None without such a statement.

    Parallel loops have no early exits.
    """

    can_break: bool
    continued: Flag | None = None
    broken: Flag | None = None


@dataclass(frozen=True)
class PackedStore:
    """Store to a word of quantised numbers, and these, by their positions."""

    statement: Store
    numbers: tuple[tuple[int, Expr], ...]


# Functions that are written in the language itself.
_OWN_FILES = frozenset(str(Path(__file__).parents[1] / name) for name in ("linear.py", "math.py"))


@dataclass
class Frame:
    """Function that is being compiled: the kernel, or a `ks.func` inlined into it."""

    parsed: ParsedFunction
    called_at: Location | None = None  # of a function: its call
    scopes: list[dict[str, Binding]] = field(default_factory=lambda: [{}])
    ended: set[str] = field(default_factory=set)  # names whose scope is over
    returned: Value | None = None
    returns: Returns | None = None  # what is returned early; of a kernel, whatever is
    left: Flag | None = None  # whether the function has returned
    loops: list[Jumps] = field(default_factory=list)
    depth: int = 0  # run-time branches and loops around the current statement
    in_branch: int = 0  # branches around it that are decided when the kernel is compiled
    declared: list[Stmt] = field(default_factory=list)  # what stands before its statements
    is_form: bool = False  # of a function, for derivatives
    recursion: Recursion | None = None  # of a function that calls itself

    def find(self, name: str) -> Binding | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def bind(self, name: str, binding: Binding) -> None:
        self.scopes[-1][name] = binding

    @contextmanager
    def scope(self) -> Iterator[None]:
        self.scopes.append({})
        yield
        self.ended.update(self.scopes.pop())


@dataclass
class Pass:
    """State of one pass over a kernel's syntax.

    `hints`: types found so far for locals that start with a literal. `evidence`: types assigned to them in this pass.
    `guard_depth`: conditions around the current statement. `speculative_depth`: conditions around the current operand. In a
    speculative operand an index out of range is no error: it is clamped, since both sides of a Select are evaluated.
    """

    rules: Rules
    hints: dict[str, DType]
    is_final: bool
    evidence: dict[str, DType] = field(default_factory=dict)
    open_locals: set[str] = field(default_factory=set)
    extents: dict[str, int | None] = field(default_factory=dict)
    blocks: list[list[Stmt]] = field(default_factory=lambda: [[]])
    frames: list[Frame] = field(default_factory=list)
    taken: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    guard_depth: int = 0
    speculative_depth: int = 0
    captured: dict[int, tuple[ArrayParam, Any]] = field(default_factory=dict)
    is_serial: bool = False  # whether the next loop is marked to run in order
    n_parallel: int = 0  # parallel loops so far
    iteration: Expr | None = (
        None  # a number for the iteration of the parallel loop around; None outside of them
    )
    draws: str = ""  # the local that counts random numbers; "" where none was drawn
    seed: Param | None = None  # the argument that random numbers begin with
    addresses: dict[str, Address] = field(default_factory=dict)  # where arrays begin, by array
    gradients: dict[str, ArrayParam] = field(default_factory=dict)  # of arguments, by argument
    is_debug: bool = False
    structures: dict[str, Structure] = field(
        default_factory=dict
    )  # trees of sparse fields, by name
    placed: dict[str, Placed] = field(default_factory=dict)  # arrays that are sparse fields
    not_activated: set[tuple[str, int]] = field(
        default_factory=set
    )  # nodes to which stores do not activate
    packed_store: PackedStore | None = None  # the last one
    words: set[str] = field(default_factory=set)  # arrays of words of which parts are stored
    flags: list[Flag] = field(default_factory=list)
    is_differentiated: bool = False  # the IR is for derivatives only
    has_forms: bool = False  # derivatives need other IR
    goes_on: Callable[[], bool] | None = None  # ahead of the first call: False ends the pass
    # Arrays whose loads have no derivative in a block of statements, by the identity of the block.
    stopped: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def default_float(self) -> DType:
        return self.rules.default_float

    def new_flag(self, name: str) -> Flag:
        flag = Flag(self.fresh(name))
        self.flags.append(flag)
        return flag

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def fail(self, sentence: str, node: ast.AST, kind: type[KernelError] = KernelError) -> NoReturn:
        raise kind(sentence, self._where(node))

    def _where(self, node: ast.AST) -> Location:
        """Returns the line of a node; inside a function of this package the program's line that calls it."""
        where = self.frame.parsed.where(node)
        for frame in reversed(self.frames):
            if where.file not in _OWN_FILES or frame.called_at is None:
                break
            where = frame.called_at
        return where

    def emit(self, statement: Stmt) -> None:
        if self.goes_on is not None and not self.goes_on():
            raise TracingStoppedError
        self.blocks[-1].append(statement)

    def activate(self, array: str, indices: tuple[Expr, ...], node: ast.AST) -> None:
        """Emits the activation of an element of a sparse field, before a store to it."""
        p = self.placed.get(array)
        if p is None:
            return
        tree = self.structures[p.tree].tree
        if any((p.tree, n) in self.not_activated for n in tree.path(p.node)):
            return
        n_axes = len(tree.axes(p.node))
        own = indices[len(indices) - n_axes :]
        self.emit(Activate(p.tree, p.node, own, self.frame.parsed.where(node)))

    def fresh(self, name: str) -> str:
        """Returns an unused name for a loop or local of this kernel: `i`, then `i_1`, `i_2`."""
        candidate = name
        while candidate in self.taken:
            self.taken[name] += 1
            candidate = f"{name}_{self.taken[name]}"
        self.taken[candidate] = 0
        return candidate

    def note(self, local: LocalVar, value: Typed) -> None:
        """Records the type of a value assigned to a local that starts with a literal, if the value is no literal."""
        if local.dtype is not DType.bool_ and value.dtype is DType.bool_:
            return  # a number that counts what is true is no truth value
        if local.name in self.open_locals and not value.weak:
            known = self.evidence.get(local.name)
            self.evidence[local.name] = (
                value.dtype if known is None else promote(known, value.dtype)
            )

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Collects statements in a nested block, which has its own scope of names."""
        statements: list[Stmt] = []
        self.blocks.append(statements)
        with self.frame.scope():
            yield statements
        self.blocks.pop()

    def stop_loads(self, statements: list[Stmt]) -> None:
        """Removes derivatives from the loads in a block, of the arrays that `stop_grad` names in it."""
        if arrays := self.stopped.pop(id(statements), None):
            statements[:] = without_derivatives(tuple(statements), arrays)

    @contextmanager
    def collected(self) -> Iterator[list[Stmt]]:
        """Collects statements in a list that the caller may emit; names stay in the current scope."""
        statements: list[Stmt] = []
        self.blocks.append(statements)
        yield statements
        self.blocks.pop()
        self.stop_loads(statements)

    @contextmanager
    def guarded(self, is_guarded: bool = True) -> Iterator[None]:
        self.guard_depth += is_guarded
        yield
        self.guard_depth -= is_guarded

    @contextmanager
    def speculative(self) -> Iterator[None]:
        self.speculative_depth += 1
        yield
        self.speculative_depth -= 1
