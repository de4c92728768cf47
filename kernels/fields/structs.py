"""Structs outside of kernels: independent values, or views of an element of a struct field."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from .caller_location import fail
from .matrix import Matrix


class Members(Protocol):
    """Named values with read and write access: a dict, or an element of a field."""

    def __iter__(self) -> Iterator[str]: ...

    def __getitem__(self, name: str, /) -> Any: ...

    def __setitem__(self, name: str, value: Any, /) -> None: ...


class Struct:
    """Named members: `ks.Struct(a=1, v=ks.Vector([1, 2]))`, or a value of `ks.types.struct(...)`.

    Members are `s.a` or `s["a"]`; `kind` is the type, None if there is none. Methods are those of the type.
    """

    __slots__ = ("_members", "kind")
    _members: Members
    kind: Any

    def __init__(self, members: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        given = {**(members or {}), **named}
        object.__setattr__(self, "kind", None)
        object.__setattr__(self, "_members", {key: _plain(x) for key, x in given.items()})

    @classmethod
    def of_type(cls, kind: Any, members: dict[str, Any]) -> Struct:
        """Returns a struct of type `kind`; the members are already converted to their types."""
        return cls.of_element(kind, members)

    @classmethod
    def of_element(cls, kind: Any, members: Members) -> Struct:
        """Returns a struct that is a view of a field's element: `members` reads and writes the field."""
        made = cls.__new__(cls)
        object.__setattr__(made, "kind", kind)
        object.__setattr__(made, "_members", members)
        return made

    @classmethod
    def field(
        cls, members: Mapping[str, Any], methods: Any = None, shape: Any = None, **options: Any
    ) -> Any:
        """Creates a field of structs with these members; the options are those of `ks.field`."""
        from .compound import struct
        from .factories import struct_field

        return struct_field(struct(**members, __struct_methods=methods or {}), shape, **options)

    @property
    def keys(self) -> list[str]:
        return list(self._members)

    @property
    def entries(self) -> dict[str, Any]:
        """Members by name, as they are stored."""
        return members_of(self)

    @property
    def items(self) -> Any:
        return members_of(self).items()

    def to_dict(self) -> dict[str, Any]:
        """Returns the members by name, vectors as lists, structs as dicts."""
        return {key: _listed(member) for key, member in members_of(self).items()}

    def __getattribute__(self, name: str) -> Any:
        """Returns a member, even if an attribute of this class has the same name."""
        if not name.startswith("_"):
            members = object.__getattribute__(self, "_members")
            if name in members:
                return members[name]
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        """Returns a method of the struct type, bound to this struct."""
        kind = None if name.startswith("__") else type_of(self)
        method = kind.methods.get(name) if kind is not None else None
        if method is None:
            raise AttributeError(f"a struct of {', '.join(self._members)} has no member {name!r}")
        return types.MethodType(method, self)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getitem__(self, name: str) -> Any:
        self._check(name)
        return self._members[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._check(name)
        kind = type_of(self)
        member = kind.members[name] if kind is not None else None
        if member is not None and isinstance(self._members, dict):
            from .compound import member_value

            value = member_value(member, value)
        self._members[name] = value

    def __len__(self) -> int:
        return len(members_of(self))

    def __iter__(self) -> Iterator[Any]:
        """Yields the values of the members."""
        return iter(members_of(self).values())

    def __repr__(self) -> str:
        return str(Struct.to_dict(self))

    def _check(self, name: str) -> None:
        if name not in self._members:
            fail(f"a struct of {', '.join(self._members)} has no member {name!r}")


def members_of(x: Struct) -> dict[str, Any]:
    """Returns the members of a struct by name, even if one of them has the name of an attribute of `Struct`."""
    return {key: x._members[key] for key in x._members}


def type_of(x: object) -> Any:
    """Returns the type of a struct or of a field of structs; None if it has none.

    The result is right even if a member is named `kind`.
    """
    return object.__getattribute__(x, "kind")


def _plain(x: Any) -> Any:
    return Struct(x) if isinstance(x, Mapping) else x


def _listed(x: Any) -> Any:
    if isinstance(x, Struct):
        return Struct.to_dict(x)
    return x.to_list() if isinstance(x, Matrix) else x
