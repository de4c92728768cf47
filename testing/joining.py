"""Several texts as one: a compiler takes as long to begin as for a short text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..codegen.text.source import Source

# Functions of a text but those of the team, what it hands to them, and its types of vectors. Attributes look like functions.
_DEFINED = (
    re.compile(r"^(?:(?:[A-Z_]+ )?static\b[^\n;={]*?|void )\b(?!ks_|__)(\w+)\(", re.MULTILINE),
    re.compile(r"^struct (\w+) \{", re.MULTILINE),
    re.compile(r"^typedef [^\n]*?\b(\w+)(?: __attribute__\(\(.*\)\))?;$", re.MULTILINE),
)
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


def joined(sources: Sequence[Source]) -> Source:
    """One text of several, in which each has names of its own: the entry of the n-th is `entry_of` n."""
    text = "\n".join(_numbered(source.text, k) for k, source in enumerate(sources))
    team = next((s.team for s in sources if s.team), "")
    flags = tuple(dict.fromkeys(flag for s in sources for flag in s.flags))
    return replace(sources[0], text=text, team=team, flags=flags)


def _numbered(text: str, number: int) -> str:
    own = {name: f"{name}_{number}" for defined in _DEFINED for name in defined.findall(text)}
    return _WORD.sub(lambda found: own.get(found[0], found[0]), text)


def entry_of(source: Source, number: int) -> str:
    """The name of an entry in a joined text."""
    return f"{source.entry}_{number}"
