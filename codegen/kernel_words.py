"""Descriptions of the steps of a kernel's plan, for people."""

from __future__ import annotations

from ..kernels.ir import kernel as ir
from .plan.kernel_plan import LoopStep, WaveStep

_SCHEDULES = {"GUIDED": "in parts of what is left", "BALANCED": "by the work of their rows"}


def words(step: ir.Stmt | LoopStep | WaveStep) -> str:
    """Returns the description of a step, for people."""
    if isinstance(step, WaveStep):
        wave, order = step.wave, "diagonals" if step.wave.along_diagonals else "rows"
        tiles = f"tiles of {wave.rows} x {wave.columns} in {order}, skewed by {wave.sweep.skew}"
        who = "threads" if step.threads > 1 else "one thread"
        return f"line {step.where.line}: {who}, wavefronts of {tiles}"
    if not isinstance(step, LoopStep):
        return f"line {step.where.line}: one thread"
    parts = ["threads" if step.is_shared else "one thread"]
    if step.levels > 1:
        parts.append(f"{step.levels} loops as one")
    parts += [f"{s.op} into {s.array or s.local} by thread" for s in step.sums]
    parts += ["atomic updates"] * bool(step.atomics)
    parts += [f"updates of {array} in copies of threads" for array in step.share.copied]
    parts += [_SCHEDULES[step.share.schedule]] if step.share.schedule in _SCHEDULES else []
    parts += [f"{x.loop} in vectors of {x.width}" for x in step.ranges]
    parts += ["asks for blocks ahead"] * (step.prefetch is not None)
    if step.lanes is not None:
        parts.append(f"{step.lanes.loop} in {step.lanes.width} lanes")
    return f"line {step.loop.where.line}: " + ", ".join(parts)
