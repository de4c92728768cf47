"""Keys of components by content: equal calls of any program have one key, whatever their names.

A key has the texts of the kernels without names, and which arrays and trees are the same. For kernels on sparse fields it has the
structure of the trees, too, and ends in the facts that the calls use: lists that are up to date, and cells that are active.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ...kernels.frontend.recorder import Call, Recording
from ...kernels.ir.kernel import KernelIR
from ...kernels.ir.spelling import spelled_without_names
from ...kernels.sparse.layout import TreeLayout
from ...kernels.sparse.recorded import Logical, UsedTree, WindowCall
from ...kernels.sparse.redundancy import Derived
from ...kernels.tasks.entry_facts import derived_calls
from ...kernels.tasks.window_kernels import tree_name
from ..by_identity import ByIdentity

_VERSION = "calls-4"  # of keys: rows under those of other versions are not found
_N_CALLS = re.compile(rf"[1-9][0-9]?(?= {_VERSION} )")  # of a component, in its key
MOST_CALLS = 99  # of a component


@dataclass(frozen=True)
class KeyedCall:
    """Content of a call, as keys have it.

    `text`: digest of its kernel's text, and of the trees. `arrays` and `trees` are those of the call.
    `temporary`: positions of arrays that nobody reads behind the sequence. `facts`: a word for each fact that the call uses.
    """

    text: str
    arrays: tuple[Hashable, ...]
    trees: tuple[Hashable, ...] = ()
    temporary: tuple[int, ...] = ()
    facts: tuple[str, ...] = ()


def key_of(calls: Sequence[KeyedCall]) -> str:
    """Returns the key of some calls by content, with their number. Values of scalar arguments are left out."""
    digest, numbers = hashlib.blake2b(digest_size=12), dict[Hashable, int]()
    for call in calls:
        arrays = [numbers.setdefault(x, len(numbers)) for x in call.arrays]
        trees = [numbers.setdefault(("tree", x), len(numbers)) for x in call.trees]
        digest.update(f"{call.text}{arrays}{trees}{call.temporary}".encode())
    facts = ",".join(f"{k}{fact}" for k, call in enumerate(calls) for fact in call.facts)
    return f"{len(calls)} {_VERSION} {digest.hexdigest()}:{facts}"


def content_of(key: str) -> tuple[str, frozenset[str]]:
    """Returns a key without the facts that its calls use, and these facts.

    Code that uses some facts is right for the same calls where at least these hold.
    """
    content, _, facts = key.partition(":")
    return content, frozenset(facts.split(",") if facts else ())


def n_calls_of(key: str) -> int:
    """Returns the number of calls that a key is of; 0 for keys of other versions."""
    found = _N_CALLS.match(key)
    return int(found[0]) if found else 0


def key_of_recording(recording: Recording) -> str:
    """Returns the key of all calls of a recording."""
    return key_of(keyed_calls(recording))


def keyed_calls(recording: Recording) -> list[KeyedCall]:
    """Returns the contents of a recording's calls: those of a run of them are its key.

    The facts are those that hold in this recording.
    """
    temps = {p.name for p in recording.temps}
    trees = {used.tree.name: _Tree(used.tree.name, used) for used in recording.trees}
    pairs = zip(recording.calls, derived_calls(recording), strict=True)
    return [_keyed(call, derived, trees, temps) for call, derived in pairs]


def keyed_window(calls: Sequence[WindowCall], derived: Sequence[Derived | None]) -> list[KeyedCall]:
    """Returns the contents of a window's calls, of which `derived` are the redundant operations (window_kernels.py)."""
    return [
        _keyed(call, found, {x.tree.name: _Tree(tree_name(n), x) for n, x in call.trees})
        for call, found in zip(calls, derived, strict=True)
    ]


def plain_call(ir: KernelIR, arrays: Sequence[Hashable]) -> KeyedCall:
    """Returns the content of a call on plain arrays that are no temporaries."""
    return KeyedCall(_digest_of(ir), tuple(arrays))


_digests = ByIdentity[KernelIR, str]()


def _digest_of(ir: KernelIR) -> str:
    """Returns a digest of a kernel's text, which is long: it is made once."""
    found = _digests.get(ir)
    if found is None:
        found = _digests.setdefault(ir, _hex(spelled_without_names(ir)))
    return found


def _hex(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class _Tree:
    """Tree of a call. `name`: its name in facts, the same for all calls that use it."""

    name: str
    structure: UsedTree | TreeLayout

    @property
    def content(self) -> object:
        """Structure of the tree, without names."""
        return self.structure.tree.nodes, self.structure.fields


def _keyed(
    call: Call | WindowCall,
    derived: Derived | None,
    trees: Mapping[str, _Tree],
    temps: Set[str] = frozenset(),
) -> KeyedCall:
    """Returns the content of a call. `trees`: by their names in its kernel."""
    temporary = tuple(k for k, name in enumerate(call.arrays) if name in temps)
    logical = call.logical
    if logical is None or derived is None:
        return replace(plain_call(call.ir, call.arrays), temporary=temporary)
    used = [t.name for t in logical.ir.trees]
    on_trees = _on_trees(call.ir, logical, [trees[name].content for name in used])
    number = {trees[name].name: k for k, name in enumerate(used)}
    kept = (
        f"l{k}.{tree}.{node}"
        for k, nodes in enumerate(derived.kept)
        for tree, node in sorted((number[tree], node) for tree, node in nodes)
    )
    return KeyedCall(
        f"{_digest_of(logical.ir)}{on_trees}",
        call.arrays,
        tuple(number),
        temporary,
        (*(f"a{n}" for n in sorted(derived.demoted)), *kept),
    )


def _on_trees(ir: KernelIR, logical: Logical, structure: Sequence[object]) -> str:
    """Returns a digest of what a lowered kernel has of its trees. `structure`: that of each tree."""
    number = {t.name: k for k, t in enumerate(logical.ir.trees)}
    position = {p.name: k for k, p in enumerate(ir.arrays)}
    sections = tuple((position[array], number[tree], key) for array, tree, key in logical.sections)
    given = tuple(position.get(p.name, -1) for p in logical.ir.arrays)
    return _hex(spelled_without_names((tuple(structure), logical.fields, sections, given)))
