"""One module opens the files of runs and caches, one loads code: of a kind are all calls that go past them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_architecture import SHIPPED, files, name_of, tree_of

OPENING = {
    "open",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "NamedTemporaryFile",
}
LOADING = {"CDLL", "PyDLL", "LoadLibrary", "ExtensionFileLoader"}
# What is no file of a run or of a cache: of the system, of a folder for a moment, of this package, and one that the user names.
ELSEWHERE = ("/proc/", "/sys/", "devnull", "scratch")
OTHERS = {
    "explorer/external_function.py": "file.read_text()",
    "report/page.py": "(folder / ",
    "runtime/records/known_inputs.py": "archive.open(member)",
    "runtime/measure/conditions.py": "Path(path).read_text()",
}


def called(tree: ast.Module, names: set[str]) -> Iterator[ast.Call]:
    for n in ast.walk(tree):
        if isinstance(n, ast.Call):
            f = n.func
            if getattr(f, "attr", getattr(f, "id", "")) in names:
                yield n


def opened_in(tree: ast.Module) -> list[str]:
    """Calls that open files."""
    found = map(ast.unparse, called(tree, OPENING))
    return [x for x in found if not any(word in x for word in ELSEWHERE)]


RUNS_AND_CACHES = ("runtime/records", "runtime/engine", "runtime/building", "runtime/measure")


@pytest.mark.parametrize("path", files(*RUNS_AND_CACHES, "explorer", "report", "cli"), ids=name_of)
def test_files_of_runs_and_caches_are_opened_by_one_module(path: Path) -> None:
    """By runtime/files.py, which knows that a stranger may have put links, pipes and devices there."""
    other = OTHERS.get(name_of(path))
    assert [x for x in opened_in(tree_of(path)) if other is None or not x.startswith(other)] == []


def loaded_in(tree: ast.Module) -> list[str]:
    """Calls that load code from a file; a library of the system has a name that is written there, or none."""
    return [
        ast.unparse(n)
        for n in called(tree, LOADING)
        if not (n.args and isinstance(n.args[0], ast.Constant))
    ]


def test_code_is_loaded_by_one_module() -> None:
    """By runtime/library.py, which looks at the very file; NVRTC is where Python's packages are."""
    naming = [p for p in files(*SHIPPED) if any(name in p.read_text() for name in LOADING)]
    found = {name_of(p): x for p in naming if (x := loaded_in(tree_of(p)))}
    known = {"runtime/library.py", "runtime/cuda/nvrtc.py"}
    assert {name: x for name, x in found.items() if name not in known} == {}


@pytest.mark.parametrize(
    "text",
    [
        "(folder / JOURNAL).open('a')",
        "open(path)",
        "os.open(path, os.O_RDWR)",
        "path.read_bytes()",
        "path.write_text('')",
    ],
)
def test_what_opens_a_file_is_found(text: str) -> None:
    assert len(opened_in(ast.parse(text))) == 1


@pytest.mark.parametrize("text", ["ctypes.CDLL(path)", "cdll.LoadLibrary(str(x))", "CDLL(name=x)"])
def test_what_loads_code_is_found(text: str) -> None:
    assert len(loaded_in(ast.parse(text))) == 1
    assert loaded_in(ast.parse("ctypes.CDLL(None), ctypes.CDLL('libc.so.6')")) == []
