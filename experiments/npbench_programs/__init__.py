"""The programs of NPBench, written anew from their mathematics: a module a group, each program in three forms.

`cholesky2` and `covariance2` are `cholesky` and `covariance` at other sizes.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import columns, data, factors, flows, learning, physics, products, stencils
from .ported import Arrays, Ported, Sequence

__all__ = ["PROGRAMS", "Arrays", "Ported", "Sequence"]

_GROUPS = (products, factors, stencils, columns, flows, learning, physics, data)
PROGRAMS: Mapping[str, Ported] = {p.name: p for group in _GROUPS for p in group.PROGRAMS}
