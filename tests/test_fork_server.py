"""The server of forked processes: a fork ends as a start of `python -m` would, and stands for it nowhere else."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from typing import Any

import pytest

from . import fork_server
from .fork_server import WORKER, Popen, module_of

FAILING = [sys.executable, "-P", "-m", WORKER]  # without its arguments


def ended(**given: Any) -> tuple[Popen, str, str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = Popen(FAILING, **pipes, **given)
    out, err = process.communicate(timeout=60)
    return process, out, err


def test_a_fork_ends_as_a_start_does() -> None:
    """With the same status and traceback, and its CPU time counts."""
    before_s = Popen.reaped_s
    forked, out, err = ended(env=fork_server.SERVERS.environment_of(WORKER))
    assert forked._ending is not None and Popen.reaped_s > before_s
    started, *said = ended(env={**os.environ, "PYTHONHASHSEED": "5"})
    assert started._ending is None
    assert forked.returncode == started.returncode == 1
    assert (out, err.splitlines()[-1]) == ("", said[1].splitlines()[-1])


@pytest.mark.parametrize("least", [3, *range(100, 106)])
def test_a_fork_has_the_files_the_folder_and_the_environment_that_it_is_given(
    least: int, tmp_path
) -> None:
    """Each of them is looked at while it waits for a request that does not come. `least`: no number of a file is below it."""
    low, theirs = os.pipe()
    replies, low_written = os.pipe()
    ours, written = (fcntl.fcntl(fd, fcntl.F_DUPFD, least) for fd in (low, low_written))
    os.close(low)
    os.close(low_written)
    options = '{"device": "fake", "library": null, "n_threads": 1}'
    own = fork_server.SERVERS.environment_of(WORKER)
    given = {"cwd": tmp_path, "env": {**own, "SAID": "here"}}
    with subprocess.Popen(
        [*FAILING, str(ours), str(written), options], pass_fds=(ours, written), **given
    ) as process:
        os.close(ours)
        os.close(written)
        try:
            assert os.read(replies, 4)  # it is ready
            assert process.poll() is None
            place = f"/proc/{process.pid}"
            assert os.path.samefile(f"{place}/cwd", tmp_path)
            assert os.getsid(process.pid) == process.pid
        finally:
            os.close(theirs)  # its parent has left
        assert process.wait(60) == -9
    os.close(replies)


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (FAILING, WORKER),
        ([sys.executable, "-m", "kernelscape.cli", "list"], "kernelscape.cli"),
        ([sys.executable, "-S", "-m", "kernelscape.cli"], ""),
        ([sys.executable, "-m", "pytest"], ""),
        ([sys.executable, "-c", "-m", "kernelscape.cli"], ""),
        (["/usr/bin/python3", "-m", "kernelscape.cli"], ""),
        ("ls -l", ""),
    ],
)
def test_other_commands_are_started(command: Any, module: str) -> None:
    assert module_of(command) == module


def test_processes_of_tests_are_forked() -> None:
    assert subprocess.Popen is fork_server.Popen
