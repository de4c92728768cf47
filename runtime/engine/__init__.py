"""The engine: what runs the kernels that are called outside of a recording. A process has one, made at the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Engine, EngineOptions

_engine: Engine | None = None


def current_engine() -> Engine:
    """The engine of this process."""
    global _engine
    if _engine is None:
        from .engine import Engine

        _engine = Engine()
    return _engine


def use(options: EngineOptions) -> Engine:
    """From now on kernels run with these options; what callers hold of the engine before goes on as it was."""
    global _engine
    from .engine import Engine

    _engine = Engine(options)
    return _engine
