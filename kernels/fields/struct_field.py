"""Fields of structs, which consist of one field for each member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..ir.errors import ProgramKeyError, ProgramTypeError
from .caller_location import fail
from .compound import StructType
from .field import AbstractField, AbstractLeaf, DerivativeKind
from .structs import Struct, members_of, type_of

# What programs ask of a field of structs; a member of such a name is had by `get_member_field`.
_OF_FIELDS = frozenset(
    (
        *("members", "leaves", "keys", "get_member_field", "shape", "parent", "snode"),
        *("grad", "dual", "derivative"),
        *("fill", "copy_from", "to_numpy", "from_numpy", "to_torch", "from_torch"),
    )
)


class StructField(AbstractField):
    """Field of structs: one field for each member, such as `f.position`."""

    def __init__(self, kind: StructType, members: dict[str, AbstractField], name: str) -> None:
        super().__init__(name)
        self.kind = kind
        self.members = members
        self._derivatives: dict[DerivativeKind, StructField] = {}

    def leaves(self) -> tuple[AbstractLeaf, ...]:
        return tuple(leaf for member in self.members.values() for leaf in member.leaves())

    def derivative(self, kind: DerivativeKind) -> StructField:
        """Returns the field of structs that has the gradients or duals (`kind`) of the members of floats."""
        if kind not in self._derivatives:
            self._derivatives[kind] = self._of_derivatives(kind)
        return self._derivatives[kind]

    def _of_derivatives(self, kind: DerivativeKind) -> StructField:
        has_floats = {
            n: m for n, m in self.members.items() if any(x.dtype.is_float for x in m.leaves())
        }
        made = {n: m.derivative(kind) for n, m in has_floats.items()}
        types = {
            n: m.kind if isinstance(m, StructField) else self.kind.members[n]
            for n, m in made.items()
        }
        return StructField(StructType(types), made, f"{self.name or 'field'}_{kind}")

    @property
    def keys(self) -> list[str]:
        return list(self.members)

    def get_member_field(self, key: str) -> AbstractField:
        """Returns the field of one member."""
        if key not in self.members:
            fail(
                f"{self.label} has no member {key!r}: it has {', '.join(self.members)}",
                ProgramKeyError,
            )
        return self.members[key]

    def __getattribute__(self, name: str) -> Any:
        """Returns the field of a member, even if an attribute of this class has the same name."""
        if name not in _OF_FIELDS and not name.startswith("_"):
            members = object.__getattribute__(self, "__dict__").get("members", {})
            if name in members:
                return members[name]
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a field of structs has no member {name!r}")

    def fill(self, value: Any) -> None:
        values = _given_members(value)
        for name, member in self.members.items():
            member.fill(value if values is None else values[name])

    def copy_from(self, other: Any) -> None:
        if not isinstance(other, StructField) or other.keys != self.keys:
            fail(
                f"{self.label}.copy_from takes a field of structs with the members {', '.join(self.keys)}",
                ProgramTypeError,
            )
        for name, member in self.members.items():
            member.copy_from(other.members[name])

    def to_numpy(self) -> dict[str, Any]:
        """Returns copies of the members' elements, by member name."""
        return {name: member.to_numpy() for name, member in self.members.items()}

    def from_numpy(self, arr: Mapping[str, Any]) -> None:
        """Sets the members' elements from arrays, by member name."""
        for name, array in arr.items():
            self.get_member_field(name).from_numpy(array)

    def to_torch(self, device: Any = None) -> dict[str, Any]:
        """Returns copies like those of `to_numpy`, as tensors on `device`."""
        return {name: member.to_torch(device) for name, member in self.members.items()}

    def from_torch(self, arr: Mapping[str, Any]) -> None:
        """Sets the members' elements like `from_numpy`, from tensors."""
        for name, tensor in arr.items():
            self.get_member_field(name).from_torch(tensor)

    def __getitem__(self, key: Any) -> Struct:
        self.leaves()[0].index(key)
        return Struct.of_element(type_of(self), _Element(self.members, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        values = _given_members(value)
        if values is None:
            fail(
                f"{self.label} takes a struct with the members {', '.join(self.keys)}, not {value!r}",
                ProgramTypeError,
            )
        for name in self.members:
            if name not in values:
                fail(
                    f"{self.label} takes a struct with a member {name}, which {value!r} has not",
                    ProgramKeyError,
                )
            self.members[name][key] = values[name]

    def __str__(self) -> str:
        return str(self.to_numpy())


class _Element:
    """Members of one element of a field of structs by name: reading and writing them accesses the field."""

    def __init__(self, members: dict[str, AbstractField], key: Any) -> None:
        self._members = members
        self._key = key

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __getitem__(self, name: str) -> Any:
        return self._members[name][self._key]

    def __setitem__(self, name: str, value: Any) -> None:
        self._members[name][self._key] = value


def _given_members(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, Struct):
        return members_of(value)
    return value if isinstance(value, Mapping) else None
