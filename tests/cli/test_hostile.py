"""Files that others wrote cannot run code, leave their folder or end in a traceback, whatever stands in any of their fields."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kernelscape.cli import commands as cli
from kernelscape.cli.exits import explain_error
from kernelscape.cli.speaking import shown
from kernelscape.codegen.lower import lower, print_source
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.explorer.entry import resume
from kernelscape.explorer.explanation import explain_run
from kernelscape.explorer.results import load
from kernelscape.kernels.tasks.archive import ArchiveError, from_values
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.cpu.probe import guess_target
from kernelscape.runtime.records.journal import read_journal
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space

from ..contracts.journal import lines_of, rewrite

EVIL = '*/ system("evil"); /*'
PATH = "../../evil"
VALUES = (
    EVIL,
    PATH,
    "a\nb",
    "\x1b[2J",
    "\ud800",
    "",
    10**30,
    -1,
    1e308,
    True,
    None,
    [],
    {},
    [[{}]],
)
FILE = """
import numpy as np
import kernelscape as ks

@ks.kernel
def first(x: ks.types.ndarray(), y: ks.types.ndarray(), s: float, p: ks.types.ndarray()):
    for i in range(x.shape[0]):
        for j in range(x.shape[1] - 1):
            if x[i, j] > 0.0:
                y[i] += s * x[i, j + 1]
    for i in range(y.shape[0]):
        y[i] = y[i] + x[i, p[i]]

def sequence(x, y, s, p):
    first(x, y, s, p)

def make_arguments(sizes, dtype, rng):
    return rng.random((8, 6)).astype(dtype), np.zeros(8, dtype), 0.5, np.arange(8) % 6
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    base = tmp_path_factory.mktemp("hostile")
    (base / "mine.py").write_text(FILE)
    given = ("--target", "fake", "--max-evals", "2", "-q", "-o", str(base / "run"))
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", f"{base / 'mine.py'}:sequence", *given])
    assert caught.value.code == 0
    return base / "run"


