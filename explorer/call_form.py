"""Form of a call: equal forms compute the same up to the names of arrays, fields and trees.

Kernels on sparse fields are compared before lowering. So two fields of one tree may be exchanged, and so may two equal trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..kernels.ir.kernel import KernelIR
from ..kernels.ir.logical import FieldPlace
from ..kernels.ir.spelling import spelled
from ..kernels.ir.walk import rewrite
from ..kernels.sparse.recorded import Logical
from ..kernels.transforms.merged_calls import CallNames


@dataclass(frozen=True)
class CallForm:
    """Canonical text of a kernel, and what it is about, in the order in which the text names it.

    `arrays`: positions of plain arrays among the arrays of a call. `trees`: names of trees. `fields`: sparse fields, each as the
    position of its tree in `trees` and its number there.
    """

    text: str
    arrays: tuple[int, ...]
    trees: tuple[str, ...] = ()
    fields: tuple[tuple[int, int], ...] = ()


def form_of(
    ir: KernelIR, logical: Logical | None, places: Callable[[str], Sequence[FieldPlace]]
) -> CallForm:
    """Returns the form of a kernel on plain arrays, which was lowered from `logical` if that is given.

    `places`: the fields of a tree by its name. They are part of the text, in any order.
    """
    if logical is None:
        return CallForm(spelled(ir, has_places=False), tuple(range(len(ir.arrays))))
    stated, numbers = logical.ir, logical.numbers
    arrays = {p.name: f"a{k}" for k, p in enumerate(stated.arrays)}
    named = (*(p.tree for p in stated.placed), *_trees_in(stated), *(t.name for t in stated.trees))
    trees = {name: f"t{k}" for k, name in enumerate(dict.fromkeys(named))}
    names = CallNames(arrays, trees)
    structures = {t.name: replace(t, name=trees[t.name]) for t in stated.trees}
    renamed = replace(
        stated,
        arrays=tuple(replace(p, name=arrays[p.name]) for p in stated.arrays),
        body=rewrite(stated.body, names),
        trees=tuple(structures[name] for name in trees),
        placed=rewrite(stated.placed, names),
    )
    text = spelled(renamed, has_places=False)
    owned = [sorted(map(repr, places(name))) for name in trees]
    position = {p.name: k for k, p in enumerate(ir.arrays)}
    on = {p.array: list(trees).index(p.tree) for p in stated.placed}
    return CallForm(
        f"{text}{owned}",
        tuple(position[p.name] for p in stated.arrays if p.name not in on),
        tuple(trees),
        tuple((on[p.array], numbers[p.array]) for p in stated.placed),
    )


def _trees_in(ir: KernelIR) -> list[str]:
    """Returns the trees that the body of a kernel names, in the order in which it names them."""
    found: list[str] = []

    def note(x: Any) -> Any:
        found.extend([x.tree] if hasattr(x, "tree") else [])
        return x

    rewrite(ir.body, note)
    return found
