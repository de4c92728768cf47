"""The engine: runs kernels that are called outside of a recording. A process has one, made at the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Engine, EngineOptions

_engine: Engine | None = None


def current_engine() -> Engine:
    """Returns the engine of this process."""
    global _engine
    if _engine is None:
        from .engine import Engine

        _engine = Engine()
    return _engine


def use(options: EngineOptions) -> Engine:
    """Makes an engine with these options run kernels from now on. Callers that hold the previous engine still use that one."""
    global _engine
    from .engine import Engine

    _engine = Engine(options)
    return _engine
