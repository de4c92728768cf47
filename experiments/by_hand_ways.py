"""One way to run a program of by_hand.py, in a process of its own: how its values differ, and the times of its calls.

    python -m kernelscape.experiments.by_hand_ways ASKED

ASKED is the JSON text of an `Asked`. The last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..explorer.entry import Run, explore_workload
from ..explorer.results import load
from ..explorer.workload import Options, Workload, make_workload
from ..kernels.frontend.init import init, sync
from ..runtime import engine
from ..runtime.cpu.guarded_arrays import empty
from ..runtime.library import load_library
from . import row
from .expert import program_source
from .measuring import built
from .period_search import period_workload
from .program_texts import TEXTS
from .scatters import p2g
from .taichi_scatters import GRID, arrays_of

CALLED, PLANNED, EXPLORED, SEARCH, HAND = "called", "planned", "explored", "search", "by hand"
MACCORMACK, SORTED, UNSORTED = "maccormack", "p2g_sorted", "p2g_unsorted"
BY_HAND: Mapping[str, tuple[str, ...]] = {
    MACCORMACK: ("gathers", "loads"),
    **dict.fromkeys(
        (SORTED, UNSORTED),
        ("in_order", "atomic", "copies", "tiles_atomic", "tiles_by_colour", "slabs_by_colour"),
    ),
}
"""The functions of the C by hand, without the name of its file: each does the whole program in another way."""

_LARGEST = 128  # cells along an axis of the grid
_LEAF, _CELLS = 8, 512  # cells along an axis of a block, and all of them
_PLAN_S = 120.0  # until the plan of a period must be there
_WARM = 6  # calls until windows are known again and decisions are followed


@dataclass(frozen=True)
class Asked:
    """The work of a process.

    `folder` keeps the values of the first way, and the result of a search, for later processes.
    """

    way: str
    name: str
    n: int
    threads: int
    folder: str
    seed: int = 1
    seconds: float = 0.0  # of the search
    evaluations: int | None = None  # end the search, too
    samples: int = 5
    span_s: float = 0.02  # that a sample lasts at least
    flags: Sequence[str] = ()  # more of them, for the compiler of the C by hand

    @property
    def found(self) -> Path:
        return Path(self.folder) / "found"

    @property
    def values(self) -> Path:
        return Path(self.folder) / "values.npy"


@dataclass(frozen=True)
class Ready:
    """Calls that do the same work, by their names, what comes before the first, and the values that one has left."""

    calls: Mapping[str, Callable[[], object]]
    reset: Callable[[], object]
    values: Callable[[], NDArray[Any]]
    workload: Callable[[], Workload]  # of the kernels that are called


# --- particles -----------------------------------------------------------------------------------


def _particles(asked: Asked) -> Ready:
    init(cpu_max_num_threads=asked.threads)
    given = [_aligned(a) for a in arrays_of(asked.name, asked.n, asked.seed)]
    grid = given[-1]
    if asked.way == HAND:
        facts = {"N": f"{asked.n}L", "NODES": f"{GRID}L"}
        calls = _by_hand("p2g", asked, facts, given)
    elif asked.way == EXPLORED:
        calls = {EXPLORED: partial(load(asked.found).compile(check_indices=False), *given)}
    else:
        calls = {asked.way: partial(p2g, *given)}
    place = f"{p2g.__module__}:{p2g.__name__}"
    return Ready(
        calls,
        lambda: grid.fill(0),
        lambda: grid,
        lambda: make_workload(p2g, given, sequence=place, name=p2g.__name__),
    )


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    made = empty(array.shape, array.dtype)
    made[...] = array
    return made


def _by_hand(
    file: str, asked: Asked, facts: Mapping[str, object], given: Sequence[NDArray[Any]]
) -> dict[str, Callable[[], object]]:
    """The C of a file, compiled with all passes of the compiler, on these arguments: a call a way."""
    source = program_source(file, facts, asked.threads)
    source = replace(source, flags=(*source.flags, *asked.flags))
    artifact = built(row.cpu().with_all_passes(), source)
    library = load_library(artifact.path)
    pointers = (ctypes.c_void_p * len(given))(*(a.ctypes.data for a in given))

    def run(function: Any, kept: Sequence[NDArray[Any]] = given) -> None:
        function(pointers)

    return {way: partial(run, getattr(library, f"{file}_{way}")) for way in BY_HAND[asked.name]}


# --- MacCormack ----------------------------------------------------------------------------------


def _advection(asked: Asked) -> Ready:
    how: dict[str, dict[str, Any]] = {
        PLANNED: {"async_mode": True},
        EXPLORED: {"decisions": asked.found},
    }
    init(cpu_max_num_threads=asked.threads, **how.get(asked.way, {}))
    program = _program(asked)

    def values() -> NDArray[Any]:
        return np.stack([f.to_numpy() for f in program.dye[1]])

    if asked.way == HAND:
        return _advection_by_hand(asked, program)
    return Ready(
        {asked.way: program.step}, lambda: None, values, lambda: period_workload(program.step)
    )


def _program(asked: Asked) -> Any:
    """The program as a module, with its fields as they are before the first step."""
    file = Path(asked.folder) / f"{asked.name}.py"  # kernels are read from a file
    head = "import kernelscape.compat.taichi as ti\n"
    file.write_text(f"{head}shrink = {_LARGEST // asked.n}\n{TEXTS[asked.name]}")
    spec = spec_from_file_location(asked.name, file)
    assert spec is not None and spec.loader is not None
    program = module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def _advection_by_hand(asked: Asked, program: Any) -> Ready:
    """The C on copies of the program's fields: block after block, in the order of the grid, behind a block of zeros."""
    n = asked.n
    speed, before = ([_by_block(f.to_numpy()) for f in x] for x in (program.v, program.dye[0]))
    is_active = np.any(before, axis=(0, 2))
    at = np.flatnonzero(is_active).astype(np.int32)
    table = np.zeros(is_active.size, np.int32)
    table[at] = 1 + np.arange(at.size)

    def of_blocks(field: NDArray[Any] | None = None) -> NDArray[Any]:
        made = empty((1 + at.size, _CELLS), np.float32)
        made[0], made[1:] = 0, 0 if field is None else field[at]
        return made

    after, back = ([of_blocks() for _ in range(3)] for _ in range(2))
    given = [table, at, np.array([at.size], np.int64), *map(of_blocks, (*speed, *before))]
    facts = {"N": f"{n}L", "DT": "0.03f"}

    def reset() -> None:
        for field in (*after, *back):
            field[1:] = np.nan

    def values() -> NDArray[Any]:
        made = np.zeros((3, is_active.size, _CELLS), np.float32)
        for c, field in enumerate(after):
            made[c, at] = field[1:]
        return np.stack([_by_cell(x, n) for x in made])

    calls = _by_hand(asked.name, asked, facts, [*given, *after, *back])
    return Ready(calls, reset, values, lambda: period_workload(program.step))


