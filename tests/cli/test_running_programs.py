"""`explore run FILE.py`: the windows of a running program are found, searched, and used by it; checked while it runs again."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import kernelscape as ks
import numpy as np
import pytest
from kernelscape.cli.schema import line_schema
from kernelscape.explorer import program_windows
from kernelscape.explorer.plan_check import PlanChecks
from kernelscape.explorer.plan_replay import SequenceRun
from kernelscape.explorer.program_windows import WindowLog, watched_window
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.frontend.dispatch import watching
from kernelscape.runtime.engine.window import DeferralWindow
from kernelscape.runtime.records.replay import StaleError

from .command import made, objects

pytestmark = pytest.mark.compiler
VALIDATOR = jsonschema.Draft202012Validator(line_schema())
PROGRAM = """
import kernelscape as ks

ks.init(OPTIONS)
x, y = ks.field(ks.f32, 64), ks.field(ks.f32, 64)

@ks.kernel
def fill():
    for i in x:
        x[i] = i

@ks.kernel
def shift(a: ks.f32):
    for i in x:
        y[i] = a * x[(i + 1) % 64]

@ks.kernel
def take(k: ks.i32):
    for i in x:
        x[i] += 0.5 * y[i] + k

fill()
for frame in range(3):
    for step in range(4):
        shift(0.25)
        take(step)
    assert x[0] > 0
print(x[5])
"""


@pytest.fixture(autouse=True)
def no_program_is_left():
    yield
    ks.reset()


def test_a_program_is_watched_searched_and_checked(explore) -> None:
    Path("program.py").write_text(PROGRAM.replace("OPTIONS", ""))
    code, out, err = explore("run", "program.py", "--max-evals", "2", "-o", "found", "--json")
    assert code == 0, err
    lines = objects(out)
    (window,) = [line for line in lines if line["event"] == "window"]
    assert (window["kernels"], window["share"]) == ("shift, take", 1.0)
    assert window["runs"] == 8  # the first four are behind `fill`, in a window that comes once
    assert window["ends"] == {
        "Python reads the field made in program.py:5, program.py:27": 4,
        "a window that ran before": 4,
    }
    assert window["best_ns"] > 0
    assert lines[-1] == {"event": "program_run", "directory": "found", "exit": 0}
    for line in lines:
        VALIDATOR.validate(line)
    assert json.loads(Path("found/program.json").read_text())["windows"][0]["name"] == "window1"

    code, out, _ = explore("replay", "found", "--program", "program.py")
    assert code == 0
    assert "program:window1: 12 runs, the first 3 agree with its kernels; " in out
    (line,) = objects(explore("replay", "found", "--program", "program.py", "--json")[1])
    VALIDATOR.validate(line)
    code, _, err = explore("run", "program.py", "-o", "found")
    assert code == 2 and "found holds a program's run already: name another folder" in err
    Path("other.py").write_text(PROGRAM.replace("OPTIONS", "").replace("0.5 *", "0.75 *"))
    out = explore("replay", "found", "--program", "other.py")[1]
    with pytest.warns(RuntimeWarning, match="was never run"):
        ks.reset()
    assert "program:window1: the program never ran it" in out

    assert explore("replay", "found")[0] in (0, 6)
    out = explore("explain", "found")[1]
    assert (
        out.startswith("window1  100% of their time: 8 runs of ") and "Where the time goes" in out
    )
    assert explore("report", "found")[0] == 0
    assert Path("found/window1/report.html").is_file()

    using = PROGRAM.replace("OPTIONS", "decisions='found/program.json'")
    Path("using.py").write_text(using)
    plain, tuned = (explore("taichi", name)[1] for name in ("program.py", "using.py"))
    assert plain == tuned

    stored = Path("found/program.json")
    for torn in (stored.read_text()[:-9], stored.read_text().replace("window1", "../window1")):
        stored.write_text(torn)
        for command in (
            ("replay",),
            ("explain",),
            ("report",),
            ("replay", "--program", "using.py"),
        ):
            code, _, err = explore(command[0], "found", *command[1:])
            assert code == 2 and err.startswith("explore: found/program.json"), err


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (
            PROGRAM.replace("OPTIONS", "debug=True"),
            (),
            "calls no kernels on its fields that could wait",
        ),
        ("x = 1 +", (), "program.py:1: invalid syntax"),
        ("x = 1", ("--size", "n=4"), "--size is not of programs: name a function, program.py:NAME"),
        (
            "x = 1",
            ("--target", "emulator"),
            "programs run on the CPU: --target emulator is of sequences",
        ),
    ],
)
def test_what_cannot_be_searched_is_said(
    text: str, options: tuple[str, ...], said: str, explore
) -> None:
    Path("program.py").write_text(text)
    code, _, err = explore("run", "program.py", *options)
    assert code == 2 and said in err


def test_an_exception_of_a_program_is_shown_as_its_own(explore) -> None:
    Path("program.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    code, _, err = explore("run", "program.py")
    assert code == 1 and err.rstrip().endswith("ZeroDivisionError: division by zero")
    assert 'program.py", line 2, in f' in err and "run_program" not in err


class StoppedError(Exception):
    pass


def test_a_log_ends_a_program_once() -> None:
    def stop() -> None:
        raise StoppedError

    log = WindowLog(0.0, stop)
    with watching(lambda: watched_window(log)):
        ks.init()
    x = ks.field(ks.f32, 8)

    @ks.kernel
    def add():
        for i in x:
            x[i] += 1

    add()
    with pytest.raises(StoppedError):
        x[0]
    add()
    assert x[0] == 2
    assert [(w.kernels, len(w.times_s)) for w in log.windows] == [("add", 2)]


SWAPPED = """
import kernelscape as ks

