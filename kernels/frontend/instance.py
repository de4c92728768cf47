"""Kernel instances and their calls, the input of executors; sparse fields are not lowered yet."""

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
    """Fields of the program in a recorded call. `names`: arrays of the kernel that are fields, or vectors of the call.

    `logical`: for a kernel on sparse fields, the kernel before sparse lowering; `trees`: its trees.
    """

    names: frozenset[str] = frozenset()
    logical: Logical | None = None
    trees: tuple[UsedTree, ...] = ()


@dataclass(frozen=True)
class Instance:
    """Kernel compiled to IR for one signature.

    `fields`: the object behind each array that is no argument, by array name. On sparse fields `ir` is the kernel before sparse
    lowering. Once `logical` is set, that is the kernel before lowering, and `ir` the lowered one, on plain arrays.
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
        """True if the kernel uses sparse fields and is not lowered to plain arrays."""
        return bool(self.structures) and self.logical is None

    @property
    def is_gone(self) -> bool:
        """True if the memory of a field that the instance uses was freed."""
        return any(x.is_gone for _, x in self.fields) or any(s.released for _, s in self.structures)

    @property
    def numbers(self) -> dict[str, int]:
        """Returns the number of each sparse field among the fields of its tree, by array name."""
        return {name: view.number for name, view in self.views}

    @property
    def held(self) -> Fields:
        """Returns the record of the program's fields that a recorded sequence stores with a call of this instance."""
        layouts = [s.layout for _, s in self.structures]
        trees = tuple(UsedTree(x.tree, x.fields) for x in layouts)
        names = frozenset((*(name for name, _ in self.fields), *self.hidden.vectors))
        return Fields(names, self.logical, trees)

    @property
    def storages(self) -> dict[str, TreeStorage]:
        """Returns the memory of the trees that the kernel uses, by tree name."""
        return {name: s.memory for name, s in self.structures}

    def called(self, call: KernelCall) -> KernelCall:
        """Returns the call of this instance with the arguments of `call`, and with its own further fields.

        `call` is a call of the instance that this one was made of.
        """
        known = {**call.arrays, **{name: x.storage for name, x in self.fields}}
        return replace(call, instance=self, arrays={p.name: known[p.name] for p in self.ir.arrays})


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Call of a kernel: the arrays and numbers for the parameters of `instance.ir`, by name.

    `scalars` are in the order of the parameters. `arrays` contains the arrays for results; sparse fields are views. `where`: line
    of the program with the call.
    """

    instance: Instance
    arrays: Mapping[str, Any]
    scalars: Mapping[str, Any]
    where: Location

    @property
    def in_order(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Returns the arrays, and the numbers, in the order of the parameters."""
        arrays = self.arrays
        return tuple([arrays[p.name] for p in self.instance.ir.arrays]), (*self.scalars.values(),)

    def result(self) -> Any:
        """Returns the kernel's result after it has run (numbers, vectors, structs, tuples); None if there is none."""
        results = self.instance.results
        return None if results is None else results.read(self.arrays)
