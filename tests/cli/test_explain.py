"""`explore explain`: what it says of a run is what happened, and errors are one sentence."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.starts import count_starts
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.write.program_text import print_source
from kernelscape.explorer.entry import library_workload, resume
from kernelscape.explorer.explanation import Explanation, explain_run
from kernelscape.kernels.library import load
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.device import open_device
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import TallyRecord
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.sketches import Fusion, Packing, Sketch, TileSizes
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import to_names
from kernelscape.testing.syntax import nodes, program_of

from ..contracts.journal import lines_of, rewrite
from .command import evaluations, made

N_EVALUATIONS = 24


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the fake device."""
    return make_run(tmp_path_factory.mktemp("explain"), "bicgk", 96, N_EVALUATIONS)


def make_run(folder: Path, name: str, n: int, n_evaluations: int) -> Path:
    given = ("--target", "fake", "--max-evals", n_evaluations)
    return made(folder, name, "--size", f"n={n}", *given)


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """The same run, to be damaged."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in run.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture(scope="module")
def found(run: Path) -> Explanation:
    return explain_run(run)


# --- what it says --------------------------------------------------------------------------------


def test_text_has_its_sections_and_json_is_one_object(explore, run: Path) -> None:
    code, out, err = explore("explain", run)
    assert (code, err) == (0, "")
    assert re.search(r"\n  passed over +[1-9]\d* neighbours", out)
    assert not [line for line in out.splitlines() if line != line.rstrip()]
    code, whole, _ = explore("explain", run, "-v")
    assert len(whole.splitlines()) > len(out.splitlines())
    code, out, err = explore("explain", run, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    fields = json.loads(out)
    assert fields["event"] == "explanation"
    assert fields["best"]["binding"] in {t["resource"] for t in fields["best"]["terms"]}
    assert fields["pruned"]["evaluations"] == N_EVALUATIONS
    assert not any(fields["rewrites"].values())  # of a dense sequence without dead stores


def test_another_source_than_the_one_timed_is_said(found: Explanation, copy: Path) -> None:
    said = "the decisions now give another source"
    assert not any(said in note for note in found.notes)
    best = json.loads((copy / "best.json").read_text())
    (copy / "best.json").write_text(json.dumps(best | {"source_key": "0" * 24}))
    assert any(said in note for note in explain_run(copy).notes)


def test_accounts_add_up(found: Explanation, run: Path) -> None:
    times = [r.time_ns for r in evaluations(run) if r.time_ns is not None]
    assert found.best.time_ns == pytest.approx(min(times))
    assert found.default is not None
    assert found.default.time_ns == found.file.baseline_ns
    for account in (found.best, found.default):
        assert account.time_ns is not None
        assert account.unexplained_ns is not None
        assert account.bound_ns + account.unexplained_ns == pytest.approx(account.time_ns)
        assert account.terms[0].resource == account.binding
        assert [u.ns for u in account.terms] == sorted((u.ns for u in account.terms), reverse=True)
        assert account.terms[0].ns <= account.bound_ns * (1 + 1e-9)
        assert all(u.amount > 0 for u in account.terms if u.unit)
    flops = {u.amount for a in (found.best, found.default) for u in a.terms if u.unit == "flop"}
    assert flops == {4.0 * 96 * 96 - 2 * 96}  # the first addition of each sum is an assignment


def test_changed_decisions_lead_from_the_default_to_the_best(found: Explanation) -> None:
    best = dict(found.file.decisions)
    assert found.changed
    assert all(best[x.choice] == x.best != x.default for x in found.changed)


def test_tally_is_that_of_the_search(found: Explanation, run: Path) -> None:
    tallies = [r for r in read_journal(run / "journal.jsonl") if isinstance(r, TallyRecord)]
    assert found.pruned is not None
    assert found.pruned.tallies == tallies[-1].counts
    assert found.pruned.tallies["evaluations"] == N_EVALUATIONS
    assert found.pruned.refused == tallies[-1].refused


def test_sessions_are_summed(copy: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    before = explain_run(copy).pruned
    resume(copy, max_evals=3)
    after = explain_run(copy).pruned
    assert before is not None
    assert after is not None
    assert (before.sessions, after.sessions) == (1, 2)
    assert after.tallies is not None
    assert after.tallies["evaluations"] == N_EVALUATIONS + 3 == after.evaluations


def test_untried_values_were_possible_and_in_no_measured_implementation(
    found: Explanation, run: Path
) -> None:
    root = space("bicgk", m=96, n=96).root()
    assert isinstance(root, Candidate)
    tried = {decision for r in evaluations(run) for decision in r.decisions}
    choices = {root.space.choices[int(v)].name: int(v) for v in root.open_choices()}
    assert found.untried
    listed = {u.choice: u for u in found.untried}
    for name, v in choices.items():
        possible = {root.space.choices[v].values[x] for x in root.values(v)}
        seen = {value for value in possible if (name, value) in tried}
        if seen == possible:
            assert name not in listed
            continue
        u = listed[name]
        assert set(u.tried) == seen
        assert {*u.beaten, *u.open_values} == possible - seen


def test_beaten_values_have_no_implementation_with_a_bound_below_the_best(
    tmp_path: Path,
) -> None:
    # The times of the fake device mean nothing: give the best one that its bound allows.
    folder = make_run(tmp_path, "sscal", 1 << 18, 2)
    content = json.loads((folder / "best.json").read_text())
    time_ns = explain_run(folder).best.bound_ns * 1.05
    content |= {"time_ns": time_ns, "bound_ns": 0.0, "gap": 1.0}
    (folder / "best.json").write_text(json.dumps(content))
    journal = folder / "journal.jsonl"
    rewrite(journal, lambda lines: [x for x in lines if '"kind":"alarm"' not in x])
    untried = explain_run(folder).untried
    assert untried
    assert any(u.beaten for u in untried)
    s = space("sscal", n=1 << 18)
    root, bounder, rng = root_of(s), Bounder(s), np.random.default_rng(5)
    beaten = {(u.choice, value) for u in untried for value in u.beaten}
    for _ in range(300):
        made = root.random_completion(rng)
        if isinstance(made, Candidate) and beaten & set(to_names(made)):
            assert bounder.ns(made) >= time_ns


def test_a_time_below_its_bound_takes_all_claims_back(explore, tmp_path: Path) -> None:
    # The times of the fake device are those of small sequences: this one cannot be so fast.
    folder = make_run(tmp_path, "gemver", 1024, 4)
    found = explain_run(folder)
    assert found.best.time_ns is not None
    assert found.best.time_ns < found.best.bound_ns
    assert found.untried
    assert not any(u.beaten for u in found.untried)
    code, out, _ = explore("explain", folder)
    assert code == 0
    assert "note: an implementation was faster than its bound" in out


def test_older_journals_are_read(explore, copy: Path) -> None:
    journal = copy / "journal.jsonl"
    lines = [x for x in lines_of(journal) if '"event":"tally"' not in x]
    journal.write_text("\n".join(lines).replace(',"stopped_early":false', "") + "\n")
    header = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(header | {"schema": 2}))
    code, out, _ = explore("explain", copy)
    assert code == 0
    assert "kept no counts" in out


def test_a_run_that_measured_nothing_says_so(explore, copy: Path) -> None:
    journal = copy / "journal.jsonl"
    events = ('"event":"tally"', '"event":"evaluation"')
    rewrite(journal, lambda lines: [x for x in lines if not any(e in x for e in events)])
    (copy / "best.json").unlink()
    code, out, _ = explore("explain", copy)
    assert code == 0
    assert "nothing was measured, and no counts" in out
    assert "of a version" not in out


def test_torn_journal_still_explains(explore, copy: Path) -> None:
    journal = copy / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-9])
    assert explore("explain", copy)[0] == 0


# --- errors --------------------------------------------------------------------------------------


def tear_best(folder: Path) -> None:
    content = (folder / "best.json").read_bytes()
    (folder / "best.json").write_bytes(content[:200])


def tear_journal(folder: Path) -> None:
    lines = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    (folder / "journal.jsonl").write_text("".join([lines[0][:20] + "\n", *lines[1:]]))


def move_machine(folder: Path) -> None:
    content = json.loads((folder / "best.json").read_text())
    content["conditions"]["machine"] = "another-machine"
    (folder / "best.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "code", "sentence"),
    [
        (tear_best, 2, "is torn"),
        (tear_journal, 2, "line 1 is no record"),
        (lambda folder: (folder / "run.json").unlink(), 2, "holds no run"),
        (lambda folder: (folder / "journal.jsonl").unlink(), 2, "journal.jsonl cannot be read"),
        (move_machine, 7, "was measured on another-machine"),
    ],
)
def test_errors_are_one_sentence(explore, copy: Path, damage, code: int, sentence: str) -> None:
    damage(copy)
    got, out, err = explore("explain", copy)
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert sentence in err


# --- words ---------------------------------------------------------------------------------------


def space(name: str, **sizes: int) -> Space:
    workload = library_workload(load(name), sizes, "f32", 1)
    return build_space(workload.problem, open_device("fake").machine.facts())


def root_of(s: Space) -> Candidate:
    root = s.root()
    assert isinstance(root, Candidate)
    return root


PANEL = Sketch(tile=TileSizes(rows=8, vectors=2, panel=128), stores=ch.STREAM)


@pytest.mark.parametrize(
    ("name", "sizes", "sketch"),
    [
        ("gemver", {"m": 512, "n": 512}, Sketch(fusion=Fusion(launch=False, loops=False))),
        ("gemver", {"m": 512, "n": 512}, PANEL),
        ("axpydot", {"n": 4096}, PANEL),
        (
            "matmul",
            {"m": 256, "n": 256, "k": 256},
            Sketch(tile=TileSizes(rows=6, vectors=2, block=64), packing=Packing()),
        ),
    ],
)
def test_words_of_sketches(golden, name: str, sizes: dict[str, int], sketch: Sketch) -> None:
    found = complete_sketch(root_of(space(name, **sizes)), sketch)
    assert found is not None
    lines = [
        f"{topic}\n" + "".join(f"  {p}\n" for p in ps) for topic, ps in describe(found).items()
    ]
    kind = "default" if not sketch.fusion.launch else "sketch"
    golden("".join(lines) + f"{count_starts(found)}\n", f"words_{name}_{kind}.txt")


@pytest.mark.parametrize("name", ["gemver", "atax", "axpydot"])
def test_equal_words_mean_equal_text(name: str) -> None:
    sizes = {"n": 96} if name == "axpydot" else {"m": 96, "n": 96}
    root, rng = root_of(space(name, **sizes)), np.random.default_rng(3)
    texts: dict[str, str] = {}
    for _ in range(36):
        made = root.random_completion(rng)
        if not isinstance(made, Candidate):
            continue
        program = program_of(made)
        source = print_source(program, C_TEAM)
        starts = count_starts(made)
        assert starts.n_teams == sum(f.is_parallel for f in program.functions)
        assert starts.n_barriers >= sum(isinstance(n, c.Barrier) for n in nodes(program))
        words = json.dumps(describe(made))
        assert texts.setdefault(words, source.key) == source.key
    assert len(texts) > 14


def test_barriers_are_counted_as_often_as_threads_meet() -> None:
    made = complete_sketch(root_of(space("gemver", m=512, n=512)), PANEL)
    assert made is not None
    starts = count_starts(made)
    assert starts.n_launches == 1
    assert math.ceil(512 / 128) <= starts.n_barriers
