"""Lines of `--json`: each user-visible event is declared once, as the line that it prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec

_INSIDE: Final = object()
_T = TypeVar("_T")

Inside = Annotated[_T, _INSIDE]
"""Internal field: for listeners of the same process, never printed."""


class AbstractLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="event"):
    """One line of `--json`; `event` names its class.

    Fields that end in _ns are in ns, those in _s in seconds.
    """


def line_text(line: msgspec.Struct | Mapping[str, Any]) -> str:
    """Returns a line, or a mapping of its fields, as JSON text."""
    return json.dumps(line, default=_plain, allow_nan=False)


def line_fields(line: msgspec.Struct) -> dict[str, Any]:
    """Returns the fields of a line by name, its tag first, without internal fields and unset ones."""
    found: dict[str, Any] = {}
    if line.__struct_config__.tag_field is not None:
        found[line.__struct_config__.tag_field] = line.__struct_config__.tag
    values = ((name, getattr(line, name)) for name in _printed(type(line)))
    return found | {name: value for name, value in values if value is not msgspec.UNSET}


def line_class(line: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Returns the class without internal fields, from which the JSON schema is made.

    All fields are required, except those that may be unset.
    """
    printed = {name: _printed_type(hint) for name, hint in _printed(line).items()}
    if printed == _hints(line):
        return line
    config = line.__struct_config__
    unset = {f.name for f in msgspec.structs.fields(line) if f.default is msgspec.UNSET}
    return msgspec.defstruct(
        line.__name__,
        [(n, x, msgspec.UNSET) if n in unset else (n, x) for n, x in printed.items()],
        kw_only=True,
        tag=config.tag,
        tag_field=config.tag_field,
        forbid_unknown_fields=True,
        namespace={"__doc__": line.__doc__},
    )


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, Enum) else line_fields(x)


@cache
def _hints(line: type[msgspec.Struct]) -> dict[str, Any]:
    found = get_type_hints(line, include_extras=True)
    return {name: found[name] for name in line.__struct_fields__}


@cache
def _printed(line: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns the types of a line's printed fields, by name."""
    return {
        name: hint
        for name, hint in _hints(line).items()
        if _INSIDE not in getattr(hint, "__metadata__", ())
    }


def _printed_type(hint: Any) -> Any:
    """Returns the type `hint`, with line classes in it (also in tuples) replaced by their `line_class`."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return line_class(hint)
    if get_origin(hint) is tuple:
        return tuple[tuple(map(_printed_type, get_args(hint)))]  # type: ignore[misc]
    return hint
