"""Exploring, compiling, saving and replaying from Python."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer.entry import Run, explore_workload, library_workload, resume
from kernelscape.explorer.explanation import explain_run
from kernelscape.explorer.progress import Progress, shown
from kernelscape.explorer.remeasure import comparison, time_again
from kernelscape.explorer.result_text import next_step
from kernelscape.explorer.results import replay_again, write_source
from kernelscape.explorer.stages import Ended
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load as load_library
from kernelscape.runtime.api.outcome import Failure, Measurement
from kernelscape.runtime.fake.device import FakeMachine
from kernelscape.runtime.records.journal import FileJournal, read_journal
from kernelscape.runtime.records.record import EvaluationRecord, RecordError
from kernelscape.runtime.records.replay import StaleError
from kernelscape.runtime.worker.contenders import Contenders
from kernelscape.search import events as ev
from msgspec.structs import replace

pytestmark = pytest.mark.compiler
FRUITLESS = Ended(status="time_limit", failures={"timeout": 2}, run_dir="run", elapsed_s=1.0)


@ks.kernel
def gemv(a: ks.types.ndarray(), x: ks.types.ndarray(), y: ks.types.ndarray(), scale: float):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = scale * acc


def twice(a, x, y, w, scale):
    gemv(a, x, y, scale)
    gemv(a, y, w, 1.0)


def make_arguments(n: int = 40) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(3)
    a = rng.uniform(-1, 1, (n, n)).astype(np.float32)
    x = rng.uniform(-1, 1, n).astype(np.float32)
    return a, x, np.zeros(n, np.float32), np.zeros(n, np.float32)


def in_numpy(a, x, y, w, scale):
    y[:] = scale * (a @ x)
    w[:] = a @ y


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        args = make_arguments()
        before = [a.copy() for a in args]
        folder = tmp_path_factory.mktemp("run")
        run = ks.explore(twice, *args, 0.5, max_evals=5, directory=folder, reference=in_numpy)
    for array, kept in zip(args, before, strict=True):
        np.testing.assert_array_equal(array, kept)
    return run


def expected(a, x, scale):
    y = scale * (a.astype(np.float64) @ x)
    return y, a @ y


def check(f) -> None:
    a, x, y, w = make_arguments()
    f(a, x, y, w, 0.25)
    want_y, want_w = expected(a, x, 0.25)
    np.testing.assert_allclose(y, want_y, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(w, want_w, rtol=1e-4, atol=1e-4)


def test_run_tells_its_result(explored) -> None:
    run = explored
    assert run.status == "eval_limit"
    assert run.best.time_ns > 0
    assert run.ended.evaluations == 5
    assert run.ended.numpy_ns is not None
    assert run.gap is None or 0 <= run.gap < 1
    assert run.bound_ns is None or run.bound_ns <= run.best.time_ns * 1.01
    assert run.best.source == (run.directory / "kernel.c").read_text()


def test_a_run_is_printed_in_ten_readable_lines(explored) -> None:
    lines = str(explored).splitlines()
    assert 6 <= len(lines) <= 10 and max(map(len, lines)) < 160
    assert [line.split()[0] for line in lines[:3]] == ["Status", "Best", "Bound"]
    assert str(explored.directory) in lines[-1] and "eval_limit" in repr(explored)


def test_an_old_run_is_opened_as_it_was(explored, tmp_path: Path) -> None:
    again = ks.load_run(explored.directory)
    assert again.status == explored.status and again.frame() == explored.frame()
    assert again.best.file == explored.best.file
    same = ("best_ns", "bound_ns", "gap", "baseline_ns", "evaluations", "failures", "non_affine")
    assert [getattr(again.ended, x) for x in same] == [getattr(explored.ended, x) for x in same]
    assert again.report().html == explored.report().html
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(RecordError, match="run"):
            ks.load_run(place)


def test_a_run_without_a_result_says_what_to_do(tmp_path: Path) -> None:
    """Wherever it is asked for: printed, compiled or saved."""
    ended = replace(FRUITLESS, run_dir=str(tmp_path))
    run = Run(ended, None)
    assert "Next " in str(run) and "take smaller sizes" in str(run)
    for ask in (run.compile, lambda: run.save(tmp_path / "best.json")):
        with pytest.raises(ks.errors.NothingFoundError, match="take smaller sizes"):
            ask()


@pytest.mark.parametrize(
    ("ended", "advice"),
    [
        ({"failures": {"wrong": 3, "crash": 1}}, "compare one call of each kernel with NumPy"),
        ({"failures": {}}, "give it more time"),
        ({"status": "infeasible", "fixed": {"fused": "SEPARATE"}}, "fix fewer decisions"),
    ],
)
def test_the_advice_is_for_what_failed_most(ended, advice: str) -> None:
    assert advice in next_step(replace(FRUITLESS, **ended))


def test_progress_is_one_line_that_changes(explored, capsys) -> None:
    said: list[tuple[str, bool]] = []
    progress = Progress(lambda line, is_last: said.append((line, is_last)), every_s=0.0)
    fake = Options(target="fake", max_evals=6, store=False)
    workload = library_workload(load_library("vadd"), {"n": 64}, "f32", 1)
    explore_workload(workload, fake, directory=explored.directory / "fake", on_event=progress)
    assert "measured" in said[0][0] and [is_last for _, is_last in said].count(True) == 1
    assert "eval_limit" in said[-1][0]
    assert shown(False, None) is None and shown(None, None) is None  # nobody looks
    assert shown(True, None) is not None


def test_compiled_computes_in_place(explored) -> None:
    check(explored.best.compile())


def test_saved_file_stands_alone(explored, tmp_path: Path) -> None:
    path = explored.best.save(tmp_path / "mine.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.json", "mine.so"]
    check(ks.replay(path))
    (tmp_path / "mine.so").unlink()  # it saves a compiler, and is not needed where there is one
    check(ks.replay(path))
    assert ks.load(path).file == explored.best.file


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda a, x, y, w: (a, x, y, w), "5 arguments are needed (a, x, y, w, scale), 4 given"),
        (lambda a, x, y, w: (a.astype("f8"), x, y, w, 1.0), "argument a must be float32 of shape"),
        (lambda a, x, y, w: (a, x[:-1], y, w, 1.0), "argument x must be float32 of shape (40,)"),
        (
            lambda a, x, y, w: (a, x, y, np.broadcast_to(w, (40, 40))[0], 1.0),
            "argument w is written",
        ),
        (lambda a, x, y, w: (a.tolist(), x, y, w, 1.0), "argument a must be a NumPy array"),
        (lambda a, x, y, w: (a, x, y, y, 1.0), "arguments y and w share memory"),
        (lambda a, x, y, w: (a, x, y, w, "1"), "argument scale must be a number, not str"),
        (lambda a, x, y, w: (a, x, y, frozen(w), 1.0), "argument w is written"),
    ],
)
def test_other_arguments_are_refused(explored, change, sentence: str) -> None:
    with pytest.raises(TypeError) as caught:
        explored.best.compile()(*change(*make_arguments()))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def test_constants_are_part_of_the_code(tmp_path: Path) -> None:
    def either(x, y, take_sum):
        (add if take_sum else subtract)(x, y)

    x, y = np.ones(8, np.float32), np.ones(8, np.float32)
    run = ks.explore(either, x, y, None, target="fake", max_evals=1, directory=tmp_path)
    stored = run.best.file.stored
    assert [(p.name, p.kind, p.text) for p in stored.parameters] == [
        ("x", "array", ""),
        ("y", "array", ""),
        ("take_sum", "constant", "None"),
    ]


@ks.kernel
def add(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = y[i] + x[i]


@ks.kernel
def subtract(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = y[i] - x[i]


# --- searches on the fake device: no compiler, no clock -------------------------------------------


def fake_run(folder: Path, name: str = "axpydot", n: int = 64, **changes):
    told = []
    workload = library_workload(load_library(name), {"n": n}, "f32", 1)
    options = Options(**({"target": "fake", "max_evals": 30, "store": False} | changes))
    run = explore_workload(workload, options, directory=folder, on_event=told.append)
    return run, told


def measured(folder: Path) -> list[EvaluationRecord]:
    return [r for r in read_journal(folder / "journal.jsonl") if isinstance(r, EvaluationRecord)]


def test_equal_seeds_visit_equal_candidates(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fake_run(tmp_path / name)
    visited = [[r.decisions for r in measured(tmp_path / name)] for name in ("a", "b")]
    assert visited[0] == visited[1]


@pytest.mark.parametrize("strategy", ["mcts", "random", "beam", "bound", "exhaustive"])
def test_every_strategy_runs(tmp_path: Path, strategy: str) -> None:
    run, told = fake_run(tmp_path, strategy=strategy)
    assert run.best is not None
    assert run.ended.evaluations == 30
    assert any(isinstance(e, ev.Evaluated) for e in told)
    best = min(r.time_ns for r in measured(tmp_path) if r.time_ns is not None)
    assert run.best.time_ns == best


def test_a_bound_that_was_wrong_does_not_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[Any] = []
    facts = SimpleNamespace(factors=tuple, learn_factors=lambda x: None, learn_alarm=learned.append)
    monkeypatch.setattr(FakeMachine, "stored_facts", lambda self: facts)
    # The fake device takes less time than any machine could, which would close the whole tree.
    run, told = fake_run(tmp_path, "gemver", 1024)
    assert len(learned) == sum(isinstance(e, ev.AdmissibilityAlarm) for e in told) > 0
    assert (run.bound_ns, run.gap) == (None, None)
    assert (run.status, run.ended.evaluations) == ("eval_limit", 30)
    more = resume(tmp_path, max_evals=5)
    assert (more.status, more.ended.evaluations) == ("eval_limit", 35)
    assert more.gap is None


def test_resume_counts_what_was_done_and_repeats_nothing(tmp_path: Path) -> None:
    fake_run(tmp_path)
    first = measured(tmp_path)
    run = resume(tmp_path, max_evals=10)
    both = measured(tmp_path)
    assert both[: len(first)] == first
    assert len(both) == 40 == run.ended.evaluations
    keys = [r.source_key for r in both]
    assert len(set(keys)) == len(keys)
    assert run.best.time_ns == min(r.time_ns for r in both)


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    fake_run(tmp_path, max_evals=2)
    with pytest.raises(RecordError, match="holds a run already"):
        fake_run(tmp_path)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"strategy": "best"}, "there is no strategy 'best'; there are mcts, "),
        ({"time_limit_s": -1.0}, "a time limit of -1 s leaves no time"),
        ({"time_limit_s": float("nan")}, "leaves no time"),
        ({"gap": 5.0}, "a gap is a share from 0 to less than 1, not 5"),
        ({"max_evals": 0}, "max_evals must be at least 1, not 0"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"time_limit_s": "20s"}, "time_limit must be a number of seconds, not '20s'"),
        ({"gap": "5%"}, "gap must be a number, not '5%'"),
        ({"max_evals": 2.5}, "max_evals must be a whole number, not 2.5"),
        ({"seed": "one"}, "seed must be a whole number, not 'one'"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path: Path, option, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        fake_run(tmp_path / "run", **option)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", [{"strategy": "best"}, {"gap": 5.0}, {"nosuch": 1}])
def test_a_header_with_other_options_is_refused(tmp_path: Path, option) -> None:
    fake_run(tmp_path, max_evals=2)
    header = json.loads((tmp_path / "run.json").read_text())
    header["options"] |= option
    (tmp_path / "run.json").write_text(json.dumps(header))
    with pytest.raises(RecordError, match="options that no run has"):
        resume(tmp_path)


def test_what_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    fake_run(tmp_path, max_evals=2)
    best = (tmp_path / "best.json").read_bytes()
    (tmp_path / "journal.jsonl").unlink()
    with pytest.raises(RecordError, match=r"journal\.jsonl is gone"):
        resume(tmp_path)
    assert (tmp_path / "best.json").read_bytes() == best
    assert not (tmp_path / "journal.jsonl").exists()
    (tmp_path / "best.json").unlink()
    with pytest.raises(RecordError, match=r"found nothing yet: it has no best\.json"):
        ks.load(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(RecordError, match="holds no run"):
        ks.load(tmp_path)


def test_a_run_in_progress_is_not_resumed(tmp_path: Path) -> None:
    fake_run(tmp_path, max_evals=2)
    with FileJournal(tmp_path / "journal.jsonl"), pytest.raises(RecordError, match="another"):
        resume(tmp_path)


def stored_decision(content: dict) -> list[str]:
    """Returns the way in which the first task stores its result."""
    return next(d for d in content["decisions"] if d[0] == "cache(subtract_scaled0.z)")


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        (lambda d: stored_decision(d).__setitem__(1, "DEFAULT|STREAM"), StaleError, "leave 1 open"),
        (lambda d: stored_decision(d).__setitem__(1, "STREAM"), StaleError, "another source"),
        (lambda d: d.update(decisions=[]), StaleError, "another source"),
        (lambda d: d["decisions"][0].__setitem__(0, "odrer(x)"), StaleError, "no choice odrer"),
        (lambda d: d["decisions"][0].__setitem__(1, "UP"), StaleError, "has no value UP"),
        (lambda d: d.update(source_key="0" * 24), StaleError, "another source"),
        (lambda d: d.update(problem_key="0" * 24), StaleError, "other tasks"),
        (lambda d: d["stored"].update(recording="{"), StaleError, "cannot be read"),
        (lambda d: d["stored"].update(recording="[]"), StaleError, "cannot be read"),
        (lambda d: d["stored"].update(parameters=[]), StaleError, "cannot be read"),
        (lambda d: d.update(schema=99), RecordError, "schema 99"),
        (lambda d: d.pop("conditions"), RecordError, "conditions"),
        (lambda d: d.update(gap=0.0), RecordError, "changed by hand"),
    ],
)
def test_changed_best_files_get_a_sentence(tmp_path: Path, change, kind, sentence: str) -> None:
    fake_run(tmp_path, max_evals=2)
    path = tmp_path / "best.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(kind) as caught:
        ks.replay(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_finalists_are_ranked_by_what_they_take_without_the_machine() -> None:
    """The median of the better one is the larger: it was disturbed while memory was fast."""

    class Restless:
        def interleave_beside(self, artifacts, protocol, read_bytes, written_bytes):
            times = [(100.0, 120.0), (150.0, 98.0), (130.0, None)]
            measured = [
                Measurement(ns, 0.3, ns, 20, 1, 0, paired_ns=paired, paired_spread=0.01)
                for (ns, paired), _ in zip(times, artifacts, strict=True)
            ]
            return measured, {"read": [40.0, 44.0, 41.0]}

    class Built:
        contenders, control = Contenders(), SimpleNamespace(artifact=None)

        def artifacts(self, candidates):
            return list(candidates)

    serial = SimpleNamespace(space=SimpleNamespace(variables=SimpleNamespace(kind={})))
    entries = [(ev.Outcome("ok", 100.0, key=bytes([k])), serial) for k in range(3)]
    timed, rates = time_again(entries, Built(), Restless(), 1.0)
    assert rates == {"read": 41.0}
    assert [t.outcome.key[0] for t in timed] == [1, 0, 2]
    assert [t.outcome.time_ns for t in timed] == [150.0, 100.0, 130.0]
    told = comparison(timed)
    # Of the last nothing but a wide spread is known, so it may be as fast as the first; the second is surely slower.
    assert (told.ties, told.is_disturbed) == (2, False)


def test_a_choice_that_is_newer_than_the_file_has_its_plain_value(tmp_path: Path) -> None:
    fake_run(tmp_path, max_evals=2)
    path = tmp_path / "best.json"
    source = ks.load(path).source
    content = json.loads(path.read_text())
    decision = stored_decision(content)
    assert decision[1] == "DEFAULT"
    content["decisions"].remove(decision)
    path.write_text(json.dumps(content))
    assert ks.load(path).source == source


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_torn_best_files_get_a_sentence(tmp_path: Path, share: float) -> None:
    fake_run(tmp_path, max_evals=2)
    path = tmp_path / "best.json"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(RecordError, match="torn"):
        ks.load(path)


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
def test_what_clang_built_is_replayed_with_clang(tmp_path):
    workload = library_workload(load_library("axpydot"), {"n": 1000}, "f32", 1)
    options = Options(max_evals=3, compiler="clang", store=False)
    run = explore_workload(workload, options, directory=tmp_path / "run")
    assert run.best is not None
    assert "clang" in run.best.file.conditions.compiler
    assert run.best.device.builder.compiler.version == run.best.file.conditions.compiler
    again = replay_again(tmp_path / "run")
    assert not isinstance(again.outcome, Failure), again.outcome
    _, command, _ = write_source(tmp_path / "run", tmp_path / "written")
    assert "clang" in command.split()[0]


FIXED = {"fused": "SEPARATE", "size(*.j.inner)": 8}


def test_decisions_may_be_fixed_before_the_search(tmp_path: Path) -> None:
    run = ks.explore(
        twice, *make_arguments(), 0.5, max_evals=1, directory=tmp_path, decisions=FIXED
    )
    expected = {
        "fused(gemv0,gemv1)": "SEPARATE",
        "size(gemv0.j.inner)": "8",
        "size(gemv1.j.inner)": "8",
    }
    assert run.fixed == expected
    visited = [
        r for r in read_journal(tmp_path / "journal.jsonl") if isinstance(r, EvaluationRecord)
    ]
    assert all(expected.items() <= dict(r.decisions).items() for r in visited)
    assert expected.items() <= run.best.decisions.items()
    check(run.best.compile())
    header = json.loads((tmp_path / "run.json").read_text())
    assert dict(header["fixed"]) == expected
    again = resume(tmp_path, max_evals=1)
    assert again.fixed == expected
    assert again.ended.evaluations == 2
    assert (
        explain_run(tmp_path).notes[0].startswith("3 choices fixed: fused(gemv0,gemv1) = SEPARATE")
    )
    replayed = replay_again(tmp_path)
    assert isinstance(replayed.outcome, Measurement)
    assert not [note for note in replayed.notes if "space" in note]


def test_all_decisions_of_a_best_leave_one_implementation(explored, tmp_path: Path) -> None:
    run = ks.explore(
        twice,
        *make_arguments(),
        0.5,
        time_limit=20,
        directory=tmp_path,
        decisions=explored.best.decisions,
    )
    assert run.status == "optimal"
    assert run.ended.evaluations == 1
    assert run.best.file.source_key == explored.best.file.source_key


@pytest.mark.parametrize(
    ("decisions", "sentence"),
    [
        ({"fussed": "SEPARATE"}, "there is no choice 'fussed'; near it are fused"),
        ({"size(gemv0.j.inner)": 7}, "size(gemv0.j.inner) has no value 7; the nearest is"),
        (
            {"dim_kind(gemv0.j.mid)": "VECTOR"},
            "dim_kind(gemv0.j.mid) cannot be VECTOR here: it is LOOP",
        ),
        ("fused=SEPARATE", "it must be a dict of names and values"),
        ({3: "SEPARATE"}, "it must be a dict of names and values"),
    ],
)
def test_decisions_that_cannot_be_are_one_sentence(tmp_path: Path, decisions, sentence) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ks.explore(twice, *make_arguments(), 0.5, directory=tmp_path, decisions=decisions)


def test_fixed_decisions_that_fit_no_more_are_stale(explored, tmp_path: Path) -> None:
    shutil.copytree(explored.directory, tmp_path / "run")
    header = json.loads((tmp_path / "run" / "run.json").read_text())
    header["fixed"] = [["fused(gemv0,gemv7)", "SEPARATE"]]
    (tmp_path / "run" / "run.json").write_text(json.dumps(header))
    with pytest.raises(StaleError, match="there is no choice 'fused"):
        resume(tmp_path / "run", max_evals=6)


@ks.kernel
def say(x: ks.types.ndarray()):
    for _ in range(1):
        for i in range(x.shape[0]):
            print("kernel", x[i])
            x[i] += 1.0


def test_what_python_printed_comes_before_what_kernels_print(tmp_path, capfd, monkeypatch) -> None:
    x = np.zeros(1, np.float32)
    tuned = ks.explore(lambda x: say(x), x, max_evals=1, directory=tmp_path).best.compile()
    capfd.readouterr()
    with open(1, "w", closefd=False) as buffered:  # as where a program's output goes to a file
        monkeypatch.setattr("sys.stdout", buffered)
        for k, call in enumerate((say, say, tuned, tuned)):
            print(k)
            call(x)
    lines = capfd.readouterr().out.splitlines()
    assert [line.partition(".")[0] for line in lines] == [
        w for k in range(4) for w in (str(k), f"kernel {k}")
    ]
