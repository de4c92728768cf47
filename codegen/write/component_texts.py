"""Texts of components: the launches of each component of a plan, with names and a workspace of their own."""

from __future__ import annotations

import hashlib

from ..bodies.c_vectors import CHelpers
from ..bodies.vectors import Prelude
from ..passes.pipeline import PASSES
from ..passes.storage import Workspace
from ..plan.plan import Plan
from ..plan.summary import named_in
from ..text.cprint import Printer
from ..text.dialect import Dialect
from ..text.names import c_names
from .team import written_launches


def component_keys(plan: Plan, dialect: Dialect) -> tuple[str, ...]:
    """Returns the keys of the texts of a plan's components, in their order. No key depends on decisions about other components."""
    passes, names = PASSES[plan.target.kind], c_names(named_in(plan.problem))
    found = []
    for tasks in plan.components:
        workspace = Workspace(plan.cores, passes.apart_bytes)
        launches = plan.launches_of(tasks)
        prelude = Prelude(CHelpers())
        written = written_launches(plan, launches, prelude, names, passes, workspace)
        printer = Printer(dialect)
        for f in written.functions:
            printer.function(f, plan.cores)
        text = "\n".join((prelude.text(), *printer.lines))
        found.append(hashlib.blake2b(text.encode(), digest_size=12).hexdigest())
    return tuple(found)
