"""What `print` and `assert` show, as texts and values."""

from __future__ import annotations

import ast
import re
from itertools import count
from string import Formatter
from typing import TYPE_CHECKING

from ..ir.kernel import Part
from .places import loaded_leaf
from .typing_rules import settle
from .values import MatrixValue, Static, StructValue, TupleValue, Value, leaves

if TYPE_CHECKING:
    from .expressions import Expressions

_CONVERSION = re.compile(r"[-+ 0#]*\d*(\.\d+)?[dioxXuaAeEfFgG]")
_PERCENT = re.compile(r"(?<!%)%([-+ 0#]*\d*(?:\.\d+)?[diouxXeEfFgGs])")
Shown = list[tuple[Part, str]]


def parts_of(
    expressions: Expressions, call: ast.Call, end: str = "\n"
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """The texts and values of a call of print, and the conversion of each value ("" for the usual one)."""
    options = {"sep": " ", "end": end}
    for keyword in call.keywords:
        if keyword.arg in options:
            options[keyword.arg] = str(expressions.static(keyword.value))
    shown: Shown = []
    for k, arg in enumerate(call.args):
        if k:
            shown.append((options["sep"], ""))
        shown.extend(_argument(expressions, arg))
    shown.append((options["end"], ""))
    parts = _joined(shown)
    return tuple(p for p, _ in parts), tuple(f for p, f in parts if not isinstance(p, str))


def _argument(expressions: Expressions, arg: ast.expr) -> Shown:
    if isinstance(arg, ast.JoinedStr):
        found: Shown = []
        for part in arg.values:
            if isinstance(part, ast.FormattedValue):
                spec = expressions.static(part.format_spec) if part.format_spec is not None else ""
                found.extend(_value(expressions, expressions.value(part.value), str(spec), arg))
            else:
                found.extend(_value(expressions, expressions.value(part), "", arg))
        return found
    formatted = _formatted(arg)
    if formatted is not None:
        found = []
        for x, spec in formatted:
            if isinstance(x, str):
                found.append((x, ""))
            else:
                found.extend(_value(expressions, expressions.value(x), spec, arg))
        return found
    return _value(expressions, expressions.value(arg), "", arg)


def _formatted(arg: ast.expr) -> list[tuple[str | ast.expr, str]] | None:
    """The texts and the values with their formats of `"...".format(...)` and of `"..." % (...)`; None for anything else."""
    match arg:
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format"), args=args
        ):
            named: dict[str, ast.expr] = {k.arg: k.value for k in arg.keywords if k.arg}
            return _of_format(text, args, named)
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
            return _of_percent(text, right.elts if isinstance(right, ast.Tuple) else [right])
    return None


def _of_format(
    text: str, args: list[ast.expr], named: dict[str, ast.expr]
) -> list[tuple[str | ast.expr, str]] | None:
    found: list[tuple[str | ast.expr, str]] = []
    used = count()
    for literal, field, spec, _ in Formatter().parse(text):
        found.append((literal, ""))
        if field is None:
            continue
        at = int(field) if field.isdecimal() else next(used) if not field else -1
        value = named.get(field) if at < 0 else dict(enumerate(args)).get(at)
        if value is None:  # refused as any other call
            return None
        found.append((value, spec or ""))
    return found


def _of_percent(text: str, args: list[ast.expr]) -> list[tuple[str | ast.expr, str]] | None:
    parts = _PERCENT.split(text)
    if len(parts) // 2 != len(args):
        return None
    found: list[tuple[str | ast.expr, str]] = []
    for k, part in enumerate(parts):
        if k % 2:
            found.append((args[k // 2], "" if part[-1] in "dsfi" and len(part) == 1 else part))
        else:
            found.append((part.replace("%%", "%"), ""))
    return found


def _value(expressions: Expressions, x: Value, spec: str, node: ast.AST) -> Shown:
    if spec and not _CONVERSION.fullmatch(spec):
        expressions.refuse(f"the format `{spec}` is none of C's: use one such as .3f or 5d", node)
    match x:
        case Static(python=python):
            return [(str(python), "")]
        case MatrixValue() if len(x.shape) == 2:
            return _listed(
                [_value(expressions, MatrixValue((len(r),), r), spec, node) for r in x.rows()]
            )
        case MatrixValue(items=items):
            return _listed([_value(expressions, i, spec, node) for i in items])
        case TupleValue(items=parts):
            return _listed([_value(expressions, i, spec, node) for i in parts])
        case StructValue(members=members):
            inside = [[(f"{n}=", ""), *_value(expressions, m, spec, node)] for n, m in members]
            return _listed(inside, "{}")
    (number,) = leaves(x)
    return [(settle(loaded_leaf(number), expressions.default_float), spec)]


def _listed(parts: list[Shown], around: str = "[]") -> Shown:
    found: Shown = [(around[0], "")]
    for k, part in enumerate(parts):
        if k:
            found.append((", ", ""))
        found.extend(part)
    return [*found, (around[1], "")]


def _joined(shown: Shown) -> Shown:
    """Texts that follow one another as one."""
    found: Shown = []
    for part, spec in shown:
        if isinstance(part, str) and found and isinstance(found[-1][0], str):
            found[-1] = (found[-1][0] + part, "")
        elif part != "":
            found.append((part, spec))
    return found
