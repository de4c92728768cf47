"""Texts and values that `print` and `assert` in a kernel print, with their formats."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from string import Formatter

from ..fields.compound import type_name
from ..ir.kernel import DType, Part
from ..ir.text import default_format, takes_format
from .errors import KernelSyntaxError, KernelTypeError
from .protocol import Frontend
from .typing_rules import settle
from .values import MatrixValue, Static, StructValue, TupleValue, Value, leaves, loaded_leaf

_PERCENT = re.compile(r"(?<!%)%([-+ 0#]*\d*(?:\.\d+)?[diouxXeEfFgGs])")
_LETTERLESS = re.compile(r"[-+ 0#]*\d{0,3}(?:\.\d{1,3})?")  # without the letter of a conversion
_CONVERTED: dict[str, Callable[[object], str]] = {"r": repr, "s": str, "a": ascii}
Shown = list[tuple[Part, str]]


def parts_of(
    frontend: Frontend, call: ast.Call, end: str = "\n"
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Returns the texts and values that a call of `print` prints, and the C conversion of each value.

    A conversion "" is the usual one of the type.
    """
    options = {"sep": " ", "end": end}
    for keyword in call.keywords:
        if keyword.arg not in options:
            frontend.refuse(f"print takes sep and end in a kernel, not {keyword.arg}", call)
        options[keyword.arg] = str(frontend.static(keyword.value))
    shown: Shown = []
    for k, arg in enumerate(call.args):
        if k:
            shown.append((options["sep"], ""))
        shown.extend(_argument(frontend, arg))
    shown.append((options["end"], ""))
    parts = _joined(shown)
    return tuple(p for p, _ in parts), tuple(f for p, f in parts if not isinstance(p, str))


@dataclass(frozen=True)
class _Formatted:
    """Value in a formatted string.

    `spec`: conversion of C without its %, "" for the usual one of the type. `python`: function that returns a constant's text.
    """

    node: ast.expr
    spec: str
    python: Callable[[object], str]


def _argument(frontend: Frontend, arg: ast.expr) -> Shown:
    formatted = _formatted(frontend, arg)
    if formatted is None:
        return _value(frontend, frontend.value(arg), "", arg)
    found: Shown = []
    for x in formatted:
        found.extend([(x, "")] if isinstance(x, str) else _shown(frontend, x, arg))
    return found


def _shown(frontend: Frontend, x: _Formatted, arg: ast.expr) -> Shown:
    """Returns the texts and values printed for a formatted value, each with its C conversion.

    A constant becomes text, formatted by Python. In a program, a format without a letter is formatted by C.
    """
    if _is_letterless(frontend, x.spec):
        return _value(frontend, frontend.value(x.node), x.spec, arg)
    try:
        return [(x.python(frontend.constant(x.node)), "")]
    except (KeyError, TypeError, ValueError):
        return _value(frontend, frontend.value(x.node), x.spec, arg)


def _formatted(frontend: Frontend, arg: ast.expr) -> list[str | _Formatted] | None:
    """Returns the texts and values of an f-string, `"...".format(...)` or `"..." % (...)`; None for others.

    None for anything else.
    """
    match arg:
        case ast.JoinedStr(values=parts):
            return [_of_f_string(frontend, part) for part in parts]
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format"), args=args
        ):
            named: dict[str, ast.expr] = {k.arg: k.value for k in arg.keywords if k.arg}
            return _of_format(frontend, text, arg, (args, named))
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
            given = right.elts if isinstance(right, ast.Tuple) else [right]
            return _of_percent(frontend, text, arg, given)
    return None


def _of_f_string(frontend: Frontend, part: ast.expr) -> str | _Formatted:
    if not isinstance(part, ast.FormattedValue):
        return str(frontend.static(part))
    spec = "" if part.format_spec is None else str(frontend.static(part.format_spec))
    return _Formatted(part.value, spec, _formatting(chr(max(part.conversion, 0)), spec))


def _formatting(conversion: str | None, spec: str) -> Callable[[object], str]:
    """Returns Python's formatting of a value: `conversion` (r, s, a) first, then the format `spec`."""
    converted = _CONVERTED.get(conversion or "")
    return lambda x: format(x if converted is None else converted(x), spec)


