"""The engine: runs kernels called outside of a recording. A process has one, created at the first call."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .engine import Engine, EngineOptions
    from .window_stats import Stats

_engine: Engine | None = None


def current_engine() -> Engine:
    """Returns the engine of this process."""
    global _engine
    if _engine is None:
        from .engine import Engine

        _engine = Engine()
    return _engine


def stats() -> Stats:
    """Returns the statistics of the program: windows of `ks.init(async_mode=True)`, calls by backend on a device.

    All numbers are 0 without either.
    """
    from dataclasses import replace

    from ...kernels.fields.program import current_program
    from .window_stats import Stats

    program = current_program()
    executor: Any = None if program is None else program.follower
    while executor is not None and not hasattr(executor, "stats"):
        executor = executor.behind
    found = Stats() if executor is None else executor.stats
    n_compiled = 0 if _engine is None else _engine.n_compiled
    ahead = getattr(_engine, "ahead", None)  # objects in place of the engine need not have it
    n_ahead = (0, 0) if ahead is None else (ahead.n_begun, ahead.n_used)
    runs = {kernel: dict(n) for kernel, n in found.runs.items()}
    n_wakes = getattr(_engine, "n_wakes", 0)
    counts = {"n_compiled": n_compiled, "n_wakes": n_wakes, "n_ahead": n_ahead[0]}
    counts["n_ahead_used"] = n_ahead[1]
    return replace(found, ends=dict(found.ends), runs=runs, **counts)


def use(options: EngineOptions) -> Engine:
    """Makes a new engine with these options run all later kernels. Existing callers keep the previous engine."""
    global _engine
    from .engine import Engine

    _engine = Engine(options)
    return _engine


@contextmanager
def using(engine: Any) -> Iterator[None]:
    """Context manager in which another engine, or any object with its methods, runs kernels."""
    global _engine
    before, _engine = _engine, engine
    try:
        yield
    finally:
        _engine = before
