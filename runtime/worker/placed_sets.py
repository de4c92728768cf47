"""Placement of input sets in device memory: the timed set as a user's arrays, others with write protection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backend import AbstractArray, AbstractRunner
from .messages import SetFiles
from .verify import Expected, UndecidedElements

Array = NDArray[Any]
MOST_TURNS = 16  # rows of one array that are protected in whole, each in a run of its own
_MOST_BYTES = 256 << 20  # of arrays that are there once more for each of these rows


@dataclass(frozen=True)
class ReadOnlyPrefix:
    """Numbers of read-only elements at the beginning of each row, by array name.

    `row` is the row in which they end at a page boundary, so that all of them can be protected. In other rows, only those on
    whole pages can. In an array with fewer rows, the row number wraps around.
    """

    counts: Mapping[str, int]
    row: int


class PlacedSet:
    """One input set in device memory.

    Outputs and in-place arrays are shared between sets, read-only inputs are not.
    """

    def __init__(
        self,
        runner: AbstractRunner,
        roles: Mapping[str, str],
        files: SetFiles,
        shared: dict[tuple[str, int], AbstractArray],
        number: int = 0,
        kept: ReadOnlyPrefix | None = None,
        like: PlacedSet | None = None,
    ) -> None:
        """Copies the set of `files` to the device.

        `number`: number of the set. `kept` None: the timed set, placed as a user's arrays, without protection. `like`: the same
        set at another place, whose inputs are reused.
        """
        as_numpy = kept is None
        self.number, self.scalars = number, files.scalars
        self.kept = dict(kept.counts) if kept is not None else {}
        self.arrays: dict[str, AbstractArray] = {}
        self.contents: dict[str, Array] = {n: _open(f) for n, f in files.arrays.items()}
        self.expected: dict[str, Expected] = {}
        for name, contents in self.contents.items():
            if roles[name] == "input" and like is not None:
                self.arrays[name] = like.arrays[name]
                continue
            if roles[name] == "input":
                self.arrays[name] = runner.allocate(
                    contents.shape, contents.dtype, as_numpy=as_numpy
                )
                self.arrays[name].upload(contents)
                self.arrays[name].freeze()
                continue
            border, row = None, -1 if as_numpy else 0
            if kept is not None and name in self.kept:
                row = kept.row % _rows(contents)
                border = row * contents.shape[-1] + self.kept[name]
            key = name, row
            if key not in shared:
                shared[key] = runner.allocate(
                    contents.shape, contents.dtype, as_numpy=as_numpy, border=border
                )
            self.arrays[name] = shared[key]
        for name, e in files.expected.items():
            magnitude = _open(e.magnitude) if isinstance(e.magnitude, str) else e.magnitude
            b = e.branches
            branches = None
            if b is not None:
                branches = UndecidedElements(
                    _open(b.at), _open(b.values), _open(b.reach), b.n_allowed
                )
            self.expected[name] = Expected(_open(e.want), e.factor, magnitude, branches)


def place_sets(
    runner: AbstractRunner,
    roles: Mapping[str, str],
    files: Sequence[SetFiles],
    counts: Mapping[str, int],
) -> list[PlacedSet]:
    """Returns all sets placed on the device, the timed one first.

    `counts`: numbers of read-only elements at the beginning of each row, by array. The other sets also verify code on aligned
    arrays. If elements are to be protected, the timed set is placed once more for each row, in which they are then protected,
    as far as memory suffices.
    """
    shared: dict[tuple[str, int], AbstractArray] = {}
    found = [
        PlacedSet(runner, roles, one, shared, k, ReadOnlyPrefix(counts, k - 1) if k else None)
        for k, one in enumerate(files)
    ]
    written = {name for name in counts if roles.get(name, "input") != "input"}
    if not written or not found[0].expected:  # of huge arguments the timed set is not verified
        return found
    contents = [found[0].contents[name] for name in written]
    n_rows, n_bytes = max(map(_rows, contents)), sum(a.nbytes for a in contents)
    turns = range(max(1, min(n_rows, MOST_TURNS, _MOST_BYTES // max(1, n_bytes))))
    first = found[0]
    found += [
        PlacedSet(runner, roles, files[0], shared, 0, ReadOnlyPrefix(counts, k), first)
        for k in turns
    ]
    return found


def _rows(contents: Array) -> int:
    n: int = contents.size // max(1, contents.shape[-1])
    return max(1, n)


def _open(path: str) -> Array:
    array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
