"""Places of caches, while other processes use them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from kernelscape.explorer.caches import clear_kept, kept_places


def test_a_folder_that_goes_while_places_are_looked_at_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: a kernel that another process has just compiled is moved out of the folder in which it was made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels = tmp_path / "kernelscape" / "kernels"
    for name in ("made", "making-1"):
        (kernels / name).mkdir(parents=True)
        (kernels / name / "code").write_bytes(bytes(7))
    scan, entries = os.scandir, list[Any]()

    def scandir(path: Any) -> Any:
        found = scan(path)
        if isinstance(path, int) or Path(path) != kernels:
            return found
        with found:
            entries.extend(() if entries else found)
        assert all(x.is_dir() for x in entries)  # which they remember
        shutil.rmtree(kernels / "making-1", ignore_errors=True)
        return _Entries(entries)

    monkeypatch.setattr(os, "scandir", scandir)
    (place,) = (x for x in kept_places() if x.name == "kernels")
    assert (place.n_bytes, len(place.files)) == (7, 1)
    with pytest.raises(ValueError, match="there is nothing called 'bilds' to clear"):
        clear_kept("bilds")


class _Entries:
    """Entries of a folder, read before."""

    def __init__(self, entries: list[Any]) -> None:
        self._left = iter(entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> Any:
        return next(self._left)
