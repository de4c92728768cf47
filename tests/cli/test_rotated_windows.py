"""Windows that follow themselves are searched and replayed from the call on with which fewest loops are left."""

from __future__ import annotations

import json
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernelscape as ks
import pytest
from kernelscape.codegen.loops.ir import Loop
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.explorer import program_windows
from kernelscape.explorer.program_windows import ProgramWindow, WindowLog, watched_window
from kernelscape.explorer.workload import Options, space_for
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.frontend.dispatch import watching
from kernelscape.kernels.tasks.window_kernels import window_kernels, window_rotation
from kernelscape.runtime.engine.window_calls import window_calls
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.testing.checking import target

from .command import made

pytestmark = pytest.mark.compiler

PROGRAM = """
import os
import kernelscape as ks

ks.init(decisions=os.environ.get("FOUND") or None)
x, g, h = (ks.field(ks.i32) for _ in range(3))
other = ks.field(ks.i32, 64)
block = BLOCK
block.dense(ks.i, 8).place(x, g, h)

@ks.kernel
def up(c: ks.i32):
    for i in x:
        g[i] = c * x[i]
    for i in x:
        if i < 63:
            h[i] = g[i + 1] - 1

@ks.kernel
def back(k: ks.i32):
    for i in x:
        if i < 63:
            x[i] = h[i + 1] // 2 + k
THIN
for i in range(40):
    x[i] = 3 * i

if __name__ == "__main__":
    for k in range(24):
        up(2)
        back(k)
"""
THIN = """
@ks.kernel
def thin():
    for i in x:
        if i == 5:
            ks.deactivate(block, 1)
"""
DENSE = PROGRAM.replace("BLOCK", "ks.root.dense(ks.i, 8)").replace("THIN", "")
DENSE = DENSE.replace("in x:", "in range(63):").replace("        if i < 63:\n    ", "")
SPARSE = PROGRAM.replace("BLOCK", "ks.root.pointer(ks.i, 8)").replace("THIN", THIN)


def end_program() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what was found and never run
        ks.reset()


@pytest.fixture(autouse=True)
def no_program_is_left() -> Iterator[None]:
    yield
    end_program()


def watched(pause: int, name: str = "x", text: str = DENSE) -> tuple[ProgramWindow, dict[str, Any]]:
    """The window of a program that is watched, and its names. It reads the field `name` behind every `pause` periods."""
    Path("watched.py").write_text(text)
    log = WindowLog(60.0, lambda: None)
    with watching(lambda: watched_window(log)):
        program = runpy.run_path("watched.py")
    for k in range(24):
        program["up"](2)
        program["back"](k)
        if k % pause == pause - 1:
            assert program[name][7] >= 0
    ks.sync()
    (window,) = (w for w in log.windows if w.kernels == "up, back")
    return window, program


@pytest.mark.parametrize(
    ("pause", "name", "wanted"),
    [
        (100, "x", "back, up"),
        (12, "x", "back, up"),
        (4, "x", "up, back"),
        (1, "x", "up, back"),
        (1, "other", "up, back"),  # where it runs what was found, each read runs what waits
    ],
)
def test_a_window_is_rotated_where_it_runs_many_times_in_a_row(
    pause: int, name: str, wanted: str
) -> None:
    window, _ = watched(pause, name)
    assert window.rotated().kernels == wanted


def test_a_rotated_window_is_searched_on_what_its_fields_hold_at_its_begin() -> None:
    window, program = watched(100)

    def contents() -> dict[str, Any]:
        return {name: program[name].to_numpy().tolist() for name in ("x", "g", "h")}

    before, rotated = contents(), window.rotated()
    assert (window.varying, rotated.varying) == ({1}, {0})
    with rotated.workload("program:window1", "window1") as workload:
        given = {name: a.tolist() for name, a in workload.arguments.arrays.items()}
        numbers = list(workload.arguments.scalars.values())
    assert contents() == before != given
    assert numbers == [23]  # of `back`
    program["up"](2)
    assert contents() == given


def least_loops(window: ProgramWindow) -> int:
    """The least number of outermost loops of a first candidate."""
    with window.workload("program:window1", "window1") as workload:
        space = space_for(workload.problem, target(2, 64), Options())
    made = [launches_of(plan_of(x), space.target) for _, x in sketched_candidates(space)]
    return min(sum(isinstance(n, Loop) for one in x for n in one.nodes) for x in made)


