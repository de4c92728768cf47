"""Taichi's `ti.graph`: kernels with named arguments, built once, and run with values for the names.

A graph runs its kernels one after the other. A function of arrays that runs one is a sequence: `explore run FILE.py:FUNCTION`
explores it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, final

from ..kernels.fields.caller_location import fail
from ..kernels.fields.compound import MatrixType, type_name
from ..kernels.fields.matrix import Matrix
from ..kernels.fields.ndarray import Ndarray
from ..kernels.frontend.intrinsics import NdarrayAnnotation
from ..kernels.frontend.kernel import BoundKernel, Kernel
from ..kernels.frontend.symbols import SymbolicArray
from ..kernels.ir.errors import KernelError, ProgramRuntimeError, ProgramTypeError


class ArgKind(Enum):
    """Kind of an argument of a graph: scalar, matrix or ndarray."""

    SCALAR = auto()
    NDARRAY = auto()
    MATRIX = auto()
    TEXTURE = auto()
    RWTEXTURE = auto()


@dataclass(frozen=True)
class Arg:
    """Argument of a graph: a name, and the kind, element type and number of axes of its values."""

    tag: ArgKind
    name: str
    dtype: Any = None
    ndim: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.tag, ArgKind) or not isinstance(self.name, str):
            fail("an argument of a graph has an ArgKind and a name", ProgramRuntimeError)
        if self.tag in (ArgKind.TEXTURE, ArgKind.RWTEXTURE):
            fail(f"the argument {self.name} of a graph is a texture, which CPUs have not")
        is_matrix = isinstance(self.dtype, MatrixType)
        if (self.tag is ArgKind.MATRIX and not is_matrix) or (
            self.tag is ArgKind.SCALAR and is_matrix
        ):
            fail(
                f"the argument {self.name} of a graph is a {self.tag.name}, its type cannot be {type_name(self.dtype)}",
                ProgramRuntimeError,
            )

    def check(self, x: Any) -> None:
        """Raises LanguageError unless `x` has the kind, element type and number of axes of this argument."""
        if self.tag is ArgKind.NDARRAY:
            if not self._takes(x):
                self._refuse(x)
        elif self.tag is ArgKind.MATRIX:
            if not isinstance(x, Matrix) or x.get_shape() != self.dtype.shape:
                self._refuse(x)
        elif not isinstance(x, int | float):
            self._refuse(x)

    def _takes(self, x: Any) -> bool:
        """True if `x` is an array of this argument's type, or the symbol of such an array in a recorded sequence."""
        kind = self.dtype
        element, dtype = (kind.shape, kind.dtype) if isinstance(kind, MatrixType) else ((), kind)
        if isinstance(x, SymbolicArray):
            return x.element is dtype and len(x.shape) == self.ndim + len(element)
        return isinstance(x, Ndarray) and (x.dtype, x.element_shape, len(x.shape)) == (
            dtype,
            element,
            self.ndim,
        )

    def _refuse(self, x: Any) -> None:
        shown = x if isinstance(x, Ndarray | int | float) else type(x).__name__
        fail(
            f"the argument {self.name} of a graph takes a {self.tag.name} of {type_name(self.dtype)}"
            f"{f' with {self.ndim} axes' * (self.tag is ArgKind.NDARRAY)}, not {shown}",
            ProgramTypeError,
        )


Step = tuple[Kernel | BoundKernel, tuple[Any, ...]]


class Sequential:
    """Sequence of kernel calls of a graph; each argument is an `Arg` of the graph, or a constant."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.named: dict[str, Arg] = {}

    def dispatch(self, kernel_fn: Kernel | BoundKernel, *args: Any) -> None:
        """Adds a call of a kernel at the end."""
        kernel = kernel_fn.kernel if isinstance(kernel_fn, BoundKernel) else kernel_fn
        if not isinstance(kernel, Kernel):
            fail(f"a graph dispatches kernels, not {type(kernel_fn).__name__}", ProgramTypeError)
        parameters = kernel.given_parameters[isinstance(kernel_fn, BoundKernel) :]
        if len(args) != len(parameters):
            fail(f"the kernel {kernel.name} takes {len(parameters)} arguments, not {len(args)}")
        for (name, annotation), arg in zip(parameters, args, strict=True):
            if not isinstance(arg, Arg):
                continue
            wanted = annotation.ndim if isinstance(annotation, NdarrayAnnotation) else None
            if wanted is not None and wanted != arg.ndim:
                fail(
                    f"the argument {name} of the kernel {kernel.name} has {wanted} axes, {arg.name} of the graph {arg.ndim}",
                    KernelError,
                )
            if self.named.setdefault(arg.name, arg) != arg:
                fail(f"a graph has two arguments of the name {arg.name}", ProgramRuntimeError)
        self.steps.append((kernel_fn, args))


@final
class GraphBuilder:
    """Builds a graph from kernel calls, in order."""

    def __init__(self) -> None:
        self._row = Sequential()

    def dispatch(self, kernel_fn: Kernel | BoundKernel, *args: Any) -> None:
        """Adds a call of a kernel at the end of the graph."""
        self._row.dispatch(kernel_fn, *args)

    def create_sequential(self) -> Sequential:
        """Returns an empty sequence of calls, which may be appended to the graph several times."""
        return Sequential()

    def append(self, node: Sequential) -> None:
        """Adds all calls of a sequence at the end of the graph."""
        for kernel, args in node.steps:
            self._row.dispatch(kernel, *args)

    def compile(self) -> Graph:
        """Returns the graph. Its kernels are compiled at its first run."""
        return Graph(tuple(self._row.steps), dict(self._row.named))


@dataclass(frozen=True)
class Graph:
    """Kernel calls in order, and the named arguments that `run` takes."""

    steps: tuple[Step, ...]
    named: dict[str, Arg]

    def run(self, args: dict[str, Any]) -> None:
        """Calls the kernels with the values `args`, by argument name."""
        for name, arg in self.named.items():
            if name not in args:
                fail(f"the graph takes an argument {name}: give it to run", ProgramRuntimeError)
            arg.check(args[name])
        for kernel, given in self.steps:
            kernel(*(args[a.name] if isinstance(a, Arg) else a for a in given))
