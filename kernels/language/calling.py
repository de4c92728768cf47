"""Where a kernel call goes: to the recorder that holds calls back, to the engine, or to the interpreter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..ir.kernel import DType, KernelIR, Location
from ..sparse.recorded import Logical, UsedTree


@dataclass(frozen=True)
class Fields:
    """What of a call is the program's: the `names` of the arrays that are no arguments, and of a kernel on sparse fields what it
    was before it was lowered, with its trees.
    """

    names: frozenset[str] = frozenset()
    logical: Logical | None = None
    trees: tuple[UsedTree, ...] = ()


NO_FIELDS = Fields()


class AbstractHolder(ABC):
    """What holds kernel calls back while a sequence is recorded."""

    @abstractmethod
    def hold(
        self,
        ir: KernelIR,
        arrays: Sequence[Any],
        scalars: Sequence[Any],
        where: Location,
        on: Fields = NO_FIELDS,
    ) -> None:
        """Takes one call: an object for each of `ir.arrays` (all different) and of `ir.scalars`."""

    @abstractmethod
    def temporary(
        self, dtype: DType, shape: tuple[int, ...], name: str | None, where: Location
    ) -> Any:
        """A temporary array of the sequence."""


_current: ContextVar[AbstractHolder | None] = ContextVar("holder", default=None)
_interprets: ContextVar[bool] = ContextVar("interprets", default=False)


def run_at_once(ir: KernelIR, arrays: Mapping[str, Any], scalars: Mapping[str, Any]) -> None:
    """Runs a call that nobody holds back, in place.

    Engine and interpreter lie above the language: they are looked up here, by name, when the first kernel is run.
    """
    if _interprets.get():
        import_module("...interpret.kernel", __name__).run_kernel(ir, arrays, scalars)
    else:
        engine = import_module("....runtime.engine", __name__).current_engine()
        engine.run(ir, tuple(arrays.values()), tuple(scalars.values()))


def interpret_trees(
    ir: KernelIR, arrays: Mapping[str, Any], scalars: Mapping[str, Any], trees: Mapping[str, Any]
) -> None:
    """Runs a kernel on sparse fields in the interpreter: `arrays` are views of them, `trees` the storages by name."""
    run = import_module("...interpret.trees", __name__).run_on_trees
    run(ir, arrays, scalars, trees)


def interprets() -> bool:
    """Whether kernels are run by the interpreter."""
    return _interprets.get()


def runs_now() -> bool:
    """Whether a call is neither held back nor interpreted."""
    return _current.get() is None and not _interprets.get()


def quick_caller(ir: KernelIR) -> Callable[..., bool] | None:
    """What calls a kernel that has run, as `runtime/engine` has it: arrays and numbers by position, False where they do not fit.

    None where there is nothing quicker than `run_at_once`.
    """
    found: Callable[..., bool] | None = (
        import_module("....runtime.engine", __name__).current_engine().quick(ir)
    )
    return found


def holder() -> AbstractHolder | None:
    """The recorder at work, or None: calls then run at once."""
    return _current.get()


@contextmanager
def interpreted() -> Iterator[None]:
    """Has kernels run at once, through the interpreter, within the block."""
    token = _interprets.set(True)
    try:
        with held_by(None):
            yield
    finally:
        _interprets.reset(token)


@contextmanager
def held_by(new: AbstractHolder | None) -> Iterator[None]:
    """Sends kernel calls to `new` within the block."""
    token = _current.set(new)
    try:
        yield
    finally:
        _current.reset(token)
