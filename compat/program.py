"""Runs a program written for Taichi unchanged, without a screen."""

from __future__ import annotations

import ast
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .display.frames import LastFrame, Reel, recorded
from .taichi import install


@dataclass(frozen=True)
class Ran:
    """End of a program's run.

    `is_cut`: it ended after its last frame, not by itself. `status`: exit status. `names`: its global names.
    `not_run`: lines that had not run when the program was ended.
    """

    is_cut: bool
    status: int
    names: dict[str, Any]
    not_run: list[range]


def read_program(path: Path) -> CodeType:
    """Returns the compiled program in a file. Raises OSError and SyntaxError."""
    return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)


def run_program(
    code: CodeType,
    path: Path,
    arguments: Sequence[str] = (),
    reel: Reel | None = None,
    names: Callable[[Path | None], AbstractContextManager[None]] = install,
) -> Ran:
    """Runs a program like `python PATH ARGUMENTS`, and ends it after the last frame of the reel.

    `names`: context in which `import taichi` gives this package. An exception of the program is raised.
    """
    film = reel if reel is not None else Reel()
    module = ModuleType("__main__")
    module.__file__ = str(path)
    main = sys.modules["__main__"]
    sys.modules["__main__"] = module
    not_run: list[range] | None = None
    status = 0
    try:
        with around(path, arguments, names), recorded(film):
            exec(code, module.__dict__)
    except LastFrame as e:
        not_run = lines_left(e, path)
    except SystemExit as e:
        status = _status_of(e)
    finally:
        sys.modules["__main__"] = main
    return Ran(not_run is not None, status, module.__dict__, not_run or [])


@contextmanager
def around(
    path: Path,
    arguments: Sequence[str] = (),
    names: Callable[[Path | None], AbstractContextManager[None]] = install,
) -> Iterator[None]:
    """Context like that of `python PATH ARGUMENTS`: the file's folder in the path, the arguments, and `taichi`.

    `names`: context in which `import taichi` gives this package.
    """
    before, argv = sys.path[:], sys.argv
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with names(_examples_around(path)):
            yield
    finally:
        sys.path[:], sys.argv = before, argv


def lines_left(error: BaseException, path: Path) -> list[range]:
    """Returns the lines of a program that did not run because of an error.

    These are the lines behind the loop that the error left, and behind the calls of the function with that loop.
    """
    tree = ast.parse(path.read_bytes())
    found: list[range] = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename != str(path):
            continue
        for body, k in _levels(tree, line):
            rest = body[k + 1 :]
            if rest:
                found.append(range(rest[0].lineno, (rest[-1].end_lineno or rest[-1].lineno) + 1))
            if isinstance(body[k], ast.For | ast.While):  # what is inside has run before
                return sorted(found, key=lambda lines: lines.start)
    return sorted(found, key=lambda lines: lines.start)


def _levels(tree: ast.Module, line: int) -> list[tuple[list[ast.stmt], int]]:
    """Returns the statements that contain a line, from the outermost one of its function to the innermost.

    Each is given as the block that contains it and its position there.
    """
    found: list[tuple[list[ast.stmt], int]] = []
    blocks = [tree.body]
    while True:
        at = next(((b, k) for b in blocks for k, s in enumerate(b) if _holds(s, line)), None)
        if at is None:
            return found
        found.append(at)
        statement = at[0][at[1]]
        blocks = _blocks(statement)
        if isinstance(statement, ast.FunctionDef):
            found = []


def _holds(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Returns the blocks (bodies, else branches) of a statement."""
    parts = (statement, *getattr(statement, "handlers", ()))
    found = [getattr(p, name, []) for p in parts for name in ("body", "orelse", "finalbody")]
    return [b for b in found if b]


def _status_of(error: SystemExit) -> int:
    """Returns the exit status of a SystemExit as Python does: a text is printed and counts as 1."""
    if error.code is None or isinstance(error.code, int):
        return int(error.code or 0)
    print(error.code, file=sys.stderr)
    return 1


def _examples_around(path: Path) -> Path | None:
    """Returns the folder `taichi/examples` that contains a program, which such programs import.

    None if none does.
    """
    for folder in path.resolve().parents:
        if folder.name == "examples" and folder.parent.name == "taichi":
            return folder
    return None
