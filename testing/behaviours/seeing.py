"""Rows of behaviours, and ways to see what a program does: what it computes, refuses and prints.

A row is a kernel below what it is called with and what is seen of it:

    @leaves("x", 2, 6, x=i32(8))
    def ranges_have_a_begin_and_an_end(a: ti.i32, b: ti.i32):
        for i in range(a, b):
            x[i] = i

The fields that a row names are global names of its kernel, made anew each time that it runs. A function among its arguments is what
it gives then, and may name fields.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial, wraps
from types import FunctionType, MappingProxyType
from typing import Any

import numpy as np
import taichi as ti

Make = Callable[[], Any]
Row = Callable[[Callable[..., Any]], Callable[[], Any]]

heard: list[Exception] = []
"""What calls were refused with, so that who runs behaviours can look at the words."""


def field(dtype, *shape: int, **options: Any) -> Make:
    """Makes a field of numbers."""
    return partial(ti.field, dtype, shape=shape, **options)


i32 = partial(field, ti.i32)
f32 = partial(field, ti.f32)


def vectors(n: int, dtype, *shape: int, **options: Any) -> Make:
    """Makes a field of vectors of `n` components."""
    return partial(ti.Vector.field, n, dtype, shape=shape, **options)


def matrices(n: int, m: int, dtype, *shape: int) -> Make:
    """Makes a field of matrices of `n` rows and `m` columns."""
    return partial(ti.Matrix.field, n, m, dtype, shape=shape)


def structs(members: dict[str, Any], *shape: int) -> Make:
    """Makes a field of structs."""
    return partial(ti.Struct.field, members, shape=shape)


def placed(node, *dtypes, at=MappingProxyType({})):
    """Fields of a node of a tree, or one field of i32, some of whose cells hold a number."""
    fields = [ti.field(dtype) for dtype in dtypes or (ti.i32,)]
    node.place(*fields)
    for cell, number in at.items():
        fields[0][cell] = number
    return fields if dtypes else fields[0]


def _with(body: Callable[..., Any], names: dict[str, Any]) -> Callable[..., Any]:
    """A function to which some more names are global."""
    code, space = body.__code__, body.__globals__ | names
    found = FunctionType(code, space, body.__name__, body.__defaults__, body.__closure__)
    found.__annotations__ = body.__annotations__
    return found


def _made(fields: dict[str, Make]) -> dict[str, Any]:
    """The fields of a row, and what else it names: each may use those before it."""
    made: dict[str, Any] = {}
    for name, make in fields.items():
        made[name] = _with(make, made)() if isinstance(make, FunctionType) else make()
    return made


def _given(x: Any, made: dict[str, Any]) -> Any:
    """An argument of a row: what a function gives, or itself."""
    return _with(x, made)() if isinstance(x, FunctionType) else x


def _row(fields: dict[str, Make], see: Callable[[Callable[..., Any], dict[str, Any]], Any]) -> Row:
    """A behaviour of a kernel: what `see` makes of it and its fields. It is a kernel when it is called first."""

    def behaviour_of(body: Callable[..., Any]) -> Callable[[], Any]:
        @wraps(body)
        def behaviour() -> Any:
            made = _made(fields)
            kernel = cache(lambda: ti.kernel(_with(body, made)))
            return see(lambda *given: kernel()(*[_given(x, made) for x in given]), made)

        return behaviour

    return behaviour_of


def returns(*given: Any, **fields: Make) -> Row:
    """A row that shows what its kernel returns."""
    return _row(fields, lambda call, _: value(call(*given)))


def each(*calls: Any, **fields: Make) -> Row:
    """A row that shows what its kernel returns each time: for a tuple of arguments, or for one."""
    listed = [given if isinstance(given, tuple) else (given,) for given in calls]
    return _row(fields, lambda call, _: [value(call(*given)) for given in listed])


def answers(*given: Any, **fields: Make) -> Row:
    """A row that shows what its kernel returns, or that it is refused."""

    def see(call: Callable[..., Any], _: dict[str, Any]) -> Any:
        is_refused = refused(lambda: call(*given)) != "runs"
        return "refused" if is_refused else value(call(*given))

    return _row(fields, see)


def leaves(seen: str | Make, /, *given: Any, **fields: Make) -> Row:
    """A row that shows some of its fields behind a call, by name, or what a function makes of them."""

    def see(call: Callable[..., Any], made: dict[str, Any]) -> Any:
        call(*given)
        if not isinstance(seen, str):
            return _with(seen, made)()
        found = [contents(made[name]) for name in seen.split()]
        return found if len(found) > 1 else found[0]

    return _row(fields, see)


def raises(*given: Any, **fields: Make) -> Row:
    """A row that shows the classes of the error that a call ends in."""
    return _row(fields, lambda call, _: raised(lambda: call(*given)))


def refuses(*given: Any, **fields: Make) -> Row:
    """A row that shows whether a call is refused."""
    return _row(fields, lambda call, _: refused(lambda: call(*given)))


def prints(*given: Any, **fields: Make) -> Row:
    """A row that shows what a call prints."""
    return _row(fields, lambda call, _: printed(lambda: call(*given)))


def raising(*calls: Callable[[], Any], **fields: Make) -> Callable[[], Any]:
    """A behaviour that shows the classes of the errors of calls from Python."""
    return _outside(raised, calls, fields)


def refusing(*calls: Callable[[], Any], **fields: Make) -> Callable[[], Any]:
    """A behaviour that shows which calls from Python are refused."""
    return _outside(refused, calls, fields)


def _outside(
    see: Callable[[Callable[[], Any]], Any],
    calls: tuple[Callable[[], Any], ...],
    fields: dict[str, Make],
) -> Callable[[], Any]:
    @wraps(calls[0])
    def behaviour() -> Any:
        made = _made(fields)
        found = [see(_with(call, made)) for call in calls]
        return found if len(found) > 1 else found[0]

    return behaviour


def calls(function: Callable[..., Any], *given: Any, **named: Any) -> Callable[[], Any]:
    """A behaviour that shows what a function makes of what it is given."""

    @wraps(function)
    def behaviour() -> Any:
        return function(*given, **named)

    return behaviour


def value(x: Any) -> Any:
    """What a kernel has returned: vectors as arrays."""
    return x.to_numpy() if hasattr(x, "to_numpy") else x


def contents(x: Any) -> Any:
    """The array of a field, or its number where it has no axes; arrays are seen as they are."""
    if isinstance(x, np.ndarray):
        return x
    return x.to_numpy() if x.shape else x[None]


def refused(call: Callable[[], Any]) -> str:
    """ "refused" where a call ends in an error, else "runs"."""
    try:
        call()
        ti.sync()
    except Exception as e:  # which kind it is differs, and is looked at by whoever runs this
        heard.append(e)
        return "refused"
    return "runs"


def raised(call: Callable[[], Any]) -> list[str]:
    """The classes that what a call ends in is of: Taichi's, then Python's; "runs" where it ends by itself."""
    try:
        call()
        ti.sync()
    except Exception as e:  # its class is what is asked
        heard.append(e)
        return [name for name, kind in _classes().items() if isinstance(e, kind)]
    return ["runs"]


def _classes() -> dict[str, type[Exception]]:
    from taichi.lang import exception

    names = "Compilation Syntax Name Index Type Runtime RuntimeType Assertion"
    theirs = [f"Taichi{name}Error" for name in names.split()]
    pythons = (
        SyntaxError,
        NameError,
        AttributeError,
        LookupError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
    )
    more = (RuntimeError, NotImplementedError, AssertionError, ArithmeticError)
    return {n: getattr(exception, n) for n in theirs} | {k.__name__: k for k in (*pythons, *more)}


def printed(call: Callable[[], Any]) -> str:
    """What a call writes to stdout, also from C."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            call()
            ti.sync()
            sys.stdout.flush()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read().decode()


