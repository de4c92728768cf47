"""Lowers a plan to a program, whoever decided it: a search, a stored record, or the rules for a standalone kernel.

On a GPU each launch becomes a kernel with its grid. On a CPU it becomes a static function, with another one for its threads. An
entry runs the launches in order. The writers of both, and the passes before them, are imported where a plan needs them: a call of
a kernel by itself waits for its code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..space.targets.kind import CPU, GPU
from .bodies.c_vectors import CHelpers
from .bodies.vectors import Prelude
from .plan.plan import Plan
from .plan.summary import decisions, named_in
from .text.cprint import functions_of
from .text.dialect import Dialect
from .text.names import c_names
from .text.source import ENTRY, Source
from .write.program_text import LoweredProgram, print_source
from .write.steps import standalone_launch

if TYPE_CHECKING:
    from .passes.pipeline import Passes

__all__ = ["evaluated_source", "lower", "print_source"]


def evaluated_source(plan: Plan, dialect: Dialect) -> Source:
    """Returns the text of a plan for an evaluation: with the keys of its components, where it has several."""
    source = print_source(lower(plan), dialect)
    if len(plan.components) < 2 or plan.target.kind != CPU:
        return source
    from .write.component_texts import component_keys

    return replace(source, components=component_keys(plan, dialect))


def lower(
    plan: Plan, passes: Passes | None = None, prelude: Prelude | None = None
) -> LoweredProgram:
    """Returns the program of a plan. Equal plans give equal programs; nothing is chosen here.

    `passes` replaces the passes of the target. `prelude`: the one that other text of the same file uses, on a CPU.
    """
    return _PROGRAMS[plan.target.kind](plan, passes, prelude or Prelude(CHelpers()))


def _on_grids(plan: Plan, passes: Passes | None, _: Prelude) -> LoweredProgram:
    from .write.grid_program import grid_program

    return grid_program(plan, passes)


def _on_cores(plan: Plan, passes: Passes | None, prelude: Prelude) -> LoweredProgram:
    names = c_names(named_in(plan.problem))
    if plan.is_standalone:
        launches = standalone_launch(plan, prelude, names)
    else:
        from .write.team import team_launches

        launches = team_launches(plan, prelude, names, passes)
    functions = launches.functions
    return LoweredProgram(
        problem=plan.problem,
        functions=functions,
        calls=launches.calls,
        temporaries=launches.temporaries,
        workspace_bytes=launches.workspace_bytes,
        prelude=prelude.text(),
        defined=(*prelude.defined, *(x for f in functions for x in functions_of(f)), ENTRY),
        streams=prelude.streams,
        intrinsics=prelude.intrinsics,
        may_fail=prelude.may_fail,
        n_threads=plan.cores,
        decisions=decisions(plan),
        names=names,
        repeats=plan.repeats,
    )


_PROGRAMS: Mapping[str, Callable[[Plan, Passes | None, Prelude], LoweredProgram]] = {
    CPU: _on_cores,
    GPU: _on_grids,
}
