"""Folders that code is loaded from: of a kind are all in which somebody else may have written, or that somebody else may replace.

They are refused at every step to them, whether it is a folder or a link, and a folder of the process stands for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kernelscape.space.engine import own_folders
from kernelscape.space.engine.own_folders import (
    PRIVATE_PREFIX,
    NotOursError,
    make_own_folder,
    user_cache,
    why_not_ours,
)

ANOTHER = 12345
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder in the system's temporary one, as a cache in `/tmp` is."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def given_away(path: Path) -> None:
    os.chown(path, ANOTHER, ANOTHER, follow_symlinks=False)


def link_of(base: Path, owner: int) -> Path:
    """A link to a folder of ours in a folder where anyone may make one."""
    (base / "open").mkdir()
    (base / "open").chmod(0o1777)
    (base / "mine").mkdir(mode=0o700)
    link = base / "open" / "link"
    link.symlink_to(base / "mine")
    os.chown(link, owner, owner, follow_symlinks=False)
    return link


def written_by(base: Path, mode: int) -> Path:
    (base / "f").mkdir()
    (base / "f").chmod(mode)
    return base / "f"


def below(base: Path, mode: int) -> Path:
    inner = written_by(base, mode) / "in" / "er"
    inner.mkdir(parents=True)
    return inner


def behind(base: Path, mode: int) -> Path:
    """A folder that is reached by links of ours, the second of which lies where anyone may replace it."""
    target = below(base, mode)
    (base / "f" / "l2").symlink_to(target)
    (base / "l1").symlink_to(base / "f")
    return base / "l1" / "l2"


@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (written_by, 0o770),
        (written_by, 0o707),
        (written_by, 0o1777),
        (below, 0o777),
        (behind, 0o777),
    ],
)
def test_what_others_may_write_is_refused(base: Path, make: Callable[..., Path], mode: int) -> None:
    made = make(base, mode)
    why = why_not_ours(made)
    assert why is not None
    assert str(base / "f") in why
    assert "chmod" in why
    with pytest.raises(NotOursError, match="chmod"):
        make_own_folder(made)


@pytest.mark.parametrize(
    ("make", "mode"),
    [(written_by, 0o755), (below, 0o755), (below, 0o1777), (below, 0o770), (behind, 0o1777)],
)
def test_what_is_ours_is_taken(base: Path, make: Callable[..., Path], mode: int) -> None:
    """A folder that anyone may write to with the sticky bit, as `/tmp`, keeps what is in it where it is."""
    assert why_not_ours(make(base, mode)) is None


@as_root
def test_what_belongs_to_another_is_refused(base: Path) -> None:
    made = below(base, 0o755)
    given_away(made)
    assert why_not_ours(made) == f"{made} belongs to another user"
    os.chown(made, 0, 0)
    assert why_not_ours(made) is None
    given_away(made.parent)
    assert why_not_ours(made) == f"{made.parent} belongs to another user"


@as_root
def test_a_link_of_another_is_refused_though_it_leads_to_us(base: Path) -> None:
    link = link_of(base, ANOTHER)
    assert why_not_ours(link) == f"{link} is a link of another user"
    os.chown(link, 0, 0, follow_symlinks=False)
    assert why_not_ours(link) is None


def test_what_is_made_is_nobody_elses_whatever_the_mask(base: Path) -> None:
    before = os.umask(0)
    try:
        make_own_folder(base / "a" / "b")
    finally:
        os.umask(before)
    assert [(base / p).stat().st_mode & 0o777 for p in ("a", "a/b")] == [0o700, 0o700]


PROGRAM = """
import sys, subprocess
from kernelscape.runtime.device import cache_folder
folder = cache_folder()
if "numba" in sys.argv:
    from kernelscape.space.engine import jit
    assert folder in jit.cache_folder().parents
asked = "from kernelscape.runtime.device import cache_folder; print(cache_folder())"
child = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
print(folder, child.stdout.strip(), oct(folder.stat().st_mode & 0o777), child.stderr.strip())
"""


def of_a_process(base: Path, *arguments: str, **given: str) -> tuple[list[str], str]:
    """Words that a process prints of its cache and of that of a process it starts, and what it warns of."""
    (base / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(base / "program.py"), *arguments],
        env={**os.environ, "NUMBA_CACHE_DIR": "", "TMPDIR": str(base), **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def test_a_private_folder_stands_for_a_cache_of_others(base: Path) -> None:
    """One for the process and those that it starts, said once, and gone with it."""
    (base / "kernelscape").mkdir()
    (base / "kernelscape").chmod(0o777)
    (mine, of_child, mode), warned = of_a_process(base, "numba", XDG_CACHE_HOME=str(base))
    assert mine == of_child
    assert Path(mine).parent == base
    assert Path(mine).name.startswith(PRIVATE_PREFIX)
    assert mode == "0o700"
    assert warned.count("RuntimeWarning") == 1
    assert f"{base / 'kernelscape'} is not used, since others may write to it" in warned.replace(
        f"to {base / 'kernelscape'}", "to it"
    )
    assert not Path(mine).exists()


def test_where_there_is_no_home_the_temporary_folder_keeps_it(base: Path) -> None:
    (base / "file").touch()
    (mine, of_child, _), warned = of_a_process(base, XDG_CACHE_HOME=str(base / "file"))
    assert mine == of_child == str(base / f"kernelscape-{os.getuid()}")
    assert warned == ""


@as_root
def test_nobody_can_have_made_that_one_before(base: Path) -> None:
    (base / "file").touch()
    squatted = base / f"kernelscape-{os.getuid()}"
    squatted.mkdir(mode=0o700)
    given_away(squatted)
    (mine, *_), warned = of_a_process(base, XDG_CACHE_HOME=str(base / "file"))
    assert Path(mine).name.startswith(PRIVATE_PREFIX)
    assert f"{squatted} belongs to another user" in warned


def test_a_temporary_folder_that_anyone_may_change_holds_no_private_one(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    made = own_folders._new_private_folder()
    try:
        assert made.parent != base
        assert list(base.iterdir()) == []
    finally:
        own_folders._remove(made, os.getpid())


def test_the_cache_of_this_user_is_as_it_was(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(base / "cache"))
    cache = base / "cache" / "kernelscape"
    assert user_cache() == user_cache(is_written=True) == cache
    assert user_cache("build") == cache / "build"
    (cache / "build").chmod(0o775)
    monkeypatch.setattr(own_folders, "private_folder", lambda folder, why: base)
    assert user_cache() == cache
    assert user_cache("build") == base / "build"
