"""Joins the bodies of consecutive statement tasks in the same loops, so that value numbering computes equal values once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ...kernels.analysis.alike_bodies import arrays_in_order
from ...kernels.ir import kernel as ir
from ...kernels.ir.walk import Renaming, nested_statements
from ...kernels.transforms.loop_fusion import loops_fused
from ...kernels.transforms.own_names import Names, with_own_names
from ...kernels.transforms.value_numbering import numbered
from ...space.backbone import OUTER
from ...space.families.lane_parts import FRONT, LANE_PARTS
from ..loops.ir import Alone, JoinedBodies, Late, Launch, Loop, Node, TileBody
from ..plan.plan import Plan, TaskPlan

_MOST_KEPT = 64  # joined bodies
_ROUNDS = 3  # of fusion and numbering: values that are known to be equal let loops inside be fused


def join_bodies(launch: Launch, plan: Plan) -> Launch:
    """Joins adjacent bodies of statements with the same iterations and equal tiles.

    A vectorised body without a neighbour becomes a joined body too, of one task.
    """
    nodes = _joined(plan, launch.nodes, ())
    return replace(launch, nodes=nodes, after=_joined(plan, launch.after, ()))


def _joined(plan: Plan, nodes: Sequence[Node], around: tuple[Loop, ...]) -> tuple[Node, ...]:
    made: list[Node] = []
    run: list[int] = []
    loops: dict[int, dict[str, str]] = {}

    def end() -> None:
        # Compilers find less in vectors with masks than in scalar code, and take long for it.
        is_joined = len(run) > 1 or any(plan.tasks[t].vector is not None for t in run)
        statements = _statements(plan, run, loops) if is_joined else ()
        if is_joined and _keeps_ranges(plan.tasks[run[0]], statements):
            made.append(JoinedBodies(tuple(run), statements))
        else:
            made.extend(TileBody(t) for t in run)
        run.clear()
        loops.clear()

    for n in nodes:
        if isinstance(n, TileBody):
            as_first = _same_iterations(plan, run[0] if run else n.task, n.task, around)
            if as_first is None or not _same_ways(plan, (*run, n.task)):
                end()
                as_first = _same_iterations(plan, n.task, n.task, around)
            if as_first is not None:
                run.append(n.task)
                loops[n.task] = as_first
                continue
        end()
        match n:
            case Loop():
                n = replace(n, children=_joined(plan, n.children, (*around, n)))
            case Late() | Alone():
                n = replace(n, children=_joined(plan, n.children, around))
        made.append(n)
    end()
    return tuple(made)


def _same_iterations(
    plan: Plan, first: int, t: int, around: tuple[Loop, ...]
) -> dict[str, str] | None:
    """Returns the map from loops of task `t` to loops of task `first`.

    It returns None unless both have bodies of statements and run the same iterations.
    """
    a, b = plan.tasks[first], plan.tasks[t]
    if a.task.body is None or b.task.body is None or not b.loops or len(a.loops) != len(b.loops):
        return None
    if a.task.fast_math is not b.task.fast_math:
        return None
    if plan.choice("accuracy", first) != plan.choice("accuracy", t):
        return None
    # Joined statements run in lanes as the first task does: as a whole, conflicting iterations of the other would, too.
    if len({plan.choice("lane_parts", x) == LANE_PARTS[FRONT] for x in (first, t)}) > 1:
        return None
    # Updates and sweeps may have variants of their own, and reads may go to packed blocks.
    own = (t.scatters or t.wave is not None or t.activates or t.copies for t in (a, b))
    if any(own):
        return None
    every = nested_statements((*a.task.body.statements, *b.task.body.statements))
    if any(isinstance(s, ir.Print | ir.Assert) for s in every):
        return None
    found: dict[str, str] = {}
    for p in b.loops:
        mates = [
            m.loop
            for n in around
            for m in n.members
            if n.level == OUTER
            and m.task == first
            and any((o.task, o.loop) == (t, p.loop.name) for o in n.members)
        ]
        if len(mates) != 1:
            return None
        q = a.loop(mates[0])
        if (q.loop.extent, q.mid, q.inner, q.is_vector) != (
            *(p.loop.extent, p.mid, p.inner),
            p.is_vector,
        ):
            return None
        found[p.loop.name] = mates[0]
    return found


def _same_ways(plan: Plan, tasks: Sequence[int]) -> bool:
    """True if the tasks have equal decisions about the insides of their bodies: unroll factors, prefetch distances, and vectors."""
    lanes = {tuple(replace(x, loop="") for x in plan.tasks[t].ranges) for t in tasks}
    copies = {value for t in tasks for _, value in plan.places("unrolled", t)}
    ahead = {value for t in tasks if (value := plan.choice("prefetch_distance", t))}
    return len(copies) < 2 and len(ahead) < 2 and len(lanes) < 2


def _keeps_ranges(first: TaskPlan, statements: tuple[ir.Stmt, ...]) -> bool:
    """True if inner loops of the first of several bodies run in lanes in the joined body as in that one: all loops are fused."""
    assert first.task.body is not None
    before, after = (
        sum(isinstance(s, ir.For) for s in nested_statements(body))
        for body in (first.task.body.statements, statements)
    )
    return not first.ranges or before == after


def _statements(
    plan: Plan, tasks: Sequence[int], loops: dict[int, dict[str, str]]
) -> tuple[ir.Stmt, ...]:
    steps = {x.name: x.name for t in tasks for x in plan.tasks[t].task.steps}
    bodies = [plan.tasks[t].task.body for t in tasks]
    statements = tuple(body.statements for body in bodies if body is not None)
    return _as_one(
        statements,
        tuple(s.uid for body in statements for s in nested_statements(body)),
        tuple(tuple({**steps, **loops[t]}.items()) for t in tasks),
        tuple(steps),
        tuple((a.name, a.dtype) for a in plan.problem.arrays),
    )


@lru_cache(maxsize=_MOST_KEPT)
def _as_one(
    bodies: tuple[tuple[ir.Stmt, ...], ...],
    uids: tuple[int, ...],  # statements are equal whatever theirs are
    loops: tuple[tuple[tuple[str, str], ...], ...],
    steps: tuple[str, ...],
    dtypes: tuple[tuple[str, ir.DType], ...],
) -> tuple[ir.Stmt, ...]:
    """Returns several bodies as one, with the loops of the first.

    Equal values are computed once, inner loops are fused.
    The result is cached: most candidates join the same bodies, and steps of a program often differ
    in some arrays only.
    """
    names = arrays_in_order(tuple(s for body in bodies for s in body))
    numbers = Renaming(arrays={name: f"{k}" for k, name in enumerate(names)})
    own = Renaming(arrays={f"{k}": name for k, name in enumerate(names)})
    types = dict(dtypes)
    found = _of_numbered_arrays(
        tuple(tuple(map(numbers.apply_stmt, body)) for body in bodies),
        uids,
        loops,
        steps,
        tuple((f"{k}", types[name]) for k, name in enumerate(names) if name in types),
    )
    return tuple(map(own.apply_stmt, found))


@lru_cache(maxsize=_MOST_KEPT)
def _of_numbered_arrays(
    bodies: tuple[tuple[ir.Stmt, ...], ...],
    uids: tuple[int, ...],
    loops: tuple[tuple[tuple[str, str], ...], ...],
    steps: tuple[str, ...],
    dtypes: tuple[tuple[str, ir.DType], ...],
) -> tuple[ir.Stmt, ...]:
    """Returns the same as `_as_one`, for bodies whose array names are replaced by numbers."""
    taken = {*steps, *(name for own in loops for _, name in own)}
    made: list[ir.Stmt] = []
    for body, own in zip(bodies, loops, strict=True):
        names: Names = {("loop", loop): other for loop, other in own}
        made += with_own_names(body, names, taken)
    arrays = dict(dtypes)
    found = numbered(tuple(made), arrays)
    for _ in range(_ROUNDS if len(bodies) > 1 else 0):
        fused = loops_fused(found)
        if fused == found:
            break
        found = numbered(fused, arrays)
    return found
