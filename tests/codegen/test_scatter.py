"""Updates of elements that iterations share, in all of their ways, against the interpreter."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.loops import ir as loop_ir
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.pipeline import launches_of, verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.starts import count_starts
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.analysis.scatters import scatters
from kernelscape.kernels.analysis.updated_rows import inspector
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import sketches
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.families.scatter_sorts import SORT_ANEW, SORT_IF_CHANGED
from kernelscape.space.families.sorted_ahead import SORTED_AHEAD
from kernelscape.testing import checking

from .scatter_cases import problem_of

nd: Any = types.ndarray()


@kernel
def histogram(key: nd, bins: nd, most: nd):
    for i in range(key.shape[0]):
        bins[key[i]] += i
        most[key[i] % 7] = max(most[key[i] % 7], i)


@kernel
def shift(key: nd):
    for i in range(key.shape[0]):
        key[i] = (key[i] + 1) % 9


@kernel
def beyond(key: nd, grid: nd):
    for p in range(key.shape[0]):
        first = key[p]
        for i in range(2):
            for d in range(5):
                if d >= 1 and d < 4:
                    grid[first + i, d - 1] += 1.0


@kernel
def looked_up(key: nd, table: nd, out: nd, bins: nd):
    for p in range(key.shape[0]):
        out[p] = 2 * key[p]
        bins[table[key[p]]] += 1


@kernel
def looked_up_where_wanted(key: nd, table: nd, out: nd, bins: nd):
    for p in range(key.shape[0]):
        out[p] = 2 * key[p]
        if key[p] >= 0:
            bins[table[key[p]]] += 1


def made(name: str, n: int = 61, cores: int = 2) -> tuple[Any, Any, Any]:
    """A problem, its space, and arguments with what comes out of them."""
    problem, inputs = problem_of(name, n)
    return problem, build_space(problem, checking.target(cores, 32)), inputs


def complete(space: Any, var_values: tuple[tuple[int, int], ...]) -> Candidate | None:
    """A completion with these values, where there is one."""
    now: Any = space.root()
    for var, value in var_values:
        now = now.decide(var, 1 << value)
        if isinstance(now, DeadEnd):
            return None
    found = checking.random_candidate(now, np.random.default_rng(len(var_values)))
    return found if isinstance(found, Candidate) else None


def of_every_value(space: Any) -> list[Candidate]:
    """All values of each scatter with blocks of two sizes, on a team and on one thread; those of several tasks side by side.

    Of each value some run several iterations at once.
    """
    v = space.variables
    of_task: dict[int, list[tuple[tuple[int, int], ...]]] = {}
    for t in sorted({t for t, _ in v.scatter}):
        own = [var for (u, _), var in v.scatter.items() if u == t]
        cells = [x[t] for x in (v.scatter_cells, v.of_tasks["greedy_block"]) if t in x]
        outer, inner = (
            next(x for d, x in v.kind.items() if d.task == t and d.name.endswith(level))
            for level in ("outer", "inner")
        )
        sizes = [range(min(2, len(space.choices[x].values))) for x in cells]
        # Two arrays of a task are updated in one way, or in two that go together.
        pairs = [(k, *[k] * (len(own) - 1)) for k in range(len(ch.SCATTER))]
        mixed = [(ch.TILE, ch.COLOUR), (ch.SORTED, ch.PRIVATE), (ch.GREEDY, ch.PRIVATE)]
        pairs += mixed if len(own) == 2 else []
        ways = product(pairs, (ch.PARALLEL, ch.LOOP), (ch.VECTOR, ch.ABSENT), *sizes)
        for values, kind, lanes, *size in ways:
            if values[0] in ch.SORTING:
                turn = (kind == ch.LOOP) + sum(size) + (values[0] == ch.COLOUR)
                if (kind == ch.LOOP and size == [0]) or (lanes == ch.VECTOR) != (turn % 2 == 0):
                    continue
            made = (*own, outer, inner, *cells), (*values, kind, lanes, *size)
            one = tuple(zip(*made, strict=True))
            if complete(space, one) is not None:
                of_task.setdefault(t, []).append(one)
    longest = max(map(len, of_task.values()))
    found = []
    for k in range(longest):
        chosen = [ways[k % len(ways)] for ways in of_task.values()]
        candidate = complete(space, tuple(pair for way in chosen for pair in way))
        assert candidate is not None
        found.append(candidate)
    return found


def test_windows_are_boxes_whose_place_is_computed_before() -> None:
    problem, _, _ = made("particles")
    (task,) = problem.tasks
    grid, mass = scatters(task, problem)
    assert [(r.least, r.largest, r.base is None) for r in grid.window] == [
        (0, 2, False),
        (0, 1, False),
        (0, 1, True),
    ]
    assert (grid.op, mass.op, grid.bases) == ("add", "add", mass.bases)
    problem, _, _ = made("keys")
    found = {x.array: x for task in problem.tasks for x in scatters(task, problem)}
    assert len(found["bins"].window) == len(found["most"].window) == 1
    assert found["f"].window == ()  # of two ends of an edge there is no box


def test_windows_end_where_the_array_does() -> None:
    """Else the tile of a block is added to elements that belong to other blocks, or to nothing."""
    given = (np.zeros(9, np.int32), np.zeros((10, 3), np.float32))
    problem = normalise(record_sequence(lambda *a: beyond(*a), given, name="beyond"))
    ((grid,),) = (scatters(t, problem) for t in problem.tasks)
    assert [(r.least, r.largest) for r in grid.window] == [(0, 1), (0, 2)]


def test_places_are_not_computed_where_guards_keep_a_program_from_it() -> None:
    key = np.arange(9, dtype=np.int32)
    given = (key, key.copy(), key.copy(), key.copy())
    windows = []
    for fn in (looked_up, looked_up_where_wanted):
        problem = normalise(record_sequence(lambda *a, fn=fn: fn(*a), given, name="looked"))
        ((bins,),) = (scatters(t, problem) for t in problem.tasks)
        windows.append(len(bins.window))
    assert windows == [1, 0], "a key below 0 reads what is before the table"


@kernel
def wrapped(key: nd, bins: nd):
    for i in range(key.shape[0]):
        bins[ks.i32(key[i] + ks.i8(100)) + 150] += 1
        bins[ks.i32(key[i] + ks.i8(100)) + 151] += 1


def test_windows_are_not_moved_by_sums_that_wrap_around() -> None:
    """28 + 100 is -128 in 8 bits: the element is 22, not 278."""
    key, bins = np.array([0, 27, 28, 100], np.int8), np.zeros(280, np.int32)
    problem = normalise(record_sequence(lambda *a: wrapped(*a), (key, bins), name="wrapped"))
    ((found,),) = (scatters(t, problem) for t in problem.tasks)
    (reach,) = found.window
    assert (reach.least, reach.largest) == (150, 151)


def test_order_is_kept_where_an_iteration_looks_at_what_another_updates() -> None:
    key = np.arange(9, dtype=np.int32)
    problem = normalise(
        record_sequence(lambda *a: histogram(*a), (key, key.copy(), key.copy()), name="reads")
    )
    assert [scatters(t, problem) for t in problem.tasks] == [()] * len(problem.tasks)


def test_values_are_those_that_an_array_can_have() -> None:
    _, space, _ = made("keys")
    v, root = space.variables, space.root()
    names = {a: [ch.SCATTER[k] for k in root.values(var)] for (_, a), var in v.scatter.items()}
    slabs = ["SERIAL", "ATOMIC", "PRIVATE", "SORTED", "TILE"]
    assert names == {"bins": slabs, "most": slabs, "f": [*slabs[:3], "GREEDY"]}
    _, alone, _ = made("keys", cores=1)
    ways = [set(alone.root().values(var)) for var in alone.variables.scatter.values()]
    assert all(not {ch.BY_ATOMICS, ch.PRIVATE, ch.GREEDY} & w for w in ways)


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["particles", "keys"])
def test_every_value_computes_what_the_interpreter_does(name: str, tmp_path: Path) -> None:
    _, space, inputs = made(name)
    candidates = of_every_value(space)
    seen = {
        (array, candidate.value(var))
        for candidate in candidates
        for (_, array), var in space.variables.scatter.items()
    }
    assert {v for a, v in seen if a in ("grid", "mass", "bins", "most")} == set(range(6)) - (
        {ch.COLOUR} if name == "keys" else set()
    )
    in_lanes = {
        candidate.value(var)
        for candidate in candidates
        for (t, _), var in space.variables.scatter.items()
        if plan_of(candidate).tasks[t].vector is not None
    }
    assert in_lanes >= {v for _, v in seen}
    with verifying():
        sources = [checking.source_of(c) for c in candidates]
    flags = () if name == "keys" else checking.PLAINLY
    assert not checking.fault(sources, inputs, tmp_path, more_flags=flags)


@kernel
def tangled(tri: nd, w: nd, f: nd, near: nd):
    for e in range(tri.shape[0]):
        f[tri[e, 0]] += w[e]
        f[tri[e, 1]] += w[e]
        near[int(w[e] * 0.3)] += 1.0
        near[int(w[e] * 0.3) + tri[e, 0]] += 1.0
    for e in range(tri.shape[0]):
        f[tri[e, 0]] += 1.0
        f[tri[e, 1]] += 1.0
        tri[e, 0] = 0


@kernel
def floating(x: nd, f: nd, cell: nd):
    for p in range(x.shape[0]):
        at = int(x[p] * 2.5 + 0.1)
        f[cell[at]] += x[p]
        f[cell[at + 1]] -= x[p]


@kernel
def pushed(x: nd, f: nd, cell: nd):
    for p in range(x.shape[0]):
        x[p] += 0.1
        at = int(x[p] * 2.5 + 0.1)
        f[cell[at]] += 1.0
        f[cell[at + 1]] -= 1.0


@kernel
def wandering(x: nd, f: nd, cell: nd):
    for p in range(x.shape[0]):
        at = int(x[p] * 2.5)
        f[cell[at]] += 1.0
        at = int(x[p] * 1.5)
        f[cell[at]] += 1.0


def test_locals_that_are_rounded_from_floats_are_kept_for_the_body() -> None:
    """A local is kept if one statement sets it, and the loop writes nothing that it is computed from."""
    given = (np.ones(9, np.float32), np.zeros(9, np.float32), np.zeros(9, np.int32))
    kept = []
    for fn in (floating, pushed, wandering):
        recording = record_sequence(lambda *a, fn=fn: fn(*a), given, name="floats")
        (task,) = normalise(recording).tasks
        (f,) = scatters(task, normalise(recording))
        made = None if f.rows is None else inspector(task, (f.rows,))
        kept.append(None if made is None else [x.dtype.is_integer for x in made.kept])
    assert kept == [[True], None, None]


def test_rows_are_those_of_all_updates_and_of_indices_that_are_known_before() -> None:
    problem, _, _ = made("mesh")
    f, count = scatters(problem.tasks[0], problem)
    assert f.rows is not None and count.rows is not None
    # Three corners by their loop, both components at once, and two guarded ones.
    assert (f.rows.extents, f.rows.most) == ((40,), 5)
    assert (count.rows.extents, count.rows.most) == ((40, 3), 1)
    given = (np.zeros((9, 2), np.int32), *(np.zeros(9, np.float32) for _ in range(3)))
    problem = normalise(record_sequence(lambda *a: tangled(*a), given, name="tangled"))
    found = [[x.rows is not None for x in scatters(t, problem)] for t in problem.tasks]
    # Rounded floats decide about elements of `near`, and the second loop changes the indices that it reads.
    assert found == [[True, False], [False]]


def coloured(space: Any, block: int, array: str = "f") -> Candidate:
    """A candidate whose updates of an array, and of the others, are coloured in blocks of so many iterations."""
    v = space.variables
    (t,) = v.of_tasks["greedy_block"]
    size = space.choices[v.of_tasks["greedy_block"][t]].values.index(str(block))
    ways = [(var, ch.GREEDY) for var in v.scatter.values()]
    found = complete(space, (*ways, (v.of_tasks["greedy_block"][t], size)))
    assert found is not None
    return found


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "n"), [("mesh", 61), ("star", 150)])
def test_coloured_blocks_compute_what_the_interpreter_does(
    name: str, n: int, tmp_path: Path
) -> None:
    """Elements of a star all share a node, so each needs a colour of its own: those beyond 64 run in order at the end."""
    _, space, inputs = made(name, n)
    with verifying():
        sources = [checking.source_of(x) for x in of_every_value(space)]
        sources += [checking.source_of(coloured(space, block)) for block in (1, 16)]
    assert not checking.fault(sources, inputs, tmp_path)


def test_coloured_blocks_are_one_loop_and_no_sort() -> None:
    _, space, _ = made("mesh")
    v = space.variables
    for other in (ch.SORTED, ch.TILE):
        assert (
            complete(space, ((v.scatter[0, "f"], ch.GREEDY), (v.scatter[0, "count"], other)))
            is None
        )
    candidate = coloured(space, 16)
    plan = plan_of(candidate)
    (launch,) = launches_of(plan, space.target)
    phases = [type(p) for n in launch.nodes for p in loop_ir.phases_of(n)]
    assert phases == [loop_ir.FindRows, loop_ir.ColourBlocks, loop_ir.TileBody]
    assert count_starts(candidate).n_barriers >= 2
    words = describe(candidate)["scatters"]
    assert ["coloured" in x and "(blocks of 16)" in x for x in words if "updates f" in x] == [True]
    for left in phases[:2]:
        nodes = tuple(
            n
            for n in launch.nodes
            if not isinstance(n, loop_ir.Barrier) and left not in map(type, loop_ir.phases_of(n))
        )
        with pytest.raises(IllFormedError, match="neither sorted nor coloured"):
            verify(replace(launch, nodes=nodes), plan)


def test_first_candidates_colour_blocks_of_every_size() -> None:
    _, space, _ = made("mesh")
    v, root = space.variables, space.root()
    completed = [complete_sketch(root, x) for x in sketches(space)]
    sizes = [
        space.choices[v.of_tasks["greedy_block"][0]].values[x.value(v.of_tasks["greedy_block"][0])]
        for x in completed
        if x is not None and x.value(v.scatter[0, "f"]) == ch.GREEDY
    ]
    assert sizes == ["16", "1"]


def test_blocks_of_one_colour_are_apart_and_threads_meet_between_colours() -> None:
    _, space, _ = made("particles")
    v = space.variables
    outer = next(x for d, x in v.kind.items() if d.name.endswith("outer"))
    tile = ((v.scatter[0, "grid"], ch.TILE), (v.scatter[0, "mass"], ch.COLOUR))
    candidate = complete(space, (*tile, (outer, ch.PARALLEL)))
    assert candidate is not None
    plan = plan_of(candidate)
    sort = plan.tasks[0].sort
    assert sort is not None and sort.blocks is not None
    assert all(c >= span - 1 for c, span in zip(sort.blocks.cells, sort.blocks.spans, strict=True))
    assert sort.blocks.n_colours == 4
    (launch,) = launches_of(plan, space.target)
    assert [type(n).__name__ for n in launch.nodes if type(n).__name__ != "Barrier"][
        -1
    ] == "InBlocks"
    assert lower(plan_of(candidate)).workspace_bytes > 0
    # Where threads share it out, they meet between four colours.
    n_barriers = count_starts(candidate).n_barriers
    assert n_barriers == 3 + sum(type(n).__name__ == "Barrier" for n in launch.nodes)
    words = describe(candidate)["scatters"]
    ways = [x for x in words if "updates" in x]
    assert [("tile" in x, "block by block" in x) for x in ways] == [(True, False), (False, True)]


def test_how_far_ahead_is_asked_is_a_choice_of_what_is_sorted() -> None:
    _, space, _ = made("particles")
    v = space.variables
    sources = {}
    for how, value in product((ch.TILE, ch.PRIVATE), range(len(SORTED_AHEAD))):
        ways = tuple((v.scatter[0, array], how) for array in ("grid", "mass"))
        outer = next(x for d, x in v.kind.items() if d.name.endswith("outer"))
        pair = (*ways, (outer, ch.PARALLEL), (v.of_tasks["sorted_ahead"][0], value))
        candidate = complete(space, pair)
        if candidate is not None:
            sources[how, SORTED_AHEAD[value]] = checking.source_of(candidate)
    assert sources.keys() == {(ch.PRIVATE, "EIGHT"), *((ch.TILE, x) for x in SORTED_AHEAD)}


def test_first_candidates_share_updates_out_at_once_and_in_lanes() -> None:
    _, space, _ = made("particles")
    v, root = space.variables, space.root()
    inner = next(x for d, x in v.kind.items() if d.name.endswith("inner"))
    completed = (complete_sketch(root, x) for x in sketches(space))
    ways = [(x.value(v.scatter[0, "grid"]), x.value(inner)) for x in completed if x is not None]
    firsts = (ch.PRIVATE, ch.TILE, ch.SORTED)
    assert ways[:6] == [*product(firsts, [ch.ABSENT]), *product(firsts, [ch.VECTOR])]
    assert {how for how, _ in ways} == {*range(len(ch.SCATTER))} - {ch.GREEDY}


def sorted_by_key(space: Any, how: int, sorting: int) -> Candidate:
    """A candidate that sorts the iterations of the first task by each of its blocks, the smallest there are, and threads."""
    v = space.variables
    outer = next(x for d, x in v.kind.items() if d.task == 0 and d.name.endswith("outer"))
    ways = ((v.scatter[0, "bins"], how), (v.of_tasks["sorting"][0], sorting), (outer, ch.PARALLEL))
    found = complete(space, (*ways, (v.scatter_cells[0], 0)))
    assert found is not None
    return found


@pytest.mark.compiler
@pytest.mark.parametrize("cores", [2, 3, 5])
def test_kept_sorts_are_made_again_when_blocks_change(cores: int, tmp_path: Path) -> None:
    """Twice with one set of keys, then with another: its iterations are elsewhere in the order."""
    _, space, (first, second) = made("keys", cores=cores)
    ways = [(how, kept) for how in (ch.SORTED, ch.TILE) for kept in (SORT_ANEW, SORT_IF_CHANGED)]
    candidates = [sorted_by_key(space, *way) for way in ways]
    functions = [lower(plan_of(x)).functions for x in candidates]
    declared = [
        {s.name for f in own for s in f.before if isinstance(s, c.Declare)} for own in functions
    ]
    assert ["bins_sort_in_use" in x for x in declared] == [False, True] * 2
    sources = [checking.source_of(x) for x in candidates]
    assert not checking.fault(sources, (first, first, second, second, first), tmp_path)


def test_iterations_that_update_one_element_are_sorted_by_it_and_need_no_colours() -> None:
    """Then a thread owns what it updates, and no other waits for it."""
    _, space, _ = made("keys")
    v = space.variables
    assert space.choices[v.scatter_cells[0]].values[0] == "1"
    plan = plan_of(sorted_by_key(space, ch.SORTED, SORT_IF_CHANGED))
    sort = plan.tasks[0].sort
    assert sort is not None and sort.blocks is not None
    assert (sort.blocks.n_colours, sort.blocks.n_blocks) == (1, 19)
    words = describe(sorted_by_key(space, ch.SORTED, SORT_IF_CHANGED))["scatters"]
    assert any("keeps the order of its iterations" in x for x in words)


def test_only_sorts_by_indices_that_the_sequence_leaves_alone_are_kept() -> None:
    """Particles move from call to call: a search that measures with the same ones would take a kept sort for free."""
    asked = [made(name)[1].variables.of_tasks["sorting"] for name in ("particles", "keys")]
    assert [sorted(x) for x in asked] == [[], [0, 1]]
    key = np.arange(9, dtype=np.int32)

    def moved(key: Any, bins: Any, most: Any) -> None:
        histogram(key, bins, most)
        shift(key)

    given = (key, np.zeros(9, np.int32), np.zeros(9, np.int32))
    problem = normalise(record_sequence(moved, given, name="moved"))
    assert not build_space(problem, checking.target(2, 32)).variables.of_tasks["sorting"]


def test_slabs_and_blocks_are_two_orders() -> None:
    _, space, _ = made("particles")
    v = space.variables
    mixed = ((v.scatter[0, "grid"], ch.TILE), (v.scatter[0, "mass"], ch.SORTED))
    assert complete(space, mixed) is None
