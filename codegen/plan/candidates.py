"""Plans of complete candidates of a search."""

from __future__ import annotations

from ...space.candidate import Candidate
from ...space.decisions import by_kind
from .plan import Plan
from .reading import read_plan


def plan_of(candidate: Candidate) -> Plan:
    """Returns the plan of a complete candidate; an incomplete one is a bug of the caller."""
    space = candidate.space
    return read_plan(space.problem, by_kind(candidate), space.target, space.backbone)
