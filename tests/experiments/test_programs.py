"""The table of whole programs: its ways, what is kept, and programs that run."""

from __future__ import annotations

import json

import kernelscape as ks
import pytest
from kernelscape.compat import taichi
from kernelscape.experiments import period_search, programs
from kernelscape.experiments.period_search import period_workload, searched_period, tried
from kernelscape.experiments.program_texts import APPLICATIONS, MICRO, TEXTS
from kernelscape.experiments.writing import read_results
from kernelscape.explorer.remeasure import n_parallel
from kernelscape.explorer.workload import Options, space_for
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.tasks.entry_facts import tree_work
from kernelscape.kernels.tasks.window_kernels import window_kernels
from kernelscape.runtime.records.record import ComponentRecord, EvaluationRecord
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.space.choices import PARALLEL
from kernelscape.space.components import components_of
from kernelscape.space.decisions import DecisionError
from kernelscape.testing.checking import target
from kernelscape.testing.sparse_windows import window_of
from msgspec import UNSET

RUN = {"wall_us": 8.0, "cpu_us": 12.0, "first_s": 2.0, "result": 5.0}
COUNTED = {key: float(n) for n, key in enumerate(programs.COUNTS)}
COUNTED |= {"backend_s": 3e-3, "backend_s_without": 4e-3, "n_compiled": 7}
FOUND = {"best_ns": 4e3, "tasks": {"loops": 1, "lists": 0}, "evaluations": 9, "failures": {}}
FOUND |= {"n_tried": 12, "least_tried": 5, "first_found_s": 0.25, "elapsed_s": 60.0}


@pytest.fixture
def asked(monkeypatch):
    """What processes are asked for, which say made-up times: peers take twice as long as ours."""
    ways = []

    def run_text(python, text, folder, limit_s, way, shrink, found, seconds, told, counted, **_):
        fixed, without = json.loads(told)
        ways.append((way, *fixed, *without))
        if way == "explore":
            return FOUND | ({"best_ns": 6e3} if fixed or without else {})
        slower = 2.0 if way == "taichi" else 1.0
        return RUN | COUNTED | {"wall_us": 8.0 * slower, "cpu_us": 12.0 * slower}

    monkeypatch.setattr(programs, "run_text", run_text)
    monkeypatch.setattr(programs, "pythons_of", lambda *_: ({}, {"taichi": "1.7.4"}))
    return ways


def test_ways_take_turns_and_a_search_comes_after_the_first_round_has_compiled(asked, tmp_path):
    given = ["--peer", "taichi=python", "--only", "texture", "--rounds", "2", "-o", str(tmp_path)]
    assert programs.main(given) == 0
    first = ["called", "planned", "taichi", "explore", "explored"]
    assert [way for way, *_ in asked] == [*first, "planned", "taichi", "called", "explored"]
    text = (tmp_path / "programs.md").read_text()
    assert "| texture | 8 us (12 us) | 8 us (12 us) | 8 us (12 us) | 16 us (24 us) | 2.00 |" in text
    planned = "| texture | 3 ms of 4 ms | 1 of 2 | 3 of 4 | 5 of 6 | 7 | 7 | 2000 ms | 2000 ms |"
    assert planned in text
    assert "| texture | 9 | 12 | 5 | 0.25 s | 60 s | 1 | 0 |" in text
    assert programs.main(given) == 0  # what is there is not made again
    assert len(asked) == 9
    assert programs.main([*given, "--piece", "0", "--again"]) == 0  # no time for a row
    assert len(asked) == 9


def test_a_peer_of_another_language_runs_the_programs_that_are_written_in_it(asked, tmp_path):
    given = ["--peer", "jax=python", "--only", "texture", "multires", "--rounds", "1"]
    assert programs.main([*given, "--seconds", "0", "-o", str(tmp_path)]) == 0
    rows = {r["name"]: r["runs"].keys() for r in read_results("programs", tmp_path)["rows"]}
    assert rows == {"texture": {"called", "planned", "jax"}, "multires": {"called", "planned"}}


def test_applications_are_searched_with_decisions_fixed(asked, tmp_path):
    given = ["--only", "maccormack", "--rounds", "1", "--fix", "-o", str(tmp_path)]
    assert programs.main(given) == 0
    fixed = [names for way, *names in asked if way == "explore"]
    ways = [["listgen", "lists"], ["activate", "activations"], ["fused"], ["store", "dead_stores"]]
    assert fixed == [[], *ways, ["copies"]]
    text = (tmp_path / "programs.md").read_text()
    assert "| maccormack | no fusion | 6 us | 1.50 | 1 | 0 |" in text
    assert "| maccormack | copies made | 6 us | 1.50 | 1 | 0 |" in text
    n_asked = len(asked)
    assert programs.main(given) == 0
    assert len(asked) == n_asked


