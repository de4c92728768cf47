"""Shared addresses: elements at constant distances from one another are accessed through one pointer.

Compilers find such addresses too, expression by expression, and take up to a sixth of their time
for it: experiments/results/compile_flags.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from . import csyntax as c
from .free_variables import identifiers
from .names import identifier

_Terms = tuple[tuple[c.CExpr, int], ...]


@dataclass(frozen=True, eq=False)
class _Address:
    """Address of array elements up to a constant: the array, and the terms (C factors with coefficients) of the index.

    Elements with one address and different constants have constant distances, as long as variables
    are unchanged. Equal addresses are one object.
    """

    array: str
    terms: _Terms

    @cached_property
    def names(self) -> frozenset[str]:
        """Identifiers that the address depends on."""
        return frozenset(identifiers((c.Id(self.array), *(x for x, _ in self.terms)))[0])

    @cached_property
    def is_loaded(self) -> bool:
        """True if the index contains a value loaded from memory."""
        return any(_loads(x) for x, _ in self.terms)


@dataclass(frozen=True)
class _Pointer:
    name: str
    constant: int  # of the index of the element that it points to


_Pointers = dict[_Address, _Pointer]


def share_addresses(
    body: tuple[c.CStmt, ...], parameters: tuple[c.Parameter, ...]
) -> tuple[c.CStmt, ...]:
    """Returns a function's body with a pointer for each address of which one scope accesses two or more elements.

    Loads, stores and computations, and their order, are unchanged.
    """
    return _Sharing(body, parameters).scope(body, {})


class _Sharing:
    """State of the rewriting of one function."""

    def __init__(self, body: tuple[c.CStmt, ...], parameters: tuple[c.Parameter, ...]) -> None:
        self.types = {p.name: p.type for p in parameters if p.type.endswith("*")}  # of arrays
        self.used = {p.name for p in parameters}
        self.assigned: set[str] = set()  # variables that change
        self.places: dict[tuple[str, _Terms], _Address] = {}
        self.placed: dict[int, tuple[c.Index, _Address, int]] = {}  # by the identity of elements
        self.look_through(body)

    def look_through(self, body: tuple[c.CStmt, ...]) -> None:
        """Records the names that a scope and the scopes inside it declare or assign."""
        for s in body:
            match s:
                case c.Declare(kind, name, _, extent):
                    self.used.add(name)
                    if extent is None and kind.endswith(("*", "*restrict ")):
                        self.types[name] = kind.removesuffix("restrict ")
                case c.Assign(c.Id(name)):
                    self.assigned.add(name)
                case c.For(name):
                    self.used.add(name)
            for inner in _scopes_of(s):
                self.look_through(inner)

    def scope(self, body: tuple[c.CStmt, ...], outer: _Pointers) -> tuple[c.CStmt, ...]:
        """Returns the statements of a scope with shared addresses; `outer`: pointers of the scopes around it."""
        pointers = dict(outer)
        reached = [[self.place(x) for x in _reached(s)] for s in body]
        constants: dict[_Address, set[int]] = {}
        first: dict[_Address, int] = {}  # statement
        for k, places in enumerate(reached):
            for place, constant in places:
                constants.setdefault(place, set()).add(constant)
                first.setdefault(place, k)
        written: list[c.CStmt] = []
        for s, places in zip(body, reached, strict=True):
            for place, _ in places:
                if place in pointers or len(constants[place]) == 1:
                    continue
                if self.is_lasting(place, body[first[place] :]):
                    pointers[place] = self.pointer(place, min(constants[place]))
                    written.append(self.declared(place, pointers[place]))
            written.append(self.statement(s, pointers))
            if isinstance(s, c.Declare):
                pointers = _without(pointers, s.name)
        return tuple(written)

    def statement(self, s: c.CStmt, pointers: _Pointers) -> c.CStmt:
        """Returns the statement with array elements accessed through `pointers`."""
        match s:
            case c.For(name):
                return replace(s, body=self.scope(s.body, _without(pointers, name)))
            case c.Scope(body):
                return c.Scope(self.scope(body, pointers))
            case c.While(condition, body):
                condition = self.expressed(condition, pointers)
                return c.While(condition, self.scope(body, pointers))
            case c.If(condition, then, orelse):
                then, orelse = self.scope(then, pointers), self.scope(orelse, pointers)
                return c.If(self.expressed(condition, pointers), then, orelse)
        found: c.CStmt = self.expressed(s, pointers) if pointers else s
        return found

    def expressed(self, x: Any, pointers: _Pointers) -> Any:
        kind = type(x)
        if kind is tuple:
            made = [self.expressed(one, pointers) for one in x]
            return tuple(made) if any(a is not b for a, b in zip(made, x, strict=True)) else x
        if kind is c.Index and type(x.base) is c.Id:
            place, constant = self.place(x)
            p = pointers.get(place)
            if p is not None:
                return c.Index(c.Id(p.name), c.number(constant - p.constant))
        changed = {}
        for part in c.PARTS.get(kind, ()):
            before = getattr(x, part)
            after = self.expressed(before, pointers)
            if after is not before:
                changed[part] = after
        return replace(x, **changed) if changed else x

    def is_lasting(self, place: _Address, rest: tuple[c.CStmt, ...]) -> bool:
        """True if an address has variables to share, and is constant in the statements `rest`.

        An address is constant if no variable in it is declared anew or assigned, and its index does
        not come from memory.
        """
        if not place.terms or place.array not in self.types or place.is_loaded:
            return False
        declared = {s.name for s in rest if isinstance(s, c.Declare)}
        return place.names.isdisjoint(self.assigned) and place.names.isdisjoint(declared)

    def pointer(self, place: _Address, constant: int) -> _Pointer:
        stem = name = identifier(f"{place.array}_at")
        k = 0
        while name in self.used:
            k += 1
            name = f"{stem}_{k}"
        self.used.add(name)
        return _Pointer(name, constant)

    def declared(self, place: _Address, p: _Pointer) -> c.CStmt:
        first = c.Index(c.Id(place.array), c.linear(place.terms, p.constant))
        return c.Declare(self.types[place.array], p.name, c.Un("&", first))

    def place(self, x: c.Index) -> tuple[_Address, int]:
        """Returns the address of an array element without its constant, and the constant."""
        if id(x) not in self.placed:
            assert isinstance(x.base, c.Id)
            terms, constant = c.flatten(x.index)
            key = x.base.name, tuple(terms)
            self.placed[id(x)] = x, self.places.setdefault(key, _Address(*key)), constant
        _, place, constant = self.placed[id(x)]
        return place, constant


def _loads(x: Any) -> bool:
    """True if an expression contains an array element or a call."""
    if isinstance(x, tuple):
        return any(map(_loads, x))
    is_load = isinstance(x, c.Index | c.Call)
    return is_load or any(map(_loads, c.parts(x)))


def _without(pointers: _Pointers, name: str) -> _Pointers:
    """Returns the pointers whose addresses do not contain `name`, which denotes another variable from here on."""
    if not any(name in place.names for place in pointers):
        return pointers
    return {place: p for place, p in pointers.items() if name not in place.names}


def _scopes_of(s: c.CStmt) -> tuple[tuple[c.CStmt, ...], ...]:
    match s:
        case c.For() | c.While() | c.Scope():
            return (s.body,)
        case c.If():
            return s.then, s.orelse
    return ()


def _reached(s: c.CStmt) -> Iterator[c.Index]:
    """Yields the array elements that a statement itself surely accesses, from left to right.

    Elements in an inner scope or under a condition are left out. A prefetch accesses nothing.
    """
    if isinstance(s, (c.For, c.Scope)):
        return
    waiting: list[Any] = [s.condition if isinstance(s, c.If | c.While) else s]
    while waiting:
        x = waiting.pop()
        kind = type(x)
        if kind is tuple:
            waiting += reversed(x)
        elif kind is c.Bin and x.op in ("&&", "||"):
            waiting.append(x.a)
        elif kind is c.Cond:
            waiting.append(x.condition)
        elif kind is not c.Call or x.function != c.PREFETCH:
            if kind is c.Index and type(x.base) is c.Id:
                yield x
            waiting += reversed(c.parts(x))
