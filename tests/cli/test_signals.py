"""A command that is ended from outside: signals, a reader that goes, and what survives kill -9."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .command import SMALL, evaluations, objects, start


def test_a_reader_that_goes_is_no_error() -> None:
    running = start("list")
    assert running.stdout is not None
    running.stdout.close()  # long before the first line
    assert running.wait() == 0
    assert running.stderr is not None
    assert running.stderr.read() == ""
    running.stderr.close()


def test_ctrl_c_is_no_error_while_the_command_is_loaded() -> None:
    program = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "kernelscape.cli.commands":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from kernelscape.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "explore: stopped\n")


def wait_for(running: subprocess.Popen[str], event: str) -> None:
    assert running.stdout is not None
    for line in running.stdout:
        if json.loads(line)["event"] == event:
            return
    raise AssertionError(f"no {event} came: {running.stderr.read()}")


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("number", "code", "target"),
    [(signal.SIGINT, 130, "cpu"), (signal.SIGTERM, 143, "fake")],
    ids=["int", "term"],
)
def test_a_signal_ends_with_the_best_so_far(
    tmp_path: Path, number: int, code: int, target: str
) -> None:
    folder = tmp_path / "run"
    given = (*SMALL, "--target", target, "--time-limit", "60s", "--json", "-o", folder)
    running = start("run", *given)
    wait_for(running, "row")
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    result = objects(out)[-1]
    assert running.returncode == code
    assert result["status"] == "interrupted"
    assert result["best_ns"] > 0
    assert json.loads((folder / "best.json").read_text())["status"] == "interrupted"
    assert "Traceback" not in err


@pytest.mark.compiler
def test_the_second_signal_stops_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    running = start("run", *SMALL, "--time-limit", "60s", "--json", "-o", folder)
    wait_for(running, "row")
    running.send_signal(signal.SIGINT)
    assert running.stderr is not None
    while "once more to stop" not in running.stderr.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    err = running.communicate(timeout=60)[1]
    assert running.returncode == 130
    assert "Traceback" not in err


def test_the_backstop_handles_no_signal() -> None:
    """Kind: functions of Python that C calls may handle a signal, and its exception is lost."""
    program = """
import signal, threading
from kernelscape.cli import backstop

handled, answers = set(), []
signal.signal(signal.SIGALRM, lambda _, frame: handled.add(frame.f_code.co_filename))
asking = threading.Thread(target=lambda: answers.extend(backstop._comes_back(10.0) for _ in range(200)))
signal.setitimer(signal.ITIMER_REAL, 5e-5, 5e-5)
asking.start()
while asking.is_alive():
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
assert all(answers) and len(answers) == 200
assert handled and backstop.__file__ not in handled
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_kill_9_loses_no_finished_evaluation(explore, tmp_path: Path) -> None:
    """With a fake target records follow one another closely; experiments/kill_resume.py does it with a real one."""
    folder = tmp_path / "run"
    given = (*SMALL, "--target", "fake", "--time-limit", "60s", "--json", "-o", folder)
    running = start("run", *given)
    wait_for(running, "row")
    time.sleep(random.Random(1).uniform(0.0, 0.5))
    running.kill()
    running.communicate()
    before = evaluations(folder)
    assert before
    assert explore("resume", folder, "--max-evals", 2, "-q")[0] == 0
    after = evaluations(folder)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2
    assert len({r.source_key for r in after}) == len(after)
