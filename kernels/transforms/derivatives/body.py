"""State of the sweeps of one body: versions of locals, their adjoints, and the statements of both sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ...ir import kernel as ir
from ...ir.simplify import binary, cast, const
from ...ir.walk import local_changed, mapped
from .activity import Activity, depends_on
from .naming import Names
from .pruning import with_zeros


@dataclass
class Making:
    """State of the construction of one adjoint kernel.

    `gradients`: for each array the name of its gradient. `active`: versions of locals that have adjoints. `types`: of versions.
    `extents`: of versions that are local arrays. `unknown`: names whose values cannot be computed again, each with the sentence and
    position of a refusal. `guards`: for each local array that keeps values of a loop of unknown length, the assertion that it is
    long enough.
    """

    gradients: Mapping[str, str]
    activity: Activity
    names: Names
    n_kept: int
    active: set[str] = field(default_factory=set)
    types: dict[str, ir.DType] = field(default_factory=dict)
    extents: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, tuple[str, ir.Location]] = field(default_factory=dict)
    guards: dict[str, ir.Assert] = field(default_factory=dict)


class SweepBody:
    """Forward and reverse sweep of a kernel, or of an iteration of a loop, inside those of the body `around`.

    `versions`: the current version of each local. `sums`: locals that the loops around only add to. `start`: declarations before
    both sweeps. `reverse`: statements of the reverse sweep, in the order of the forward sweep.
    """

    def __init__(
        self, making: Making, around: SweepBody | None = None, *, has_reverse: bool = True
    ) -> None:
        self.making, self.around, self.has_reverse = making, around, has_reverse
        self.versions: dict[str, str] = dict(around.versions) if around else {}
        self.indices: dict[str, tuple[str, ir.Expr | None]] = dict(around.indices) if around else {}
        self.sums: frozenset[str] = around.sums if around else frozenset()
        self.start: list[ir.Stmt] = []
        self.forward: list[ir.Stmt] = []
        self.reverse: list[list[ir.Stmt]] = []
        self._own: set[str] = set()
        self._adjoints: dict[str, str] = {}

    def inside(self, *, has_reverse: bool = True) -> SweepBody:
        """Returns an empty body inside this one."""
        return SweepBody(self.making, self, has_reverse=has_reverse)

    def statements(self) -> list[ir.Stmt]:
        """Returns both sweeps, behind the declarations of locals that they share."""
        making = self.making
        zeros = {a: making.types[v] for v, a in self._adjoints.items() if v not in making.extents}
        return [*self.start, *with_zeros([*self.forward, *backwards(self.reverse)], zeros)]

    @contextmanager
    def collected(self) -> Iterator[tuple[list[ir.Stmt], list[list[ir.Stmt]]]]:
        """Context in which the sweeps of a nested block are collected separately from those of the body."""
        before = self.forward, self.reverse
        self.forward, self.reverse = [], []
        yield self.forward, self.reverse
        self.forward, self.reverse = before

    def then(self, statements: list[ir.Stmt]) -> None:
        """Adds statements to the reverse sweep, in front of all that it has so far."""
        if statements and self.has_reverse:
            self.reverse.append(statements)

    # --- names

    def version(self, stem: str, dtype: ir.DType, name: str = "") -> str:
        """Returns the name of a new version of the local `name`, or of a temporary without `name`."""
        version = self.making.names.fresh(f"{stem}_v" if name else stem)
        self.making.types[version] = dtype
        self._own.add(version)
        if name:
            self.versions[name] = version
        return version

    def now(self, name: str) -> ir.Local:
        """Returns the current version of a local."""
        version = self.versions[name]
        return ir.Local(version, self.making.types[version])

    def is_array(self, name: str) -> bool:
        """True if the current version of a local is a local array."""
        return self.versions[name] in self.making.extents

    def set_unknown(self, name: str, dtype: ir.DType, sentence: str, where: ir.Location) -> None:
        """Gives a local a new version whose value the adjoint cannot compute again.

        `sentence` and `where`: reason and position of the refusal, should the adjoint need the value.
        """
        self.making.unknown[self.version(name, dtype, name)] = (sentence, where)

    def adjoint(self, version: str) -> ir.Local:
        """Returns the adjoint of a version, a local of the body that defines the version."""
        if version not in self._own and self.around is not None:
            return self.around.adjoint(version)
        if version not in self._adjoints:
            name = self._adjoints[version] = self.making.names.fresh(f"adj_{version}")
            if version in self.making.extents:
                self.start.append(self.zeros(name, version))
        return ir.Local(self._adjoints[version], self.making.types[version])

    def added(self, version: str, value: ir.Expr, where: ir.Location) -> ir.Stmt:
        """Returns the statement that adds a value to the adjoint of a version."""
        return ir.UpdateLocal(self.adjoint(version).name, "add", value, where)

    def zeros(self, name: str, version: str) -> ir.Stmt:
        """Returns the declaration of a local array of zeros, with type and extent of a version."""
        making = self.making
        return ir.LocalArray(
            name, making.extents[version], const(0, making.types[version]), ir.NOWHERE
        )

    def hoist(self, name: str) -> None:
        """Declares a local in front of the body: a branch sets it, and the reverse sweep of the branch reads it."""
        if name not in self._own or any(local_changed(s) == name for s in self.start):
            return
        is_array, zero = name in self.making.extents, const(0, self.making.types[name])
        self.start.append(
            self.zeros(name, name) if is_array else ir.SetLocal(name, zero, ir.NOWHERE)
        )

    # --- expressions

    def renamed(self, e: ir.Expr) -> ir.Expr:
        """Returns an expression on the current versions of locals and the loops of the adjoint."""
        match e:
            case ir.Local():
                return replace(e, name=self.versions[e.name])
            case ir.LocalElement():
                return replace(e, name=self.versions[e.name], index=self.renamed(e.index))
            case ir.LoopIndex():
                loop, last = self.indices[e.loop]
                index = ir.LoopIndex(loop, e.dtype)
                return index if last is None else binary("sub", cast(last, e.dtype), index)
        return mapped(e, self.renamed, lambda s: s)

    def is_active(self, e: ir.Expr) -> bool:
        """True if a float expression depends on an array with a gradient."""
        return depends_on(e, self.making.active, self.making.gradients)


def backwards(reverse: list[list[ir.Stmt]]) -> list[ir.Stmt]:
    """Returns the statements of a reverse sweep in the order of execution.

    `reverse`: groups of statements in the order of the forward sweep.
    """
    return [s for statements in reversed(reverse) for s in statements]


def is_leaf(e: ir.Expr) -> bool:
    """True if an expression is a local, a constant, an argument or a loop index: no operation computes it."""
    return isinstance(e, ir.Local | ir.Const | ir.Param | ir.LoopIndex)
