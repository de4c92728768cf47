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
    """State of one adjoint.

    `gradients`: for each array the name of its gradient's. `active`: versions with derivatives. `types` of versions, and `extents`
    of those that are local arrays. `unknown`: names whose values cannot be computed again, each with the sentence and place of a
    refusal. `guards`: for each array of kept values of a loop without a known length, the assertion that it is long enough.
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
    """The sweeps of a kernel, or of an iteration of a loop, inside those of the body `around`.

    `versions`: the present version of each local. `sums`: locals that the loops around only add to. `start`: declarations before
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
        """An empty body inside this one."""
        return SweepBody(self.making, self, has_reverse=has_reverse)

    def statements(self) -> list[ir.Stmt]:
        """Both sweeps, behind the declarations of what they share."""
        making = self.making
        zeros = {a: making.types[v] for v, a in self._adjoints.items() if v not in making.extents}
        return [*self.start, *with_zeros([*self.forward, *backwards(self.reverse)], zeros)]

    @contextmanager
    def collected(self) -> Iterator[tuple[list[ir.Stmt], list[list[ir.Stmt]]]]:
        """Collects the sweeps of a nested block."""
        before = self.forward, self.reverse
        self.forward, self.reverse = [], []
        yield self.forward, self.reverse
        self.forward, self.reverse = before

    def then(self, statements: list[ir.Stmt]) -> None:
        """Adds to the reverse sweep what stands before all that it has so far."""
        if statements and self.has_reverse:
            self.reverse.append(statements)

    # --- names

    def version(self, stem: str, dtype: ir.DType, name: str = "") -> str:
        """A new version of the local `name`, or a temporary."""
        version = self.making.names.fresh(f"{stem}_v" if name else stem)
        self.making.types[version] = dtype
        self._own.add(version)
        if name:
            self.versions[name] = version
        return version

    def now(self, name: str) -> ir.Local:
        """The present value of a local."""
        version = self.versions[name]
        return ir.Local(version, self.making.types[version])

    def is_array(self, name: str) -> bool:
        """True if a local is a local array."""
        return self.versions[name] in self.making.extents

    def set_unknown(self, name: str, dtype: ir.DType, sentence: str, where: ir.Location) -> None:
        """Gives a local a version whose value the adjoint cannot compute again."""
        self.making.unknown[self.version(name, dtype, name)] = (sentence, where)

    def adjoint(self, version: str) -> ir.Local:
        """The adjoint of a version, declared in the body of the version."""
        if version not in self._own and self.around is not None:
            return self.around.adjoint(version)
        if version not in self._adjoints:
            name = self._adjoints[version] = self.making.names.fresh(f"adj_{version}")
            if version in self.making.extents:
                self.start.append(self.zeros(name, version))
        return ir.Local(self._adjoints[version], self.making.types[version])

    def added(self, version: str, value: ir.Expr, where: ir.Location) -> ir.Stmt:
        """Adds to the adjoint of a version."""
        return ir.UpdateLocal(self.adjoint(version).name, "add", value, where)

    def zeros(self, name: str, version: str) -> ir.Stmt:
        """A local array like the version, of zeros."""
        making = self.making
        return ir.LocalArray(
            name, making.extents[version], const(0, making.types[version]), ir.NOWHERE
        )

    def hoist(self, name: str) -> None:
        """Declares in front of the body what a branch sets, and its reverse sweep reads."""
        if name not in self._own or any(local_changed(s) == name for s in self.start):
            return
        is_array, zero = name in self.making.extents, const(0, self.making.types[name])
        self.start.append(
            self.zeros(name, name) if is_array else ir.SetLocal(name, zero, ir.NOWHERE)
        )

    # --- expressions

    def renamed(self, e: ir.Expr) -> ir.Expr:
        """The expression on the present versions of locals and the loops of the adjoint."""
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
        """True if a float depends on an array with a gradient."""
        return depends_on(e, self.making.active, self.making.gradients)


def backwards(reverse: list[list[ir.Stmt]]) -> list[ir.Stmt]:
    """The statements of a reverse sweep in their order."""
    return [s for statements in reversed(reverse) for s in statements]


def is_leaf(e: ir.Expr) -> bool:
    """True if a value takes no work."""
    return isinstance(e, ir.Local | ir.Const | ir.Param | ir.LoopIndex)