ks.init()
x, y, z = (ks.field(ks.f32, 64) for _ in range(3))

@ks.kernel
def step(a: ks.template(), b: ks.template(), c: ks.f32):
    for i in a:
        b[i] = a[(i + 1) % 64] + c

@ks.kernel
def halve(a: ks.template()):
    for i in a:
        a[i] *= 0.5

x[3] = 8
now, other = x, y
for frame in range(12):
    step(now, other, 0.25)
    halve(other)
    now, other = other, now
    assert now[0] >= 0
print(now[5])
"""


def test_windows_of_fields_that_are_swapped_are_one(explore) -> None:
    """The plan that is found for one of them runs for the other, too."""
    Path("program.py").write_text(SWAPPED)
    code, out, err = explore("run", "program.py", "--max-evals", "1", "-o", "found", "--json")
    assert code == 0, err
    (window,) = [line for line in objects(out) if line["event"] == "window"]
    assert (window["kernels"], window["runs"]) == ("step, halve", 12)
    code, out, _ = explore("replay", "found", "--program", "program.py")
    assert code == 0
    assert "program:window1: 12 runs, the first 3 agree with its kernels; " in out


SWAPPED_ON_TREES = """
import kernelscape as ks

ks.init()
x, y, *more = (ks.field(ks.i32) for _ in range(N_FIELDS))
for fields in GROUPS:
    ks.root.pointer(ks.i, 8).dense(ks.i, 4).place(*fields)

@ks.kernel
def spread(a: ks.template(), b: ks.template()):
    for i in a:
        b[i] += a[i] + a[i + 1]

@ks.kernel
def limit(a: ks.template()):
    for i in a:
        a[i] = a[i] % 1000

for i in range(20):
    x[i] = i
now, other = x, y
for frame in range(16):
    spread(now, other)
    limit(other)
    now, other = other, now
    assert now[0] >= 0
