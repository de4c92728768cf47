"""Verifier of the loop IR: rules of well-formed trees. An ill-formed tree after a pass is a bug of the pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from ...space.backbone import MID, OUTER
from ...space.families.packing import rows_of_layout
from ...space.families.warp_tile import WARP
from ...space.targets.gpu_facts import row_order
from ..plan.plan import Member, Plan
from . import ir as loop_ir

_SORT = (loop_ir.CountIterations, loop_ir.StartBlocks, loop_ir.SortIterations)
_COLOURING = (loop_ir.FindRows, loop_ir.ColourBlocks)


class IllFormedError(AssertionError):
    """Raised for a tree of the loop IR that breaks a rule of well-formed launches."""


@dataclass(frozen=True)
class _PhasePlace:
    """A phase, and the loops and other nodes around it, outermost first."""

    phase: loop_ir.Phase
    around: tuple[loop_ir.Loop | loop_ir.Late | loop_ir.Alone | loop_ir.InBlocks, ...]

    @property
    def loops(self) -> list[loop_ir.Loop]:
        return [n for n in self.around if isinstance(n, loop_ir.Loop)]

    @property
    def is_late(self) -> bool:
        return any(isinstance(n, loop_ir.Late) for n in self.around)


def verify(launch: loop_ir.Launch, plan: Plan) -> None:
    """Raises IllFormedError with the first rule that a launch breaks."""
    nodes = (*launch.nodes, *launch.after)
    _lists(nodes, ())
    _grid(launch)
    places = list(_places(nodes, ()))
    _bodies(launch, plan, places)
    _sums(launch, [p for p in places if not p.is_late], is_whole=True)
    _sums(launch, [p for p in places if p.is_late], is_whole=False)
    _rescaled(launch, plan, places)
    _blocks(launch, places)
    _ordered_blocks(launch, plan, places)
    _fragments(launch, plan)
    _transposed(launch, plan)
    _warp_tiles(launch, plan)
    _sorted_by_length(plan, places)


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise IllFormedError(what)


def _places(
    nodes: Sequence[loop_ir.Node],
    around: tuple[loop_ir.Loop | loop_ir.Late | loop_ir.Alone | loop_ir.InBlocks, ...],
) -> Iterator[_PhasePlace]:
    for n in nodes:
        match n:
            case loop_ir.Loop() | loop_ir.Late() | loop_ir.Alone() | loop_ir.InBlocks():
                yield from _places(n.children, (*around, n))
            case loop_ir.Barrier() | loop_ir.GridBarrier():
                pass
            case loop_ir.JoinedBodies(tasks):
                for t in tasks:
                    yield _PhasePlace(loop_ir.TileBody(t), around)
            case _:
                yield _PhasePlace(n, around)


def _lists(nodes: Sequence[loop_ir.Node], around: tuple[loop_ir.Node, ...]) -> None:
    """Verifies loops, barriers and `Alone` nodes, one list of sibling nodes after the other."""
    for before, n in zip((None, *nodes), nodes, strict=False):
        match n:
            case loop_ir.Loop():
                _loop(n, around)
            case loop_ir.Late(loop):
                shared = [x for x in around if isinstance(x, loop_ir.Loop) and x.is_parallel]
                _expect(bool(shared), "a shifted task is in no loop of the threads")
                _expect(
                    loop.members == shared[-1].members and not loop.children,
                    "a shifted task names another loop than the one around it",
                )
            case loop_ir.InBlocks(task, n_colours, children):
                _in_blocks(task, n_colours, children, around)
            case loop_ir.Alone(n_threads, children):
                _expect(n_threads > 0 and bool(children), "nobody is alone, or with nothing")
                few = any(isinstance(x, loop_ir.Alone) for x in around)
                _expect(not few, "few threads of few threads are alone")
            case loop_ir.Barrier():
                apart = any(
                    isinstance(x, loop_ir.Late | loop_ir.Alone)
                    or (isinstance(x, loop_ir.Loop) and x.schedule in loop_ir.OF_TEAMS)
                    for x in around
                )
                _expect(not apart, "a barrier where threads have parted")
                met = isinstance(before, loop_ir.Barrier | loop_ir.GridBarrier)
                _expect(not met, "two barriers in a row")
            case loop_ir.GridBarrier():
                _expect(not around, "a barrier of the grid where blocks have parted")
                met = isinstance(before, loop_ir.Barrier | loop_ir.GridBarrier)
                _expect(not met, "two barriers in a row")
        if isinstance(n, loop_ir.Loop | loop_ir.Late | loop_ir.Alone | loop_ir.InBlocks):
            _expect(bool(n.children), f"nothing is in {type(n).__name__}")
            _lists(n.children, (*around, n))


def _grid(launch: loop_ir.Launch) -> None:
    """Verifies the blocks of a grid: all nests have as many along each axis, and where the grid stays, no block is apart.

    In the only nest each block has a tile.
    """
    if launch.stays:
        _expect(launch.runs is loop_ir.Runs.GRID, "a barrier of the grid in a launch without one")
        for loops, _ in loop_ir.paths(launch.nodes):
            shared = any(n.is_parallel for n in loops)
            _expect(shared, "all blocks of a grid that stays run the same body")
    if launch.runs is not loop_ir.Runs.GRID:
        return
    nests = list(loop_ir.grid_nests(launch.nodes))
    grids = {tuple(map(loop_ir.blocks_of, loops)) for loops in nests}
    _expect(len(grids) <= 1, f"nests of one grid have {sorted(grids)} blocks")
    for loop in (loop for loops in nests for loop in loops):
        n_tiles = -(-loop.extent // loop.step)
        each = loop.n_blocks < n_tiles or len(nests) > 1
        _expect(each, f"loop {loop.members} has {loop.n_blocks} blocks for {n_tiles} tiles")
        is_plain = len(nests) == 1 or loop.band == 1
        _expect(is_plain, f"loop {loop.members} in bands is one of several nests")


def _in_blocks(
    task: int, n_colours: int, children: Sequence[loop_ir.Node], around: tuple[loop_ir.Node, ...]
) -> None:
    """Verifies an `InBlocks` node: its loop belongs to the task alone, and all threads reach its barriers."""
    is_own = (
        len(children) == 1
        and isinstance(children[0], loop_ir.Loop)
        and [m.task for m in children[0].members] == [task]
    )
    _expect(is_own, f"a loop that runs in blocks is none of task {task} alone")
    _expect(n_colours >= 0, f"task {task} has no colour")
    is_shared = is_own and isinstance(children[0], loop_ir.Loop) and children[0].is_parallel
    apart = any(
        isinstance(x, loop_ir.Alone) or (isinstance(x, loop_ir.Loop) and x.is_parallel)
        for x in around
    )
    _expect(
        not (is_shared and apart), f"blocks of task {task} are shared out where threads have parted"
    )


def _ordered_blocks(launch: loop_ir.Launch, plan: Plan, places: Sequence[_PhasePlace]) -> None:
    """Verifies that the iterations of an `InBlocks` node have been sorted, or their blocks coloured, before it.

    An earlier task may have coloured them, in an earlier launch too.
    """
    for k, p in enumerate(places):
        if not any(isinstance(x, loop_ir.InBlocks) for x in p.around):
            continue
        t = p.phase.task
        colouring = plan.tasks[t].colouring
        maker = t if colouring is None else colouring.maker
        before = [(q.phase.task, type(q.phase)) for q in places[:k]]
        found = [(u, x) for u, x in before if u in (t, maker) and x in (*_SORT, *_COLOURING)]
        wanted = [(maker, x) for x in (_SORT if colouring is None else _COLOURING)]
        is_elsewhere = colouring is not None and maker not in launch.tasks and maker < t
        _expect(
            found == ([] if is_elsewhere else wanted),
            f"blocks of task {t} are neither sorted nor coloured before",
        )


def _fragments(launch: loop_ir.Launch, plan: Plan) -> None:
    """Verifies that copies read in vectors have whole, aligned vectors of a thread's register tile in each row."""
    for t in launch.tasks:
        task = plan.tasks[t]
        for site, width in task.fragments.items():
            operand = next((o for o in task.copies if o.site == site), None)
            _expect(operand is not None, f"task {t} reads vectors of {site}, which is not copied")
            assert operand is not None
            array = plan.problem.array(operand.access.array)
            is_transposed, gap = rows_of_layout(task.layouts.get(site, "PLAIN"))
            row = task.loop(row_order(operand, array, is_transposed=is_transposed)[-1])
            is_whole = width > 1 and row.inner % width == 0
            is_near = row.spread == 1 and not row.is_vector and gap != "ODD"
            _expect(is_whole and is_near, f"task {t} reads vectors of {site} across its rows")