def _by_block(field: NDArray[Any]) -> NDArray[Any]:
    b = field.shape[0] // _LEAF
    cells = field.reshape(b, _LEAF, b, _LEAF, b, _LEAF).transpose(0, 2, 4, 1, 3, 5)
    return cells.reshape(b**3, _CELLS)


def _by_cell(blocks: NDArray[Any], n: int) -> NDArray[Any]:
    b = n // _LEAF
    return blocks.reshape(b, b, b, _LEAF, _LEAF, _LEAF).transpose(0, 3, 1, 4, 2, 5).reshape(n, n, n)


# --- a process -----------------------------------------------------------------------------------


def answer(asked: Asked) -> dict[str, Any]:
    """The differences and times of a way, or what a search found. Raises RuntimeError where no plan comes."""
    ready = _advection(asked) if asked.name == MACCORMACK else _particles(asked)
    if asked.way == SEARCH:
        return _searched(asked, ready)

    def settle() -> None:
        if asked.name == MACCORMACK and asked.way in (PLANNED, EXPLORED):
            _settle(ready.calls[asked.way], asked.way)

    settle()
    differs = {name: _difference(asked, ready, call) for name, call in ready.calls.items()}
    settle()  # reading values has ended the window
    return {"differs": differs, "times_ns": _times(asked, ready.calls)}


