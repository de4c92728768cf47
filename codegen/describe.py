"""Description of a candidate in words, topic by topic, so that two implementations can be compared.

Bodies are described too: one phrase for each task that is not a plain assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..kernels.analysis.scatters import scatters as scatters_of
from ..kernels.tasks.non_affine import NonAffineTask
from ..space import choices as ch
from ..space.backbone import MID
from ..space.candidate import Candidate
from ..space.catalogue import PHRASES
from ..space.families.guard import PHRASES as GUARDS
from ..space.families.packing import rows_of_layout
from ..space.targets.kind import CPU, GPU
from .loops.ir import JoinedBodies, Launch, Owner, phases_of
from .passes.pipeline import launches_of
from .plan.candidates import plan_of
from .plan.plan import LoopPlan, Plan, PlannedLoop, PlannedNode, TaskPlan, tasks_of
from .plan.summary import decisions, warps_of

Words = dict[str, tuple[str, ...]]
"""Topic -> phrases. The topics are launches, fused loops, loop order, threads, tiles, values,
branches, scatters, stores, packing, reductions and those that families add; equal phrases of two implementations mean the same.
"""

_WHERE = {
    "REGISTER": "in a register",
    "SHARED": "in an array of the thread's own",
    "GLOBAL": "through memory",
}
_WHERE_ON_GPU = {**_WHERE, "SHARED": "in shared memory"}
_LAYOUTS = {
    "PLAIN": "",
    "ODD": ", rows an element apart",
    "PADDED": ", rows 16 bytes apart",
    "SWIZZLED": ", vectors in another order in each row",
}
_HINTS = {
    "CG": "past the caches of single multiprocessors",
    "READ_ONLY": "through the read-only path",
    "STREAM": "as streams",
}
_SCATTERS = {
    ch.BY_ATOMICS: "each atomically",
    ch.PRIVATE: "in a copy of it for each thread, and adds the copies up at the end",
    ch.SORTED: "in place, slab by slab, for which it sorts its iterations; no two threads conflict",
    ch.COLOUR: "in place, block by block, for which it sorts its iterations; no two threads conflict",
    ch.GREEDY: "in place, by blocks of iterations coloured by what they update; no two threads conflict",
    ch.TILE: "in a tile for each block, for which it sorts its iterations; tiles are added where no two threads conflict",
}
_ACCUMULATORS = {
    Owner.REGISTERS: "in registers",
    Owner.THREAD: "in an array of the thread's own",
    Owner.TEAM: "in one array of all threads, a part for each",
    Owner.PARTIALS: "into a partial result for each thread, combined behind a barrier",
}
_IN_RESULT = "where the result is stored"
_SHAPES = {
    "straight": "statements that always run",
    "guarded": "statements in branches",
    "loops": "loops of run-time length",
}


def describe(candidate: Candidate) -> Words:
    """Returns the decisions of a complete candidate in words."""
    plan = plan_of(candidate)
    if plan.is_standalone:
        launches_of_calls = (_launch(plan, roots) for roots in plan.launches)
        return {
            "launches": (*phrases(plan, "launches"), *launches_of_calls),
            "threads": decisions(plan),
        }
    words, launches = _WORDS[plan.target.kind], launches_of(plan, plan.target)
    found = {
        "launches": tuple(_launch(plan, roots) for roots in plan.launches),
        "fused loops": tuple(_fused(plan)),
        "loop order": tuple(_order(plan)),
        "threads": tuple(words.threads(plan)),
        "tiles": tuple(_tiles(plan)),
        "values": tuple(_values(plan, words.where)),
        "branches": (),
        "scatters": tuple(scatters(plan)),
        "stores": tuple(_stores(plan)),
        "packing": tuple(_packing(plan)),
        "reductions": tuple(words.reductions(plan, launches)),
    }
    for topic in dict.fromkeys(p.topic for p in PHRASES):
        found[topic] = (*found.get(topic, ()), *phrases(plan, topic))
    return found


# --- topics --------------------------------------------------------------------------------------


def _launch(plan: Plan, roots: tuple[PlannedNode, ...]) -> str:
    members = [plan.tasks[t].task for root in roots for t in tasks_of(root)]
    n_runs, tasks = members[0].n_runs, [t.name for t in members]
    again = f", {n_runs} times" if n_runs > 1 else ""
    ends = [loop for loop in members[0].repeats if loop.until]
    again += "".join(f", in steps until {loop.until}" for loop in ends)
    if len(tasks) == 1:
        return f"{tasks[0]} in a launch of its own{again}"
    return f"{_listed(tasks)} in one launch{again}"


def _fused(plan: Plan) -> Iterator[str]:
    for loop in _loops(plan):
        if len({m.task for m in loop.members}) > 1:
            yield " = ".join(_loop_name(plan, m.task, m.loop, m.level) for m in loop.members)


def _order(plan: Plan) -> Iterator[str]:
    for t in plan.tasks:
        around = next(_around(root, t.index) for root in _roots(plan) if t.index in tasks_of(root))
        if around:
            own = (m for loop in around for m in loop.members if m.task == t.index)
            yield f"{t.task.name}: " + " around ".join(_short(m.loop, m.level) for m in own)


_SHARES = {
    "BLOCKED": "",
    "CYCLIC": " cyclically",
    "GUIDED": " in parts of the remaining iterations",
    "BALANCED": " by the work of its rows",
}


def _threads(plan: Plan) -> Iterator[str]:
    for t in plan.tasks:
        shared = [p.loop.name + _SHARES[p.schedule] for p in t.loops if p.is_parallel]
        shares = f"shares {_listed(shared)} out to the threads" if shared else "runs on one thread"
        if t.wave is not None:
            shares = f"runs by wavefronts of tiles of {t.wave.rows} x {t.wave.columns}" + (
                " in diagonals" * t.wave.along_diagonals
            )
        yield f"{t.task.name} {shares}"


def _blocks(plan: Plan) -> Iterator[str]:
    for t in plan.tasks:
        blocks = [p.loop.name + _in_turn(p) for p in t.loops if p.is_parallel]
        threads = [f"{p.loop.name} out to {p.mid} threads" for p in t.loops if p.is_thread]
        parts = [f"{_listed(blocks)} out to blocks"] if blocks else []
        shares = " and ".join([*parts, *threads])
        if len(t.threads) > 1:
            shares += f", neighbours along {_listed(list(t.threads))}"
        if t.warp_tile:
            shares += f", in {warps_of(t)}"
        yield f"{t.task.name} " + (f"shares {shares}" if shares else "runs on one thread")


def _in_turn(p: LoopPlan) -> str:
    return f" in turn ({p.n_blocks})" if p.n_blocks else ""


def _tiles(plan: Plan) -> Iterator[str]:
    for t in plan.tasks:
        parts = [part for p in t.loops for part in _tile(p)]
        parts += [f"{x.loop} by {x.width} in vectors along the range" for x in t.ranges]
        if parts:
            yield f"{t.task.name}: " + ", ".join(parts)


def _tile(p: LoopPlan) -> Iterator[str]:
    if p.inner > 1:
        form = "in vectors" if p.is_vector else "unrolled"
        yield f"{p.loop.name} by {p.inner} {form}" + ("" if p.divides else " (does not divide)")
    if p.has_mid_loop:
        yield f"{p.loop.name} in blocks of {p.tile}"


def _values(plan: Plan, words: Mapping[str, str]) -> Iterator[str]:
    tasks = plan.tasks
    for t in tasks:
        for when in dict.fromkeys(ahead.words for ahead in t.prefetches):
            yield f"{t.task.name} prefetches its inputs {when}"
        if t.asks_for_sums:
            yield f"{t.task.name} prefetches its accumulators before it adds to them"
        for array, hint in t.load_hints.items():
            yield f"{t.task.name} reads {array} {_HINTS[hint]}"
        if t.shift is not None:
            behind = tasks[t.shift.producer].task.name
            yield f"{t.task.name} runs in the loop of {behind}, shifted by one iteration of {t.shift.shared[1]}"
    for f in plan.flows:
        value = plan.choice("mem_space", f)
        if f.is_read:
            if value == ch.MEM_SPACE[ch.SHARED]:
                readers = tasks[f.producer].task.name, tasks[f.consumer].task.name
                yield f"{readers[0]} keeps the elements of {f.array} that it reads for {readers[1]}"
            continue
        yield (
            f"{f.array} goes from {tasks[f.producer].task.name} to {tasks[f.consumer].task.name}"
            f" {words[value]}"
        )


def phrases(plan: Plan, topic: str) -> Iterator[str]:
    """Yields the phrases of all families on one topic (`Family.phrases`).

    The phrases are about parts of sparse trees, tasks, and places in bodies of tasks.
    """
    told = [p for p in PHRASES if p.topic == topic]
    for p in told:
        for site, value in plan.of_trees(p.kind):
            yield from [f"{site.name} {p.long[value]}"] if value in p.long else ()
    for t in plan.tasks:
        said = [x for p in told if (x := p.long.get(plan.choice(p.kind, t.index)))]
        if said:
            yield f"{t.task.name} {', '.join(said)}"
        for p in told:
            for place, value in plan.places(p.kind, t.index):
                if value in p.long:
                    yield f"{place} {p.long[value]}"


def scatters(plan: Plan) -> Iterator[str]:
    """Yields phrases about the scatters (updates of elements that iterations share), task by task."""
    for t in plan.tasks:
        yield from (f"{t.task.name} {words}" for words in scatters_of_task(plan, t))


def scatters_of_task(plan: Plan, t: TaskPlan) -> Iterator[str]:
    """Yields the phrases of `scatters` for one task, without its name."""
    for x in t.scatters:
        size = "" if x.blocks is None else f" (blocks of {_cells(x.blocks.cells)})"
        if x.how == ch.GREEDY and t.colouring is not None:
            size = f" (blocks of {t.colouring.n_iterations})"
        yield f"updates {x.array} {_SCATTERS[x.how]}{size}"
    shared = {x.array for x in t.scatters}
    alone = [x.array for x in scatters_of(t.task, plan.problem) if x.array not in shared]
    if alone:
        yield f"updates {_listed(alone)} by one thread, in order"


def _cells(cells: tuple[int, ...]) -> str:
    return " x ".join(map(str, cells))


def _stores(plan: Plan) -> Iterator[str]:
    for t in plan.tasks:
        if not t.is_stored:
            yield f"{t.task.target.array} of {t.task.name} is never written"
        elif t.is_streamed:
            yield f"{t.task.target.array} of {t.task.name} is streamed around the caches"


def _packing(plan: Plan) -> Iterator[str]:
    for t in plan.tasks:
        for o in t.copies:
            if o.is_window:
                yield f"{t.task.name} copies blocks of {o.site} with their borders before it uses them"
                continue
            n = t.stages[o.site]
            is_transposed, gap = rows_of_layout(t.layouts.get(o.site, "PLAIN"))
            layout = ", transposed" * is_transposed + _LAYOUTS[gap]
            early = "" if n == 1 else f", {n - 1} ahead of the one in use"
            who = ", all threads together" if o.site in t.by_team else ""
            width = t.fragments.get(o.site)
            read = f", and reads them in vectors of {width}" if width else ""
            yield f"{t.task.name} packs blocks of {o.site} before it uses them{who}{early}{layout}{read}"


def _reductions(plan: Plan, launches: Sequence[Launch]) -> Iterator[str]:
    accumulators = {t: found for launch in launches for t, found in launch.accumulators.items()}
    for t in plan.tasks:
        if t.index not in accumulators:
            continue
        found = accumulators[t.index]
        lanes = [p.loop.name for p in t.loops if p.has_lanes]
        apart = f", an accumulator for each copy of {_listed(lanes)}" if lanes else ""
        place = _IN_RESULT if found.in_result else _ACCUMULATORS[found.owner]
        yield f"{t.task.name} reduces {place}{apart}"


def _block_reductions(plan: Plan, _: Sequence[Launch]) -> Iterator[str]:
    for t in plan.tasks:
        if not t.task.is_reduction:
            continue
        ways = ["in registers"]
        ways += ["the threads of a block together"] if t.has_tree else []
        by = "the last block" if t.by_last_block else "a launch"
        ways += [f"into a partial result for each block, combined by {by}"] if t.partials else []
        ways += ["into one result of all blocks, atomically"] if t.is_atomic else []
        lanes = [p.loop.name for p in t.loops if p.has_lanes]
        apart = f", an accumulator for each copy of {_listed(lanes)}" if lanes else ""
        yield f"{t.task.name} reduces {', '.join(ways)}{apart}"


@dataclass(frozen=True)
class _KindWords:
    """Phrases that depend on the kind of target: for where loops run, for threads, and for reductions."""

    where: Mapping[str, str]
    threads: Callable[[Plan], Iterator[str]]
    reductions: Callable[[Plan, Sequence[Launch]], Iterator[str]]


_WORDS = {
    CPU: _KindWords(_WHERE, _threads, _reductions),
    GPU: _KindWords(_WHERE_ON_GPU, _blocks, _block_reductions),
}


# --- bodies --------------------------------------------------------------------------------------


def body_words(plan: Plan, launches: Sequence[Launch]) -> Iterator[str]:
    """Yields one phrase for each task with a guard or a body of statements.

    The phrase names the form of the body, the reason why it is no plain assignment, and its
    threads, lanes and scatters. `describe` says what calls that are not split do.
    """
    for t in () if plan.is_standalone else plan.tasks:
        if t.task.body is not None or t.task.is_guarded:
            yield f"{t.task.name}: {', '.join(_body(plan, t, launches))}"


def _body(plan: Plan, t: TaskPlan, launches: Sequence[Launch]) -> Iterator[str]:
    body = t.task.body
    if body is None:
        guard = plan.choice(GUARDS.kind, t.index)
        yield f"an assignment under a condition ({GUARDS.short.get(guard, guard)})"
    else:
        yield f"{_SHAPES[body.shape]} ({NonAffineTask(t.task.name, body.reason)})"
    if t.wave is not None:
        yield f"wavefronts of tiles of {t.wave.rows} x {t.wave.columns}"
    elif t.is_parallel:
        shared = [p.loop.name for p in t.loops if p.is_parallel]
        yield f"{' and '.join(shared)} shared by threads"
    else:
        yield "on one thread"
    if t.vector is not None:
        masked = " with masks" if body is not None and body.shape != "straight" else ""
        yield f"{t.vector.loop.name} in {t.vector.inner} lanes{masked}"
    yield from (f"{x.loop} in {x.width} lanes along the range" for x in t.ranges)
    if t.vector is None and not t.ranges:
        yield "one iteration at a time"
    yield from scatters_of_task(plan, t)
    for launch in launches:
        for joined in (x for node in launch.nodes for x in phases_of(node)):
            if isinstance(joined, JoinedBodies) and {t.index} < {*joined.tasks}:
                others = [plan.tasks[k].task.name for k in joined.tasks if k != t.index]
                yield f"one body with {' and '.join(others)}, equal values computed once"


# --- words ---------------------------------------------------------------------------------------


def _roots(plan: Plan) -> Iterator[PlannedNode]:
    for roots in plan.launches:
        yield from roots


def _loops(plan: Plan) -> Iterator[PlannedLoop]:
    waiting = list(_roots(plan))
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, PlannedLoop):
            yield node
            waiting = [*node.children, *waiting]


def _around(node: PlannedNode, task: int) -> list[PlannedLoop]:
    """Returns the loops around a task's body in a loop forest, outermost first."""
    if not isinstance(node, PlannedLoop):
        return []
    inside = next(c for c in node.children if task in tasks_of(c))
    return [node, *_around(inside, task)]


def _loop_name(plan: Plan, task: int, loop: str, level: int) -> str:
    return f"{_short(loop, level)} of {plan.tasks[task].task.name}"


def _short(loop: str, level: int) -> str:
    return f"{loop} (in its block)" if level == MID else loop


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
