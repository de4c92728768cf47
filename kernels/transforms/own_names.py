"""Names of a body's own: loops and locals that get other names where a body beside it has theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from ..ir import kernel as ir
from ..ir.walk import rewrite

Names = dict[tuple[Literal["local", "loop"], str], str]
"""New names, by kind and name."""


def with_own_names(body: tuple[ir.Stmt, ...], names: Names, taken: set[str]) -> tuple[ir.Stmt, ...]:
    """Returns the statements with loops and locals renamed. Those without an entry in `names` get one.

    Such a name stays if it is not `taken`, and is taken then.
    """

    def fresh(kind: Literal["local", "loop"], name: str) -> str:
        if (kind, name) not in names:
            k, new = 1, name
            while new in taken:
                k += 1
                new = f"{name}_{k}"
            taken.add(new)
            names[kind, name] = new
        return names[kind, name]

    def change(x: Any) -> Any:
        match x:
            case (
                ir.Local() | ir.LocalElement() | ir.SetLocal() | ir.UpdateLocal() | ir.LocalArray()
            ):
                return replace(x, name=fresh("local", x.name))
            case ir.SetElement():
                return replace(x, name=fresh("local", x.name))
            case ir.Update(result=name) if name:
                return replace(x, result=fresh("local", name))
            case ir.LoopIndex() | ir.For():
                return replace(x, loop=fresh("loop", x.loop))
        return x

    return rewrite(body, change)