def test_rows_that_are_there_get_the_ablations_that_they_lack(asked, tmp_path):
    given = ["--only", "texture", "--rounds", "1", "-o", str(tmp_path)]
    assert programs.main([*given, "--peer", "taichi=python"]) == 0
    del asked[:]
    assert programs.main([*given, "--fix"]) == 0
    assert [way for way, *_ in asked] == ["explore"] * len(programs.ABLATIONS)
    [row] = read_results("programs", tmp_path)["rows"]
    assert row["fixed"].keys() == programs.ABLATIONS.keys() and row["runs"]["taichi"]
    text = (tmp_path / "programs.md").read_text()
    assert "| texture | dead stores kept | 6 us | 1.50 | 1 | 0 |" in text
    assert "| texture | 8 us (12 us) | 8 us (12 us) | 8 us (12 us) | 16 us (24 us) | 2.00 |" in text


def test_rows_without_a_search_get_ablations_of_the_seconds_that_are_given(asked, tmp_path):
    """Kind: searches of no seconds, whose failures stay in the row for good."""
    given = ["--only", "texture", "--rounds", "1", "-o", str(tmp_path)]
    assert programs.main([*given, "--seconds", "0"]) == 0
    del asked[:]
    assert programs.main([*given, "--seconds", "0", "--fix"]) == 0
    assert not asked
    assert programs.main([*given, "--fix"]) == 0
    assert [way for way, *_ in asked] == ["explore"] * len(programs.ABLATIONS)


def test_figures_that_older_rows_lack_are_dashes(asked, tmp_path):
    given = ["--only", "texture", "--rounds", "1", "-o", str(tmp_path)]
    assert programs.main(given) == 0
    values = read_results("programs", tmp_path)
    for key in ("n_tried", "least_tried", "first_found_s"):
        del values["rows"][0]["explored"][key]
    for way in ("called", "planned"):
        for key in ("backend_s", "backend_s_without", "n_compiled"):
            del values["rows"][0]["runs"][way][0][key]
    text = programs.report(values)
    assert "| texture | – | 1 of 2 | 3 of 4 | 5 of 6 | – | – | 2000 ms |" in text
    assert "| texture | 9 | – | – | – | 60 s | 1 | 0 |" in text


def test_a_program_that_fails_is_a_row_with_its_reason(tmp_path, monkeypatch):
    def run_text(*_, **__):
        raise RuntimeError("no end within 9 s")

    monkeypatch.setattr(programs, "run_text", run_text)
    assert programs.main(["--only", "multires", "-o", str(tmp_path)]) == 1
    [row] = read_results("programs", tmp_path)["rows"]
    assert (row["status"], row["why"]) == ("failed", "no end within 9 s")
    assert "- multires failed: no end within 9 s" in (tmp_path / "programs.md").read_text()


def test_there_are_ten_micro_benchmarks_and_five_applications():
    assert (len(MICRO), len(APPLICATIONS), len(TEXTS)) == (10, 5, 15)


@pytest.mark.compiler
def test_a_program_runs_call_by_call_and_by_plans_with_equal_results(tmp_path):
    row = programs.measure("chain_copy", {}, 1, 0.0, 64, False)
    assert row["status"] == "ok", row
    called, planned = (row["runs"][way][0] for way in ("called", "planned"))
    assert called["result"] == planned["result"]
    assert (planned["n_launches"], planned["n_launches_without"]) == (1.0, 2.0)
    assert (called["n_compiled"], planned["n_compiled"]) == (2, 1)  # of the plan beside them
    assert planned["backend_s"] > 0 and "backend_s" not in called


@pytest.fixture
def step_of(tmp_path):
    """Makes the period of a program, small."""

    def made(name):
        ks.init()
        file = tmp_path / f"{name}.py"  # kernels are read from a file
        file.write_text(TEXTS[name])
        program = {"ti": taichi, "shrink": 4096, "__name__": name}
        exec(compile(TEXTS[name], file, "exec"), program)
        return program["step"]

    return made


@pytest.mark.compiler
def test_a_period_with_derivatives_computes_each_energy_that_is_not_overwritten(step_of):
    """Its tapes clear the energy of the tape before, so only the last one is seen."""
    step = step_of("derivatives")
    assert step.__globals__["result"]() == 10 * 512 + 512 * 0.25 * 1.5
    n_runs = []
    for without in ((), ("dead_stores",)):
        tasks = period_workload(step, without).problem.tasks
        n_runs.append(sum(t.n_runs for t in tasks if t.kernel == "total"))
    assert n_runs == [1, 10]


