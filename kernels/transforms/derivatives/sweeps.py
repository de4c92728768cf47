"""Forward and reverse sweep of a body.

The forward sweep gives each value of a local a name of its own (a version), and names what the reverse sweep reads again. Each
version has an adjoint, which starts at zero. The iterations of a loop are swept one by one, the last first: what a loop carries in
locals is kept in local arrays at the number of the iteration, and the rest of an iteration is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ...ir.kernel import (
    NOWHERE,
    Activate,
    Append,
    Assert,
    Binary,
    Cast,
    Const,
    Deactivate,
    DType,
    Expr,
    For,
    ForActive,
    If,
    Load,
    Local,
    LocalArray,
    LocalElement,
    Location,
    LoopIndex,
    Param,
    Print,
    Select,
    SetElement,
    SetLocal,
    Stmt,
    Store,
    Unary,
    Update,
    UpdateLocal,
    While,
)
from ...ir.ops import OPS
from ...ir.simplify import binary, cast, compare, const, select
from ...ir.verify import LOCAL_ARRAY_BYTES
from ...ir.walk import local_changed, mapped, nested_statements, walk
from .activity import Activity, depends_on, refusal
from .kept import changed_in, has_independent_iterations, only_added_to
from .names import Names
from .pruning import names_in, with_zeros
from .rules import RESULT, operands_of, partials, times, values_needed


@dataclass
class Making:
    """State of one adjoint. `active` are the versions with derivatives.

    `unknown`: names whose values cannot be computed again, each with the sentence and place of a refusal.
    """

    gradients: Mapping[str, str]
    activity: Activity
    names: Names
    active: set[str] = field(default_factory=set)
    types: dict[str, DType] = field(default_factory=dict)  # of versions
    extents: dict[str, int] = field(default_factory=dict)  # of versions that are local arrays
    unknown: dict[str, tuple[str, Location]] = field(default_factory=dict)


class Sweep:
    """Sweeps of one body: of the kernel, or of an iteration of a loop, inside the sweep `around`.

    `versions`: the present version of each local. `sums`: locals that the loops around only add to.
    """

    def __init__(self, making: Making, around: Sweep | None = None, *, has_reverse: bool = True) -> None:
        self._making, self._around, self._has_reverse = making, around, has_reverse
        self._versions: dict[str, str] = dict(around._versions) if around else {}
        self._indices: dict[str, tuple[str, Expr | None]] = dict(around._indices) if around else {}
        self._sums: frozenset[str] = around._sums if around else frozenset()
        self._own: set[str] = set()
        self._adjoints: dict[str, str] = {}
        self._start: list[Stmt] = []
        self._forward: list[Stmt] = []
        self._reverse: list[list[Stmt]] = []

    # --- bodies

    def kernel(self, body: tuple[Stmt, ...]) -> list[Stmt]:
        """The statements of the adjoint of a kernel."""
        self._block(body, is_top=True)
        return self._joined(self._forward, _backwards(self._reverse))

    def _joined(self, forward: list[Stmt], reverse: list[Stmt]) -> list[Stmt]:
        """Both sweeps, behind the declarations of what they share."""
        making = self._making
        scalars = {v: a for v, a in self._adjoints.items() if v not in making.extents}
        zeros = {a: making.types[v] for v, a in scalars.items()}
        return [*self._start, *with_zeros([*forward, *reverse], zeros)]

    def _block(self, body: tuple[Stmt, ...], *, is_top: bool = False) -> None:
        for s in body:
            self._statement(s, is_top)

    @contextmanager
    def _collected(self) -> Iterator[tuple[list[Stmt], list[list[Stmt]]]]:
        """Collects the sweeps of a nested block."""
        before = self._forward, self._reverse
        self._forward, self._reverse = [], []
        yield self._forward, self._reverse
        self._forward, self._reverse = before

    def _statement(self, s: Stmt, is_top: bool) -> None:
        match s:
            case SetLocal():
                self._define(s.name, self._renamed(s.value), s.where, s.name)
            case UpdateLocal():
                self._update_local(s)
            case LocalArray():
                self._array(s)
            case SetElement():
                self._element(s)
            case Store() if self._making.activity.stores(s):
                self._store(s)
            case Update():
                self._update(s)
            case If():
                self._if(s)
            case For() | ForActive():
                self._loop(s, is_top)
            case While():
                raise refusal("a while loop, or one that is left early or runs in order, has none yet", s.where)
            case Append():
                self._set_unknown(s.result, DType.i32, "the number of an appended cell is used", s.where)
            case Store() | Activate() | Deactivate() | Print() | Assert():
                pass

    # --- locals

    def _define(self, stem: str, value: Expr, where: Location, name: str = "") -> Local:
        """Gives a value a version: the next one of the local `name`, or a temporary."""
        making = self._making
        is_active = self._is_active(value) and (not name or name in making.activity.useful)
        if is_active and self._has_reverse:
            value = self._prepared(value, where)
        version = Local(self._version(stem, value.dtype, name), value.dtype)
        if is_active:
            making.active.add(version.name)
        self._forward.append(SetLocal(version.name, value, where))
        if is_active and self._has_reverse:
            self._then(self._flow(value, self._adjoint(version.name), where, version))
        return version

    def _version(self, stem: str, dtype: DType, name: str = "") -> str:
        """A new version of a local, or a temporary without a `name`."""
        version = self._making.names.fresh(f"{stem}_v" if name else stem)
        self._making.types[version] = dtype
        self._own.add(version)
        if name:
            self._versions[name] = version
        return version

    def _set_unknown(self, name: str, dtype: DType, sentence: str, where: Location) -> None:
        self._making.unknown[self._version(name, dtype, name)] = (sentence, where)

    def _then(self, statements: list[Stmt]) -> None:
        """Adds to the reverse sweep what stands before all that it has so far."""
        if statements and self._has_reverse:
            self._reverse.append(statements)

    def _update_local(self, s: UpdateLocal) -> None:
        value, version = self._renamed(s.value), self._versions[s.name]
        if s.name not in self._sums:
            before = Local(version, value.dtype)
            self._define(s.name, binary(s.op, before, value), s.where, s.name)
            return
        is_active = self._is_active(value) and version in self._making.active
        if is_active and self._has_reverse:
            value = self._inlined(value, s.where)
            self._then(self._flow(value, self._adjoint(version), s.where))
        elif not self._has_reverse:
            self._forward.append(UpdateLocal(version, s.op, value, s.where))

    def _adjoint(self, version: str) -> Local:
        """The adjoint of a version, declared where the version is."""
        if version not in self._own and self._around is not None:
            return self._around._adjoint(version)
        if version not in self._adjoints:
            name = self._adjoints[version] = self._making.names.fresh(f"adj_{version}")
            if version in self._making.extents:
                self._start.append(self._zeros(name, version))
        return Local(self._adjoints[version], self._making.types[version])

    # --- local arrays: they are changed in place, and the reverse sweep restores their elements

    def _array(self, s: LocalArray) -> None:
        making, value = self._making, self._renamed(s.value)
        is_active = s.name in making.activity.active
        if is_active and self._has_reverse:
            value = self._inlined(value, s.where)
        version = self._version(s.name, value.dtype, s.name)
        making.extents[version] = s.extent
        if is_active:
            making.active.add(version)
        self._forward.append(LocalArray(version, s.extent, value, s.where))
        if is_active and self._has_reverse and self._is_active(value):
            loop, total = making.names.fresh("c"), self._version("g", value.dtype)
            adjoint = LocalElement(self._adjoint(version).name, LoopIndex(loop), value.dtype)
            add = UpdateLocal(total, "add", adjoint, s.where)
            zero = SetLocal(total, const(0, value.dtype), s.where)
            summed = For(loop, const(s.extent, DType.i64), (add,), s.where)
            self._then([zero, summed, *self._flow(value, Local(total, value.dtype), s.where)])

    def _element(self, s: SetElement) -> None:
        version, value = self._versions[s.name], self._renamed(s.value)
        if not self._has_reverse:
            self._forward.append(SetElement(version, self._renamed(s.index), value, s.where))
            return
        index, dtype = self._leaf(self._renamed(s.index), s.where), value.dtype
        is_active = version in self._making.active
        value = self._inlined(value, s.where) if is_active else self._leaf(value, s.where)
        old = self._version("old", dtype)
        self._forward.append(SetLocal(old, LocalElement(version, index, dtype), s.where))
        self._forward.append(SetElement(version, index, value, s.where))
        back: list[Stmt] = [SetElement(version, index, Local(old, dtype), s.where)]
        if is_active:
            adjoint, taken = self._adjoint(version).name, self._version("t", dtype)
            back.append(SetLocal(taken, LocalElement(adjoint, index, dtype), s.where))
            back.append(SetElement(adjoint, index, const(0, dtype), s.where))
            back += self._flow(value, Local(taken, dtype), s.where)
        self._then(back)

    # --- arrays

    def _store(self, s: Store) -> None:
        gradient, value = self._making.gradients[s.array], self._renamed(s.value)
        indices = tuple(self._renamed(i) for i in s.indices)
        clear = Store(gradient, indices, const(0, value.dtype), s.where)
        if not self._is_active(value):
            self._then([clear])
            return
        value = self._inlined(value, s.where) if self._has_reverse else value
        taken = self._version("t", value.dtype)
        take = SetLocal(taken, Load(gradient, indices, value.dtype), s.where)
        self._then([take, clear, *self._flow(value, Local(taken, value.dtype), s.where)])

    def _update(self, s: Update) -> None:
        value = self._renamed(s.value)
        if s.result:
            sentence = f"the old value of an update of {s.array} is used"
            self._set_unknown(s.result, value.dtype, sentence, s.where)
            if s.result in self._making.activity.active:
                raise refusal(sentence, s.where)
        if not self._making.activity.stores(s):
            return
        indices = tuple(self._renamed(i) for i in s.indices)
        if s.op == "mul" and not self._is_active(value):
            self._then([Update(self._making.gradients[s.array], indices, "mul", value, s.where)])
            return
        if s.op != "add":
            raise refusal(f"{s.array} is updated by {s.op}, only sums have one", s.where)
        if not self._is_active(value) or not self._has_reverse:
            return
        value = self._inlined(value, s.where)
        taken = self._version("t", value.dtype)
        take = SetLocal(taken, Load(self._making.gradients[s.array], indices, value.dtype), s.where)
        self._then([take, *self._flow(value, Local(taken, value.dtype), s.where)])

    # --- branches

    def _if(self, s: If) -> None:
        condition = self._leaf(self._renamed(s.condition), s.where)
        before = dict(self._versions)
        branches = [self._branch(block, before) for block in (s.then, s.orelse)]
        merges = self._merged(before, branches, s.where)
        for (forward, reverse, _), merge in zip(branches, merges, strict=True):
            self._hoist(forward, _backwards(reverse))
            forward += merge[0]
            reverse.append(merge[1])
        (then, then_back, _), (orelse, orelse_back, _) = branches
        self._forward.append(If(condition, tuple(then), tuple(orelse), s.where))
        back = tuple(_backwards(then_back)), tuple(_backwards(orelse_back))
        if any(back):
            self._then([If(condition, *back, s.where)])

    def _branch(
        self, block: tuple[Stmt, ...], before: dict[str, str]
    ) -> tuple[list[Stmt], list[list[Stmt]], dict[str, str]]:
        """The sweeps of a branch, and the versions at its end."""
        self._versions = dict(before)
        with self._collected() as (forward, reverse):
            self._block(block)
        return forward, reverse, self._versions

    def _merged(
        self,
        before: dict[str, str],
        branches: list[tuple[list[Stmt], list[list[Stmt]], dict[str, str]]],
        where: Location,
    ) -> list[tuple[list[Stmt], list[Stmt]]]:
        """Gives locals that a branch changes a version behind both. Returns the ends of the sweeps of each branch."""
        self._versions = dict(before)
        ends: list[tuple[list[Stmt], list[Stmt]]] = [([], []) for _ in branches]
        making = self._making
        for name, old in before.items():
            last = [versions[name] for _, _, versions in branches]
            if all(v == old for v in last):
                continue
            dtype = making.types[old]
            merged = Local(self._version(name, dtype, name), dtype)
            self._forward.append(SetLocal(merged.name, Local(old, dtype), where))
            if any(v in making.unknown for v in last):
                making.unknown[merged.name] = next(making.unknown[v] for v in last if v in making.unknown)
            if any(v in making.active for v in last):
                making.active.add(merged.name)
            for v, (forward, reverse) in zip(last, ends, strict=True):
                if v != old:
                    forward.append(SetLocal(merged.name, Local(v, dtype), where))
                if v in making.active and self._has_reverse:
                    reverse.append(self._added(v, self._adjoint(merged.name), where))
        return ends

    def _added(self, version: str, value: Expr, where: Location) -> Stmt:
        """Adds to the adjoint of a version."""
        return UpdateLocal(self._adjoint(version).name, "add", value, where)

    def _hoist(self, forward: list[Stmt], reverse: list[Stmt]) -> None:
        """Declares in front of the body what a branch sets and its reverse sweep reads."""
        read = names_in(reverse)
        for s in _outside_loops(forward):
            name = local_changed(s)
            if isinstance(s, SetLocal | LocalArray) and name in read and name in self._own:
                self._declare(name)

    def _declare(self, name: str) -> None:
        if any(local_changed(s) == name for s in self._start):
            return
        zero = const(0, self._making.types[name])
        is_array = name in self._making.extents
        self._start.append(self._zeros(name, name) if is_array else SetLocal(name, zero, NOWHERE))

    def _zeros(self, name: str, version: str) -> Stmt:
        """A local array like the version, of zeros."""
        making = self._making
        return LocalArray(name, making.extents[version], const(0, making.types[version]), NOWHERE)

    # --- loops

    def _loop(self, s: For | ForActive, is_top: bool) -> None:
        all_changed = changed_in(s.body, self._versions)
        changed = [n for n in all_changed if n not in self._sums]
        sums = frozenset(n for n in changed if only_added_to(s.body, n))
        carried = [n for n in changed if n not in sums]
        extent = self._leaf(self._renamed(s.extent), s.where) if isinstance(s, For) else None
        for n in changed:
            if not self._is_array(n):
                self._copy(n, s.where)
        kept = self._keep(carried, extent, s.where, is_top) if self._has_reverse else {}
        if changed or (all_changed and not self._has_reverse):
            self._forward.append(self._again(s, extent, sums, carried, kept))
        if self._has_reverse:
            self._then([self._turned(s, extent, sums, carried, kept, is_top)])

    def _is_array(self, name: str) -> bool:
        return self._versions[name] in self._making.extents

    def _copy(self, name: str, where: Location) -> None:
        """A version of a local that a loop changes in place."""
        old, making = self._versions[name], self._making
        value = Local(old, making.types[old])
        version = self._version(name, value.dtype, name)
        self._forward.append(SetLocal(version, value, where))
        if name in making.activity.active:
            making.active.add(version)
            if old in making.active:
                self._then([self._added(old, self._adjoint(version), where)])

    def _keep(self, carried: list[str], extent: Expr | None, where: Location, is_top: bool) -> dict[str, str]:
        """Declares a local array for what each local is at the begin of each iteration."""
        kept: dict[str, str] = {}
        for n in carried:
            dtype = _kept_type(self._making.types[self._versions[n]])
            array = kept[n] = self._making.names.fresh(f"kept_{n}")
            width = self._making.extents.get(self._versions[n], 1)
            length = 1
            if is_top:
                self._making.unknown[array] = (f"iterations of a parallel loop share the local {n}", where)
            elif not isinstance(extent, Const):
                sentence = f"a loop whose length is not constant carries the local {n}"
                self._making.unknown[array] = (sentence, where)
            elif extent.value * width * dtype.size_bytes > LOCAL_ARRAY_BYTES:
                sentence = f"a loop of {extent.value} iterations carries the local {n}, more than a local array holds"
                self._making.unknown[array] = (sentence, where)
            else:
                length = max(1, int(extent.value) * width)
            self._start.append(LocalArray(array, length, const(0, dtype), where))
        return kept

    def _again(
        self,
        s: For | ForActive,
        extent: Expr | None,
        sums: frozenset[str],
        carried: list[str],
        kept: dict[str, str],
    ) -> Stmt:
        """The loop of the forward sweep, which changes locals in place."""
        inner = Sweep(self._making, self, has_reverse=False)
        inner._sums |= sums
        loops = inner._enter(s, None)
        at = LoopIndex(loops[0])
        body: list[Stmt] = []
        for n, array in kept.items():
            body.append(self._saved(n, array, at, s.where))
        inner._block(s.body)
        body += inner._forward
        for n in (n for n in carried if not self._is_array(n)):
            last = inner._versions[n]
            body.append(SetLocal(self._versions[n], Local(last, self._making.types[last]), s.where))
        return _like(s, loops, extent, body)

    def _saved(self, name: str, kept: str, at: Expr, where: Location) -> Stmt:
        """Keeps a carried local, or all elements of a local array, at the number of an iteration."""
        version, making = self._versions[name], self._making
        dtype = making.types[version]
        if version not in making.extents:
            return SetElement(kept, at, _as_kept(Local(version, dtype)), where)
        loop = making.names.fresh("c")
        element = _as_kept(LocalElement(version, LoopIndex(loop), dtype))
        save = SetElement(kept, self._row(version, at, loop), element, where)
        return For(loop, const(making.extents[version], DType.i64), (save,), where)

    def _row(self, version: str, at: Expr, loop: str) -> Expr:
        """Where an element of a local array is kept for an iteration."""
        width = const(self._making.extents[version], at.dtype)
        return binary("add", binary("mul", at, width), LoopIndex(loop, at.dtype))

    def _restored(self, name: str, kept: str, at: Expr, where: Location) -> Stmt:
        """Sets a local array to what it was at the begin of an iteration."""
        version, making = self._versions[name], self._making
        dtype, loop = making.types[version], making.names.fresh("c")
        element = LocalElement(kept, self._row(version, at, loop), _kept_type(dtype))
        restore = SetElement(version, LoopIndex(loop), _from_kept(element, dtype), where)
        return For(loop, const(making.extents[version], DType.i64), (restore,), where)

    def _turned(
        self,
        s: For | ForActive,
        extent: Expr | None,
        sums: frozenset[str],
        carried: list[str],
        kept: dict[str, str],
        is_top: bool,
    ) -> Stmt:
        """The loop of the reverse sweep: each iteration is computed again and swept backwards, the last one first."""
        making = self._making
        inner = Sweep(making, self)
        inner._sums |= sums
        loop = s.loop if isinstance(s, For) else ""
        is_in_order = is_top or (
            not carried and has_independent_iterations(s.body, loop, making.gradients)
        )
        last = None if is_in_order or extent is None else binary("sub", extent, const(1, extent.dtype))
        loops = inner._enter(s, last)
        at = inner._renamed(LoopIndex(loop)) if isinstance(s, For) else const(0, DType.i64)
        begins: dict[str, Local] = {}
        for n in carried:
            if self._is_array(n):
                inner._start.append(self._restored(n, kept[n], at, s.where))
                continue
            dtype = making.types[self._versions[n]]
            begins[n] = Local(inner._version(n, dtype, n), dtype)
            if n in making.activity.active:
                making.active.add(begins[n].name)
            element = LocalElement(kept[n], at, _kept_type(dtype))
            inner._start.append(SetLocal(begins[n].name, _from_kept(element, dtype), s.where))
        inner._block(s.body)
        inner._reverse.append(self._taken_over(inner, [*begins], s.where))
        handed = [
            SetLocal(self._adjoint(self._versions[n]).name, inner._adjoint(begin.name), s.where)
            for n, begin in begins.items()
            if begin.name in making.active
        ]
        inner._reverse.insert(0, list(handed))
        return _like(s, loops, extent, inner._joined(inner._forward, _backwards(inner._reverse)))

    def _taken_over(self, inner: Sweep, carried: list[str], where: Location) -> list[Stmt]:
        """Adds the adjoints of carried locals behind an iteration to those of their last versions in it."""
        return [
            inner._added(inner._versions[n], self._adjoint(self._versions[n]), where)
            for n in carried
            if inner._versions[n] in self._making.active and self._versions[n] in self._making.active
        ]

    def _enter(self, s: For | ForActive, last: Expr | None) -> tuple[str, ...]:
        """New names for the loop around the body; with `last` it counts down from there."""
        names = (s.loop,) if isinstance(s, For) else s.loops
        new = tuple(self._making.names.fresh(f"{n}_back" if last is not None else f"{n}_again") for n in names)
        self._indices |= {n: (m, last) for n, m in zip(names, new, strict=True)}
        return new

    # --- expressions

    def _renamed(self, e: Expr) -> Expr:
        """The expression on the present versions of locals and the loops of the adjoint."""
        match e:
            case Local():
                return replace(e, name=self._versions[e.name])
            case LocalElement():
                return replace(e, name=self._versions[e.name], index=self._renamed(e.index))
            case LoopIndex():
                loop, last = self._indices[e.loop]
                index = LoopIndex(loop, e.dtype)
                return index if last is None else binary("sub", cast(last, e.dtype), index)
        return mapped(e, self._renamed, lambda s: s)

    def _is_active(self, e: Expr) -> bool:
        return depends_on(e, self._making.active, self._making.gradients)

    def _leaf(self, e: Expr, where: Location) -> Expr:
        """The value of an expression in a local, if it takes any work."""
        return e if _is_leaf(e) else self._define("t", e, where)

    def _inlined(self, e: Expr, where: Location) -> Expr:
        """The expression with the values named that its derivatives read, also its own."""
        if not self._is_active(e):
            return e
        if isinstance(e, Unary | Binary) and RESULT in self._needed(e):
            return self._leaf(e, where)
        return self._prepared(e, where)

    def _needed(self, e: Unary | Binary) -> frozenset[int]:
        return values_needed(e.op, tuple(map(self._is_active, operands_of(e))))

    def _prepared(self, e: Expr, where: Location) -> Expr:
        """The active expression with the values named that its derivatives read."""
        match e:
            case Cast():
                return replace(e, x=self._inlined(e.x, where))
            case Select():
                sides = [x if _is_singular(x) else self._inlined(x, where) for x in (e.a, e.b)]
                return Select(self._leaf(e.condition, where), *sides, e.dtype)
            case Unary() | Binary():
                needed = self._needed(e)
                operands = [
                    self._leaf(x, where) if k in needed else self._inlined(x, where)
                    for k, x in enumerate(operands_of(e))
                ]
                if isinstance(e, Unary):
                    return replace(e, x=operands[0])
                return replace(e, a=operands[0], b=operands[1])
        return e

    def _flow(self, e: Expr, g: Expr, where: Location, result: Expr | None = None) -> list[Stmt]:
        """Adds `g`, the adjoint of an expression whose value is `result`, to what the expression depends on."""
        if not self._is_active(e):
            return []
        match e:
            case Local():
                return [self._added(e.name, g, where)]
            case LocalElement():
                adjoint = replace(e, name=self._adjoint(e.name).name)
                return [SetElement(adjoint.name, e.index, binary("add", adjoint, g), where)]
            case Load():
                return [Update(self._making.gradients[e.array], e.indices, "add", g, where)]
            case Cast():
                return self._flow(e.x, cast(g, e.x.dtype), where)
            case Select():
                return self._flow_to_sides(e, g, where)
            case Unary() | Binary():
                return self._flow_to_operands(e, g, where, result)
        raise refusal(f"a value of the kind {type(e).__name__} has none yet", where)

    def _held(self, g: Expr, where: Location) -> tuple[list[Stmt], Expr]:
        """A value in a local, where it is read several times."""
        if _is_leaf(g):
            return [], g
        name = self._version("g", g.dtype)
        return [SetLocal(name, g, where)], Local(name, g.dtype)

    def _flow_to_operands(
        self, e: Unary | Binary, g: Expr, where: Location, result: Expr | None
    ) -> list[Stmt]:
        found = zip(operands_of(e), partials(e, e if result is None else result), strict=True)
        parts = [(x, f) for x, f in found if f is not None and self._is_active(x)]
        held, g = self._held(g, where) if len(parts) > 1 else ([], g)
        for x, factor in parts:
            held += self._flow(x, times(g, factor), where)
        return held

    def _flow_to_sides(self, e: Select, g: Expr, where: Location) -> list[Stmt]:
        """Adds to the side that is taken. A side with a partial function is swept inside a branch: 0 times infinity is no 0."""
        held, g = self._held(g, where)
        zero = const(0, g.dtype)
        for side, chosen in ((e.a, (g, zero)), (e.b, (zero, g))):
            if not self._is_active(side):
                continue
            if not _is_singular(side):
                held += self._flow(side, select(e.condition, *chosen), where)
                continue
            with self._collected() as (forward, reverse):
                value = self._define("t", side, where)
            block = (*forward, self._added(value.name, g, where), *_backwards(reverse))
            held.append(If(e.condition, block, (), where) if side is e.a else If(e.condition, (), block, where))
        return held


def _backwards(reverse: list[list[Stmt]]) -> list[Stmt]:
    return [s for statements in reversed(reverse) for s in statements]


def _is_leaf(e: Expr) -> bool:
    return isinstance(e, Local | Const | Param | LoopIndex)


def _is_singular(e: Expr) -> bool:
    """True if the derivative of a float may be infinite where its value is not."""
    return any(
        isinstance(x, Unary | Binary) and x.dtype.is_float and OPS[x.op].is_partial for x in walk(e)
    )


def _outside_loops(body: list[Stmt]) -> Iterator[Stmt]:
    for s in body:
        yield s
        if isinstance(s, If):
            yield from _outside_loops([*s.then, *s.orelse])


def _like(s: For | ForActive, loops: tuple[str, ...], extent: Expr | None, body: list[Stmt]) -> Stmt:
    """The loop with other names and another body."""
    if isinstance(s, ForActive):
        return replace(s, loops=loops, body=tuple(body))
    assert extent is not None
    return For(loops[0], extent, tuple(body), s.where)


def _kept_type(dtype: DType) -> DType:
    return DType.i32 if dtype is DType.bool_ else dtype


def _as_kept(e: Expr) -> Expr:
    return cast(e, _kept_type(e.dtype))


def _from_kept(e: Expr, dtype: DType) -> Expr:
    return e if e.dtype is dtype else compare("ne", e, const(0, e.dtype))
