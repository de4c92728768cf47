"""Decisions that older versions wrote in other words: what files of theirs say is read as today's decisions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# Choices of the past, and what they are called now: a kind named two choices, told apart by what they are about.
_RENAMED = (
    (re.compile(r"prefetch\((.+\..+)\)"), r"prefetch_accumulators(\1)"),
    (re.compile(r"cache\((.+->.+)\)"), r"load_cache(\1)"),
)
_OR = "|"  # between the values of an open choice (space/engine/decisions.py)
# How many blocks a copy has and who packs them was one choice.
_STAGED = re.compile(r"staged(\(.+\))")
_BLOCKS_OF_ALL, _BLOCKS, _BY_TEAM = "TEAM_COPY", "COPY", "TEAM"


def renamed(decisions: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The same decisions in the words of today; those of today stay as they are."""
    return tuple(now for name, value in decisions for now in _now(name, value))


def _now(name: str, value: str) -> Iterator[tuple[str, str]]:
    if found := _STAGED.fullmatch(name):
        blocks = (_BLOCKS if x == _BLOCKS_OF_ALL else x for x in value.split(_OR))
        yield name, _OR.join(dict.fromkeys(blocks))
        if value == _BLOCKS_OF_ALL:
            yield f"packed_by{found[1]}", _BY_TEAM
        return
    for before, now in _RENAMED:
        if found := before.fullmatch(name):
            name = found.expand(now)
            break
    yield name, value