print(now[5], other[7])
"""


@pytest.mark.parametrize(
    ("n_fields", "groups", "n_runs"),
    [(3, "[(x, *more, y)]", 15), (2, "[(x,), (y,)]", 14)],
)
def test_windows_of_swapped_fields_of_trees_are_one(
    n_fields: int, groups: str, n_runs: int, explore
) -> None:
    """The first run of each parity is kernel by kernel; in one tree the other parity has the same cells then."""
    text = SWAPPED_ON_TREES.replace("N_FIELDS", str(n_fields)).replace("GROUPS", groups)
    Path("program.py").write_text(text)
    code, out, err = explore("run", "program.py", "--max-evals", "1", "-o", "found", "--json")
    assert code == 0, err
    (window,) = [line for line in objects(out) if line["event"] == "window"]
    assert (window["kernels"], window["runs"]) == ("spread, limit", 16)
    code, out, _ = explore("replay", "found", "--program", "program.py")
    assert code == 0
    assert f"program:window1: {n_runs} runs, the first 3 agree with its kernels; " in out
    assert out.startswith(explore("taichi", "program.py")[1])


SPARSE = """
import os
import kernelscape as ks

ks.init(decisions=os.environ.get("FOUND") or None)
x, y, total = ks.field(ks.i32), ks.field(ks.i32), ks.field(ks.i32, ())
block = ks.root.pointer(ks.i, 8)
block.dense(ks.i, 4).place(x, y)

@ks.kernel
def fill():
    for i in range(20):
        x[i] += i

@ks.kernel
def add():
    for i in x:
        y[i] += x[i]

@ks.kernel
def reduce():
    for i in y:
        total[None] += y[i] + 1

@ks.kernel
def thin():
    for i in x:
        if i == 5:
            ks.deactivate(block, 1)

def step():
    fill()
    add()
    reduce()

def change(k):
    if k == 1:
        x[30] = 4
    elif k == 2:
        thin()
    elif k == 3:
        block.deactivate_all()

def frame(k):
    step()
    return total[None]

if __name__ == "__main__":
    print(*map(frame, range(12)))
"""


def started(monkeypatch: pytest.MonkeyPatch, decisions: str) -> dict[str, Any]:
    monkeypatch.setenv("FOUND", decisions)
    return runpy.run_path("program.py")


def n_runs() -> int:
    return sum(s.n_runs for s in current_program().follower._sequences)


@pytest.fixture(scope="module")
def on_trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a program on a sparse field, with the result of its search in `run`."""
    folder = tmp_path_factory.mktemp("sparse")
    (folder / "program.py").write_text(SPARSE)
    made(folder, folder / "program.py", "--max-evals", 2)
    ks.reset()
    return folder


