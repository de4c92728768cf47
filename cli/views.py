"""Output of commands that inspect: spaces, calibrations and replays, as text or JSON."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from ..explorer.result_text import TimeUnit
from ..explorer.results import ReplayResult
from ..explorer.stages import non_affine_rows
from ..explorer.workload import Workload, threads_of_program
from ..kernels.ir.text import show_tasks
from ..kernels.tasks.non_affine import non_affine_tasks
from ..kernels.tasks.state_flow import build_graph, show_graph
from ..kernels.tasks.task_text import stated_tasks
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.calibration import Calibration
from ..runtime.api.errors import DeviceError
from ..runtime.api.outcome import Failure
from ..runtime.device import DeviceOptions, open_device
from ..runtime.measure.timing import DISTURBED
from ..search.bound.bounder import Bounder
from ..search.bound.explain import explain
from ..search.precompile import precompile
from ..search.tree.estimate import SpaceEstimate, estimate_knuth
from ..search.tree.ordering import NextChoice
from ..space.backbone import launch_width
from ..space.build import build_space
from ..space.candidate import Candidate, DeadEnd, Space
from ..space.components import components_of
from .log import count_choices, fixed_lines, non_affine_lines, space_lines

_IN_BODY = " " * 6  # before each line of the body of a task
_BODY_LINES = 12  # of a body that are shown without -v

# --- explore show --------------------------------------------------------------------------------


def space_of(workload: Workload, target: str, profile: str | None) -> Space:
    """Returns the space of a workload on a target. Raises DeviceError.

    `profile` names the data sheet for a GPU that this machine does not have.
    """
    options = DeviceOptions(threads=threads_of_program())
    device = open_device(target, options if profile is None else replace(options, profile=profile))
    facts = device.machine.facts()
    if profile is not None and not facts.is_gpu:
        raise DeviceError(
            f"--profile names a GPU, and the target {target} is none: use --target cuda"
        )
    if not facts.is_gpu:
        is_seen = sys.stderr.isatty()
        precompile(lambda text: print(f"explore: {text}", file=sys.stderr) if is_seen else None)
    return build_space(workload.problem, facts)


def show_lines(space: Space, seed: int, n_descents: int, verbosity: int) -> Iterator[str]:
    """Yields the tasks, state-flow graph, objects, choices and size of a space, for people."""
    problem = space.problem
    yield f"{problem.name}: {problem.formula}".rstrip(": ")
    yield from ("", "Tasks")
    tasks = show_tasks(problem) if verbosity > 1 else _shortened(stated_tasks(problem))
    yield from _indented(tasks)
    yield from ("", "State-flow graph")
    yield from _indented(show_graph(build_graph(problem)))
    yield from ("", "Space")
    yield from (f"  {line}" for line in space_lines(problem, space, None))
    if launch_tasks(space) is not None:
        n = len(space.backbone.components)
        n_tasks = launch_tasks(space)
        yield f"  Launches   {n} component{'s' * (n > 1)} | of at most {n_tasks} tasks that follow one another"
    yield from (f"  {line}" for line in non_affine_lines(non_affine_tasks(problem), False))
    yield from (f"  {line}" for line in fixed_lines(space))
    root = space.root()
    if isinstance(root, DeadEnd):
        yield f"  there is no implementation: {root.choice}, {root.why}"
        return
    yield from ("", "Objects")
    yield from (f"  {line}" for line in _objects(space))
    yield from ("", "Choices          all   open  values")
    yield from (f"  {line}" for line in _kinds(space, root))
    if verbosity > 1:
        if launch_tasks(space) is not None:
            yield from ("", "Components")
            yield from (f"  {line}" for line in _components(space, root))
        yield from ("", "Fixed by propagation")
        yield from (f"  {name} = {value}" for name, value in _fixed(space, root))
        if never_worse := list(_never_worse(space, root)):
            yield from ("", "Never worse than others, which --fix may want")
            yield from (f"  {line}" for line in never_worse)
        if apart := list(_apart(space, root)):
            yield from ("", "One implementation each, beside the tree")
            yield from (f"  {line}" for line in apart)
        yield from ("", "Open")
        yield from (f"  {name}: {' '.join(values)}" for name, values in _opened(space, root))
    yield from ("", "Bound")
    yield from (f"  {line}" for line in explain(Bounder(space).bound(root), space))
    if n_descents > 0:
        yield from ("", "Size")
        yield f"  {estimate_text(estimate(space, root, seed, n_descents))}"


def launch_tasks(space: Space) -> int | None:
    """Returns the maximum number of successive tasks in one launch; None if all tasks may share one."""
    tasks = space.problem.tasks
    width = max(launch_width(tasks[c.start : c.stop]) for c in space.backbone.components)
    return width if len(tasks) > width else None


def show_fields(space: Space, seed: int, n_descents: int, verbosity: int) -> dict[str, Any]:
    """Returns the contents of `show_lines` as one JSON object."""
    problem = space.problem
    root = space.root()
    by_kind, n_choices, n_open = count_choices(space)
    fields: dict[str, Any] = {
        "event": "space",
        "problem": problem.name,
        "formula": problem.formula,
        "problem_key": problem.key,
        "space_key": space.key,
        "tasks": [t.name for t in problem.tasks],
        "non_affine": non_affine_rows(non_affine_tasks(problem)),
        "choices": n_choices,
        "open": n_open,
        "open_by_kind": by_kind,
        "constraints": len(space.model.declarations),
        "components": len(space.backbone.components),
        "launch_tasks": launch_tasks(space),
        "feasible": isinstance(root, Candidate),
        "fixed": dict(space.fixed),
    }
    if isinstance(root, Candidate):
        if verbosity > 1:
            fields["open_choices"] = dict(_opened(space, root))
        bound = Bounder(space).bound(root)
        fields |= {"bound_ns": bound.ns, "limiting": bound.limiting}
        if n_descents > 0:
            e = estimate(space, root, seed, n_descents)
            fields["implementations"] = [e.n_leaves.mean, e.n_leaves.low, e.n_leaves.high]
            fields["dead_end_share"] = e.dead_end_share.mean
    return fields


def estimate(space: Space, root: Candidate, seed: int, n_descents: int) -> SpaceEstimate:
    """Returns an estimate of the number of implementations in the space, from `n_descents` random descents."""
    next_choice: Any = NextChoice(space)
    rng = np.random.default_rng(seed)
    return estimate_knuth(root, next_choice=next_choice, rng=rng, n_descents=n_descents)


def estimate_text(e: SpaceEstimate) -> str:
    """Returns the estimate in one line."""
    n, dead = e.n_leaves, e.dead_end_share
    return (
        f"about {n.mean:.2g} implementations (95%: {n.low:.2g} to {n.high:.2g}), {dead.mean:.1%}"
        f" of random descents end dead ({dead.low:.1%} to {dead.high:.1%}),"
        f" {e.mean_depth:.0f} decisions a descent; {e.n_descents} descents"
    )


def _shortened(tasks: str) -> str:
    """Returns the text of tasks with long bodies cut to their first lines; sparse scatters have hundreds."""
    kept: list[str] = []
    for is_body, group in groupby(tasks.rstrip().splitlines(), _is_in_body):
        lines = list(group)
        if is_body and len(lines) > _BODY_LINES:
            n_left = len(lines) - _BODY_LINES + 1
            lines[_BODY_LINES - 1 :] = [f"{_IN_BODY}... {n_left} more lines, which -v shows"]
        kept += lines
    return "\n".join(kept)


def _is_in_body(line: str) -> bool:
    return line.startswith(_IN_BODY) and not line.lstrip().startswith(("task ", "repeat "))


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}" if line else "" for line in text.rstrip().splitlines())


def _objects(space: Space) -> Iterator[str]:
    """Yields lines on the arrays with their sizes, then on the loops of every task."""
    for a in space.problem.arrays:
        shape = "x".join(map(str, a.shape))
        yield f"{a.role:<7} {a.name}: {a.dtype.name} {shape}, {a.size_bytes} bytes"
    dims = {d.name: d for d in space.backbone.dims}
    for k, t in enumerate(space.problem.tasks):
        own = [name for name, d in dims.items() if d.task == k]
        reduced = {loop.name for loop in t.loops if loop.is_reduction}
        shown = [
            f"{name.removeprefix(t.name + '.')}{'*' if dims[name].loop.name in reduced else ''}"
            for name in own
        ]
        yield f"body    {t.name}" + (f" with dims {' '.join(shown)}" if shown else "")
    if any(t.is_reduction for t in space.problem.tasks):
        yield "(* along a reduction)"


def _kinds(space: Space, root: Candidate) -> Iterator[str]:
    """Yields one line per kind of choice: number of choices, of open ones, and the open ones' values."""
    every = Counter(space.choices[int(v)].kind for v in space.searchable)
    opened = Counter(space.choices[int(v)].kind for v in root.open_choices())
    for kind, n in every.most_common():
        values = {
            space.choices[int(v)].values[x]
            for v in root.open_choices()
            if space.choices[int(v)].kind == kind
            for x in root.values(int(v))
        }
        shown = sorted(values, key=lambda v: (not v.isdigit(), int(v) if v.isdigit() else 0, v))
        yield f"{kind:<12} {n:>6} {opened[kind]:>6}  {' '.join(shown)}"


