"""What a task runs over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Loop:
    """A loop of a task, 0 <= index < extent. `name` is unique within the task and is what LoopIndex names."""

    name: str
    extent: int
    is_reduction: bool
