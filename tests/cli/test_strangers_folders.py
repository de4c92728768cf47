"""Run folders that a stranger made: of a kind are all names that a command opens and that may be links, pipes, devices or huge.

A command ends with one sentence, or goes on without the file; nothing outside of the folder changes, and nothing is waited for.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kernelscape.runtime.files import (
    OddFileError,
    append,
    read_regular,
    write_in,
    write_named,
)

from .command import made

# --- opening ------------------------------------------------------------------------------------


def a_link(place: Path) -> None:
    place.symlink_to(place.parent.parent / "victim")


def a_dangling_link(place: Path) -> None:
    place.symlink_to(place.parent.parent / "made")


def a_pipe(place: Path) -> None:
    os.mkfifo(place)


def zeros(place: Path) -> None:
    place.symlink_to("/dev/zero")


def a_folder(place: Path) -> None:
    place.mkdir()


def a_hole(place: Path) -> None:
    """A file of more bytes than there is memory, which takes none."""
    place.touch()
    os.truncate(place, 1 << 42)


ODD: list[Callable[[Path], None]] = [a_link, a_dangling_link, a_pipe, zeros, a_folder, a_hole]
SENTENCES = (
    "symbolic link|no regular file|has more than|is longer than|it has 16 MiB|Is a directory"
)


@pytest.mark.parametrize("make", ODD)
def test_what_is_no_regular_file_is_neither_read_nor_written(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "victim").write_text("mine")
    place = tmp_path / "run" / "file"
    make(place)
    with pytest.raises(OSError, match=SENTENCES):
        read_regular(place, 1 << 20)
    if make is not a_hole:
        with pytest.raises(OSError, match=SENTENCES):
            append(place, b"more")
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "made").exists()


def test_links_of_the_user_are_followed_to_files_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 9)
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 9, follow=True) == b"x" * 9
    with pytest.raises(OddFileError, match="has more than"):
        read_regular(tmp_path / "link", 8, follow=True)
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with pytest.raises(OddFileError, match="no regular file"):
        read_regular(tmp_path / "zeros", 8, follow=True)


def test_a_file_with_a_second_name_is_not_appended_to(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    os.link(tmp_path / "victim", tmp_path / "journal")
    with pytest.raises(OddFileError, match="second name"):
        append(tmp_path / "journal", b"more")
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_folder_of_failures_is_no_link_and_its_files_are_none(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "kept").write_text("mine")
    (tmp_path / "failed").symlink_to("victim")
    with pytest.raises(OddFileError, match="no folder of its own"):
        write_in(tmp_path / "failed", "kept", b"more")
    (tmp_path / "failed").unlink()
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "kept").symlink_to("../victim/kept")
    write_in(tmp_path / "failed", "kept", b"more")
    assert (tmp_path / "failed" / "kept").read_bytes() == b"more"
    assert not (tmp_path / "failed" / "kept").is_symlink()
    assert (tmp_path / "victim" / "kept").read_text() == "mine"


def test_what_the_user_names_may_be_a_device(tmp_path: Path) -> None:
    write_named(Path("/dev/null"), b"x")
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "trace.json").symlink_to("victim")
    write_named(tmp_path / "trace.json", b"x")
    assert (tmp_path / "trace.json").read_bytes() == b"x"
    assert (tmp_path / "victim").read_text() == "mine"


# --- commands -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    given = ("--target", "fake", "--size", "n=1000", "--max-evals", 2)
    return made(tmp_path_factory.mktemp("strangers"), "axpydot", *given)


@pytest.fixture
def run(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, beside a file of the user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "victim").write_text("mine")
    return Path(shutil.copytree(whole, tmp_path / "run"))


COMMANDS = {
    "run.json": ("resume", "report", "trace"),
    "journal.jsonl": ("resume", "explain", "report", "trace"),
    "best.json": ("explain", "replay", "codegen", "export", "resume"),
    "tree.jsonl": ("resume",),
    "kernel.c": ("resume",),
    "best.so": ("resume",),
    "failed": ("resume",),
}


REPLACED = ("best.json", "best.so", "kernel.c", "tree.jsonl")


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_follows_waits_or_fills_the_memory(
    explore, run: Path, name: str, make: Callable[[Path], None]
) -> None:
    if (name, make) == ("failed", a_folder):
        pytest.skip("that is what it is")
    place = run / name
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    make(place)
    for command in COMMANDS[name]:
        more = {"resume": ("--max-evals", "1"), "export": ("-o", "out")}.get(command, ())
        code, _, err = explore(command, run, *more)
        if (command, make) == ("resume", a_hole) and name in REPLACED:
            assert code == 0, err  # it is replaced unread, or full
            continue
        assert code in (1, 2), (command, err)
        assert err.count("\n") == 1, err
        assert name in err, err
    assert (run.parent / "victim").read_text() == "mine"
    assert not (run.parent / "made").exists()


@pytest.mark.parametrize("make", ODD)
def test_a_report_is_drawn_without_what_is_no_tree(
    explore, run: Path, make: Callable[[Path], None]
) -> None:
    (run / "tree.jsonl").unlink()
    make(run / "tree.jsonl")
    a_link(run / "report.html")
    assert explore("report", run)[0] == 0
    assert (run.parent / "victim").read_text() == "mine"
    assert (run / "report.html").read_text().startswith("<")


def test_what_is_written_where_the_user_stands_replaces_links(
    explore, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its default may be the stranger's folder."""
    monkeypatch.chdir(run)
    (run / "kernel.c").unlink()
    for name in ("kernel.c", "trace.json"):
        a_link(run / name)
    assert explore("codegen", ".")[0] == 0
    assert explore("trace", ".")[0] == 0
    assert (run.parent / "victim").read_text() == "mine"
    assert json.loads((run / "trace.json").read_text())["traceEvents"]


def test_a_new_run_in_a_prepared_folder_writes_nothing_elsewhere(explore, run: Path) -> None:
    prepared = run.parent / "prepared"
    prepared.mkdir()
    (prepared / "journal.jsonl").symlink_to("../victim")
    given = ("--target", "fake", "--size", "n=1000", "--max-evals", "1", "-o", prepared)
    code, _, err = explore("run", "axpydot", *given, "-q")
    assert code == 2, err
    assert "journal.jsonl cannot be used: it is a symbolic link" in err
    assert (run.parent / "victim").read_text() == "mine"


def test_a_best_that_the_user_links_to_is_read(explore, run: Path) -> None:
    (run.parent / "best.json").symlink_to("run/best.json")
    assert explore("replay", run.parent / "best.json", "--tolerance", "10000%")[0] == 0