def _components(space: Space, root: Candidate) -> Iterator[str]:
    """Yields one line per component: its tasks, the number of its choices, and of the open ones."""
    every, opened = set(map(int, space.searchable)), set(map(int, root.open_choices()))
    for component in components_of(space):
        names = [space.problem.tasks[t].name for t in component.tasks]
        shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        n, n_open = (len(chosen & set(component.choices)) for chosen in (every, opened))
        yield f"{shown}: {n} choices, {n_open} open"


def _fixed(space: Space, root: Candidate) -> Iterator[tuple[str, str]]:
    unasked = space.variables
    others = _decided_unasked(space, (*unasked.dominated, *unasked.apart))
    for v in map(int, space.searchable):
        if not root.is_open(v) and v not in others:
            choice = space.choices[v]
            yield choice.name, choice.values[root.value(v)]


def _decided_unasked(space: Space, choices: Iterable[int]) -> dict[int, list[str]]:
    """Returns, by number, those of `choices` that have several possible values, with these.

    They are dominated choices or keep implementations apart: the tree of a search has one value of each.
    """
    whole = space.open_root()
    if isinstance(whole, DeadEnd):
        return {}
    found = {v: [space.choices[v].values[x] for x in whole.values(v)] for v in choices}
    return {v: values for v, values in found.items() if len(values) > 1}


