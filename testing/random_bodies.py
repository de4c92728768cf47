"""Random bodies, as text in the language: branches, indices from data, windows, scatters of every operator and type, while loops,
ranges of data and of triangles, loops of time, reductions; sequences of up to three kernels on shared arrays.

A body is its number: the same number gives the same body. Numbers are small integers, so that most sums are exact in any order.
A loop stores what no other of its iterations touches, or in its order along affine indices; what iterations share, they update.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import numpy as np

from ..kernels.language.record import Recording, record_sequence
from .random_statements import Drawing, Scope

LONG = (0, 1, 3, 7, 64, 1009)  # extents of vectors
SHORT = (1, 2, 3, 7, 16, 37)  # of matrices
BINS = (1, 5, 23)  # elements that iterations share
WIDE = ("float32", "float64", "int32", "int64")
NARROW = ("int8", "uint8", "int16", "uint16")
STEPS = (3, 20)  # of a loop of time: single calls, and a repeat
_ODD = (np.inf, np.nan, -np.inf)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Body:
    """A random sequence as text, and its arguments. `traits` are what is in it, by name.

    `run`: what the text makes of arrays, by others than the interpreter; where there is none, that is asked.
    """

    number: int
    text: str
    arrays: dict[str, Array]
    traits: frozenset[str]
    run: Callable[[str, dict[str, Array]], dict[str, Array]] | None = None

    @cached_property
    def recording(self) -> Recording:
        """The sequence, recorded. Raises LanguageError."""
        file = f"<random body {self.number}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)
        space: dict[str, Any] = {}
        exec(compile(self.text, file, "exec"), space)
        return record_sequence(space["sequence"], tuple(self.arrays.values()), name="body")

    def inputs(self) -> Iterator[dict[str, Array]]:
        """The arguments, and others, which hold infinities and NaN where these mean something: the lesser of a number and NaN is
        either, and NaN has no whole number.
        """
        yield self.arrays
        rng = np.random.default_rng(self.number)
        others = {k: _others(k, a, rng) for k, a in self.arrays.items()}
        if self.traits.isdisjoint(("min", "max", "floor")):
            for name in others.keys() & {"x", "a"}:
                if others[name].dtype.kind != "f":  # of whole numbers in random_steps.py
                    continue
                flat = others[name].reshape(-1)
                places = range(0, flat.size, 1 + flat.size // len(_ODD))
                flat[places] = _ODD[: len(places)]
        yield others


def _others(name: str, array: Array, rng: np.random.Generator) -> Array:
    """Other numbers of the same range; rows of data begin where they did."""
    if name == "rows" or not array.size:
        return array.copy()
    found = rng.integers(int(array.min()), int(array.max()) + 1, array.shape)
    return np.asarray(found, array.dtype)


def body(number: int, *, is_small: bool = False) -> Body:
    """The body of a number. A small one is one loop of the top level of at most 64 iterations."""
    return _Body(Random(number), is_small).drawn(number)


class _Body:
    """One body while it is drawn."""

    def __init__(self, rng: Random, is_small: bool) -> None:
        self.rng, self.is_small = rng, is_small
        n = rng.choice(LONG[:-1] if is_small else LONG)
        p, q = rng.choice(SHORT), rng.choice(SHORT)
        b = rng.choice(BINS)
        real, whole = rng.choice(("float32", "float64")), rng.choice(("int32", "int64"))
        wide, other = rng.choice(WIDE), rng.choice(WIDE * 2 + NARROW)
        self.n, self.p, self.q = n, p, q
        self.arrays: dict[str, tuple[tuple[int, ...], str]] = {
            "x": ((n,), real), "y": ((n,), real), "k": ((n,), "int32"), "c": ((n,), whole),
            "rows": ((n + 1,), "int32"), "col": ((2 * n,), "int32"), "val": ((2 * n,), real),
            "a": ((p, q), real), "h": ((q,), real),
            "out": ((n,), real), "z": ((n,), real), "w": ((n,), whole),
            "d": ((p, q), real), "s": ((p,), real), "total": ((2,), real),
            "bins": ((b,), wide), "grid": ((b + 2, 2), other), "tally": ((b,), other),
        }  # fmt: skip
        self.draw = Drawing(rng, self.arrays, b)

    def drawn(self, number: int) -> Body:
        kernels, calls = [], []
        n_kernels = 1 if self.is_small else self.rng.choice((1, 1, 2, 3))
        for name in ("first", "second", "third")[:n_kernels]:
            self.draw.lines = []
            for _ in range(1 if self.is_small else self.rng.choice((1, 1, 2))):
                self.loop()
            text = "\n".join(self.draw.lines)
            used = [a for a in self.arrays if re.search(rf"\b{a}\b", text)]
            given = ", ".join(f"{a}: ks.types.ndarray()" for a in used)
            kernels.append(f"@ks.kernel\ndef {name}({given}):\n{text}\n")
            calls.append(f"{name}({', '.join(used)})")
        steps = self.rng.choice((0, 0, 0, *STEPS)) if self.n <= max(SHORT) else 0
        if steps:
            self.draw.traits.add("time loop")
        whole = "\n".join(kernels)
        names = [a for a in self.arrays if re.search(rf"\b{a}\b", whole)]
        lines = [f"for t in range({steps}):"] if steps else []
        lines += [("    " if steps else "") + call for call in calls]
        sequence = "\n".join(f"    {line}" for line in lines)
        text = f"import kernelscape as ks\n\n\n{whole}\ndef sequence({', '.join(names)}):\n{sequence}\n"
        arrays = {a: self.values(a, number) for a in names}
        return Body(number, text, arrays, frozenset(self.draw.traits))

    def values(self, name: str, number: int) -> Array:
        shape, dtype = self.arrays[name]
        rng = np.random.default_rng((number, len(name), ord(name[0])))
        most = {"k": self.draw.n_keys - 1, "col": self.n - 1}.get(name, 4)
        if name == "rows":
            # Some rows are empty, some long, some items in no row.
            return np.sort(rng.integers(0, 2 * self.n + 1, shape)).astype(dtype)
        least = 0 if name in ("k", "col") or dtype.startswith("u") else -4
        return rng.integers(least, max(most, least) + 1, shape).astype(dtype)

    # --- loops of the top level

    def loop(self) -> None:
        kinds = [self.vector, self.vector, self.matrix, self.triangle, self.rows]
        kinds += [self.scatter, self.scatter, self.edges, self.window, self.window, self.reduction]
        kinds += [] if self.draw.is_plain else [self.recurrence]
        self.rng.choice(kinds)()

    def scope(
        self, loops: tuple[tuple[str, int, int], ...], *own: str, shared: tuple[str, ...] = ()
    ) -> Scope:
        return Scope(loops, frozenset((*own[:1], *shared)), own, shared=shared)

    def block(self, scope: Scope, indent: int) -> Scope:
        """Statements in half of the bodies: what has none is no closed task."""
        return (self.draw.block(scope, indent) if self.rng.random() < 0.5 else scope).at(1)

    def vector(self) -> None:
        """A map with whatever statements."""
        draw, margin = self.draw, self.rng.choice((0, 0, 1, 2))
        name = self.rng.choice(("out", "z", "w"))
        draw.say(
            1,
            f"for i in range({margin}, {self.n} - {margin}):"
            if margin
            else f"for i in range({self.n}):",
        )
        scope = self.scope((("i", margin, self.n - margin - 1),), name, f"{name}[i]")
        draw.store(self.block(scope, 2), 2)

    def matrix(self) -> None:
        draw = self.draw
        draw.say(1, f"for i in range({self.p}):")
        if self.rng.random() < 0.5:
            scope = self.scope((("i", 0, self.p - 1),), "s", "s[i]")
            draw.store(self.block(scope, 2), 2)
            return
        draw.say(2, f"for j in range({self.q}):")
        scope = self.scope((("i", 0, self.p - 1), ("j", 0, self.q - 1)), "d", "d[i, j]")
        draw.store(self.block(scope, 3), 3)

    def triangle(self) -> None:
        draw = self.draw
        draw.traits.add("triangle")
        side = min(self.p, self.q)
        draw.say(1, f"for i in range({side}):")
        bounds = self.rng.choice(("i", "i + 1", f"i, {side}", f"i + 1, {side}", f"{side} - i"))
        i, j = ("i", 0, side - 1), ("j", 0, side - 1)
        if self.rng.random() < 0.5:
            draw.say(2, f"for j in range({bounds}):")
            scope = self.scope((i, j), "d", "d[i, j]")
            draw.store(self.block(scope, 3), 3)
            return
        draw.say(2, "t0 = 0.0")
        draw.say(2, f"for j in range({bounds}):")
        draw.say(3, f"t0 += {draw.real(Scope((i, j), frozenset(('s',))).at(1))}")
        draw.store(Scope((i,), frozenset(("s",)), ("s", "s[i]"), ("t0",)).at(1), 2)

    def rows(self) -> None:
        """Sums over rows whose lengths are data."""
        draw = self.draw
        draw.traits.add("rows of data")
        i, e = ("i", 0, self.n - 1), ("e", 0, 2 * self.n - 1)
        draw.say(1, f"for i in range({self.n}):")
        draw.say(2, "t0 = 0.0")
        draw.say(2, "for e in range(rows[i], rows[i + 1]):")
        term = self.rng.choice(("val[e] * x[col[e]]", "val[e]", "x[col[e]]"))
        scope = Scope((i,), frozenset(("out",)), floats=("t0",))
        if self.rng.random() < 0.4:
            draw.say(3, f"if {draw.condition(Scope((i, e), frozenset(('out',))).at(2))}:")
            draw.say(4, f"t0 += {term}")
        else:
            draw.say(3, f"t0 += {term}")
        draw.store(scope.at(1, "out", "out[i]"), 2)

    def scatter(self) -> None:
        """Updates of what iterations share, among whatever statements."""
        draw = self.draw
        shared = self.rng.choice(
            (("bins",), ("tally",), ("bins", "tally"), ("grid",), ("grid", "bins"))
        )
        own = self.rng.choice(((), (), ("w", "w[i]")))
        draw.say(1, f"for i in range({self.n}):")
        scope = self.scope((("i", 0, self.n - 1),), *own, shared=shared)
        scope = self.block(scope, 2)
        for _ in range(self.rng.choice((1, 1, 2))):
            draw.scatter(scope, 2)

    def window(self) -> None:
        """Updates of a box at a place that is computed, parts of which may be outside."""
        draw = self.draw
        draw.traits.add("window")
        rows, columns = self.arrays["grid"][0]
        draw.say(1, f"for i in range({self.n}):")
        factor = self.rng.choice(("1.0", "2.0", "0.5"))
        base = "k[i] - 1"
        if not draw.is_plain and self.rng.random() < 0.7:
            draw.traits.add("floor")
            base = f"ks.i32(ks.floor(x[i] * {factor}))"
        draw.say(2, f"v0 = {base}")
        length = self.rng.choice((1, 2, 3))
        draw.say(2, f"for j in range({length}):")
        draw.say(3, f"if v0 + j >= 0 and v0 + j < {rows}:")
        loops: tuple[tuple[str, int, int], ...] = (("i", 0, self.n - 1), ("j", 0, length - 1))
        at, indent = "v0 + j, ", 4
        if self.rng.random() < 0.6:
            draw.say(4, f"for l in range({columns}):")
            loops, at, indent = (*loops, ("l", 0, columns - 1)), "v0 + j, l", 5
        else:
            at += str(self.rng.randrange(columns))
        scope = Scope(loops, frozenset(("grid",)), ints=("v0",)).at(1)
        draw.update("grid", at, draw.addend(scope, self.arrays["grid"][1]), indent)

    def edges(self) -> None:
        """Both ends of what connects two elements."""
        draw = self.draw
        draw.say(1, f"for i in range({self.n}):")
        scope = Scope((("i", 0, self.n - 1),), frozenset(("bins",))).at(1)
        dtype = self.arrays["bins"][1]
        draw.update("bins", "k[i]", draw.addend(scope, dtype), 2)
        draw.update("bins", f"(k[i] + 1) % {self.draw.n_keys}", draw.addend(scope, dtype), 2)

    def reduction(self) -> None:
        """One number of all iterations."""
        draw = self.draw
        op = "add" if self.draw.is_plain else self.rng.choice(("add", "max", "min"))
        draw.traits |= {"reduction"} | {op} - {"add"}
        loops = (("i", 0, self.n - 1),)
        draw.say(1, "t0 = 1.0")
        draw.say(1, f"for i in range({self.n}):")
        indent = 2
        if self.rng.random() < 0.3:
            draw.say(2, f"if {draw.condition(Scope(loops, frozenset(('total',))).at(2))}:")
            indent = 3
        value = draw.real(Scope(loops, frozenset(("total",))).at(1))
        draw.say(indent, f"t0 += {value}" if op == "add" else f"t0 = {op}(t0, {value})")
        draw.say(1, f"total[{self.rng.randrange(2)}] {self.rng.choice(('=', '+='))} t0")

    def recurrence(self) -> None:
        """Iterations that need one another, in order."""
        draw = self.draw
        draw.traits |= {"recurrence", "max"}
        lag = self.rng.choice((1, 2))
        draw.say(1, f"for i in range({lag}, {self.n}):")
        scope = Scope((("i", lag, self.n - 1),), frozenset(("z",)))
        value = draw.real(self.block(scope, 2))
        draw.say(2, f"z[i] = max(z[i - {lag}], {value})")