def _transposed(launch: loop_ir.Launch, plan: Plan) -> None:
    """Verifies that transposed blocks are those of copied operands without a border, along two loops at least."""
    for t in launch.tasks:
        task = plan.tasks[t]
        for site in (x for x, layout in task.layouts.items() if rows_of_layout(layout)[0]):
            operand = next((o for o in task.copies if o.site == site), None)
            is_block = operand is not None and not operand.is_window and len(operand.loops) > 1
            _expect(is_block, f"task {t} transposes {site}, which is no copied block")


def _warp_tiles(launch: loop_ir.Launch, plan: Plan) -> None:
    """Verifies that a warp that is a rectangle has its threads along the two fastest loops, which are of results."""
    for t in launch.tasks:
        task = plan.tasks[t]
        tile = task.warp_tile
        if tile:
            names, along = task.threads[:2], [task.loop(name) for name in tile]
            is_fastest = len(tile) == 2 and set(tile) == set(names)
            _expect(
                is_fastest,
                f"warps of task {t} lie along {list(tile)}, and threads along {list(names)}",
            )
            is_whole = prod(tile.values()) == WARP and all(
                p.mid % tile[p.loop.name] == 0 and not p.loop.is_reduction for p in along
            )
            _expect(is_whole, f"warps of task {t} are no rectangles of its threads")


