"""Kernel instances and calls: the input of executors, with sparse fields as the program states them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..fields.field_view import FieldView
from ..fields.storage import TreeStorage
from ..fields.tree import Structure
from ..ir.kernel import KernelIR, Location
from ..sparse.recorded import Logical, UsedTree
from .hidden import NOTHING, Hidden
from .results import Results


@dataclass(frozen=True)
class Fields:
    """Program's part of a recorded call: the `names` of the arrays that are no arguments.

    For a kernel on sparse fields also the kernel before sparse lowering, with its trees.
    """

    names: frozenset[str] = frozenset()
    logical: Logical | None = None
    trees: tuple[UsedTree, ...] = ()


@dataclass(frozen=True)
class Instance:
    """Kernel for one signature. `fields` are the program's objects behind the arrays that are no arguments, by array.

    On sparse fields, `ir` is the kernel before sparse lowering, or what it was lowered to if there is a `logical` kernel.
    """

    ir: KernelIR
    fields: tuple[tuple[str, Any], ...] = ()
    results: Results | None = None
    hidden: Hidden = NOTHING
    views: tuple[tuple[str, FieldView], ...] = ()  # the sparse fields
    structures: tuple[tuple[str, Structure], ...] = ()  # their trees, by name
    logical: Logical | None = None
    constants: tuple[str, ...] = ()  # arguments without derivatives
    is_derivative: bool = False  # an adjoint or dual of another instance
    # The instance that derivatives are made of, where it is another one: with the same values, by functions that have derivatives.
    differentiable: Callable[[], Instance] | None = field(default=None, compare=False, repr=False)
    # Its adjoints and duals (derivatives.py), itself on plain arrays (lowering.py), and itself where one array is given twice
    # (kernel.py).
    derived: dict[tuple[object, ...], Any] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def is_on_trees(self) -> bool:
        """True if sparse fields are not lowered yet."""
        return bool(self.structures) and self.logical is None

    @property
    def is_gone(self) -> bool:
        """True if memory of its fields was freed."""
        return any(x.is_gone for _, x in self.fields) or any(s.released for _, s in self.structures)

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each sparse field in its tree, by array."""
        return {name: view.number for name, view in self.views}

    @property
    def held(self) -> Fields:
        """The program's part of the call that a sequence stores in addition to the kernel, which is on plain arrays."""
        layouts = [s.layout for _, s in self.structures]
        trees = tuple(UsedTree(x.tree, x.fields) for x in layouts)
        return Fields(frozenset(name for name, _ in self.fields), self.logical, trees)

    @property
    def storages(self) -> dict[str, TreeStorage]:
        """The memory of the trees."""
        return {name: s.memory for name, s in self.structures}

    def called(self, call: KernelCall) -> KernelCall:
        """The call of this instance, which has more fields of the program than the instance of `call`."""
        known = {**call.arrays, **{name: x.storage for name, x in self.fields}}
        return replace(call, instance=self, arrays={p.name: known[p.name] for p in self.ir.arrays})


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Call of a kernel: an array and a number for each parameter of `instance.ir`, by name; `where` is its line in the program.

    `scalars` are in the order of the parameters. Arrays for results are among `arrays`; sparse fields are views.
    """

    instance: Instance
    arrays: Mapping[str, Any]
    scalars: Mapping[str, Any]
    where: Location

    @property
    def in_order(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arrays and the numbers, by position."""
        arrays = self.arrays
        return tuple([arrays[p.name] for p in self.instance.ir.arrays]), (*self.scalars.values(),)

    def result(self) -> Any:
        """Returns the kernel's result after its run: numbers, vectors, structs, tuples; None if it returns nothing."""
        results = self.instance.results
        return None if results is None else results.read(self.arrays)