@pytest.mark.compiler
def test_a_search_has_figures_with_and_without_a_rewrite(step_of, tmp_path, monkeypatch):
    few = {"time_limit_s": None, "max_evals": 1, "final_top": 1}
    monkeypatch.setattr(period_search, "Options", lambda **x: Options(**(x | few)))
    step, none = step_of("fill_array"), {"listgen": "GENERATE"}
    found = []
    for k, (fixed, without) in enumerate([({}, ()), (none, ("dead_stores",))]):
        best, figures = searched_period(step, tmp_path / f"run{k}", 9.0, fixed, without)
        assert best is not None and figures["best_ns"] > 0
        assert figures["least_tried"] == figures["n_tried"] == figures["evaluations"] == 1
        assert figures["first_found_s"] > 0
        found.append(len(best.file.stored.recorded().left_out))
    assert found == [0, 1]
    for fixed, why in (({}, "it has no lists to leave in"), (none, "there is no choice 'listgen'")):
        best, figures = searched_period(step, tmp_path / "none", 9.0, fixed, ("lists",))
        assert best is None and why in figures["why"]
    with pytest.raises(DecisionError, match="there is no choice 'listgen'"):
        searched_period(step, tmp_path / "none", 9.0, none)


def evaluation(key, *parts, status="ok"):
    """A record with parts as "text:time"."""
    rows = [x.split(":") for x in parts]
    components = tuple(
        ComponentRecord(key=f"{key}{k}", text=text, time_ns=float(ns), spread=0.0)
        for k, (text, ns) in enumerate(rows)
    )
    return EvaluationRecord(
        at_s=1.0,
        decisions=(),
        source_key=key,
        status=status,
        time_ns=9.0 if status == "ok" else None,
        components=components or UNSET,
    )


def test_implementations_of_components_count_once():
    """Places with equal text are one component; failures, and what was measured again, do not count."""
    first = evaluation("a", "p:5", "q:3", "p:5", "r:1")
    second = evaluation("b", "s:6", "q:2", "s:6", "u:1")
    third = evaluation("c", "p:4", "q:3", "s:5", "v:1")
    wrong = evaluation("d", "x:4", "y:3", "x:5", "z:1", status="wrong")
    assert tried("a", [first]) == (3, 1)
    assert tried("b", [first, second, first, wrong]) == (2 + 1 + 2, 1)
    assert tried("a", [first, second, third]) == (2 + 1 + 3, 1)
    many = [evaluation("e", *(f"t{k}:{99 - k}" for k in range(11)))]
    assert tried("e", many) == (11, 1)
    more = evaluation("f", *(f"u{k}:{9}" for k in range(10)), "t10:1")
    assert tried("e", [*many, more]) == (21, 2)  # the eleventh is none of the ten longest
    assert tried("a", [evaluation("a"), evaluation("b"), evaluation("a")]) == (2, 2)
    assert tried("", [wrong]) == (0, 0)


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "n_launches"), [("multires", 3), ("deep_hierarchy", 5)])
def test_a_period_is_searched_with_the_lists_and_activations_of_its_plan(
    name, n_launches, tmp_path
):
    ks.init()
    file = tmp_path / f"{name}.py"  # kernels are read from a file
    file.write_text(TEXTS[name])
    program = {"ti": taichi, "shrink": 64, "__name__": name}
    exec(compile(TEXTS[name], file, "exec"), program)
    step = program["step"]
    planned = window_kernels(window_of(record_program(step, ())[0]))
    explored = period_workload(step)
    loops = [t for t in explored.problem.tasks if t.loops]
    n_made = sum("_list" in t.target.array for t in explored.problem.tasks)
    work = tree_work(explored.recording)
    assert (planned.n_loops, planned.n_lists, planned.n_activations) == (n_launches, 0, 0)
    assert (len(loops), n_made, *work) == (n_launches, 0, 0, 0)


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["multires", "deep_hierarchy"])
def test_a_period_of_full_size_is_searched_with_the_threads_of_its_plan(name, tmp_path):
    """Kind: the proof that iterations are independent gave up on long loops, so a search had one thread and four texts."""
    ks.init()
    file = tmp_path / f"{name}.py"
    file.write_text(TEXTS[name])
    program = {"ti": taichi, "shrink": 1, "__name__": name}
    exec(compile(TEXTS[name], file, "exec"), program)
    space = space_for(period_workload(program["step"]).problem, target(2, 64), Options())
    root = space.root()
    loops = {t for t, task in enumerate(space.problem.tasks) if task.loops}
    threads = {d.task for d, v in space.variables.kind.items() if PARALLEL in root.values(v)}
    assert loops and threads == loops
    made = [candidate for _, candidate in sketched_candidates(space)]
    assert max(map(n_parallel, made)) == len(loops)  # a first candidate has all threads


def test_a_period_of_multigrid_is_a_space_of_components(tmp_path):
    """Kind: a layout of a tree that several components share had a constraint with a choice of one of them."""
    ks.init()
    file = tmp_path / "mgpcg_2d.py"
    file.write_text(TEXTS["mgpcg_2d"])
    program = {"ti": taichi, "shrink": 4, "__name__": "mgpcg_2d"}
    exec(compile(TEXTS["mgpcg_2d"], file, "exec"), program)
    space = space_for(period_workload(program["step"]).problem, target(2, 64), Options())
    components = components_of(space)
    assert len(components) > 10
    owner = {v: k for k, c in enumerate(components) for v in c.choices}
    assert all(len({owner[v] for v in x.vars}) == 1 for x in space.model.declarations)
