"""Decisions that older versions wrote in other words: what files of theirs say is read as today's decisions."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator

# Choices of the past, and what they are called now: a kind named two choices, told apart by what they are about.
_RENAMED = ((re.compile(r"cache\((.+->.+)\)"), r"load_cache(\1)"),)
# The same where only a space can tell: a task may have a name with a dot, too.
_IN_A_SPACE = ((re.compile(r"prefetch\((.+\..+)\)"), r"prefetch_accumulators(\1)"),)
# Values by kind of choice: a GPU had a word of its own, and how many blocks a copy has and who packs them was one choice.
_VALUES = {"dim_kind": {"BLOCK": "PARALLEL"}, "staged": {"TEAM_COPY": "COPY"}}
_OR = "|"  # between the values of an open choice (space/decisions.py)


def renamed(decisions: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The same decisions in the words of today; those of today stay as they are."""
    return tuple(now for name, value in decisions for now in _now(name, value))


def _now(name: str, value: str) -> Iterator[tuple[str, str]]:
    kind, _, objects = name.partition("(")
    values = _VALUES.get(kind, {})
    yield _name_now(name), _OR.join(dict.fromkeys(values.get(x, x) for x in value.split(_OR)))
    if (kind, value) == ("staged", "TEAM_COPY"):
        yield f"packed_by({objects}", "TEAM"


def name_in(choices: Container[str], name: str) -> str:
    """What a name means in a space with these choices: its own, or where there is none the one that it has today."""
    now = _name_now(name, _IN_A_SPACE)
    return now if name not in choices and now in choices else name


def _name_now(name: str, rules: Iterable[tuple[re.Pattern[str], str]] = _RENAMED) -> str:
    for before, now in rules:
        if found := before.fullmatch(name):
            return found.expand(now)
    return name
