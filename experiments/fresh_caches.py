"""Caches without compiled programs, for processes whose first runs are measured."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..runtime.device import cache_folder
from ..space.engine.jit import cache_folder as jitted_folder

TARGETS = "targets"


def fresh_caches(folder: Path) -> dict[str, str]:
    """An environment whose cache is in `folder`, which has calibrations of this machine and nothing else.

    Its tuned store is there, too, so no search begins with what another found.
    What numba compiled of the search is found where it is: that is done once a version, not once a program.
    """
    known = cache_folder() / TARGETS
    if known.exists():
        shutil.copytree(known, calibrations(folder), dirs_exist_ok=True)
    return {
        "XDG_CACHE_HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "NUMBA_CACHE_DIR": str(jitted_folder().parent),
    }


def calibrations(folder: Path) -> Path:
    """The calibrations below a folder that is a cache."""
    return folder / "kernelscape" / TARGETS
