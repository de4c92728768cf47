"""Random statements as text: ranges, stores, updates of what iterations share, branches, sums, loops of data, while loops."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from random import Random

import numpy as np

from .expressions import Expressions, Kind, Scope, Shapes
from .features import Features

_DEEPEST = 4  # indents of a nest
_TRIES = 12
_MOST_TIMES = 40_000  # that a loop runs in all
_LOCAL_EXTENT = 40  # of an array: shorter ones are locals
_LONGEST = 51  # range of a loop whose bounds are of indices
_WRITTEN = ("x", "y", "z", "a", "a", "b", "d", "s", "h", "w", "g", "past")


def names_in(text: str) -> set[str]:
    """All names of a text."""
    return {*re.findall(r"\b[a-z]\w*\b", text)}


class Statements(Expressions, ABC):
    """Text of statements while a kernel is drawn."""

    def __init__(self, rng: Random, features: Features, arrays: Shapes) -> None:
        super().__init__(rng, features, arrays)
        self.lines: list[str] = []
        self._n_names = 0
        self._operators: dict[str, str] = {}

    def say(self, scope: Scope, text: str) -> None:
        self.lines.append("    " * scope.indent + text)

    def name(self, prefix: str) -> str:
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    @property
    def number(self) -> Kind:
        """The kind of most arrays."""
        return self.kind_of("x")

    # --- ranges

    def bounds(self, scope: Scope, extent: int) -> tuple[str, str]:
        """A range: that of an extent, or any."""
        names = [*scope.points.values]
        if extent * scope.points.n > _MOST_TIMES:
            extent = 3
        match self.pick(self.features.bounds):
            case "margin":
                first, last = self.one_of((1, 1), (0, 1), (1, 0), (2, 2))
                return str(first), str(max(extent - last, 0))
            case "any" if names and self.happens(0.9):
                return self._any_bounds(scope, extent)
            case "any":
                return str(self.one_of(0, 1, 2)), str(max(extent - self.one_of(0, 1, 2), 0))
        return "0", str(extent)

    def _any_bounds(self, scope: Scope, n: int) -> tuple[str, str]:
        points = scope.points
        v, w = self.one_of(*points.values), self.one_of(*points.values)
        firsts = ["0", "0", "1", v, v, f"{v} + 1", f"{v} + 1", f"{v} - 1", f"2 * {v}", f"{n - 1} - {v}",
                  f"{n} - {v}", f"{v} + {w}", f"{v} - {w}"]  # fmt: skip
        ends = [*[str(n)] * 3, str(n - 1), f"{n} - {v}", v, f"{v} + 1", f"{v} + 2", f"2 * {v} + 1", f"{v} + {w}",
                f"{n - 1} - {w}", w]  # fmt: skip
        if not scope.nest.is_simple:
            firsts += [f"{v} // 2", f"{v} % 2", f"max({v} - 2, 0)", f"{v} % 3", f"{v} // 3"]
            ends += [f"{v} // 2 + 1", f"min({n}, {v} + 3)", f"{n} - {v} // 2", f"{v} % 3 + 1"]
        first, end = self.one_of(*firsts), self.one_of(*ends)
        lo, hi = points.of(first), points.of(end)
        if len(lo) and np.maximum(hi - lo, 0).max() > _LONGEST:
            return "0", str(n)
        used = names_in(f"{first} {end}") & points.values.keys()
        self.traits.add("range of a step" if "t" in used else "range of numbers")
        self.traits |= {"triangle"} if used - {"t"} else set()
        self.traits |= {"empty range"} if (hi <= lo).any() else set()
        self.traits |= {"range backwards"} if (hi < lo).any() else set()
        return first, end

    def loop(self, scope: Scope, name: str, first: str, end: str) -> Scope:
        """Begins a loop; its inside."""
        extents = {str(e): f"{a}.shape[{k}]" for a in "xa" for k, e in enumerate(self.arrays[a][0])}
        said = extents[end] if end in extents and self.happens(0.2) else end
        self.say(scope, f"for {name} in range({f'{first}, ' * (first != '0')}{said}):")
        return scope.within(scope.points.inside(name, first, end))

    def guarded(self, scope: Scope) -> Scope:
        """Begins a branch; its inside."""
        text, points = self.guard(scope)
        self.say(scope, f"if {text}:")
        return scope.within(points)

    # --- stores

    def target(self, scope: Scope) -> tuple[str, str]:
        """An array with a place that is stored to: elements of iterations' own, or of all, which are updated."""
        nest = scope.nest
        for attempt in range(_TRIES):
            name = self.one_of(*(x for x in _WRITTEN if x in self.arrays))
            at = self.place(scope, name, may_compute=nest.is_in_order)
            if nest.places and self.happens(0.4):
                name, at = self.one_of(*nest.places)
            if at is None or not self._is_inside(scope, name, at):
                continue
            place = f"{name}[{', '.join(at)}]"
            if not nest.is_own:
                return name, place
            if nest.claim(name, self.arrays[name][0], scope.points, at):
                nest.places.append((name, at))
                return name, place
            if (attempt == _TRIES - 1 or self.happens(0.2)) and nest.may_share(name):
                nest.shared.add(name)
                return name, place
        if nest.is_own:
            nest.shared.add("total")
        return "total", f"total[{self.rng.randrange(2)}]"

    def _is_inside(self, scope: Scope, name: str, at: tuple[str, ...]) -> bool:
        """True if the indices of a place of an iteration's own are inside of their array here, too."""
        points = scope.points
        return not scope.nest.is_own or all(
            names_in(text) <= points.values.keys() and points.is_within(text, extent)
            for text, extent in zip(at, self.arrays[name][0], strict=True)
        )

    def store(self, scope: Scope, accumulated: str | None = None) -> None:
        """A store of an element, or an update of what iterations share; of a sum where one is given."""
        if self.happens(self.features.guarded):
            scope = self.guarded(scope)
        name, place = self.target(scope)
        kind = self.kind_of(name)
        if scope.nest.is_simple and self._is_repeated(scope, place):
            scope.nest.shared.add(name)  # iterations share the element
        said = self.value(scope, kind)
        if accumulated is not None and kind == self.number:
            said = self.one_of(accumulated, f"{accumulated} + {said}")
        if name in scope.nest.shared:
            self.update(scope, name, place, said)
            return
        form = self.pick(self.features.stores, ("max", "bounded") if self.is_plain else ())
        if kind == "whole" and form == "*=":
            form = "="
        self.traits |= {"max"} if form in ("max", "bounded") and kind == "real" else set()
        match form:
            case "max":
                self.say(scope, f"{place} = max({place}, {said})")
            case "bounded":
                least, most = self.literal(kind, -9), self.literal(kind, 9)
                self.say(scope, f"{place} = min(max({said}, {least}), {most})")
            case "*=":
                self.say(scope, f"{place} *= {self.one_of('0.5', '-1.0', '2.0')}")
            case _:
                self.say(scope, f"{place} {form} {said}")

    def _is_repeated(self, scope: Scope, place: str) -> bool:
        """True if iterations of some loop share the element."""
        return not scope.points.values.keys() - {"t"} <= names_in(place)

    def update(self, scope: Scope, name: str, place: str, value: str) -> None:
        """An update of what iterations share, by the operator of the array."""
        op = self.operator_of(name)
        self.traits |= {"shared sum", f"scatter {op}", f"scatter {self.arrays[name][1]}"}
        self.traits |= {op} - {"add"} if self.kind_of(name) == "real" else set()
        if op == "add":
            self.say(scope, f"{place} += {value}")
        elif self.happens(self.features.atomics):
            self.say(scope, f"ks.atomic_{op}({place}, {value})")
        else:
            self.say(scope, f"{place} = {op}({place}, {value})")

    def operator_of(self, name: str) -> str:
        """The one operator that iterations update an array by."""
        if self.is_plain and self.kind_of(name) == "real":
            return "add"
        return self._operators.setdefault(name, str(self.one_of(*self.features.shared)))

    def scatter(self, scope: Scope) -> None:
        """An update at a key, or at a place that is computed."""
        name = self.one_of("bins", "bins", "tally", "grid")
        if not scope.nest.may_share(name):
            return
        scope.nest.shared.add(name)
        at = [self._shared_index(scope, extent) for extent in self.arrays[name][0]]
        place = f"{name}[{', '.join(at)}]"
        self.update(scope, name, place, self.addend(scope, name))

    def _shared_index(self, scope: Scope, extent: int) -> str:
        key = self.index(scope, self.arrays["k"][0][0])
        if key is None or self.happens(0.3):
            return f"({self.value(replace(scope, depth=1), 'whole')}) % {extent}"
        if extent < self.arrays["bins"][0][0]:
            return f"k[{key}] % {extent}"
        return str(self.one_of(f"k[{key}]", f"k[{key}]", f"(k[{key}] + 1) % {extent}"))

    def addend(self, scope: Scope, name: str) -> str:
        """A value that is added to an array: of integers a small one."""
        kind = self.kind_of(name)
        value = self.value(replace(scope, depth=1), kind)
        return value if kind == "real" else str(self.one_of("1", value))

    def window(self, scope: Scope) -> None:
        """Updates of a box at a place that is computed, parts of which may be outside."""
        nest, (rows, columns) = scope.nest, self.arrays["grid"][0]
        if not nest.may_share("grid"):
            return
        nest.shared.add("grid")
        self.traits.add("window")
        base, j = self.name("v"), self.name("j")
        key = self.index(scope, self.arrays["k"][0][0])
        whole = self.value(replace(scope, depth=self.features.depth), "whole")
        begins = [f"({whole}) % {rows} - 1"] + [f"k[{key}]", f"k[{key}] - 1"] * (key is not None)
        self.say(scope, f"{base} = {self.one_of(*begins)}")
        inner = self.loop(scope, j, "0", str(self.one_of(1, 2, 3)))
        self.say(inner, f"if {base} + {j} >= 0 and {base} + {j} < {rows}:")
        inner = inner.within(inner.points)
        column = str(self.rng.randrange(columns))
        if self.happens(0.6):
            column = self.name("l")
            inner = self.loop(inner, column, "0", str(columns))
        self.update(inner, "grid", f"grid[{base} + {j}, {column}]", self.addend(inner, "grid"))

    # --- statements

    def block(self, scope: Scope) -> Scope:
        """One to three statements; what is known behind them."""
        for _ in range(self.rng.randint(1, 3)):
            scope = self.statement(scope)
        return scope

    def statement(self, scope: Scope) -> Scope:
        """A statement; what is known behind it."""
        here = replace(scope, depth=1)
        without: tuple[str, ...] = ()
        without += ("if", "for", "while", "rows", "window") if scope.indent > _DEEPEST else ()
        without += ("old",) if scope.nest.is_own else ("scatter", "window")
        without += ("if", "for") if scope.nest.way == "affine" else ()
        kinds = {k: w for k, w in self.features.statements.items() if k not in without}
        match self.pick(kinds) if kinds else "local":
            case "store":
                self.store(here)
            case "scatter":
                self.scatter(here)
            case "window":
                self.window(here)
            case "if":
                self.branch(here)
            case "for":
                return self.loop_of_data(scope)
            case "while":
                return self.loop_while(scope)
            case "rows":
                return self.rows(scope)
            case "sum":
                return self.sum(scope)[0]
            case "old":
                return self.old_value(here)
            case "local array" if self.number == "real":
                return self.local_array(scope)
            case "update" if scope.local_names(self.number):
                name = self.one_of(*scope.local_names(self.number))
                self.say(scope, f"{name} {self.one_of('+=', '-=')} {self.value(here, self.number)}")
            case _:
                return self.local(scope, self.number if self.happens(0.7) else "whole")
        return scope

    def simple(self, scope: Scope) -> None:
        """The body of a nest that loops of the space are made of."""
        match self.pick(self.features.simple_statements):
            case "sum":
                self.store(*self.sum(scope))
            case "sum and loop":
                scope, total = self.sum(scope, self.extents[-1])
                self.store(self.loop(scope, self.name("j"), "0", str(self.extents[-1])), total)
            case "updates":
                self.updates(scope)
            case "two stores":
                scope, total = self.sum(scope)
                self.store(scope, total)
                self.store(scope, total)
            case _:
                self.store(scope)

    def updates(self, scope: Scope) -> None:
        """A sum whose terms are added to an element."""
        name, place = self.target(scope)
        kind = self.kind_of(name)
        if name not in scope.nest.shared and not self._is_repeated(scope, place):
            self.say(scope, f"{place} = {self.literal(kind, 0, 1)}")
        scope.nest.shared.add(name)  # the terms do not read it
        inner = self.loop(scope, self.name("m"), *self.bounds(scope, self.one_of(*self.extents)))
        self.say(inner, f"{place} += {self.value(inner, kind)}")

    def local(self, scope: Scope, kind: Kind) -> Scope:
        """A local with a value."""
        name = self.name("v")
        self.say(scope, f"{name} = {self.value(replace(scope, depth=1), kind)}")
        return scope.knowing(kind, name)

    def old_value(self, scope: Scope) -> Scope:
        """A local that takes what an element held just before an update."""
        name, place = self.target(scope)
        kind, old = self.kind_of(name), self.name("v")
        self.say(scope, f"{old} = ks.atomic_add({place}, {self.value(scope, kind)})")
        return scope.knowing(kind, old)

    def local_array(self, scope: Scope) -> Scope:
        """An array of the iteration, with elements at places that are computed."""
        self.traits.add("local array")
        array, found, at = self.name("h"), self.name("v"), replace(scope, depth=2)
        self.say(scope, f"{array} = np.full({_LOCAL_EXTENT}, 2.0)")
        inner = self.loop(scope, self.name("j"), "0", str(self.one_of(1, 2, 3)))
        place = f"{array}[({self.value(replace(inner, depth=2), 'whole')}) % {_LOCAL_EXTENT}]"
        self.say(inner, f"{place} {self.one_of('=', '+=')} {self.value(inner, 'real')}")
        self.say(scope, f"{found} = {array}[({self.value(at, 'whole')}) % {_LOCAL_EXTENT}]")
        return scope.knowing("real", found)

    def branch(self, scope: Scope) -> None:
        self.traits.add("branch")
        inside = self.guarded(scope)
        self.block(inside)
        if self.happens(0.5):
            self.say(scope, "else:")
            self.block(scope.within(scope.points))

    def accumulator(self, scope: Scope, *numbers: int) -> str:
        """A local that begins as one of these numbers."""
        name = self.name("t")
        self.say(scope, f"{name} = {self.literal(self.number, *numbers)}")
        return name

    def sum(self, scope: Scope, extent: int | None = None) -> tuple[Scope, str]:
        """A loop that sums up, or finds the greatest; what is known behind it, and the name of its result."""
        self.traits.add("sum inside")
        total = self.accumulator(scope, 0, 1)
        name = self.name("m")
        extent = self.one_of(*self.extents) if extent is None else extent
        inner = self.loop(scope, name, *self.bounds(scope, extent))
        if self.happens(self.features.guarded):
            inner = self.guarded(inner)
        value = self.value(inner, self.number)
        if "max" in self.features.reals and not self.is_plain and self.happens(0.15):
            self.traits.add("max")
            self.say(inner, f"{total} = max({total}, {value})")
        else:
            self.say(inner, f"{total} += {value}")
        return scope.knowing(self.number, total), total

    @property
    @abstractmethod
    def extents(self) -> tuple[int, int, int]:
        """Those of vectors, and of the rows and columns of matrices."""

    def rows(self, scope: Scope) -> Scope:
        """Sums of rows whose lengths are data, or of so many neighbours."""
        at = self.index(scope, self.arrays["x"][0][0])
        if at is None:
            return scope
        self.traits.add("rows of data")
        nest, total, e = scope.nest, self.accumulator(scope, 0, 1), self.name("e")
        n = self.arrays["x"][0][0]
        length = self.one_of(*[f"rows[{at}], rows[{at} + 1]"] * 2, f"min(k[{at}], {n})")
        self.say(scope, f"for {e} in range({length}):")
        may_gather = nest.way != "affine" and not nest.writes("x") and "x" not in nest.shared
        forms = [f"val[{e}]"] + [f"val[{e}] * x[col[{e}]]", f"x[col[{e}]]"] * may_gather
        term = self.one_of(*forms)
        if "x[" in term:
            nest.read("x")
        inner = scope.within(scope.points)
        if self.happens(0.3):
            sign, v = self.one_of("<", "!=", ">="), self.one_of(*scope.points.values)
            self.say(inner, f"if col[{e}] {sign} {v}:")
            inner = inner.within(inner.points)
        self.say(inner, f"{total} += {term}")
        return scope.knowing(self.number, total)

    def loop_of_data(self, scope: Scope) -> Scope:
        """A loop in order, whose length is a number, a loop index or a datum; it sums up."""
        total, j = self.accumulator(scope, 0), self.name("j")
        within = scope.knowing(self.number, total)
        if self.happens(0.4):
            self.traits.add("length of data")
            length = f"({self.value(replace(scope, depth=2), 'whole')}) % 4"
            self.say(scope, f"for {j} in range({length}):")
            inner = within.within(within.points.inside(j, "0", "3"))
        else:
            first, end = self.bounds(scope, self.rng.randint(0, 4))
            inner = self.loop(within, j, first, end)
        # Only the total is updated: what else the loop sets ends with it.
        self.say(inner, f"{total} += {self.value(replace(inner, depth=1), self.number)}")
        if self.happens(0.4):
            self.block(inner)
        return within

    def loop_while(self, scope: Scope) -> Scope:
        """A loop of at most a few passes, which its condition or a break may end sooner."""
        self.traits.add("while")
        left = self.name("v")
        self.say(scope, f"{left} = ({self.value(replace(scope, depth=2), 'whole')}) % 4")
        found = self.accumulator(scope, 1)
        behind = scope.knowing(self.number, found)
        more = f" and {self.condition(replace(scope, depth=2))}" if self.happens(0.3) else ""
        self.say(scope, f"while {left} > 0{more}:")
        inner = behind.within(scope.points)
        self.say(inner, f"{left} -= 1")
        self.say(inner, f"{found} += {self.value(replace(inner, depth=1), self.number)}")
        if self.happens(0.3):
            self.say(inner, f"if {self.condition(replace(inner, depth=2))}:")
            self.say(inner.within(inner.points), "break")
        return behind.knowing("whole", left)
