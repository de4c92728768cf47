"""Commands that take FILE.py:function, on programs that were written with Taichi."""

from __future__ import annotations

import threading
from pathlib import Path

import kernelscape as ks
import pytest
from kernelscape.cli.sequence_name import Named
from kernelscape.cli.user_file import find_workload
from kernelscape.explorer.device_executor import DeviceExecutor
from kernelscape.kernels.frontend import dispatch
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.runtime.device import backends
from kernelscape.runtime.engine.window_stats import Stats

from .command import objects

PROGRAMS = Path(__file__).parents[1] / "compat" / "programs"
# The function that is explored, what fills the fields, and the lines that do not run behind the last frame.
STEPS = {
    "fluid": ("step", "start", ""),
    "fractal": ("step", "", ""),
    "life": ("step", "init", "line 54"),
    "mpm": ("substep", "", ""),
    "nbody": ("step", "reset", ""),
    "spring": ("substep", "initialize", "line 50"),
    "sph": ("step", "reset", "line 78"),
    "wave": ("step", "make_a_drop", "line 62"),
}
ZERO = "are zero: call your reset in the module, or by --before NAME"


@pytest.fixture(autouse=True)
def _no_program_is_left():
    yield
    ks.reset()


@pytest.mark.parametrize("name", sorted(STEPS))
def test_programs_run_unchanged_and_are_recorded(explore, name: str) -> None:
    """The kind: a file that one command runs is no module for the others."""
    function, _, left = STEPS[name]
    file = PROGRAMS / f"{name}.py"
    with interpret():
        code, _, err = explore("taichi", file, "--frames", "2")
        assert code == 0
        assert err.rstrip().endswith(f"2 frames; not run: {left}" if left else "2 frames"), err
        code, out, err = explore("graph", f"{file}:{function}")
    assert code == 0 and out.count("reads") >= 2, err
    assert ("loaded up to the picture" in err) == (name in ("fractal", "mpm"))


@pytest.mark.skipif("emulator" not in backends(), reason="there is no emulator")
def test_programs_run_on_a_target_that_they_do_not_ask_for(explore, monkeypatch) -> None:
    """The program itself says what ran it: every kernel is one of the backend."""
    ended: list[Stats] = []
    reset = DeviceExecutor.end
    monkeypatch.setattr(DeviceExecutor, "end", lambda x: ended.append(x.stats) or reset(x))
    code, _, err = explore(
        "taichi", PROGRAMS / "fractal.py", "--frames", "1", "--target", "emulator"
    )
    ks.reset()
    assert code == 0, err
    (stats,) = ended
    assert stats.runs and all(runs.keys() == {"emulator"} for runs in stats.runs.values())


def test_a_target_that_is_not_here_is_one_sentence(explore, monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "on_device", lambda name: f"there is no {name}")
    code, _, err = explore("taichi", PROGRAMS / "fractal.py", "--target", "cuda")
    assert code == 3 and "programs cannot run on cuda here: there is no cuda" in err


@pytest.mark.compiler
def test_programs_are_searched(explore) -> None:
    sequence = f"{PROGRAMS / 'fractal.py'}:step"
    code, out, err = explore("run", sequence, "--max-evals", "1", "--json")
    assert code == 0 and "are zero" not in err, err
    assert objects(out)[-1]["event"] == "result"


@pytest.mark.parametrize("name", sorted(n for n, (_, before, _) in STEPS.items() if before))
def test_what_is_measured_begins_with_what_fills_its_fields(name: str) -> None:
    """The kind: a program whose fields nobody has filled is measured without a word."""
    function, before, _ = STEPS[name]
    text, heard = f"{PROGRAMS / name}.py:{function}", []
    with interpret():
        filled = find_workload(Named(text, (before,)), {}, "f32", 1, tell=heard.append)
        assert heard == [] and any(a.any() for a in filled.arguments.arrays.values())
        find_workload(Named(text), {}, "f32", 1, measures=False, tell=heard.append)
        assert heard == []
        find_workload(Named(text), {}, "f32", 1, tell=heard.append)
    assert heard == [f"all fields that {text} reads {ZERO}"]


def test_python_is_told_of_zeros_as_well(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    ks.init()
    x = ks.field(ks.f32, shape=8)

    @ks.kernel
    def double():
        for i in x:
            x[i] *= 2

    for _ in range(2):
        ks.explore(double, max_evals=1, target="fake", directory=tmp_path / f"{x[0]}")
        x.fill(1)
    said = [r.getMessage() for r in caplog.records]
    assert said == [
        "all fields that the sequence reads are zero: call what fills them before ks.explore"
    ]


def test_spaces_of_programs_are_shown(explore) -> None:
    with interpret():
        code, out, err = explore(
            "show", f"{PROGRAMS / 'wave.py'}:step", "--before", "make_a_drop", "--descents", "0"
        )
    assert code == 0 and "task   integrate0" in out and ZERO not in err


def test_modules_come_and_go_while_other_threads_import() -> None:
    """The kind: a table of the process is read while others write to it."""
    import sys

    from kernelscape.compat.taichi import install

    is_over = threading.Event()

    def write() -> None:
        k = 0
        while not is_over.is_set():
            sys.modules[f"kernelscape_nothing_{k % 64}"] = sys.modules["json"]
            sys.modules.pop(f"kernelscape_nothing_{(k + 32) % 64}", None)
            k += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(100):
            with install():
                pass
    finally:
        is_over.set()
        thread.join()
        for k in range(64):
            sys.modules.pop(f"kernelscape_nothing_{k}", None)
