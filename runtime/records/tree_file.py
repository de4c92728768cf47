"""Stored search tree of a run: expanded nodes with their bounds, and pruned ones with the reasons.

Only pictures are drawn from it. It is not synchronised with the disk, a kill may cost its last second, and it may be deleted.
One JSON value per line:

    {"schema":2,"session":1,"tree":0,"bound_ns":473700}   a tree begins, with the bound of its root; names are numbered anew
    "order(a,b)"                                the next name, numbered from 0: of a choice, a value or a reason
    [7,0,"M",1.25,20,[1,0,2,-481000,3,"4"]]     node 7 took choice 0 after 1.25 s; its children are nodes 20, 21, ...
    ["p",20,"bound",480000]                     node 20 was closed later, under this cut
    ["r",20]                                    and reopened, since bounds were lowered
    ["full"]                                    the file has reached its cap, and nothing follows

A child is the number of its value, then one of three. A positive number or 0 is its bound in ns (0: that of its parent). A
negative number is a bound at which it was cut off at once. A text is the number of the reason for which a constraint forbids it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..files import append, read_regular
from .record import READ, SCHEMA

CAP_BYTES = 20 << 20
"""Most that a run keeps of its trees: a million children and more."""
_FLUSH_EVERY_S = 1.0


class ExpandedChild(NamedTuple):
    """A child node at the expansion of its parent.

    It has the name of its value; its bound, None if a constraint forbids it; True if it was cut off at once; and the reason why
    it is forbidden, or "".
    """

    value: str
    bound_ns: float | None
    is_cut: bool
    why: str


class TreeWriter:
    """Writer of a tree file. If writing fails (a full disk) it stops, and the search continues."""

    def __init__(self, path: Path, cap_bytes: int = CAP_BYTES) -> None:
        self._path = path
        self._cap_bytes = cap_bytes
        self._names: dict[str, int] = {}
        self._lines: list[str] = []
        self._n_buffered = 0
        self._flushed_s = time.monotonic()
        self.n_bytes = 0
        with suppress(OSError):
            self.n_bytes = path.lstat().st_size
        self._is_full = self.n_bytes >= cap_bytes
        self.n_children = 0  # written by this one
        # A line that a kill has torn must not swallow the next one.
        self._is_torn = self.n_bytes > 0

    def begin(self, session: int, tree: int, bound_ns: float) -> None:
        """Starts tree number `tree` of `session`, whose root has the bound `bound_ns`."""
        self._names = {}
        head = {"schema": SCHEMA, "session": session, "tree": tree, "bound_ns": _short(bound_ns)}
        self._write(json.dumps(head, separators=(",", ":")))

    def expand(
        self,
        node: int,
        choice: str,
        tag: str,
        at_s: float,
        first_child: int,
        children: Sequence[ExpandedChild],
        bound_ns: float,
    ) -> None:
        """Records the expansion of `node` by `choice`; its children are numbered from `first_child` on."""
        if self._is_full:
            return
        fields = ",".join(f"{self._number(c.value)},{self._fate(c, bound_ns)}" for c in children)
        head = f'[{node},{self._number(choice)},"{tag}",{at_s:.2f},{first_child}'
        self.n_children += len(children)
        self._write(f"{head},[{fields}]]")

    def close_node(self, node: int, reason: str, cut_ns: float) -> None:
        """Records that an open node was closed by `reason`, under the cut `cut_ns`."""
        self._write(json.dumps(["p", node, reason, _short(cut_ns)], separators=(",", ":")))

    def reopen(self, node: int) -> None:
        """Records that a closed node was reopened."""
        self._write(f'["r",{node}]')

    def flush(self) -> None:
        """Passes all written lines to the operating system."""
        lines, self._lines, self._n_buffered = self._lines, [], 0
        self._flushed_s = time.monotonic()
        if not lines:
            return
        text = ("\n" if self._is_torn else "") + "".join(lines)
        self._is_torn = False
        try:
            append(self._path, text.encode())
        except OSError:
            self._is_full = True

    def _fate(self, child: ExpandedChild, parent_ns: float) -> str:
        if child.bound_ns is None:
            return f'"{self._number(child.why)}"'
        if child.is_cut:
            return f"-{child.bound_ns:.6g}"
        return "0" if child.bound_ns <= parent_ns else f"{child.bound_ns:.6g}"

    def _number(self, name: str) -> int:
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = len(self._names)
            self._write(json.dumps(name))
        return found

    def _write(self, line: str) -> None:
        if self._is_full:
            return
        self._lines.append(f"{line}\n")
        self._n_buffered += 1
        self.n_bytes += len(line) + 1
        if self.n_bytes >= self._cap_bytes:
            self._is_full = True
            self._lines.append('["full"]\n')
            self.flush()
        elif self._n_buffered >= 256 and time.monotonic() - self._flushed_s >= _FLUSH_EVERY_S:
            self.flush()


def _short(ns: float) -> float:
    """Returns a time with as many digits as a picture can show; infinity becomes finite, since JSON has none."""
    return float(f"{min(ns, 1e300):.6g}")


OPEN, EXPANDED, CUT, FORBIDDEN, CLOSED_BOUND, CLOSED_CONSTRAINT = range(6)
"""States of a node: unexpanded; expanded; cut off at once; forbidden by a constraint; closed later by the bound; closed later
because nothing below satisfies the constraints."""

_REASONS = {"bound": CLOSED_BOUND, "constraint": CLOSED_CONSTRAINT}


class StoredTree:
    """One tree of a run as columns with one row per node; row 0 is the root.

    Parents precede their children, and siblings are in order. `names` are texts. The columns `choice` (by which a node was
    expanded), `value` (of the parent's choice) and `why` (reason why it is forbidden) are indices into `names`, -1 for none.
    `bound_ns`, `cut_ns` (cut under which the node was closed, 0 for none) and `at_s` (time of expansion) are floats; `tag` is the
    letter of search.events, 0 for none.
    """

    def __init__(self, session: int, tree: int, root_ns: float) -> None:
        self.session = session
        self.tree = tree
        self.names: list[str] = []
        self.parent: list[int] = [-1]
        self.choice: list[int] = [-1]
        self.value: list[int] = [-1]
        self.why: list[int] = [-1]
        self.state: list[int] = [OPEN]
        self.tag: list[int] = [0]
        self.bound_ns: list[float] = [root_ns]
        self.cut_ns: list[float] = [0.0]
        self.at_s: list[float] = [0.0]
        self._row_of: dict[int, int] = {0: 0}

    def __len__(self) -> int:
        return len(self.parent)

    def expand(self, node: int, choice: int, tag: str, at_s: float, first: int, fates: Any) -> None:
        """Adds an expansion. The tree is unchanged if it raises.

        Raises KeyError for a node that was never opened, ValueError, TypeError or IndexError for an invalid line.
        """
        row = self._row_of[node]
        values, bounds = fates[::2], fates[1::2]
        n = len(values)
        if len(bounds) != n or n == 0 or self.state[row] == EXPANDED:
            raise ValueError("no pairs")
        least, most = min(values), max(values)
        if least < 0 or max(most, choice) >= len(self.names) or choice < 0:
            raise IndexError("no such name")
        letter, asked_s = ord(tag), float(at_s)
        at = len(self.parent)
        parent_ns = self.bound_ns[row]
        states, whys, bound_ns = [OPEN] * n, [-1] * n, [parent_ns] * n
        for k, b in enumerate(bounds):
            if isinstance(b, str):
                states[k], whys[k] = FORBIDDEN, int(b)
                self.names[whys[k]]
            elif b < 0:
                states[k], bound_ns[k] = CUT, float(-b)
            elif b:
                bound_ns[k] = float(b)
        self.state[row], self.choice[row] = EXPANDED, choice
        self.tag[row], self.at_s[row] = letter, asked_s
        self.parent += [row] * n
        self.choice += [-1] * n
        self.value += values
        self.why += whys
        self.state += states
        self.tag += [0] * n
        self.bound_ns += bound_ns
        self.cut_ns += [0.0] * n
        self.at_s += [0.0] * n
        self._row_of.update(zip(range(first, first + n), range(at, at + n), strict=True))

    def close_node(self, node: int, reason: str, cut_ns: float) -> None:
        """Marks a node as closed. Raises KeyError for an unknown node or reason."""
        row = self._row_of[node]
        self.state[row], self.cut_ns[row] = _REASONS[reason], float(cut_ns)

    def reopen(self, node: int) -> None:
        """Marks a closed node as open. Raises KeyError for an unknown node."""
        row = self._row_of[node]
        self.state[row] = OPEN if self.choice[row] < 0 else EXPANDED
        self.cut_ns[row] = 0.0

    def array(self, column: str) -> npt.NDArray[Any]:
        """Returns one column as an array."""
        kind = np.float64 if column in ("bound_ns", "cut_ns", "at_s") else np.int32
        return np.array(getattr(self, column), kind)


class TreeFile(NamedTuple):
    """Result of reading a tree file: the trees, the number of unusable lines, and if the size cap was reached.

    A line is unusable if it is torn, or follows such a line.
    """

    trees: tuple[StoredTree, ...]
    n_lost: int
    is_full: bool


def read_trees(path: Path, limit_bytes: int = 2 * CAP_BYTES) -> TreeFile:
    """Returns the trees of a run, also while it is being written.

    Returns no trees if the file is missing, not regular, or larger than `limit_bytes`. Never raises for its contents.
    """
    try:
        content = read_regular(path, limit_bytes)
    except OSError:
        return TreeFile((), 0, False)
    trees: list[StoredTree] = []
    n_lost, is_full = 0, False
    decode = msgspec.json.Decoder().decode
    for line in content.splitlines():
        if not line:
            continue
        try:
            found = decode(line)
            if isinstance(found, dict):
                trees.append(_planted(found))
            elif isinstance(found, str):
                trees[-1].names.append(found)
            elif found[0] == "full":
                is_full = True
            else:
                _grow(trees[-1], found)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError):
            n_lost += 1
    return TreeFile(tuple(trees), n_lost, is_full)


def _planted(found: dict[str, Any]) -> StoredTree:
    if found["schema"] not in READ:
        raise ValueError("another schema")
    return StoredTree(int(found["session"]), int(found["tree"]), float(found["bound_ns"]))


def _grow(tree: StoredTree, line: Any) -> None:
    match line:
        case ["p", int(node), str(reason), int() | float() as cut_ns]:
            tree.close_node(node, reason, cut_ns)
        case ["r", int(node)]:
            tree.reopen(node)
        case [int(node), int(choice), str(tag), int() | float() as at_s, int(first), list(fates)]:
            tree.expand(node, choice, tag, at_s, first, fates)
        case _:
            raise ValueError("no line of a tree")
