"""Layers of ARCHITECTURE.md, checked by import-linter and by reading the sources."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from .without_gpu import OWN_TESTS, copy_without

ROOT = Path(__file__).parent.parent
# Backends of GPUs bring compilers of their own.
GPU_BACKENDS = ("cuda", "emulator")
LAYERS = (
    "kernels",
    "program",
    "space",
    "codegen",
    "search",
    "runtime",
    "explorer",
    "compat",
    "report",
    "cli",
    "testing",
    "experiments",
)
# What searches is compiled by one, and references apart from it by the other.
DOORS = {
    "numba": {"space/engine/jit.py"},
    "llvmlite": {
        "kernels/interpret/llvm.py",
        "kernels/interpret/llvm_operations.py",
        "kernels/interpret/moved.py",
        "runtime/llvm.py",
    },
}
SOURCES = sorted(
    p
    for folder in ("kernels", "space", "search", "codegen", "runtime")
    for p in (ROOT / folder).rglob("*.py")
    if p.parent.name not in GPU_BACKENDS
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """Each file is parsed once, which takes longer than to look at it."""
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def test_contracts_of_import_linter() -> None:
    cli = pytest.importorskip("importlinter.cli", reason="import-linter is not installed")
    done = cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert done == cli.EXIT_STATUS_SUCCESS


def test_compilers_of_this_process_come_through_doors() -> None:
    for package, doors in DOORS.items():
        naming = [p for p in SOURCES if package in p.read_text()]
        found = {name_of(p) for p in naming if package in {m.split(".")[0] for m in imported(p)}}
        assert found <= doors, package


def test_settings_alone_reads_our_variables() -> None:
    reading = [name_of(p) for p in SOURCES if '"KERNELSCAPE_' in p.read_text()]
    readers = {"cli/settings.py", "runtime/records/store.py"}  # the store is read by programs, too
    assert set(reading) <= readers


OF_CHECKOUTS = ("experiments", "testing")  # not in the wheel


def test_every_package_is_installed() -> None:
    listed = (ROOT / "pyproject.toml").read_text()
    for init in ROOT.glob("*/**/__init__.py"):
        parts = init.parent.relative_to(ROOT).parts
        if not parts[0].startswith(".") and parts[0] not in ("build", "tests", *OF_CHECKOUTS):
            assert f'"kernelscape.{".".join(parts)}"' in listed


def test_tests_of_others_ask_whether_a_backend_for_gpus_is_here() -> None:
    knowing = []
    for path in TESTS:
        body = () if name_of(path).startswith(OWN_TESTS) else tree(path).body
        named = [n.module or "" for n in body if isinstance(n, ast.ImportFrom)]
        if any(f"runtime.{b}" in m for m in named for b in GPU_BACKENDS):
            knowing.append(name_of(path))
    assert knowing == []


def test_importing_the_package_imports_next_to_nothing() -> None:
    import subprocess
    import sys

    code = (
        "import sys; before = set(sys.modules); import kernelscape; more = set(sys.modules) - before;"
        "print(*sorted(m for m in more if m.startswith('kernelscape')));"
        "print(more & {'numpy', 'dataclasses', 'typing', 'ast'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    room = "kernelscape.kernels.frontend"
    parts = room.split(".")
    names = [".".join(parts[: k + 1]) for k in range(len(parts))]
    names += [
        f"{room}.dispatch",
        f"{room}.lowering",
    ]  # where executors and the lowering are registered
    assert done.stdout.splitlines() == [" ".join(names), "set()"]


@pytest.mark.parametrize("backend", ["cuda", "emulator"])
def test_backends_for_gpus_can_be_removed(backend: str) -> None:
    """They are found by name: no import outside their own folders and tests knows them."""
    own = {ROOT / place / name for place in ("runtime", "tests/runtime") for name in GPU_BACKENDS}
    own_tests = {"test_host_launcher.py"}
    for path in ROOT.glob("*/**/*.py"):
        if path.relative_to(ROOT).parts[0].startswith(".") or path.parent in own:
            continue
        if path.name not in own_tests and backend in path.read_text():
            assert not [m for m in all_imported(path) if backend in m.split(".")], path


@cache
def all_imported(path: Path) -> tuple[str, ...]:
    """Modules by their absolute or relative names, names imported from them included."""
    found: list[str] = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found += (f"{node.module or ''}.{alias.name}" for alias in node.names)
    return tuple(found)


def test_tests_import_no_experiment() -> None:
    """Things that tests and experiments share are in testing/."""
    others = [p for p in TESTS if "experiments" not in p.relative_to(ROOT).parts]
    importing = [
        name_of(p) for p in others if any("experiments" in m.split(".") for m in all_imported(p))
    ]
    assert importing == []


def assert_all_are_installed(root: Path) -> None:
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    listed = settings["tool"]["setuptools"]["packages"]
    found = {
        p.parent.relative_to(root)
        for p in root.glob("*/**/*.py")
        if p.parts[len(root.parts)] in LAYERS and p.parts[len(root.parts)] not in OF_CHECKOUTS
    }
    assert sorted(listed) == sorted(".".join(("kernelscape", *p.parts)) for p in (Path(), *found))


def test_every_folder_of_the_package_is_installed() -> None:
    assert_all_are_installed(ROOT)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git")
def test_every_folder_that_is_left_without_gpus_is_installed(tmp_path: Path) -> None:
    assert_all_are_installed(copy_without(tmp_path / "copy"))
