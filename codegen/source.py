"""Source: printed text with what is needed to build and call it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Argument:
    """One entry of the argument vector of `Source.entry`, in order: arrays first, then scalars, then the workspace."""

    name: str
    kind: str  # "array", "scalar" or "workspace"
    dtype: str  # NumPy name; "uint8" for the workspace
    shape: tuple[int, ...]  # () for scalars; (bytes,) for the workspace


@dataclass(frozen=True)
class Source:
    """C text exporting `void entry(void **args)`; `args[k]` points to argument k (to the value itself, for a scalar).

    Temporaries of the sequence that stay in memory live in the workspace (64-byte aligned, contents arbitrary on entry),
    so `arguments` lists only the user's arrays. `n_threads` is the team size the text was lowered for.
    """

    text: str
    entry: str
    arguments: tuple[Argument, ...]
    n_threads: int
    flags: tuple[str, ...] = ()  # compiler flags the text relies on
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def key(self) -> str:
        """Content key: equal text and flags, equal key."""
        return hashlib.blake2b(
            "\0".join((self.text, *self.flags)).encode(), digest_size=12
        ).hexdigest()
