"""Random sequences of kernels as text, with arguments for them.

A program is its number, in a corpus: the same number gives the same program.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.frontend.recorder import Recording, record_sequence
from ...kernels.ir.kernel import KernelIR
from ...kernels.ir.task import Problem
from ...kernels.tasks.pipeline import normalise
from .expressions import Scope, Shapes
from .features import Features
from .points import Nest, Points, TooManyPointsError
from .statements import Statements

WIDE = ("float32", "float64", "int32", "int64")
NARROW = ("int8", "uint8", "int16", "uint16")
_BINS = (1, 5, 23)  # elements that iterations share
_ALPHA = 0.75
_ODD = (np.inf, np.nan, -np.inf)
_NAMES = ("first", "second", "third", "fourth", "fifth", "sixth")
_TEMPORARIES = {"z": "n", "s": "p", "d": "pq"}
Array = NDArray[Any]


@dataclass(frozen=True)
class Program:
    """A random sequence as text, and its arguments. `traits` are what is in it, by name."""

    features: Features
    number: int
    text: str
    arrays: dict[str, Array]
    scalars: dict[str, float]
    traits: frozenset[str]

    def __repr__(self) -> str:
        return f"{self.features.name} {self.number}:\n{self.text}"

    @cached_property
    def recording(self) -> Recording:
        """The sequence, recorded. Raises LanguageError."""
        file = f"<{self.features.name} {self.number}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)
        space: dict[str, Any] = {}
        exec(compile(self.text, file, "exec"), space)
        given = (*self.scalars.values(), *self.arrays.values())
        return record_sequence(space["sequence"], given, name="drawn")

    @cached_property
    def problem(self) -> Problem:
        """Its tasks."""
        return normalise(self.recording)

    def in_python(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """New arrays, as Python itself runs the text, in float64 and int64: kernels are functions to it."""
        space: dict[str, Any] = {"ks": _PYTHON}
        exec(compile(self.text.replace("import kernelscape as ks", ""), "<python>", "exec"), space)
        wide: dict[str, Array] = {k: a.astype(_wide(a.dtype)) for k, a in arrays.items()}
        with np.errstate(all="ignore"):
            space["sequence"](*self.scalars.values(), *wide.values())
        return {k: a if a.dtype.kind == "f" else a.astype(arrays[k].dtype) for k, a in wide.items()}

    def inputs(self) -> Iterator[dict[str, Array]]:
        """The arguments, and others, which hold infinities and NaN where these mean something: the lesser of a number and NaN is
        either, and NaN has no whole number.
        """
        yield self.arrays
        rng = np.random.default_rng(self.number)
        others = {k: _others(k, a, rng) for k, a in self.arrays.items()}
        if self.traits.isdisjoint(("min", "max", "floor")):
            for name in others.keys() & {"x", "a"}:
                if others[name].dtype.kind == "f":
                    flat = others[name].reshape(-1)
                    places = range(0, flat.size, 1 + flat.size // len(_ODD))
                    flat[places] = _ODD[: len(places)]
        yield others


def _wide(dtype: np.dtype[Any]) -> type:
    return np.float64 if dtype.kind == "f" else np.int64


def _kernel(function: Any = None, **options: bool) -> Any:
    return function if function is not None else _kernel


_PYTHON = SimpleNamespace(
    kernel=_kernel, types=SimpleNamespace(ndarray=lambda: None), loop_config=lambda serialize: None,
    f32=float, f64=float, i32=int, i64=int, floor=np.floor, sqrt=np.sqrt, sin=np.sin, exp=np.exp,
    ndarray=lambda dtype, shape: np.zeros(shape, np.float64 if dtype is float else np.int64),
)  # fmt: skip


def _others(name: str, array: Array, rng: np.random.Generator) -> Array:
    """Other numbers of the same range; rows of data begin where they did."""
    if name == "rows" or not array.size:
        return array.copy()
    found = rng.integers(int(array.min()), int(array.max()) + 1, array.shape)
    return np.asarray(found, array.dtype)


@lru_cache(512)  # all judges of a process see the same ones
def program(features: Features, number: int) -> Program:
    """The program of a number in a corpus."""
    for attempt in range(100):
        try:
            return _Drawing(Random(f"{features.name} {number} {attempt}"), features).drawn(number)
        except TooManyPointsError:
            pass
    raise AssertionError(f"program {number} of {features.name} has too many iterations each time")


class _Drawing(Statements):
    """A program while it is drawn."""

    def __init__(self, rng: Random, features: Features) -> None:
        self.n, self.p, self.q = rng.choice(features.extents), *rng.choices(features.sides, k=2)
        if rng.random() < features.square:
            self.p = self.q = self.n = rng.choice((self.n, self.p))
        self.steps = rng.choice(features.steps)
        super().__init__(rng, features, self._shapes(rng, features))
        self.temporaries = tuple(_TEMPORARIES) if self.happens(features.temporaries) else ()

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.n, self.p, self.q

    def _shapes(self, rng: Random, features: Features) -> Shapes:
        n, p, q, number = self.n, self.p, self.q, rng.choice(features.numbers)
        found: Shapes = {
            "x": ((n,), number), "y": ((n,), number), "z": ((n,), number), "s": ((p,), number), "h": ((q,), number),
            "a": ((p, q), number), "b": ((p, q), number), "d": ((p, q), number), "total": ((2,), number),
        }  # fmt: skip
        if features.uses_steps:
            found |= {
                "g": ((rng.choice((2, 3, 4)), n), number),
                "past": ((self.steps + 1, n), number),
            }
        if features.statements:
            whole, bins = rng.choice(features.wholes), rng.choice(_BINS)
            wide, other = rng.choice(WIDE), rng.choice(WIDE + NARROW)
            found |= {
                "c": ((n,), whole), "w": ((n,), whole), "k": ((n,), "int32"), "rows": ((n + 1,), "int32"),
                "col": ((2 * n,), "int32"), "val": ((2 * n,), number), "bins": ((bins,), wide),
                "grid": ((bins + 2, 2), other), "tally": ((bins,), other),
            }  # fmt: skip
        return found

    # --- the sequence

    def drawn(self, number: int) -> Program:
        kernels, calls = [], []
        for name in _NAMES[: self.one_of(*self.features.kernels)]:
            given = self._number_given()
            self.kernel(Points({"t": np.unique(Points(self._time()).of(given))} if given else {}))
            text = "\n".join(self.lines)
            used = [x for x in self.arrays if re.search(rf"\b{x}\b", text)]
            parameters = [f"{x}: ks.types.ndarray()" for x in used]
            arguments = [*used]
            if re.search(r"\balpha\b", text):
                parameters, arguments = [*parameters, "alpha: float"], [*arguments, "alpha"]
            if given and re.search(r"\bt\b", text) and "for t in" not in text:
                parameters, arguments = [*parameters, "t: int"], [*arguments, given]
            options = "(fast_math=False)" * self.happens(self.features.in_order)
            kernels.append(f"@ks.kernel{options}\ndef {name}({', '.join(parameters)}):\n{text}\n")
            calls.append(f"{name}({', '.join(arguments)})")
        return self._program(number, "\n".join(kernels), self._around(calls))

    def _program(self, number: int, kernels: str, calls: list[str]) -> Program:
        used = [x for x in self.arrays if re.search(rf"\b{x}\b", "\n".join([kernels, *calls]))]
        temporaries = [x for x in used if x in self.temporaries]
        given = [x for x in used if x not in temporaries]
        scalars = {"alpha": _ALPHA} if re.search(r"\balpha\b", kernels) else {}
        lines = [f"{x} = ks.ndarray(ks.{self._type(x)}, {self.arrays[x][0]})" for x in temporaries]
        sequence = "\n".join(f"    {line}" for line in (*lines, *calls))
        parameters = ", ".join((*scalars, *given))
        numpy = "import numpy as np\n\n" * ("np." in kernels)
        text = f"{numpy}import kernelscape as ks\n\n\n{kernels}\ndef sequence({parameters}):\n{sequence}\n"
        arrays = {x: self.values(x, number) for x in given}
        return Program(self.features, number, text, arrays, scalars, frozenset(self.traits))

    def _type(self, name: str) -> str:
        dtype = np.dtype(self.arrays[name][1])
        return f"{dtype.kind}{8 * dtype.itemsize}"

    def _time(self) -> dict[str, Any]:
        return {"t": np.arange(self.steps)}

    def _number_given(self) -> str:
        """The number that a step gives a kernel, which is never negative; "" where there is none."""
        if not (self.features.uses_steps and self.steps):
            return ""
        more = ("t + 1", "t % 2", "t % 3", "t // 2", "1", "2 * t", f"{self.steps - 1} - t")
        return str(self.one_of(*["t"] * 5, *more))

    def _around(self, calls: list[str]) -> list[str]:
        """Calls in loops of time."""
        if not self.steps:
            return calls
        kind = self.pick(self.features.sequences)
        self.traits |= {"time loop", f"sequence {kind}"}
        self.traits.add(f"steps {'few' if self.steps < 17 else 'many'}")
        lines, inside = [], calls
        if kind == "apart" and len(calls) > 1:
            inside = calls[1:]
            lines += ["t = 0", calls[0].replace("2 * t", "t")]
        lines.append(f"for t in range({self.steps}):")
        lines += [f"    {call}" for call in inside[:-1]]
        match kind:
            case "sometimes":
                every, at = self.one_of(2, 3), self.rng.randrange(min(2, self.steps))
                lines += [f"    if t % {every} == {at}:", f"        {inside[-1]}"]
            case "nested":
                lines += [f"    for r in range({self.one_of(2, 3, 17)}):", f"        {inside[-1]}"]
            case _:
                lines.append(f"    {inside[-1]}")
        if kind == "swapped":
            lines.append(f"    {self.one_of('a, b = b, a', 'x, y = y, x')}")
        return lines

    def values(self, name: str, number: int) -> Array:
        """The argument for an array."""
        shape, dtype = self.arrays[name]
        rng = np.random.default_rng((number, len(name), ord(name[0])))
        if not self.features.are_integers and dtype.startswith("float"):
            return rng.uniform(-1, 1, shape).astype(dtype)
        if name == "rows":
            # Some rows are empty, some long, some items in no row.
            return np.sort(rng.integers(0, 2 * self.n + 1, shape)).astype(dtype)
        least = 0 if name in ("k", "col") or dtype.startswith("u") else -4
        most = 4
        if name in ("k", "col"):
            most = max(self.n if name == "col" else self.arrays["bins"][0][0], 1) - 1
        return rng.integers(least, most + 1, shape).astype(dtype)

    # --- kernels

    def kernel(self, points: Points) -> None:
        """The text of a kernel, where these steps come."""
        self.lines = []
        for k in range(self.one_of(*self.features.nests)):
            kind = self.pick(self.features.nest_kinds, ("recurrence",) * self.is_plain)
            if kind == "time" and k == 0:
                self._inner_time()
                return  # its steps are called as those of the sequence are
            {"total": self._total, "recurrence": self._recurrence}.get(kind, self._loops)(points)

    def _nest(self, way: str, outer: str, is_simple: bool) -> Nest:
        self.traits |= {"in order"} if way == "serial" else set()
        return Nest(way, outer, max(self.steps, 1) * 2 + 1, is_simple)

    def _loops(self, points: Points) -> None:
        """A nest of loops around statements."""
        way = self.pick(self.features.ways)
        nest = self._nest(way, "i", way != "serial" and self.happens(self.features.simple))
        scope = Scope(nest, points, 1)
        if way == "serial":
            self.say(scope, "ks.loop_config(serialize=True)")
        self._around_body(scope, self.one_of(*self.features.depths))

    def _around_body(self, scope: Scope, depth: int) -> None:
        names = [x for x in "ijl" if x not in scope.points.values][:depth]
        for k, name in enumerate(names):
            scope = self.loop(scope, name, *self.bounds(scope, self._extent(k, len(names))))
            if k + 1 < len(names) and not scope.nest.is_simple and self.happens(0.1):
                scope = self.guarded(scope)
        if scope.nest.is_simple:
            self.simple(scope)
            return
        if self.features.statements and self.happens(self.features.block):
            scope = self.block(scope)
        known = scope.local_names(self.number)
        self.store(scope, known[-1] if known and self.happens(0.7) else None)

    def _extent(self, k: int, depth: int) -> int:
        """Mostly those of a matrix in their order, or of a vector."""
        if depth == 1 and self.happens(self.features.main_extent):
            return self.n
        return int(self.one_of(*self.extents)) if self.happens(0.2) else (self.p, self.q, self.q)[k]

    def _inner_time(self) -> None:
        """A loop of time inside of the kernel: what is in it is affine, so that its order counts."""
        self.traits.add("time loop inside")
        nest = self._nest("affine", "t", self.happens(0.7))
        first, end = self.one_of(0, 1, 2), min(self.one_of(1, 2, 9, 17), self.steps)
        scope = self.loop(Scope(nest, Points({}), 1), "t", str(first), str(end))
        for _ in range(self.one_of(1, 2)):
            self._around_body(scope, self.one_of(1, 2))

    def _total(self, points: Points) -> None:
        """One number of all iterations."""
        self.traits.add("reduction")
        nest = self._nest("own", "i", self.happens(self.features.simple))
        nest.shared.add("total")
        scope = Scope(nest, points, 1)
        total = self.accumulator(scope, 0, 1)
        inner = scope
        for name in "ij"[: self.one_of(1, 1, 2)]:
            inner = self.loop(inner, name, *self.bounds(inner, self.one_of(*self.extents)))
        if self.happens(self.features.guarded):
            inner = self.guarded(inner)
        may_compare = not self.is_plain and "max" in self.features.reals
        op = self.one_of("add", "max", "min") if may_compare else "add"
        self.traits |= {op} - {"add"}
        value = self.value(inner, self.number)
        self.say(
            inner, f"{total} += {value}" if op == "add" else f"{total} = {op}({total}, {value})"
        )
        self.say(scope, f"total[{self.rng.randrange(2)}] {self.one_of('=', '+=')} {total}")

    def _recurrence(self, points: Points) -> None:
        """Iterations that need one another, in order."""
        self.traits |= {"recurrence", "max"}
        lag = self.one_of(1, 2)
        nest = self._nest("own", "i", False)
        nest.read("z")  # nothing else writes it, or reads it
        nest.shared.add("z")
        scope = self.loop(Scope(nest, points, 1), "i", str(lag), str(self.n))
        if self.features.statements and self.happens(self.features.block):
            scope = self.block(scope)
        value = self.value(replace(scope, depth=1), self.number)
        self.say(scope, f"z[i] = max(z[i - {lag}], {value})")


def kernels_of(
    features: Features, numbers: Iterable[int]
) -> Iterator[tuple[KernelIR, dict[str, Array]]]:
    """The IR of the one kernel of each program, with arguments."""
    for number in numbers:
        one = program(features, number)
        (call,) = one.recording.calls
        yield (
            call.ir,
            {
                p.name: one.arrays[name].copy()
                for p, name in zip(call.ir.arrays, call.arrays, strict=True)
            },
        )


def is_exact(arrays: dict[str, Array]) -> bool:
    """True if sums of such numbers are exact in any order."""
    return all(np.abs(a.astype(np.float64)).max(initial=0) < 2**20 for a in arrays.values())