def test_a_plan_on_trees_takes_over_what_its_run_before_has_left(
    on_trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first period runs kernel by kernel, and so does each behind a change of active cells, by anyone."""
    monkeypatch.chdir(on_trees)
    with ks.interpret():
        program = started(monkeypatch, "")
        wanted = [(program["change"](k), program["frame"](k))[1] for k in range(8)]
    program = started(monkeypatch, str(on_trees / "run"))
    found, counts = [], []
    for k in range(8):
        program["change"](k)
        before = ks.engine.stats()
        found.append(program["frame"](k))
        now = ks.engine.stats()
        names = ("n_planned", "n_lists", "n_activations", "n_lists_without")
        counts.append(tuple(getattr(now, name) - getattr(before, name) for name in names))
    assert found == wanted
    alone, steady = (0, 0, 0, 0), (3, 0, 0, 2)
    assert counts == [alone, alone, alone, alone, steady, steady, steady, steady]
    assert n_runs() == 4


def test_a_plan_on_trees_is_not_run_outside_of_its_program(on_trees: Path, explore) -> None:
    (row,) = json.loads((on_trees / "run" / "program.json").read_text())["windows"]
    assert len(row["assumed"]) == 1
    with pytest.raises(StaleError, match="assumes the active cells that its run before has left"):
        ks.replay(on_trees / "run" / "window1")
    code, out, err = explore("replay", on_trees / "run")
    assert code in (0, 6), err
    code, out, err = explore("replay", on_trees / "run", "--program", str(on_trees / "program.py"))
    assert code == 0, err
    assert "program:window1: 11 runs, the first 3 agree with its kernels; " in out
    out = explore("explain", on_trees / "run")[1]
    assert "taken over from the run before: lists 1, activations 1; where active" in out


EACH_OTHER = """
import os
import kernelscape as ks

ks.init(decisions=os.environ.get("FOUND") or None)
x, y = ks.field(ks.i32), ks.field(ks.i32)
of_x, of_y = ks.root.pointer(ks.i, 8), ks.root.pointer(ks.i, 8)
of_x.dense(ks.i, 4).place(x)
of_y.dense(ks.i, 4).place(y)

@ks.kernel
def up():
    for i in x:
        y[i] += x[i] + i

@ks.kernel
def back():
    for i in y:
        x[i] = y[i] % 100

@ks.kernel
def thin():
    for i in y:
        if i == 5:
            ks.deactivate(of_y, 1)

def change(k):
    if k == 5:
        x[30] = 4
    elif k == 8:
        thin()
    elif k == 9:
        of_x.deactivate_all()

def frame():
    up()
    back()
    return [*x.to_numpy(), *y.to_numpy()]

x[5], y[9] = 3, 2
if __name__ == "__main__":
    for _ in range(12):
        frame()
"""


@pytest.mark.parametrize(
    ("most_runs", "by_kernels", "n_lists", "said"),
    [
        (2, {0, 1, 5, 6, 8, 9, 10}, 0, ("2 runs in a row", "were 2 runs")),
        (1, {0, 5, 8, 9}, 1, ("run", "was one run")),
    ],
)
def test_plans_on_trees_that_activate_each_other_take_over_what_two_runs_have_left(
    most_runs: int,
    by_kernels: set[int],
    n_lists: int,
    said: tuple[str, str],
    explore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the two runs behind any change of active cells are kernel by kernel. Files of versions before have what one run leaves."""
    monkeypatch.setattr(program_windows, "MOST_RUNS", most_runs)
    Path("program.py").write_text(EACH_OTHER)
    code, _, err = explore("run", "program.py", "--max-evals", "2", "-o", "run")
    assert code == 0, err
    with ks.interpret():
        program = started(monkeypatch, "")
        wanted = [(program["change"](k), program["frame"]())[1] for k in range(13)]
    program = started(monkeypatch, "run")
    found, counts = [], []
    for k in range(13):
        program["change"](k)
        before = ks.engine.stats()
        found.append(program["frame"]())
        now = ks.engine.stats()
        names = ("n_planned", "n_lists", "n_activations", "n_lists_without")
        counts.append(tuple(getattr(now, name) - getattr(before, name) for name in names))
    assert found == wanted
    alone, steady = (0, 0, 0, 0), (2, n_lists, 0, 2)
    assert counts == [alone if k in by_kernels else steady for k in range(13)]
    assert n_runs() == 13 - len(by_kernels)
    ks.reset()
    out = explore("explain", "run")[1]
    assert f"taken over from the {said[0]} before: lists {2 - n_lists}, activations 2; where" in out
    program = started(monkeypatch, "run")
    for _ in range(most_runs):
        program["frame"]()
    with pytest.warns(RuntimeWarning, match=f"{said[0]} before, and there {said[1]} only"):
        ks.reset()


@pytest.mark.parametrize(
    ("n_frames", "said"),
    [(1, "and there was one run only"), (3, "they had changed at each of 3 runs")],
)
def test_a_plan_whose_cells_never_stay_is_told(
    n_frames: int, said: str, on_trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(on_trees)
    program = started(monkeypatch, str(on_trees / "run"))
    for _ in range(n_frames):
        program["change"](3)
        program["step"]()
    with pytest.warns(RuntimeWarning, match=said):
        ks.reset()


@pytest.mark.parametrize(
    ("n_periods", "is_emptied", "wanted"), [(1, False, []), (3, False, [4, 2]), (3, True, [2])]
)
def test_what_changes_between_two_periods_is_not_assumed(
    n_periods: int, is_emptied: bool, wanted: list[int]
) -> None:
    log = WindowLog(60.0, lambda: None)
    with watching(lambda: watched_window(log)):
        ks.init()
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    block = ks.root.pointer(ks.i, 4)
    block.dense(ks.i, 4).place(x)
    ks.root.pointer(ks.i, 2).dense(ks.i, 4).place(y)

    @ks.kernel
    def fill():
        for i in range(8):
            x[i] += 1
            y[i] += 1

    @ks.kernel
    def double():
        for i in x:
            x[i] *= 2
        for i in y:
            y[i] *= 2

    for _ in range(n_periods):
        fill()
        double()
        ks.sync()
        if is_emptied:
            block.deactivate_all()
    (window,) = log.windows
    with window.workload("program:window1", "window1") as workload:
        recording = workload.recording
    trees = [t.tree for t in recording.trees if t.tree.name in recording.assumed]
    assert [t.nodes[0].extents[0] for t in trees] == wanted


@pytest.mark.parametrize(("changed", "n_runs"), [(None, 2), (3, 2), (8, 1)])
def test_two_runs_are_assumed_if_no_cell_changed_between_the_last_two(
    changed: int | None, n_runs: int
) -> None:
    log = WindowLog(60.0, lambda: None)
    with watching(lambda: watched_window(log)):
        ks.init()
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    for f in (x, y):
        ks.root.pointer(ks.i, 8).dense(ks.i, 4).place(f)

    @ks.kernel
    def up():
        for i in x:
            y[i] = x[i] + 1

    @ks.kernel
    def back():
        for i in y:
            x[i] = y[i] + 1

    x[5] = 1
    for k in range(9):
        if k == changed:
            y[30] = 1
        up()
        back()
        ks.sync()
    (window,) = log.windows
    with window.workload("program:window1", "window1") as workload:
        recording = workload.recording
    assert (len(recording.assumed), recording.n_assumed_runs) == (2, n_runs)


def test_windows_with_other_kernels_or_other_uses_of_fields_are_several() -> None:
    log = WindowLog(60.0, lambda: None)
    with watching(lambda: watched_window(log)):
        ks.init()
    x, y, z = (ks.field(ks.f32, 8) for _ in range(3))

    @ks.kernel
    def add(a: ks.template(), b: ks.template(), c: ks.f32):
        for i in a:
            a[i] += c * b[i]

    for a, b, c in ((x, y, 1.0), (y, x, 2.0), (x, y, 2.0), (z, x, 1.0)):
        add(a, b, c)
        add(b, a, 1.0)
        ks.sync()
    add(x, y, 1.0)
    add(x, z, 1.0)
    assert x[0] == 0
    assert sorted((len(w.times_s), len(w.varying)) for w in log.windows) == [(1, 0), (4, 1)]


def test_random_numbers_keep_a_window_as_it_is() -> None:
    log = WindowLog(60.0, lambda: None)
    with watching(lambda: watched_window(log)):
        ks.init()
    x = ks.field(ks.f32, 8)

    @ks.kernel
    def draw():
        for i in x:
            x[i] = ks.random()

    draw()
    assert x[0] != x[1]
    assert log.windows[0].why_fixed == "draw draws random numbers"


@pytest.mark.parametrize(
    ("factor", "wrong"), [(1 + 1e-6, ""), (1.5, "x[3] is 1.5 and should be 1.0")]
)
def test_what_a_plan_computes_otherwise_is_named(factor: float, wrong: str) -> None:
    """And the program goes on with what its kernels computed."""
    x = np.ones(4, np.float32)

    def plan() -> None:
        x[3] *= factor

    kernel = SimpleNamespace(run=lambda values: None)
    stored = SimpleNamespace(name="p", trees=())
    checks = PlanChecks([stored], DeferralWindow())
    whole = SequenceRun(stored, ((kernel, (x,)),), plan, {"x": x}, [])
    assert [checks.execute(whole) for _ in range(2)] == [True, not wrong]
    row = checks.found["p"]
    assert row.wrong.startswith(wrong) and bool(row.wrong) == bool(wrong)
    assert len(row.plan_s) == len(row.plain_s) == (1 if wrong else 2)  # no wrong one runs again
    assert x[3] == 1


def test_frames_are_of_programs(explore) -> None:
    code, _, err = explore("run", "axpydot", "--size", "n=8", "--frames", "3")
    assert code == 2 and "--frames is of programs, FILE.py without a function" in err
