"""Folders for a moment: nothing stays of those whose owner ended, and those of others stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from kernelscape.runtime import scratch
from kernelscape.runtime.scratch import Scratch, sweep

HOLD = """
import sys
from pathlib import Path
from kernelscape.runtime.scratch import Scratch
held = Scratch("some-", Path(sys.argv[1]))
print(held.path, flush=True)
sys.stdin.read()
"""


def test_it_goes_with_its_owner(tmp_path: Path) -> None:
    with Scratch("some-", tmp_path) as folder:
        (folder / "file").write_text("x")
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_the_next_one_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with (
        subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as killed,
        subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as living,
    ):
        assert killed.stdout is not None
        assert living.stdout is not None
        left = Path(killed.stdout.readline().strip())
        held = Path(living.stdout.readline().strip())
        (tmp_path / "some-file").write_text("no folder")
        (tmp_path / "other-folder").mkdir()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert left.exists()
        with Scratch("some-", tmp_path) as mine:
            assert not left.exists()
            sweep(tmp_path, "some-")
            assert mine.exists()
            assert held.exists()
        living.communicate("")
    assert {p.name for p in tmp_path.iterdir()} == {"other-folder", held.name, "some-file"}


def test_a_folder_that_was_swept_before_it_was_locked_is_made_again(tmp_path, monkeypatch) -> None:
    lock, swept = scratch._lock, []

    def lock_late(fd: int) -> bool:
        if not swept:
            swept.extend(tmp_path.iterdir())
            sweep_now(tmp_path, "some-")
        return lock(fd)

    def sweep_now(parent: Path, prefix: str) -> None:
        monkeypatch.setattr(scratch, "_lock", lock)
        sweep(parent, prefix)
        monkeypatch.setattr(scratch, "_lock", lock_late)

    monkeypatch.setattr(scratch, "_lock", lock_late)
    scratch._swept.add((tmp_path, "some-"))
    with Scratch("some-", tmp_path) as mine:
        [gone] = swept
        assert not gone.exists()
        assert mine.exists()
        assert mine != gone


def test_a_folder_in_the_making_stays(tmp_path: Path) -> None:
    new, old = tmp_path / "some-new", tmp_path / "some-old"
    new.mkdir()
    old.mkdir()
    os.utime(old, (0, 0))
    sweep(tmp_path, "some-")
    assert (new.exists(), old.exists()) == (True, False)
