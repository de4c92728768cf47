"""Memory constants (line sizes, alignments, prefetch levels) for passes and for writers of C."""

from __future__ import annotations

from typing import Final

ALIGNMENT_BYTES: Final = 64  # of every buffer: one cache line and one full vector
PASSING_BY: Final = 0  # as a cache: of a line that is read once, which goes past the second one
