"""Runs a program that was written with Taichi, as it is, without a screen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .display.frames import LastFrame, Reel, recorded
from .taichi import install


@dataclass(frozen=True)
class Ran:
    """How a program ended: after its last frame (`is_cut`) or by itself, its exit status, and its global names."""

    is_cut: bool
    status: int
    names: dict[str, Any]


def read_program(path: Path) -> CodeType:
    """The program in a file. Raises OSError and SyntaxError."""
    return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)


def run_program(
    code: CodeType,
    path: Path,
    arguments: Sequence[str] = (),
    reel: Reel | None = None,
    names: Callable[[Path | None], AbstractContextManager[None]] = install,
) -> Ran:
    """Runs it as `python PATH ARGUMENTS` would, with our names under `taichi` (or what `names` puts there), and ends it after the
    last frame of the reel. What the program raises is raised.
    """
    film = reel if reel is not None else Reel()
    module = ModuleType("__main__")
    module.__file__ = str(path)
    before, argv, main = sys.path[:], sys.argv, sys.modules["__main__"]
    sys.modules["__main__"] = module
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    is_cut, status = False, 0
    try:
        with names(_examples_around(path)), recorded(film):
            exec(code, module.__dict__)
    except LastFrame:
        is_cut = True
    except SystemExit as e:
        status = _status_of(e)
    finally:
        sys.path[:], sys.argv = before, argv
        sys.modules["__main__"] = main
    return Ran(is_cut, status, module.__dict__)


def _status_of(error: SystemExit) -> int:
    """As Python has it: a text is said, and counts as 1."""
    if error.code is None or isinstance(error.code, int):
        return int(error.code or 0)
    print(error.code, file=sys.stderr)
    return 1


def _examples_around(path: Path) -> Path | None:
    """The folder `taichi/examples` that a program lies in: programs there import each other by that name."""
    for folder in path.resolve().parents:
        if folder.name == "examples" and folder.parent.name == "taichi":
            return folder
    return None
