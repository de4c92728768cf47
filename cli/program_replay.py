"""`explore replay DIR --program FILE.py`: runs a program with the implementations found for it, and checks them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..search.bound.explain import time_text
from .exits import Exit
from .options import Talk, put_json
from .program_file import ProgramError, own_output, run_with, show
from .sequence_name import WorkloadError
from .speaking import say

if TYPE_CHECKING:
    from ..explorer.plan_check import CheckedPlan

_FRAMES = 10


def replay_program(talk: Talk, place: Path, program: Path) -> int:
    """Runs a program with the implementations found for its windows, and prints if results are the same.

    Returns the exit code.
    """
    from ..compat.display.frames import Reel
    from ..explorer.plan_check import PlanChecks, checked_follower
    from ..explorer.plan_replay import Follower, plans_of
    from ..kernels.frontend.init import sync
    from ..runtime.records.program_file import bests_of

    bests_of(place)  # raises where nothing was found
    plans = plans_of(place)
    if not plans:
        raise WorkloadError(f"nothing in {place} can be used on this machine")
    made: list[PlanChecks] = []

    def follower() -> Follower:
        found, checks = checked_follower(plans)
        made.append(checks)
        return found

    try:
        with own_output(talk):
            run_with(program, follower, Reel(_FRAMES))
            sync()
    except ProgramError as e:
        show(e.error, program, is_whole=talk.verbosity > 1)
        return Exit.INTERNAL
    code = Exit.OK
    for name in (p.name for p in plans):
        rows = [f.found[name] for f in made if f.found[name].plan_s]
        wrong = next((r.wrong for r in rows if r.wrong), "")
        code = Exit.WRONG_ANSWER if wrong else code
        if talk.is_json:
            put_json(_fields(name, rows, wrong))
        else:
            say(_line(name, rows, wrong))
    return code


def _fields(name: str, rows: list[CheckedPlan], wrong: str) -> dict[str, Any]:
    return {
        "event": "checked_window",
        "name": name,
        "runs": sum(len(r.plan_s) for r in rows),
        "checked": sum(len(r.plain_s) for r in rows),
        "wrong": wrong,
        "plan_ns": rows[-1].plan_ns if rows else None,
        "plain_ns": rows[-1].plain_ns if rows else None,
    }


def _line(name: str, rows: list[CheckedPlan], wrong: str) -> str:
    if not rows:
        return f"{name}: the program never ran it"
    if wrong:
        return f"{name}: WRONG: {wrong}"
    n_runs, n_checked = (
        sum(map(len, x)) for x in zip(*((r.plan_s, r.plain_s) for r in rows), strict=True)
    )
    plan_ns, plain_ns = rows[-1].plan_ns, rows[-1].plain_ns
    times = (
        ""
        if plan_ns is None or plain_ns is None
        else f"; {time_text(plan_ns)} in place of {time_text(plain_ns)}"
    )
    return f"{name}: {n_runs} runs, the first {n_checked} agree with its kernels{times}"
