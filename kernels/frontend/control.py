"""Structured control flow: `break`, `continue` and early `return` become flags, so the IR needs no jump.

An `if` that always jumps moves the statements after it into its other branch, and needs no flag. Elsewhere a test of the flags
guards the statements that follow. Flags that are never tested are removed with other locals that are never read.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from ..ir.kernel import DType, Expr, Local
from ..ir.simplify import binary, const, unary
from .scopes import Flag, Pass

# The branch of a static if, given the names of loops that have not begun; None of another.
Taken = Callable[[ast.If, frozenset[str]], list[ast.stmt] | None]
_JUMPS = {ast.Break: "break", ast.Continue: "continue", ast.Return: "return"}


def escapes(
    statements: Sequence[ast.stmt], taken: Taken, unbound: frozenset[str] = frozenset()
) -> set[str]:
    """Returns the kinds of jumps ("break", "continue", "return") by which control may leave these statements.

    `taken`: function that returns the branch of an `if` decided at compile time.
    `unbound`: index names of inner loops, which have no value yet.
    """
    found: set[str] = set()
    for s in statements:
        if type(s) in _JUMPS:
            found.add(_JUMPS[type(s)])
        elif isinstance(s, ast.If):
            branch = taken(s, unbound)
            for part in (s.body, s.orelse) if branch is None else (branch,):
                found |= escapes(part, taken, unbound)
        elif isinstance(s, ast.For):
            found |= escapes(s.body, taken, unbound | targets_of(s)) & {"return"}
        elif isinstance(s, ast.While):
            found |= escapes(s.body, taken, unbound) & {"return"}
    return found


def targets_of(loop: ast.For) -> frozenset[str]:
    """Returns the index names of a for loop."""
    return frozenset(n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name))


def surely_leaves(statements: Sequence[ast.stmt]) -> bool:
    """True if the last of these statements jumps on every path: break, continue or return."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        return surely_leaves(last.body) and surely_leaves(last.orelse)
    return type(last) in _JUMPS


def none_of(flags: Sequence[Flag]) -> Expr:
    """Returns the condition that no flag of `flags` is set."""
    result: Expr = const(True, DType.bool_)
    for flag in flags:
        flag.is_read = True
        result = binary("and", result, unary("not", Local(flag.name, DType.bool_)))
    return result


def flags_after(state: Pass, kinds: set[str]) -> list[Flag]:
    """Returns the flags that are true if a jump of one of these kinds was taken.

    Code after the jump tests them.
    """
    frame = state.frame
    found = []
    if frame.loops and "continue" in kinds:
        found.append(frame.loops[-1].continued)
    if frame.loops and "break" in kinds:
        found.append(frame.loops[-1].broken)
    if "return" in kinds:
        found.append(frame.left)
    return [flag for flag in found if flag is not None]
