"""The backbone: what choices are made about. `objects` says what there is, `build` finds it, `patterns` what of it pays."""

from .build import build_backbone
from .objects import (
    INNER,
    LAUNCH_TASKS,
    LEVEL_NAMES,
    MID,
    OUTER,
    Backbone,
    Dim,
    Flow,
    Merge,
    Operand,
    Prefetch,
    Shift,
    launch_width,
)

__all__ = [
    "INNER",
    "LAUNCH_TASKS",
    "LEVEL_NAMES",
    "MID",
    "OUTER",
    "Backbone",
    "Dim",
    "Flow",
    "Merge",
    "Operand",
    "Prefetch",
    "Shift",
    "build_backbone",
    "launch_width",
]
