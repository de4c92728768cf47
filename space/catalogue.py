"""Catalogue: kinds of targets, families of choices, and texts for the values of choices. It builds no model."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from . import families
from .draft import Family, Phrases
from .targets.cpu import CPU_KIND
from .targets.gpu import GPU_KIND
from .targets.kind import TargetKind

KINDS: Mapping[str, TargetKind] = {kind.name: kind for kind in (CPU_KIND, GPU_KIND)}


def _families() -> tuple[Family, ...]:
    """Returns all families in space/families, sorted by file name. A new file needs no registration."""
    names = sorted(m.name for m in iter_modules(families.__path__))
    return tuple(import_module(f"{families.__name__}.{name}").FAMILY for name in names)


FAMILIES: Mapping[str, tuple[Family, ...]] = {
    kind: tuple(family for family in _families() if kind in family.rules) for kind in KINDS
}

PHRASES: tuple[Phrases, ...] = tuple(p for family in _families() for p in family.phrases)