@ti.kernel
def n_active(x: ti.template()) -> ti.i32:
    """How many cells of a field or a node are active."""
    n = 0
    for _ in ti.grouped(x):
        n += 1
    return n


@ti.kernel
def total(x: ti.template()) -> ti.i32:
    """The sum of the active cells of a field."""
    n = 0
    for I in ti.grouped(x):
        n += x[I]
    return n


@ti.kernel
def _visit(x: ti.template(), seen: ti.template()):
    for I in ti.grouped(x):
        seen[I] += 1


def visits(x: Any) -> Any:
    """How often a loop over a field or a node visits each of its cells."""
    seen = ti.field(ti.i32, shape=x.shape)
    _visit(x, seen)
    return seen.to_numpy()


@ti.kernel
def _clear(node: ti.template(), k: ti.i32):
    ti.deactivate(node, [k])


def clear(node: Any, *cells: int) -> None:
    """Makes cells of a node of one axis inactive."""
    for k in cells:
        _clear(node, k)


@ti.kernel
def _look(node: ti.template(), found: ti.template()):
    for I in ti.grouped(found):
        found[I] = ti.is_active(node, I)


def active(node: Any) -> Any:
    """Which cells of a node are active, each asked of: 1 and 0."""
    found = ti.field(ti.i32, shape=node.shape)
    _look(node, found)
    return found.to_numpy()


@ti.kernel
def put(x: ti.template(), k: ti.i32, v: ti.i32):
    """Stores a number in a cell of a field of one axis."""
    x[k] = v


@ti.kernel
def fill(x: ti.template(), n: ti.i32, first: ti.i32):
    """Stores first, first + 1, ... in the first cells of a field of one axis."""
    for i in range(n):
        x[i] = first + i
