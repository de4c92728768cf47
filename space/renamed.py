"""Compatibility of stored decisions: translates names and values of older versions to the current ones."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator

# Renamed choices: one kind named two choices, which their objects tell apart.
_RENAMED = ((re.compile(r"cache\((.+->.+)\)"), r"load_cache(\1)"),)
# Renamings that only a space can resolve: the name of a task may have a dot, too.
_IN_A_SPACE = ((re.compile(r"prefetch\((.+\..+)\)"), r"prefetch_accumulators(\1)"),)
# Renamed values, by kind: GPUs had BLOCK for PARALLEL. The number of blocks of a copy and its packer were one choice.
_VALUES = {"dim_kind": {"BLOCK": "PARALLEL"}, "staged": {"TEAM_COPY": "COPY"}}
# Choices that are no more: loops of bodies with fields in tiles had choices of their own beside that of the body without.
_GONE = re.compile(r"unrolled\(.+\.c_?\d+\)")
_OR = "|"  # between the values of an open choice (space/decisions.py)


def renamed(decisions: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Returns the decisions with current names and values. Those with current names stay unchanged."""
    return tuple(now for name, value in decisions for now in _now(name, value))


def _now(name: str, value: str) -> Iterator[tuple[str, str]]:
    kind, _, objects = name.partition("(")
    values = _VALUES.get(kind, {})
    yield _name_now(name), _OR.join(dict.fromkeys(values.get(x, x) for x in value.split(_OR)))
    if (kind, value) == ("staged", "TEAM_COPY"):
        yield f"packed_by({objects}", "TEAM"


def is_gone(name: str) -> bool:
    """True if a stored decision may be about a choice that no longer exists."""
    return _GONE.fullmatch(name) is not None


def name_in(choices: Container[str], name: str) -> str:
    """Returns the current name of a choice, if only that one is among `choices`; else `name`."""
    now = _name_now(name, _IN_A_SPACE)
    return now if name not in choices and now in choices else name


def _name_now(name: str, rules: Iterable[tuple[re.Pattern[str], str]] = _RENAMED) -> str:
    for before, now in rules:
        if found := before.fullmatch(name):
            return found.expand(now)
    return name
