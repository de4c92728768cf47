"""Memory of the library in which a launch keeps what it has derived from indices, for the next call to use again."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.ir.kernel import DType
from ..passes.storage import Buffer, KeptMemory
from ..text import csyntax as c
from ..text.types import type_name
from .emission import Emission

Statements = tuple[c.CStmt, ...]

_ZERO, _ONE = c.Num("0"), c.Num("1")
_ACQUIRE, _RELEASE, _RELAXED = "__ATOMIC_ACQUIRE", "__ATOMIC_RELEASE", "__ATOMIC_RELAXED"


def keeping(scene: Emission, stem: str, buffers: Sequence[Buffer]) -> KeptMemory:
    """Allocates what it takes to keep buffers, which lie one behind the other, until the next call."""
    w = scene.w
    is_valid = scene.buffer(f"{stem}_is_valid", DType.i32, 1, is_private=False)
    place, lock = (
        scene.workspace.allocate(w.fresh(f"{stem}_{s}"), DType.i64, 1, is_private=False)
        for s in ("place", "lock")
    )
    names = (w.fresh(f"{stem}_{s}") for s in ("base", "memory", "in_use", "is_mine"))
    return KeptMemory((*buffers, is_valid), place, lock, *names)


def take(x: KeptMemory) -> Statements:
    """Returns code of the launch's function before its team starts: finds the memory.

    That is the library's own, with the contents of an earlier call, or the workspace if another call is using it.
    """
    first, n_bytes = x.buffers[0].offset_bytes, sum(b.stride_bytes for b in x.buffers)
    exchange = c.Call("__atomic_exchange_n", (c.Un("&", c.Id(x.in_use)), _ONE, c.Id(_ACQUIRE)))
    in_workspace = c.Bin("+", c.Id("workspace"), c.number(first))
    address = c.Cond(c.Id(x.is_mine), c.CastTo("char *", c.Id(x.memory)), in_workspace)
    flag = c.Cond(c.Id(x.is_mine), c.Un("&", c.Id(x.in_use)), _ZERO)
    invalid = c.Assign(_word("int32_t", x.is_valid), _ZERO)
    return (
        c.Declare("static int64_t", x.memory, None, -(-n_bytes // DType.i64.size_bytes)),
        c.Declare("static int", x.in_use),
        c.Declare("int", x.is_mine, c.Un("!", exchange), constant=True),
        c.Assign(_word("char *", x.place), address),
        c.Assign(_word("int *", x.lock), flag),
        c.If(c.Un("!", c.Id(x.is_mine)), (invalid,)),
    )


def release(x: KeptMemory) -> Statements:
    """Returns code behind the last launch that needs the memory: it is free for other calls."""
    flag = _word("int *", x.lock)
    clear = c.Call("__atomic_store_n", (flag, _ZERO, c.Id(_RELEASE)))
    return (c.If(flag, (c.Evaluate(clear),)),)


def opened(buffers: Sequence[Buffer], memory: KeptMemory | None) -> Statements:
    """Returns the declarations of a thread's pointers to buffers, which are in the workspace if `memory` is None."""
    made: list[c.CStmt] = []
    base, before = c.Id("workspace"), 0
    if memory is not None:
        base, before = c.Id(memory.base), memory.buffers[0].offset_bytes
        made.append(c.Declare("char *", memory.base, _word("char *", memory.place)))
    for b in buffers:
        kind = type_name(b.dtype, 0)
        place = c.add(base, c.number(b.offset_bytes - before))
        made.append(c.Declare(f"{kind} *", b.name, c.CastTo(f"{kind} *", place)))
    return tuple(made)


def validate(x: KeptMemory) -> Statements:
    """Returns code behind a launch that has filled all of the memory: the next call may use the contents."""
    distance = x.is_valid.offset_bytes - x.buffers[0].offset_bytes
    place = c.Bin("+", _word("char *", x.place), c.number(distance))
    return (c.Assign(c.Index(c.CastTo("int32_t *", place), _ZERO), _ONE),)


def invalidate_if(differs: c.CExpr, x: KeptMemory) -> c.CStmt:
    """Returns the statement by which any thread makes the contents invalid, as those of other indices."""
    is_valid = c.Un("&", c.Index(c.Id(x.is_valid.name), _ZERO))
    store = c.Call("__atomic_store_n", (is_valid, _ZERO, c.Id(_RELAXED)))
    return c.If(differs, (c.Evaluate(store),))


def _word(kind: str, b: Buffer) -> c.CExpr:
    """Returns the word of a C type that a buffer of the workspace holds."""
    place = c.Bin("+", c.Id("workspace"), c.number(b.offset_bytes))
    return c.Index(c.CastTo(f"{kind} *", place), _ZERO)
