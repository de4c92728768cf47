"""Interface of the frontend for its visitors: each compiles one kind of syntax, and delegates the rest."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NoReturn, Protocol

from ..ir.kernel import DType, Expr
from .complex_operators import ComplexNumbers
from .errors import KernelError
from .lvalues import Places
from .matrices import Matrices
from .operators import Operators
from .values import MatrixValue, TupleValue, Typed, Value


class Frontend(Protocol):
    """Compiles the expressions of a pass. Statements that they need are emitted into the current block."""

    places: Places
    operators: Operators
    complex: ComplexNumbers
    matrices: Matrices

    @property
    def default_float(self) -> DType:
        """The type of floats where nothing else decides."""

    @property
    def is_strict(self) -> bool:
        """True if the rules are those of a program, which are Taichi's."""

    def refuse(
        self, sentence: str, node: ast.AST, kind: type[KernelError] = KernelError
    ) -> NoReturn:
        """Raises an error of this kind at the line of `node`."""

    # --- values

    def value(self, node: ast.expr) -> Value:
        """The value of an expression: a number, a tree of numbers, an array or a Python object."""

    def place(self, node: ast.expr) -> Value:
        """The value of an expression, with assignable places in place of their contents."""

    def values(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """The values from left to right: a call on the right does not change values read on its left."""

    def exact(self, node: ast.expr, dtype: DType) -> Value | None:
        """The argument of a type's name, if it is a number for Python; None otherwise."""

    def condition(self, node: ast.expr) -> Expr:
        """The truth value of an expression."""

    def index(self, node: ast.expr) -> Expr:
        """An integer expression of type i64."""

    def as_index(self, x: Typed, node: ast.expr) -> Expr:
        """A number of type i64; LanguageError where it is no integer."""

    # --- Python objects

    def callee(self, node: ast.Call) -> object:
        """The Python object that is called; None if it has no name the frontend can resolve."""

    def constant(self, node: ast.expr) -> object:
        """The Python value of a constant of the program; KeyError for any other expression."""

    def static(self, node: ast.expr, kind: type[KernelError] = KernelError) -> object:
        """The Python value of the argument of `ks.static(...)`; an error of `kind` where it is known only at run time."""

    def static_argument(self, node: ast.expr) -> ast.expr | None:
        """The inside of `ks.static(...)`, or None if the node is anything else."""

    def static_items(self, inside: ast.expr, node: ast.AST) -> list[Value]:
        """The items that a loop over `ks.static(inside)` has."""

    # --- of values

    def converted(self, x: Value, kind: object, node: ast.AST) -> Value:
        """A value converted to an annotation."""

    def taken_apart(self, x: TupleValue | MatrixValue) -> list[Value]:
        """The items of a tuple, the components of a vector, the rows of a matrix."""

    def bind_static(self, target: ast.expr, x: Value) -> None:
        """Binds the index names of an unrolled loop to an item."""

    def may_write(self, node: ast.expr) -> bool:
        """True if evaluating an expression runs statements of the program."""


class BodyCompiler(Protocol):
    """Compiles the statements of the current frame of a pass into its current block."""

    def run(self, statements: Sequence[ast.stmt]) -> str | None:
        """Compiles statements. Returns the kind of jump by which they surely leave the block, None if they may continue."""

    def taken(self, node: ast.If, unbound: frozenset[str] = frozenset()) -> list[ast.stmt] | None:
        """The branch of an `if` that is decided when the kernel is compiled; None if it is not."""