def _searched(asked: Asked, ready: Ready) -> dict[str, Any]:
    if asked.name == MACCORMACK:
        for _ in range(3):  # a search assumes what periods leave
            ready.calls[SEARCH]()
        sync()
    options = Options(
        time_limit_s=asked.seconds, max_evals=asked.evaluations, seed=asked.seed, store=False
    )
    run: Run = explore_workload(ready.workload(), options, directory=asked.found)
    ended = run.ended
    return {"status": run.status, "evaluations": ended.evaluations, "best_ns": ended.best_ns}


def _difference(asked: Asked, ready: Ready, call: Callable[[], object]) -> dict[str, float]:
    """Differences of the values that a call leaves from those of the first way, in parts of the greatest.

    "most" is the largest of all, "usual" the largest without one element in 10,000.
    """
    ready.reset()
    call()
    sync()
    got = np.array(ready.values(), np.float64)
    if not asked.values.exists():
        np.save(asked.values, got)
    want = np.load(asked.values)
    apart = np.abs(got - want) / np.abs(want).max()
    if not np.isfinite(apart).all():
        return {"usual": float("inf"), "most": float("inf")}
    visited = np.sort(apart[(want != 0) | (got != 0)])
    return {"usual": float(visited[-1 - visited.size // 10_000]), "most": float(visited[-1])}


def _settle(step: Callable[[], object], way: str) -> None:
    """Runs steps until they run as they were found, or by the default plan, which is built beside them. Raises RuntimeError."""
    for _ in range(_WARM):
        step()
    sync()
    if way == EXPLORED and not engine.stats().n_planned:
        raise RuntimeError("no step ran as it was found")
    end_s = time.monotonic() + _PLAN_S
    while way == PLANNED:
        before = engine.stats().n_planned
        step()
        sync()
        if engine.stats().n_planned > before:
            return
        if time.monotonic() > end_s:
            raise RuntimeError(f"there was no plan within {_PLAN_S:.0f} s")
        time.sleep(0.2)


def _times(
    asked: Asked, calls: Mapping[str, Callable[[], object]]
) -> dict[str, tuple[float, float]]:
    """Wall and CPU time of each call: the least of samples, which are taken in turn."""
    repeats = {name: _repeats(call, asked.span_s) for name, call in calls.items()}
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(asked.samples):
        for name, call in calls.items():
            _timed(call, 1)
            samples[name].append(_timed(call, repeats[name]))
    return {
        name: (min(wall for wall, _ in x), min(cpu for _, cpu in x)) for name, x in samples.items()
    }


def _repeats(call: Callable[[], object], span_s: float) -> int:
    """The number of calls that last as long as a sample."""
    n = 1
    while n < 1000 and _timed(call, n)[0] * n < 1e9 * span_s:
        n *= 2
    return n


def _timed(call: Callable[[], object], n: int) -> tuple[float, float]:
    """Nanoseconds of a call, of n in a row: on the clock, and of all threads."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    for _ in range(n):
        call()
    sync()
    wall_s = time.perf_counter() - wall_s
    return 1e9 * wall_s / n, 1e9 * (time.process_time() - cpu_s) / n


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("asked")
    asked = Asked(**json.loads(parser.parse_args(arguments).asked))
    if asked.way == HAND:
        os.environ.setdefault("OMP_PROC_BIND", "true")  # threads of ours are bound, too
    print(json.dumps(answer(asked)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
