"""Packs of arguments: several arguments of a kernel that a call gives as one."""

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
    """Type of packs: the annotation of each member, as one of an argument, or another pack."""

    members: tuple[tuple[str, Any], ...]

    def __call__(self, *args: Any, **named: Any) -> Pack:
        """Returns a pack of all members, by name or as one dict."""
        given = args[0] if len(args) == 1 and not named else named
        if not isinstance(given, Mapping) or len(args) > 1:
            fail(f"{self} is made of its members by name, or of one dict", KernelSyntaxError)
        names = {name for name, _ in self.members}
        if given.keys() != names:
            wrong = ", ".join(sorted(map(str, given.keys() ^ names)))
            fail(f"{self} is given other members than it has: {wrong}", KernelSyntaxError)
        return Pack(self, {name: _converted(a, given[name]) for name, a in self.members})

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={type_name(a)}" for name, a in self.members)
        return f"<ks.types.argpack {shown}>"


class Pack:
    """Members that kernels take as one argument."""

    def __init__(self, kind: PackType, members: dict[str, Any]) -> None:
        self._kind, self._members = kind, members

    @property
    def keys(self) -> list[str]:
        return list(self._members)

    @property
    def items(self) -> Iterable[tuple[str, Any]]:
        return self._members.items()

    def to_dict(self) -> dict[str, Any]:
        """The members by name, those of packs inside as dicts."""
        return {n: x.to_dict() if isinstance(x, Pack) else x for n, x in self._members.items()}

    def __getattr__(self, name: str) -> Any:
        try:
            return self._members[name]
        except KeyError:
            raise AttributeError(f"{self._kind} has no member {name!r}") from None

    def __getitem__(self, name: str) -> Any:
        if name not in self._members:
            fail(f"{self._kind} has no member {name!r}", ProgramKeyError)
        return self._members[name]

    def __repr__(self) -> str:
        return str(self.to_dict())


def argpack(**members: Any) -> PackType:
    """The type of packs with these members: types of numbers, vectors and structs, `ks.types.ndarray()`, other packs."""
    return PackType(tuple(members.items()))


def unpacked(parameters: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Names and annotations of parameters, with the members of packs in their place."""
    for name, annotation in parameters:
        if isinstance(annotation, PackType):
            yield from unpacked((f"{name}_{n}", a) for n, a in annotation.members)
        else:
            yield name, annotation


def members_given(name: str, kind: PackType, x: Any, label: str, where: Location) -> dict[str, Any]:
    """The members of a pack that is an argument, by the names that `unpacked` has for them."""
    if not isinstance(x, Pack) or x._kind != kind:
        raise KernelArgumentError(f"{label} takes {kind}, not {type(x).__name__}", where)
    found: dict[str, Any] = {}
    for n, annotation in kind.members:
        if isinstance(annotation, PackType):
            found |= members_given(f"{name}_{n}", annotation, x[n], label, where)
        else:
            found[f"{name}_{n}"] = x[n]
    return found


def _converted(annotation: Any, x: Any) -> Any:
    """A member as its annotation has it: vectors and structs are copied, arrays and packs are the same."""
    if isinstance(annotation, MatrixType):
        return annotation(x)
    if isinstance(annotation, StructType):
        return annotation(x)
    return x
