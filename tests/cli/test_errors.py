"""Errors of users, and tools that a machine lacks: one sentence and an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernelscape.cli import commands as cli
from kernelscape.runtime import free_memory


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["run"], 2, "Missing argument 'SEQUENCE'"),
        (["run", "axpydot", "--sed", "1"], 2, "--sed"),
        (["show", "axpydot", "--descents", "-5"], 2, "'--descents'"),
        (["check", "mine.c"], 2, "--as"),
        (["export", "run"], 2, "-o"),
        (["tune", "axpydot"], 2, "Missing option '--sizes'"),
        (
            ["run", "axpydot", "--without", "stores"],
            2,
            "there is no rewrite 'stores'; there are dead",
        ),
        (
            ["run", "mine.py", "--without", "lists"],
            2,
            "--without is not of programs: name a function",
        ),
        (["run", "axpydot", "--size", "n=9", "--target", "quantum"], 3, "no backend 'quantum'"),
        (["run", "axpydot", "--size", "n=9", "--compiler", "nocc"], 3, "no C compiler that works"),
    ],
)
def test_errors_are_one_sentence(explore, arguments, code: int, sentence: str) -> None:
    """Those in the words of click and of the machine; the others are in transcripts/errors.txt."""
    got, out, err = explore(*arguments)
    assert (got, out) == (code, "")
    assert sentence in err
    assert err.startswith("explore: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "show"])
def test_arguments_that_do_not_fit_into_memory_are_refused(explore, monkeypatch, command) -> None:
    """They would be drawn bit by bit, until the system ends the program."""
    monkeypatch.setattr(free_memory, "available_bytes", lambda: 64 << 20)
    got, out, err = explore(command, "axpydot", "--size", "n=2^26")
    assert (got, out) == (3, "")
    assert err.startswith("explore: there is not enough memory: Unable to allocate ")
    assert err.count("\n") == 1


def test_settings_come_from_the_environment(explore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCAPE_SEEED", "1")
    code, _, err = explore("run", "axpydot")
    assert code == 2
    assert "KERNELSCAPE_SEEED: there is no setting 'seeed'; did you mean seed?" in err


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError("Unable to allocate 728. TiB"), "not enough memory: Unable to allocate 728."),
        (MemoryError(), "there is not enough memory"),
        (OSError(28, "No space left on device"), "nothing more can be written: No space left"),
    ],
)
def test_a_machine_without_room_is_no_bug(explore, monkeypatch, error, sentence: str) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("kernelscape.cli.list_view.list_lines", fail)
    code, _, err = explore("list")
    assert code == cli.Exit.ENVIRONMENT
    assert sentence in err
    assert err.count("\n") == 1


def test_a_run_that_does_not_begin_leaves_no_folder(explore) -> None:
    assert explore("run", "axpydot", "--size", "n=9", "--target", "quantum")[0] == 3
    assert explore("run", "axpydot", "--size", "n=9", "--compiler", "nocc")[0] == 3
    assert list(Path("runs").iterdir()) == []


def test_a_bug_is_called_a_bug(explore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelscape.cli.list_view.list_lines", lambda: 1 // 0)
    code, _, err = explore("list")
    assert code == cli.Exit.INTERNAL
    assert "ZeroDivisionError" in err
    assert "this is a bug in kernelscape" in err
