"""A change of the user's file is seen without running it."""

from __future__ import annotations

from pathlib import Path

from kernelscape.runtime.records.provenance import SourceFile, _syntax, changes


def file_of(path: Path) -> SourceFile:
    syntax = _syntax(path)
    assert syntax is not None
    return SourceFile(str(path), syntax)


def test_a_change_of_meaning_is_said_and_a_comment_is_not(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("x = 1\n")
    file = file_of(path)
    assert changes([file]) == ()
    path.write_text("# a comment\n\nx = (1)\n")
    assert changes([file]) == ()
    path.write_text("x = 2\n")
    assert changes([file]) == (
        f"{path} has changed since: this is the sequence as it was recorded",
    )
    path.unlink()
    assert changes([file]) == (f"{path} is not here: this is the sequence as it was recorded",)


def test_nothing_is_run_and_nothing_hangs(tmp_path: Path) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for path in (evil, Path("/dev/zero"), Path("/dev/stdin"), tmp_path, Path("a\0b.py")):
        assert len(changes([SourceFile(str(path), "0")])) == 1
    assert not (tmp_path / "ran").exists()
    broken = tmp_path / "broken.py"
    broken.write_text("def (")
    assert changes([file_of(broken)]) == ()