@pytest.mark.parametrize("text", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_a_rotated_window_has_fewer_loops(text: str) -> None:
    window, _ = watched(100, text=text)
    assert (least_loops(window), least_loops(window.rotated())) == (3, 2)
    calls, _, _ = window_calls(window.ran.kernels)
    assert window_rotation(calls) == window_kernels(calls).rotation == 1


@pytest.fixture(scope="module", params=[DENSE, SPARSE], ids=["dense", "sparse"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a program, with the result of its search in `run`."""
    folder = tmp_path_factory.mktemp("rotated")
    (folder / "program.py").write_text(request.param)
    made(folder, folder / "program.py", "--max-evals", 2)
    end_program()
    return folder


def started(folder: Path, decisions: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    end_program()
    monkeypatch.setenv("FOUND", decisions)
    return runpy.run_path(str(folder / "program.py"))


def n_runs() -> int:
    return sum(s.n_runs for s in current_program().follower._sequences)


def told(program: dict[str, Any], n_periods: int, pause: int) -> list[Any]:
    """Values that a program reads within and behind periods, where cells and arguments change, and at its end."""
    seen = []
    for k in range(n_periods):
        program["up"](3 if k == 4 else 2)
        if k % pause == 1:
            seen.append(program["g"][9])
        program["back"](k)
        if k % pause == pause - 1:
            seen.append(program["x"][7])
        if k == 4 and "thin" in program:
            program["thin"]()
        elif k == 5:
            program["x"][50] = 4
    if n_periods % 2:
        program["up"](2)  # the program ends within a period
    return [*seen, *(program[name].to_numpy().tolist() for name in ("x", "g", "h"))]


@pytest.mark.parametrize("n_periods", [1, 2, 3, 7])
@pytest.mark.parametrize("pause", [3, 100])
def test_values_are_right_wherever_a_program_looks(
    found: Path, n_periods: int, pause: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ks.interpret():
        wanted = told(started(found, "", monkeypatch), n_periods, pause)
    assert told(started(found, str(found / "run"), monkeypatch), n_periods, pause) == wanted


def test_a_rotated_window_runs_from_the_second_period_on(
    found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = started(found, str(found / "run"), monkeypatch)
    counts = []
    for _ in range(6):
        program["up"](2)
        program["back"](1)
        counts.append(n_runs())
    n_alone = 1 if "thin" in program else 0  # the first run makes true what others assume
    assert counts == [max(0, k - n_alone) for k in range(6)]
    assert program["x"][3] >= 0  # a read, before which `back` runs alone
    for _ in range(2):
        program["up"](2)
        program["back"](1)
    assert n_runs() == counts[-1] + 1


def test_the_result_says_where_a_rotated_window_begins(found: Path, explore) -> None:
    (row,) = json.loads((found / "run" / "program.json").read_text())["windows"]
    assert (row["kernels"], row["prologue"]) == ("back, up", 1)
    said = "begins 1 call later than a period: loops of two periods may be one"
    assert said in explore("explain", found / "run")[1]
    code, out, err = explore("replay", found / "run", "--program", str(found / "program.py"))
    assert code == 0, err
    assert "the first 3 agree with its kernels" in out


def test_a_window_is_not_rotated_where_memory_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: copies of parts of trees that are larger than memory, which a search of the window itself does not make."""
    monkeypatch.chdir(tmp_path)
    window, _ = watched(100)
    assert window.rotated().prologue
    monkeypatch.setattr(program_windows, "available_bytes", lambda: 64)
    assert window.rotated() is window


def test_a_window_is_rotated_by_what_is_known_of_its_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: loops that join only if cells stay, in a program that changes them before each run."""
    monkeypatch.chdir(tmp_path)
    window, _ = watched(100, text=SPARSE)
    asked = list[frozenset[int]]()
    monkeypatch.setattr(
        program_windows, "window_rotation", lambda calls, unsure: asked.append(unsure) or 0
    )
    window.n_changed[0] = window.n_compared
    assert window.rotated() is window
    assert asked == [frozenset({0})]
