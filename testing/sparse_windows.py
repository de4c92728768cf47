"""Random programs on random trees whose calls wait: windows, with what their plans assume, against the interpreter.

A program has a period that comes again and again, between operations of Python and calls that change cells. Plans run in an engine
that interprets kernels: nothing is compiled, so that thousands of programs can be run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..kernels.fields.program import current_program
from ..kernels.frontend.recorder import Recording
from ..kernels.interpret.kernel import run_kernel
from ..kernels.ir.kernel import KernelIR
from ..kernels.sparse.recorded import WindowCall
from ..runtime import engine as engine_room
from ..runtime.engine.engine import EngineOptions
from ..runtime.records.signature import number
from .sparse_drawn import WORDS, Call, Tree, drawn_mirror, drawn_tree
from .sparse_programs import World, ks

T = TypeVar("T")
_MOST_CELLS = 60
_MOST_APPENDS = 3  # calls a period, of two cells each, so that no list is full
# Operations of Python, and reads, that stand between the calls of a period.
_HOST = (
    "clear",
    "take",
    "take_plain",
    "fill_rest",
    "copy_plain",
    "write_rest",
    "read",
    "read_plain",
    "read_rest",
)
_CHANGES = ("store", "fill", "drop", "thin", "renew", "append", "empty", "clear", "mark_cells")
_PLAIN = (1, 5, 20, 50, 200)  # limits of a window


def window_of(recording: Recording) -> list[WindowCall]:
    """Returns the calls of a recording as those of a window."""
    numbers = {p.name: k for k, p in enumerate((*recording.arrays, *recording.temps))}
    trees = {x.tree.name: (k, x.layout) for k, x in enumerate(recording.trees)}
    found = []
    for c in recording.calls_in_order():
        names = () if c.logical is None else [t.name for t in c.logical.ir.trees]
        arrays = tuple(numbers[name] for name in c.arrays)
        found.append(WindowCall(c.ir, arrays, c.logical, tuple(trees[x] for x in names)))
    return found


class InterpretingEngine:
    """Engine whose kernels are there at once, and are interpreted."""

    def __init__(self) -> None:
        self.options = EngineOptions(checks_indices=False)
        self.n_compiled = 0

    def prepare(self, kernels: Iterable[KernelIR]) -> bool:
        return True

    def submit(self, work: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(work())
        return done

    def prepared(self, ir: KernelIR) -> Callable[..., bool]:
        return partial(self._called, ir)

    quick = prepared

    def run(self, ir: KernelIR, arrays: Sequence[Any], scalars: Sequence[Any]) -> None:
        self._called(ir, *arrays, *scalars)

    def start(self) -> None:
        pass

    @staticmethod
    def _called(ir: KernelIR, *values: Any) -> bool:
        n = len(ir.arrays)
        arrays = {p.name: x for p, x in zip(ir.arrays, values[:n], strict=True)}
        scalars = {p.name: number(p, x) for p, x in zip(ir.scalars, values[n:], strict=True)}
        run_kernel(ir, arrays, scalars)
        return True


@dataclass(frozen=True)
class Program:
    """A period of calls, and what comes behind each time that it runs.

    `appends`: it appends to lists, which Python empties behind each period.
    """

    tree: Tree
    appends: bool
    period: tuple[Call, ...]
    between: tuple[tuple[Call, ...], ...]


def drawn(of: int, most_calls: int = 40) -> Program:
    """Returns a program, the same for each number `of`: 5 to 40 calls a period."""
    rng = np.random.default_rng((46, of))
    tree = drawn_tree(rng, _MOST_CELLS)

    appends = bool(rng.integers(4) == 0)
    words = [x for x in WORDS if appends or x != "append"]
    changes = [x for x in _CHANGES if appends or x != "append"]

    def call(words: Sequence[str]) -> Call:
        return str(rng.choice(words)), int(rng.integers(0, 40))

    n = int(rng.integers(5, most_calls + 1))
    few = [call(words) for _ in range(int(rng.integers(1, 9)))]
    of_python = [call(_HOST) for _ in range(int(rng.integers(1, 4)))]
    period: list[Call] = []
    while len(period) < n:
        some = [few[int(rng.integers(len(few)))] for _ in range(int(rng.integers(1, 4)))]
        period += some * int(rng.choice([1, 1, 2, 3]))
        if rng.integers(3):
            period.append(of_python[int(rng.integers(len(of_python)))])
    too_many = [k for k, (what, _) in enumerate(period[:n]) if what == "append"][_MOST_APPENDS:]
    period = [x for k, x in enumerate(period[:n]) if k not in too_many]
    between: list[tuple[Call, ...]] = [()] * 4
    for _ in range(6):
        more = [call(changes), call(("bump", "total"))][: int(rng.integers(0, 3))]
        between.append(tuple(more))
    return Program(tree, appends, tuple(period), tuple(between))


def drawn_pair(of: int) -> Program:
    """Returns a program with loops over two trees that activate each other's cells, the same for each number `of`.

    At most two other calls are in a period.
    """
    program, rng = drawn(of, most_calls=16), np.random.default_rng((47, of))
    n_others, begin = int(rng.integers(3)), int(rng.integers(len(program.period)))
    period = [*program.period[begin : begin + n_others]]
    for what in ("sink", "lift"):
        period.insert(int(rng.integers(len(period) + 1)), (what, 0))
    more: Call = "sprout", int(rng.integers(40))
    between = [(*calls, *[more] * int(rng.integers(5) == 0)) for calls in program.between]
    between[0] = *between[0], ("store", int(rng.integers(40))), more
    tree = replace(program.tree, mirror=drawn_mirror(rng, program.tree))
    return replace(program, tree=tree, period=tuple(period), between=tuple(between))


def made(world: World, what: str, c: int) -> Any:
    """Makes a call of a kernel or an operation of Python. Returns what is read, None where nothing is."""
    (rows, columns), (a, b, _) = world.x.shape, world.tree.least
    row, column = c % rows, 3 * c % columns
    match what:
        case "take" | "take_plain":
            given = (np.arange(rows * columns).reshape(rows, columns) + c) % 20
            given = given.astype(world.x.dtype.numpy)
            (world.x if what == "take" else world.plain).from_numpy(given)
            given[...] = 99  # the call has the array as it was
        case "fill_rest":
            world.rest.fill(c % 7)
        case "copy_plain":
            world.plain.copy_from(world.rest)
        case "write_rest":
            world.rest[row, column] = c % 9
        case "read":
            return world.x[row + a, column + b]
        case "read_plain":
            return world.plain[row, column]
        case "read_rest":
            return world.rest[row, column]
        case _:
            world.call(what, c)
    return None


def seen(program: Program, limit: int) -> tuple[list[list[Any]], int]:
    """Returns what is read in each period and the fields after it, and the number of calls that ran by plans.

    `limit` 0: by the interpreter.
    """
    options = {"async_mode": True, "async_flush_every": limit} if limit else {}
    world = World(program.tree, **options)
    fields = [getattr(world, name) for name in ("x", "y", "other", "mark", "plain", "rest", "grid")]
    fields += [*world.seen, world.at, world.sums, *(x for x in (world.v, world.z) if x is not None)]
    found = []
    for more in program.between:
        read = []
        for calls in (program.period, more):
            read += [made(world, what, c) for what, c in calls]
            ks.sync()
        if program.appends:
            world.lists.deactivate_all()
        if limit:
            current_program().follower.plans.complete()  # type: ignore[union-attr]
        items = sorted(world.items.to_numpy().ravel().tolist())
        found.append([read, *(x.to_numpy().tolist() for x in fields), items])
    return found, int(ks.engine.stats().n_planned)


@contextmanager
def interpreting() -> Iterator[None]:
    """Makes an engine that interprets kernels run all calls within the block."""
    with engine_room.using(InterpretingEngine()):
        try:
            yield
        finally:
            ks.reset()


def fault(program: Program, limits: Sequence[int] = _PLAIN) -> tuple[str, int]:
    """Returns what is wrong with a program whose calls wait, "" where nothing is, and the number of calls that ran by plans."""
    with ks.interpret():
        wanted, _ = seen(program, 0)
    n_all = 0
    for limit in limits:
        with interpreting():
            found, n_planned = seen(program, limit)
        n_all += n_planned
        for k, (x, y) in enumerate(zip(found, wanted, strict=True)):
            if x != y:
                return f"limit {limit}, period {k}: {program}", n_all
    return "", n_all