def _of_format(
    frontend: Frontend,
    text: str,
    node: ast.expr,
    given: tuple[list[ast.expr], dict[str, ast.expr]],
) -> list[str | _Formatted]:
    args, named = given
    found: list[str | _Formatted] = []
    used = count()
    for literal, field, spec, conversion in Formatter().parse(text):
        found.append(literal)
        if field is None:
            continue
        at = int(field) if field.isdecimal() else next(used) if not field else -1
        value = named.get(field) if at < 0 else dict(enumerate(args)).get(at)
        if value is None:
            frontend.refuse(
                f"`{ast.unparse(node)}` has no value for the field {{{field}}}: give one for each field",
                node,
                KernelSyntaxError,
            )
        found.append(_Formatted(value, spec or "", _formatting(conversion, spec or "")))
    return found


def _of_percent(
    frontend: Frontend, text: str, node: ast.expr, args: list[ast.expr]
) -> list[str | _Formatted]:
    parts = _PERCENT.split(text)
    if len(parts) // 2 != len(args):
        frontend.refuse(
            f"`{ast.unparse(node)}` has {len(parts) // 2} formats for {len(args)} values: give a value for each",
            node,
            KernelSyntaxError,
        )
    found: list[str | _Formatted] = []
    for k, part in enumerate(parts):
        if k % 2:
            found.append(_Formatted(args[k // 2], "" if part == "s" else part, _percent(part)))
        else:
            found.append(part.replace("%%", "%"))
    return found


def _percent(spec: str) -> Callable[[object], str]:
    return lambda x: f"%{spec}" % (x,)


def _value(frontend: Frontend, x: Value, spec: str, node: ast.AST) -> Shown:
    is_letterless = _is_letterless(frontend, spec)
    known = is_letterless or any(takes_format(dtype, spec) for dtype in (DType.f32, DType.i32))
    if spec and not known:
        frontend.refuse(f"the format `{spec}` is none of C's: use one such as .3f or 5d", node)
    match x:
        case Static(python=python):
            if spec:
                frontend.refuse(f"the format `{spec}` is one of numbers, not of {python!r}", node)
            return [(str(python), "")]
        case MatrixValue() if len(x.shape) == 2:
            return _listed(
                [_value(frontend, MatrixValue((len(r),), r), spec, node) for r in x.rows()]
            )
        case MatrixValue(items=items):
            return _listed([_value(frontend, i, spec, node) for i in items])
        case TupleValue(items=parts):
            return _listed([_value(frontend, i, spec, node) for i in parts])
        case StructValue(members=members):
            inside = [[(f"{n}=", ""), *_value(frontend, m, spec, node)] for n, m in members]
            return _listed(inside, "{}")
    (number,) = leaves(x)
    shown = settle(loaded_leaf(number), frontend.default_float)
    if is_letterless:
        spec += default_format(shown.dtype)[-1]
    if spec and not takes_format(shown.dtype, spec):
        of, fits = ("integers", ".3f") if shown.dtype.is_float else ("floats", "5d")
        frontend.refuse(
            f"the format `{spec}` is one of {of}, and shows {type_name(shown.dtype)}: use one such as {fits}, or convert the value",
            node,
            KernelTypeError,
        )
    return [(shown, spec)]


def _is_letterless(frontend: Frontend, spec: str) -> bool:
    """True for a format such as `.2`, to which a program adds the letter of the value's type, such as f."""
    return bool(spec) and frontend.is_strict and _LETTERLESS.fullmatch(spec) is not None


def _listed(parts: list[Shown], around: str = "[]") -> Shown:
    found: Shown = [(around[0], "")]
    for k, part in enumerate(parts):
        if k:
            found.append((", ", ""))
        found.extend(part)
    return [*found, (around[1], "")]


def _joined(shown: Shown) -> Shown:
    """Returns the parts with adjacent texts joined."""
    found: Shown = []
    for part, spec in shown:
        if isinstance(part, str) and found and isinstance(found[-1][0], str):
            found[-1] = (found[-1][0] + part, "")
        elif part != "":
            found.append((part, spec))
    return found
