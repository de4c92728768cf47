"""Sequences on linked lists, union-find parents, row pointers and sparse fields: what decides where they go is kept with a result.

The kind: inputs that are structures. Drawn at random within their range, links run in circles and pointers fall, so that a replay
never ends, or is of another program than the one that was explored.
"""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.cli import commands as cli
from kernelscape.codegen.text.header import header_file, header_text
from kernelscape.explorer.check_inputs import contents, inputs_of
from kernelscape.explorer.entry import resume
from kernelscape.explorer.results import Best, load, replay_again
from kernelscape.explorer.self_check import check_text
from kernelscape.runtime.api.outcome import Measurement
from kernelscape.runtime.records import kept
from kernelscape.runtime.records.record import RecordError
from kernelscape.runtime.records.replay import dialect_of, rebuild

A = ks.types.ndarray
N = 60
GCC = ("gcc", "-O1", "-march=native", "-ffp-contract=off", "-Wno-psabi", "-Wno-unknown-pragmas")


@ks.kernel
def walk(nxt: A(), heads: A(), w: A(), out: A()) -> None:
    for i in range(heads.shape[0]):
        s = 0.0
        p = heads[i]
        while p >= 0:
            s += w[p]
            p = nxt[p]
        out[i] = s


@ks.kernel
def shorten(parent: A()) -> None:
    for i in range(parent.shape[0]):
        while parent[parent[i]] != parent[i]:
            parent[i] = parent[parent[i]]


@ks.kernel
def multiply(ptr: A(), col: A(), val: A(), x: A(), y: A()) -> None:
    for i in range(y.shape[0]):
        s = 0.0
        for k in range(ptr[i], ptr[i + 1]):
            s += val[k] * x[col[k]]
        y[i] = s


@ks.kernel
def halve(x: A(), tolerance: A(), n: A()) -> None:
    for i in range(x.shape[0]):
        v = x[i]
        while v > tolerance[0]:
            v = 0.5 * v
            n[i] += 1
        x[i] = v / tolerance[1]


@ks.kernel
def count_large(x: A(), n: A()) -> None:
    for i in range(x.shape[0]):
        if x[i] > 1.0:
            for k in range(8):
                n[i] += k


def lists(nxt: Any, heads: Any, w: Any, out: Any) -> None:
    walk(nxt, heads, w, out)


def union(parent: Any) -> None:
    shorten(parent)


def rows(ptr: Any, col: Any, val: Any, x: Any, y: Any) -> None:
    multiply(ptr, col, val, x, y)


def until_small(x: Any, tolerance: Any, n: Any) -> None:
    halve(x, tolerance, n)


def arguments() -> dict[str, tuple[Callable[..., None], dict[str, Any], set[str]]]:
    """Sequences, their arguments, and which of these are not to be drawn."""
    rng = np.random.default_rng(7)
    chains = np.array_split(rng.permutation(N).astype(np.int32), 8)
    nxt = np.full(N, -1, np.int32)
    for chain in chains:
        nxt[chain[:-1]] = chain[1:]
    heads = np.array([chain[0] for chain in chains], np.int32)
    parent = np.array([0, *(rng.integers(0, k) for k in range(1, N))], np.int64)
    ptr = np.concatenate([[0], np.cumsum(rng.integers(0, 5, N))]).astype(np.int32)
    n = int(ptr[-1])
    col, val = rng.integers(0, N, n).astype(np.int32), rng.random(n)
    x, w = rng.random(N) + 1, rng.random(N)
    csr = {"ptr": ptr, "col": col, "val": val, "x": x, "y": np.zeros(N)}
    small = {"x": x, "tolerance": np.array([1e-3, 3.0]), "n": np.zeros(N, np.int32)}
    listed = {"nxt": nxt, "heads": heads, "w": w, "out": np.zeros(8)}
    return {
        "lists": (lists, listed, {"nxt", "heads"}),
        "union": (union, {"parent": parent}, {"parent"}),
        "rows": (rows, csr, {"ptr", "col"}),
        "until_small": (until_small, small, {"x", "tolerance"}),
    }


def explored(name: str, folder: Path) -> Path:
    """The folder of a run."""
    fn, given, _ = arguments()[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder.parent / "data"))
        ks.explore(fn, *given.values(), target="fake", max_evals=1, directory=folder)
    return folder