def _sorted_by_length(plan: Plan, places: Sequence[_PhasePlace]) -> None:
    """Verifies that a sort by length is once before the loop of its task, which is the task's alone, and in no loop itself."""
    sorts = [k for k, p in enumerate(places) if isinstance(p.phase, loop_ir.SortByLength)]
    tasks = [places[k].phase.task for k in sorts]
    _expect(len(set(tasks)) == len(tasks), f"tasks {tasks} are sorted twice")
    for k, t in zip(sorts, tasks, strict=True):
        _expect(plan.tasks[t].by_length is not None, f"task {t} is sorted, but has no order")
        _expect(not places[k].loops, f"task {t} is sorted in a loop")
        behind = [p for p in places[k:] if p.phase == loop_ir.TileBody(t)]
        own = all(m.task == t for p in behind for n in p.loops for m in n.members)
        _expect(len(behind) == 1 and own, f"task {t} is not sorted before a loop of its own")


def _loop(loop: loop_ir.Loop, around: tuple[loop_ir.Node, ...]) -> None:
    names = f"loop {loop.members}"
    _expect(bool(loop.members) and loop.extent > 0 and loop.step > 0, f"{names} is empty")
    _expect(len(set(loop.members)) == len(loop.members), f"{names} has a member twice")
    _expect(all(m.level == loop.level for m in loop.members), f"{names} is of two levels")
    _expect(loop.level in (OUTER, MID), f"{names} has no level of a loop")
    _expect(not loop.is_last or loop.is_parallel, f"{names} has no last iteration of a thread")
    is_shared = loop.schedule is loop_ir.Schedule.BLOCKED
    whole = loop.unit >= 0 and (loop.unit == 0 or (is_shared and loop.step % loop.unit == 0))
    _expect(whole, f"{names} gives threads parts of {loop.unit} of {loop.step}")
    is_strided = loop.schedule is loop_ir.Schedule.GRID_STRIDE
    _expect(not loop.ends or loop.repeats, f"{names} has a block a tile, and ends where a run says")
    _expect(
        not loop.ends or loop.step == 1 or is_strided, f"{names} in steps ends where a run says"
    )
    n_tiles = -(-loop.extent // loop.step)
    is_counted = loop.n_blocks > 0 if is_strided else loop.n_blocks == 0
    _expect(is_counted, f"{names} has {loop.n_blocks} blocks for {n_tiles} tiles")
    if loop.band != 1:
        inside = [x.schedule for x in loop_ir.loops_in(loop.children) if x.is_parallel]
        is_of_rows = [loop.schedule, *inside] == [loop_ir.Schedule.GRID] * 2
        _expect(loop.band > 1 and is_of_rows, f"{names} in bands is not around one loop of blocks")
    if loop.loads_ahead:
        holds_one = len(loop.children) == 1 and isinstance(loop.children[0], loop_ir.TileBody)
        is_step = loop.level == MID and not loop.is_parallel and len(loop.members) == 1
        _expect(holds_one and is_step, f"{names} loads ahead around more than one register tile")
    _expect(
        loop.strips is None or not (loop.is_parallel or loop.is_last),
        f"{names} of the threads is in strips",
    )
    outside = [x.schedule for x in around if isinstance(x, loop_ir.Loop)]
    if loop.is_parallel:
        _expect(loop.level == OUTER, f"{names} is shared out inside of a tile")
        is_even = loop.schedule not in (loop_ir.Schedule.GUIDED, loop_ir.Schedule.BALANCED)
        is_outermost = not any(isinstance(x, loop_ir.Loop) for x in around) and not loop.is_last
        _expect(is_even or is_outermost, f"{names} is in a loop, and in parts that a launch begins")
        _expect(not any(s in loop_ir.OF_TEAMS for s in outside), f"{names} is shared out twice")
        is_few = any(isinstance(x, loop_ir.Alone) for x in around)
        _expect(not is_few, f"{names} is shared out to few threads")


def _bodies(launch: loop_ir.Launch, plan: Plan, places: Sequence[_PhasePlace]) -> None:
    """Verifies that each task has one body (two if it is retimed), each inside each of the task's loops exactly once."""
    found = [p for p in places if isinstance(p.phase, loop_ir.TileBody)]
    for t in launch.tasks:
        planned = plan.tasks[t]
        is_alone = launch.runs is not loop_ir.Runs.GRID or len(launch.tasks) == 1
        _expect(
            is_alone or planned.compaction == "SERIAL", f"task {t} shares the blocks of its lists"
        )
        _expect(
            is_alone or planned.settling == "ONE_THREAD", f"task {t} shares the blocks of its pools"
        )
        is_shared = planned.is_parallel or bool(planned.threads)
        is_able = bool(planned.states) or not planned.activates
        what = f"task {t}: threads activate cells of states that one changes"
        _expect(is_able or not is_shared, what)
    once = sorted(p.phase.task for p in found if not p.is_late)
    _expect(once == sorted(launch.tasks), f"bodies of tasks {once}, not of {launch.tasks}")
    late = [p.phase.task for p in found if p.is_late]
    _expect(len(set(late)) == len(late), "a task is shifted twice")
    for place in found:
        t = place.phase.task
        task = plan.tasks[t]
        _expect(
            not place.is_late or task.shift is not None, f"task {t} runs late, but was not shifted"
        )
        own = [m for n in place.loops for m in n.members if m.task == t]
        wanted = [Member(t, p.loop.name, OUTER) for p in task.loops]
        wanted += [Member(t, p.loop.name, MID) for p in task.loops if p.has_mid_loop]
        _expect(
            sorted(own, key=repr) == sorted(wanted, key=repr),
            f"the body of task {t} is inside {own}, not inside {wanted}",
        )
        for m in own:
            outer = Member(t, m.loop, OUTER)
            _expect(own.index(outer) <= own.index(m), f"{m} is not inside {outer}")


_SUMS = (
    loop_ir.FillSums,
    loop_ir.PrefetchSums,
    loop_ir.ResetSums,
    loop_ir.TileBody,
    loop_ir.FlushSums,
    loop_ir.ReduceThreads,
    loop_ir.FinishSums,
    loop_ir.CombineSums,
)
_STEPS = {
    loop_ir.FillSums: 0,
    loop_ir.PrefetchSums: 1,
    loop_ir.ResetSums: 2,
    loop_ir.TileBody: 3,
    loop_ir.ReduceThreads: 4,
    loop_ir.FlushSums: 5,
    loop_ir.FinishSums: 6,
    loop_ir.CombineSums: 6,
}


def _sums(launch: loop_ir.Launch, places: Sequence[_PhasePlace], is_whole: bool) -> None:
    """Verifies that the phases of each reduction occur once, in the right order.

    `is_whole`: all phases that the accumulators need must exist.
    """
    for t, sums in launch.accumulators.items():
        kinds = [type(p.phase) for p in places if p.phase.task == t and isinstance(p.phase, _SUMS)]
        if not kinds:
            continue
        steps = [_STEPS[k] for k in kinds]
        words = ", ".join(k.__name__ for k in kinds)
        _expect(steps == sorted(set(steps)), f"task {t} sums up in the order {words}")
        if not is_whole:
            continue
        _expect(
            (loop_ir.FillSums in kinds) == sums.in_memory, f"sums of task {t} in memory: {words}"
        )
        _expect(
            (loop_ir.ResetSums in kinds) != sums.flushes_at_body, f"sums of task {t} begin: {words}"
        )
        ends = {loop_ir.FlushSums, loop_ir.FinishSums, loop_ir.CombineSums} & set(kinds)
        _expect(bool(ends), f"sums of task {t} go nowhere: {words}")


def _rescaled(launch: loop_ir.Launch, plan: Plan, places: Sequence[_PhasePlace]) -> None:
    """Verifies that each rescaled sum is corrected once, between the tile of the running result and its own tile.

    Running results in its terms are advanced before. All of these phases are in the same loops, the
    innermost of which is a reduction loop.
    """
    for t in launch.accumulators:
        rescaled = plan.tasks[t].rescaled
        found = [k for k, p in enumerate(places) if p.phase == loop_ir.RescaleSums(t)]
        _expect(
            len(found) == (rescaled is not None),
            f"sums of task {t} are rescaled {len(found)} times",
        )
        if rescaled is None:
            continue
        held = places[found[0]].loops
        for base, pairs in zip(rescaled.bases, rescaled.pairs, strict=True):
            wanted = [
                loop_ir.TileBody(base),
                loop_ir.AdvanceSums(base),
                loop_ir.RescaleSums(t),
                loop_ir.TileBody(t),
            ]
            steps = [p.phase for p in places if p.phase in wanted]
            _expect(steps == wanted, f"sums of task {t} are rescaled in the order {steps}")
            both = all({base, t} <= {m.task for m in n.members} for n in held)
            reduced = {name for pair in pairs for name in pair}
            inside = held and any(m.loop in reduced for m in held[-1].members if m.task == t)
            _expect(
                bool(both and inside),
                f"sums of task {t} are rescaled outside of a loop with task {base}",
            )
            _expect(not launch.accumulators[base].in_memory, f"task {t} reads sums in memory")


def _blocks(launch: loop_ir.Launch, places: Sequence[_PhasePlace]) -> None:
    """Verifies that operand blocks are packed before the body that reads them.

    Asynchronous copies start before their loop, and advance at its head.
    """
    bodies = {
        p.phase.task: k for k, p in enumerate(places) if isinstance(p.phase, loop_ir.TileBody)
    }
    kinds: dict[tuple[int, str], list[type[loop_ir.Phase]]] = {}
    for k, place in enumerate(places):
        match place.phase:
            case loop_ir.PackBlock(t, o) | loop_ir.PackFirstBlock(t, o) | loop_ir.OpenBlock(t, o):
                _expect(k < bodies[t], f"{o.site} is packed when task {t} has used it")
            case loop_ir.PackRest(t):
                _expect(k > bodies[t], f"the rest is packed before task {t} begins")
        match place.phase:
            case loop_ir.PackFirstBlock(t, o) | loop_ir.OpenBlock(t, o) | loop_ir.PackRest(t, o):
                kinds.setdefault((t, o.site), []).append(type(place.phase))
            case loop_ir.StartCopies(_, holder):
                names = [n.members for n in place.loops]
                _expect(holder.members not in names, "copies start inside the loop they are for")
            case loop_ir.AwaitCopies(_, holder) | loop_ir.AdvanceCopies(_, holder):
                inside = place.loops and place.loops[-1].members == holder.members
                _expect(bool(inside), "copies of a loop are not at its head")
    for key in launch.buffers:
        in_order = [loop_ir.PackFirstBlock, loop_ir.OpenBlock, loop_ir.PackRest]
        _expect(kinds.get(key) == in_order, f"the two blocks of {key} have {kinds.get(key)}")
    _expect(kinds.keys() <= launch.buffers.keys(), "blocks are opened of which there is one only")
