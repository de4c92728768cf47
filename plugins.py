"""Extensions that other installed packages provide by entry points: backends, strategies and library sequences.

A package names them in its pyproject.toml: `[project.entry-points."kernelscape.backends"]`, and likewise `kernelscape.strategies`
and `kernelscape.sequences`. Names that this package defines itself cannot be replaced.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

Kind = Literal["backends", "strategies", "sequences"]


class PluginError(Exception):
    """An extension of an installed package cannot be loaded.

    The message is one sentence that names the package.
    """


@cache
def plugins(kind: Kind) -> dict[str, EntryPoint]:
    """Returns the entry points of a kind (backends, strategies or sequences) by name."""
    return {e.name: e for e in entry_points(group=f"kernelscape.{kind}")}


def load_plugin(kind: Kind, name: str) -> Any:
    """Returns the object that an entry point names. Raises PluginError; KeyError if there is no such name."""
    entry = plugins(kind)[name]
    try:
        return entry.load()
    except Exception as e:
        raise PluginError(
            f"{name} of {source_of(entry)} cannot be loaded: {type(e).__name__}: {e}"
        ) from e


def source_of(entry: EntryPoint) -> str:
    """Returns the name and version of the package that defines an entry point."""
    return "a package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
