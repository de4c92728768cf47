"""Elements of fields of quantised types in a kernel: parts of words, which stores read, change and write."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ..ir import kernel as ir
from ..ir.affine import limits
from ..ir.simplify import binary, cast, const, is_cheap_and_fixed
from ..ir.structure import StructureTree
from ..ir.walk import walk, written_in
from ..sparse.disjoint import fields_apart
from .bit_expressions import codec_of
from .errors import KernelError
from .scopes import PackedStore, Pass
from .values import ArrayRef, Element, Packed


def in_order(
    body: Sequence[ir.Stmt], words: Set[str], trees: Mapping[str, StructureTree], fresh: Fresh
) -> tuple[ir.Stmt, ...]:
    """Returns a kernel's statements, with loops in order if several of their iterations may store parts of one word.

    A store of a part reads the word, so threads would lose what others store to it. A loop in another one runs in order.
    """
    return tuple(_in_order(s, words, trees, fresh) for s in body)


def _in_order(
    s: ir.Stmt, words: Set[str], trees: Mapping[str, StructureTree], fresh: Fresh
) -> ir.Stmt:
    if not isinstance(s, ir.For | ir.ForActive):
        return s
    stored = words & written_in((s,))
    if not stored or stored <= fields_apart(s, trees):
        return s
    if isinstance(s, ir.ForActive):
        text = (
            "iterations of a loop over active cells store quantised numbers to words that they share: store to the cell of the"
            " iteration, or loop over a range"
        )
        raise KernelError(text, s.where)
    return ir.For(fresh("once"), const(1, ir.DType.i64), (s,), s.where)


def packed_element(
    state: Pass, base: ArrayRef, at: tuple[ir.Expr, ...], nearest: tuple[ir.Expr, ...]
) -> Element:
    """The place of an element, which is read at the indices `nearest`."""
    assert base.packed is not None
    word, bits = _in_words(state, base.packed, at)
    made = Element(base.param, word, packed=replace(base.packed, at=bits, read_at=bits))
    if nearest == at:
        return made
    read, read_bits = _in_words(state, base.packed, nearest)
    return replace(made, nearest=read, packed=replace(base.packed, at=bits, read_at=read_bits))


def _in_words(
    state: Pass, packed: Packed, at: tuple[ir.Expr, ...]
) -> tuple[tuple[ir.Expr, ...], ir.Expr | None]:
    """The indices of the word of an element, and where its bits begin; None where the layout says that."""
    if not packed.parts:
        return at, None
    zero = const(0, ir.DType.i64)
    words: dict[int, ir.Expr] = {}
    inside: ir.Expr = zero
    for i, (axis, extent, step) in zip(at, packed.parts, strict=True):
        word, part = _split(state, i, extent)
        if axis >= 0:
            words[axis] = word
        inside = binary("add", inside, binary("mul", part, const(step, part.dtype)))
    bits = binary("mul", inside, const(packed.kind.bits, ir.DType.i64))
    indices = tuple(words[axis] for axis in sorted(words)) or (zero,)
    return indices, cast(bits, packed.layout.wide)


def _split(state: Pass, i: ir.Expr, extent: int) -> tuple[ir.Expr, ir.Expr]:
    """An index divided by an extent, and the rest."""
    if extent == 1:
        return i, const(0, ir.DType.i64)
    sum_ = i.x if isinstance(i, ir.Cast) else i
    match sum_:  # of a loop over words and one over their elements
        case ir.Binary("add", ir.Binary("mul", word, ir.Const(value=n)), part) if n == extent:
            found = limits(part, state.extents)
            if found is not None and found[0] >= 0 and found[1] < extent:
                return cast(word, ir.DType.i64), cast(part, ir.DType.i64)
    n_inside = const(extent, i.dtype)
    return binary("floordiv", i, n_inside), binary("mod", i, n_inside)


Fresh = Callable[[str], str]
"""Function that returns an unused name."""


@dataclass(frozen=True)
class PackedStores:
    """Compiles stores to elements of quantised types. `in_local` copies an expression to a local."""

    state: Pass
    in_local: Callable[[ir.Expr, ast.AST], ir.Expr]

    def store(self, place: Element, value: ir.Expr, node: ast.AST) -> None:
        """Emits `place = value`. A store to the same word right before is merged with it."""
        state, packed = self.state, place.packed
        assert packed is not None
        before = self._mergeable(place, value)
        numbers = {} if before is None else dict(before.numbers)
        if before is None:
            state.activate(place.array.name, place.indices, node)
        else:
            state.blocks[-1].pop()
        kept = value if is_cheap_and_fixed(value) else self.in_local(value, node)
        numbers[packed.member] = kept
        word = ir.Load(place.array.name, place.indices, place.array.dtype)
        new = codec_of(packed.layout).store(word, numbers, packed.at)
        made = ir.Store(place.array.name, place.indices, new, state.frame.parsed.where(node))
        state.words.add(place.array.name)
        state.emit(made)
        state.packed_store = PackedStore(made, tuple(numbers.items()))

    def add(self, place: Element, value: ir.Expr, node: ast.AST) -> None:
        """Emits `place += value` for integers and fixed-point numbers."""
        state, packed = self.state, place.packed
        assert packed is not None
        state.activate(place.array.name, place.indices, node)
        word = ir.Load(place.array.name, place.indices, place.array.dtype)
        new = codec_of(packed.layout).add(word, packed.member, value, packed.at)
        where = state.frame.parsed.where(node)
        state.words.add(place.array.name)
        state.emit(ir.Store(place.array.name, place.indices, new, where))

    def _mergeable(self, place: Element, value: ir.Expr) -> PackedStore | None:
        """The last statement, if it stores to the same word, and neither value nor index depends on that."""
        block, before = self.state.blocks[-1], self.state.packed_store
        if before is None or not block or block[-1] is not before.statement or place.packed is None:
            return None
        same = (place.array.name, place.indices) == (
            before.statement.array,
            before.statement.indices,
        )
        read = (e for x in (value, *place.indices) for e in walk(x))
        reads = any(isinstance(e, ir.Load) and e.array == place.array.name for e in read)
        return before if same and not reads and place.packed.at is None else None
