"""Packs: several arguments of a kernel that a call passes as one object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..fields.caller_location import fail
from ..fields.compound import MatrixType, StructType, type_name
from ..ir.errors import KernelSyntaxError, ProgramKeyError
from ..ir.kernel import Location
from .errors import KernelArgumentError


@dataclass(frozen=True)
class PackType:
    """Type of packs: name and annotation of each member, which is annotated like an argument, or is a pack.

    `name`: how messages call the type; "" shows its members.
    """

    members: tuple[tuple[str, Any], ...]
    name: str = ""

    def __call__(self, *args: Any, **named: Any) -> Pack:
        """Returns a pack with values for all members: in order, by name, or as one dict."""
        names = [name for name, _ in self.members]
        given = dict(zip(names, args, strict=False))
        if len(args) == 1 and not named and isinstance(args[0], Mapping):
            given, args = dict(args[0]), ()
        wrong = {*(given.keys() & named.keys()), *((given | named).keys() ^ set(names))}
        if wrong or len(args) > len(names):
            listed = ", ".join(sorted(map(str, wrong))) or f"{len(args)} for {len(names)}"
            fail(f"{self} is given other members than it has: {listed}", KernelSyntaxError)
        given |= named
        return Pack(self, {name: _converted(a, given[name]) for name, a in self.members})

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={type_name(a)}" for name, a in self.members)
        return self.name or f"<ks.types.argpack {shown}>"


@dataclass(frozen=True)
class PackArgument:
    """Pack argument of a kernel.

    `parameters`: names and annotations of the kernel parameters that stand for its members.
    """

    name: str
    kind: PackType
    parameters: tuple[tuple[str, Any], ...]


class Pack:
    """Values of members that a call passes as one argument.

    Assigning a member, `pack.a = 1`, affects later calls.
    """

    _kind: PackType
    _members: dict[str, Any]

    def __init__(self, kind: PackType, members: dict[str, Any]) -> None:
        self.__dict__.update(_kind=kind, _members=members)

    @property
    def keys(self) -> list[str]:
        return list(self._members)

    @property
    def items(self) -> Iterable[tuple[str, Any]]:
        return self._members.items()

    def to_dict(self) -> dict[str, Any]:
        """Returns the members by name; nested packs become dicts."""
        return {n: x.to_dict() if isinstance(x, Pack) else x for n, x in self._members.items()}

    def __getattr__(self, name: str) -> Any:
        members = self.__dict__.get("_members", {})  # a copy has none at first
        if name not in members:
            raise AttributeError(f"{self.__dict__.get('_kind')} has no member {name!r}")
        return members[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getitem__(self, name: str) -> Any:
        if name not in self._members:
            fail(f"{self._kind} has no member {name!r}", ProgramKeyError)
        return self._members[name]

    def __setitem__(self, name: str, value: Any) -> None:
        annotations = dict(self._kind.members)
        if name not in annotations:
            fail(f"{self._kind} has no member {name!r}", ProgramKeyError)
        self._members[name] = _converted(annotations[name], value)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return str(self.to_dict())


def argpack(**members: Any) -> PackType:
    """Returns the type of packs with these members.

    A member is a type of numbers, vectors or structs, `ks.types.ndarray()`, or another pack type.
    """
    return PackType(tuple(members.items()))


def unpacked(name: str, kind: PackType, taken: set[str]) -> tuple[tuple[str, Any], ...]:
    """Returns names and annotations of the parameters that stand for a pack's members, nested packs flattened.

    `name`: name of the pack argument. `taken`: names that cannot be used; the new ones are added.
    """
    found: list[tuple[str, Any]] = []
    for n, annotation in kind.members:
        own = f"{name}_{n}"
        if isinstance(annotation, PackType):
            found += unpacked(own, annotation, taken)
            continue
        while own in taken:
            own += "_"
        taken.add(own)
        found.append((own, annotation))
    return tuple(found)


def members_given(kind: PackType, x: Any, label: str, where: Location) -> Iterator[Any]:
    """Yields the members of the pack `x` passed as an argument, in the order of `unpacked`.

    An object that is no pack is passed as its attribute `pack`.
    """
    given = x if isinstance(x, Pack) else getattr(x, "pack", None)
    if not isinstance(given, Pack) or given._kind != kind:
        raise KernelArgumentError(f"{label} takes {kind}, not {type(x).__name__}", where)
    for n, annotation in kind.members:
        if isinstance(annotation, PackType):
            yield from members_given(annotation, given[n], label, where)
        else:
            yield given[n]


def _converted(annotation: Any, x: Any) -> Any:
    """Returns a member as its annotation requires: vectors and structs are copied; arrays and packs are not."""
    if isinstance(annotation, MatrixType):
        return annotation(x)
    if isinstance(annotation, StructType):
        return annotation(x)
    return x
