"""Backbone: the objects that choices are about.

`objects` defines them, `build` finds them, `patterns` the profitable ones.
"""

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
    Rescaled,
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
    "Rescaled",
    "Shift",
    "build_backbone",
    "launch_width",
]