def _never_worse(space: Space, root: Candidate) -> Iterator[str]:
    for v, values in _decided_unasked(space, space.variables.dominated).items():
        choice = space.choices[v]
        taken = choice.values[root.value(v)]
        yield f"{choice.name} = {taken}, not {' or '.join(x for x in values if x != taken)}"


def _apart(space: Space, root: Candidate) -> Iterator[str]:
    for v, values in _decided_unasked(space, space.variables.apart).items():
        choice = space.choices[v]
        taken = choice.values[root.value(v)]
        yield from (f"{choice.name} = {x}" for x in values if x != taken)


def _opened(space: Space, root: Candidate) -> Iterator[tuple[str, list[str]]]:
    for v in map(int, root.open_choices()):
        choice = space.choices[v]
        yield choice.name, [choice.values[x] for x in root.values(v)]


# --- explore calibrate ---------------------------------------------------------------------------


def measurable(target: str, compiler: str | None) -> AbstractDevice:
    """Returns the device of a target if it can run and has facts to measure. Raises DeviceError otherwise."""
    device = open_device(target, DeviceOptions(compiler=compiler))
    if not device.machine.calibrated_by:
        raise DeviceError(f"the backend {target!r} has no facts that could be measured")
    device.runner.check()
    return device


def calibration_fields(found: Calibration) -> dict[str, Any]:
    """Returns the calibration as one JSON object."""
    t = found.target
    return {
        "event": "calibration",
        "machine": found.machine,
        "calibrations": found.n_calibrations,
        "facts": {name: rate for name, rate, _ in _facts(found)},
        "spreads": dict(found.spreads),
        "alarms": found.alarms,
        "unsure": list(found.unsure),
        "other_work": found.other_work,
        "cores": t.cores,
        "vector_bytes": t.vector_bytes,
    }


def calibration_lines(found: Calibration) -> Iterator[str]:
    """Yields lines on the measured facts with their spread."""
    t = found.target
    if t.is_gpu:
        yield f"{found.machine}: {t.cores} multiprocessors, {t.architecture}"
    else:
        yield f"{found.machine}: {t.cores} cores, {8 * t.vector_bytes}-bit vectors"
    yield f"best of {found.n_calibrations} calibrations; the spread is the widest of any of them"
    for name, rate, sample in _facts(found):
        spread = found.spreads.get(sample)
        noise = "" if spread is None else f"   spread {spread:.1%}"
        doubt = "   not sure: seen once" * (sample in found.unsure)
        yield f"  {name:<28} {rate:>10.2f}{noise}{doubt}"
    if found.alarms:
        yield f"raised by {found.alarms} measurements that were below their bound"
    if found.unsure or found.other_work > DISTURBED:
        waited = f"threads waited {found.other_work:.0%} of the time for a core; "
        yield (
            waited * (found.other_work > DISTURBED)
            + "calibrate again when the machine has no other work: a rate that is too low makes bounds wrong"
        )


