"""Version of the code generator: a digest of its sources, for keys of compiled kernels."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_ROOMS = (
    "codegen",
    "codegen/bodies",
    "codegen/loops",
    "codegen/passes",
    "codegen/plan",
    "codegen/text",
    "codegen/write",
    "kernels/analysis",
    "kernels/fields",
    "kernels/ir",
    "kernels/frontend",
    "kernels/sparse",
    "kernels/tasks",
    "kernels/transforms",
    "runtime/cpu",
    "runtime/engine",
    "space",
    "space/backbone",
    "space/families",
    "space/targets",
)


@cache
def code_version() -> str:
    """Returns a digest of all source files of the code generator, since each version may generate other code."""
    root = Path(__file__).parent.parent.parent
    digest = hashlib.blake2b(digest_size=8)
    for room in _ROOMS:
        for file in sorted((root / room).glob("*.[pc]*")):
            if file.is_file():
                found = file.stat()
                digest.update(f"{room}/{file.name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()
