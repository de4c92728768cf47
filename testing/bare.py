"""Spaces of constraints alone, to try the engine with: no task is behind them."""

from __future__ import annotations

from ..kernels.ir.task import Problem
from ..space.backbone import build_backbone
from ..space.candidate import Space
from ..space.draft import Variables
from ..space.engine.model import Model
from .machines import round_target

_NOTHING = Problem(name="nothing", arrays=(), scalars=(), tasks=(), key="")


def bare_space(model: Model) -> Space:
    """The space of a model whose objects stand for nothing."""
    return Space(model, _NOTHING, round_target(), build_backbone(_NOTHING), Variables())
