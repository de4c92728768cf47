"""What a user can do wrong, and what a machine can lack: one sentence and an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernelscape.cli import commands as cli
from kernelscape.runtime import free_memory

from .command import USER_FILE


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["rnu", "axpydot"], 2, "there is no command 'rnu'; did you mean run?"),
        (["run"], 2, "Missing argument 'SEQUENCE'"),
        (["run", "axpydto"], 2, "no library sequence 'axpydto'; did you mean axpydot?"),
        (["run", "axpydot", "--size", "k=3"], 2, "axpydot has no size 'k'"),
        (["run", "axpydot", "--size", "n=4k"], 2, "'n=4k' is not a size such as n=4096"),
        (["run", "axpydot", "--size", "n=0"], 2, "size n = 0 is not between"),
        (["run", "axpydot", "--time-limit", "soon"], 2, "'soon' is not a duration"),
        (["run", "axpydot", "--gap", "7"], 2, "'7' is not a share"),
        (["run", "axpydot", "--strategy", "mtcs"], 2, "did you mean mcts?"),
        (["run", "axpydot", "--dtype", "f16"], 2, "'f16' is not one of f32, f64"),
        (["run", "axpydot", "--sed", "1"], 2, "--sed"),
        (["run", "axpydot", "--profile", "a100"], 2, "--profile goes with --build-only"),
        (["show", "axpydot", "--descents", "-5"], 2, "'--descents'"),
        (["run", "axpydot", "--size", "n=9", "--target", "quantum"], 3, "no backend 'quantum'"),
        (["run", "axpydot", "--size", "n=9", "--compiler", "nocc"], 3, "no C compiler that works"),
        (["run", "no.py:f"], 2, "there is no file no.py"),
        (["--config", "no.toml", "run", "axpydot"], 2, "no.toml cannot be read"),
        (["list", "--config", "no.toml"], 2, "no.toml cannot be read"),
        (["resume", "nowhere"], 2, "nowhere holds no run: it has no run.json"),
        (["trace", "nowhere"], 2, "nowhere holds no run: it has no run.json"),
        (["report", "nowhere"], 2, "nowhere holds no run: it has no run.json"),
        (["report", __file__], 2, "test_errors.py holds no run: beside it there is no run.json"),
        (["replay", "nowhere"], 2, "nowhere cannot be read"),
        (["codegen", "nowhere"], 2, "nowhere cannot be read"),
    ],
)
def test_errors_are_one_sentence(explore, arguments, code: int, sentence: str) -> None:
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


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("def f(:\n", "f", "cannot be loaded: SyntaxError in line 1"),
        ("import nothing_of_this_name\n", "f", "ModuleNotFoundError in line 1"),
        ("def g(): ...\n", "f", "has no function 'f'"),
        ("def f(x): ...\n", "f", "has no function 'make_arguments'"),
        (USER_FILE, "bth", "did you mean both?"),
        (USER_FILE, "", "name the function: mine.py:NAME; there are both, make_arguments"),
        (
            USER_FILE.replace("return rng", "return 1; rng"),
            "both",
            "gives int: it must give a tuple",
        ),
        (USER_FILE, "both", "needs the size n: give --size n=..."),
        (USER_FILE.replace("scale(x, y, f)", "scale(x, q, f)"), "both", "NameError in line"),
        (USER_FILE.replace("y[i] = f", "global g; y[i] = f"), "both", "mine.py:8"),
    ],
)
def test_errors_in_a_users_file(explore, text: str, name: str, sentence: str) -> None:
    Path("mine.py").write_text(text)
    sizes = [] if "size n" in sentence else ["--size", "n=8"]
    code, _, err = explore("run", f"mine.py:{name}", *sizes)
    assert code == 2
    assert sentence in err
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
