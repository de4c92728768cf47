"""Random sequences with loops of time, as text in the language: steps in ranges, indices, guards, remainders and quotients;
triangles of every bound, ranges that are empty or lie outside, rows of data, `while`, sweeps in order, sums, exchanged arrays.

A sequence is its number, as in random_bodies.py. Arrays are so small that all iterations are enumerated while the text is drawn:
so indices stay inside, and iterations of a parallel loop touch nothing that another one writes, unless all is affine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .random_bodies import Body

SIZES = (1, 2, 3, 5, 7, 9, 13, 17)
STEPS = (1, 2, 3, 7, 17, 18, 21)  # few are single calls, many a repeat
_MOST_POINTS = 60_000  # iterations of a nest in all steps
_TRIES = 12
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Points:
    """The iterations that come to a place of the text, in all steps: the values of each variable there."""

    values: dict[str, Ints]

    @property
    def n(self) -> int:
        return max(map(len, self.values.values()), default=1)

    def of(self, text: str) -> Ints:
        known = {"min": np.minimum, "max": np.maximum, "__builtins__": {}}
        return np.broadcast_to(np.asarray(eval(text, known, self.values)), (self.n,))

    def inside(self, name: str, first: str, end: str) -> Points:
        """Those of a loop from `first` to `end`."""
        lo, hi = self.of(first), self.of(end)
        lengths = np.maximum(hi - lo, 0)
        if lengths.sum() > _MOST_POINTS:
            raise OverflowError
        starts = np.repeat(lengths.cumsum() - lengths, lengths)
        index = np.arange(lengths.sum()) - starts + np.repeat(lo, lengths)
        return Points({k: np.repeat(v, lengths) for k, v in self.values.items()} | {name: index})

    def where(self, condition: str) -> Points:
        held = self.of(condition).astype(bool)
        return Points({k: v[held] for k, v in self.values.items()})

    def is_within(self, text: str, extent: int) -> bool:
        found = self.of(text)
        return bool(((found >= 0) & (found < extent)).all())


@dataclass
class Nest:
    """A loop of the top level while it is drawn."""

    way: str  # "own": of independent iterations; "affine"; "serial"
    outer: str  # its loop
    is_plain: bool = (
        False  # one store, and nothing of data in it: what loops of the space are made of
    )
    writers: dict[str, dict[tuple[int, ...], int]] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)


def body(number: int, *, is_small: bool = False) -> Body:
    """The sequence of a number. A small one is one kernel of one loop of the top level."""
    for attempt in range(100):
        try:
            return _Steps(Random(f"steps {number} {attempt}"), is_small).drawn(number)
        except OverflowError:
            pass  # too many iterations
    raise AssertionError(f"sequence {number} has too many iterations each time")


def in_python(text: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """New arrays, as Python itself runs the text, in float64 and int64: kernels are functions to it."""
    ks = SimpleNamespace(kernel=lambda f: f, types=SimpleNamespace(ndarray=lambda: None), f32=float)
    ks.loop_config = lambda serialize: None
    space: dict[str, Any] = {"ks": ks}
    exec(compile(text.replace("import kernelscape as ks", ""), "<random sequence>", "exec"), space)
    wide = {k: a.astype(np.float64 if a.dtype.kind == "f" else np.int64) for k, a in arrays.items()}
    with np.errstate(all="ignore"):
        space["sequence"](*wide.values())
    return {k: a if a.dtype.kind == "f" else a.astype(arrays[k].dtype) for k, a in wide.items()}


class _Steps:
    """A sequence while it is drawn."""

    def __init__(self, rng: Random, is_small: bool) -> None:
        self.rng, self.is_small = rng, is_small
        self.n, self.p, self.q = (rng.choice(SIZES) for _ in range(3))
        if rng.random() < 0.4:
            self.p = self.q = self.n
        self.steps = rng.choice(STEPS)
        number = rng.choice(("float32", "float64", "float64", "int32", "int64"))
        self.is_whole = number.startswith("i")
        n, p, q = self.n, self.p, self.q
        self.shapes: dict[str, tuple[tuple[int, ...], str]] = {
            "a": ((p, q), number), "b": ((p, q), number), "g": ((rng.choice((2, 3, 4)), n), number),
            "past": ((self.steps + 1, n), number), "x": ((n,), number), "y": ((n,), number),
            "s": ((rng.choice((1, 2, 5)),), number),
            "k": ((n,), "int32"), "rows": ((n + 1,), "int32"), "col": ((2 * n,), "int32"),
            "val": ((2 * n,), number),
        }  # fmt: skip
        self.traits: set[str] = set()
        self.lines: list[str] = []
        self.names = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def say(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    # --- the sequence

    def drawn(self, number: int) -> Body:
        rng, kernels, calls = self.rng, [], []
        n_kernels = 1 if self.is_small else rng.choice((1, 2, 2, 3))
        named = ("first", "second", "third")[:n_kernels]
        for name in named:
            given = self.number_given()
            t = Points({"t": np.arange(self.steps)}).of(given)
            self.lines, self.names = [], 0
            if self.chance(0.15):
                self.inner_time()
            else:
                for _ in range(1 if self.is_small else rng.choice((1, 1, 2))):
                    self.nest(Points({"t": np.unique(t)}), 1)
            text = "\n".join(self.lines)
            used = [x for x in self.shapes if re.search(rf"\b{x}\b", text)]
            has_step = re.search(r"\bt\b", text) and not text.startswith("    for t in")
            arguments = [f"{x}: ks.types.ndarray()" for x in used] + ["t: int"] * bool(has_step)
            kernels.append(f"@ks.kernel\ndef {name}({', '.join(arguments)}):\n{text}\n")
            calls.append(f"{name}({', '.join([*used, *([given] if has_step else [])])})")
        lines = self.around(calls)
        whole = "\n".join(kernels)
        given_arrays = [x for x in self.shapes if re.search(rf"\b{x}\b", whole + "\n".join(lines))]
        sequence = "\n".join(f"    {line}" for line in lines)
        text = f"import kernelscape as ks\n\n\n{whole}\ndef sequence({', '.join(given_arrays)}):\n{sequence}\n"
        arrays = {x: self.values(x, number) for x in given_arrays}
        return Body(number, text, arrays, frozenset(self.traits), in_python)

    def number_given(self) -> str:
        """The number that a step gives a kernel, which is never negative."""
        forms = ["t"] * 5 + [
            f"{self.steps - 1} - t",
            "2 * t",
            "t + 1",
            "t % 2",
            "t % 3",
            "t // 2",
            "1",
        ]
        return str(self.rng.choice(forms))

    def around(self, calls: list[str]) -> list[str]:
        """Calls in loops of time."""
        rng, steps, lines = self.rng, self.steps, []
        kind = rng.choice(("plain", "plain", "swapped", "nested", "sometimes", "apart"))
        self.traits |= {f"sequence {kind}", f"steps {'few' if steps < 17 else 'many'}"}
        inside = calls
        if kind == "apart" and len(calls) > 1:
            inside = calls[1:]
            lines.append("t = 0")
            lines.append(calls[0].replace("2 * t", "t"))
        lines.append(f"for t in range({steps}):")
        lines += [f"    {c}" for c in inside[:-1]]
        match kind:
            case "sometimes":
                lines += [
                    f"    if t % {rng.choice((2, 3))} == {rng.randrange(min(2, steps))}:",
                    f"        {inside[-1]}",
                ]
            case "nested":
                lines += [f"    for r in range({rng.choice((2, 3, 17))}):", f"        {inside[-1]}"]
            case _:
                lines.append(f"    {inside[-1]}")
        if kind == "swapped":
            lines.append(f"    {rng.choice(('a, b = b, a', 'x, y = y, x'))}")
        return lines

    def values(self, name: str, number: int) -> NDArray[Any]:
        shape, dtype = self.shapes[name]
        rng = np.random.default_rng((number, len(name), ord(name[0])))
        if name == "rows":
            return np.sort(rng.integers(0, 2 * self.n + 1, shape)).astype(dtype)
        if name in ("k", "col"):
            return rng.integers(0, self.n, shape).astype(dtype)
        return rng.integers(-4, 5, shape).astype(dtype)

    # --- loops

    def inner_time(self) -> None:
        """A loop of time inside of the kernel: what is in it is affine, so that its order counts."""
        first, end = self.rng.choice((0, 1, 2)), self.rng.choice((1, 2, 9, 17))
        end = min(end, self.steps)
        self.traits.add("time loop inside")
        self.say(1, f"for t in range({first}, {end}):")
        points = Points({}).inside("t", str(first), str(end))
        nest = Nest("affine", "t", self.chance(0.7))
        for _ in range(self.rng.choice((1, 2))):
            self.loops(nest, points, 2, self.rng.choice((1, 2)))

    def nest(self, points: Points, indent: int) -> None:
        way = self.rng.choice(("own", "own", "own", "affine", "serial"))
        nest = Nest(way, "i", way != "serial" and self.chance(0.65))
        if way == "serial":
            self.traits.add("in order")
            self.say(indent, "ks.loop_config(serialize=True)")
        if way == "own" and self.chance(0.12):
            self.total(nest, points, indent)
            return
        self.loops(nest, points, indent, self.rng.choice((1, 1, 2, 2, 3)))

    def bounds(self, nest: Nest, points: Points, extent: int) -> tuple[str, str]:
        """A range: that of an extent, or any."""
        rng, n = self.rng, extent
        if self.chance(0.3):
            return "0", str(n)
        names = [*points.values]
        if not names or self.chance(0.1):
            return str(rng.choice((0, 1, 2))), str(rng.choice((n, n - 1, n - 2, 1)))
        v, w = rng.choice(names), rng.choice(names)
        firsts = ["0", "0", "1", v, v, f"{v} + 1", f"{v} + 1", f"{v} - 1", f"2 * {v}", f"{n - 1} - {v}",
                  f"{n} - {v}", f"{v} + {w}", f"{v} - {w}"]  # fmt: skip
        ends = [*[str(n)] * 3, str(n - 1), f"{n} - {v}", v, f"{v} + 1", f"{v} + 2", f"2 * {v} + 1", f"{v} + {w}",
                f"{n - 1} - {w}", w]  # fmt: skip
        if not nest.is_plain:
            firsts += [f"{v} // 2", f"{v} % 2", f"max({v} - 2, 0)", f"{v} % 3", f"{v} // 3"]
            ends += [f"{v} // 2 + 1", f"min({n}, {v} + 3)", f"{n} - {v} // 2", f"{v} % 3 + 1"]
        first, end = rng.choice(firsts), rng.choice(ends)
        lo, hi = points.of(first), points.of(end)
        if len(lo) and (np.maximum(hi - lo, 0)).max() > 3 * max(SIZES):
            return "0", str(n)
        self.traits.add(
            "range of a step"
            if "t" in (*re.findall(r"\bt\b", first + end),)
            else "range of numbers"
        )
        if re.search(r"\b[ijl]\b", first + end):
            self.traits.add("triangle")
        if (hi <= lo).any():
            self.traits.add("empty range")
        if (hi < lo).any():
            self.traits.add("range backwards")
        return first, end

    def loops(self, nest: Nest, points: Points, indent: int, depth: int) -> None:
        """A nest of loops around statements."""
        names = [x for x in "ijl" if x not in points.values][:depth]
        for k, name in enumerate(names):
            extent = self.rng.choice((self.n, self.p, self.q))
            first, end = self.bounds(nest, points, extent)
            points = points.inside(name, first, end)
            self.say(
                indent,
                f"for {name} in range({end}):"
                if first == "0"
                else f"for {name} in range({first}, {end}):",
            )
            indent += 1
            if k + 1 < len(names) and self.chance(0.1):
                points = self.guard(nest, points, indent)
                indent += points is not None
        for _ in range(1 if nest.is_plain else self.rng.choice((1, 1, 2))):
            self.store(nest, points, indent)

    def total(self, nest: Nest, points: Points, indent: int) -> None:
        """One number of a loop."""
        self.traits.add("reduction")
        nest.writers["s"] = {}
        self.say(indent, f"acc = {self.number('0')}")
        first, end = self.bounds(nest, points, self.n)
        self.say(indent, f"for i in range({first}, {end}):")
        inner = points.inside("i", first, end)
        depth = indent + 1
        if self.chance(0.3):
            inner = self.guard(nest, inner, depth)
            depth += 1
        self.say(depth, f"acc += {self.value(nest, inner)}")
        self.say(
            indent,
            f"s[{self.index(nest, points, self.shapes['s'][0][0])}] {self.rng.choice(('=', '+='))} acc",
        )

    # --- statements

    def guard(self, nest: Nest, points: Points, indent: int) -> Points:
        """A condition, said; what comes through it."""
        rng, names = self.rng, [*points.values]
        v, w = rng.choice(names), rng.choice(names)
        self.traits.add("guard")
        if (
            not nest.is_plain
            and self.chance(0.25)
            and (load := self.load(nest, points)) is not None
        ):
            self.traits.add("guard of data")
            self.say(
                indent,
                f"if {load} {rng.choice(('>', '<=', '!='))} {self.number(rng.choice('01'))}:",
            )
            return points
        if not nest.is_plain and self.chance(0.12):
            self.traits.add("guard of data")
            self.say(indent, f"if k[{self.index(nest, points, self.n)}] == {v}:")
            return points
        condition = rng.choice(
            (f"({v} + {w}) % 2 == {rng.randrange(2)}", f"{v} % 3 == {rng.randrange(3)}", f"{v} > {w}", f"{v} != {w}",
             f"{v} + {w} < {self.n}", f"{v} == {w}", f"{v} >= {rng.randrange(4)}", f"{v} % 2 == {w} % 2",
             f"{v} // 2 < {rng.randrange(5)}", f"2 * {v} <= {w}")
        )  # fmt: skip
        self.say(indent, f"if {condition}:")
        return points.where(condition)

    def number(self, text: str) -> str:
        return text if self.is_whole else f"{text}.0"

    def store(self, nest: Nest, points: Points, indent: int) -> None:
        """A store of an element, or an update of what iterations share."""
        rng = self.rng
        if self.chance(0.2 if nest.is_plain else 0.3):
            points = self.guard(nest, points, indent)
            indent += 1
        name, place = self.target(nest, points)
        if name in nest.shared:
            self.traits.add("shared sum")
            self.say(indent, f"{place} += {self.value(nest, points)}")
            return
        kind = rng.choice(
            ("plain", "plain", "sum")
            if nest.is_plain
            else ("plain", "plain", "sum", "rows", "while")
        )
        if kind != "plain":
            self.names += 1
            acc = f"acc{self.names}"
            self.say(indent, f"{acc} = {self.number(rng.choice('01'))}")
            inner = {"sum": self.of_sum, "rows": self.of_rows, "while": self.of_while}[kind]
            inner(nest, points, indent, acc)
            said = rng.choice((acc, f"{acc} + {self.value(nest, points)}"))
        else:
            said = self.value(nest, points)
        op = rng.choice(("=", "=", "+=", "max", "bounded"))
        if name == "g" or name == "past":
            op = rng.choice(("=", "bounded"))
        if op in ("max", "bounded"):
            self.traits |= {"max"}
        match op:
            case "max":
                self.say(indent, f"{place} = max({place}, {said})")
            case "bounded":
                self.say(
                    indent, f"{place} = min(max({said}, {self.number('-9')}), {self.number('9')})"
                )
            case _:
                self.say(indent, f"{place} {op} {said}")

    def target(self, nest: Nest, points: Points) -> tuple[str, str]:
        """An array with a place that is stored to."""
        rng = self.rng
        for attempt in range(_TRIES):
            name = rng.choice(("a", "a", "b", "g", "past", "x", "y"))
            if name in nest.read and nest.way == "own":
                continue
            if nest.way == "own" and name in nest.writers:
                continue
            at = tuple(
                self.index(nest, points, extent, is_target=True) for extent in self.shapes[name][0]
            )
            place = f"{name}[{', '.join(at)}]"
            if nest.way != "own":
                nest.writers.setdefault(name, {})
                return name, place
            written = self.written(nest, points, at)
            if written is not None:
                nest.writers[name] = written
                return name, place
            if attempt == _TRIES - 1 or self.chance(0.2):
                nest.writers[name] = {}
                nest.shared.add(name)
                return name, place
        name = "s" if nest.way == "own" else "x"
        at = (self.index(nest, points, self.shapes[name][0][0], is_target=True),)
        nest.writers[name] = {}
        nest.shared.add(name)
        return name, f"{name}[{at[0]}]"

    def written(
        self, nest: Nest, points: Points, at: tuple[str, ...]
    ) -> dict[tuple[int, ...], int] | None:
        """Which iteration of the outer loop stores to each element in each step; None where two do."""
        found: dict[tuple[int, ...], int] = {}
        step = points.values.get("t", np.zeros(points.n, np.int64))
        places = zip(*(points.of(x).tolist() for x in at), step.tolist(), strict=True)
        for place, who in zip(places, points.values[nest.outer].tolist(), strict=True):
            if found.setdefault(place, who) != who:
                return None
        return found

    def of_sum(self, nest: Nest, points: Points, indent: int, acc: str) -> None:
        """A loop that sums up."""
        self.traits.add("sum inside")
        first, end = self.bounds(nest, points, self.n)
        inner = points.inside("m", first, end)
        self.say(indent, f"for m in range({first}, {end}):")
        if self.chance(0.25):
            inner = self.guard(nest, inner, indent + 1)
            indent += 1
        self.say(indent + 1, f"{acc} += {self.value(nest, inner)}")

    def of_rows(self, nest: Nest, points: Points, indent: int, acc: str) -> None:
        """Sums of rows whose lengths are data, or of so many neighbours."""
        self.traits.add("rows of data")
        at = self.index(nest, points, self.n)
        length = self.rng.choice(
            (f"rows[{at}], rows[{at} + 1]", f"rows[{at}], rows[{at} + 1]", f"k[{at}]")
        )
        self.say(indent, f"for e in range({length}):")
        free = [x for x in ("x", "y") if x not in nest.writers and nest.way != "affine"]
        nest.read |= {*free}
        forms = [
            "val[e]",
            *(f"val[e] * {x}[col[e]]" for x in free),
            *(f"{x}[col[e]]" for x in free),
        ]
        if self.chance(0.3):
            self.say(
                indent + 1,
                f"if col[e] {self.rng.choice(('<', '!=', '>='))} {self.rng.choice([*points.values])}:",
            )
            indent += 1
        self.say(indent + 1, f"{acc} += {self.rng.choice(forms)}")

    def of_while(self, nest: Nest, points: Points, indent: int, acc: str) -> None:
        self.traits.add("while")
        left = f"left{self.names}"
        v = self.rng.choice([*points.values])
        start = self.rng.choice(
            (f"k[{self.index(nest, points, self.n)}] % 4", f"{v} % 5", f"min({v}, 3)")
        )
        self.say(indent, f"{left} = {start}")
        more = ""
        if self.chance(0.3) and (load := self.load(nest, points)) is not None:
            more = f" and {load} > {self.number('-2')}"
        self.say(indent, f"while {left} > 0{more}:")
        self.say(indent + 1, f"{left} -= 1")
        self.say(indent + 1, f"{acc} += {self.value(nest, points)}")

    # --- expressions

    def index(self, nest: Nest, points: Points, extent: int, *, is_target: bool = False) -> str:
        """An index that is inside in all iterations."""
        rng, names = self.rng, [*points.values]
        for _ in range(_TRIES if names else 0):
            v, w = rng.choice(names), rng.choice(names)
            forms = [v] * 8 + [
                f"{v} + 1",
                f"{v} - 1",
                f"{v} + 2",
                f"{extent - 1} - {v}",
                f"2 * {v}",
                f"{v} + {w}",
                f"{v} - {w}",
            ]
            forms += (
                []
                if (nest.way == "affine" or nest.is_plain) and v != "t"
                else [f"{v} // 2", f"{v} % 2", f"({v} + 1) % {max(extent, 1)}"]
            )
            text = rng.choice(forms)
            if points.is_within(text, extent):
                if re.search(r"\bt\b", text):
                    self.traits.add("index of a step")
                return str(text)
        if (
            names
            and not nest.is_plain
            and (nest.way == "serial" or (not is_target and nest.way == "own"))
        ):
            v, w = rng.choice(names), rng.choice(names)
            whole = rng.choice((f"{v} + {w}", f"2 * {v}", v, f"{v} - {w}", f"{v} - 1"))
            return str(rng.choice((f"({whole}) % {extent}", f"min(max({whole}, 0), {extent - 1})")))
        if names and "t" in names and self.chance(0.5):
            return f"t % {extent}"
        return str(rng.randrange(extent))

    def load(self, nest: Nest, points: Points) -> str | None:
        """An element that no other iteration writes meanwhile."""
        rng = self.rng
        for _ in range(_TRIES):
            name = rng.choice(("a", "a", "b", "g", "past", "x", "y", "x"))
            if name in nest.shared:
                continue
            shape = self.shapes[name][0]
            at = tuple(self.index(nest, points, extent) for extent in shape)
            if nest.way == "own" and name in nest.writers:
                if not self.is_own(nest, points, name, at):
                    continue
            elif (
                nest.way == "own"
                and not nest.is_plain
                and len(shape) == 1
                and "m" not in points.values
                and self.chance(0.15)
            ):
                self.traits.add("computed index")
                at = (f"k[{self.index(nest, points, self.n)}]",)
            nest.read.add(name)
            return f"{name}[{', '.join(at)}]"
        return None

    def is_own(self, nest: Nest, points: Points, name: str, at: tuple[str, ...]) -> bool:
        """Whether no other iteration of the outer loop writes what is read."""
        step = points.values.get("t", np.zeros(points.n, np.int64))
        places = zip(*(points.of(x).tolist() for x in at), step.tolist(), strict=True)
        who = points.values[nest.outer].tolist()
        written = nest.writers[name]
        return all(written.get(place, w) == w for place, w in zip(places, who, strict=True))

    def value(self, nest: Nest, points: Points, depth: int = 0) -> str:
        rng, names = self.rng, [*points.values]
        if depth < 2 and self.chance(0.5):
            one, two = self.value(nest, points, depth + 1), self.value(nest, points, depth + 1)
            form = rng.choice(("+", "+", "-", "max", "if"))
            match form:
                case "max":
                    self.traits |= {"max"}
                    return f"max({one}, {two})"
                case "if":
                    v, w = rng.choice(names), rng.choice(names)
                    test = rng.choice(
                        (f"{v} < {w}", f"({v} + {w}) % 2 == 0", f"{one} > {two}", f"{v} % 3 == 1")
                    )
                    return f"({one} if {test} else {two})"
            return f"({one} {form} {two})"
        if self.chance(0.15):
            v = rng.choice(names)
            text = rng.choice((f"{v} % 3", f"{v} // 2", v))
            return text if self.is_whole else f"ks.f32({text})"
        return self.load(nest, points) or self.number(rng.choice("123"))
