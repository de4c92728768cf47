"""Kernel instances and calls: the input of executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """Kernel for one signature. `fields` are the program's objects behind the arrays that are no arguments, by array."""

    ir: KernelIR
    fields: tuple[tuple[str, Any], ...] = ()
    results: Results | None = None
    hidden: Hidden = NOTHING
    logical: KernelIR | None = None  # on sparse fields, where `ir` is what it was lowered to
    views: tuple[tuple[str, FieldView], ...] = ()  # the fields as the logical kernel has them
    structures: tuple[tuple[str, Structure], ...] = ()  # the trees, by name
    sections: tuple[tuple[str, str, str], ...] = ()  # arrays of trees: (array, tree, key)
    constants: tuple[str, ...] = ()  # arguments without derivatives
    is_derivative: bool = False  # an adjoint or dual of another instance
    # Its adjoints and duals (derivatives.py), and itself where one array is given twice (kernel.py).
    derived: dict[tuple[object, ...], Any] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def held(self) -> Fields:
        """The program's part of the call that a sequence stores in addition to the kernel."""
        names = frozenset(name for name, _ in self.fields)
        if self.logical is None:
            return Fields(names)
        numbers = {name: view.number for name, view in self.views}
        fields = tuple(numbers[p.array] for p in self.logical.placed)
        layouts = [s.layout for _, s in self.structures]
        trees = tuple(UsedTree(x.tree, x.fields) for x in layouts)
        return Fields(names, Logical(self.logical, fields, self.sections), trees)

    @property
    def storages(self) -> dict[str, TreeStorage]:
        """The memory of the trees."""
        return {name: s.memory for name, s in self.structures}


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Call of a kernel: an array and a number for each parameter of `instance.ir`, by name; `where` is its line in the program.

    `scalars` are in the order of the parameters. Arrays for results are among `arrays`.
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
