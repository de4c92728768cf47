"""Interface of the frontend for its visitors: each visitor compiles one kind of syntax by calling the others."""

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
    """Compiles expressions of a kernel. Statements that compute them are emitted into the current block."""

    places: Places
    operators: Operators
    complex: ComplexNumbers
    matrices: Matrices

    @property
    def default_float(self) -> DType:
        """Float type of the kernel, used if no operand has a type."""

    @property
    def is_strict(self) -> bool:
        """True if the typing rules are those of a program (Taichi's), False if they are NumPy's."""

    def refuse(
        self, sentence: str, node: ast.AST, kind: type[KernelError] = KernelError
    ) -> NoReturn:
        """Raises an error of class `kind` at the line of `node`."""

    # --- values

    def value(self, node: ast.expr) -> Value:
        """Returns the value of an expression: a number, a vector or struct of numbers, an array, a Python object."""

    def place(self, node: ast.expr) -> Value:
        """Returns the value of an expression as places to assign: locals, elements, or trees of these."""

    def values(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """Returns the values of expressions from left to right; calls on the right do not change them."""

    def exact(self, node: ast.expr, dtype: DType) -> Value | None:
        """Returns the constant argument of `ks.u64(...)` and the like, in that type; None if it is no constant."""

    def condition(self, node: ast.expr) -> Expr:
        """Returns the truth value of an expression."""

    def index(self, node: ast.expr) -> Expr:
        """Returns the value of an integer expression, as an IR expression of type i64."""

    def as_index(self, x: Typed, node: ast.expr) -> Expr:
        """Returns a number converted to i64. LanguageError if it is no integer."""

    # --- Python objects

    def callee(self, node: ast.Call) -> object:
        """Returns the Python object that is called.

        None if the call names no object the frontend can resolve.
        """

    def constant(self, node: ast.expr) -> object:
        """Returns the Python value of a compile-time constant expression; KeyError for any other expression."""

    def static(self, node: ast.expr, kind: type[KernelError] = KernelError) -> object:
        """Returns the Python value of the argument of `ks.static(...)`, evaluated by Python at compile time.

        An error of class `kind` if the value is known only at run time.
        """

    def static_argument(self, node: ast.expr) -> ast.expr | None:
        """Returns the argument of a `ks.static(...)` expression; None if the node is anything else."""

    def static_items(self, inside: ast.expr, node: ast.AST) -> list[Value]:
        """Returns the items of a loop over `ks.static(inside)`."""

    # --- of values

    def converted(self, x: Value, kind: object, node: ast.AST) -> Value:
        """Returns a value converted to an annotated type; annotations that are no type leave it unchanged."""

    def zero(self, kind: object, node: ast.AST) -> Value:
        """The value of an annotation whose numbers are all zero."""

    def taken_apart(self, x: TupleValue | MatrixValue) -> list[Value]:
        """Returns the items of a tuple, the components of a vector, or the rows of a matrix."""

    def bind_static(self, target: ast.expr, x: Value) -> None:
        """Binds the index names `target` of an unrolled loop to the item `x` of one iteration."""

    def may_write(self, node: ast.expr) -> bool:
        """True if evaluating an expression runs statements of the program."""


class BodyCompiler(Protocol):
    """Compiles the statements of the function being compiled into the current block."""

    def run(self, statements: Sequence[ast.stmt]) -> str | None:
        """Compiles statements. Returns the kind of jump that they always end with, None if there is none."""

    def taken(self, node: ast.If, unbound: frozenset[str] = frozenset()) -> list[ast.stmt] | None:
        """Returns the branch of an `if` that is decided at compile time; None if it is not.

        `unbound`: index names of inner loops, which have no value yet.
        """
