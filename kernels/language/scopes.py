"""What the frontend knows while it walks a kernel: names in scope, loops around, statements emitted
so far.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from ..ir.kernel import DType, Stmt
from .errors import LanguageError
from .parse import ParsedFunction
from .typing_rules import Typed, Value, promote


@dataclass(frozen=True)
class LocalVar:
    """A local of the IR. `weak` while only literals have been assigned to it and no pass has found
    its type.
    """

    name: str
    dtype: DType
    weak: bool


@dataclass(frozen=True)
class LoopVar:
    value: Typed


Binding = LocalVar | LoopVar | Value


@dataclass
class Frame:
    """One function under compilation: the kernel, or a `ks.func` inlined into it."""

    parsed: ParsedFunction
    scopes: list[dict[str, Binding]] = field(default_factory=lambda: [{}])
    ended: set[str] = field(default_factory=set)  # names whose scope is over
    returned: Value | None = None

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
    """One walk over the kernel.

    `hints` gives the types found so far of locals that start from a literal; `evidence` collects
    the types assigned to them in this walk. `guard_depth` counts conditions around the current
    statement, `speculative_depth` those around the current operand: there an index out of range is
    not an error, and is clamped as both sides of a Select are evaluated.
    """

    default_float: DType
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

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def fail(self, sentence: str, node: ast.AST) -> NoReturn:
        raise LanguageError(sentence, self.frame.parsed.where(node))

    def emit(self, statement: Stmt) -> None:
        self.blocks[-1].append(statement)

    def fresh(self, name: str) -> str:
        """A name no loop or local of this kernel has yet: `i`, then `i_1`, `i_2`."""
        candidate = name
        while candidate in self.taken:
            self.taken[name] += 1
            candidate = f"{name}_{self.taken[name]}"
        self.taken[candidate] = 0
        return candidate

    def note(self, local: LocalVar, value: Typed) -> None:
        """Records what is assigned to a local whose type its first value left open."""
        if local.name in self.open_locals and not value.weak:
            known = self.evidence.get(local.name)
            self.evidence[local.name] = (
                value.dtype if known is None else promote(known, value.dtype)
            )

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """A nested block of statements with its own scope."""
        statements: list[Stmt] = []
        self.blocks.append(statements)
        with self.frame.scope():
            yield statements
        self.blocks.pop()

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