def leaves(x: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all that holds nothing itself; of lists of many alike (decisions) only of the first."""
    parts = list(x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ())
    if path[-1:] == ("decisions",):
        parts = parts[:1]
    for key, part in parts:
        yield from leaves(part, (*path, key))
    if not parts:
        yield path


def edited(x: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(x))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


def is_refused(work: Callable[[], object]) -> bool:
    """True if `work` ends in an error of one sentence; a bug, or a sentence that steers a terminal, fails the test."""
    try:
        work()
    except Exception as e:
        told = explain_error(e)
        if told is None:
            raise
        return shown(told[0]) != ""
    return False


def only_in_comments(text: str) -> bool:
    """True if the hostile texts are nowhere but in a comment, which they do not end."""
    while "/*" in text:
        before, _, rest = text.partition("/*")
        text = before + rest.partition("*/")[2]
    return "system" not in text and "evil" not in text


def test_every_field_of_best_json(run: Path, tmp_path: Path) -> None:
    best = json.loads((run / "best.json").read_text())
    file = tmp_path / "inside" / "best.json"
    file.parent.mkdir()
    n_refused = 0
    values = (EVIL, PATH, "\x1b[2J", "\ud800", 10**30, -1, None, [])
    for k, path in enumerate(leaves(best)):
        for value in values[k % 2 :: 2]:
            file.write_text(json.dumps(edited(best, path, value)))
            text: list[str] = []
            n_refused += is_refused(lambda found=text: found.append(load(file).source))
            assert only_in_comments("".join(text)), (path, value)
    assert n_refused > 150
    assert [p.name for p in tmp_path.iterdir()] == ["inside"]
    assert [p.name for p in file.parent.iterdir()] == ["best.json"]


def test_every_field_of_a_recording_with_keys_that_fit(run: Path) -> None:
    """A file that passes has a text without any of it: the keys of such a file prove nothing."""
    best = json.loads((run / "best.json").read_text())
    values = json.loads(best["stored"]["recording"])
    target = guess_target()
    n_refused = n_kept = 0
    for path in leaves(values):
        if path[-2:] in (("where", "file"), ("where", "line")):
            continue  # below
        for value in (*VALUES, 3, "i", "f32"):
            try:
                recording = from_values(edited(values, path, value))
            except ArchiveError:
                n_refused += 1
                continue
            n_kept += 1
            problem = normalise(recording, EVIL)
            space = build_space(problem, target)
            for _, candidate in first_candidates(space, limit=1):
                text = print_source(lower(plan_of(candidate)), C_TEAM).text
                assert only_in_comments(text), (path, value)
    assert n_refused > 10 * n_kept > 0


def test_a_place_in_the_file_is_in_no_text(run: Path, tmp_path: Path) -> None:
    best = json.loads((run / "best.json").read_text())
    text = best["stored"]["recording"]
    name = json.dumps(str(run.parent / "mine.py"))
    assert name in text
    best["stored"]["recording"] = text.replace(name, json.dumps(EVIL))
    (tmp_path / "best.json").write_text(json.dumps(best))
    assert only_in_comments(load(tmp_path / "best.json").source)


def put_back(run: Path, folder: Path) -> None:
    """The files of a run as they were."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("tree.jsonl"))


def test_every_field_of_run_json(run: Path, tmp_path: Path) -> None:
    header = json.loads((run / "run.json").read_text())
    folder = tmp_path / "inside" / "run"
    put_back(run, folder)
    n_refused = 0
    values = (EVIL, -1, "\x1b[2J", None, 10**30, [])
    for k, path in enumerate(leaves(header)):
        if path[0] == "conditions" and path[1] != "machine":
            continue  # are for people
        for value in values[k % 2 :: 2]:
            (folder / "run.json").write_text(json.dumps(edited(header, path, value)))
            if is_refused(lambda: resume(folder, max_evals=1)):
                n_refused += 1
            else:
                put_back(run, folder)
    assert n_refused > 50
    assert {p.name for p in tmp_path.iterdir()} <= {"inside", "data"}  # and the tuned store


def test_every_field_of_a_journal(run: Path, tmp_path: Path) -> None:
    """Whoever writes one can compute its checksums."""
    lines = lines_of(run / "journal.jsonl")
    folder = tmp_path / "inside" / "run"
    put_back(run, folder)
    seen = set()
    n_refused = 0
    for k, line in enumerate(lines):
        record = json.loads(line)
        for path in leaves(record):
            kind = (record["event"], record.get("kind"), *(x for x in path if isinstance(x, str)))
            if kind in seen:
                continue
            seen.add(kind)
            for value in (EVIL, 10**30, None):
                changed = [*lines[:k], json.dumps(edited(record, path, value)), *lines[k + 1 :]]
                rewrite(folder / "journal.jsonl", lambda _, given=changed: given)
                is_refused(lambda: explain_run(folder))
                if is_refused(lambda: read_journal(folder / "journal.jsonl")):
                    n_refused += 1
                elif not isinstance(value, int):
                    is_refused(lambda: resume(folder, max_evals=1))
                    put_back(run, folder)
    assert n_refused > 100
    assert {p.name for p in tmp_path.iterdir()} <= {"inside", "data"}  # and the tuned store


def test_deep_nesting_is_a_sentence(run: Path, tmp_path: Path) -> None:
    best = json.loads((run / "best.json").read_text())
    deep: Any = {"is": "Const", "value": 1.0, "dtype": "f32"}
    for _ in range(150):
        deep = {"is": "Unary", "op": "neg", "x": deep, "dtype": "f32"}
    recording = json.loads(best["stored"]["recording"])
    recording["calls"][0]["ir"]["body"][0]["body"][0]["body"][0]["then"][0]["value"] = deep
    for text in (json.dumps(recording), "[" * 100_000):
        (tmp_path / "best.json").write_text(json.dumps(edited(best, ("stored", "recording"), text)))
        assert is_refused(lambda: load(tmp_path / "best.json").source)
    (tmp_path / "best.json").write_text("[" * 100_000)
    assert is_refused(lambda: load(tmp_path / "best.json"))


def test_an_access_outside_is_refused_before_anything_is_built(
    run: Path, explore, tmp_path
) -> None:
    """Also where all arrays are small: what is longer is the loop."""
    best = json.loads((run / "best.json").read_text())
    recording = json.loads(best["stored"]["recording"])
    loop = recording["calls"][0]["ir"]["body"][1]
    loop["extent"]["value"] = 1000
    best["stored"]["recording"] = json.dumps(recording)
    best["problem_key"] = "recomputed"
    (tmp_path / "best.json").write_text(json.dumps(best))
    code, _, err = explore("replay", tmp_path / "best.json")
    assert (code, "leaves 0..7" in err, "Traceback" in err) == (7, True, False)


def test_a_file_chooses_no_compiler(run: Path, explore, tmp_path: Path, monkeypatch) -> None:
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    program.chmod(0o755)
    header = json.loads((run / "run.json").read_text())
    header["options"]["compiler"] = str(program)
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(json.dumps(header))
    code, _, err = explore("resume", tmp_path / "run")
    assert (code, "confirm it with KERNELSCAPE_COMPILER=" in err) == (2, True)
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv("KERNELSCAPE_COMPILER", "gcc")
    assert explore("resume", tmp_path / "run", "--max-evals", 1, "-q")[0] == 0


@pytest.mark.parametrize("backend", ["worker", "..cpu", "os", ""])
def test_a_file_chooses_no_module(backend: str, run: Path, explore, tmp_path: Path) -> None:
    best = json.loads((run / "best.json").read_text())
    (tmp_path / "best.json").write_text(json.dumps(best | {"target": backend}))
    code, _, err = explore("replay", tmp_path / "best.json")
    assert (code, "there is no backend" in err) == (3, True)


def test_what_is_printed_steers_no_terminal() -> None:
    assert shown("a\x1b[2J\x07\r\n\tb\u202e\ud800é") == "a\\x1b[2J\\x07\\r\n\tb\\u202e\\ud800é"


def test_there_is_one_way_to_print() -> None:
    folder = Path(cli.__file__).parent
    prints = {p.name for p in folder.rglob("*.py") if "click.echo" in p.read_text()}
    assert prints == {"speaking.py"}
