"""Code that is loaded: of a kind are all files that somebody else wrote, may write, or puts in the place of what was looked at."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kernelscape.runtime import library
from kernelscape.runtime.cpu.calling import load_extension
from kernelscape.runtime.cpu.compiler import Compiler, build_library, find_compiler
from kernelscape.runtime.device import DeviceOptions
from kernelscape.runtime.files import read_own
from kernelscape.runtime.library import load_library
from kernelscape.space.engine.own_folders import NotOursError

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not here"),
]
ANOTHER = 12345


def compiled(folder: Path, name: str, value: int, more: str = "") -> Path:
    (folder / f"{name}.c").write_text(f"{more}\nint value(void) {{ return {value}; }}\n")
    made = folder / f"{name}.so"
    command = ["gcc", "-shared", "-fPIC", "-o", str(made), str(made.with_suffix(".c"))]
    subprocess.run(command, check=True)
    made.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two libraries."""
    folder = tmp_path_factory.mktemp("kept")
    for k in (1, 2):
        compiled(folder, f"lib{k}", k)
    return folder


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return find_compiler("gcc")


@pytest.fixture
def ours(kept: Path, tmp_path: Path) -> Path:
    """One library in a folder of its own."""
    return Path(shutil.copy(kept / "lib1.so", tmp_path / "lib.so"))


def owned_by_another(file: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(file, ANOTHER, ANOTHER)


def linked(file: Path) -> None:
    file.rename(file.with_name("real.so"))
    file.symlink_to("real.so")


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


SPOILED: list[Callable[[Path], None]] = [
    lambda file: file.chmod(0o775),
    lambda file: file.chmod(0o757),
    lambda file: file.parent.chmod(0o770),
    lambda file: file.parent.chmod(0o1777),
    owned_by_another,
    linked,
    a_pipe,
]


@pytest.mark.parametrize("spoil", SPOILED)
def test_what_others_may_have_written_is_not_loaded(
    ours: Path, spoil: Callable[[Path], None]
) -> None:
    assert load_library(ours).value() == 1
    assert read_own(ours)[:4] == b"\x7fELF"
    spoil(ours)
    for load in (load_library, read_own):
        with pytest.raises(OSError, match=r"chmod|another user|symbolic link|no regular file"):
            load(ours)


def test_what_was_looked_at_is_what_is_loaded(
    kept: Path, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever changes the name in between changes nothing."""
    load = ctypes._dlopen

    def swapped(name: str, mode: int) -> int:
        os.replace(shutil.copy(kept / "lib2.so", ours.with_name("new")), ours)
        return load(name, mode)

    monkeypatch.setattr(ctypes, "_dlopen", swapped)
    assert load_library(ours).value() == 1


def test_without_names_of_descriptors_files_are_loaded_by_their_own(
    ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_DESCRIPTORS", ours / "none")
    assert load_library(ours).value() == 1
    ours.chmod(0o777)
    with pytest.raises(NotOursError):
        load_library(ours)


def test_libraries_of_one_descriptor_are_told_apart(kept: Path, ours: Path) -> None:
    """The loader takes equal names for one library, and a descriptor's number comes again; one file is one library."""
    first = [load_library(kept / f"lib{k}.so") for k in (1, 2)]
    assert [x.value() for x in first] == [1, 2]
    assert load_library(kept / "lib1.so")._handle == first[0]._handle
    assert len({library._name_of(7) for _ in range(100)}) == 100


def test_what_cannot_be_loaded_says_its_name(ours: Path) -> None:
    ours.write_text("no library")
    with pytest.raises(OSError, match=r"lib\.so: "):
        load_library(ours)


@pytest.mark.parametrize("spoil", [owned_by_another, linked, lambda file: file.chmod(0o777)])
def test_it_is_built_again_in_the_place_of_anothers(
    tmp_path: Path, compiler: Compiler, spoil: Callable[[Path], None]
) -> None:
    text = "int value(void) { return 3; }"
    evil = compiled(tmp_path, "evil", 4)
    before = os.umask(0o002)  # a group may write what this user makes
    try:
        built = build_library(compiler, text, (), tmp_path / "build", 60)
        shutil.copy(evil, built.path)
        spoil(built.path)
        again = build_library(compiler, text, (), tmp_path / "build", 60)
    finally:
        os.umask(before)
    assert again.build_ns > 0
    assert load_library(again.path).value() == 3


def test_nothing_is_built_where_others_may_change_the_text(
    tmp_path: Path, compiler: Compiler
) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build").chmod(0o777)
    with pytest.raises(NotOursError, match="chmod"):
        build_library(compiler, "int x;", (), tmp_path / "build", 60)


def test_modules_name_their_file(compiler: Compiler) -> None:
    """The kind: names of descriptors that live on. Hypothesis read the source of a module from what was a pipe by then."""
    module = load_extension(compiler, DeviceOptions())
    if module is None:
        pytest.skip("the headers of Python are not here")
    assert Path(module.__file__).suffix == ".so"
    assert not [m for m in sys.modules.values() if "/fd/" in (getattr(m, "__file__", None) or "")]
