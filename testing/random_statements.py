"""Random statements of the language as text, on arrays whose shapes are known: the bodies of random_bodies.py are made of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

_DEEPEST = 3
_SHORT = 40  # a loop of which a triangle may be drawn


@dataclass(frozen=True)
class Scope:
    """What is known at a place: loops with their first and last values, locals, the arrays that this loop of the top level writes,
    and the element that is this iteration's own.
    """

    loops: tuple[tuple[str, int, int], ...]
    written: frozenset[str]
    own: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    ints: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()  # arrays that iterations may update
    depth: int = 0  # of an expression: from the deepest on it has no parts

    def at(self, depth: int, *own: str) -> Scope:
        """The same with expressions from this depth on, and another element of its own where one is given."""
        return replace(self, depth=depth, own=own or self.own)


class Drawing:
    """Text while it is drawn, on arrays of these shapes and types.

    Keys are below `n_keys`. What iterations share is updated by one operator an array.
    """

    def __init__(
        self,
        rng: Random,
        arrays: dict[str, tuple[tuple[int, ...], str]],
        n_keys: int,
    ) -> None:
        self.rng, self.arrays, self.n_keys = rng, arrays, n_keys
        self.is_plain = self.happens(0.4)  # without what means nothing of NaN
        ops = ("add",) if self.is_plain else ("add", "min", "max")
        self.ops = {name: self.one_of(*ops) for name in arrays}
        self.traits: set[str] = set()
        self.lines: list[str] = []
        self._n_names = 0

    def one_of(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def happens(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def name(self, prefix: str) -> str:
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    def say(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # --- expressions

    def index(self, scope: Scope, extent: int) -> str | None:
        """An index that is inside; None where there is none."""
        fitting = [name for name, least, most in scope.loops if least >= 0 and most < extent]
        if not extent:
            return fitting[-1] if fitting else None
        options = [str(self.rng.randrange(extent))]
        for name, least, most in scope.loops:
            for shift in (-1, 1, 2):
                if least + shift >= 0 and most + shift < extent:
                    options.append(f"{name} {'-' if shift < 0 else '+'} {abs(shift)}")
            if least >= 0 and most < extent:
                options += [name] * 6 + [f"{extent - 1} - {name}", f"{name} // 2"]
            if least >= 0 and 2 * most < extent:
                options.append(f"2 * {name}")
        if scope.depth < _DEEPEST and self.happens(0.3):
            self.traits.add("computed index")
            whole = self.whole_number(replace(scope, depth=_DEEPEST))
            # The remainder has the sign of its divisor.
            options = [f"({whole}) % {extent}", f"min(max({whole}, 0), {extent - 1})"]
        return str(self.rng.choice(options))

    def load(self, scope: Scope, *names: str) -> str | None:
        if scope.own and scope.own[0] in names and self.happens(0.4):
            return scope.own[1]
        free = [name for name in names if name not in scope.written]
        if not free:
            return None
        name = self.rng.choice(free)
        at = [self.index(scope, extent) for extent in self.arrays[name][0]]
        return None if None in at else f"{name}[{', '.join(map(str, at))}]"

    def real(self, scope: Scope) -> str:
        """A value of floats."""
        deeper = replace(scope, depth=scope.depth + 1)
        if scope.depth < _DEEPEST and self.happens(0.55):
            first, second = self.real(deeper), self.real(deeper)
            odd = () if self.is_plain else ("max", "min", "floor")
            match self.one_of("+", "+", "-", "times", "abs", "if", "if", *odd):
                case "times":
                    return f"{self.one_of('2.0', '-1.0', '0.5')} * ({first})"
                case "max" | "min" as op:
                    self.traits.add(op)
                    return f"{op}({first}, {second})"
                case "abs":
                    return f"abs({first})"
                case "floor":
                    self.traits.add("floor")
                    return f"ks.floor(({first}) * 0.5)"
                case "if":
                    self.traits.add("select")
                    return f"({first} if {self.condition(deeper)} else {second})"
                case sign:
                    return f"({first} {sign} {second})"
        if scope.floats and self.happens(0.4):
            return str(self.rng.choice(scope.floats))
        if scope.loops and self.happens(0.1):
            return f"ks.f32({self.rng.choice(scope.loops)[0]} % 5)"
        places = ("x", "y", "a", "h", "val", "out", "z", "d", "s")
        return self.load(scope, *places) or self.one_of("1.0", "-2.0", "3.0")

    def whole_number(self, scope: Scope) -> str:
        """A value of integers."""
        deeper = replace(scope, depth=scope.depth + 1)
        if scope.depth < _DEEPEST and self.happens(0.5):
            first, second = self.whole_number(deeper), self.whole_number(deeper)
            match self.one_of("+", "-", "&", "|", "^", "max", "min", "//", "%", "<<", ">>", "if"):
                case "max" | "min" as op:
                    return f"{op}({first}, {second})"
                case "//" | "%" | "<<" | ">>" as sign:
                    return f"(({first}) {sign} {self.one_of(1, 2, 3)})"
                case "if":
                    self.traits.add("select")
                    return f"({first} if {self.condition(deeper)} else {second})"
                case sign:
                    return f"({first} {sign} {second})"
        options = [*scope.ints, *(name for name, _, _ in scope.loops)]
        if options and self.happens(0.4):
            return str(self.rng.choice(options))
        return self.load(scope, "c", "k", "w") or str(self.one_of(-2, 1, 3))

    def condition(self, scope: Scope) -> str:
        deeper = replace(scope, depth=scope.depth + 1)
        of = self.one_of(self.real, self.whole_number)
        one = f"{of(deeper)} {self.one_of('<', '<=', '>', '==', '!=')} {of(deeper)}"
        if scope.depth < _DEEPEST and self.happens(0.25):
            return f"({one} {self.one_of('and', 'or')} {self.condition(deeper)})"
        return one

    # --- statements

    def block(self, scope: Scope, indent: int) -> Scope:
        """One to three statements; what is known behind them."""
        for _ in range(self.rng.randint(1, 3)):
            scope = self.statement(scope, indent)
        return scope

    def statement(self, scope: Scope, indent: int) -> Scope:
        here = replace(scope, depth=1)
        kinds = (
            ["local", "update"]
            + ["store"] * 2 * bool(scope.own)
            + ["scatter"] * 3 * bool(scope.shared)
        )
        kinds += ["if", "if", "for", "while"] if indent < 2 + _DEEPEST else []
        match self.rng.choice(kinds):
            case "store":
                self.store(here, indent)
            case "scatter":
                self.scatter(here, indent)
            case "if":
                self.branch(scope, indent)
            case "for":
                return self.inner(scope, indent)
            case "while":
                return self.loop_while(scope, indent)
            case "update" if scope.floats:
                name = self.rng.choice(scope.floats)
                self.say(indent, f"{name} {self.one_of('+=', '+=', '-=')} {self.real(here)}")
            case _ if self.happens(0.3):
                name = self.name("v")
                self.say(indent, f"{name} = {self.whole_number(here)}")
                return replace(scope, ints=(*scope.ints, name))
            case _:
                name = self.name("t")
                self.say(indent, f"{name} = {self.real(here)}")
                return replace(scope, floats=(*scope.floats, name))
        return scope

    def store(self, scope: Scope, indent: int) -> None:
        name, place = scope.own
        is_whole = "int" in self.arrays[name][1]
        value = self.whole_number(scope) if is_whole else self.real(scope)
        self.say(indent, f"{place} {self.one_of('=', '=', '+=')} {value}")

    def scatter(self, scope: Scope, indent: int) -> None:
        """An update of what iterations share: at a key, or at a place that is computed."""
        name = self.rng.choice(scope.shared)
        shape, dtype = self.arrays[name]
        at = [self.element(scope, extent) for extent in shape]
        self.update(name, ", ".join(at), self.addend(scope, dtype), indent)

    def element(self, scope: Scope, extent: int) -> str:
        """An index that iterations may share."""
        key = self.load(scope, "k")
        if key is None or self.happens(0.3):
            key = f"({self.whole_number(scope)})"
        return key if extent >= self.n_keys and key.startswith("k[") else f"{key} % {extent}"

    def addend(self, scope: Scope, dtype: str) -> str:
        if dtype.startswith("float"):
            return self.real(scope)
        return str(self.one_of("1", self.whole_number(scope)))

    def update(self, name: str, at: str, value: str, indent: int) -> None:
        op, place = self.ops[name], f"{name}[{at}]"
        self.traits |= {f"scatter {op}", f"scatter {self.arrays[name][1]}"} | {op} - {"add"}
        if op == "add":
            self.say(indent, f"{place} += {value}")
        elif self.happens(0.5):
            self.say(indent, f"ks.atomic_{op}({place}, {value})")
        else:
            self.say(indent, f"{place} = {op}({place}, {value})")

    def branch(self, scope: Scope, indent: int) -> None:
        self.traits.add("branch")
        self.say(indent, f"if {self.condition(replace(scope, depth=2))}:")
        self.block(scope, indent + 1)
        if self.happens(0.5):
            self.say(indent, "else:")
            self.block(scope, indent + 1)

    def inner(self, scope: Scope, indent: int) -> Scope:
        """A loop in order, whose length is a number, a loop index or a datum; it sums up."""
        total, loop = self.name("t"), self.name("j")
        self.say(indent, f"{total} = 0.0")
        within = replace(scope, floats=(*scope.floats, total))
        last = self.rng.randint(0, 4)
        length = str(last)
        outer = [(x, most) for x, least, most in scope.loops if least >= 0 and most < _SHORT]
        kind = self.one_of("number", "index", "data")
        if kind == "index" and outer:
            self.traits.add("triangle")
            name, most = self.rng.choice(outer)
            length, last = f"{name} + 1", most + 1
        elif kind == "data":
            self.traits.add("length of data")
            length, last = f"({self.whole_number(replace(scope, depth=2))}) % 4", 3
        self.say(indent, f"for {loop} in range({length}):")
        # Only the total is updated: what else the loop sets ends with it.
        own = scope.own if self.happens(0.3) else ()
        inside = replace(within, loops=(*scope.loops, (loop, 0, last - 1)), own=own)
        self.say(indent + 1, f"{total} += {self.real(replace(inside, depth=1))}")
        if self.happens(0.4):
            self.block(inside, indent + 1)
        return within

    def loop_while(self, scope: Scope, indent: int) -> Scope:
        self.traits.add("while")
        left, found = self.name("v"), self.name("t")
        self.say(indent, f"{left} = ({self.whole_number(replace(scope, depth=2))}) % 4")
        self.say(indent, f"{found} = 1.0")
        more = f" and {self.condition(replace(scope, depth=2))}" if self.happens(0.3) else ""
        self.say(indent, f"while {left} > 0{more}:")
        inside = replace(scope, own=(), floats=(*scope.floats, found), ints=scope.ints)
        self.say(indent + 1, f"{left} -= 1")
        self.say(indent + 1, f"{found} += {self.real(replace(inside, depth=1))}")
        if self.happens(0.4):
            self.block(inside, indent + 1)
        if self.happens(0.3):
            self.say(indent + 1, f"if {self.condition(replace(inside, depth=2))}:")
            self.say(indent + 2, "break")
        return replace(inside, own=scope.own, ints=(*scope.ints, left))
