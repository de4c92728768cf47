"""Lowers a plan to a program, for plans of a search, of a stored record, or of the rules for a standalone kernel.

On a GPU each launch becomes a kernel with its grid. On a CPU it becomes a static function, with
another one for its threads. An entry runs the launches in order. Writers and passes are imported
only when a plan needs them, since a standalone call waits for its code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..space.targets.kind import CPU, GPU
from .bodies.c_vectors import CHelpers
from .bodies.vectors import Prelude
from .plan.plan import Plan, PlannedNode
from .plan.summary import decisions, named_in
from .text.cprint import functions_of
from .text.names import c_names
from .text.source import ENTRY, UNIT_ENTRY
from .write.program_text import Launches, LoweredProgram, print_source
from .write.steps import standalone_launches

if TYPE_CHECKING:
    from .passes.pipeline import Passes

__all__ = ["lower", "print_source"]


def lower(
    plan: Plan, passes: Passes | None = None, prelude: Prelude | None = None
) -> LoweredProgram:
    """Returns the program of a plan. Equal plans give equal programs; nothing is chosen here.

    `passes`: passes over the loop IR, by default those of the target. `prelude`: helpers shared
    with other text of the same file, on a CPU.
    """
    return _PROGRAMS[plan.target.kind](plan, passes, prelude or Prelude(CHelpers()))


def _on_grids(plan: Plan, passes: Passes | None, _: Prelude) -> LoweredProgram:
    from .write.grid_program import grid_program

    return grid_program(plan, passes)


def _on_cores(plan: Plan, passes: Passes | None, prelude: Prelude) -> LoweredProgram:
    names = c_names(named_in(plan.problem))
    if plan.is_standalone:
        launches = standalone_launches(plan, prelude, names)
    else:
        from .write.team import team_launches

        launches = team_launches(plan, prelude, names, passes)
    return _program(plan, launches, prelude, names)


def lower_unit(plan: Plan, launches: Sequence[tuple[PlannedNode, ...]]) -> LoweredProgram:
    """Returns the program of some launches of a CPU plan, without an entry: a unit of the sequence.

    Launches are numbered from 0 and have memory of their own. Temporary arrays of the sequence are
    parameters.
    """
    from .passes.pipeline import PASSES
    from .passes.storage import Workspace
    from .write.team import written_launches

    prelude, names = Prelude(CHelpers()), c_names(named_in(plan.problem))
    passes = PASSES[plan.target.kind]
    workspace = Workspace(plan.cores, passes.apart_bytes)
    written = written_launches(plan, launches, prelude, names, passes, workspace)
    return _program(plan, written, prelude, names, is_unit=True)


def _program(
    plan: Plan,
    launches: Launches,
    prelude: Prelude,
    names: dict[str, str],
    *,
    is_unit: bool = False,
) -> LoweredProgram:
    functions, entry = launches.functions, UNIT_ENTRY if is_unit else ENTRY
    return LoweredProgram(
        problem=plan.problem,
        functions=functions,
        calls=launches.calls,
        temporaries=launches.temporaries,
        workspace_bytes=launches.workspace_bytes,
        prelude=prelude.text(),
        defined=(*prelude.defined, *(x for f in functions for x in functions_of(f)), entry),
        streams=prelude.streams,
        intrinsics=prelude.intrinsics,
        may_fail=prelude.may_fail,
        n_threads=plan.cores,
        decisions=() if is_unit else decisions(plan),
        names=names,
        has_entry=not is_unit,
        repeats=() if is_unit else plan.repeats,
    )


_PROGRAMS: Mapping[str, Callable[[Plan, Passes | None, Prelude], LoweredProgram]] = {
    CPU: _on_cores,
    GPU: _on_grids,
}
