"""Teams of blocks: blocks of a GPU launch share nothing, or all of them are resident and synchronise between dependent tasks.

In a grid that stays, tasks of one launch follow one another as on a CPU's team: a barrier of all blocks is where a value passes
from blocks to others. So sums are whole inside a launch, and what the tasks before have read is still in L2. CUDA calls such a
launch cooperative. The bound has no term for the barrier: it counts the launches that are saved.
"""

from __future__ import annotations

from itertools import combinations

from ..backbone import OUTER, Dim
from ..draft import Draft, Family, Phrases, all_but, bits
from ..engine.declarations import Term
from ..targets.kind import GPU
from .fusion import SAME_LAUNCH, SEPARATE
from .grid_stride import A_TILE, BLOCKS_A_CORE, GRID_STRIDE
from .order import MERGED, ORDER
from .threads import threads_of
from .tiling import DIM_KIND, PARALLEL

BLOCKS, WHOLE_GRID = range(2)
TEAM = (
    "BLOCKS",  # blocks of a launch do not synchronise: tasks of one launch share the loops of the grid
    "WHOLE_GRID",  # all blocks of a launch are resident, and synchronise between tasks
)
# Weights of terms that count one value of a choice.
_IF_STAYING, _IF_SEPARATE = (0, 1), (0, 1)
_IF_MERGED = tuple(int(k == MERGED) for k in range(len(ORDER)))


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if task.is_structured and strided_dims(s, t) and _dependent(s, t):
            s.v.of_tasks["team"][t] = var = s.b.add("team", (task.name,), TEAM)
            # Orders of tasks that only a grid that stays allows ask much of its loops.
            s.v.first.append(var)


def strided_dims(s: Draft, t: int) -> list[Dim]:
    """Returns the outer dims of a task whose tiles blocks may take in turn."""
    return [d for d in s.dims_at(t, OUTER) if d in s.v.of_dims["grid_stride"]]


def _dependent(s: Draft, t: int) -> bool:
    """True if a task that may share the launch of task `t` depends on it, or it on that task."""
    return any(
        t in (dep.source, dep.sink) and s.backbone.may_share_launch(dep.source, dep.sink)
        for dep in s.backbone.dependences
    )


def staying(s: Draft, t: int) -> list[tuple[int, int]]:
    """Returns a literal that holds if the grid of a task stays; none where it cannot."""
    teams = s.v.of_tasks["team"]
    return [(teams[t], bits(WHOLE_GRID))] if t in teams else []


def one_team(fused: int, here: int, there: int) -> bool:
    """False if two tasks of a launch belong to different teams of blocks."""
    return here == there or fused == SEPARATE


def resident_grid(s: Draft) -> None:
    """Coherence: each task of a grid that stays has one loop of the grid, with as many blocks in turn as the others."""
    b, v = s.b, s.v
    teams, strides = v.of_tasks["team"], v.of_dims["grid_stride"]
    for t, var in teams.items():
        apart, outer = (var, bits(BLOCKS)), s.dims_at(t, OUTER)
        b.clause("one loop of the grid", [apart, *((v.kind[d], bits(PARALLEL)) for d in outer)])
        for d in outer:
            literals = [apart, (v.kind[d], all_but(DIM_KIND, PARALLEL))]
            if d in strides:
                literals.append((strides[d], all_but(GRID_STRIDE, A_TILE)))
            b.clause("resident blocks take tiles in turn", literals)
        for d, e in combinations(outer, 2):
            kinds = [(v.kind[x], all_but(DIM_KIND, PARALLEL)) for x in (d, e)]
            b.clause("one loop of the grid", [apart, *kinds])
        pairs = [pair for pair in s.backbone.launch_pairs() if t in pair]
        together = [(v.fused[p], bits(SAME_LAUNCH)) for p in pairs if set(p) <= teams.keys()]
        b.clause("a grid that stays has several tasks", [apart, *together])
    for t, u in s.backbone.launch_pairs():
        found = [teams[x] for x in (t, u) if x in teams]
        if len(found) == 2:
            three = (v.fused[t, u], found[0], found[1])
            b.table3("one team of blocks", *three, one_team, share=one_team)
            _as_many_blocks(s, t, u)
        elif found:
            separate = (v.fused[t, u], bits(SEPARATE))
            b.clause("one team of blocks", [separate, (found[0], bits(BLOCKS))])


def in_other_loops(s: Draft) -> None:
    """Coherence: the tasks of a grid that stays are in several loops of it. In one loop nothing synchronises, as with BLOCKS."""
    teams, pairs = s.v.of_tasks["team"], s.backbone.launch_pairs()
    together = [pair for pair in pairs if set(pair) <= teams.keys()]
    for t, team in teams.items():
        near = {u: s.v.fused[pair] for pair in together if t in pair for u in pair if u != t}
        for d in strided_dims(s, t):
            inside = [s.order(d, e) for e in s.backbone.partners[d] if e.task in near]
            if inside:
                # Each other task is at most one of both: in this loop, or in another launch.
                merged = [Term(None, x, _IF_MERGED) for x in inside]
                separate = [Term(None, x, _IF_SEPARATE) for x in near.values()]
                terms = [*merged, *separate, Term(None, team, _IF_STAYING)]
                s.b.sum_at_most("in other loops", terms, len(near))


def _as_many_blocks(s: Draft, t: int, u: int) -> None:
    strides = s.v.of_dims["grid_stride"]
    apart = [(s.v.of_tasks["team"][t], bits(BLOCKS)), (s.v.fused[t, u], bits(SEPARATE))]
    for d in strided_dims(s, t):
        for e in strided_dims(s, u):
            for k in range(A_TILE + 1, len(GRID_STRIDE)):
                other, same = (strides[d], all_but(GRID_STRIDE, k)), (strides[e], bits(A_TILE, k))
                s.b.clause("as many blocks", [*apart, other, same])


def blocks_of_a_core(s: Draft, t: int) -> list[Term]:
    """Returns the factors whose product is the number of resident blocks of a multiprocessor, in a grid that stays."""
    weights = tuple(max(1, n) for n in BLOCKS_A_CORE)
    stays = (s.v.of_tasks["team"][t], bits(WHOLE_GRID))
    return [Term(stays, s.v.of_dims["grid_stride"][d], weights) for d in strided_dims(s, t)]


def resident_threads(s: Draft) -> None:
    """Hardware: the threads of all blocks of a grid that stays are resident."""
    most = s.target.max_threads_per_core
    for t in s.v.of_tasks["team"] if most else ():
        terms = [*threads_of(s, t), *blocks_of_a_core(s, t)]
        name = f"resident threads of {s.problem.tasks[t].name}"
        s.b.product_at_most(name, terms, most)


PHRASES = Phrases(
    "team",
    "threads",
    {"WHOLE_GRID": "runs in a grid that stays: its blocks synchronise with those of other tasks"},
    {"WHOLE_GRID": "all blocks synchronise"},
)

FAMILY = Family(
    "team", {GPU: (resident_grid, in_other_loops, resident_threads)}, declare, (PHRASES,)
)