def _facts(found: Calibration) -> Iterator[tuple[str, float, str]]:
    """Yields (name with unit, value, name of the samples that its spread is from)."""
    t = found.target
    for level in t.levels:
        yield f"{level.name} read, GB/s", level.read_bytes_per_ns, f"{level.name}_read"
    yield "memory read, GB/s", t.memory_read_bytes_per_ns, "memory_read"
    suffix = "" if t.is_gpu else "_nt"
    yield "memory write, GB/s", t.memory_write_bytes_per_ns, f"memory_write{suffix}"
    yield "memory mixed, GB/s", t.memory_mixed_bytes_per_ns, f"memory_copy{suffix}"
    yield "f32, GFLOP/s", t.f32_flops_per_ns, "f32_flops"
    yield "f64, GFLOP/s", t.f64_flops_per_ns, "f64_flops"
    if not t.is_gpu:
        yield "f32 with additions, GFLOP/s", t.f32_mixed_flops_per_ns, "f32_mixed_flops"
        yield "f64 with additions, GFLOP/s", t.f64_mixed_flops_per_ns, "f64_mixed_flops"
        yield "f32 one by one, GFLOP/s", t.scalar_f32_flops_per_ns, "scalar_f32_flops"
        yield "f64 one by one, GFLOP/s", t.scalar_f64_flops_per_ns, "scalar_f64_flops"
        yield "loads, 1/ns", t.loads_per_ns, "loads"
        yield "loads of vectors, 1/ns", t.vector_loads_per_ns, "vector_loads"
        yield "stores, 1/ns", t.stores_per_ns, "stores"
        yield "stores of vectors, 1/ns", t.vector_stores_per_ns, "vector_stores"
        yield "gathered elements, 1/ns", t.gathers_per_ns, "gathers"
        yield "atomic adds of f32, 1/ns", t.atomic_f32_per_ns, "atomic_f32"
        yield "atomic adds of f64, 1/ns", t.atomic_f64_per_ns, "atomic_f64"
        yield "atomic adds of i32, 1/ns", t.atomic_i32_per_ns, "atomic_i32"
    yield "launch, ns", t.launch_ns, "launch_ns"
    yield "barrier, ns", t.barrier_ns, "barrier_ns"
    if not t.is_gpu:
        yield "call, ns", t.call_ns, "call_ns"
        return
    yield "shared memory read, GB/s", t.shared_bytes_per_ns, "shared_read"
    yield "one multiprocessor, GB/s", t.core_read_bytes_per_ns, "core_read"
    yield "addition, ns", t.add_latency_ns, "add_latency_ns"
    yield "nearest load, ns", t.load_latency_ns, "load_latency_ns"
    yield "load from L2, ns", t.far_load_latency_ns, "far_load_latency_ns"


# --- explore replay ------------------------------------------------------------------------------


def replay_lines(again: ReplayResult, tolerance: float) -> Iterator[str]:
    """Yields the lines of the verdict on a replay, the verdict itself last."""
    for note in again.notes:
        yield f"note: {note}"
    key = again.file.source_key[:8]
    if isinstance(again.outcome, Failure):
        yield f"source {key} ok | {again.outcome.kind}: {again.outcome.advice}"
        return
    unit = TimeUnit(again.file.time_ns)
    slower = again.slower_by or 0.0
    verdict = "slower than the tolerance" if slower > tolerance else "within the tolerance"
    machine = ""
    if again.machine > 1:
        machine = f"; the default takes {again.machine:.2f} times as long as then, so"
    yield (
        f"source {key} ok | {len(again.file.decisions)} decisions applied | verified on"
        f" {again.n_input_sets} input sets | {unit.text(again.outcome.time_ns)}"
        f" (saved {unit.number(again.file.time_ns)}{machine or ','} {slower:+.1%}: {verdict} of {100 * tolerance:.3g}%)"
    )


def replay_fields(again: ReplayResult) -> dict[str, Any]:
    """Returns the verdict on a replay as one JSON object."""
    outcome = again.outcome
    is_failure = isinstance(outcome, Failure)
    return {
        "event": "replay",
        "source_key": again.file.source_key,
        "status": outcome.kind if isinstance(outcome, Failure) else "ok",
        "detail": outcome.advice if isinstance(outcome, Failure) else "",
        "verified": not is_failure,
        "time_ns": None if isinstance(outcome, Failure) else outcome.time_ns,
        "saved_ns": again.file.time_ns,
        "machine": again.machine,
        "slower_by": again.slower_by,
        "notes": list(again.notes),
    }
