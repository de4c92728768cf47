"""Cache of built units (texts of single components), in memory and as libraries in the build folder.

A unit is found by its content, whatever units it was compiled together with.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...space.engine.own_folders import NotOursError
from ..api.artifact import Artifact, BuiltUnit
from ..api.outcome import Failure
from ..device import DeviceOptions
from ..files import OddFileError, is_torn
from .compiler import Compiler, library_path
from .together import build_together, entry_of

if TYPE_CHECKING:
    from ...codegen.text.source import Source

_KEPT = 1 << 14  # units that a process remembers


class UnitCache:
    """Builds units, and sources made of units.

    Thread-safe: threads that build the same unit write the same file.
    """

    def __init__(self, options: DeviceOptions) -> None:
        self._options = options
        self._built: OrderedDict[str, Artifact] = OrderedDict()
        self.n_compiled = 0
        """The number of units that were compiled so far."""

    def build(self, compiler: Compiler, units: Sequence[Source]) -> list[Artifact | Failure]:
        """Builds units, all new ones in one run of the compiler."""
        found = {unit.key: self._known(compiler, unit) for unit in units}
        new = {unit.key: unit for unit in units if found[unit.key] is None}
        made = self._compiled(compiler, list(new.values()))
        return [found[unit.key] or made[unit.key] for unit in units]

    def assembled(self, compiler: Compiler, source: Source) -> Artifact | Failure:
        """Returns the artifact of a source in units; builds its new units."""
        built = self.build(compiler, [unit.source for unit in source.units])
        units = [one for one in built if isinstance(one, Artifact)]
        if len(units) < len(built):
            return next(one for one in built if isinstance(one, Failure))
        build_ns = sum(unit.build_ns for unit in units)
        return replace(
            Artifact.of(source, source.key, Path(units[0].path), build_ns),
            units=tuple(BuiltUnit(unit.path, unit.entry) for unit in units),
            table=source.table,
        )

    def _known(self, compiler: Compiler, unit: Source) -> Artifact | None:
        """Returns the artifact of a unit built before; None if there is none, or its library was removed."""
        known = self._built.get(unit.key)
        if known is not None and Path(known.path).exists():
            return known
        path = self._path(compiler, unit)
        with suppress(FileNotFoundError, NotOursError, OddFileError):
            if not is_torn(path):
                return self._kept(unit, path, 0)
        return None

    def _path(self, compiler: Compiler, unit: Source) -> Path:
        return library_path(self._options.build_folder, compiler, unit.flags, unit.text)

    def _kept(self, unit: Source, path: Path, build_ns: int) -> Artifact:
        made = Artifact.of(unit, path.stem, path, build_ns, entry_of(unit, unit.key))
        self._built[unit.key] = replace(made, build_ns=0)
        if len(self._built) > _KEPT:
            with suppress(KeyError):
                self._built.popitem(last=False)
        return made

    def _compiled(self, compiler: Compiler, units: list[Source]) -> dict[str, Artifact | Failure]:
        if not units:
            return {}
        o = self._options
        labels = [unit.key for unit in units]
        built = build_together(compiler, units, o.build_folder, o.compile_timeout_s, labels)
        if isinstance(built, Failure):
            if len(units) == 1:
                return {units[0].key: built}
            # Of one of them: each says so for itself.
            return {k: x for unit in units for k, x in self._compiled(compiler, [unit]).items()}
        self.n_compiled += len(units)
        build_ns = built.build_ns // len(units)
        for unit in units:
            _add_name(built.path, self._path(compiler, unit))
        return {unit.key: self._kept(unit, built.path, build_ns) for unit in units}


def _add_name(library: Path, path: Path) -> None:
    """Links a library under the name of one of its units, replacing an incomplete file."""
    with suppress(OSError):  # then only this process finds it
        if path.exists() and is_torn(path):
            path.unlink()
        os.link(library, path)