@pytest.fixture(params=["lists", "union", "rows", "until_small"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return explored(request.param, tmp_path / request.param)


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run whose links are in files of their own."""
    monkeypatch.setattr(kept, "PACKED_BYTES", 8)
    return explored("lists", tmp_path / "lists")


def is_as_given(best: Best, name: str, inputs: Path | None = None) -> None:
    """Fails before anything runs that would not end."""
    _, given, exact = arguments()[name]
    rebuilt = rebuild(best.file, best.device.machine.facts(), dialect_of(best.device))
    known = best.known_arrays(rebuilt, inputs)
    assert known.keys() >= exact
    for array in known:
        np.testing.assert_array_equal(known[array], given[array], strict=True)


def check(best: Best, folder: Path) -> subprocess.CompletedProcess[str]:
    """Builds the check of an export, and runs it."""
    rebuilt = rebuild(best.file, best.device.machine.facts(), dialect_of(best.device))
    source, stored = rebuilt.source, best.file.stored
    given = inputs_of(stored, rebuilt.recording, best.known_arrays(rebuilt, None))
    text = check_text(source, rebuilt.problem, rebuilt.recording, stored, given)
    header = header_text(source, rebuilt.problem, [p.name for p in stored.parameters])
    folder.mkdir()
    (folder / "main.c").write_text(text)
    (folder / "kernel.c").write_text(source.file_text)
    (folder / header_file(rebuilt.problem)).write_text(header)
    (folder / "inputs.bin").write_bytes(contents(source, rebuilt.problem, given))
    files = [folder / "main.c", folder / "kernel.c"]
    subprocess.run([*GCC, "-o", folder / "check", *files, "-lm", "-pthread"], check=True)
    return subprocess.run([folder / "check"], cwd=folder, capture_output=True, text=True)


@pytest.mark.compiler
def test_a_result_is_replayed_on_its_structures_and_checks_itself(run: Path, tmp_path) -> None:
    best = load(run)
    is_as_given(best, run.name)
    assert isinstance(replay_again(run).outcome, Measurement)
    assert resume(run, max_evals=1).best is not None
    done = check(best, tmp_path / "out")
    assert (done.returncode, "values agree" in done.stdout) == (0, True), done.stdout + done.stderr
    (tmp_path / "out" / "inputs.bin").write_bytes(b"")
    short = subprocess.run([tmp_path / "out" / "check"], cwd=tmp_path / "out", capture_output=True)
    assert (short.returncode, b"are missing: give the file inputs.bin" in short.stderr) == (2, True)


def test_what_is_too_large_for_a_text_lies_beside(beside: Path, tmp_path: Path) -> None:
    """And goes along with what is saved elsewhere."""
    best = load(beside)
    assert len(list(beside.glob("input-*.bin"))) == 2
    is_as_given(best, "lists")
    (tmp_path / "copy").mkdir()
    best.save(tmp_path / "copy" / "best.json")
    is_as_given(load(tmp_path / "copy" / "best.json"), "lists")


def numpy_file(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_what_is_not_kept_is_asked_for(explore: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(kept, "NEEDED_BYTES", N * 4)
    run = explored("lists", tmp_path / "lists")
    given = arguments()["lists"][1]
    is_kept = {"heads": given["heads"], "nxt": given["nxt"]}
    for command in (["replay", run], ["export", run, "-o", "out"], ["resume", run]):
        code, _, err = explore(*command)
        assert (code, err.count("\n")) == (cli.Exit.USAGE, 1)
        assert "does not hold the values of heads, which decide where the sequence goes" in err
        assert "--inputs FILE.npz (numpy.savez('FILE.npz', heads=...))" in err
    file = numpy_file(tmp_path / "mine.npz", **is_kept)
    assert explore("replay", run, "--inputs", file)[0] == cli.Exit.OK
    assert explore("resume", run, "--inputs", file, "--max-evals", 1, "-q")[0] == cli.Exit.OK


def bounded(x: Any, n: Any) -> None:
    count_large(x, n)


def test_what_is_drawn_though_it_decides_is_said(tmp_path: Path, monkeypatch: Any) -> None:
    """Numbers that only steer may be drawn: the time is then of other branches."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    x, folder = np.linspace(0, 5, N), tmp_path / "bounded"
    monkeypatch.setattr(kept, "WANTED_BYTES", 8)
    ks.explore(bounded, x, np.zeros(N, np.int32), target="fake", max_evals=1, directory=folder)
    notes = replay_again(
        folder, inputs=numpy_file(tmp_path / "n.npz", n=np.zeros(N, np.int32))
    ).notes
    assert any(
        "the values of x, which decide where the sequence goes, were too large" in n for n in notes
    )
    given = numpy_file(tmp_path / "mine.npz", x=x, n=np.zeros(N, np.int32))
    assert not any("too large" in n for n in replay_again(folder, inputs=given).notes)


@pytest.mark.parametrize("kind", ["gone", "a link", "a pipe", "longer", "of other content"])
def test_what_lies_beside_is_what_was_kept_or_nothing(
    kind: str, beside: Path, explore: Any
) -> None:
    (first, *_) = sorted(beside.glob("input-*.bin"))
    content = first.read_bytes()
    first.unlink()
    if kind == "a link":
        (beside / "elsewhere").write_bytes(content)
        first.symlink_to(beside / "elsewhere")
    elif kind == "a pipe":
        os.mkfifo(first)
    elif kind != "gone":
        first.write_bytes(content + b"\0" if kind == "longer" else bytes(len(content)))
    code, out, err = explore("replay", beside)
    assert (code, out, err.count("\n"), "Traceback" in err) == (cli.Exit.USAGE, "", 1, False)
    assert ("does not hold the values" if kind == "gone" else first.name) in err


def zipped(path: Path, header: bytes, content: bytes, name: str = "nxt.npy") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, header + content)
    return path


def header_of(dtype: str, shape: tuple[int, ...], version: bytes = b"\1\0") -> bytes:
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text


HOSTILE = {
    "another shape": (lambda p: numpy_file(p, nxt=np.zeros(3, np.int32)), "nxt is int32[3], not"),
    "another type": (lambda p: numpy_file(p, nxt=np.zeros(N, ">i4")), "not int32[60]"),
    "objects": (lambda p: numpy_file(p, nxt=np.array([None] * N)), "nxt is object[60], not"),
    "another name": (lambda p: numpy_file(p, next=np.zeros(N)), "'next', and the sequence takes"),
    "a bomb": (lambda p: zipped(p, header_of("<i4", (N,)), bytes(1 << 22)), "nxt is larger than"),
    "a long header": (
        lambda p: zipped(p, header_of("<i4", (N,), b"\2\0"), b""),
        "the format (2, 0)",
    ),
    "no header": (lambda p: zipped(p, b"\x93NUMPY\1\0\3\0(((", b""), "is no .npz file of arrays"),
    "torn": (lambda p: zipped(p, header_of("<i4", (N,)), bytes(5)), "nxt is torn"),
    "no array": (lambda p: zipped(p, b"", b"hello"), "is no .npz file of arrays"),
    "outside": (lambda p: zipped(p, b"", b"", "../nxt.npy"), "gives '../nxt'"),
    "no archive": (lambda p: p.write_bytes(b"PK") and p, "is no .npz file of arrays"),
    "a pipe": (lambda p: os.mkfifo(p) or p, "it is no regular file"),
    "a folder": (lambda p: p.mkdir() or p, "cannot be read"),
    "nothing": (lambda p: p, "cannot be read: No such file"),
}


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return explored("lists", tmp_path_factory.mktemp("linked") / "run")


@pytest.mark.parametrize("what", HOSTILE)
def test_inputs_that_do_not_fit_are_a_sentence(what: str, linked: Path, tmp_path: Path) -> None:
    make, words = HOSTILE[what]
    with pytest.raises(RecordError) as told:
        replay_again(linked, inputs=make(tmp_path / "mine.npz"))
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_inputs_in_any_order_of_memory_are_read(linked: Path, tmp_path: Path) -> None:
    is_as_given(load(linked), "lists", numpy_file(tmp_path / "a.npz", **arguments()["lists"][1]))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"nxt": {"key": "../../evil"}}, "is no key of what nxt held"),
        ({"none": "abc"}, "is none of its arrays"),
        ({"nxt": "abc"}, "what nxt held cannot be read"),
        ({"nxt": kept.packed(np.zeros(1 << 20, np.int32))}, "what nxt held is not of its shape"),
        ({"nxt": kept.packed(np.zeros(N - 1, np.int32))}, "what nxt held is not of its shape"),
        ({"nxt": 3}, "does not hold what it should"),
        ({}, "does not hold the values of nxt and heads"),
    ],
)
def test_what_a_file_says_it_kept_is_checked(content, words: str, linked: Path, explore) -> None:
    best = json.loads((linked / "best.json").read_text())
    best["stored"]["kept"] = content
    Path("best.json").write_text(json.dumps(best))
    code, out, err = explore("replay", "best.json")
    assert (code in (cli.Exit.USAGE, cli.Exit.STALE), out, err.count("\n")) == (True, "", 1)
    assert words in err


def test_fields_of_a_sparse_tree_are_compared_where_their_cells_are(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    ks.init()
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, 16).dense(ks.i, 4).place(x, y)
    for i in range(0, 64, 9):
        x[i] = i

    @ks.kernel
    def add() -> None:
        for i in x:
            y[i] += 2 * x[i]

    def step() -> None:
        add()

    ks.explore(step, target="fake", max_evals=1, directory=tmp_path / "run")
    ks.reset()
    done = check(load(tmp_path / "run"), tmp_path / "out")
    assert (done.returncode, done.stdout) == (0, "step: all 48 values agree\n")
