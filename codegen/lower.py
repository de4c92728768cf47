"""Lowers a complete candidate to a program; a candidate for a GPU goes to lower_grid.py.

On a CPU each launch becomes a static function, with another one for its threads. An entry runs the launches in order.
"""

from __future__ import annotations

from ..space.candidate import Candidate
from .bodies.c_vectors import CHelpers
from .bodies.emitter import Builder
from .bodies.memory import CMemory
from .bodies.vectors import Prelude
from .lower_grid import lower_kernels
from .passes.nests import nests
from .passes.pipeline import PASSES, Passes, run
from .passes.storage import Workspace, place_temporaries
from .plan.reading import read_plan
from .plan.summary import decisions, named_in, sentence
from .text import csyntax as c
from .text.cprint import functions_of
from .text.free_variables import parameters, thread_parameters
from .text.names import c_names
from .text.source import ENTRY
from .write.emission import Scene
from .write.program import Program, print_source
from .write.team import set_counters, team_writer, written

__all__ = ["lower", "print_source"]


def lower(candidate: Candidate, passes: Passes | None = None) -> Program:
    """Returns the program of a complete candidate. Equal candidates give equal programs; nothing is chosen here.

    `passes` replaces the passes of the target.
    """
    target = candidate.space.target
    passes = passes or PASSES[target.kind]
    if passes.are_of_grids:
        return lower_kernels(candidate, passes)
    plan = read_plan(candidate)
    prelude = Prelude(CHelpers())
    workspace = Workspace(target.cores, passes.apart_bytes)
    temporaries = place_temporaries(plan, workspace)
    names = c_names(named_in(plan.problem))
    functions, calls = [], []
    for k, roots in enumerate(plan.launches):
        launch = run(passes.loops, nests(plan, roots), plan)
        name = f"launch_{k}"
        w = Builder(prelude, names, CMemory(), knows_alignment=launch.is_parallel)
        writer = team_writer(Scene(plan, launch, target, workspace, w), name)
        body, after = written(writer)
        before = set_counters(writer.scene)
        named = parameters(plan.problem, (*before, *body, *after), names)
        functions.extend(writer.closed)
        comment = "; ".join(sentence(plan, t) for t in launch.tasks)
        own = thread_parameters(plan.problem, body, names) if launch.is_parallel else ()
        for make in passes.syntax:
            body = make(body, own if launch.is_parallel else named)
            after = make(after, named)
        functions.append(
            c.Function(
                name,
                named,
                body,
                launch.is_parallel,
                comment,
                after=after,
                thread_parameters=own,
                aligned=tuple(w.aligned),
                vector_bytes=max(w.aligned.values(), default=0),
                before=before,
            )
        )
        calls.append((name, tuple(p.name for p in named)))
    return Program(
        problem=plan.problem,
        functions=tuple(functions),
        calls=tuple(calls),
        temporaries=temporaries,
        workspace_bytes=workspace.size_bytes,
        prelude=prelude.text(),
        defined=(*prelude.defined, *(x for f in functions for x in functions_of(f)), ENTRY),
        streams=prelude.streams,
        intrinsics=prelude.intrinsics,
        may_fail=prelude.may_fail,
        n_threads=target.cores,
        decisions=decisions(plan),
        names=names,
        repeats=plan.repeats,
    )
