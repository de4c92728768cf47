"""The shared library beside a best.json: with it a replay needs no compiler, and nothing that was not built here is run."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.library import load
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.records.libraries import _hash, registry

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not here"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two evaluations by a user of their own, whose data and cache are beside it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        run = ks.explore(
            load("vadd").sequence, *arguments(), max_evals=1, time_limit=5, directory=folder / "run"
        )
    assert run.best is not None
    return folder


@pytest.fixture(autouse=True)
def _heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """import-linter, where a test of the same process ran it, has disabled every logger."""
    monkeypatch.setattr(logging.getLogger("kernelscape"), "disabled", False)


@pytest.fixture
def best(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of its best.json with the library."""
    monkeypatch.setenv("XDG_DATA_HOME", str(made / "data"))
    for name in ("best.json", "best.so"):
        shutil.copy(made / "run" / name, tmp_path / name)
    return tmp_path / "best.json"


def arguments() -> tuple[np.ndarray, ...]:
    return load("vadd").make_arguments({"n": 100}, np.float32, np.random.default_rng(1))


def is_right(path: Path, **more: bool) -> bool:
    w, y, z, x = arguments()
    ks.replay(path, **more)(w, y, z, x)
    return bool(np.allclose(x, w + y + z))


def change_library(best: Path, **changes: str) -> None:
    content = json.loads(best.read_text())
    content["library"] |= changes
    best.write_text(json.dumps(content))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


@pytest.fixture
def hostile(best: Path) -> Path:
    """Another library in its place, which best.json names with its true hash; the file that it makes when it is loaded."""
    mark = best.parent / "it_ran"
    text = (
        "#include <stdio.h>\nvoid run_sequence(void **args) {}\n"
        '__attribute__((constructor)) void f(void) { fclose(fopen("MARK", "w")); }\n'
    )
    source = best.parent / "hostile.c"
    source.write_text(text.replace("MARK", str(mark)))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", best.with_suffix(".so"), source], check=True)
    change_library(best, hash=_hash(best.with_suffix(".so").read_bytes()))
    return mark


def test_a_replay_needs_no_compiler(best: Path, no_compiler: None) -> None:
    assert is_right(best)
    best.with_suffix(".so").unlink()
    with pytest.raises(DeviceError, match="no C compiler"):
        is_right(best)


def test_the_command_needs_no_compiler_where_it_had_one(explore, best: Path, monkeypatch) -> None:
    assert explore("replay", best, "--tolerance", "10000%")[0] == 0
    monkeypatch.setenv("PATH", "")
    code, out, err = explore("replay", best, "--tolerance", "10000%")
    assert code == 0, err
    assert "verified on 3 input sets" in out


def test_what_is_saved_takes_it_along(best: Path, tmp_path: Path, no_compiler: None) -> None:
    saved = ks.load(best).save(tmp_path / "elsewhere.json")
    assert is_right(saved)


def test_what_was_not_built_here_is_not_run(best: Path, hostile: Path, caplog) -> None:
    assert is_right(best)  # built again
    assert not hostile.exists()
    assert "was not built here: it is built again, unless you trust it" in caplog.text


def test_without_a_compiler_it_is_a_sentence(
    explore, best: Path, hostile: Path, no_compiler
) -> None:
    code, out, err = explore("replay", best)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "was not built here" in err
    assert not hostile.exists()


def test_a_user_may_trust_it(best: Path, hostile: Path) -> None:
    assert not is_right(best, trust_library=True)
    assert hostile.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpu": "of another"}, "built for a CPU with other instructions"),
        ({"hash": "0" * 64}, "is not the library that best.json names"),
        ({"source_key": "0" * 24}, "is not the library that best.json names"),
    ],
)
def test_what_does_not_fit_is_built_again(best: Path, caplog, changes, words: str) -> None:
    change_library(best, **changes)
    with caplog.at_level(logging.WARNING, "kernelscape"):
        assert is_right(best)
    assert words in caplog.text


def test_a_library_of_another_source_is_not_ours(best: Path, hostile: Path, no_compiler) -> None:
    """Its hash is known, but of another source: built here is not enough."""
    digest = json.loads(best.read_text())["library"]["hash"]
    (registry() / f"{digest}.json").write_text(json.dumps({"source_key": "other", "cpu": ""}))
    with pytest.raises(DeviceError):
        is_right(best)
    assert not hostile.exists()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_what_others_may_have_registered_is_not_ours(
    best: Path, no_compiler: None, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """The kind: a folder that decides what is loaded. Only this user may write to it."""
    data = best.parent / "theirs"
    shutil.copytree(registry(), data / "kernelscape" / "libraries")
    (data / "kernelscape" / "libraries").chmod(0o700)
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    assert is_right(best)
    (data / "kernelscape" / "libraries").chmod(mode)
    with pytest.raises(DeviceError):
        is_right(best)


@pytest.mark.parametrize("spoil", [os.mkfifo, lambda place: place.symlink_to("/dev/zero")])
def test_what_is_no_library_is_not_read(best: Path, caplog, spoil) -> None:
    best.with_suffix(".so").unlink()
    spoil(best.with_suffix(".so"))
    assert is_right(best)
    assert "best.so is not read, since it is" in caplog.text
