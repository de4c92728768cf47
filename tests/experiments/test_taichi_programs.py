"""Taichi's examples beside Taichi: what is compared, what counts as equal, and what the pages say of it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.compat.display.frames import Reel
from kernelscape.compat.program import read_program, run_program
from kernelscape.compat.taichi import install
from kernelscape.experiments import kernel_calls, taichi_programs, taichi_speed
from kernelscape.experiments.conditions import moment, stamp
from kernelscape.experiments.taichi_driver import names_in_reach, state_of, steady_clock
from kernelscape.experiments.taichi_programs import compare, field_error
from kernelscape.experiments.writing import RESULTS

PROGRAM = """
import taichi as ti

ti.init()
x = ti.field(ti.f32, shape=3)
gui = ti.GUI("program", 8)

@ti.kernel
def add():
    for i in x:
        x[i] += 1

def main():
    y = ti.field(ti.i32, shape=2)
    while gui.running:
        add()
        y[1] += 2
        gui.show()

main()
"""


CLOCK = """
import time
import taichi as ti

gui = ti.GUI("clock", 8)
seen = []
while gui.running:
    seen.append([time.time(), time.perf_counter_ns() / 1e9])
    gui.show()
"""


@pytest.fixture
def program():
    """A program of ours begins, and ends with the test."""
    ks.init()
    yield
    ks.reset()


def test_the_error_of_a_field_is_in_units_of_its_greatest_value() -> None:
    b = np.array([0.0, 4.0, -8.0], np.float32)
    assert field_error(b, b) == 0
    assert field_error(b + np.float32(2), b) == 0.25
    assert field_error(np.array([0.5]), np.array([0.0])) == 0.5
    nan, inf = np.array([np.nan, 1.0]), np.array([np.inf, 1.0])
    assert field_error(nan, nan) == field_error(inf, inf) == 0
    assert field_error(nan, inf) == field_error(inf, -inf) == field_error(b[:2], nan) == np.inf


def test_what_differs_and_what_one_of_the_two_has_not_is_named() -> None:
    x, n = np.ones(4, np.float32), np.arange(4)
    assert compare({"x": x, "n": n}, {"x": x * np.float32(1.0005), "n": n}) == {
        "fields": 2,
        "unlike": {},
        "error": pytest.approx(5e-4, rel=1e-3),
    }
    ours = {"x": x, "n": n, "d": x, "s": x, "mine": x}
    theirs = {"x": 2 * x, "n": n % 3, "d": x.astype(float), "s": x[:3], "other": x}
    assert compare(ours, theirs) == {
        "fields": 4,
        "unlike": {
            "x": "1 of its elements differ, by 5.0e-01 of the greatest",
            "n": "25.00% of its elements differ",
            "d": "float32[4], Taichi has float64[4]",
            "s": "float32[4], Taichi has float32[3]",
            "other": "is not here",
            "mine": "is not in Taichi",
        },
        "error": 0.5,
    }


def test_the_state_is_what_names_reach(program: None) -> None:
    pair = ks.types.struct(a=ks.f32, b=ks.types.vector(2, ks.i32)).field(shape=3)
    field = ks.field(ks.f32, shape=2)
    field.fill(7)
    holder: Any = type("Holder", (), {"__module__": "__main__"})()
    holder.inner, holder.size, holder.me = [field], 3, holder
    found = state_of({"pair": pair, "h": holder, "z": np.zeros(1), "text": "x", "__n": field})
    assert set(found) == {"pair.a", "pair.b", "h.inner.0", "h.me.inner.0", "z"}
    assert found["h.inner.0"].tolist() == [7, 7] and found["pair.b"].shape == (3, 2)


def test_names_of_functions_that_are_being_called_are_in_reach() -> None:
    found: dict[str, Any] = {}
    text = "def f(x):\n    y = x\n    look()\ng, x = 1, 2\nf(3)\n"
    names = {"__name__": "__main__", "look": lambda: found.update(names_in_reach())}
    exec(compile(text, "program.py", "exec"), names)
    assert (found["g"], found["x"], found["y"]) == (1, 3, 3)
    assert "text" not in found


@pytest.mark.compiler
def test_a_program_is_run_and_its_conditions_are_kept(tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    examples.mkdir()
    (examples / "program.py").write_text(PROGRAM)
    (examples / "other.py").write_text("import taichi as ti\nti.Texture\n")
    arguments = ["--examples", str(examples), "--frames", "2", "--results", str(tmp_path)]
    taichi_programs.main(arguments)
    other, row = taichi_programs.read_results("taichi_programs", tmp_path)["rows"]
    assert (row["name"], row["frames"], row["limit_s"], row["kernels"]) == ("program", 2, 120, True)
    assert row["ours"]["frames"] == row["ours"]["fields"] == 2  # x, and y of main
    assert other["ours"] == {
        "why": "other.py:2: ti.Texture is not here: textures, which Taichi has on Vulkan and OpenGL alone, are not there yet"
    }
    assert "1 of 2 run." in (tmp_path / "taichi_programs.md").read_text()
    taken = row["taken"]
    taichi_programs.main(arguments)
    kept = taichi_programs.read_results("taichi_programs", tmp_path)["rows"]
    assert [r["taken"] for r in kept] == [other["taken"], taken]


def test_a_program_that_reads_the_clock_sees_the_same_one_everywhere(tmp_path: Path) -> None:
    program, frames = tmp_path / "clock.py", list[list[float]]()
    program.write_text(CLOCK)
    reel = Reel(2, at_end=lambda: frames.extend(names_in_reach()["seen"]))

    @contextmanager
    def names(examples: Path | None) -> Iterator[None]:
        with install(examples), steady_clock(reel.shown_s):
            yield

    run_program(read_program(program), program, (), reel, names)
    assert frames == [[0.0, 0.0], pytest.approx([1 / 60, 1 / 60])]
    assert time.time() > 1e9  # the clock of everybody else


@pytest.mark.compiler
def test_frames_are_timed_in_turn_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = tmp_path / "examples"
    examples.mkdir()
    (examples / "program.py").write_text(PROGRAM)
    monkeypatch.setattr(taichi_speed, "PROGRAMS", {"program": 3})
    arguments = ["--examples", str(examples), "--rounds", "1", "--results", str(tmp_path)]
    taichi_speed.main(arguments)
    taichi_speed.main(arguments)  # nothing is left
    (row,) = taichi_speed.read_results("taichi_speed", tmp_path)["rows"]
    assert (row["who"], row["frames"]) == ("ours", 3) and row["frame_s"] > 0
    assert "Nothing is compared." in (tmp_path / "taichi_speed.md").read_text()


def test_turns_are_rounds_of_all_libraries_and_our_time_is_over_the_better() -> None:
    turns = taichi_speed.Turns(Path(), {"a": 1, "b": 2}, {"ours": None, "taichi": "python"}, 2)
    one_round = [("a", "ours"), ("a", "taichi"), ("b", "ours"), ("b", "taichi")]
    assert turns.left([]) == 2 * one_round
    times = {"ours": (0.1, 0.3, 0.2), "taichi": (0.4, 0.5, 0.4), "quadrants": (0.8, 0.8, 0.8)}
    rows = [
        {"name": "a", "who": who, "frame_s": x, **moment()} for who, xs in times.items() for x in xs
    ]
    assert turns.left(rows) == 2 * one_round[2:]
    rows += [{"name": "b", "who": "ours", "why": "b.py:1: no | yes", **moment()}]
    text = taichi_speed.report({"stamp": stamp(), "versions": {"taichi": "1.7.4"}, "rows": rows})
    assert "| a | 200 ms +- 50 % | 400 ms +- 12 % | 800 ms +- 0 % | 0.50 |" in text
    assert "| b | b.py:1: no / yes | – | – | – |" in text
    assert "the better of the two: 0.50; 1 of 1 are no slower." in text


def row(name: str, compared: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    ran = {"frames": 10, "first_s": 1.0, "frame_s": 0.01, "fields": 1}
    found = {"name": name, "random": False, "ours": ran, "taichi": {**ran, "first_s": 2.0}}
    found |= {} if compared is None else {"compared": compared}
    return (
        found
        | {"kernels": True, "limit_s": 60.0, "frames": 10, "version": "1.7.4"}
        | moment()
        | more
    )


def test_nothing_of_ours_is_there_before_the_start() -> None:
    code = (
        "import sys, kernelscape.experiments.taichi_driver\n"
        "print(*sorted(m for m in sys.modules if m.startswith('kernelscape.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "kernelscape.experiments",
        "kernelscape.experiments.taichi_driver",
        *(
            f"kernelscape.kernels{name}"
            for name in ("", ".frontend", ".frontend.dispatch", ".frontend.lowering")
        ),
    ]


def test_the_readme_says_how_many_run() -> None:
    readme = (RESULTS.parents[1] / "README.md").read_text()
    found = re.search(r"(\d+) of its (\d+) examples", readme)
    assert found is not None
    page = (RESULTS / "taichi_programs.md").read_text()
    assert f"{found[1]} of {found[2]} run." in page


def test_programs_without_fields_are_neither_equal_nor_in_the_means() -> None:
    none = {"frames": 10, "first_s": 0.001, "frame_s": 0.5, "fields": 0}
    rows = [
        row("same", {"fields": 2, "unlike": {}, "error": 0.0}),
        row("off", {"fields": 3, "unlike": {"a": "differs", "b": "is not here"}, "error": 0.1}),
        row("gui", {"fields": 0, "unlike": {}, "error": 0.0}, ours=none, kernels=False),
        row("dead", taichi={"why": "SIGSEGV: no word"}),
    ]
    text = taichi_programs.report({"stamp": stamp(), "rows": rows})
    assert "4 of 4 run. 3 of these ran in Taichi, too; 2 of them have fields" in text
    assert "and 1 of these have the fields of Taichi." in text
    assert "of 2 first frames 0.50, of 2 frames 1.00" in text
    assert "| gui | no fields | 1 ms |" in text and "| off | no: 2 differ |" in text
    assert "| off | a differs; b is not here |" in text
    assert "| dead | SIGSEGV: no word |" in text
    assert "taichi 1.7.4, on the CPU; at most 60 s a program" in text


def test_the_page_of_calls_has_medians_versions_and_both_ends() -> None:
    seconds = {way: [1e-3, 3e-3, 2e-3] for way in kernel_calls.WAYS}
    values = {"stamp": stamp(), "rounds": 3, "seconds": {"kernelscape": seconds, "taichi": seconds}}
    assert "| taichi | 2 ms +- 50 % | 2 ms" in kernel_calls.report(values)
    more = {"ended": moment(), "versions": {"taichi": "1.7.4"}, "limit_s": 120.0}
    text = kernel_calls.report(values | more)
    assert f"- ended {more['ended']['taken']}, load" in text and "- beside taichi 1.7.4" in text
