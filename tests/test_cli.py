"""The command: what it prints, its exit codes, signals, and what survives kill -9."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kernelscape.cli import commands as cli
from kernelscape.kernels.library import names
from kernelscape.runtime.journal import read_journal
from kernelscape.runtime.outcome import Failure
from kernelscape.runtime.records import EvaluationRecord

SMALL = ("axpydot", "--size", "n=1000")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, settings and the tuned store of a test are its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in [n for n in os.environ if n.startswith("KERNELSCAPE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def explore(capfd: pytest.CaptureFixture[str]):
    """Run a command line; exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return int(caught.value.code or 0), out, err

    return call


def objects(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kernelscape.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


# --- looking -------------------------------------------------------------------------------------


def test_list_names_every_sequence(explore) -> None:
    code, out, err = explore("list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(names())
    code, out, _ = explore("list", "--json")
    assert [x["name"] for x in objects(out)] == list(names())


def test_show_tells_the_space(explore) -> None:
    code, out, err = explore("show", "bicgk", "--size", "n=64", "--descents", 20)
    assert (code, err) == (0, "")
    for part in ("Tasks", "State-flow graph", "Objects", "Choices", "Bound", "Size"):
        assert f"\n{part}" in out
    assert "of random descents end dead" in out
    code, out, _ = explore("show", "bicgk", "--size", "m=64,n=32", "--json", "--descents", 20)
    (fields,) = objects(out)
    assert fields["feasible"]
    assert sum(fields["open_by_kind"].values()) == fields["open"] <= fields["choices"]
    low, high = fields["implementations"][1:]
    assert low <= fields["implementations"][0] <= high


def test_doctor_finds_a_compiler(explore) -> None:
    code, out, _ = explore("doctor", "--json")
    found = {f["topic"]: f for f in objects(out)}
    assert code == 0
    assert found["compiler"]["verdict"] == "ok"
    assert {"cores", "simd", "caches", "calibration", "presets", "gpu"} <= set(found)


def test_doctor_says_what_is_missing(explore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    code, out, _ = explore("doctor")
    assert code == cli.Exit.ENVIRONMENT
    assert "apt install gcc" in out


# --- running -------------------------------------------------------------------------------------


@pytest.mark.compiler
def test_run_replay_codegen(explore, tmp_path: Path) -> None:
    code, out, err = explore("run", *SMALL, "--max-evals", 6, "--json")
    assert code == 0
    told = objects(out)
    result = told[-1]
    assert [told[0]["event"], result["event"]] == ["start", "result"]
    assert "Src" in err
    assert result["status"] == "eval_limit"
    assert result["verified"] is True
    assert result["evaluations"] == 6
    assert result["run_dir"] == "runs/axpydot-cpu-n1000-001"
    for name in ("best_ns", "baseline_ns", "numpy_ns"):
        assert result[name] > 0
    assert {p.name for p in Path(result["run_dir"]).iterdir()} == {
        "run.json",
        "journal.jsonl",
        "best.json",
        "kernel.c",
    }

    code, out, err = explore("replay", result["run_dir"], "--tolerance", "1000%")
    assert (code, err) == (0, "")
    assert "verified on 3 input sets" in out

    code, out, _ = explore("codegen", f"{result['run_dir']}/best.json", "-o", tmp_path / "c")
    text = (tmp_path / "c" / "kernel.c").read_text()
    assert text == Path(result["run_dir"], "kernel.c").read_text()
    assert "-w" not in out.split()
    command = [*out.split(), "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.compiler
def test_log_is_a_table(explore) -> None:
    code, out, err = explore("run", *SMALL, "--max-evals", 3, "--target", "fake")
    assert (code, err) == (0, "")
    for part in (
        "Problem ",
        "Space ",
        "Root bound ",
        " Src  |",
        "*U  ",
        "Status ",
        "Bound ",
        "Saved ",
        " | seed 1 | given: max_evals=3 target=fake\n",
    ):
        assert part in out
    code, out, _ = explore("run", *SMALL, "--max-evals", 3, "--target", "fake", "-q")
    assert " Src  |" not in out
    assert "Status " in out


@pytest.mark.compiler
def test_concurrent_runs_have_their_own_folders() -> None:
    running = [start("run", *SMALL, "--max-evals", 2, "--json") for _ in range(2)]
    results = [objects(r.communicate()[0])[-1] for r in running]
    assert [r.returncode for r in running] == [0, 0]
    folders = {r["run_dir"] for r in results}
    assert folders == {"runs/axpydot-cpu-n1000-001", "runs/axpydot-cpu-n1000-002"}
    for folder in folders:
        assert len(evaluations(Path(folder))) == 2


USER_FILE = """
import numpy as np
import kernelscape as ks

@ks.kernel
def scale(x: ks.types.ndarray(), y: ks.types.ndarray(), f: float):
    for i in range(x.shape[0]):
        y[i] = f * x[i]

def both(x, y, z, f):
    scale(x, y, f)
    scale(y, z, f)

def make_arguments(sizes, dtype, rng):
    n = sizes["n"]
    return rng.random(n).astype(dtype), np.zeros(n, dtype), np.zeros(n, dtype), 0.5

def reference(x, y, z, f):
    y[:] = f * x
    z[:] = f * y
"""


@pytest.mark.compiler
def test_a_users_own_file(explore, tmp_path: Path) -> None:
    Path("mine.py").write_text(USER_FILE)
    code, out, _ = explore("run", "mine.py:both", "--size", "n=100", "--max-evals", 3, "--json")
    result = objects(out)[-1]
    assert code == 0
    assert result["run_dir"] == "runs/both-cpu-n100-001"
    assert result["numpy_ns"] > 0
    Path("mine.py").unlink()
    assert explore("replay", result["run_dir"], "--tolerance", "1000%")[0] == 0
    assert explore("resume", result["run_dir"], "--max-evals", 1)[0] == 0


# --- errors --------------------------------------------------------------------------------------


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
        (["run", "axpydot", "--size", "n=9", "--compiler", "nocc"], 3, "no C compiler with OpenMP"),
        (["run", "no.py:f"], 2, "there is no file no.py"),
        (["--config", "no.toml", "run", "axpydot"], 2, "no.toml cannot be read"),
        (["list", "--config", "no.toml"], 2, "no.toml cannot be read"),
        (["resume", "nowhere"], 2, "run.json cannot be read"),
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
        (USER_FILE.replace("y[i] = f", "while 1: y[i] = f"), "both", "mine.py:8"),
    ],
)
def test_errors_in_a_users_file(explore, text: str, name: str, sentence: str) -> None:
    Path("mine.py").write_text(text)
    sizes = [] if "size n" in sentence else ["--size", "n=8"]
    code, _, err = explore("run", f"mine.py:{name}", *sizes)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1


def test_a_reader_that_goes_is_no_error() -> None:
    running = start("list")
    assert running.stdout is not None
    running.stdout.close()  # long before the first line
    assert running.wait() == 0
    assert running.stderr is not None
    assert running.stderr.read() == ""
    running.stderr.close()


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

    monkeypatch.setattr("kernelscape.cli.views.list_lines", fail)
    code, _, err = explore("list")
    assert code == cli.Exit.ENVIRONMENT
    assert sentence in err
    assert err.count("\n") == 1


def test_a_run_that_does_not_begin_leaves_no_folder(explore) -> None:
    assert explore("run", "axpydot", "--size", "n=9", "--target", "quantum")[0] == 3
    assert explore("run", "axpydot", "--size", "n=9", "--compiler", "nocc")[0] == 3
    assert list(Path("runs").iterdir()) == []


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


def test_a_bug_is_called_a_bug(explore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelscape.cli.views.list_lines", lambda: 1 // 0)
    code, _, err = explore("list")
    assert code == cli.Exit.INTERNAL
    assert "ZeroDivisionError" in err
    assert "this is a bug in kernelscape" in err


# --- replay --------------------------------------------------------------------------------------


@pytest.fixture
def best(explore) -> Path:
    """A stored implementation of the fake device."""
    code, out, _ = explore("run", *SMALL, "--max-evals", 2, "--target", "fake", "--json")
    assert code == 0
    return Path(objects(out)[-1]["run_dir"]) / "best.json"


def edit(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text()) | changes
    content["gap"] = (content["time_ns"] - content["bound_ns"]) / content["time_ns"]
    path.write_text(json.dumps(content))


def test_replay_of_a_slower_implementation(explore, best: Path) -> None:
    assert explore("replay", best)[0] == cli.Exit.OK
    edit(best, time_ns=json.loads(best.read_text())["time_ns"] / 1.5)
    code, out, _ = explore("replay", best)
    assert code == cli.Exit.SLOWER
    assert "+50.0%: slower than the tolerance of 25%" in out
    assert explore("replay", best, "--tolerance", "60%")[0] == cli.Exit.OK


def test_replay_on_a_slower_machine(explore) -> None:
    """The default tells: it is as much slower."""
    code, out, _ = explore("run", *SMALL, "--max-evals", 8, "--target", "fake", "--json")
    result = objects(out)[-1]
    assert code == 0
    assert result["best_ns"] < result["baseline_ns"]
    path = Path(result["run_dir"]) / "best.json"
    edit(path, time_ns=result["best_ns"] / 2, baseline_ns=result["baseline_ns"] / 1.8)
    code, out, _ = explore("replay", path)
    assert code == cli.Exit.OK
    assert "; the default takes 1.80 times as long as then, so +11.1%: within the tolerance" in out
    _, out, _ = explore("replay", path, "--json")
    assert objects(out)[0]["machine"] == pytest.approx(1.8)
    edit(path, baseline_ns=result["baseline_ns"])
    assert explore("replay", path)[0] == cli.Exit.SLOWER


def test_replay_of_a_stale_vector(explore, best: Path) -> None:
    edit(best, source_key="0" * 24)
    code, _, err = explore("replay", best)
    assert code == cli.Exit.STALE
    assert "another source" in err


def test_replay_of_a_wrong_answer(explore, best: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Failure("wrong", "z[3] is off")
    monkeypatch.setattr("kernelscape.explorer.saved.check_again", lambda *_: (wrong, 3))
    code, out, _ = explore("replay", best, "--json")
    assert code == cli.Exit.WRONG_ANSWER
    assert objects(out)[0]["detail"] == "z[3] is off"


def test_torn_best_is_a_sentence(explore, best: Path) -> None:
    best.write_bytes(best.read_bytes()[:300])
    code, _, err = explore("replay", best)
    assert code == cli.Exit.USAGE
    assert "is torn" in err
    assert err.count("\n") == 1


# --- signals and kill -9 -------------------------------------------------------------------------


def evaluations(folder: Path) -> list[EvaluationRecord]:
    records = read_journal(folder / "journal.jsonl")
    return [r for r in records if isinstance(r, EvaluationRecord)]


def wait_for(running: subprocess.Popen[str], event: str) -> None:
    assert running.stdout is not None
    for line in running.stdout:
        if json.loads(line)["event"] == event:
            return
    raise AssertionError(f"no {event} came: {running.stderr.read()}")


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_a_signal_ends_with_the_best_so_far(tmp_path: Path, number: int, code: int) -> None:
    folder = tmp_path / "run"
    running = start("run", *SMALL, "--time-limit", "60s", "--json", "-o", folder)
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


@pytest.mark.compiler
@pytest.mark.parametrize("seed", range(3))
def test_kill_9_loses_no_finished_evaluation(explore, tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "run"
    running = start("run", *SMALL, "--time-limit", "60s", "--json", "-o", folder)
    wait_for(running, "row")
    time.sleep(random.Random(seed).uniform(0.0, 0.5))
    running.kill()
    running.communicate()
    before = evaluations(folder)
    assert before
    assert explore("resume", folder, "--max-evals", 2, "-q")[0] == 0
    after = evaluations(folder)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2
    assert len({r.source_key for r in after}) == len(after)
