"""Random expressions as text: indices that stay inside, loads that no other iteration writes, values, conditions."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from .features import Features, Weights
from .points import Nest, Points

_TRIES = 12
_UNREAD = ("rows", "col", "bins", "grid", "tally", "total")  # by what draws any array
Kind = Literal["real", "whole"]
Shapes = dict[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True)
class Scope:
    """A place of the text: its nest, the iterations that come there, its indent, and the locals that are known."""

    nest: Nest
    points: Points
    indent: int
    reals: tuple[str, ...] = ()
    wholes: tuple[str, ...] = ()
    depth: int = 0  # of an expression: from the deepest on it has no parts

    def within(self, points: Points) -> Scope:
        """One indent deeper, where these iterations come."""
        return replace(self, points=points, indent=self.indent + 1)

    def knowing(self, kind: Kind, name: str) -> Scope:
        """The same where a local is known too."""
        if kind == "real":
            return replace(self, reals=(*self.reals, name))
        return replace(self, wholes=(*self.wholes, name))

    def local_names(self, kind: Kind) -> tuple[str, ...]:
        """The locals of a kind."""
        return self.reals if kind == "real" else self.wholes


class Expressions(ABC):
    """Text of expressions while a program is drawn, on arrays of these shapes and types."""

    def __init__(self, rng: Random, features: Features, arrays: Shapes) -> None:
        self.rng, self.features, self.arrays = rng, features, arrays
        self.is_plain = self.happens(features.plain)  # without what means nothing of NaN
        self.traits: set[str] = set()

    @property
    @abstractmethod
    def number(self) -> Kind:
        """The kind of most arrays."""

    def one_of(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def happens(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, weights: Weights, without: Collection[str] = ()) -> str:
        """A kind, by weight."""
        kinds = [kind for kind in weights if kind not in without]
        return self.rng.choices(kinds, [weights[kind] for kind in kinds])[0]

    def kind_of(self, name: str) -> Kind:
        """The kind of an array's elements."""
        return "real" if self.arrays[name][1].startswith("float") else "whole"

    def literal(self, kind: Kind, *numbers: int) -> str:
        """One of these numbers."""
        number = self.one_of(*numbers)
        return f"{number}.0" if kind == "real" else str(number)

    # --- indices

    def index(
        self, scope: Scope, extent: int, *, may_compute: bool = False, used: str = ""
    ) -> str | None:
        """An index that is inside in all iterations, mostly of a loop that is not `used` yet; None where there is none."""
        names, nest = [*scope.points.values], scope.nest
        if used and self.happens(0.85):
            names = [x for x in names if not re.search(rf"\b{x}\b", used)] or names
        may_compute = may_compute and not nest.is_simple
        if may_compute and extent and self.happens(self.features.computed):
            self.traits.add("computed index")
            whole = self.value(replace(scope, depth=self.features.depth), "whole")
            # The remainder has the sign of its divisor.
            return str(self.one_of(f"({whole}) % {extent}", f"min(max({whole}, 0), {extent - 1})"))
        is_affine = nest.way == "affine" or nest.is_simple
        for _ in range(_TRIES if names else 0):
            v, w = self.one_of(*names), self.one_of(*names)
            without = ("half", "rest") if is_affine and v != "t" else ()
            text = self._index_of(self.pick(self.features.indices, without), v, w, extent)
            if scope.points.is_within(text, extent):
                if re.search(r"\bt\b", text):
                    self.traits.add("index of a step")
                return text
        return str(self.rng.randrange(extent)) if extent else None

    def _index_of(self, kind: str, v: str, w: str, extent: int) -> str:
        match kind:
            case "shift":
                return str(self.one_of(f"{v} - 1", f"{v} + 1", f"{v} + 2"))
            case "reverse":
                return f"{extent - 1} - {v}"
            case "twice":
                return f"2 * {v}"
            case "sum":
                return f"{v} + {w}"
            case "difference":
                return f"{v} - {w}"
            case "half":
                return f"{v} // 2"
            case "rest":
                return str(self.one_of(f"{v} % 2", f"({v} + 1) % {max(extent, 1)}"))
        return v

    def place(
        self, scope: Scope, name: str, *, may_compute: bool = False
    ) -> tuple[str, ...] | None:
        """Indices into an array; None where it has no element."""
        at: tuple[str, ...] = ()
        for extent in self.arrays[name][0]:
            found = self.index(scope, extent, may_compute=may_compute, used=" ".join(at))
            if found is None:
                return None
            at = (*at, found)
        return at

    def load(self, scope: Scope, kind: Kind) -> str | None:
        """An element that no other iteration writes meanwhile."""
        nest = scope.nest
        names = [x for x in self.arrays if x not in _UNREAD and self.kind_of(x) == kind]
        names = [x for x in names if x != "k" or not nest.is_simple]
        for _ in range(_TRIES if names else 0):
            own = [name for name, _ in nest.places if name in names]
            name = self.one_of(*own) if own and self.happens(0.2) else self.one_of(*names)
            if name in nest.shared:
                continue
            found = self._element(scope, name)
            if found is not None:
                return found
        return None

    def _element(self, scope: Scope, name: str) -> str | None:
        nest, shape = scope.nest, self.arrays[name][0]
        is_written = nest.writes(name)
        may_compute = nest.is_in_order or (nest.is_own and not is_written)
        if may_compute and self._gathers(scope, name):
            at: tuple[str, ...] | None = (f"col[{self.index(scope, self.arrays['col'][0][0])}]",)
            self.traits.add("computed index")
        else:
            at = self.place(scope, name, may_compute=may_compute)
        if nest.is_simple and is_written and (name, at) not in nest.places:
            return None  # an element that another iteration of an inner loop writes, maybe
        if at is None or (is_written and not nest.owns(name, shape, scope.points, at)):
            return None
        if not is_written:
            nest.read(name)
        return f"{name}[{', '.join(at)}]"

    def _gathers(self, scope: Scope, name: str) -> bool:
        """True where a vector is to be read at a place that is data."""
        is_vector = self.arrays[name][0] == self.arrays["x"][0] != (0,)
        return is_vector and not scope.nest.is_simple and self.happens(self.features.gathered)

    # --- values

    def value(self, scope: Scope, kind: Kind) -> str:
        """A value of floats or of integers."""
        if scope.depth < self.features.depth and self.happens(self.features.deeper):
            return self._compound(replace(scope, depth=scope.depth + 1), kind)
        known = scope.local_names(kind)
        if known and self.happens(0.4):
            return str(self.one_of(*known))
        names = [*scope.points.values]
        if names and self.happens(self.features.index_values):
            v = self.one_of(*names)
            text = self.one_of(v, f"{v} % 5", f"{v} // 2")
            return f"ks.f32({text})" if kind == "real" else str(text)
        if kind == "real" and self.happens(self.features.scalar):
            return "alpha"
        return self.load(scope, kind) or self.literal(kind, 1, 2, 3, -2)

    def _compound(self, scope: Scope, kind: Kind) -> str:
        without = ("max", "min", "floor") if self.is_plain and kind == "real" else ()
        weights = self.features.reals if kind == "real" else self.features.whole_numbers
        form, one = self.pick(weights, without), self.value(scope, kind)
        match form:
            case "times":
                return f"{self.one_of('2.0', '-1.0', '0.5')} * ({one})"
            case "quotient":
                return f"({one}) / {self.one_of('2.0', '3.0', '4.0')}"
            case "abs":
                return f"abs({one})"
            case "floor":
                self.traits.add("floor")
                return f"ks.floor(({one}) * 0.5)"
            case "sqrt":
                return f"ks.sqrt(abs({one}))"
            case "sin":
                return f"ks.sin({one})"
            case "exp":
                return f"ks.exp(-abs({one}))"
            case "//" | "%" | "<<" | ">>":
                return f"(({one}) {form} {self.one_of(1, 2, 3)})"
        two = self.value(scope, kind)
        match form:
            case "max" | "min":
                self.traits.add(form if kind == "real" else f"{form} of integers")
                return f"{form}({one}, {two})"
            case "if":
                self.traits.add("select")
                return f"({one} if {self.condition(scope)} else {two})"
            case "product" if kind == "whole":
                return f"(({one}) % 7) * (({two}) % 7)"
            case "product":
                return f"({one}) * ({two})"
        return f"({one} {form} {two})"

    # --- conditions

    def condition(self, scope: Scope) -> str:
        """A comparison of values, or several."""
        deeper = replace(scope, depth=scope.depth + 1)
        number = self.number
        kind: Kind = number if scope.nest.is_simple else self.one_of(number, "whole")
        sign = self.one_of("<", "<", "<=", ">", "==", "!=")
        first, second = self.value(deeper, kind), self.value(deeper, kind)
        one = f"{first} {sign} {second if second != first else self.literal(kind, 0, 1)}"
        if not scope.nest.is_simple and scope.depth < self.features.depth and self.happens(0.25):
            return f"({one} {self.one_of('and', 'or')} {self.condition(deeper)})"
        return one

    def guard(self, scope: Scope) -> tuple[str, Points]:
        """A condition of values or of indices, and what comes through it."""
        self.traits.add("guard")
        features, points = self.features, scope.points
        kind = self.pick(features.simple_guards if scope.nest.is_simple else features.guards)
        if kind == "data" or not points.values:
            self.traits.add("guard of data")
            return self.condition(replace(scope, depth=max(1, features.depth - 1))), points
        v, w = self.one_of(*points.values), self.one_of(*points.values)
        n = self.arrays["x"][0][0]
        text = self.one_of(
            f"({v} + {w}) % 2 == {self.rng.randrange(2)}", f"{v} % 3 == {self.rng.randrange(3)}", f"{v} > {w}",
            f"{v} != {w}", f"{v} + {w} < {n}", f"{v} == {w}", f"{v} >= {self.rng.randrange(4)}", f"{v} % 2 == {w} % 2",
            f"{v} // 2 < {self.rng.randrange(5)}", f"2 * {v} <= {w}",
        )  # fmt: skip
        return text, points.where(text)
