"""What an implementation makes use of, by name: so that a sample can say what it has covered."""

from __future__ import annotations

from collections.abc import Sequence

from ..codegen.loops.ir import Alone, Barrier, Launch, Loop, Node, Owner
from ..codegen.passes.pipeline import launches_of
from ..codegen.plan.candidates import plan_of
from ..codegen.plan.plan import TaskPlan
from ..codegen.text.source import Source
from ..space.candidate import Candidate

FEATURES = (
    "several launches", "several tasks in a launch", "merged loops", "PARALLEL", "PARALLEL in a LOOP",
    "barrier", "mid tiles", "UNROLL", "VECTOR", "partial tiles", "SEQUENTIAL reduction", "LANES", "PARTIALS",
    "accumulators in memory", "accumulators of the team", "REGISTER", "SHARED", "GLOBAL", "ELIDED", "COPY", "copies ahead",
    "kept and written", "input kept", "STREAM", "PREFETCH", "one iteration late", "tiles in turn",
    "closed task", "register tiles of two loops", "reduction in order",
)  # fmt: skip
GPU_FEATURES = (
    "several launches", "several tasks in a launch", "BLOCK", "THREAD", "LOOP", "UNROLL", "VECTOR", "partial tiles", "TREE",
    "tree over warps", "PARTIALS", "ATOMIC", "LAST_BLOCK", "LANES", "REGISTER", "SHARED", "STREAM", "COPY", "copies ahead",
    "PADDED", "SWIZZLED", "transposed copies", "fragments", "loads ahead", "warp tiles", "tiles in turn", "grid that stays",
    "load hints", "barrier", "closed task", "blocks of two dims", "blocks of three dims",
)  # fmt: skip


def features(candidate: Candidate) -> set[str]:
    """Which of FEATURES an implementation for the CPU uses."""
    plan = plan_of(candidate)
    launches = launches_of(plan, candidate.space.target)
    on_chip = {f for t in plan.tasks for f in (*t.registers, *t.shared, *t.kept)}
    used = {name for launch in launches for name in _tree_features(launch.nodes, inside_loop=False)}
    used |= _accumulator_features(launches)
    used |= {"several launches"} if len(launches) > 1 else set()
    used |= {"several tasks in a launch"} if any(len(x.tasks) > 1 for x in launches) else set()
    used |= {"GLOBAL"} if set(plan.flows) - on_chip else set()
    return used.union(*(_task_features(t) for t in plan.tasks))


def gpu_features(candidate: Candidate, source: Source) -> set[str]:
    """Which of GPU_FEATURES an implementation for a GPU uses."""
    plan = plan_of(candidate)
    kernels = source.text[source.text.find("launch_0(") :]
    facts = {
        "several launches": len(source.launches) > 1,
        "several tasks in a launch": len(plan.launches) < len(plan.tasks),
        "tree over warps": " meeting[" in kernels,
        "barrier": "__syncthreads" in kernels,
        "blocks of two dims": any(x.block[1] > 1 == x.block[2] for x in source.launches),
        "blocks of three dims": any(x.block[2] > 1 for x in source.launches),
        "grid that stays": any(x.stays for x in source.launches),
    }
    used = {name for name, holds in facts.items() if holds}
    return used.union(*(_gpu_task_features(t) for t in plan.tasks))


def _of_both(t: TaskPlan) -> dict[str, bool]:
    return {
        "PARTIALS": t.partials,
        "LANES": any(p.has_lanes for p in t.loops),
        "UNROLL": any(p.inner > 1 and not p.is_vector for p in t.loops),
        "VECTOR": any(p.is_vector for p in t.loops),
        "partial tiles": any(not p.divides for p in t.loops),
        "REGISTER": bool(t.registers),
        "SHARED": bool(t.shared),
        "STREAM": t.is_streamed,
        "COPY": bool(t.copies),
        "copies ahead": any(t.stages[o.site] > 1 for o in t.copies),
        "closed task": not t.task.is_structured,
    }


def _task_features(t: TaskPlan) -> set[str]:
    facts = _of_both(t)
    facts |= {
        "PARALLEL": t.is_parallel,
        "SEQUENTIAL reduction": t.task.is_reduction
        and not facts["PARTIALS"]
        and not facts["LANES"],
        "mid tiles": any(p.mid > 1 for p in t.loops),
        "kept and written": bool(t.shared) and t.is_stored,
        "input kept": bool(t.kept),
        "PREFETCH": bool(t.prefetches) and t.vector is not None,
        "tiles in turn": any(p.schedule == "CYCLIC" for p in t.loops),
        "one iteration late": t.shift is not None,
        "ELIDED": not t.is_stored,
        "register tiles of two loops": sum(p.inner > 1 for p in t.loops) > 1,
        "reduction in order": t.task.is_reduction and not t.task.fast_math,
    }
    return {name for name, holds in facts.items() if holds}


def _gpu_task_features(t: TaskPlan) -> set[str]:
    facts = _of_both(t)
    layouts = [t.layouts.get(o.site, "PLAIN") for o in t.copies]
    facts |= {
        "BLOCK": any(p.is_parallel for p in t.loops),
        "THREAD": any(p.is_thread for p in t.loops),
        "LOOP": any(p.has_mid_loop for p in t.loops),
        "TREE": t.has_tree,
        "ATOMIC": t.is_atomic,
        "LAST_BLOCK": t.by_last_block,
        "load hints": bool(t.load_hints),
        "PADDED": any(x.endswith("PADDED") for x in layouts),
        "SWIZZLED": any(x.endswith("SWIZZLED") for x in layouts),
        "transposed copies": any(x.startswith("TRANSPOSED") for x in layouts),
        "fragments": bool(t.fragments),
        "loads ahead": t.loads_ahead,
        "warp tiles": bool(t.warp_tile),
        "tiles in turn": any(p.n_blocks for p in t.loops),
    }
    return {name for name, holds in facts.items() if holds}


def _tree_features(nodes: Sequence[Node], inside_loop: bool) -> set[str]:
    used: set[str] = set()
    for n in nodes:
        if isinstance(n, Alone):
            used |= _tree_features(n.children, inside_loop)
        elif isinstance(n, Loop):
            used |= {"merged loops"} if len(n.members) > 1 else set()
            used |= {"PARALLEL in a LOOP"} if n.is_parallel and inside_loop else set()
            used |= _tree_features(n.children, inside_loop=True)
        elif isinstance(n, Barrier):
            used.add("barrier")
    return used


def _accumulator_features(launches: Sequence[Launch]) -> set[str]:
    plans = [a for launch in launches for a in launch.accumulators.values()]
    used = {"accumulators in memory"} if any(a.in_memory for a in plans) else set()
    return used | (
        {"accumulators of the team"} if any(a.owner is Owner.TEAM for a in plans) else set()
    )
