"""Parser of Python functions: the syntax tree with line numbers of the file, and the objects of free names."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import linecache
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..ir.kernel import Location
from .errors import KernelSyntaxError, LanguageError


@dataclass(frozen=True)
class ParsedFunction:
    """Syntax tree of a function, with facts about its local names.

    `assigned`: number of assignments to each local name; an atomic update counts twice. `mutated`: names of which a part
    (component, member) is assigned or updated. `targets`: index names of loops.
    """

    fn: Callable[..., Any]
    tree: ast.FunctionDef
    file: str
    assigned: Counter[str]
    mutated: frozenset[str]
    targets: frozenset[str]

    @property
    def name(self) -> str:
        return self.tree.name

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree: they are asked for at each call that is inlined."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        return tuple(n for n in self.nodes if isinstance(n, ast.Call))

    @cached_property
    def uses(self) -> Counter[str]:
        """Number of times that each name stands in the function."""
        return Counter(n.id for n in self.nodes if isinstance(n, ast.Name))

    def where(self, node: ast.AST) -> Location:
        return Location(self.file, getattr(node, "lineno", self.tree.lineno))

    def free(self, name: str) -> tuple[bool, Any]:
        """Returns True and the object if a name is bound outside of the function now: closure, module, builtins."""
        for bound in (closure_names(self.fn), self.fn.__globals__, vars(builtins)):
            if name in bound:
                return True, bound[name]
        return False, None


def closure_names(fn: Callable[..., Any]) -> dict[str, Any]:
    """Returns the closure variables of a function by name, without those that have no value yet."""
    names: dict[str, Any] = {}
    code = fn.__code__
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # a name the enclosing function has not assigned yet
            continue
    return names


def location_of(fn: Callable[..., Any]) -> Location:
    code = fn.__code__
    return Location(code.co_filename, code.co_firstlineno)


def parse_function(fn: Callable[..., Any]) -> ParsedFunction:
    """Parses the source of `fn`. LanguageError if its source is not available."""
    where = location_of(fn)
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        raise LanguageError(
            f"the source of {fn.__name__} cannot be read (it was typed at a prompt or built by "
            f"exec): "
            "put the kernel into a file",
            where,
        ) from None
    try:
        module = ast.parse(textwrap.dedent("".join(lines)))
    except SyntaxError:  # a lambda, or a function inside a larger expression
        module = ast.Module([], [])
    tree = module.body[0] if module.body else None
    if isinstance(tree, ast.FunctionDef):
        ast.increment_lineno(tree, first - 1)
    else:
        tree = _of_lambda(fn)
    if tree is None:
        raise KernelSyntaxError("a kernel must be a function written with `def`", where)
    targets = frozenset(
        n.id
        for loop in ast.walk(tree)
        if isinstance(loop, ast.For)
        for n in ast.walk(loop.target)
        if isinstance(n, ast.Name)
    )
    return ParsedFunction(fn, tree, where.file, _count_assignments(tree), _mutated(tree), targets)


def _of_lambda(fn: Callable[..., Any]) -> ast.FunctionDef | None:
    """Returns a lambda as a function definition with one return statement; None if `fn` is no lambda.

    The lambda is found by the source positions in its bytecode, since a line may contain several.
    """
    code = fn.__code__
    places = set(code.co_positions())
    for node in ast.walk(_parsed("".join(linecache.getlines(code.co_filename)))):
        if not isinstance(node, ast.Lambda) or node.lineno != code.co_firstlineno:
            continue
        e = node.body
        if (e.lineno, e.end_lineno, e.col_offset, e.end_col_offset) in places:
            body: list[ast.stmt] = [ast.copy_location(ast.Return(e), e)]
            tree = ast.FunctionDef("function", node.args, body, [])
            return ast.copy_location(tree, node)
    return None


@functools.lru_cache(maxsize=8)  # a table of lambdas has one text
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _count_assignments(tree: ast.FunctionDef) -> Counter[str]:
    loop_targets: set[int] = set()
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.For):
            loop_targets.update(id(n) for n in ast.walk(node.target))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in loop_targets:
                counts[name] += 1
            case ast.AugAssign(target=ast.Name(id=name)):
                counts[name] += 1  # once more than its Store: an update is no first value
            case ast.Call(args=[ast.Name(id=name), *_]) if "atomic" in ast.unparse(node.func):
                counts[name] += 2
    return counts


def _mutated(tree: ast.FunctionDef) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                place: ast.expr = node
            case ast.Call(func=ast.Attribute(value=owner, attr="fill")):
                place = owner
            case ast.Call(args=[ast.Subscript() | ast.Attribute() as first, *_]) if (
                "atomic" in ast.unparse(node.func)
            ):
                place = first
            case _:
                continue
        while isinstance(place, ast.Subscript | ast.Attribute):
            place = place.value
        if isinstance(place, ast.Name):
            found.add(place.id)
    return frozenset(found)
