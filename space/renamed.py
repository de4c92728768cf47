"""Decisions that older versions wrote under other names: what files of theirs say is read as today's decisions."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Choices of the past, and what they are called now: a kind named two choices, told apart by what they are about.
_RENAMED = (
    (re.compile(r"prefetch\((.+\..+)\)"), r"prefetch_accumulators(\1)"),
    (re.compile(r"cache\((.+->.+)\)"), r"load_cache(\1)"),
)


def renamed(decisions: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The same decisions by the names of today; those of today stay as they are."""
    return tuple((_name_now(name), value) for name, value in decisions)


def _name_now(name: str) -> str:
    for before, now in _RENAMED:
        if found := before.fullmatch(name):
            return found.expand(now)
    return name
